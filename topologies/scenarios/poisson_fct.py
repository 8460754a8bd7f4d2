"""Scenario poisson-fct: flow completion times by size under load, the figure of every article on RDMA. In virtual time.

Eight hosts of two racks; at each, flows arrive as a Poisson process, to uniformly chosen others, with the sizes of a
published distribution. Four fabrics carry the very same flows: PFC alone, PFC with DCQCN, lossy with go-back-N, lossy
with DCTCP. A flow's slowdown is its completion time over what it takes in an empty fabric, a closed formula; shown are
median, 95th and 99th percentile by size. A single flow of each kind is run first, alone, and holds the formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dcb.units import PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import BUSINESS_PRIORITY, Dcb, controller_config
from topologies.settings import STORAGE_PRIORITY as LOSSLESS

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "poisson-fct"
SUMMARY = "flow completion times by size under Poisson load from a published distribution, by fabric"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "load": Option(50, "percent of each host's link", low=1, high=95),
    "arrivals_ms": Option(5.0, "for which flows arrive", low=0.1, high=1000),
    "sizes": Option("web-search", "distribution of sizes", choices=("web-search", "hadoop")),
    "profile": Option("cx4", "DCQCN's parameters", choices=("paper", "cx4")),
    "xoff_kb": Option(100, "of the lossless buffer, above Kmax where there is DCQCN", low=20, high=4000),
    "queue_kb": Option(400, "of a queue, in the lossy fabrics", low=10, high=16_000),
}
LEAVES, SPINES, HOSTS = 2, 2, 4
LENGTH_M = 10
MTU_BYTES, HEADERS_BYTES, GAP_BYTES, RETH_BYTES, ACK_BYTES = 1024, 58, 24, 16, 62
PFC, DCQCN, LOSSY, TCP = "PFC alone", "PFC and DCQCN", "lossy, go-back-N", "lossy, DCTCP"
RUNS = (PFC, DCQCN, LOSSY, TCP)
BINS = (
    ("up to 10 kB", 0, 10_000),
    ("to 100 kB", 10_000, 100_000),
    ("to 1 MB", 100_000, 10**6),
    ("more", 10**6, 10**12),
)
PERCENTILES = (50, 95, 99)
PROBES = ((1, "h2"), (1_000, "h5"), (50_000, "h2"), (50_000, "h5"), (1_000_000, "h5"), (1_025, "h5"), (2_048, "h5"))


@dataclass(frozen=True, slots=True)
class Done:
    """A flow that has finished: bytes, switches on its way, completion time."""

    bytes: int
    switches: int
    fct_ps: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed."""

    flows: list[Done]
    probes: list[Done]
    offered: int
    lost: int
    resent: int
    xoff_frames: int


def topology(rate_bps: int) -> Topology:
    return leaf_spine(LEAVES, SPINES, HOSTS, rate_bps)


def ideal_ps(bytes_: int, switches: int, rate_bps: int) -> int:
    """RDMA in an empty fabric, until the last ACK has come.

    All frames leave the host one after the other; each switch adds the largest frame once more, and sends the ACK once
    more. The gap after a frame (12 bytes) is not waited for.
    """
    frames = -(-bytes_ // MTU_BYTES)
    data = -(-bytes_ // 4) * 4 + frames * (HEADERS_BYTES + GAP_BYTES) + RETH_BYTES  # padded to 4 bytes
    largest = data if frames == 1 else MTU_BYTES + RETH_BYTES + HEADERS_BYTES + GAP_BYTES
    wire = data - 12 + switches * (largest - 12) + (switches + 1) * (ACK_BYTES + GAP_BYTES - 12)
    return wire * 8 * PS_PER_S // rate_bps + 2 * (switches + 1) * LENGTH_M * 5 * PS_PER_NS


def run(bench: Bench) -> Outcome:
    """The same flows on four fabrics."""
    from hosts.workloads import DISTRIBUTIONS, poisson

    rate_bps = bench.number("rate_gbps") * 10**9
    fabric = topology(rate_bps)
    flows = poisson(
        [host.name for host in fabric.hosts],
        DISTRIBUTIONS[str(bench.options["sizes"])],
        load=Fraction(bench.number("load"), 100),
        rate_bps=rate_bps,
        until_ps=round(float(bench.options["arrivals_ms"]) * PS_PER_MS),
        seed=bench.seed,
    )
    seen = {name: _run(bench, name, fabric, flows) for name in RUNS}
    figures: dict[str, float] = {}
    for name, s in seen.items():
        for (label, _, _), found in zip(BINS, by_size(s.flows, rate_bps), strict=True):
            for p in PERCENTILES:
                if found:
                    figures[f"{name}, {label}: p{p}"] = round(percentile(found, p), 3)
    return Outcome(
        verdict(seen, rate_bps),
        [_table(seen, rate_bps), _costs(seen)],
        [_plot(seen, rate_bps)],
        figures,
        [
            f"{len(flows):,} flows, {sum(f.bytes for f in flows) / 1e6:,.0f} MB; slowdown: completion time over that "
            "of an RDMA flow in an empty fabric",
        ],
    )


def _run(bench: Bench, name: str, fabric: Topology, flows: Sequence[Any]) -> Seen:
    from hosts.nic_config import Dcqcn, RdmaConfig, TcpAlgorithm, TcpConfig
    from hosts.workloads import Defaults, Flow, Protocol
    from topologies.settings import Ecn
    from topologies.virtual import LabSettings, planned
    from topologies.virtual.tuning import dcqcn_of, ecn_of

    rate_bps, profile = bench.number("rate_gbps") * 10**9, str(bench.options["profile"])
    pfc = (LOSSLESS,) if name in (PFC, DCQCN) else ()
    priority = BUSINESS_PRIORITY if name == TCP else LOSSLESS
    k = 30_000 * rate_bps // 10**10  # DCTCP's threshold as HPCC has it: 30 KB for each 10 Gb/s
    marking = {DCQCN: ecn_of(profile, rate_bps), TCP: Ecn(k, k, 1.0)}.get(name)
    xoff = bench.number("xoff_kb") * 1000 + (marking.kmax_bytes if marking else 0)
    dcb = Dcb(pfc=pfc, ecn={priority: marking} if marking else {}, queue_limit_bytes=bench.number("queue_kb") * 1000)
    dcb = planned(fabric, dcb, length_m=LENGTH_M, xoff_bytes=xoff)
    dcqcn = dcqcn_of(profile, rate_bps) if name == DCQCN else Dcqcn.off()
    tcp = TcpConfig(
        algorithm=TcpAlgorithm.DCTCP,
        ecn=True,
        rto_min_ps=PS_PER_MS,
        rto_initial_ps=PS_PER_MS,
        delayed_ack_ps=50 * PS_PER_US,
    )
    defaults = Defaults(rdma=RdmaConfig(dcqcn=dcqcn), tcp=tcp)
    kind = Protocol.TCP if name == TCP else Protocol.RDMA

    def done(lab: VirtualLab, started: Sequence[Any]) -> list[Done]:
        return [Done(f.sent.bytes, _switches(fabric, f.source, f.target), f.sent.completion_ps or 0) for f in started]

    async def body(lab: VirtualLab) -> Seen:
        probes = []
        for size, target in PROBES:
            probe = lab.start([Flow("h1", target, size, protocol=kind)], defaults)
            await lab.finished(probe)
            probes += done(lab, probe)
        start = lab.now_ps
        started = lab.start([replace(flow, protocol=kind) for flow in flows], defaults)
        await lab.finished(started, timeout_ms=20_000)
        await lab.drained()
        after = await lab.snapshot()
        found = done(lab, started)
        for flow, one in zip(flows, found, strict=True):
            labels = {"source": flow.source, "target": flow.target, "bytes": str(flow.bytes)}
            bench.metrics.append(Metric(name, start + flow.start_ps, "completion ns", one.fct_ps / PS_PER_NS, labels))
        resent = sum(f.sent.packets_resent for f in started)
        return Seen(found, probes, len(flows), after.lost(priority), resent, after.xoff_frames())

    settings = LabSettings(length_m=LENGTH_M, pfc=frozenset(pfc))
    return bench.run(name, fabric, controller_config(fabric, dcb), body, settings)


def _switches(fabric: Topology, source: str, target: str) -> int:
    return 1 if fabric.host(source).leaf == fabric.host(target).leaf else 3


def slowdown(flow: Done, rate_bps: int) -> float:
    return flow.fct_ps / ideal_ps(flow.bytes, flow.switches, rate_bps)


def by_size(flows: Sequence[Done], rate_bps: int) -> list[list[float]]:
    """Slowdowns, ascending, for each of BINS."""
    return [sorted(slowdown(f, rate_bps) for f in flows if low < f.bytes <= high) for _, low, high in BINS]


def percentile(ascending: Sequence[float], p: int) -> float:
    """The value that p percent do not exceed (nearest rank)."""
    return ascending[max(0, -(-len(ascending) * p // 100) - 1)]


def verdict(seen: Mapping[str, Seen], rate_bps: int) -> list[Check]:
    """Pure."""
    alone = [f for name in (PFC, DCQCN, LOSSY) for f in seen[name].probes]
    off = [f.fct_ps - ideal_ps(f.bytes, f.switches, rate_bps) for f in alone]
    least = min(slowdown(f, rate_bps) for name in (PFC, DCQCN, LOSSY) for f in seen[name].flows)
    unfinished = [name for name, s in seen.items() if len(s.flows) != s.offered or not all(f.fct_ps for f in s.flows)]
    kept = [s for name, s in seen.items() if name in (PFC, DCQCN)]
    small = {name: [f for f in s.flows if f.bytes <= 100_000] for name, s in seen.items()}
    tail = {name: percentile(sorted(slowdown(f, rate_bps) for f in found), 99) for name, found in small.items()}
    return [
        Check(
            "a flow alone takes what the formula says, to the picosecond",
            not any(off),
            f"{len(off)} flows of 1 byte to 1 MB, off by {max(map(abs, off))} ps at most",
        ),
        Check("no flow is faster than in an empty fabric", least >= 1, f"{least:.4f} at least"),
        Check(
            "every flow finishes in every fabric",
            not unfinished,
            ", ".join(unfinished) or f"{seen[PFC].offered:,} each",
        ),
        Check(
            "with PFC nothing is lost and nothing sent twice",
            not any(s.lost or s.resent for s in kept),
            f"{sum(s.lost for s in kept)} lost, {sum(s.resent for s in kept)} sent again",
        ),
        Check(
            "DCQCN pauses less than PFC alone",
            seen[DCQCN].xoff_frames < seen[PFC].xoff_frames,
            f"{seen[DCQCN].xoff_frames:,} XOFF instead of {seen[PFC].xoff_frames:,}",
        ),
        Check(
            "loss and go-back-N cost small flows (up to 100 kB) their tail",
            tail[LOSSY] > tail[PFC] and seen[LOSSY].lost > 0,
            f"99th percentile of slowdown {tail[LOSSY]:.1f}, with PFC {tail[PFC]:.1f}, with DCQCN {tail[DCQCN]:.1f}; "
            f"{seen[LOSSY].lost:,} lost",
        ),
    ]


def _table(seen: Mapping[str, Seen], rate_bps: int) -> Table:
    rows = []
    for name, s in seen.items():
        for (label, _, _), found in zip(BINS, by_size(s.flows, rate_bps), strict=True):
            values = [f"{percentile(found, p):.2f}" if found else "-" for p in PERCENTILES]
            rows.append([name, label, str(len(found)), *values])
    return Table("Slowdown", ("fabric", "size", "flows", *(f"p{p}" for p in PERCENTILES)), rows)


def _costs(seen: Mapping[str, Seen]) -> Table:
    rows = [[name, f"{s.lost:,}", f"{s.resent:,}", f"{s.xoff_frames:,}"] for name, s in seen.items()]
    return Table("What it took", ("fabric", "frames lost", "packets resent", "XOFF"), rows)


def _plot(seen: Mapping[str, Seen], rate_bps: int) -> Plot:
    panels = []
    for p in (50, 99):
        lines = []
        for name, s in seen.items():
            points = [
                (
                    sum(f.bytes for f in part) / len(part) / 1000,
                    percentile(sorted(slowdown(f, rate_bps) for f in part), p),
                )
                for part in _tenths(s.flows)
            ]
            lines.append(Line(name, [x for x, _ in points], [y for _, y in points], "points"))
        panels.append(Panel(f"slowdown, p{p}", lines, y_log=True))
    return Plot(NAME, "Flow completion time over that of an empty fabric, by size", "kB", panels, x_log=True)


def _tenths(flows: Sequence[Done]) -> list[Sequence[Done]]:
    """Flows by size, in ten parts of as many."""
    ordered = sorted(flows, key=lambda f: f.bytes)
    size = max(1, len(ordered) // 10)
    return [ordered[n : n + size] for n in range(0, len(ordered) - size + 1, size)]
