"""A random case: the lines of an STF file. All choices come from the generator that is passed in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from codegen_fuzz import mutate

from switch.api import MatchKind
from switch.interpreter import Interpreter
from switch.model import Action, FieldRef, Program, Table, TableKey
from tests.stf.binding import needs_priority, tables

PORTS = 8
MEMBERS, GROUPS, MULTICASTS = 6, 4, 3
SESSIONS = range(1, 9)


class Generator:
    """Cases of one program. Key values are mostly those that packets were seen to carry, so that entries hit."""

    def __init__(self, program: Program, frames: Sequence[bytes], rng: random.Random) -> None:
        self.program = program
        self.frames = frames
        self.rng = rng
        self.open = {name: table for name, table in tables(program).items() if not table.has_const_entries}
        self.pool = self._observe()
        self.seen: set[tuple[str, ...]] = set()

    def _observe(self) -> dict[FieldRef, list[int]]:
        values: dict[FieldRef, set[int]] = {key.target: set() for table in self.open.values() for key in table.keys}
        quiet = Interpreter(self.program)
        for _ in range(40):
            state = quiet.new_packet(mutate(self.rng, self.frames), self.rng.randrange(PORTS))
            quiet.run_ingress(state)
            for target, found in values.items():
                found.add(state.get(f"{target.header}.{target.field}"))
        return {target: sorted(found) for target, found in values.items()}

    def _value(self, bits: int, target: FieldRef | None = None) -> int:
        kind, full = self.rng.random(), (1 << bits) - 1
        if target is not None and kind < 0.7:
            return self.rng.choice(self.pool[target]) & full
        if kind < 0.85:
            return self.rng.randrange(PORTS) & full
        return self.rng.getrandbits(bits) if kind < 0.97 else full

    def _key(self, key: TableKey) -> str:
        value, full = self._value(key.bits, key.target), (1 << key.bits) - 1
        loose = self.rng.random() < 0.5
        match key.kind:
            case MatchKind.EXACT:
                written = f"{value}"
            case MatchKind.LPM:
                length = self.rng.choice((0, key.bits, self.rng.randrange(key.bits + 1)))
                written = f"{value & (full ^ (full >> length))}/{length}"
            case MatchKind.TERNARY:
                mask = 0 if loose else self.rng.choice((full, self.rng.getrandbits(key.bits)))
                written = f"{value & mask}&&&{mask}"
            case MatchKind.OPTIONAL:
                written = "*" if loose else f"{value}"
            case _:
                other = self._value(key.bits, key.target)
                low, high = (0, full) if loose else (min(value, other), max(value, other))
                written = f"{low}->{high}"
        return f'"{key.name}":{written}'

    def _call(self, action: Action) -> str:
        args = ", ".join(f'"{param.name}":{self._value(param.bits)}' for param in action.params)
        return f'"{action.name}"({args})'

    def _action(self, table: Table) -> str:
        if table.implementation is None:
            return self._call(self.program.actions[self.rng.choice(table.action_ids)])
        if table.selector and self.rng.random() < 0.7:
            return f"@group({self.rng.randrange(1, GROUPS + 1)})"
        return f"@member({self.rng.randrange(1, MEMBERS + 1)})"

    def _entry(self) -> Iterator[str]:
        table = self.open[self.rng.choice(sorted(self.open))]
        if not table.keys:
            return
        keys = [self._key(key) for key in table.keys]
        identity = (table.name, *keys)
        if identity in self.seen:
            return  # the P4Runtime server refuses duplicates, engines need not agree on them
        self.seen.add(identity)
        priority = f" {self.rng.randrange(1, 5)}" if needs_priority(table) else ""
        yield f'add "{table.name}"{priority} {" ".join(keys)} {self._action(table)}'

    def _default(self) -> Iterator[str]:
        table = self.open[self.rng.choice(sorted(self.open))]
        if table.implementation is None and table.default is not None and not table.default.action_const:
            yield f'setdefault "{table.name}" {self._action(table)}'

    def _profiles(self) -> Iterator[str]:
        users = [table for table in tables(self.program).values() if table.implementation]
        for name in sorted({table.implementation or "" for table in users}):
            ids = [i for table in users if table.implementation == name for i in table.action_ids]
            for member in range(1, MEMBERS + 1):
                yield f'member "{name}" {member} {self._call(self.program.actions[self.rng.choice(ids)])}'
            if any(table.selector for table in users if table.implementation == name):
                for group in range(1, GROUPS + 1):
                    chosen = self.rng.sample(range(1, MEMBERS + 1), self.rng.randrange(0, 4))
                    weights = " ".join(f"{member}:{self.rng.randrange(1, 4)}" for member in chosen)
                    yield f'group "{name}" {group} {weights}'.rstrip()

    def _replication(self) -> Iterator[str]:
        for group in self.rng.sample((1, 2, 7, 77), MULTICASTS):
            yield f"mc_mgrp_create {group}"
            for port in self.rng.sample(range(PORTS), self.rng.randrange(1, 4)):
                yield f"mc_node_create {self.rng.randrange(500)} {port}"
                yield f"mc_node_associate {group} {self.nodes}"
                self.nodes += 1
        for session in SESSIONS:
            if self.rng.random() < 0.7:
                yield f"mirroring_add {session} {self.rng.randrange(PORTS)}"

    def _externs(self) -> Iterator[str]:
        for name, register in self.program.registers.items():
            for index in range(min(register.size, 4)):
                yield f'register_write "{name}" {index} {self.rng.getrandbits(register.bits)}'
        for name, meter in self.program.meters.items():
            for index in range(min(meter.size, 4) if meter.direct_table is None else 0):
                rate, burst = self.rng.randrange(1, 100), self.rng.randrange(1, 200)
                yield f'meter_set_rates "{name}" {index} 0.{rate:03}:{burst} {rate}:{burst + self.rng.randrange(200)}'
        for name, value_set in self.program.value_sets.items():
            members = [self._value(value_set.bits) for _ in range(self.rng.randrange(min(value_set.max_size, 4) + 1))]
            yield f'value_set "{name}" {" ".join(map(str, members))}'.rstrip()

    def case(self, packets: int) -> list[str]:
        """Lines with so many packets, and changes between some of them."""
        self.seen, self.nodes = set(), 0
        lines = [*self._replication(), *self._profiles(), *self._externs()]
        if self.open:
            for _ in range(self.rng.choice((0, 5, 20, 60))):
                lines += self._entry()
        for _ in range(packets):
            kind = self.rng.random()
            if self.open and kind < 0.05:
                lines += self._entry() if kind < 0.04 else self._default()
            if kind > 0.9:
                lines.append(f"wait {self.rng.randrange(1000)}")
            frame = mutate(self.rng, self.frames)
            if frame:
                lines.append(f"packet {self.rng.randrange(PORTS)} {frame.hex()}")
        return lines
