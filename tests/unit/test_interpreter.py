"""The interpreter's parts: expressions against Python's integers, field storage, the packet test interface."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.steps import DIRECTORY

from switch.api import ActionCall, KeyMatch, MatchKind, PipelineError
from switch.interp_actions import format_log
from switch.interp_exprs import Compiler
from switch.interp_state import NO_TRUNCATION, PacketState
from switch.interp_switch import SimpleSwitch
from switch.interpreter import Interpreter
from switch.loader import load
from switch.model import Const, Expr, FieldRef, Op, Program


def program(name: str) -> Program:
    return load((DIRECTORY / f"{name}.json").read_bytes())


ARITHMETIC = Interpreter(program("expressions"))
COMPILER = Compiler(ARITHMETIC, ARITHMETIC.layout)

# (model, the same as Python source over the fields' values)
Rendered = tuple[Expr, str]

leaves = st.one_of(
    st.integers(-(2**70), 2**70).map(lambda n: (Const(n), f"({n})")),
    st.sampled_from("abcdwxyz").map(lambda name: (FieldRef("input", name), f"V[{name!r}]")),
)


def grow(inner: st.SearchStrategy[Rendered]) -> st.SearchStrategy[Rendered]:
    def binary(op: str, left: Rendered, right: Rendered) -> Rendered:
        return Op(op, left[0], right[0]), f"({left[1]} {op} {right[1]})"

    def shift(op: str, left: Rendered, amount: int) -> Rendered:
        return Op(op, left[0], Const(amount)), f"({left[1]} {op} {amount})"

    def compare(op: str, left: Rendered, right: Rendered) -> Rendered:
        return Op("b2d", None, Op(op, left[0], right[0])), f"int({left[1]} {op} {right[1]})"

    def choose(condition: Rendered, yes: Rendered, no: Rendered) -> Rendered:
        truth = Op("d2b", None, condition[0])
        return Op("?", yes[0], no[0], truth), f"({yes[1]} if {condition[1]} != 0 else {no[1]})"

    def logic(left: Rendered, right: Rendered) -> Rendered:
        both = Op("and", Op("d2b", None, left[0]), Op("not", None, Op("d2b", None, right[0])))
        return Op("b2d", None, both), f"int({left[1]} != 0 and not ({right[1]} != 0))"

    def unary(op: str, right: Rendered) -> Rendered:
        return Op(op, None, right[0]), f"({op}{right[1]})"

    def wrap(value: Rendered, width: int) -> Rendered:
        half = 2 ** (width - 1)
        return Op("two_comp_mod", value[0], Const(width)), f"(({value[1]} + {half}) % {2 * half} - {half})"

    def unsigned(value: Rendered, width: int) -> Rendered:
        return Op("usat_cast", value[0], Const(width)), f"max(0, min({2**width - 1}, {value[1]}))"

    def signed(value: Rendered, width: int) -> Rendered:
        half = 2 ** (width - 1)
        return Op("sat_cast", value[0], Const(width)), f"max({-half}, min({half - 1}, {value[1]}))"

    return st.one_of(
        st.builds(binary, st.sampled_from(["+", "-", "*", "&", "|", "^"]), inner, inner),
        st.builds(shift, st.sampled_from(["<<", ">>"]), inner, st.integers(0, 60)),
        st.builds(compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(choose, inner, inner, inner),
        st.builds(logic, inner, inner),
        st.builds(unary, st.sampled_from(["-", "~", "+"]), inner),
        st.builds(wrap, inner, st.integers(1, 70)),
        st.builds(unsigned, inner, st.integers(1, 70)),
        st.builds(signed, inner, st.integers(1, 70)),
    )


WIDTHS = {"a": 8, "b": 8, "c": 8, "d": 8, "w": 16, "x": 40, "y": 40, "z": 128}
values = st.fixed_dictionaries({name: st.integers(0, 2**bits - 1) for name, bits in WIDTHS.items()})


@settings(max_examples=300, deadline=None)
@given(st.recursive(leaves, grow, max_leaves=12), values)
def test_expressions_are_those_of_integers(rendered: Rendered, patterns: dict[str, int]) -> None:
    expr, source = rendered
    state = PacketState(ARITHMETIC)
    for name, pattern in patterns.items():
        state.set(f"input.{name}", pattern)
    numbers = {
        name: pattern - 256 if name in "cd" and pattern >= 128 else pattern for name, pattern in patterns.items()
    }
    assert COMPILER.value(expr)(state, ()) == eval(source, {"V": numbers, "max": max, "min": min, "int": int})


def test_what_p4_leaves_open_is_defined() -> None:
    state = PacketState(ARITHMETIC)

    def value(op: str, left: int, right: int) -> int:
        return COMPILER.value(Op(op, Const(left), Const(right)))(state, ())

    assert [value("/", 7, 0), value("%", 7, 0)] == [0, 0]
    assert [value("/", -7, 2), value("%", -7, 2), value("/", 7, -2), value("%", 7, -2)] == [-3, -1, -3, 1]
    assert [value("<<", 3, -1), value(">>", 3, -1), value(">>", -5, 1), value("<<", 1, 10**9)] == [3, 3, -3, 0]


@given(st.integers(-(2**200), 2**200))
def test_stores_keep_the_low_bits(number: int) -> None:
    state = PacketState(ARITHMETIC)
    COMPILER.store(FieldRef("input", "c"))(state, (), number)
    COMPILER.store(FieldRef("input", "z"))(state, (), number)
    assert state.get("input.c") == number % 256
    assert COMPILER.value(FieldRef("input", "c"))(state, ()) == (number + 128) % 256 - 128
    assert state.get("input.z") == number % 2**128


def test_packet_state_by_names() -> None:
    state = PacketState(ARITHMETIC)
    assert state.get("input.$valid$") == 0
    assert state.get("standard_metadata.$valid$") == 1
    state.parse(bytes(range(40)), 5, instance_type=7)
    assert state.get("input.$valid$") == 1
    assert state.get("input.w") == 0x0405
    assert state.get("standard_metadata.ingress_port") == 5
    assert state.get("standard_metadata.packet_length") == 40
    assert state.get("standard_metadata.instance_type") == 7
    assert state.payload == bytes(range(32, 40))
    state.set("input.$valid$", 0)
    assert state.get("input.$valid$") == 0
    with pytest.raises(KeyError):
        state.get("input.nothing")
    with pytest.raises(KeyError):
        state.set("input.nothing", 1)


def test_pipeline_step_by_step() -> None:
    pipeline = Interpreter(program("redirect"))
    state = pipeline.new_packet(bytes.fromhex("06 00 1234 00 00 0000 0000") + b"payload", 3)
    pipeline.run_ingress(state)
    assert state.requests.truncate_bytes == 12
    assert state.get("standard_metadata.egress_spec") == 1
    assert state.get("command.count") == 0x11
    pipeline.run_egress(state)
    assert state.requests.truncate_bytes == NO_TRUNCATION
    state.set("command.tag", 0xABCD)
    assert pipeline.deparse(state) == bytes.fromhex("06 11 ABCD 00 99 0000 0011") + b"payload"


def test_requests_name_session_and_field_list() -> None:
    pipeline = Interpreter(program("redirect"))
    field_list = next(fl.id for fl in pipeline.program.field_lists.values() if fl.name == "field_list1")
    state = pipeline.new_packet(bytes.fromhex("01 00 1234 00 00 0000 0000"), 3)
    pipeline.run_ingress(state)
    assert (state.requests.clone, state.requests.clone_session, state.requests.clone_field_list) == (1, 5, field_list)
    copy = pipeline.new_packet(state.frame, 3)
    pipeline.copy_fields(field_list, copy, state)
    kept = next(name for name in pipeline.layout.by_name if name.endswith(".kept"))
    assert copy.get(kept) == 0x99
    assert copy.get(next(name for name in pipeline.layout.by_name if name.endswith(".lost"))) == 0


def test_endless_recirculation_is_an_error() -> None:
    switch = SimpleSwitch(Interpreter(program("redirect")))
    # the program clears op after one round; put it back each time
    original = switch.pipeline.run_egress

    def again(state: PacketState) -> None:
        state.set("command.op", 21)
        original(state)

    switch.pipeline.run_egress = again  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="1000 times"):
        switch.receive(1, bytes.fromhex("15 00 1234 00 00 0000 0000"))


def test_runs_are_reproducible() -> None:
    frame = bytes.fromhex("04 00000000 0000FFFFFFFF 00000000")

    def run(seed: int) -> list[bytes]:
        switch = SimpleSwitch(Interpreter(program("state"), seed=seed))
        return [switch.receive(0, frame)[0].frame for _ in range(5)]

    assert run(1) == run(1)
    assert run(1) != run(2)


@given(st.binary(max_size=60), st.sampled_from(["stacks", "unions", "parsing", "tables", "redirect", "checksums"]))
@settings(max_examples=200, deadline=None)
def test_no_frame_breaks_the_interpreter(frame: bytes, name: str) -> None:
    switch = SimpleSwitch(RUNNING[name])
    for output in switch.receive(1, frame):
        assert 0 <= output.port < 512


RUNNING = {
    name: Interpreter(program(name)) for name in ("stacks", "unions", "parsing", "tables", "redirect", "checksums")
}


def test_errors_name_the_object_and_the_rule() -> None:
    pipeline = Interpreter(program("tables"))
    keys = (KeyMatch(MatchKind.EXACT, 1), KeyMatch(MatchKind.EXACT, 1))
    calls: list[tuple[Any, str]] = [
        (lambda: pipeline.table_insert("I.none", keys, 0, ActionCall("I.give", (1,))), "table 'I.none' does not exist"),
        (
            lambda: pipeline.table_insert("I.exact_table", keys, 0, ActionCall("I.bad")),
            "table 'I.exact_table': action 'I.bad' is not one of: I.give, I.nothing, I.leave",
        ),
        (
            lambda: pipeline.table_insert("I.exact_table", keys[:1], 0, ActionCall("I.nothing")),
            "table 'I.exact_table': 1 keys are given, must be 2",
        ),
        (lambda: pipeline.register_read("none", 0), "register 'none' does not exist"),
        (lambda: pipeline.table_delete("I.const_table", 0), "table 'I.const_table': its entries are constant"),
    ]
    for call, message in calls:
        with pytest.raises(PipelineError) as raised:
            call()
        assert str(raised.value) == message


def test_log_msg_format() -> None:
    assert format_log("a {} b {}", [1, 2]) == "a 1 b 2"
    assert format_log("{}{}", [7]) == "7{}"
    assert format_log("plain", []) == "plain"
