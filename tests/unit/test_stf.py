"""The programs of tests/stf/programs on both engines, and the STF runner itself: what it reads and what it notices."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from pathlib import Path

import pytest
from programs.steps import crc16, crc32, internet_checksum
from stf import engines, report, runner, suite
from stf.grammar import (
    Add,
    Call,
    CheckCounter,
    Expect,
    Indirect,
    Key,
    MeterRates,
    Packet,
    Replication,
    SetDefault,
    StfError,
    parse,
)
from stf.suite import Result

from switch.api import KeyMatch, MatchKind
from switch.loader import load

PROGRAMS = Path(suite.__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.stf"))
needs_p4c = pytest.mark.skipif(
    shutil.which(suite.COMPILER) is None, reason=f"{suite.COMPILER} is not installed; nothing is compiled"
)


@pytest.mark.parametrize("engine", engines.NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_program(name: str, engine: str) -> None:
    source = PROGRAMS / f"{name}.p4"
    result = suite.play(source.with_suffix(".json").read_text(), source.with_suffix(".stf").read_text(), engine)
    assert result == Result(engine, suite.PASSED)


@needs_p4c
@pytest.mark.parametrize("source", sorted(PROGRAMS.glob("*.p4")), ids=lambda source: source.stem)
def test_committed_json_is_what_p4c_makes_of_the_source(source: Path, tmp_path: Path) -> None:
    assert suite.compile_program(source, tmp_path / "out.json") is None
    assert (tmp_path / "out.json").read_text() == source.with_suffix(".json").read_text()


def test_expected_hashes_are_those_of_the_definitions() -> None:
    data = b"123456789"
    words = [int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, 9, 2)]
    values = [
        zlib.crc32(data),
        crc32(data),
        crc16(data),
        crc16(data),
        internet_checksum(data),
        words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4],
        int.from_bytes(data[-4:], "big"),
        1000 + zlib.crc32(data) % 7,
        5 + crc16(b"1234\xff") % 100,
    ]
    expects = [s.body for s in parse((PROGRAMS / "hashes.stf").read_text()) if isinstance(s.body, Expect)]
    assert [(e.pattern or "")[-8:] for e in expects] == [f"{value:08x}" for value in values]


# --- grammar -------------------------------------------------------------------------------------------------------


def test_a_comment_does_not_start_inside_quotes() -> None:
    (statement,) = parse('setdefault "a.#b" "c#"() # the rest')
    assert statement.body == SetDefault("a.#b", Call("c#", ()))


def test_statements() -> None:
    statements = parse(
        """
        # a comment
        packet 3 01 2345\t6789   # more
        Expect 4 01** $
        expect 5 0102$
        EXPECT 6
        add t1 7 h$0.f:0x12** hdr.x:3/8 i.a(p:1, q:0x2) = A
        add "my table" k:1->9 m:1&&&0x3 n:* @group(5)
        check_counter c($A) bytes >= 12
        check_counter c(3)
        mc_node_create 400 6 7
        meter_set_rates m 2 0.5:10 1:20
        """
    )
    assert [(statement.line, statement.body) for statement in statements] == [
        (3, Packet(3, bytes.fromhex("0123456789"))),
        (4, Expect(4, "01**", exact=True)),
        (5, Expect(5, "0102", exact=True)),
        (6, Expect(6, None, exact=False)),
        (
            7,
            Add(
                "t1",
                7,
                (Key("h$0.f", "value", "0x12**"), Key("hdr.x", "prefix", "3", "8")),
                Call("i.a", (("p", "1"), ("q", "0x2"))),
                "A",
            ),
        ),
        (
            8,
            Add(
                "my table",
                0,
                (Key("k", "range", "1", "9"), Key("m", "mask", "1", "0x3"), Key("n", "any")),
                Indirect("group", 5),
                "",
            ),
        ),
        (9, CheckCounter("c", "A", "bytes", ">=", 12)),
        (10, CheckCounter("c", 3, "", "==", 0)),
        (11, Replication("mc_node_create", (400, 6, 7))),
        (12, MeterRates("m", 2, (("0.5", 10), ("1", 20)))),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("packet 1 ABC", "line 1: 'ABC' is not a whole number of bytes"),
        ("\nexpect 1 0G", "line 2: 'g' in an expected frame"),
        ("frobnicate 1", "line 1: unknown statement 'frobnicate'"),
        ("add t a:1", "line 1: name expected, found 'the end of the line'"),
        ("add t a:1 act(x 1)", "line 1: : expected, found '1'"),
        ("add t a:1 act() b", "line 1: unexpected 'b'"),
        ("check_counter c(1) colour == 1", "line 1: 'colour' is not packets or bytes"),
        ("meter_set_rates m 0 1:1", "line 1: two rates expected"),
        ("mc_node_create 1", "line 1: at least 2 numbers expected, found 1"),
        ("packet x 00", "line 1: 'x' is not a whole number"),
    ],
)
def test_what_is_no_statement_is_refused_by_line(text: str, message: str) -> None:
    with pytest.raises(StfError, match=re.escape(message)):
        parse(text)


# --- differences ---------------------------------------------------------------------------------------------------


def played(name: str, text: str) -> Result:
    return suite.play((PROGRAMS / f"{name}.json").read_text(), text, "interpreter")


SEND = "packet 0 00 1234 56 00\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            SEND + "expect 1 00 1234 56 DE",
            "line 2: port 1 sent 00123456dd (of line 1), byte 4 is not that of 00123456de",
        ),
        (SEND + "expect 1 00 1234 56 $", "line 2: port 1 sent 00123456dd (of line 1), longer than 00123456$"),
        (SEND + "expect 1 00 1234 56 DD AB", "line 2: port 1 sent 00123456dd (of line 1), shorter than 00123456ddab"),
        (SEND + "expect 2 00", "line 2: port 2 sent 0 frames of 1"),
        (SEND + "expect 1 00\nexpect 1 00", "line 3: port 1 sent 1 frames of 2"),
        (SEND + SEND + "expect 1 00", "line 2: port 1 sent 00123456dd, which is not expected"),
        ("packet 1 00 1234 56 00", "line 1: port 1 sent 00123456dd, which is not expected"),
        (SEND + "expect_digest 1 AB", "digests are []"),
        ("add nothing k:1 a()", "line 1: there is no table 'nothing'"),
        ("add masks 1 nokey:1 give(value:1)", "line 1: no key is called 'nokey'; keys: hdr.k.a, hdr.k.b"),
        ("add masks 1 k.a:1 take(value:1)", "line 1: there is no action 'take'"),
        ("add masks 1 k.a:1 give(v:1)", "line 1: action I.give takes (value), not (v)"),
        ("add masks 1 k.a:1 give(value:256)", "line 1: action I.give: value 256 does not fit 8 bits"),
        ("add masks 1 k.a:0x10000 give(value:1)", "line 1: key hdr.k.a: 0x10000 does not fit"),
        ("add exact_keys k.a:1/8 give(value:1)", "line 1: key hdr.k.a is exact: a prefix cannot match it"),
        ("add ranges 1 k.a:9->1 give(value:1)", "line 1: refused: "),
        ("check_counter c(0)", "line 1: there is no counter 'c'; known: none"),
        ("mc_node_associate 1 0", "line 1: there is no multicast group 1"),
        ("check_asserts == 1", "line 1: 0 asserts failed"),
    ],
)
def test_a_difference_fails_and_is_named(text: str, reason: str) -> None:
    result = played("matching", text)
    assert result.status == suite.FAILED
    assert reason in result.reason


def test_a_port_expected_without_data_may_send_anything() -> None:
    assert played("matching", SEND + SEND + "expect 1").status == suite.PASSED


def test_ports_that_the_file_does_not_name_are_not_looked_at() -> None:
    assert runner.ports_of(parse(SEND + "expect 7 00")) == {0, 7}
    for engine in engines.NAMES:
        json_text = (PROGRAMS / "matching.json").read_text()
        assert suite.play(json_text, SEND, engine).status == suite.PASSED


@pytest.mark.parametrize(
    "line", ["register_read memory 3 == 7", "check_counter seen(2) packets == 12", "check_counter seen(2) bytes < 1"]
)
def test_state_is_compared(line: str) -> None:
    text = "register_write memory 3 6\ncounter_write seen 2 11 108\n"
    assert played("meters", text + line.replace("7", "6").replace("12", "11").replace("<", ">")).status == suite.PASSED
    assert played("meters", text + line).status == suite.FAILED


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ("0x12**", KeyMatch(MatchKind.TERNARY, 0x1200, 0xFF00)),
        ("0x***4", KeyMatch(MatchKind.TERNARY, 4, 0xF)),
        ("0b1*1", KeyMatch(MatchKind.TERNARY, 0b101, 0b101)),
        ("18", KeyMatch(MatchKind.TERNARY, 18, 0xFFFF)),
        ("0x12", KeyMatch(MatchKind.TERNARY, 0x12, 0xFF)),  # the digits that are written, as p4c's driver reads it
        ("0xABCD&&&0xF0", KeyMatch(MatchKind.TERNARY, 0xC0, 0xF0)),
        ("*", KeyMatch(MatchKind.TERNARY, 0, 0)),
    ],
)
def test_ternary_values(written: str, match: KeyMatch) -> None:
    from stf import binding

    program = load((PROGRAMS / "matching.json").read_text())
    (statement,) = parse(f"add masks 1 k.a:{written} give(value:1)")
    assert isinstance(statement.body, Add)
    found = binding.matches(binding.tables(program)["I.masks"], statement.body)
    assert found == [match, KeyMatch(MatchKind.TERNARY, 0, 0)]


# --- suite and page ------------------------------------------------------------------------------------------------


@needs_p4c
def test_a_directory_with_every_kind_of_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = (PROGRAMS / "profiles.p4").read_text()
    (tmp_path / "below").mkdir()
    for name, source, text in (
        ("below/good", good, (PROGRAMS / "profiles.stf").read_text()),
        ("bad", good, "packet 0 00 07 0000 0000 00\nexpect 8 00"),
        ("broken", good.replace("egress_spec = 9", "egress_spec = nine"), ""),
        ("crash", good, ""),
        ("psa", "#include <psa.p4>\n", ""),
    ):
        (tmp_path / f"{name}.p4").write_text(source)
        (tmp_path / f"{name}.stf").write_text(text)
    (tmp_path / "without_stf.p4").write_text(good)
    run_program = suite.run_program

    def crashing(source: Path, name: str, engine_names: tuple[str, ...], work: Path) -> Result:
        if name == "crash":
            os._exit(7)
        return run_program(source, name, engine_names, work)

    monkeypatch.setattr(suite, "run_program", crashing)
    seen: list[str] = []
    results = suite.run_directory(tmp_path, ("interpreter",), 2, lambda result, *_: seen.append(result.name))
    assert sorted(seen) == [result.name for result in results]
    assert [(result.name, result.status) for result in results] == [
        ("bad", suite.FAILED),
        ("below/good", suite.PASSED),
        ("broken", suite.NOT_COMPILED),
        ("crash", suite.FAILED),
        ("psa", suite.OTHER_MODEL),
    ]
    reasons = {result.name: result.reason for result in results}
    assert reasons["bad"] == "interpreter: line 2: port 8 sent 0 frames of 1"
    assert "nine" in reasons["broken"]
    assert reasons["crash"] == "the process ended with 7"


def test_page_keeps_what_is_around_its_part(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    results = [
        Result("a", suite.PASSED),
        Result("b", suite.FAILED, "x | y"),
        Result("c", suite.PASSED),
        Result("d", suite.OTHER_MODEL),
    ]
    report.write(page, results, ("native",), "1.2.3")
    text = page.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert "**2 passed, 1 failed**, of 3 v1model programs" in text
    assert "| b | failed | x \\| y |" in text
    assert "Passed: a, c." in text
    page.write_text("no markers")
    with pytest.raises(ValueError, match="the markers"):
        report.write(page, results, ("native",), "1.2.3")
