"""Congestion notification over a link: states of both ends as their TLVs go to and fro, on screen, from a config."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_fakes import CONFIG

from controller.config import parse_text
from controller.dcbx_overlay import local_settings
from dcb.dcbx.congestion import Defence, announced, defences
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.summary import screen, summary
from dcb.dcbx.tlv import CongestionNotification
from dcb.lldp.agent import LocalSystem
from dcb.lldp.tlv import ChassisId, PortId

S = 10**9
OFF, EDGE, INTERIOR, READY = Defence.DISABLED, Defence.EDGE, Defence.INTERIOR, Defence.INTERIOR_READY


@pytest.mark.parametrize(
    ("own", "said", "state", "sends"),
    [  # of priority 3: (CNPV, ready) here, there, what is run, what is sent
        (None, (1, 1), OFF, None),
        ((0, 0), (1, 1), OFF, (0, 0)),
        ((0, 1), (1, 1), OFF, (0, 0)),  # ready for what is no CNPV: not said
        ((1, 1), None, EDGE, (1, 0)),
        ((1, 1), (0, 0), EDGE, (1, 0)),
        ((1, 1), (0, 1), EDGE, (1, 0)),
        ((1, 1), (1, 0), INTERIOR, (1, 1)),
        ((1, 1), (1, 1), READY, (1, 1)),
        ((1, 0), (1, 1), READY, (1, 0)),  # CN-TAGs may be sent to the peer, which may not send them here
    ],
)
def test_one_priority(
    own: tuple[int, int] | None, said: tuple[int, int] | None, state: Defence, sends: tuple[int, int] | None
) -> None:
    def tlv(bits: tuple[int, int] | None) -> CongestionNotification | None:
        return None if bits is None else CongestionNotification(bits[0] << 3, bits[1] << 3)

    mine = tlv(own)
    assert defences(mine, tlv(said)) == (OFF, OFF, OFF, state, OFF, OFF, OFF, OFF)
    if mine is not None:
        assert announced(mine, tlv(said)) == tlv(sends)


def port(number: int, congestion: CongestionNotification | None) -> DcbxPort:
    mac = bytes([2, 0, 0, 0, 0, number])
    made = DcbxPort(
        mac,
        LocalSystem(ChassisId.mac(mac), PortId.interface(f"eth{number}")),
        replace(DcbxSettings.host(), congestion=congestion),
    )
    made.set_link(True, 0)
    return made


def say(speaker: DcbxPort, listener: DcbxPort, now_ns: int) -> CongestionNotification | None:
    """What is due goes over the link; the last TLV that was sent."""
    for frame in speaker.frames_to_send(now_ns):
        listener.receive(frame, now_ns)
    return speaker.sent.congestion


def test_two_ends_become_ready_step_by_step() -> None:
    both = CongestionNotification(0b1000, 0b1000)
    a, b = port(1, both), port(2, both)
    a.handle_timer(0)
    b.handle_timer(0)
    assert (a.congestion[3], b.congestion[3]) == (EDGE, EDGE)
    assert say(a, b, 0) == CongestionNotification(0b1000, 0)
    assert (a.congestion[3], b.congestion[3]) == (EDGE, INTERIOR)
    assert say(b, a, 0) == both  # b has heard of a's CNPV
    assert (a.congestion[3], b.congestion[3]) == (READY, INTERIOR)
    assert say(a, b, 0) == both  # a change is sent at once
    assert (a.congestion[3], b.congestion[3]) == (READY, READY)
    assert set(a.congestion) == {OFF, READY}
    a.handle_timer(200 * S)  # b has been silent for its TTL
    assert a.congestion[3] is EDGE
    assert a.sent.congestion == CongestionNotification(0b1000, 0)


def test_on_screen() -> None:
    a, b = port(1, CongestionNotification(0b11000, 0b11000)), port(2, CongestionNotification(0b1000, 0))
    for _ in range(2):
        say(a, b, 0)
        say(b, a, 0)
    view = summary(a, 0)
    assert view["local"]["congestion"] == {"cnpv": [3, 4], "ready": [3, 4]}
    assert view["remote"]["congestion"] == {"cnpv": [3], "ready": []}
    assert view["operational"]["congestion"][3:5] == ["interior", "edge"]
    lines = [line.split() for line in screen(view, "leaf1:1").splitlines()]
    assert ["CN", "local", "CNPV", "3,4,", "ready", "3,4"] in lines
    assert ["remote", "CNPV", "3,", "ready", "none"] in lines
    assert ["running", "3", "interior,", "4", "edge"] in lines
    assert not any(line[:1] == ["CN"] for line in map(str.split, screen(summary(port(3, None), 0), "x").splitlines()))


def test_a_switch_announces_the_priorities_of_its_congestion_points() -> None:
    text = CONFIG.replace("peer: h1", "peer: h1, dcbx: {}, qcn: {3: {}}")
    assert local_settings(parse_text(text), "leaf1", 1).congestion == CongestionNotification(0b1000, 0b1000)
    without = CONFIG.replace("peer: h1", "peer: h1, dcbx: {}")
    assert local_settings(parse_text(without), "leaf1", 1).congestion is None
