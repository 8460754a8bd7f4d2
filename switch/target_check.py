"""Does a P4Info describe a program? Everything that a client can name must exist in the BMv2 JSON with the same shape.

`fit_problems` lists each difference in one line, for the answer to SetForwardingPipelineConfig.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from switch import model
from switch.api import MatchKind
from switch.p4rt import p4data, schema
from switch.target_tm import COUNTER_KINDS, REGISTER_KINDS, table_problems


def fit_problems(info: schema.Schema, program: model.Program) -> list[str]:
    """What P4Info says that the program does not bear out; empty when they fit."""
    return [*_tables(info, program), *_profiles(info, program), *_arrays(info, program), *_others(info, program)]


def _tables(info: schema.Schema, program: model.Program) -> Iterator[str]:
    tables = {**program.ingress.tables, **program.egress.tables}
    for table in info.tables.values():
        found = tables.get(table.name)
        if found is None:
            yield f"table {table.name}: in P4Info, but not in the program"
            continue
        theirs = [(key.kind, key.bits) for key in found.keys]
        ours = [(field.kind, field.bits) for field in table.fields]
        if not _same_key(ours, theirs):
            yield f"table {table.name}: its key is {_key(ours)} in P4Info and {_key(theirs)} in the program"
        actions = {program.actions[action_id].name: program.actions[action_id] for action_id in found.action_ids}
        for ref in table.actions.values():
            yield from _action(table, ref.action, actions)
        profile = info.profiles.get(table.profile_id)
        if (profile.name if profile else None) != found.implementation:
            yield (
                f"table {table.name}: its action profile is {profile and profile.name} in P4Info, "
                f"{found.implementation} in the program"
            )
        if table.direct_counter and not found.with_counters:
            yield f"table {table.name}: it has a direct counter in P4Info, but not in the program"
        meter = info.direct_meters.get(table.direct_meter)
        if meter is not None and meter.name != found.direct_meter:
            yield f"table {table.name}: direct meter {meter.name} is not in the program"
        if table.idle_timeout and not found.support_timeout:
            yield f"table {table.name}: it supports time-outs in P4Info, but not in the program"
        if table.tm:
            yield from table_problems(table)


def _same_key(ours: list[tuple[MatchKind, int]], theirs: list[tuple[MatchKind, int]]) -> bool:
    """p4c writes an optional key as a ternary one."""
    if len(ours) != len(theirs):
        return False
    return all(
        bits == their_bits and (kind == their_kind or (kind, their_kind) == (MatchKind.OPTIONAL, MatchKind.TERNARY))
        for (kind, bits), (their_kind, their_bits) in zip(ours, theirs, strict=True)
    )


def _key(key: list[tuple[Any, int]]) -> str:
    return "(" + ", ".join(f"{kind.value} {bits}" for kind, bits in key) + ")"


def _action(table: schema.Table, action: schema.Action, actions: Mapping[str, model.Action]) -> Iterator[str]:
    found = actions.get(action.name)
    if found is None:
        yield f"table {table.name}: action {action.name} is in P4Info, but the program's table does not have it"
        return
    ours, theirs = [param.bits for param in action.params], [param.bits for param in found.params]
    if ours != theirs:
        yield f"action {action.name}: its parameters have widths {ours} in P4Info and {theirs} in the program"


def _profiles(info: schema.Schema, program: model.Program) -> Iterator[str]:
    profiles = {**program.ingress.action_profiles, **program.egress.action_profiles}
    for profile in info.profiles.values():
        found = profiles.get(profile.name)
        if found is None:
            yield f"action profile {profile.name}: in P4Info, but not in the program"
        elif profile.selector and found.selector is None:
            yield f"action profile {profile.name}: it has a selector in P4Info, but not in the program"


def _arrays(info: schema.Schema, program: model.Program) -> Iterator[str]:
    kinds: tuple[tuple[str, Mapping[int, Any], Mapping[str, Any]], ...] = (
        ("counter", info.counters, program.counters),
        ("meter", info.meters, program.meters),
        ("register", info.registers, program.registers),
    )
    for kind, ours, theirs in kinds:
        for item in ours.values():
            found = theirs.get(item.name)
            if found is None:
                yield f"{kind} {item.name}: in P4Info, but not in the program"
            elif item.size > found.size:
                yield f"{kind} {item.name}: its size is {item.size} in P4Info and {found.size} in the program"
    for register in info.registers.values():
        in_program = program.registers.get(register.name)
        bits = next(p4data.leaves(register.type)).bits
        if in_program is not None and bits != in_program.bits:
            yield f"register {register.name}: {bits} bits wide in P4Info and {in_program.bits} in the program"
        if register.tm and register.tm not in REGISTER_KINDS:
            yield f'register {register.name}: @tm("{register.tm}"): unknown; known: {", ".join(REGISTER_KINDS)}'
    for counter in info.counters.values():
        if counter.tm and counter.tm not in COUNTER_KINDS:
            yield f'counter {counter.name}: @tm("{counter.tm}"): unknown; known: {", ".join(COUNTER_KINDS)}'


def _others(info: schema.Schema, program: model.Program) -> Iterator[str]:
    lists = {learn_list.name: learn_list for learn_list in program.learn_lists.values()}
    for digest in info.digests.values():
        found = lists.get(digest.name)
        if found is None:
            yield f"digest {digest.name}: in P4Info, but not in the program"
            continue
        ours = [leaf.bits for leaf in p4data.leaves(digest.type)]
        theirs = [bits for _, bits in found.elements]
        if ours != theirs:
            yield f"digest {digest.name}: its members have widths {ours} in P4Info and {theirs} in the program"
    for value_set in info.value_sets.values():
        in_program = program.value_sets.get(value_set.name)
        bits = sum(field.bits for field in value_set.fields)
        if in_program is None:
            yield f"value set {value_set.name}: in P4Info, but not in the program"
        elif in_program.bits != bits:
            yield f"value set {value_set.name}: {bits} bits wide in P4Info and {in_program.bits} in the program"
