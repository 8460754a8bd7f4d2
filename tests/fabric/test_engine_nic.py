"""NICs of `hosts.nic` on the engine: carrier, frames of others, a fabric that is closed."""

from __future__ import annotations

import pytest

from fabric.engine import Fabric, FabricError, Reason
from hosts.nic import FlowState, Nic, connect_rdma
from hosts.nic_config import EventKind, NicConfig, RdmaConfig

G = 10**9
US = 10**6
DELAY_PS = 500_000  # 100 m
BYTE_PS = 80
FULL = 14 + 20 + 8 + 12 + 1024 + 4
LLDP = bytes.fromhex("0180c200000e02000000000188cc") + bytes(range(80))
EVENTS = frozenset({EventKind.FINISHED, EventKind.RAW, EventKind.LINK})


def nics() -> tuple[Nic, Nic]:
    a, b = (
        Nic(NicConfig(f"02:00:00:00:00:0{i}", f"10.0.0.{i}", 100 * G, events=EVENTS, notify=EVENTS)) for i in (1, 2)
    )
    return a, b


def join(fabric: Fabric, a: Nic, b: Nic) -> None:
    fabric.add_nic("a", a)
    fabric.add_nic("b", b)
    fabric.connect("a", 0, "b", 0, rate_bps=100 * G, length_m=100)


def test_a_nic_hears_that_its_link_is_down_and_loses_only_what_is_on_the_way() -> None:
    a, b = nics()
    with Fabric(1, debug=True, lookahead_ps=1) as fabric, a, b:
        join(fabric, a, b)
        flow = connect_rdma(a, b, RdmaConfig(bytes=100 * 1024))
        link = fabric.link("a")
        fabric.at(2 * US, link.down)
        fabric.at(30 * US, link.up)
        fabric.run(20 * US, events=False)
        # 1,040 bytes with the RETH, then 1,024: how many have begun and how many had arrived by 2 us
        begun = 1 + (2 * US - (FULL + 16 + 24) * BYTE_PS - 1) // ((FULL + 24) * BYTE_PS) + 1
        first_ps = (FULL + 16 + 12) * BYTE_PS + DELAY_PS
        arrived = 1 + (2 * US - first_ps - 12 * BYTE_PS - 1) // ((FULL + 24) * BYTE_PS)
        stats = link.there.stats()
        assert (stats.sent_frames, stats.delivered_frames, stats.lost_down) == (begun, arrived, begun - arrived)
        fabric.run(60 * 10**9, events=False)
        assert a.flow(flow.sender).state is FlowState.FINISHED
        assert link.there.stats().lost_down == begun - arrived  # nothing more went into the dead link
        assert a.flow(flow.sender).naks == 1
        assert [(e.time_ps, e.value) for e in a.events() if e.kind is EventKind.LINK] == [(2 * US, 0), (30 * US, 1)]
        assert [(e.time_ps, e.value) for e in b.events() if e.kind is EventKind.LINK] == [(2 * US, 0), (30 * US, 1)]
        fabric.close()


def test_a_frame_of_others_crosses_the_fabric_and_stops_it() -> None:
    a, b = nics()
    with Fabric(1, debug=True, lookahead_ps=1) as fabric, a, b:
        join(fabric, a, b)
        fabric.run(1 * US)
        assert a.send(LLDP, fabric.now_ps)
        stop = fabric.run(10 * US)
        at = 1 * US + (8 + len(LLDP) + 4) * BYTE_PS + DELAY_PS
        assert (stop.reason, stop.nodes, stop.now_ps) == (Reason.EVENT, ("b",), at)
        assert b.frames() == [(at, LLDP)]
        fabric.close()


def test_what_is_asked_of_a_closed_fabric_is_an_error() -> None:
    a, b = nics()
    with a, b:
        fabric = Fabric(1)
        join(fabric, a, b)
        link = fabric.link("a")
        fabric.close()
        fabric.close()
        for ask in (
            lambda: fabric.now_ps,
            lambda: fabric.next_ps,
            lambda: fabric.trace_hash,
            lambda: fabric.run(1),
            lambda: link.there.stats(),
            lambda: link.down(),
        ):
            with pytest.raises(FabricError, match="the fabric is closed"):
                ask()
