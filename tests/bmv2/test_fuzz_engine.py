"""The fuzzer's BMv2 (tests/fuzz/bmv2.py): it plays cases as our switch does; a difference shows and is made small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.bmv2, pytest.mark.mininet]

# In a namespace of its own; our engine says port 2 for what leaves through port 1.
SPOILED = """
import sys
sys.path[:0] = ["tests/unit"]
from tests.fuzz.programs import subjects
from tests.fuzz import bmv2, shrink
bmv2.enter_namespace(["-c", sys.argv[1], sys.argv[1]])
subject = subjects()["stf/matching"]
case = ['add "I.exact_keys" 0 "hdr.k.a":%d "hdr.k.b":1 "I.give"("value":3)' % n for n in range(3)]
case += ["packet 3 00000%d0100" % n + "00" * 19 for n in range(3)]
print(bmv2.difference(subject.json, case))
receive = bmv2.NativeEngine.receive
bmv2.NativeEngine.receive = lambda *all: [(p, f if f[2] != 1 else f[:-1] + b"!") for p, f in receive(*all)]
print(bmv2.difference(subject.json, case))
small = shrink.fewer_lines(case, lambda lines: bmv2.difference(subject.json, lines) is not None)
print(*small, sep="\\n")
"""


def test_cases_of_a_program_without_a_difference() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--bmv2", "--seconds", "2", "--seed", "5", "--program"]
    done = subprocess.run([*command, "stf/matching"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("cases of 1 programs from seed 5: no difference\n")


def test_a_difference_shows_and_is_made_small() -> None:
    command = [sys.executable, "-c", SPOILED, SPOILED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    same, found, *small = done.stdout.splitlines()
    assert same == "None"
    answers = ["0000010103" + "00" * 18 + last for last in ("21", "00")]  # entry 1 gives 3
    assert found == f"port 1: 3 frames, BMv2 3; frame 1: ['{answers[0]}'], ['{answers[1]}']"
    assert small == ["packet 3 0000010100" + "00" * 19]
