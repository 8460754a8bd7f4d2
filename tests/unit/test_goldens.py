"""What BMv2 did with our program (tests/bmv2/goldens), asked of the interpreter and of the generated C.

A golden holds table entries, frames, what simple_switch_grpc sent for each of them, and the counters it ended
with. It was recorded by tests/bmv2/record.py; nothing of BMv2 is needed here.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from switch.api import ActionCall, CounterValue, EntryAction, GroupRef, KeyMatch, MatchKind, MemberRef, PipelineControl
from switch.interp_switch import SimpleSwitch
from switch.interpreter import Interpreter
from switch.loader import load
from switch.model import Program

REPOSITORY = Path(__file__).resolve().parents[2]
JSON_TEXT = (REPOSITORY / "p4src" / "build" / "dcb.json").read_text()
GOLDENS = sorted((REPOSITORY / "tests" / "bmv2" / "goldens").glob("*.json"))
NAMES = {"routing", "classification", "ecmp", "pause", "dialects", "acl", "arp", "ecn", "qcn"}
CPU_PORT = 510
PORTS = range(1, 9)
SELECTOR = "ingress.ecmp"

Frames = list[tuple[int, bytes]]


class Switch(Protocol):
    """A target under test."""

    @property
    def control(self) -> PipelineControl: ...
    def set_clone_session(self, session: int, port: int) -> None: ...
    def play(self, port: int, frame: bytes) -> Frames: ...


class InterpretedSwitch:
    """The interpreter inside simple_switch's order of things."""

    def __init__(self, program: Program) -> None:
        self.control = Interpreter(program)
        self.switch = SimpleSwitch(self.control)

    def set_clone_session(self, session: int, port: int) -> None:
        self.switch.set_clone_session(session, [(port, 1)])

    def play(self, port: int, frame: bytes) -> Frames:
        return [(output.port, output.frame) for output in self.switch.receive(port, frame)]


class NativeSwitch:
    """Generated C in the switch core, behind its traffic manager: ports of no rate, so all leaves at once."""

    def __init__(self) -> None:
        from switch.core import SwitchCore

        self.core = SwitchCore(JSON_TEXT, cpu_port=CPU_PORT)
        self.control: PipelineControl = self.core.pipeline
        self.now_ps = 0
        for port in PORTS:
            self.core.tm.add_port(port)

    def set_clone_session(self, session: int, port: int) -> None:
        self.core.pre.set_clone_session(session, [(port, 1)])

    def play(self, port: int, frame: bytes) -> Frames:
        from switch.core import PacketIn

        self.now_ps += 1_000_000
        self.core.receive(port, frame, self.now_ps)
        self.core.advance(self.now_ps)
        frames = [(output.port, output.frame) for output in self.core.outputs()]
        return frames + [(CPU_PORT, event.frame) for event in self.core.events() if isinstance(event, PacketIn)]


@pytest.fixture(scope="module")
def program() -> Program:
    return load(JSON_TEXT)


@pytest.fixture(params=["interpreter", "native"])
def switch(request: pytest.FixtureRequest, program: Program) -> Iterator[Switch]:
    if request.param == "interpreter":
        yield InterpretedSwitch(program)
        return
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) on the PATH")
    native = NativeSwitch()
    yield native
    native.core.close()


def key_matches(program: Program, entry: dict[str, Any]) -> list[KeyMatch]:
    tables = {**program.ingress.tables, **program.egress.tables}
    matches = []
    for key in tables[entry["table"]].keys:
        value = entry["match"][key.name]
        match key.kind:
            case MatchKind.EXACT:
                matches.append(KeyMatch(key.kind, value))
            case MatchKind.LPM:
                matches.append(KeyMatch(key.kind, value[0], prefix_len=value[1]))
            case MatchKind.TERNARY:
                matches.append(KeyMatch(key.kind, value[0], mask=value[1]))
            case MatchKind.RANGE:
                matches.append(KeyMatch(key.kind, value[0], high=value[1]))
            case _:
                raise AssertionError(key.kind)
    return matches


def load_scenario(switch: Switch, program: Program, golden: dict[str, Any]) -> list[int]:
    """Writes everything; handles of the ACL entries in their order."""
    for member, params in golden["members"].items():
        switch.control.member_set(SELECTOR, int(member), ActionCall("ingress.forward", tuple(params)))
    for group, members in golden["groups"].items():
        switch.control.group_set(SELECTOR, int(group), [(member, 1) for member in members])
    for session, port in golden["clone_sessions"].items():
        switch.set_clone_session(int(session), port)
    handles = []
    for entry in golden["entries"]:
        action: EntryAction
        if entry["member"] is not None:
            action = MemberRef(entry["member"])
        elif entry["group"] is not None:
            action = GroupRef(entry["group"])
        else:
            action = ActionCall(entry["action"], tuple(entry["params"]))
        handle = switch.control.table_insert(entry["table"], key_matches(program, entry), entry["priority"], action)
        if entry["table"] == "ingress.acl":
            handles.append(handle)
    return handles


def test_every_scenario_has_a_golden() -> None:
    assert {path.stem for path in GOLDENS} == NAMES


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_the_golden_is_of_this_program(path: Path) -> None:
    spec = importlib.util.spec_from_file_location("dcb_p4_build", REPOSITORY / "p4src" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    golden = json.loads(path.read_text())
    assert golden["program_sha256"] == build.meaning_sha256(JSON_TEXT), "run tests/bmv2/record.py"
    assert len(golden["packets"]) >= 25
    assert any(packet["answers"] for packet in golden["packets"])


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_the_same_frames_leave(path: Path, switch: Switch, program: Program) -> None:
    golden = json.loads(path.read_text())
    acl_handles = load_scenario(switch, program, golden)
    differences = []
    for packet in golden["packets"]:
        expected = [(answer["port"], answer["frame"]) for answer in packet["answers"]]
        frames = sorted(switch.play(packet["port"], bytes.fromhex(packet["frame"])), key=lambda sent: sent[0])
        found = [(port, frame.hex()) for port, frame in frames]
        if found != expected:
            differences.append((packet["name"], expected, found))
    assert differences == []

    for name, cells in golden["counters"].items():
        found_cells = {}
        for index in range(4096):
            cell = switch.control.counter_read(name, index)
            if cell != CounterValue():
                found_cells[str(index)] = [cell.packets, cell.bytes]
        assert found_cells == cells, name
    hits = [switch.control.direct_counter_read("ingress.acl", handle) for handle in acl_handles]
    assert [[cell.packets, cell.bytes] for cell in hits] == golden["acl_hits"]
