"""From the text of an STF file to statements.

One statement a line; `#` starts a comment; keywords in any case. The words are those of p4c's BMv2 test driver:

    add TABLE [PRIORITY] KEY:VALUE ... ACTION(ARG:VALUE, ...) [= NAME]       setdefault TABLE ACTION(...)
    packet PORT HEX    expect PORT [HEX with * and $]    no_packet    wait    remove all
    check_counter COUNTER(INDEX or $NAME) [packets|bytes == != < <= > >= NUMBER]
    mirroring_add SESSION PORT    mirroring_add_mc SESSION GROUP    mirroring_delete SESSION
    mc_mgrp_create GROUP    mc_node_create RID PORT ...    mc_node_update NODE PORT ...    mc_node_associate GROUP NODE
    counter_read/counter_write, register_read/register_write/register_reset,
    meter_get_rates/meter_set_rates/meter_array_set_rates with the arguments of simple_switch_CLI

and these are ours, for what p4c's files have no word for:

    wait MICROSECONDS                             time passes (otherwise all happens at one instant)
    register_read REGISTER INDEX == NUMBER        reads and compares
    check_asserts == NUMBER                       assert() and assume() that failed so far
    expect_digest LIST HEX                        digests are compared in order, all of them, where one is expected
    value_set NAME [VALUE | VALUE&&&MASK] ...     replaces the members
    member PROFILE ID ACTION(...)                 group PROFILE ID MEMBER[:WEIGHT] ...
    add TABLE KEY:VALUE ... @member(ID)           ... @group(ID)
    KEY:LOW->HIGH, KEY:VALUE&&&MASK, KEY:*        in `add`, for range, ternary and optional keys
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

NODE_WORDS = {"mc_node_create": 2, "mc_node_update": 2}
NUMBER_WORDS = {
    "mirroring_add": 2,
    "mirroring_add_mc": 2,
    "mirroring_delete": 1,
    "mirroring_get": 1,
    "mc_mgrp_create": 1,
    "mc_node_associate": 2,
}
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")

_COMMENT = re.compile(r"^((?:[^\"#]|\"[^\"]*\")*)#.*$")  # not inside quotes
_TOKEN = re.compile(
    r"""\s*(?:
      "(?P<quoted>[^"]+)"
    | (?P<number>0[xX][0-9a-fA-F*]+ | 0[bB][01*]+ | 0[oO][0-7*]+ | [0-9]+(?:\.[0-9]+)?)
    | (?P<name>[A-Za-z_$@][A-Za-z_0-9$]*)
    | (?P<mark>&&& | -> | == | != | <= | >= | [<>=:,.\[\]()/*])
    )""",
    re.VERBOSE,
)


class StfError(ValueError):
    """A line that is no STF statement, or names what the program does not have."""


@dataclass(frozen=True, slots=True)
class Call:
    """An action with arguments by name, values as written."""

    action: str
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Indirect:
    """A member or a group of an action profile, in place of an action."""

    kind: str  # "member" or "group"
    number: int


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an entry. form: value, prefix (with `second` bits), mask, range or any."""

    name: str
    form: str
    first: str = "0"
    second: str = "0"


@dataclass(frozen=True, slots=True)
class Add:
    table: str
    priority: int
    keys: tuple[Key, ...]
    action: Call | Indirect
    handle: str  # "" where the entry gets no name


@dataclass(frozen=True, slots=True)
class SetDefault:
    table: str
    action: Call


@dataclass(frozen=True, slots=True)
class Packet:
    port: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """pattern: hex digits and `*`; None: any number of frames. exact: no bytes may follow."""

    port: int
    pattern: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class ExpectDigest:
    list_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    microseconds: int


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """cell: an index, or the name of an entry after `$`. what "": only that the cell exists."""

    counter: str
    cell: int | str
    what: str
    comparison: str
    number: int


@dataclass(frozen=True, slots=True)
class RegisterRead:
    register: str
    index: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    register: str
    index: int | None  # None: every cell
    value: int


@dataclass(frozen=True, slots=True)
class CounterWrite:
    counter: str
    index: int
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MeterRates:
    """rates: (units a microsecond as written, burst in units), committed first. None: only look at the cell."""

    meter: str
    cell: int | str | None  # None: every cell
    rates: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class CheckAsserts:
    number: int


@dataclass(frozen=True, slots=True)
class ValueSet:
    name: str
    members: tuple[tuple[int, int | None], ...]  # mask None: all bits


@dataclass(frozen=True, slots=True)
class Member:
    profile: str
    number: int
    action: Call


@dataclass(frozen=True, slots=True)
class Group:
    profile: str
    number: int
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Replication:
    """A word of the replication engine with its numbers."""

    word: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoveAll:
    pass


Body = (
    Add | SetDefault | Packet | Expect | ExpectDigest | Wait | CheckCounter | RegisterRead | RegisterWrite
    | CounterWrite | MeterRates | CheckAsserts | ValueSet | Member | Group | Replication | RemoveAll
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statement:
    line: int
    body: Body


def number(text: str) -> int:
    """A number as STF writes it: decimal, 0x, 0b or 0o."""
    try:
        return int(text, 0) if text[:2].lower() in ("0x", "0b", "0o") else int(text)
    except ValueError:
        raise StfError(f"{text!r} is not a whole number") from None


class _Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise StfError(f"unexpected {text[at:].strip()!r}")
            kind = match.lastgroup or ""
            self.tokens.append(("name" if kind == "quoted" else kind, match[kind]))
            at = match.end()
        self.at = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ("end", "")

    def take(self, kind: str, text: str = "") -> str:
        found, value = self.peek()
        if found != kind or (text and value != text):
            raise StfError(f"{text or kind} expected, found {value or 'the end of the line'!r}")
        self.at += 1
        return value

    def accept(self, text: str) -> bool:
        if self.peek() == ("mark", text):
            self.at += 1
            return True
        return False

    def number(self) -> int:
        return number(self.take("number"))

    def numbers(self, at_least: int) -> tuple[int, ...]:
        found = []
        while self.peek()[0] == "number":
            found.append(self.number())
        if len(found) < at_least:
            raise StfError(f"at least {at_least} numbers expected, found {len(found)}")
        return tuple(found)

    def qualified(self) -> str:
        """A name with dots and indices, such as `ingress.hdrs[1].f`."""
        name = self.take("name")
        while True:
            if self.accept("["):
                name += f"[{self.take('number')}]"
                self.take("mark", "]")
            elif self.accept("."):
                name += "." + self.take("name")
            else:
                return name

    def call(self) -> Call:
        action = self.qualified()
        args: list[tuple[str, str]] = []
        self.take("mark", "(")
        while not self.accept(")"):
            if args:
                self.take("mark", ",")
            name = self.qualified()
            self.take("mark", ":")
            args.append((name, self.take("number")))
        return Call(action, tuple(args))

    def key(self) -> Key:
        name = self.qualified()
        self.take("mark", ":")
        if self.accept("*"):
            return Key(name, "any")
        first = self.take("number")
        for mark, form in (("/", "prefix"), ("&&&", "mask"), ("->", "range")):
            if self.accept(mark):
                return Key(name, form, first, self.take("number"))
        return Key(name, "value", first)

    def cell(self) -> int | str:
        """An index, or `$NAME`."""
        if self.peek()[0] == "number":
            return self.number()
        name = self.take("name")
        if not name.startswith("$"):
            raise StfError(f"{name!r}: the name of an entry is written ${name}")
        return name[1:]

    def comparison(self) -> str:
        text = self.take("mark")
        if text not in COMPARISONS:
            raise StfError(f"{text!r} is not one of {' '.join(COMPARISONS)}")
        return text

    def end(self) -> None:
        if self.peek()[0] != "end":
            raise StfError(f"unexpected {self.peek()[1]!r}")


def _packet(word: str, text: str) -> Packet | Expect:
    port_text, _, data = text.strip().partition(" ")
    port = number(port_text)
    digits = "".join(data.split()).lower()
    if word == "packet":
        try:
            return Packet(port, bytes.fromhex(digits))
        except ValueError:
            raise StfError(f"{data.strip()!r} is not a whole number of bytes in hexadecimal") from None
    exact = digits.endswith("$")
    digits = digits.removesuffix("$")
    if wrong := set(digits) - set("0123456789abcdef*"):
        raise StfError(f"{''.join(sorted(wrong))!r} in an expected frame; hexadecimal digits, * and a last $ may be")
    return Expect(port, digits if digits or exact else None, exact)


def _add(line: _Line) -> Add:
    table = line.qualified()
    priority = line.number() if line.peek()[0] == "number" else 0
    keys = []
    while True:
        start = line.at
        if line.peek()[1] in ("@member", "@group"):
            kind = line.take("name")[1:]
            line.take("mark", "(")
            action: Call | Indirect = Indirect(kind, line.number())
            line.take("mark", ")")
            break
        line.qualified()
        is_action = line.peek() == ("mark", "(")
        line.at = start
        if is_action:
            action = line.call()
            break
        keys.append(line.key())
    handle = line.take("name") if line.accept("=") else ""
    return Add(table, priority, tuple(keys), action, handle)


def _check_counter(line: _Line) -> CheckCounter:
    counter = line.qualified()
    line.take("mark", "(")
    cell = line.cell()
    line.take("mark", ")")
    if line.peek()[0] == "end":
        return CheckCounter(counter, cell, "", "==", 0)
    what = line.take("name").lower()
    if what not in ("packets", "bytes"):
        raise StfError(f"{what!r} is not packets or bytes")
    return CheckCounter(counter, cell, what, line.comparison(), line.number())


def _rates(line: _Line) -> tuple[tuple[str, int], ...]:
    rates = []
    while line.peek()[0] == "number":
        rate = line.take("number")
        line.take("mark", ":")
        rates.append((rate, line.number()))
    if len(rates) != 2:
        raise StfError(f"two rates expected (committed:burst peak:burst), found {len(rates)}")
    return tuple(rates)


def _members(line: _Line) -> Iterator[tuple[int, int]]:
    while line.peek()[0] == "number":
        member = line.number()
        yield member, line.number() if line.accept(":") else 1


def _values(line: _Line) -> Iterator[tuple[int, int | None]]:
    while line.peek()[0] == "number":
        value = line.number()
        yield value, line.number() if line.accept("&&&") else None


def _body(word: str, text: str) -> Body:
    if word in ("packet", "expect"):
        return _packet(word, text)
    line = _Line(text)
    body: Body
    match word:
        case "add":
            body = _add(line)
        case "setdefault":
            body = SetDefault(line.qualified(), line.call())
        case "wait":
            body = Wait(line.number() if line.peek()[0] == "number" else 0)
        case "no_packet":
            body = Wait(0)  # what is not expected fails anyway
        case "remove":
            if line.take("name").lower() != "all":
                raise StfError("only `remove all` is known")
            body = RemoveAll()
        case "check_counter":
            body = _check_counter(line)
        case "check_asserts":
            line.take("mark", "==")
            body = CheckAsserts(line.number())
        case "expect_digest":
            list_id = line.number()
            return ExpectDigest(list_id, bytes.fromhex(text.strip().partition(" ")[2]))
        case "register_read":
            register, index = line.qualified(), line.number()
            body = RegisterRead(register, index, line.number() if line.accept("==") else None)
        case "register_write":
            body = RegisterWrite(line.qualified(), line.number(), line.number())
        case "register_reset":
            body = RegisterWrite(line.qualified(), None, 0)
        case "counter_read":
            body = CheckCounter(line.qualified(), line.cell(), "", "==", 0)
        case "counter_write":
            body = CounterWrite(line.qualified(), line.number(), line.number(), line.number())
        case "meter_get_rates":
            body = MeterRates(line.qualified(), line.cell(), None)
        case "meter_set_rates":
            body = MeterRates(line.qualified(), line.cell(), _rates(line))
        case "meter_array_set_rates":
            body = MeterRates(line.qualified(), None, _rates(line))
        case "value_set":
            body = ValueSet(line.qualified(), tuple(_values(line)))
        case "member":
            body = Member(line.qualified(), line.number(), line.call())
        case "group":
            body = Group(line.qualified(), line.number(), tuple(_members(line)))
        case _ if word in NODE_WORDS:
            body = Replication(word, line.numbers(NODE_WORDS[word]))
        case _ if word in NUMBER_WORDS:
            body = Replication(word, tuple(line.number() for _ in range(NUMBER_WORDS[word])))
        case _:
            raise StfError(f"unknown statement {word!r}")
    line.end()
    return body


def parse(text: str) -> list[Statement]:
    """All statements of an STF file. Raises `StfError` that names the line."""
    statements = []
    for at, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub(r"\1", raw).strip()
        if not line:
            continue
        word, _, rest = line.replace("\t", " ").partition(" ")
        try:
            statements.append(Statement(at, _body(word.lower(), rest)))
        except (StfError, ValueError) as error:
            raise StfError(f"line {at}: {error}") from None
    return statements
