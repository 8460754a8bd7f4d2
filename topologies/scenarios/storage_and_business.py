"""Scenario storage-and-business (requirement R10): lossless storage and lossy business traffic share every link.

Three hosts of leaf 2 write to one host of leaf 1 (RoCEv2, priority 3), together more than its link carries; business
TCP (priority 0) runs to the same host beside it. Three runs on one fabric: PFC off, PFC on, PFC on with ETS 60/40. This
module holds the description and the verdict, both pure; `topologies.lab` runs it in real time, `run` in virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from topologies.description import Topology, leaf_spine
from topologies.network import Target
from topologies.results import Check, RunResult
from topologies.scenario import Option, Outcome
from topologies.settings import BUSINESS_PRIORITY, STORAGE_PRIORITY, Dcb, Ecn, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "storage-and-business"
SUMMARY = "storage incast at priority 3 beside business TCP at priority 0: PFC off, PFC on, PFC on with ETS 60/40"
TARGETS = (Target.EMBEDDED, Target.BMV2)
RATE_BPS = 100_000_000
SHARE_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """What a target can carry: rate of every link, buffers (fields of Dcb), how exact its ETS is (0.05: 5 points)."""

    rate_bps: int
    buffers: Mapping[str, Any]
    share_tolerance: float


SETTINGS = {
    Target.EMBEDDED: Setting(RATE_BPS, {}, SHARE_TOLERANCE),
    # BMv2 counts in frames of 1024 bytes and has no scheduler; at its rates, smaller queues are as long in time.
    Target.BMV2: Setting(
        4_000_000, {"xoff_bytes": 60_000, "xon_bytes": 50_000, "queue_limit_bytes": 60_000}, share_tolerance=0.10
    ),
}


@dataclass(frozen=True, slots=True)
class Flow:
    """Traffic from one host to another; storage is paced at rate_bps, business takes what TCP finds."""

    traffic_class: str
    source: str
    destination: str
    rate_bps: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """One run: its name and its DCB settings."""

    name: str
    dcb: Dcb
    shares: dict[int, float] | None = None  # what ETS promises, by queue


def topology(rate_bps: int = RATE_BPS) -> Topology:
    return leaf_spine(2, 2, 4, rate_bps)


def flows(rate_bps: int = RATE_BPS) -> list[Flow]:
    """Three storage senders at 60% of the link each (180% of the receiver's link), two business senders."""
    storage = [Flow("storage", source, "h1", rate_bps * 6 // 10) for source in ("h5", "h6", "h7")]
    return [*storage, Flow("business", "h2", "h1"), Flow("business", "h8", "h1")]


def phases(setting: Setting = SETTINGS[Target.EMBEDDED]) -> list[Phase]:
    ecn = {
        STORAGE_PRIORITY: Ecn(kmin_bytes=20_000, kmax_bytes=80_000, pmax=0.2),
        BUSINESS_PRIORITY: Ecn(kmin_bytes=40_000, kmax_bytes=120_000, pmax=0.5),
    }
    off = replace(Dcb(ecn=ecn), **setting.buffers)
    on = off.with_pfc(STORAGE_PRIORITY)
    shares: dict[int, int | str] = {STORAGE_PRIORITY: 60, BUSINESS_PRIORITY: 40}
    ets = on.with_ets({**shares, 6: "strict", 7: "strict"})
    return [
        Phase("PFC off", off),
        Phase("PFC on", on),
        Phase("PFC on, ETS 60/40", ets, {STORAGE_PRIORITY: 0.6, BUSINESS_PRIORITY: 0.4}),
    ]


def verdict(runs: Sequence[RunResult], share_tolerance: float = SHARE_TOLERANCE) -> list[Check]:
    """What the three runs prove (issue text of R10): each claim with the figures that decide it."""
    off, *on = runs
    lost = off.traffic_class("storage").lost
    checks = [Check("without PFC, storage loses frames", lost > 0, f"{lost:,} lost")]
    for run in on:
        storage = run.traffic_class("storage")
        missing = storage.offered - storage.received
        checks.append(
            Check(
                f"{run.name}: storage loses nothing",
                storage.offered > 0 and storage.lost == 0 and missing == 0,
                f"{storage.offered:,} offered, {storage.received:,} received, {storage.lost:,} lost",
            )
        )
        checks.append(
            Check(f"{run.name}: storage stays in order", storage.reordered == 0, f"{storage.reordered:,} reordered")
        )
        xoff = sum(link.xoff for link in run.pfc)
        checks.append(Check(f"{run.name}: PFC held it back", xoff > 0, f"{xoff:,} XOFF frames"))
    business_pauses = [
        f"{link.sender} -> {link.receiver}" for run in runs for link in run.pfc if BUSINESS_PRIORITY in link.priorities
    ]
    paused_ns = sum(run.paused_ns.get(BUSINESS_PRIORITY, 0) for run in runs)
    business = [run.traffic_class("business").received for run in runs]
    checks.append(
        Check(
            "business traffic is never paused, and flows in every run",
            not business_pauses and paused_ns == 0 and all(business),
            f"{len(business_pauses)} links with PFC for priority 0, paused {paused_ns} ns, "
            f"{min(business):,} frames received at least",
        )
    )
    for run in runs:
        if run.configured_share is not None:
            worst = max(abs(run.share.get(q, 0.0) - want) for q, want in run.configured_share.items())
            figures = ", ".join(
                f"queue {q} {100 * run.share.get(q, 0.0):.1f}% of {100 * want:.0f}%"
                for q, want in run.configured_share.items()
            )
            claim = f"{run.name}: shares within {100 * share_tolerance:.0f} points"
            checks.append(Check(claim, worst <= share_tolerance, figures))
    leaked = sum(run.left_in_buffers_bytes for run in runs)
    checks.append(Check("buffers are empty after every run", leaked == 0, f"{leaked} bytes left"))
    return checks


# --- in virtual time --------------------------------------------------------------------------------------------------

OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "duration_ms": Option(4.0, "of traffic in each run", low=0.5, high=1000),
    "length_m": Option(5, "of every link", low=1, high=100_000),
}


def run(bench: Bench) -> Outcome:
    """The same three phases at 100 Gb/s; buffers as the headroom planner says."""
    from topologies.virtual.classes import tables

    rate_bps = bench.number("rate_gbps") * 10**9
    fabric = topology(rate_bps)
    runs = [_virtual_phase(bench, fabric, phase, rate_bps) for phase in phases()]
    figures = {
        f"{r.name}: {c.name} {what}": value
        for r in runs
        for c in r.classes
        for what, value in (("lost", c.lost), ("Gb/s", round(c.received_bps / 1e9, 2)))
    }
    return Outcome(verdict(runs), tables(runs), figures=figures)


def _virtual_phase(bench: Bench, fabric: Topology, phase: Phase, rate_bps: int) -> RunResult:
    from hosts.nic_config import TcpAlgorithm
    from topologies.measure import shares
    from topologies.virtual import LabSettings, planned
    from topologies.virtual.classes import class_result, run_result

    length_m, duration_ms = bench.number("length_m"), float(bench.options["duration_ms"])
    dcb = planned(fabric, phase.dcb, length_m=length_m, mtu_bytes=1514)
    by_class = {"storage": STORAGE_PRIORITY, "business": BUSINESS_PRIORITY}

    async def body(lab: VirtualLab) -> RunResult:
        before = await lab.snapshot()
        sent = {name: [f for f in flows(rate_bps) if f.traffic_class == name] for name in by_class}
        started = {
            "storage": [
                lab.rdma(f.source, f.destination, rate_bps=f.rate_bps, reliable=False) for f in sent["storage"]
            ],
            "business": [
                lab.tcp(f.source, f.destination, algorithm=TcpAlgorithm.DCTCP, ecn=True) for f in sent["business"]
            ],
        }
        await lab.sleep(ms=duration_ms / 2)
        middle = await lab.snapshot()
        await lab.sleep(ms=duration_ms / 2)
        end = await lab.snapshot()
        lab.stop()
        await lab.finished()
        await lab.drained()
        after = await lab.snapshot()
        receiver = lab.topology.host("h1")
        share = shares(middle, end, receiver.leaf, receiver.number, by_class.values())
        duration_s = duration_ms / 1e3
        classes = [class_result(lab, n, p, started[n], before, after, duration_s) for n, p in by_class.items()]
        return run_result(lab, phase.name, classes, before, after, duration_s, share, phase.shares)

    config = controller_config(fabric, dcb)
    settings = LabSettings(length_m=length_m, pfc=frozenset(dcb.pfc))
    return bench.run(phase.name, fabric, config, body, settings)
