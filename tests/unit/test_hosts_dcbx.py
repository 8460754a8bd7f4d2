"""The host's agent: what DCBX means for RoCE, its state file, and the options of dcb-host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dcb.dcbx.port import DcbxPort
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.tlv import AppEntry, EtsTable
from dcb.lldp.agent import LocalSystem
from dcb.lldp.tlv import ChassisId, PortId
from hosts.dcbx import app
from hosts.dcbx_agent import HostAgent, roce_arguments, roce_marks

ETS = EtsTable((0, 0, 0, 1, 0, 0, 2, 0), (40, 60, 0, 0, 0, 0, 0, 0), (2, 2, 0, 0, 0, 0, 0, 0))
MAC, SWITCH = bytes.fromhex("020000000101"), bytes.fromhex("020100000101")
S = 1_000_000_000


def linked(settings: DcbxSettings, host: DcbxSettings | None = None) -> tuple[HostAgent, DcbxPort, list[str]]:
    """A host's agent that has talked with a switch port; the lines that it said."""
    agent = HostAgent(MAC, "h1-eth0", "h1", host or DcbxSettings.host())
    switch = DcbxPort(SWITCH, LocalSystem(ChassisId.mac(SWITCH), PortId.interface("leaf1-eth1")), settings)
    switch.set_link(True, 0)
    said = agent.set_link(True, 0)
    while frames := (switch.frames_to_send(0), agent.frames_to_send(0)):
        if not any(frames):
            break
        for frame in frames[0]:
            said += agent.receive(frame, 0)
        for frame in frames[1]:
            switch.receive(frame, 0)
    return agent, switch, said


@pytest.mark.parametrize(
    ("app", "pfc", "marks"),
    [
        ((), 0, {"priority": 3, "pcp": 3, "dscp": 26, "lossless": False}),
        ((), 1 << 3, {"priority": 3, "pcp": 3, "dscp": 26, "lossless": True}),
        ((AppEntry(3, 4791, 4),), 1 << 4, {"priority": 4, "pcp": 4, "dscp": 26, "lossless": True}),
        ((AppEntry(4, 4791, 4),), 1 << 3, {"priority": 4, "pcp": 4, "dscp": 26, "lossless": False}),
        ((AppEntry(5, 26, 5),), 0, {"priority": 5, "pcp": 5, "dscp": 26, "lossless": False}),
        # DSCP 26 means another priority: the lowest that means this one, else its class selector
        ((AppEntry(3, 4791, 4), AppEntry(5, 26, 3)), 0, {"priority": 4, "pcp": 4, "dscp": 32, "lossless": False}),
        (
            (AppEntry(3, 4791, 4), AppEntry(5, 26, 3), AppEntry(5, 46, 4), AppEntry(5, 34, 4)),
            0,
            {"priority": 4, "pcp": 4, "dscp": 34, "lossless": False},
        ),
        # of two entries for one application the first counts
        ((AppEntry(3, 4791, 4), AppEntry(3, 4791, 5)), 0, {"priority": 4, "pcp": 4, "dscp": 26, "lossless": False}),
    ],
)
def test_marks_of_roce(app: tuple[AppEntry, ...], pfc: int, marks: dict[str, Any]) -> None:
    agent, _, _ = linked(DcbxSettings.switch(ETS, pfc, app))
    assert roce_marks(agent.port.operational) == marks
    state = agent.state(0)
    assert state["marks"]["roce"] == marks
    options = ["--priority", str(marks["priority"]), "--dscp", str(marks["dscp"])]
    assert roce_arguments(state) == options + ([] if marks["lossless"] else ["--no-pfc"])


def test_a_willing_host_runs_what_its_switch_says_and_tells() -> None:
    agent, switch, said = linked(DcbxSettings.switch(ETS, 1 << 3, (AppEntry(3, 4791, 3),)))
    assert agent.settled
    assert (agent.port.operational.ets, agent.port.operational.pfc_enable) == (ETS, 1 << 3)
    assert switch.operational.pfc_agreed == 1 << 3
    assert said[0] == "neighbor: new: 02:01:00:00:01:01 leaf1-eth1"
    assert said[1].startswith(
        "operational: PFC none (lossless none) -> 3 (lossless 3): willing, and the peer is not; ETS"
    )
    state = json.loads(json.dumps(agent.state(5 * S)))
    assert (state["interface"], state["host"], state["link_up"]) == ("h1-eth0", "h1", True)
    assert state["neighbors"][0]["expires_in_s"] == 116
    assert "RoCEv2: priority 3, DSCP 26, PCP 3, lossless" in state["text"]["table"]
    assert state["text"]["lldptool"].startswith("Chassis ID TLV\n\tMAC: 02:01:00:00:01:01\n")
    assert "prio-pfc 0:off 1:off 2:off 3:on " in state["text"]["dcb"]
    switch.set_link(False, 0)
    assert agent.set_link(False, 6 * S)[-1].startswith("operational: PFC 3 (lossless 3) -> none (lossless none)")
    assert not agent.settled


def test_a_host_that_refuses_keeps_its_own() -> None:
    agent, _, _ = linked(DcbxSettings.switch(ETS, 1 << 3), DcbxSettings(pfc_enable=1 << 5))
    assert not agent.settled
    assert agent.state(0)["operational"]["pfc"] == {
        "enabled": [5],
        "lossless": [],
        "state": "Init",
        "why": "not willing",
    }


def test_goodbye_is_heard() -> None:
    agent, switch, _ = linked(DcbxSettings.switch(ETS, 1 << 3))
    [frame] = agent.shut_down(S)
    switch.receive(frame, S)
    assert switch.lldp.neighbors == ()
    assert switch.operational.pfc_agreed == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--once", "--watch"], "not with --once"),
        (["--pfc", "8"], "'8': priorities are 0..7 with commas between them"),
        (["--willing", "some"], "'some': all, none, or some of ets,pfc,app"),
        (["--ets", "0=40"], "bandwidth sum: 40, must be 100"),
        (["--ets", "0=much"], "'0=much': per cent or strict is wanted"),
        (["--app", "icmp:1=2"], "'icmp:1=2': udp:4791=3"),
        (["--app", "dscp:64=2"], "must be 0..63"),
        (["--mode", "cin"], "'cin': one of auto, ieee, cee"),
        (["--tie-break", "coin"], "'coin': one of lower-mac, higher-mac"),
        (["--format", "xml"], "'xml': table, lldptool or dcb"),
    ],
)
def test_wrong_use_exits_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 2
    assert message in result.stderr, result.stderr


def test_show_prints_the_state_of_a_running_agent(tmp_path: Path) -> None:
    agent, _, _ = linked(DcbxSettings.switch(ETS, 1 << 3))
    path = tmp_path / "h1-eth0.json"
    path.write_text(json.dumps(agent.state(0)))
    shown = CliRunner().invoke(app, ["show", "--state", str(path)])
    assert shown.exit_code == 0
    assert shown.stdout.startswith("h1-eth0 (h1)  02:00:00:00:01:01  link up  mode ieee")
    shown = CliRunner().invoke(app, ["show", "--state", str(path), "-j"])
    assert json.loads(shown.stdout)["operational"]["pfc"]["lossless"] == [3]
    missing = CliRunner().invoke(app, ["show", "--state", str(tmp_path / "none.json")])
    assert (missing.exit_code, "is dcb-host running on that interface?" in missing.stderr) == (1, True)
