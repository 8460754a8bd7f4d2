"""Scenario incast: N hosts send to one at the same time; what becomes of the flows. In virtual time.

The same bytes in three fabrics: PFC alone, PFC with DCQCN, and a lossy one in which go-back-N repairs what queues drop.
While the receiver's link is never idle, the last flow finishes when all bytes have gone over it: a closed formula, that
PFC alone meets. DCQCN pays with some idle time and hardly pauses anybody; loss pays with bytes sent twice and timeouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcb.units import PS_PER_S
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "incast"
SUMMARY = "N hosts send to one: flow completion times with PFC alone, with DCQCN, and lossy with go-back-N"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "senders": Option(16, "hosts that send at once; even", low=2, high=128),
    "kilobytes": Option(500, "that each sends", low=1, high=100_000),
    "profile": Option("cx4", "DCQCN's parameters", choices=("paper", "cx4")),
    "xoff_kb": Option(100, "of the lossless buffer", low=20, high=4000),
    "queue_kb": Option(200, "of a queue, in the lossy fabric", low=10, high=16_000),
}
RECEIVER = "h1"
LENGTH_M = 10
MTU_BYTES, HEADERS_BYTES, GAP_BYTES, RETH_BYTES = 1024, 58, 24, 16
PFC, DCQCN, LOSSY = "PFC alone", "PFC and DCQCN", "lossy, go-back-N"
EXACT = 0.01


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: completion times in ms, ascending; what was sent twice, dropped, paused."""

    times_ms: list[float]
    packets: int
    resent: int
    timeouts: int
    lost: int
    xoff_frames: int
    queue: Line


def topology(rate_bps: int, senders: int) -> Topology:
    """Two racks; half of the senders in the receiver's."""
    return leaf_spine(2, 2, senders // 2 + 1, rate_bps)


def formula_ps(rate_bps: int, senders: int, bytes_: int) -> int:
    """All bytes over the receiver's link, headers, FCS, preamble and gap of every frame counted."""
    frames = -(-bytes_ // MTU_BYTES)
    return senders * (bytes_ + frames * (HEADERS_BYTES + GAP_BYTES) + RETH_BYTES) * 8 * PS_PER_S // rate_bps


def run(bench: Bench) -> Outcome:
    """Three fabrics."""
    seen = {name: _run(bench, name) for name in (PFC, DCQCN, LOSSY)}
    bound = formula_ps(
        bench.number("rate_gbps") * 10**9, bench.number("senders") // 2 * 2, bench.number("kilobytes") * 1000
    )
    figures: dict[str, float] = {}
    for name, s in seen.items():
        figures |= {
            f"{name}: last ms": round(s.times_ms[-1], 6),
            f"{name}: median ms": round(s.times_ms[len(s.times_ms) // 2], 6),
            f"{name}: resent": s.resent,
            f"{name}: XOFF": s.xoff_frames,
        }
    return Outcome(
        verdict(seen, bound / 1e9),
        [_table(seen)],
        [_plot(seen, bound / 1e9)],
        figures,
        [f"all bytes over the receiver's link: {bound / 1e9:.3f} ms"],
    )


def _run(bench: Bench, name: str) -> Seen:
    from hosts.nic_config import Dcqcn, RdmaConfig
    from hosts.workloads import Defaults, incast
    from topologies.virtual import LabSettings, planned
    from topologies.virtual.tuning import dcqcn_of, ecn_of

    rate_bps, profile, count = bench.number("rate_gbps") * 10**9, str(bench.options["profile"]), bench.number("senders")
    fabric = topology(rate_bps, count)
    pfc = () if name == LOSSY else (LOSSLESS,)
    ecn = {LOSSLESS: ecn_of(profile, rate_bps)} if name == DCQCN else {}
    # with DCQCN, XOFF lies above Kmax of the marking: else PFC would act first
    xoff = bench.number("xoff_kb") * 1000 + (ecn[LOSSLESS].kmax_bytes if ecn else 0)
    dcb = planned(
        fabric,
        Dcb(pfc=pfc, ecn=ecn, queue_limit_bytes=bench.number("queue_kb") * 1000),
        length_m=LENGTH_M,
        xoff_bytes=xoff,
    )
    defaults = Defaults(rdma=RdmaConfig(dcqcn=dcqcn_of(profile, rate_bps) if name == DCQCN else Dcqcn.off()))
    racks = [[h.name for h in fabric.hosts if h.leaf == leaf.name and h.name != RECEIVER] for leaf in fabric.leaves()]
    senders = [h for rack in racks for h in rack[: count // 2]]

    async def body(lab: VirtualLab) -> Seen:
        start = lab.now_ps
        queue = lab.series(5, queues={"queue to the receiver": ("leaf1", 1, LOSSLESS)})
        flows = lab.start(incast(senders, RECEIVER, bench.number("kilobytes") * 1000), defaults)
        await lab.finished(flows, timeout_ms=10_000)
        ends = [flow.sent for flow in flows]
        await lab.drained()
        (line,) = bench.record(name, queue)
        after = await lab.snapshot()
        return Seen(
            sorted((end.completion_ps or 0) / 1e9 for end in ends),
            sum(end.packets_sent for end in ends),
            sum(end.packets_resent for end in ends),
            sum(end.timeouts for end in ends),
            after.lost(LOSSLESS),
            after.xoff_frames(),
            Line(name, [x - start / 1e9 for x in line.x], [y / 1e3 for y in line.y]),
        )

    settings = LabSettings(length_m=LENGTH_M, pfc=frozenset(pfc))
    return bench.run(name, fabric, controller_config(fabric, dcb), body, settings)


def verdict(seen: Mapping[str, Seen], bound_ms: float) -> list[Check]:
    """Pure. bound_ms: all bytes over the receiver's link."""
    pfc, dcqcn, lossy = seen[PFC], seen[DCQCN], seen[LOSSY]
    return [
        Check(
            f"{PFC}: the link is never idle: the last flow finishes when all bytes have gone over it, within 1%",
            0 <= pfc.times_ms[-1] / bound_ms - 1 <= EXACT,
            f"{pfc.times_ms[-1]:.3f} ms, formula {bound_ms:.3f}",
        ),
        Check(
            "with PFC nothing is lost and nothing sent twice",
            pfc.lost == dcqcn.lost == pfc.resent == dcqcn.resent == 0,
            f"{pfc.lost + dcqcn.lost} lost, {pfc.resent + dcqcn.resent} sent again",
        ),
        Check(
            f"{DCQCN}: fewer pauses, for some time",
            dcqcn.xoff_frames < pfc.xoff_frames and dcqcn.times_ms[-1] >= bound_ms,
            f"{dcqcn.xoff_frames:,} XOFF instead of {pfc.xoff_frames:,}; last flow {dcqcn.times_ms[-1] / bound_ms:.2f} "
            "times the formula",
        ),
        Check(
            f"{LOSSY}: loses, sends again, and takes longer",
            lossy.lost > 0 and lossy.resent > 0 and lossy.times_ms[-1] > pfc.times_ms[-1] and not lossy.xoff_frames,
            f"{lossy.lost:,} lost, {lossy.resent:,} of {lossy.packets:,} packets were sent again, "
            f"{lossy.timeouts} timeouts; last flow {lossy.times_ms[-1] / bound_ms:.2f} times the formula",
        ),
    ]


def _table(seen: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            *(f"{s.times_ms[round((len(s.times_ms) - 1) * q)]:.3f}" for q in (0, 0.5, 1)),
            f"{s.lost:,}",
            f"{s.resent:,}",
            str(s.timeouts),
            f"{s.xoff_frames:,}",
            f"{max(s.queue.y):,.0f}",
        ]
        for name, s in seen.items()
    ]
    heads = (
        "fabric",
        "first ms",
        "median ms",
        "last ms",
        "frames lost",
        "packets resent",
        "timeouts",
        "XOFF",
        "queue KB",
    )
    return Table("Flow completion times", heads, rows)


def _plot(seen: Mapping[str, Seen], bound_ms: float) -> Plot:
    done = [Line(n, s.times_ms, [float(k + 1) for k in range(len(s.times_ms))], "step") for n, s in seen.items()]
    return Plot(
        NAME,
        "Incast: flows that have finished, and the queue to the receiver",
        "ms",
        [
            Panel("flows finished", done, marks=[(bound_ms, "all bytes over the link")]),
            Panel("queue, KB", [s.queue for s in seen.values()]),
        ],
        x_log=True,
    )
