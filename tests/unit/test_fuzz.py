"""The fuzzer of tests/fuzz: it notices what differs, makes it small, and finds nothing in a case of each program."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # the fuzzer is a package below `tests`, and is run as such

from switch.core import SwitchCore  # noqa: E402
from switch.loader import load  # noqa: E402
from tests.fuzz import bmv2, compare, generate, programs, shrink  # noqa: E402

SUBJECTS = programs.subjects()
MATCHING = SUBJECTS["stf/matching"]


def case(subject: programs.Subject, seed: int, packets: int) -> list[str]:
    made = generate.Generator(load(subject.json.read_text()), subject.frames, random.Random(seed))
    return made.case(packets)


def test_a_seed_makes_the_same_case_and_another_one_another() -> None:
    assert case(MATCHING, 5, 40) == case(MATCHING, 5, 40)
    assert case(MATCHING, 5, 40) != case(MATCHING, 6, 40)


@pytest.mark.parametrize("name", sorted(name for name, subject in SUBJECTS.items() if subject.whole))
def test_no_difference_in_a_case_of_each_program(name: str) -> None:
    text = SUBJECTS[name].json.read_text()
    assert compare.difference(text, case(SUBJECTS[name], 20261130, 60)) is None


def test_a_wrong_byte_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that spoils every frame that starts with 03 (the range table): one packet is enough to show it."""
    outputs = SwitchCore.outputs

    def spoiled(core: SwitchCore) -> list[object]:
        made = outputs(core)
        return [type(o)(o.port, o.frame + b"!" if o.frame[0] == 3 else o.frame, o.start_ps, o.end_ps) for o in made]

    monkeypatch.setattr(SwitchCore, "outputs", spoiled)
    text = MATCHING.json.read_text()
    lines = case(MATCHING, 1, 40)
    found = compare.difference(text, lines)
    assert found is not None
    small = shrink.shrink(lines, lambda candidate: compare.difference(text, candidate) is not None)
    assert len(small) == 1
    assert re.fullmatch(r"packet \d 03(00)*", small[0])


def test_a_crash_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SwitchCore, "receive", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    assert compare.difference(MATCHING.json.read_text(), ["packet 0 00"]) == "the process was ended by signal 9"


def test_state_is_compared_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from switch.native_pipeline import NativePipeline

    read = NativePipeline.register_read
    monkeypatch.setattr(NativePipeline, "register_read", lambda *args: read(*args) ^ 1)
    text = SUBJECTS["stf/meters"].json.read_text()
    found = compare.difference(text, ["register_write memory 0 5"])
    assert found == "register I.memory[0]: interpreter 0x5, C 0x4"


def test_shrinking_keeps_what_must_stay() -> None:
    lines = [f"line {n}" for n in range(100)]

    def fails(candidate: Sequence[str]) -> bool:
        return {"line 3", "line 50", "line 99"} <= set(candidate)

    assert shrink.fewer_lines(lines, fails) == ["line 3", "line 50", "line 99"]
    assert shrink.simpler_frames(["packet 1 0a0b0c0d"], lambda candidate: "0b" in candidate[0]) == ["packet 1 000b"]


def test_wrong_use_is_refused() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--program", "nothing"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no program nothing; known: " in done.stderr


def test_a_packet_that_never_ends_is_no_difference_where_both_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    text = SUBJECTS["stf/copies"].json.read_text()
    endless = "packet 0 03 FF 0004 00 00 0000 0000 00"  # resubmits 255 times
    assert compare.difference(text, [endless]) is None

    def gives_up(*_: object) -> list[tuple[int, bytes]]:
        raise compare.EngineError("a packet goes round for ever")

    monkeypatch.setattr(compare.NativeEngine, "receive", gives_up)
    found = compare.difference(text, [endless])
    assert found is not None
    assert "endless" in found
    monkeypatch.setattr(compare.InterpreterEngine, "receive", gives_up)
    assert compare.difference(text, [endless]) is None


def test_what_bmv2_is_asked() -> None:
    """Tables first, with priorities of their own; no waiting, no meters, no frames that veth cannot carry."""
    asked = bmv2.playable(
        [
            "packet 1 " + "00" * 14,
            "packet 1 00",
            "packet 1 " + "00" * 1401,
            'add "I.t" 7 "k":1 "I.a"()',
            'add "I.t" 7 "k":2 "I.a"()',
            'group "I.s" 3 2:5 1:2',
            'group "I.s" 4',
            "wait 5",
            'meter_set_rates "m" 0 1 1 1 1',
        ]
    )
    tables = ['add "I.t" 1 "k":1 "I.a"()', 'add "I.t" 2 "k":2 "I.a"()', 'group "I.s" 3 1:1 2:1']
    assert asked == [*tables, "packet 1 " + "00" * 14]


def test_bmv2_is_not_asked_for_a_header_that_is_not_there() -> None:
    """It would answer with what an earlier packet left in it (docs/conformance.md)."""
    line = 'add "I.t" 1 "hdr.h[1].$valid$":{} "hdr.h[1].v":11&&&255 "hdr.h[0].v":5&&&7 "I.a"()'
    assert bmv2.playable([line.format(1)]) == [line.format(1)]
    assert bmv2.playable([line.format(0)]) == [line.format(0).replace("11&&&255", "0&&&0")]
