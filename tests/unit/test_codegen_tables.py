"""Tables of the C run time against a plain search over a dictionary of entries, with thousands of changes.

The model here is written for this test (it shares nothing with the interpreter): the winner is what P4 says, found by
looking at every entry.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from codegen_fuzz import SANITIZE
from codegen_json import Json, program_json

from switch.api import ActionCall, KeyMatch, MatchKind, MeterConfig, PipelineError
from switch.build import build_program
from switch.loader import load
from switch.native_pipeline import NativePipeline

FIELDS = {"port": 9, "small": 3, "word": 32, "long": 64, "wide": 80, "ip6": 128, "huge": 200}
KEYS = {
    "direct": [("port", "exact"), ("small", "exact")],
    "exact": [("wide", "exact"), ("long", "exact"), ("port", "exact")],
    "lpm": [("small", "exact"), ("ip6", "lpm")],
    "lpm_word": [("word", "lpm")],
    "lpm_huge": [("huge", "lpm"), ("small", "exact")],
    "ternary": [("ip6", "ternary"), ("word", "ternary"), ("small", "exact"), ("long", "lpm")],
    "range": [("word", "range"), ("wide", "range"), ("port", "ternary")],
}
SIZE = 4096


def table(name: str, index: int, following: str | None) -> Json:
    keys = KEYS[name]
    kinds = [kind for _, kind in keys]
    match = next(kind for kind in ("range", "ternary", "lpm", "exact") if kind in kinds)
    return {
        "name": name, "id": index, "type": "simple", "match_type": match, "max_size": SIZE, "with_counters": True,
        "support_timeout": True, "direct_meters": None,
        "key": [{"match_type": kind, "name": field, "target": ["k", field], "mask": None} for field, kind in keys],
        "actions": [f"set_{name}"], "action_ids": [index], "next_tables": {f"set_{name}": following},
        "base_default_next": following,
        "default_entry": {"action_id": index, "action_const": False, "action_data": ["0x0"],
                          "action_entry_const": False},
    }  # fmt: skip


def text() -> str:
    names = list(KEYS)
    actions = [
        {
            "name": f"set_{name}", "id": index, "runtime_data": [{"name": "value", "bitwidth": 100}],
            "primitives": [{"op": "assign", "parameters": [
                {"type": "field", "value": ["r", name]}, {"type": "runtime_data", "value": 0}]}],
        }
        for index, name in enumerate(names)
    ]  # fmt: skip
    tables = [table(name, index, [*names, None][index + 1]) for index, name in enumerate(names)]
    metadata = {"k": [[name, bits] for name, bits in FIELDS.items()], "r": [[name, 100] for name in names]}
    return program_json(metadata, actions, init=names[0], tables=tables)


@dataclass
class Row:
    keys: list[KeyMatch]
    priority: int
    order: int
    value: int
    hits: int = 0


@dataclass
class Model:
    """Entries of one table by handle."""

    name: str
    rows: dict[int, Row] = field(default_factory=dict)

    def matches(self, row: Row, values: dict[str, int]) -> bool:
        for key, (name, _) in zip(row.keys, KEYS[self.name], strict=True):
            value, bits = values[name], FIELDS[name]
            match key.kind:
                case MatchKind.EXACT:
                    hit = value == key.value
                case MatchKind.LPM:
                    hit = value >> (bits - key.prefix_len) == key.value >> (bits - key.prefix_len)
                case MatchKind.RANGE:
                    hit = key.value <= value <= key.high
                case _:
                    hit = value & key.mask == key.value
            if not hit:
                return False
        return True

    def find(self, values: dict[str, int]) -> Row | None:
        found = [row for row in self.rows.values() if self.matches(row, values)]
        if self.name.startswith("lpm"):
            return max(found, key=lambda row: max(key.prefix_len for key in row.keys), default=None)
        return max(found, key=lambda row: (row.priority, -row.order), default=None)


class Run:
    """Random changes and look-ups, from few distinct values so that entries meet."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pool = {name: [self.rng.getrandbits(bits) for _ in range(12)] for name, bits in FIELDS.items()}
        program = load(TEXT)
        self.native = NativePipeline.from_library(build_program(TEXT, sanitize=SANITIZE), program)
        self.models = {name: Model(name) for name in KEYS}
        self.packet = self.native.new_packet(b"x" * 70, 0)
        self.order = 0
        self.stale: list[tuple[str, int]] = []

    def value(self, name: str) -> int:
        rng, bits = self.rng, FIELDS[name]
        value = rng.choice(self.pool[name])
        return value ^ 1 << rng.randrange(bits) if rng.random() < 0.3 else value

    def keys(self, name: str) -> list[KeyMatch]:
        keys = []
        for item, kind in KEYS[name]:
            bits, value = FIELDS[item], self.value(item)
            full = (1 << bits) - 1
            if kind == "lpm":
                length = self.rng.randrange(bits + 1)
                keys.append(KeyMatch(MatchKind.LPM, value & full ^ (value & full >> length), prefix_len=length))
            elif kind == "range":
                other = self.value(item)
                keys.append(KeyMatch(MatchKind.RANGE, min(value, other), high=max(value, other)))
            elif kind == "ternary":
                mask = self.rng.choice((0, full, self.rng.getrandbits(bits) | self.rng.getrandbits(bits)))
                keys.append(KeyMatch(MatchKind.TERNARY, value & mask, mask))
            else:
                keys.append(KeyMatch(MatchKind.EXACT, value))
        return keys

    def change(self) -> None:
        name = self.rng.choice(list(KEYS))
        model = self.models[name]
        what = self.rng.random()
        value = self.rng.getrandbits(100)
        action = ActionCall(f"set_{name}", (value,))
        if what < 0.7 or not model.rows:
            keys, priority = self.keys(name), self.rng.randrange(5)
            unordered = name in ("direct", "exact", "lpm", "lpm_word", "lpm_huge")
            if unordered and any(row.keys == keys for row in model.rows.values()):
                with pytest.raises(PipelineError, match="exists"):
                    self.native.table_insert(name, keys, priority, action)
                return
            handle = self.native.table_insert(name, keys, priority, action)
            assert handle not in model.rows
            self.order += 1
            model.rows[handle] = Row(keys, priority, self.order, value)
            return
        handle = self.rng.choice(list(model.rows))
        if what < 0.8:
            self.native.table_modify(name, handle, action)
            model.rows[handle].value = value
        else:
            self.native.table_delete(name, handle)
            del model.rows[handle]
            self.stale.append((name, handle))

    def look(self) -> int:
        values = {name: self.value(name) for name in FIELDS}
        for name, value in values.items():
            self.packet.set(f"k.{name}", value)
        self.native.run_ingress(self.packet)
        hits = 0
        for name, model in self.models.items():
            row = model.find(values)
            if row is not None:
                row.hits += 1
                hits += 1
            assert self.packet.get(f"r.{name}") == (0 if row is None else row.value), (name, values, row)
        return hits


TEXT = text()


@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_changes(seed: int) -> None:
    run, hits = Run(seed), 0
    for _ in range(40):
        for _ in range(60):
            run.change()
        for _ in range(12):
            hits += run.look()
    assert hits > 300
    for name, model in run.models.items():
        for handle, row in model.rows.items():
            count = run.native.direct_counter_read(name, handle)
            assert (count.packets, count.bytes) == (row.hits, 70 * row.hits)
    for name, handle in run.stale:  # a handle that is gone stays gone, whatever took its place
        with pytest.raises(PipelineError, match="handle"):
            run.native.table_modify(name, handle, ActionCall(f"set_{name}", (1,)))
    for name, model in run.models.items():
        for handle in model.rows:
            run.native.table_delete(name, handle)
        model.rows.clear()
    run.look()
    run.native.close()


def test_a_table_fills_up_and_empties() -> None:
    run = Run(3)

    def insert(wide: int, long: int, port: int) -> int:
        keys = [KeyMatch(MatchKind.EXACT, value) for value in (wide, long, port)]
        return run.native.table_insert("exact", keys, 0, ActionCall("set_exact", (1,)))

    handles = [insert(0, 0, port) for port in range(512)] + [insert(wide, 0, 0) for wide in range(1, SIZE - 511)]
    with pytest.raises(PipelineError, match="is full"):
        insert(99, 99, 9)
    for handle in handles:
        run.native.table_delete("exact", handle)
    assert insert(0, 0, 1) not in handles
    run.native.close()


def test_ages_and_defaults() -> None:
    run = Run(4)
    native, packet = run.native, run.packet
    key = [KeyMatch(MatchKind.LPM, 0x0A000000, prefix_len=8)]
    native.now_ps = 5_000_000
    handle = native.table_insert("lpm_word", key, 0, ActionCall("set_lpm_word", (7,)))
    native.now_ps = 25_999_999
    assert native.table_hit_age_us("lpm_word", handle) == 20
    packet.set("k.word", 0x0A010203)
    native.run_ingress(packet)
    assert packet.get("r.lpm_word") == 7
    assert native.table_hit_age_us("lpm_word", handle) == 0
    packet.set("k.word", 0x0B010203)
    native.now_ps = 27_999_999
    native.table_set_default("lpm_word", ActionCall("set_lpm_word", (1 << 99,)))
    native.run_ingress(packet)
    assert packet.get("r.lpm_word") == 1 << 99
    assert native.table_hit_age_us("lpm_word", handle) == 2
    native.table_set_default("lpm_word", None)
    native.run_ingress(packet)
    assert packet.get("r.lpm_word") == 0
    native.close()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "0 keys are given, must be 1"),
        ([KeyMatch(MatchKind.EXACT, 1)], "is given as exact, must be lpm"),
        ([KeyMatch(MatchKind.LPM, 0, prefix_len=33)], "prefix length 33, must be 0..32"),
        ([KeyMatch(MatchKind.LPM, 1 << 32, prefix_len=32)], "does not fit 32 bits"),
    ],
)
def test_keys_of_the_wrong_shape_are_refused(keys: list[KeyMatch], message: str) -> None:
    run = Run(5)
    with pytest.raises(PipelineError, match=message):
        run.native.table_insert("lpm_word", keys, 0, ActionCall("set_lpm_word", (1,)))
    run.native.close()


def test_names_that_do_not_exist_are_refused() -> None:
    native = Run(6).native
    key = [KeyMatch(MatchKind.LPM, 0)]
    for call, message in (
        (lambda: native.table_insert("nothing", key, 0, ActionCall("set_lpm_word", (1,))), "table 'nothing'"),
        (lambda: native.table_insert("lpm_word", key, 0, ActionCall("set_exact", (1,))), "is not one of"),
        (lambda: native.table_insert("lpm_word", key, 0, ActionCall("set_lpm_word")), "is given 0, must be 1"),
        (lambda: native.direct_meter_write("lpm_word", 0, MeterConfig(1, 1, 1, 1)), "has no direct meter"),
        (lambda: native.counter_read("nothing", 0), "counter 'nothing' does not exist"),
        (lambda: native.register_read("nothing", 0), "register 'nothing' does not exist"),
    ):
        with pytest.raises(PipelineError, match=message):
            call()
    native.close()
