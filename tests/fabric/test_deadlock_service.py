"""The controller's own deadlock detection: a ring is told once, by name, and so is its end."""

from __future__ import annotations

from typing import Any

from topologies.scenarios import deadlock
from topologies.settings import Dcb, controller_config
from topologies.virtual import Bench, LabSettings, VirtualLab, planned

RING = "leaf2:3 priority 3 -> spine1:3 priority 3 -> leaf3:4 priority 3 -> spine2:2 priority 3 -> leaf2:3 priority 3"


def test_a_ring_is_told_once_and_so_is_its_end() -> None:
    fabric = deadlock.topology(100 * 10**9)
    dcb = planned(fabric, Dcb(pfc=(3,)), length_m=10, xoff_bytes=60_000)
    config = deadlock.bounced(controller_config(fabric, dcb), fabric)
    config["deadlock_detection"] = {"interval_ms": 20}

    async def body(lab: VirtualLab) -> list[dict[str, Any]]:
        start_ns = lab.now_ps // 1000
        for a, b in deadlock.PAIRS:
            lab.rdma(a, b, reliable=False)
        await lab.sleep(us=500)
        lab.stop()
        await lab.sleep(ms=99.5)
        assert [" -> ".join(map(str, (*ring, ring[0]))) for ring in lab.controller.deadlock.rings] == [RING]
        # a spine that restarts has forgotten what it held; the pauses that it sent run out
        lab.kill_switch("spine1")
        await lab.sleep(ms=100)
        found = [event for event in lab.controller.events.since(0) if event.kind == "deadlock"]
        return [{"text": event.text, "after_ms": (event.time_ns - start_ns) / 1e6, **event.data} for event in found]

    found, ended = Bench().run("deadlock", fabric, config, body, LabSettings(length_m=10))
    assert found["text"] == f"deadlock found: {RING}"
    assert found["queues"] == RING.split(" -> ")[:-1]
    # seen by two looks of 20 ms: not before the second, and no later than the third after it stands
    assert 20 < found["after_ms"] < 61
    assert ended["text"] == f"deadlock ended: {RING}"
    assert 100 < ended["after_ms"] < 200
