"""Interpreter against generated C: random tables, random packets, everything that can be seen is compared.

A `Differential` holds one pair of pipelines of the same program with the same entries. All choices come from one seeded
generator, so a failure is repeated by its seed. Packets are seed frames of the program, mutated, or pure noise; key
values are drawn mostly from what packets were seen to carry, so that entries hit.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

from switch.api import ActionCall, EntryAction, GroupRef, KeyMatch, MatchKind, MemberRef, MeterConfig
from switch.build import build_program
from switch.codegen.layout import cells_of
from switch.interp_state import PacketState
from switch.interpreter import Interpreter
from switch.loader import load
from switch.model import Action, FieldRef, Program, Table
from switch.native_pipeline import NativePacket, NativePipeline

WORD = (1 << 64) - 1
SANITIZE = os.environ.get("DCB_TEST_SANITIZE") == "1"  # set by the sanitized run of these tests


def mutate(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A frame: a seed as it is, with flipped or random bytes, cut, extended or joined; or noise."""
    kind = rng.random()
    if kind < 0.05:
        return rng.randbytes(rng.randrange(0, 120))
    frame = bytearray(rng.choice(seeds))
    if kind < 0.35:
        return bytes(frame)
    for _ in range(rng.randrange(1, 4)):
        if frame:
            at = rng.randrange(min(len(frame), 80))
            frame[at] = frame[at] ^ 1 << rng.randrange(8) if rng.random() < 0.6 else rng.randrange(256)
    if kind > 0.8:
        del frame[rng.randrange(len(frame) + 1) :]
    elif kind > 0.75:
        frame += rng.choice(seeds)[: rng.randrange(64)]
    return bytes(frame)


class Differential:
    """One interpreter and one native pipeline in step."""

    def __init__(self, program: Program, library: Path, seeds: Sequence[bytes], seed: int) -> None:
        self.program = program
        self.seeds = seeds
        self.seed = seed
        self.rng = random.Random(seed)
        self.reference = Interpreter(program, seed)
        self.native = NativePipeline.from_library(library, program, seed)
        self.now_ps = 0
        self.packets = 0
        self.hits = 0
        layout = self.native.layout
        self.tables = {name: table for name, table in layout.tables.items() if not table.has_const_entries}
        self.handles: dict[str, list[tuple[int, int]]] = {name: [] for name in self.tables}  # of both sides
        self.pool: dict[FieldRef, list[int]] = {}
        self.metadata, self.headers = (
            [
                f"{header.name}.{field.name}"
                for header in program.headers.values()
                if header.metadata is metadata
                for field in header.type.fields
                if field.bits is not None
            ]
            for metadata in (True, False)
        )
        self.plan: list[
            tuple[str, int, bool, list[tuple[int, int]], int | None]
        ] = []  # name, base, metadata, (cell, bits) of each field, cell of the varbit's length
        for name, header in program.headers.items():
            base = layout.header_base[name]
            places = list(layout.block(name).fields.values())[1:]
            lengths = [base + place.length_cell for place in places if place.length_cell is not None]
            cells = [(base + place.cell, place.bits) for place in places]
            self.plan.append((name, base, header.metadata, cells, lengths[0] if lengths else None))
        self._observe()
        self._fill()

    # --- control plane ---------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        """Values of key fields that packets carry."""
        targets = {key.target for table in self.tables.values() for key in table.keys}
        samples: dict[FieldRef, set[int]] = {target: set() for target in targets}
        quiet = Interpreter(self.program, self.seed)
        for _ in range(60):
            state = quiet.new_packet(mutate(self.rng, self.seeds), self.rng.randrange(8))
            quiet.run_ingress(state)
            for target in targets:
                samples[target].add(state.get(f"{target.header}.{target.field}"))
        self.pool = {target: sorted(values) for target, values in samples.items()}

    def _value(self, bits: int, target: FieldRef | None = None) -> int:
        kind = self.rng.random()
        full = (1 << bits) - 1
        if target is not None and self.pool.get(target) and kind < 0.7:
            return self.rng.choice(self.pool[target]) & full
        if kind < 0.85:
            return self.rng.randrange(8) & full
        return self.rng.getrandbits(bits) if kind < 0.97 else full

    def _keys(self, table: Table) -> list[KeyMatch]:
        keys = []
        loose = 0.8 if self.rng.random() < 0.6 else 0.2  # entries with many wildcards are those that hit
        for key in table.keys:
            value = self._value(key.bits, key.target)
            full = (1 << key.bits) - 1
            match key.kind:
                case MatchKind.LPM:
                    length = self.rng.choice((0, key.bits, self.rng.randrange(key.bits + 1), key.bits * 3 // 4))
                    mask = full ^ (full >> length)
                    keys.append(KeyMatch(MatchKind.LPM, value & mask, prefix_len=length))
                case MatchKind.TERNARY | MatchKind.OPTIONAL:
                    mask = self.rng.choice((full, full, self.rng.getrandbits(key.bits)))
                    mask = 0 if self.rng.random() < loose else mask
                    if key.kind is MatchKind.OPTIONAL and mask:
                        mask = full
                    keys.append(KeyMatch(key.kind, value & mask, mask))
                case MatchKind.RANGE:
                    other = self._value(key.bits, key.target)
                    if self.rng.random() < loose:
                        value, other = self.rng.choice(((value, full), (0, value), (0, full)))
                    keys.append(KeyMatch(MatchKind.RANGE, min(value, other), high=max(value, other)))
                case _:
                    keys.append(KeyMatch(MatchKind.EXACT, value))
        return keys

    def _call(self, action: Action) -> ActionCall:
        return ActionCall(action.name, tuple(self._value(param.bits) for param in action.params))

    def _action(self, table: Table) -> EntryAction:
        if table.implementation is None:
            return self._call(self.program.actions[self.rng.choice(table.action_ids)])
        if table.selector and self.rng.random() < 0.7:
            return GroupRef(self.rng.choice(sorted(self.reference.profiles[table.implementation].groups)))
        return MemberRef(self.rng.choice(sorted(self.reference.profiles[table.implementation].members)))

    def both(self, method: str, *args: object) -> tuple[object, object]:
        """The same control call on both sides; both succeed or both refuse."""
        results: list[object] = []
        for side in (self.reference, self.native):
            try:
                results.append(getattr(side, method)(*args))
            except ValueError as error:
                results.append(type(error))
        one, other = results
        assert isinstance(one, type) == isinstance(other, type), f"{self.where}: {method}{args}: {one} against {other}"
        return one, other

    def _insert(self, name: str) -> None:
        table = self.tables[name]
        if not table.keys or len(self.handles[name]) >= table.max_size:
            return
        keys = self._keys(table)
        if table.kind in (MatchKind.EXACT, MatchKind.LPM) and any(
            entry.keys == tuple(keys) for entry in self.reference.tables[name].entries.values()
        ):
            return  # the server refuses duplicates, the pipelines need not agree on them
        one, other = self.both("table_insert", name, keys, self.rng.randrange(4), self._action(table))
        for handle in (one, other):
            assert isinstance(handle, int), f"{self.where}: insert into {name}: {one}, {other}"
        self.handles[name].append((int(str(one)), int(str(other))))

    def _change(self) -> None:
        """One change of the tables while packets flow."""
        if not self.tables:
            return
        name = self.rng.choice(sorted(self.tables))
        table, handles = self.tables[name], self.handles[name]
        kind = self.rng.random()
        if kind < 0.4 or not handles:
            self._insert(name)
            return
        at = self.rng.randrange(len(handles))
        one, other = handles[at]
        if kind < 0.6:
            action = self._action(table)
            self.reference.table_modify(name, one, action)
            self.native.table_modify(name, other, action)
        elif kind < 0.8:
            self.reference.table_delete(name, one)
            self.native.table_delete(name, other)
            handles.pop(at)
        elif table.default is None or not (table.default.entry_const or table.default.action_const):
            self.both("table_set_default", name, None if self.rng.random() < 0.3 else self._action(table))

    def _meter(self) -> MeterConfig | None:
        if self.rng.random() < 0.2:
            return None
        cir, burst = self.rng.randrange(1, 10**7), self.rng.randrange(0, 5000)
        return MeterConfig(cir, burst, cir + self.rng.randrange(10**7), burst + self.rng.randrange(5000))

    def _fill(self) -> None:
        rng = self.rng
        for name, profile in self.native.layout.profiles.items():
            ids = [self.program.actions[i] for i in self.native.layout.profile_actions(name)]
            for member in range(1, min(profile.max_size, 12) + 1):
                self.both("member_set", name, member, self._call(rng.choice(ids)))
            if profile.selector is not None:
                for group in range(1, 6):
                    members = rng.sample(range(1, min(profile.max_size, 12) + 1), rng.randrange(0, 5))
                    self.both("group_set", name, group, [(member, rng.randrange(1, 4)) for member in members])
        for name in self.tables:
            for _ in range(rng.choice((0, 2, 8, 20))):
                self._insert(name)
            for one, other in self.handles[name]:
                if self.tables[name].direct_meter is not None:
                    config = self._meter()
                    self.reference.direct_meter_write(name, one, config)
                    self.native.direct_meter_write(name, other, config)
        for name, meters in self.program.meters.items():
            for index in range(min(meters.size, 64)):
                self.both("meter_write", name, index, self._meter())
        for name, registers in self.program.registers.items():
            for index in range(min(registers.size, 16)):
                self.both("register_write", name, index, rng.getrandbits(registers.bits))
        for name, value_set in self.program.value_sets.items():
            full = (1 << value_set.bits) - 1
            members = [(self._value(value_set.bits), rng.choice((full, full, rng.getrandbits(value_set.bits))))
                       for _ in range(min(value_set.max_size, 4))]  # fmt: skip
            self.both("value_set_write", name, members)

    # --- packets ---------------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        return f"seed {self.seed}, packet {self.packets}"

    def run(self, packets: int) -> None:
        """That many packets, with changes of the tables between some of them; then everything that is left behind."""
        packet = NativePacket(self.native)
        for _ in range(packets):
            if self.rng.random() < 0.05:
                self._change()
            self.one(packet, mutate(self.rng, self.seeds), self.rng.randrange(8))
        self.compare_state()

    def one(self, native: NativePacket, frame: bytes, port: int) -> None:
        """One packet through both."""
        rng = self.rng
        self.packets += 1
        native.digests.clear()
        self.native.digests.clear()
        self.now_ps += rng.randrange(10**9)
        self.reference.now_ps = self.native.now_ps = self.now_ps
        state = PacketState(self.reference)
        state.parse(frame, port)
        native.parse(frame, port)
        note = f"{self.where}, port {port}, frame {frame.hex()}"
        assert native.payload_offset == state.payload_offset, note
        self.compare(state, native, f"{note}, after the parser")
        self.scatter(state, native, 2)
        self.reference.run_ingress(state)
        self.native.run_ingress(native)
        self.compare(state, native, f"{note}, after ingress")
        port = self.reference.get_standard(state, "standard_metadata.egress_spec")
        if port == self.reference.drop_port and rng.random() < 0.7:
            return
        self.hits += 1
        for side in (state, native):
            side.set("standard_metadata.egress_port", port)
            side.set("standard_metadata.egress_spec", 0)
        self.scatter(state, native, 3)
        length = len(frame) + state.added_bytes
        state.set("standard_metadata.packet_length", length)
        assert native.packet_length == length & 0xFFFFFFFF, note
        self.reference.run_egress(state)
        self.native.run_egress(native)
        self.compare(state, native, f"{note}, after egress")
        assert self.native.deparse(native) == self.reference.deparse(state), f"{note}, deparsed"
        assert native.digests == state.digests, f"{note}, digests"

    def scatter(self, state: PacketState, native: NativePacket, most: int) -> None:
        """Sets a few metadata fields as a target might, and now and then a field of a header, valid or not."""
        for _ in range(self.rng.randrange(most + 1)):
            name = self.rng.choice(self.metadata if self.rng.random() < 0.8 or not self.headers else self.headers)
            value = self._value(native.pipeline.fields[name][1])
            state.set(name, value)
            native.set(name, value)

    def expected_cells(self, state: PacketState) -> list[int]:
        """The PHV that the interpreter's state stands for."""
        cells = [0] * self.native.layout.phv_cells
        for stack, cell in self.native.layout.stack_next.items():
            cells[cell] = state.next_index[stack]
        for name, base, metadata, places, length_cell in self.plan:
            cells[base] = int(state.valid[name] and not metadata)
            if length_cell is not None:
                cells[length_cell] = state.varbit_bits[name]
            values = state.values[name]
            if not any(values):
                continue
            for (at, bits), value in zip(places, values, strict=True):
                if bits <= 64 and value >= 0:
                    cells[at] = value
                elif value:
                    value &= (1 << bits) - 1
                    for extra in range(cells_of(bits)):
                        cells[at + extra] = value >> (64 * extra) & WORD
        return cells

    def compare(self, state: PacketState, native: NativePacket, note: str) -> None:
        """Every field, validity bit and request."""
        assert native.requests == state.requests, note
        if native.cells() == self.expected_cells(state):
            return
        names = [*self.reference.layout.by_name, *self.reference.layout.valid_names]
        wrong = [
            f"{name}: interpreter {state.get(name):#x}, C {native.get(name):#x}"
            for name in names
            if state.get(name) != native.get(name)
        ]
        raise AssertionError(f"{note}: {wrong or 'hidden cells differ'}")

    def compare_state(self) -> None:
        """Counters, registers, direct counters and ages."""
        for name in self.program.counters:
            values = self.native.counter_read_all(name)
            for index, (cell, value) in enumerate(zip(self.reference.counters[name], values, strict=True)):
                if cell.packets != value.packets or cell.bytes != value.bytes:
                    raise AssertionError(f"{self.where}: {name}[{index}] is {value}, must be {cell}")
                if cell.packets:
                    assert self.native.counter_read(name, index) == value
        for name, values in self.reference.registers.items():
            for index, value in enumerate(values):
                if value or index % 97 == 0:
                    assert self.native.register_read(name, index) == value, f"{self.where}: {name}[{index}]"
        for name, handles in self.handles.items():
            for one, other in handles:
                ages = self.reference.table_hit_age_us(name, one), self.native.table_hit_age_us(name, other)
                assert ages[0] == ages[1], f"{self.where}: age in {name}"
                if self.tables[name].with_counters:
                    counts = (
                        self.reference.direct_counter_read(name, one),
                        self.native.direct_counter_read(name, other),
                    )
                    assert counts[0] == counts[1], f"{self.where}: direct counter of {name}"
        assert self.native.failed_asserts == self.reference.failed_asserts, self.where


def fuzz(text: str, seeds: Sequence[bytes], seed: int, rounds: int, packets: int) -> int:
    """Rounds of new tables and `packets` packets each; returns how many reached egress."""
    program = load(text)
    library = build_program(text, sanitize=SANITIZE)
    reached = 0
    for number in range(rounds):
        pair = Differential(program, library, seeds, seed + number)
        pair.run(packets)
        pair.native.close()
        reached += pair.hits
    return reached
