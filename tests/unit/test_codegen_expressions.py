"""Random expressions of every operator, width and sign: generated C must compute what the interpreter does.

The interpreter computes with Python's integers, so every value here is exact; C uses 64-bit words, 128-bit words or
limbs as ranges ask. Inputs are metadata fields of 1 to 300 bits, signed and unsigned, set to edge values and random
ones.
"""

from __future__ import annotations

import json
import random

import pytest
from codegen_json import Json, program_json

from switch.build import build_program
from switch.interpreter import Interpreter
from switch.loader import load
from switch.native_pipeline import NativePipeline

UNSIGNED = (1, 5, 8, 16, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 200, 300)
SIGNED = (2, 8, 32, 33, 63, 64, 65, 127, 128, 129, 200)
INPUTS = [(f"u{bits}", bits, False) for bits in UNSIGNED] + [(f"s{bits}", bits, True) for bits in SIGNED]
OUTPUTS = 90


def field(name: str) -> Json:
    return {"type": "field", "value": ["in", name]}


def hexstr(value: int) -> Json:
    return {"type": "hexstr", "value": f"-0x{-value:x}" if value < 0 else f"0x{value:x}"}


def op(name: str, left: Json | None, right: Json, cond: Json | None = None) -> Json:
    value: Json = {"op": name, "left": left, "right": right}
    if cond is not None:
        value["cond"] = cond
    return {"type": "expression", "value": value}


class Trees:
    """Random expression trees in JSON."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def constant(self) -> Json:
        rng = self.rng
        value = rng.choice((0, 1, 2, rng.getrandbits(8), rng.getrandbits(64), (1 << rng.randrange(1, 140)) - 1))
        return hexstr(-value if rng.random() < 0.2 else value)

    def data(self, depth: int) -> Json:
        rng = self.rng
        if depth == 0 or rng.random() < 0.1:
            return self.constant() if rng.random() < 0.25 else field(rng.choice(INPUTS)[0])
        kind = rng.random()
        if kind < 0.42:
            return op(rng.choice("+-*&|^"), self.data(depth - 1), self.data(depth - 1))
        if kind < 0.52:  # as p4c writes: masked to a width
            bits = rng.choice(UNSIGNED)
            return op("&", self.data(depth - 1), hexstr((1 << bits) - 1))
        if kind < 0.60:
            return op(rng.choice("~-"), None, self.data(depth - 1))
        if kind < 0.72:
            amount = field(rng.choice(("u1", "u5", "u8", "s8"))) if rng.random() < 0.6 else hexstr(rng.randrange(150))
            return op(rng.choice(("<<", ">>")), self.data(depth - 1), amount)
        if kind < 0.76:  # a shift by far too much, with only low bits wanted
            shifted = op("<<", self.data(depth - 1), field(rng.choice(("u32", "u64", "u128"))))
            return op("&", shifted, hexstr((1 << rng.choice((16, 64, 100, 140))) - 1))
        if kind < 0.82:
            return op(rng.choice("/%"), self.data(depth - 1), self.data(depth - 1))
        if kind < 0.92:
            name = rng.choice(("two_comp_mod", "sat_cast", "usat_cast"))
            return op(name, self.data(depth - 1), hexstr(rng.choice((1, 8, 31, 63, 64, 65, 127, 128, 129, 190))))
        if kind < 0.96:
            return op("?", self.data(depth - 1), self.data(depth - 1), self.condition(depth - 1))
        return op("b2d", None, self.condition(depth - 1))

    def condition(self, depth: int) -> Json:
        kind = self.rng.random()
        if depth > 0 and kind < 0.3:
            return op(self.rng.choice(("and", "or")), self.condition(depth - 1), self.condition(depth - 1))
        if depth > 0 and kind < 0.4:
            return op("not", None, self.condition(depth - 1))
        if kind < 0.5:
            return op("d2b", None, self.data(max(0, depth - 1)))
        left, right = self.data(max(0, depth - 1)), self.data(max(0, depth - 1))
        return op(self.rng.choice(("==", "!=", "<", "<=", ">", ">=")), left, right)


def program(seed: int) -> str:
    """A program whose ingress stores one expression into each output."""
    trees = Trees(seed)
    outputs = []
    actions = []
    for number in range(OUTPUTS):
        signed = trees.rng.random() < 0.3
        bits = trees.rng.choice(SIGNED if signed else UNSIGNED)
        outputs.append([f"o{number}", bits, signed])
        store = {
            "op": "assign",
            "parameters": [{"type": "field", "value": ["out", f"o{number}"]}, trees.data(trees.rng.randrange(1, 5))],
        }
        actions.append({"name": f"a{number}", "id": number, "runtime_data": [], "primitives": [store]})
    calls = [
        {"name": f"c{number}", "id": number, "action_id": number,
         "next_node": f"c{number + 1}" if number + 1 < OUTPUTS else None}
        for number in range(OUTPUTS)
    ]  # fmt: skip
    return program_json({"in": [list(item) for item in INPUTS], "out": outputs}, actions, init="c0", action_calls=calls)


def value_for(rng: random.Random, bits: int) -> int:
    full = (1 << bits) - 1
    return rng.choice((0, 1, full, full >> 1, 1 << (bits - 1), rng.getrandbits(bits), rng.getrandbits(bits)))


@pytest.mark.parametrize("seed", [20261130, 7])
def test_expressions_of_every_kind_agree(seed: int) -> None:
    text = program(seed)
    loaded = load(text)
    reference, native = Interpreter(loaded), NativePipeline.from_library(build_program(text), loaded)
    rng = random.Random(seed)
    one, other = reference.new_packet(b"", 0), native.new_packet(b"", 0)
    for sample in range(60):
        for name, bits, _ in INPUTS:
            value = value_for(rng, bits)
            one.set(f"in.{name}", value)
            other.set(f"in.{name}", value)
        reference.run_ingress(one)
        native.run_ingress(other)
        for number in range(OUTPUTS):
            expected, got = one.get(f"out.o{number}"), other.get(f"out.o{number}")
            assert got == expected, (
                f"seed {seed}, sample {sample}: o{number} is {got:#x}, must be {expected:#x} for "
                f"{json.dumps(json.loads(text)['actions'][number]['primitives'][0]['parameters'][1])} with "
                f"{ {name: hex(one.get(f'in.{name}')) for name, _, _ in INPUTS} }"
            )
    native.close()
