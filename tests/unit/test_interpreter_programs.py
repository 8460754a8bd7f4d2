"""The interpreter on the programs of tests/programs, with the expectations written down there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from programs.cases import CASES
from programs.steps import DIRECTORY, Case, run

from switch.interp_switch import SimpleSwitch
from switch.interpreter import Interpreter
from switch.loader import load


class InterpreterTarget:
    """`programs.steps.Target` over the interpreter."""

    def __init__(self, json: Path) -> None:
        self.control = Interpreter(load(json.read_bytes()), seed=0)
        self.switch = SimpleSwitch(self.control)

    def receive(self, port: int, frame: bytes) -> Sequence[tuple[int, bytes]]:
        return [(output.port, output.frame) for output in self.switch.receive(port, frame)]

    def take_digests(self) -> Sequence[tuple[int, bytes]]:
        digests = tuple(self.switch.digests)
        self.switch.digests.clear()
        return digests

    def set_multicast_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None:
        self.switch.set_multicast_group(group, copies)

    def set_clone_session(self, session: int, copies: Sequence[tuple[int, int]]) -> None:
        self.switch.set_clone_session(session, copies)

    def set_time_us(self, microseconds: int) -> None:
        self.control.now_us = microseconds


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    run(case, InterpreterTarget(case.json))


@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c is not installed; the committed JSON is not remade")
@pytest.mark.parametrize("source", sorted(DIRECTORY.glob("*.p4")), ids=lambda source: source.stem)
def test_committed_json_is_what_p4c_makes_of_the_source(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    subprocess.run(["p4c-bm2-ss", "--arch", "v1model", "-o", out, source.name], cwd=DIRECTORY, check=True, timeout=120)
    assert out.read_text() == source.with_suffix(".json").read_text()
