"""Random scenarios over the whole lab: controller, switches, NICs, faults. Nothing stays stuck, everything drains.

Each example is a leaf-spine of random size, rate and cables with the planner's headroom, random RDMA and TCP flows, and
a fault that comes and goes while they run. The engine and the traffic managers check their invariants at every event.
Every flow ends, every buffer is empty, no group is XOFF and no port paused; where the fault loses no frame by itself,
lossless frames are neither lost nor out of order. DCBLAB_FULL=1 runs hundreds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from dcb.units import PS_PER_MS, PS_PER_US
from hosts.nic_config import TcpAlgorithm
from topologies.description import Topology, leaf_spine
from topologies.settings import BUSINESS_PRIORITY, STORAGE_PRIORITY, Dcb, Ecn, controller_config
from topologies.virtual import Bench, Flow, LabSettings, VirtualLab, planned

FULL = os.environ.get("DCBLAB_FULL") == "1"
EXAMPLES = 300 if FULL else 3
G = 10**9
MTU_BYTES = 1514
LONGEST_PAUSE_PS = 65535 * 512 * 1000 // 10  # at 10 Gb/s


class Fault(Enum):
    NONE = "none"
    SLOW_HOST = "slow host"
    STORM = "storm"
    CONTROLLER = "controller away"
    FLAP = "link flap"
    LOSS = "lossy link"


LOSES = {Fault.FLAP, Fault.LOSS}


@dataclass(frozen=True)
class Traffic:
    source: int
    target: int
    bytes: int
    start_us: int
    kind: str  # off, paper, cx4: RDMA with that DCQCN; tcp


@dataclass(frozen=True)
class Scenario:
    leaves: int
    spines: int
    hosts: int
    rate_bps: int
    length_m: int
    xoff: int
    seed: int
    flows: tuple[Traffic, ...]
    fault: Fault
    where: int
    fault_us: int


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    leaves, spines, hosts = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(2, 3))
    total = leaves * hosts
    hot = draw(st.integers(0, total - 1))  # incast is where PFC happens
    flow = st.builds(
        Traffic,
        source=st.integers(0, total - 1),
        target=st.sampled_from([hot, hot, hot, *range(total)]),
        bytes=st.integers(1, 150_000),
        start_us=st.integers(0, 20),
        kind=st.sampled_from(["off", "off", "paper", "cx4", "tcp"]),
    )
    flows = draw(st.lists(flow, min_size=4, max_size=10))
    return Scenario(
        leaves,
        spines,
        hosts,
        draw(st.sampled_from([10, 25, 100, 400])) * G,
        draw(st.sampled_from([1, 10, 100, 300])),
        draw(st.integers(5_000, 60_000)),
        draw(st.integers(0, 1000)),
        tuple(f for f in flows if f.source != f.target),
        draw(st.sampled_from(list(Fault))),
        draw(st.integers(0, 63)),
        draw(st.integers(1, 300)),
    )


def start(lab: VirtualLab, s: Scenario) -> list[Flow]:
    made = []
    for f in s.flows:
        ends, at = (f"h{f.source + 1}", f"h{f.target + 1}"), lab.now_ps + f.start_us * PS_PER_US
        if f.kind == "tcp":
            algorithm = TcpAlgorithm.DCTCP if f.bytes % 2 else TcpAlgorithm.RENO
            made.append(
                lab.tcp(*ends, bytes=f.bytes, start_ps=at, algorithm=algorithm, ecn=True, rto_initial_ps=PS_PER_MS)
            )
        else:
            made.append(lab.rdma(*ends, bytes=f.bytes, start_ps=at, dcqcn=f.kind))
    return made


async def break_and_mend(lab: VirtualLab, s: Scenario) -> None:
    """The fault from 5 us on, for as long as it lasts."""
    await lab.sleep(us=5)
    host = s.where % len(lab.topology.hosts)
    nic = lab.nics[lab.topology.hosts[host].name]
    ends = lab.topology.links[s.where % len(lab.topology.links)]
    if s.fault is Fault.SLOW_HOST:
        nic.set_drain(s.rate_bps // 8, lab.now_ps)
        await lab.sleep(us=s.fault_us)
        nic.set_drain(0, lab.now_ps)
    elif s.fault is Fault.STORM:
        nic.storm([STORAGE_PRIORITY], 20 * PS_PER_US, start_ps=lab.now_ps, until_ps=lab.now_ps + s.fault_us * PS_PER_US)
        await lab.sleep(us=s.fault_us)
    elif s.fault is Fault.CONTROLLER:
        await lab.stop_controller()
        await lab.sleep(us=s.fault_us)
        await lab.start_controller()
    elif s.fault is Fault.FLAP:
        lab.set_link(ends.a.node, ends.b.node, up=False)
        await lab.sleep(us=s.fault_us)
        lab.set_link(ends.a.node, ends.b.node, up=True)
    elif s.fault is Fault.LOSS:
        for direction in lab.link(ends.a.node, ends.b.node).directions:
            direction.set_errors(loss=0.01)
        await lab.sleep(us=s.fault_us)
        for direction in lab.link(ends.a.node, ends.b.node).directions:
            direction.set_errors(loss=0)


def nothing_is_stuck(lab: VirtualLab) -> None:
    for switch in lab.topology.switches:
        core = lab.core(switch.name)
        assert core.packets_held == 0, f"{switch.name} holds packets"
        assert core.tm.read_state("pool_used", 0) == 0
        for port in switch.ports:
            for n in range(8):
                for kind in ("pg_xoff", "pause_left", "queue_depth", "pg_depth", "pg_headroom"):
                    assert core.tm.read_state(kind, port * 8 + n) == 0, f"{switch.name} port {port}: {kind} {n}"
    lab.fabric.check()


def run(s: Scenario, topology: Topology) -> tuple[str, list[str]]:
    """The hash of all frames, and what happened."""
    ecn = {STORAGE_PRIORITY: Ecn(5_000, 50_000, 0.1), BUSINESS_PRIORITY: Ecn(20_000, 20_000)}
    dcb = planned(
        topology,
        Dcb(pfc=(STORAGE_PRIORITY,), ecn=ecn, queue_limit_bytes=60_000),
        length_m=s.length_m,
        mtu_bytes=MTU_BYTES,
        xoff_bytes=s.xoff,
    )

    async def body(lab: VirtualLab) -> None:
        flows = start(lab, s)
        await break_and_mend(lab, s)
        await lab.finished(flows, timeout_ms=2000)
        assert await lab.drained(), "the fabric does not drain"
        await lab.sleep(ps=LONGEST_PAUSE_PS)
        nothing_is_stuck(lab)
        for flow, wanted in zip(flows, s.flows, strict=True):
            assert flow.received.rx_bytes >= wanted.bytes, f"{flow.source} -> {flow.target}: bytes are missing"
        after = await lab.snapshot()
        assert after.buffered_bytes() == 0
        if s.fault not in LOSES:
            assert after.lost(STORAGE_PRIORITY) == 0
            storage = [f for f, wanted in zip(flows, s.flows, strict=True) if wanted.kind != "tcp"]
            assert [f.received.rx_out_of_order for f in storage] == [0] * len(storage)
        told.append(f"PFC: {after.xoff_frames() > 0}")

    told: list[str] = []
    bench = Bench(seed=s.seed, debug=True)
    bench.run("random", topology, controller_config(topology, dcb), body, LabSettings(length_m=s.length_m))
    return bench.traces["random"], told


INCAST = (*(Traffic(n, 0, 60_000, 0, "off") for n in (1, 2, 3)), Traffic(1, 0, 60_001, 0, "tcp"))


@settings(max_examples=EXAMPLES, deadline=None, derandomize=not FULL, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
@example(Scenario(2, 1, 2, 100 * G, 10, 20_000, 1, INCAST, Fault.STORM, 0, 300))
@example(Scenario(2, 1, 2, 100 * G, 100, 20_000, 2, INCAST, Fault.FLAP, 0, 50))
def test_nothing_stays_stuck_and_lossless_loses_nothing(s: Scenario) -> None:
    _, told = run(s, leaf_spine(s.leaves, s.spines, s.hosts, s.rate_bps))
    for what in [f"fault: {s.fault.value}", *told]:
        event(what)


def test_the_same_scenario_is_the_same_again() -> None:
    s = Scenario(2, 1, 2, 100 * G, 10, 20_000, 1, INCAST, Fault.LOSS, 1, 100)
    assert run(s, leaf_spine(2, 1, 2, s.rate_bps)) == run(s, leaf_spine(2, 1, 2, s.rate_bps))
