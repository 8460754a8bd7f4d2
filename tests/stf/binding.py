"""From the names of STF statements to those of a program, and from written values to matches.

STF files shorten names: a table, action or extern may be written by its last parts, a key by its last parts, a stack
element as `h$0`, a validity bit as `h.$valid$`, `h.valid` or `h`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from switch.api import ActionCall, KeyMatch, MatchKind
from switch.model import Action, Program, Table, TableKey

from .grammar import Add, Call, Key, StfError, number

_DIGIT_BITS = {"0x": 4, "0b": 1, "0o": 3}


def find(kind: str, written: str, names: Iterable[str]) -> str:
    """The one of `names` that `written` stands for: the same, else the one that ends with it."""
    known = list(dict.fromkeys(names))
    if written in known:
        return written
    for found in ([n for n in known if n.endswith(f".{written}")], [n for n in known if n.endswith(written)]):
        if len(found) == 1:
            return found[0]
        if found:
            raise StfError(f"{kind} {written!r} may be {' or '.join(found)}")
    raise StfError(f"there is no {kind} {written!r}; known: {', '.join(known) or 'none'}")


def tables(program: Program) -> dict[str, Table]:
    return {**program.ingress.tables, **program.egress.tables}


def call(program: Program, written: Call, action_ids: Iterable[int]) -> ActionCall:
    """An action among those allowed, its parameters in order."""
    actions = {program.actions[action_id].name: program.actions[action_id] for action_id in action_ids}
    action: Action = actions[find("action", written.action, actions)]
    args = dict(written.args)
    names = [param.name for param in action.params]
    if sorted(args) != sorted(names):
        raise StfError(f"action {action.name} takes ({', '.join(names)}), not ({', '.join(args)})")
    params = []
    for param in action.params:
        value = number(args[param.name])
        if value >> param.bits:
            raise StfError(f"action {action.name}: {param.name} {args[param.name]} does not fit {param.bits} bits")
        params.append(value)
    return ActionCall(action.name, tuple(params))


def _key_name(written: str, names: list[str]) -> str:
    name = re.sub(r"\$([0-9]+)", r"[\1]", written)
    for candidate in (name, f"{name}.$valid$", re.sub(r"\.valid$", ".$valid$", name)):
        if candidate in names:
            return candidate
    found = [n for n in names if n.endswith((f".{name}", f".{name}.$valid$")) or (name == "valid" and "$valid$" in n)]
    if len(found) != 1:
        raise StfError(f"{'no' if not found else 'more than one'} key is called {written!r}; keys: {', '.join(names)}")
    return found[0]


def _digits(text: str) -> tuple[int, int, int]:
    """(value, mask, bits) of the digits written; `*` is a digit that does not matter."""
    prefix, digits = text[:2].lower(), text[2:]
    width = _DIGIT_BITS[prefix]
    value = mask = 0
    for digit in digits:
        value = value << width | (0 if digit == "*" else int(digit, 16))
        mask = mask << width | (0 if digit == "*" else (1 << width) - 1)
    return value, mask, width * len(digits)


def _ternary(key: TableKey, written: Key) -> tuple[int, int]:
    full = (1 << key.bits) - 1
    if written.form == "any":
        return 0, 0
    if written.form == "mask":
        return number(written.first), number(written.second)
    if written.form == "prefix":
        return number(written.first), full ^ (full >> number(written.second))
    if written.first[:2].lower() in _DIGIT_BITS:
        value, mask, _ = _digits(written.first)  # as p4c's driver: only the digits that are written count
        return value, mask
    return number(written.first), full


def _match(key: TableKey, written: Key) -> KeyMatch:
    full = (1 << key.bits) - 1
    allowed = {
        MatchKind.EXACT: ("value",),
        MatchKind.LPM: ("value", "prefix", "any"),
        MatchKind.TERNARY: ("value", "prefix", "mask", "any"),
        MatchKind.OPTIONAL: ("value", "any"),
        MatchKind.RANGE: ("value", "range", "any"),
    }
    if written.form not in allowed.get(key.kind, ()):
        raise StfError(f"key {key.name} is {key.kind.value}: a {written.form} cannot match it")
    match key.kind:
        case MatchKind.EXACT:
            made = KeyMatch(key.kind, number(written.first))
        case MatchKind.LPM:
            length = key.bits
            value = 0
            if written.form == "any":
                length = 0
            elif written.form == "prefix":
                value, length = number(written.first), number(written.second)
            elif "*" in written.first:
                value, mask, bits = _digits(written.first)
                length = key.bits - bits + mask.bit_count()
            else:
                value = number(written.first)
            if not 0 <= length <= key.bits:
                raise StfError(f"key {key.name}: prefix length {length}, must be 0..{key.bits}")
            made = KeyMatch(key.kind, value & (full ^ (full >> length)), prefix_len=length)
        case MatchKind.TERNARY:
            value, mask = _ternary(key, written)
            made = KeyMatch(key.kind, value & mask, mask)
        case MatchKind.OPTIONAL:
            any_value = written.form == "any"
            made = KeyMatch(key.kind, 0 if any_value else number(written.first), 0 if any_value else full)
        case _:
            low = 0 if written.form == "any" else number(written.first)
            high = {"any": full, "range": number(written.second)}.get(written.form, low)
            made = KeyMatch(key.kind, low, high=high)
    for value in (made.value, made.mask, made.high):
        if value >> key.bits:
            raise StfError(f"key {key.name}: {value:#x} does not fit {key.bits} bits")
    return made


_MISSING = Key("", "any")


def matches(table: Table, add: Add) -> list[KeyMatch]:
    """The keys of an entry in the table's order; one that is not written matches anything, or 0 where exact."""
    names = [key.name for key in table.keys]
    written: dict[str, Key] = {}
    for given in add.keys:
        written[_key_name(given.name, names)] = given
    found = []
    for key in table.keys:
        default = Key("", "value") if key.kind is MatchKind.EXACT else _MISSING
        found.append(_match(key, written.get(key.name, default)))
    return found


def needs_priority(table: Table) -> bool:
    return any(key.kind in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL) for key in table.keys)
