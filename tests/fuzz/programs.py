"""The programs that are fuzzed, with frames that reach into them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.stf.grammar import Packet, parse

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "unit")]  # as pytest has it: these two hold modules, not packages

from codegen_frames import dcb_frames  # noqa: E402
from programs.cases import CASES  # noqa: E402
from programs.steps import Packet as Step  # noqa: E402

DCB = TESTS.parent / "p4src" / "build" / "dcb.json"
PACKET_TESTS = TESTS / "stf" / "programs"


@dataclass(frozen=True)
class Subject:
    """A program and seed frames. `whole`: play it to the whole switch, else compare its pipelines alone."""

    name: str
    json: Path
    frames: tuple[bytes, ...]
    whole: bool = True


def subjects() -> dict[str, Subject]:
    """All of them by name."""
    found = {"dcb": Subject("dcb", DCB, tuple(dcb_frames()), whole=False)}
    for case in CASES:
        frames = tuple(step.frame for step in case.steps if isinstance(step, Step) and step.frame)
        known = found[case.program].frames if case.program in found else ()
        found[case.program] = Subject(case.program, case.json, known + frames)
    for path in sorted(PACKET_TESTS.glob("*.stf")):
        frames = tuple(s.body.frame for s in parse(path.read_text()) if isinstance(s.body, Packet))
        found[f"stf/{path.stem}"] = Subject(f"stf/{path.stem}", path.with_suffix(".json"), frames)
    return found
