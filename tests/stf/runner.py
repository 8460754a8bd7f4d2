"""Plays the statements of an STF file to an engine, in order, and compares what came out at the end.

As p4c's driver does: frames that leave through ports that the file does not name are not looked at; frames are compared
port by port, in the order in which they left; an expectation without a final `$` is a prefix; a port that nothing is
expected on may send nothing. Unlike it, counters, and what our own words ask, are compared where they stand.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from switch.api import CounterValue, EntryAction, GroupRef, MemberRef, MeterConfig
from switch.model import Program, Table

from . import binding
from .engines import Engine
from .grammar import (
    Add,
    Body,
    CheckAsserts,
    CheckCounter,
    CounterWrite,
    Expect,
    ExpectDigest,
    Group,
    Indirect,
    Member,
    MeterRates,
    Packet,
    RegisterRead,
    RegisterWrite,
    RemoveAll,
    Replication,
    SetDefault,
    Statement,
    StfError,
    ValueSet,
    Wait,
)

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
UNITS_PER_SECOND = 10**6  # of a rate of one unit a microsecond


class Difference(Exception):
    """What came out is not what the file expects; the message says which line, and both."""


def ports_of(statements: list[Statement]) -> set[int]:
    """Ports that packets come in on or are expected on."""
    return {statement.body.port for statement in statements if isinstance(statement.body, Packet | Expect)}


def _differs(expected: Expect, frame: bytes) -> str | None:
    pattern, digits = expected.pattern or "", frame.hex()
    if len(digits) < len(pattern):
        return f"shorter than {pattern}"
    if expected.exact and len(digits) > len(pattern):
        return f"longer than {pattern}$"
    for at, (want, got) in enumerate(zip(pattern, digits, strict=False)):
        if want not in ("*", got):
            return f"byte {at // 2} is not that of {pattern}"
    return None


@dataclass
class Runner:
    """One run of one file. `handles`: entries that the file named, with their tables."""

    program: Program
    engine: Engine
    handles: dict[str, tuple[str, int]] = field(default_factory=dict)
    entries: list[tuple[str, int]] = field(default_factory=list)
    nodes: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)  # (rid, ports)
    groups: dict[int, list[int]] = field(default_factory=dict)  # multicast group -> its nodes
    mirrored: dict[int, int] = field(default_factory=dict)  # clone session -> multicast group
    sent: list[tuple[int, int, bytes]] = field(default_factory=list)  # (line of the packet, port, frame)
    digests: list[tuple[int, bytes]] = field(default_factory=list)

    def run(self, statements: list[Statement]) -> None:
        """Raise `Difference` at the first difference, `StfError` for what this program has not."""
        for statement in statements:
            self.step(statement)
        self._compare(statements)

    def step(self, statement: Statement) -> None:
        """One statement; what it sends is added to `sent` and `digests`. Raises as `run` does."""
        try:
            self._do(statement.line, statement.body)
        except StfError as error:
            raise StfError(f"line {statement.line}: {error}") from None
        except ValueError as error:
            raise Difference(f"line {statement.line}: refused: {error}") from error

    # --- results ---------------------------------------------------------------------------------------------------

    def _compare(self, statements: list[Statement]) -> None:
        expected: dict[int, list[tuple[int, Expect]]] = {port: [] for port in sorted(ports_of(statements))}
        for statement in statements:
            if isinstance(statement.body, Expect):
                expected[statement.body.port].append((statement.line, statement.body))
        for port, wanted in expected.items():
            if any(expect.pattern is None for _, expect in wanted):
                continue
            got = [(line, frame) for line, at, frame in self.sent if at == port]
            for (line, expect), (origin, frame) in zip(wanted, got, strict=False):
                if difference := _differs(expect, frame):
                    raise Difference(f"line {line}: port {port} sent {frame.hex()} (of line {origin}), {difference}")
            if len(got) < len(wanted):
                raise Difference(f"line {wanted[len(got)][0]}: port {port} sent {len(got)} frames of {len(wanted)}")
            if len(got) > len(wanted):
                origin, frame = got[len(wanted)]
                raise Difference(f"line {origin}: port {port} sent {frame.hex()}, which is not expected")
        digests = [statement.body for statement in statements if isinstance(statement.body, ExpectDigest)]
        if digests and [(digest.list_id, digest.data) for digest in digests] != self.digests:
            raise Difference(f"digests are {[(list_id, data.hex()) for list_id, data in self.digests]}")

    # --- statements ------------------------------------------------------------------------------------------------

    def _do(self, line: int, body: Body) -> None:
        control = self.engine.control
        match body:
            case Packet(port, frame):
                self.sent += [(line, to, sent) for to, sent in self.engine.receive(port, frame)]
                self.digests += self.engine.take_digests()
            case Expect() | ExpectDigest():
                pass
            case Wait(microseconds):
                self.engine.pass_us(microseconds)
            case Add():
                self._add(body)
            case SetDefault(name, action):
                table = self._table(name)
                control.table_set_default(table.name, binding.call(self.program, action, table.action_ids))
            case RemoveAll():
                for name, handle in self.entries:
                    control.table_delete(name, handle)
                self.entries.clear()
                self.handles.clear()
            case CheckCounter():
                self._check_counter(body)
            case CounterWrite(name, index, packets, count):
                name = binding.find("counter", name, self.program.counters)
                control.counter_write(name, index, CounterValue(packets, count))
            case RegisterRead(name, index, expected):
                name = binding.find("register", name, self.program.registers)
                value = control.register_read(name, index)
                if expected is not None and value != expected:
                    raise Difference(f"line {line}: register {name}[{index}] is {value:#x}, not {expected:#x}")
            case RegisterWrite(name, at, value):
                name = binding.find("register", name, self.program.registers)
                for index in range(self.program.registers[name].size) if at is None else (at,):
                    control.register_write(name, index, value)
            case MeterRates():
                self._meter(body)
            case CheckAsserts(expected_failures):
                if self.engine.failed_asserts != expected_failures:
                    raise Difference(f"line {line}: {self.engine.failed_asserts} asserts failed")
            case ValueSet(name, members):
                name = binding.find("value set", name, self.program.value_sets)
                full = (1 << self.program.value_sets[name].bits) - 1
                control.value_set_write(name, [(value, full if mask is None else mask) for value, mask in members])
            case Member(profile, number, action):
                profile, tables = self._profile(profile)
                allowed = [action_id for table in tables for action_id in table.action_ids]
                control.member_set(profile, number, binding.call(self.program, action, allowed))
            case Group(profile, number, members):
                control.group_set(self._profile(profile)[0], number, members)
            case Replication(word, numbers):
                self._replicate(word, numbers)

    def _table(self, name: str) -> Table:
        tables = binding.tables(self.program)
        return tables[binding.find("table", name, tables)]

    def _profile(self, name: str) -> tuple[str, list[Table]]:
        tables = [table for table in binding.tables(self.program).values() if table.implementation]
        profile = binding.find("action profile", name, [table.implementation or "" for table in tables])
        return profile, [table for table in tables if table.implementation == profile]

    def _add(self, body: Add) -> None:
        table = self._table(body.table)
        action: EntryAction
        if isinstance(body.action, Indirect):
            action = (MemberRef if body.action.kind == "member" else GroupRef)(body.action.number)
        else:
            action = binding.call(self.program, body.action, table.action_ids)
        priority = body.priority if binding.needs_priority(table) else 0
        handle = self.engine.control.table_insert(table.name, binding.matches(table, body), priority, action)
        self.entries.append((table.name, handle))
        if body.handle:
            self.handles[body.handle] = (table.name, handle)

    def _entry(self, name: str) -> tuple[str, int]:
        if name not in self.handles:
            raise StfError(f"no entry is called {name!r}")
        return self.handles[name]

    def _check_counter(self, body: CheckCounter) -> None:
        name = binding.find("counter", body.counter, self.program.counters)
        direct = self.program.counters[name].direct_table is not None
        if isinstance(body.cell, str):
            value = self.engine.control.direct_counter_read(*self._entry(body.cell))
        elif direct:
            value = self.engine.control.direct_counter_read(self.program.counters[name].direct_table or "", body.cell)
        else:
            value = self.engine.control.counter_read(name, body.cell)
        if body.what:
            found = value.packets if body.what == "packets" else value.bytes
            if not _COMPARE[body.comparison](found, body.number):
                raise Difference(
                    f"counter {name}({body.cell}): {body.what} is {found}, not {body.comparison} {body.number}"
                )

    def _meter(self, body: MeterRates) -> None:
        name = binding.find("meter", body.meter, self.program.meters)
        if body.rates is None:
            return
        (committed, cburst), (peak, pburst) = (
            (int(Fraction(rate) * UNITS_PER_SECOND), burst) for rate, burst in body.rates
        )
        config = MeterConfig(committed, cburst, peak, pburst)
        if isinstance(body.cell, str):
            self.engine.control.direct_meter_write(*self._entry(body.cell), config)
            return
        for index in range(self.program.meters[name].size) if body.cell is None else (body.cell,):
            self.engine.control.meter_write(name, index, config)

    def _replicate(self, word: str, numbers: tuple[int, ...]) -> None:
        match word, numbers:
            case "mirroring_add", (session, port):
                self.mirrored.pop(session, None)
                self.engine.set_clone_session(session, [(port, 0)])
            case "mirroring_add_mc", (session, group):
                self.mirrored[session] = group
            case "mirroring_delete", (session,):
                self.mirrored.pop(session, None)
                self.engine.set_clone_session(session, [])
            case "mc_mgrp_create", (group,):
                self.groups[group] = []
            case "mc_node_create", (rid, *ports):
                self.nodes.append((rid, tuple(ports)))
            case "mc_node_update", (node, *ports):
                self.nodes[self._node(node)] = (self.nodes[node][0], tuple(ports))
            case "mc_node_associate", (group, node):
                if group not in self.groups:
                    raise StfError(f"there is no multicast group {group}")
                self.groups[group].append(self._node(node))
        copies = {
            group: [(port, self.nodes[node][0]) for node in nodes for port in self.nodes[node][1]]
            for group, nodes in self.groups.items()
        }
        for group, replicas in copies.items():
            self.engine.set_multicast_group(group, replicas)
        for session, group in self.mirrored.items():
            self.engine.set_clone_session(session, copies.get(group, []))

    def _node(self, node: int) -> int:
        if not 0 <= node < len(self.nodes):
            raise StfError(f"there is no multicast node {node}")
        return node
