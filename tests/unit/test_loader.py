"""The loader: what the model of a program says, and how bad JSON is refused (every problem, by path)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.steps import DIRECTORY

from switch.api import KeyMatch, MatchKind
from switch.loader import UnsupportedProgram, load
from switch.model import (
    Extract,
    FieldRef,
    HeaderRef,
    LearnList,
    Lookahead,
    MeterArray,
    Program,
    RegisterArray,
    SetField,
    StackFieldRef,
    StackRef,
    Transition,
    UnionStackRef,
    ValueSet,
)

Json = dict[str, Any]
PROGRAMS = {path.stem: path.read_text() for path in DIRECTORY.glob("*.json")}


def program(name: str) -> Program:
    return load(PROGRAMS[name])


def problems(name: str, change: Callable[[Json], object]) -> list[str]:
    """What a load says after `change` was made to the JSON of a good program."""
    document = json.loads(PROGRAMS[name])
    change(document)
    with pytest.raises(UnsupportedProgram) as raised:
        load(json.dumps(document))
    for problem in raised.value.problems:
        assert problem in str(raised.value)
    return raised.value.problems


def find(document: Json, key: str, name: str) -> Json:
    return next(item for item in document[key] if item["name"] == name)


def table_of(document: Json, name: str) -> Json:
    return find(document["pipelines"][0], "tables", name)


# --- what is loaded ------------------------------------------------------------------------------------------------


def test_headers_and_signs() -> None:
    loaded = program("expressions")
    fields = {field.name: (field.bits, field.signed) for field in loaded.headers["input"].type.fields}
    assert fields == {
        "a": (8, False),
        "b": (8, False),
        "c": (8, True),
        "d": (8, True),
        "w": (16, False),
        "x": (40, False),
        "y": (40, False),
        "z": (128, False),
    }
    assert not loaded.headers["input"].metadata
    assert loaded.headers["standard_metadata"].metadata
    assert loaded.deparser.order == ("input", "output")
    assert loaded.version[0] == 2
    assert load(PROGRAMS["expressions"].encode()).sha256 == loaded.sha256


def test_stack_in_the_parser() -> None:
    loaded = program("stacks")
    assert loaded.stacks["labels"].headers == ("labels[0]", "labels[1]", "labels[2]")
    state = loaded.parser.states["labels"]
    assert state.ops == (Extract(StackRef("labels")),)
    assert state.key == (StackFieldRef("labels", "bottom"),)
    assert state.key_bits == (1,)
    assert state.transitions[:2] == (Transition("value", "labels", 0), Transition("value", None, 1))


def test_union_stack_in_the_parser() -> None:
    loaded = program("unions")
    assert loaded.unions["first"].members == ("s", "l")
    assert loaded.union_stacks["options"].unions == ("options[0]", "options[1]")
    op = loaded.parser.states["short_option"].ops[0]
    assert op == Extract(UnionStackRef("options"), "s")


def test_varbit_lookahead_and_value_sets() -> None:
    loaded = program("parsing")
    assert loaded.headers["options"].type.max_length_bytes == 12
    assert loaded.headers["options"].type.fields[0].bits is None
    extract = next(op for op in loaded.parser.states["options"].ops if isinstance(op, Extract))
    assert extract.target == HeaderRef("options")
    assert extract.varbit_bits is not None
    peek = [op for op in loaded.parser.states["peek"].ops if isinstance(op, SetField)]
    assert any(op.value == Lookahead(0, 12) for op in peek)
    assert loaded.value_sets == {"P.codes": ValueSet("P.codes", 16, 4), "P.pairs": ValueSet("P.pairs", 20, 4)}
    assert loaded.parser.states["by_set"].transitions == (
        Transition("vset", "in_set", value_set="P.codes"),
        Transition("value", "masked", 0x0100, 0xFF00),
        Transition("default", None),
    )
    assert loaded.errors["NoError"] == 0
    assert loaded.errors["BadMagic"] == 7


def test_tables() -> None:
    loaded = program("tables")
    tables = loaded.ingress.tables
    kinds = {name: (table.kind, [key.kind for key in table.keys]) for name, table in tables.items() if table.keys}
    exact, lpm, ternary = MatchKind.EXACT, MatchKind.LPM, MatchKind.TERNARY
    assert kinds == {
        "I.exact_table": (exact, [exact, exact]),
        "I.lpm_table": (lpm, [exact, lpm]),
        "I.ternary_table": (ternary, [ternary, ternary, ternary]),  # p4c writes optional as ternary
        "I.range_table": (MatchKind.RANGE, [MatchKind.RANGE, ternary]),
        "I.const_table": (ternary, [ternary, exact]),
        "I.valid_table": (exact, [exact, exact]),
    }
    assert tables["I.exact_table"].hit_miss
    assert tables["I.exact_table"].max_size == 4
    assert tables["I.range_table"].default is not None
    assert tables["I.range_table"].default.entry_const
    assert tables["I.lpm_table"].with_counters
    assert tables["I.ternary_table"].direct_meter == "I.colours"
    sliced = tables["I.valid_table"].keys
    assert sliced[0].target == FieldRef("key", "$valid$")
    const = tables["I.const_table"]
    assert const.has_const_entries
    assert [entry.priority for entry in const.const_entries] == [1, 2, 3, 4]
    assert const.const_entries[1].keys == (KeyMatch(ternary, 0x1200, 0xFF00), KeyMatch(exact, 1))
    assert const.const_entries[1].action_data == (2,)


def test_externs_and_lists() -> None:
    state = program("state")
    assert state.registers["I.wide_cells"] == RegisterArray("I.wide_cells", 2, 100)
    assert state.meters["I.byte_meter"] == MeterArray("I.byte_meter", 4, True, 2, None, None)
    assert {calculation.algorithm for calculation in state.calculations.values()} == {
        "crc32",
        "crc16",
        "csum16",
        "xor16",
        "identity",
        "crc32_custom",
    }
    redirect = program("redirect")
    (digest,) = redirect.learn_lists.values()
    assert isinstance(digest, LearnList)
    assert [bits for _, bits in digest.elements] == [16, 9, 1]
    assert all(isinstance(element, FieldRef) for element, _ in digest.elements)
    lists = {field_list.name: len(field_list.elements) for field_list in redirect.field_lists.values()}
    assert lists["field_list1"] == 2
    assert lists["field_list2"] == 1
    assert redirect.field_aliases["intrinsic_metadata.mcast_grp"] == FieldRef("standard_metadata", "mcast_grp")
    selector = program("selector").ingress.action_profiles["I.choice"].selector
    assert selector is not None
    assert selector.algorithm == "crc16"
    assert selector.inputs == (FieldRef("key", "flow"),)


def test_actions_with_the_same_name_are_told_apart_by_id() -> None:
    document = json.loads(PROGRAMS["stacks"])
    hidden = [action for action in document["actions"] if action["name"] != "NoAction"]
    assert len(hidden) > 3
    for action in hidden:
        action["name"] = "same"
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            following = set(table["next_tables"].values())
            assert len(following) == 1
            table["actions"] = ["same" for _ in table["actions"]]
            table["next_tables"] = {"same": following.pop()}
    loaded = load(json.dumps(document))
    original = program("stacks")
    assert {i: a.primitives for i, a in loaded.actions.items()} == {
        i: a.primitives for i, a in original.actions.items()
    }


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "JSON: line 1 column 1"),
        ("{", "JSON: line 1 column 2"),
        ("[]", "JSON: must be an object"),
        ('{"a": 1, "a": 2}', "JSON: an object has member 'a' twice"),
        ('{"a": NaN}', "JSON: NaN is not a JSON value"),
        (b"\xff\xfe\xfa", "JSON: not UTF-8"),
        ("[" * 100000, "JSON: "),
    ],
)
def test_text_that_is_not_a_program(text: str | bytes, message: str) -> None:
    with pytest.raises(UnsupportedProgram) as raised:
        load(text)
    assert raised.value.problems[0].startswith(message)


def test_empty_object_lists_everything_that_is_missing() -> None:
    with pytest.raises(UnsupportedProgram) as raised:
        load("{}")
    text = str(raised.value)
    for missing in ("__meta__", "parsers", "deparsers", "pipelines", "standard_metadata.egress_spec"):
        assert missing in text


def test_every_problem_is_reported_at_once() -> None:
    def change(document: Json) -> None:
        document["__meta__"]["version"] = [3, 0]
        document["extern_instances"] = [{"name": "mine", "id": 0, "type": "my_extern"}]
        document["counter_arrays"][0]["size"] = "many"
        find(document, "register_arrays", "I.cells")["bitwidth"] = 0
        find(document, "calculations", document["calculations"][0]["name"])["algo"] = "md5"

    assert problems("state", change) == [
        "__meta__.version: is [3, 0], this target reads format 2.x",
        'counter_arrays[0](I.count).size: is "many", must be an integer',
        "register_arrays[0](I.cells).bitwidth: is 0, must be in 1..65536",
        "extern_instances[0](mine): is an extern of type 'my_extern', this target has no user externs",
        "calculations[0](calc).algo: is 'md5', must be one of "
        "cksum16 crc16 crc16_custom crc32 crc32_custom crcCCITT csum16 identity xor16",
    ]


def rename(document: Json, key: str, value: object) -> None:
    document[key] = value


CHANGES: list[tuple[str, Callable[[Json], object], str]] = [
    ("stacks", lambda d: d["headers"][0].pop("header_type"), "headers[0](scalars): has no member 'header_type'"),
    (
        "stacks",
        lambda d: rename(find(d, "headers", "command"), "header_type", "nothing"),
        "refers to header type 'nothing', which is not declared",
    ),
    (
        "stacks",
        lambda d: d["header_stacks"][0]["header_ids"].append(999),
        "header_stacks[0](labels).header_ids[3]: refers to header id 999, which is not declared",
    ),
    (
        "stacks",
        lambda d: rename(d["parsers"][0]["parse_states"][0]["transitions"][0], "next_state", "nowhere"),
        ".next_state: is 'nowhere', which is not a state of the parser",
    ),
    (
        "stacks",
        lambda d: rename(d["parsers"][0]["parse_states"][1]["transitions"][0], "value", "0x0001"),
        '.value: is "0x0001", must be 1 bytes, the padded width of the transition key',
    ),
    (
        "stacks",
        lambda d: rename(d["parsers"][0]["parse_states"][0]["parser_ops"][0], "op", "guess"),
        ".op: is 'guess', must be extract, extract_VL, set, verify, advance, shift or primitive",
    ),
    (
        "stacks",
        lambda d: rename(d["pipelines"][0], "init_table", "nowhere"),
        "pipelines[0](ingress).init_table: refers to 'nowhere', which is no table, conditional or action call",
    ),
    (
        "stacks",
        lambda d: d["deparsers"][0]["order"].append("standard_metadata"),
        "emits 'standard_metadata', which is metadata",
    ),
    (
        "tables",
        lambda d: rename(table_of(d, "I.lpm_table")["key"][0], "match_type", "fuzzy"),
        ".match_type: is 'fuzzy', must be one of exact lpm ternary range optional valid",
    ),
    (
        "tables",
        lambda d: rename(table_of(d, "I.exact_table")["key"][0], "match_type", "ternary"),
        ".match_type: is 'ternary', which a table of match_type 'exact' cannot have",
    ),
    (
        "tables",
        lambda d: rename(table_of(d, "I.exact_table")["key"][0], "target", ["key", "nothing"]),
        ".target: refers to field 'nothing', which header type 'key_t' does not have",
    ),
    (
        "tables",
        lambda d: table_of(d, "I.range_table")["next_tables"].pop("I.give"),
        ".next_tables: must have one member for each action of the table; missing or surplus: I.give",
    ),
    (
        "tables",
        lambda d: table_of(d, "I.range_table")["default_entry"]["action_data"].append("0x1"),
        ".default_entry.action_data: has 2 values, action 'I.give' has 1 parameters",
    ),
    (
        "tables",
        lambda d: rename(table_of(d, "I.range_table")["default_entry"], "action_data", ["0x10000"]),
        '.action_data[0]: is "0x10000", must be a value of 16 bits',
    ),
    (
        "tables",
        lambda d: rename(table_of(d, "I.range_table")["default_entry"], "action_id", 4096),
        ".action_id: refers to action id 4096, which is not declared",
    ),
    (
        "tables",
        lambda d: table_of(d, "I.const_table")["entries"].append(table_of(d, "I.const_table")["entries"][0]),
        ".entries[4]: repeats the key of an earlier entry",
    ),
    (
        "tables",
        lambda d: rename(find(d, "counter_arrays", "I.hits"), "binding", "I.nothing"),
        "counter_arrays(I.hits).binding: refers to table 'I.nothing', which is not declared",
    ),
    (
        "tables",
        lambda d: rename(find(d, "meter_arrays", "I.colours"), "rate_count", 3),
        ".rate_count: is 3, this target has meters of 2 rates",
    ),
    (
        "selector",
        lambda d: rename(table_of(d, "I.by_selector"), "action_profile", "I.profile"),
        ".action_profile: is 'I.profile', which has no selector",
    ),
    (
        "redirect",
        lambda d: d["field_lists"].clear(),
        "which is not declared",
    ),
    (
        "checksums",
        lambda d: rename(d["checksums"][0], "type", "ipv4"),
        "checksums[0](cksum).type: is 'ipv4', this target has generic checksums only",
    ),
]


@pytest.mark.parametrize(("name", "change", "message"), CHANGES, ids=[message[:50] for _, _, message in CHANGES])
def test_one_mistake(name: str, change: Callable[[Json], object], message: str) -> None:
    assert any(message in problem for problem in problems(name, change)), problems(name, change)


def primitive(op: str, *parameters: Json) -> Callable[[Json], object]:
    def change(document: Json) -> None:
        document["actions"][0]["primitives"] = [{"op": op, "parameters": list(parameters)}]

    return change


FIELD = {"type": "field", "value": ["command", "op"]}
NUMBER = {"type": "hexstr", "value": "0x01"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (primitive("modify_field", FIELD, NUMBER), "is 'modify_field', which is not a primitive of this target"),
        (primitive("assign", FIELD), "assign has 1 parameters, must have 2"),
        (primitive("assign", NUMBER, NUMBER), "is not a field that can be written"),
        (primitive("assign", FIELD, {"type": "bool", "value": True}), "is of kind bool, must be data"),
        (primitive("add_header", FIELD), "is of kind data, must be header"),
        (primitive("assign", FIELD, {"type": "runtime_data", "value": 0}), "refers to parameter 0, the action has 0"),
        (primitive("assign", FIELD, {"type": "lookahead", "value": [0, 8]}), "which only parser states may use"),
        (primitive("count", {"type": "counter_array", "value": "none"}, NUMBER), "refers to counter array 'none'"),
        (primitive("resubmit", {"type": "hexstr", "value": "0x63"}), "refers to field list 99, which is not declared"),
        (primitive("_jump", {"type": "hexstr", "value": "0x2"}), "must be a constant in 0..1"),
        (primitive("assign", FIELD, {"type": "wish", "value": 1}), "is 'wish', which this target does not support"),
        (
            primitive("assign", FIELD, {"type": "expression", "value": {"op": "**", "left": NUMBER, "right": NUMBER}}),
            "is '**', must be one of",
        ),
        (
            primitive("assign", FIELD, {"type": "expression", "value": {"op": "not", "left": None, "right": NUMBER}}),
            "is of kind data, must be bool",
        ),
        (
            primitive(
                "assign_header", {"type": "header", "value": "command"}, {"type": "header", "value": "labels[0]"}
            ),
            "assign_header copies between different types",
        ),
    ],
)
def test_primitives_are_checked(change: Callable[[Json], object], message: str) -> None:
    found = problems("stacks", change)
    assert len(found) == 1
    assert message in found[0]
    assert found[0].startswith("actions[0](")


def test_a_control_that_runs_in_a_circle_is_refused() -> None:
    def change(document: Json) -> None:
        conditional = document["pipelines"][0]["conditionals"][0]
        conditional["false_next"] = conditional["name"]

    (problem,) = problems("stacks", change)
    assert problem.startswith("pipelines[0](ingress): control flow runs in a circle through 'node_")


def test_a_broken_declaration_is_reported_once() -> None:
    def change(document: Json) -> None:
        find(document, "headers", "command")["id"] = "zero"

    assert problems("stacks", change) == ['headers[2](command).id: is "zero", must be an integer']


def refusal(text: str) -> list[str] | None:
    """The problems of a text, None where it loads."""
    try:
        load(text)
    except UnsupportedProgram as refused:
        return refused.problems
    return None


paths = st.lists(st.integers(0, 1000), min_size=1, max_size=8)
junk = st.one_of(st.none(), st.booleans(), st.integers(-5, 300), st.text(max_size=4), st.just([]), st.just({}))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), paths, junk)
def test_any_damage_gives_problems_and_no_other_exception(name: str, path: list[int], value: object) -> None:
    """Replace something somewhere by junk: the program still loads, or is refused with reasons."""
    document = json.loads(PROGRAMS[name])
    at: Any = document
    for step in path[:-1]:
        inner = list(at.values()) if isinstance(at, dict) else at
        inner = [item for item in inner if isinstance(item, dict | list) and item]
        if not inner:
            break
        at = inner[step % len(inner)]
    keys = list(at) if isinstance(at, dict) else range(len(at))
    at[keys[path[-1] % len(keys)]] = copy.deepcopy(value)
    assert refusal(json.dumps(document)) != []
