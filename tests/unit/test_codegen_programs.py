"""The shared cases of tests/programs through generated C, in the switch core with ports of no rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from codegen_fuzz import SANITIZE, fuzz
from programs.cases import CASES
from programs.steps import DIRECTORY, Case, Packet, run

from switch.core import DigestData, SwitchCore

PORTS = range(64)
PS_PER_US = 10**6


class CoreTarget:
    """`programs.steps.Target` over a switch core. Its packets all happen at the time that a case sets."""

    def __init__(self, json: Path) -> None:
        self.core = SwitchCore(json.read_bytes(), seed=0, sanitize=SANITIZE)
        self.control = self.core.pipeline
        self.now_ps = 0
        self.digests: list[tuple[int, bytes]] = []
        for port in PORTS:
            self.core.tm.add_port(port)

    def receive(self, port: int, frame: bytes) -> Sequence[tuple[int, bytes]]:
        self.core.receive(port, frame, self.now_ps)
        while (deadline := self.core.next_deadline()) is not None:  # what comes in again does so a moment later
            self.now_ps = max(self.now_ps, deadline)
            self.core.advance(self.now_ps)
        self.digests += [(event.list_id, event.data) for event in self.core.events() if isinstance(event, DigestData)]
        return [(output.port, output.frame) for output in self.core.outputs()]

    def take_digests(self) -> Sequence[tuple[int, bytes]]:
        taken = tuple(self.digests)
        self.digests.clear()
        return taken

    def set_multicast_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None:
        self.core.pre.set_multicast_group(group, list(copies))

    def set_clone_session(self, session: int, copies: Sequence[tuple[int, int]]) -> None:
        self.core.pre.set_clone_session(session, list(copies))

    def set_time_us(self, microseconds: int) -> None:
        self.now_ps = max(self.now_ps, microseconds * PS_PER_US)
        self.core.advance(self.now_ps)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    # a frame of no bytes cannot leave an Ethernet port: the core drops it
    case = replace(case, steps=tuple(step for step in case.steps if not (isinstance(step, Packet) and not step.frame)))
    target = CoreTarget(case.json)
    run(case, target)
    target.core.close()


@pytest.mark.parametrize("program", sorted({case.program for case in CASES}))
def test_random_packets_and_tables_agree_with_the_interpreter(program: str) -> None:
    """Seeds are the frames of the cases, which reach every branch that a case reaches."""
    seeds = [step.frame for case in CASES if case.program == program for step in case.steps if isinstance(step, Packet)]
    reached = fuzz((DIRECTORY / f"{program}.json").read_text(), seeds, seed=31, rounds=3, packets=150)
    assert reached > 20
