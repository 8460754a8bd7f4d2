"""Scenario propagation (requirement R21): over how many links does a pause spread, by load, and what keeps it to two?

Four racks send to one host, more and more: the load goes from 60% of its link to four times of it, from the own rack
alone or from all. Four fabrics carry the same traffic: PFC everywhere; ECN and DCQCN below it; PFC domains of one rack
each, whose links between racks are lossy; and each rack's storage in a lossless priority of its own. Measured in each:
the longest chain of pauses (the figure that telemetry has, with its alarm at more than 2 hops), which racks it reaches,
what becomes of flows that have nothing to do with it, and what is lost. In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import CNP_DSCP, CNP_PRIORITY, Dcb, Ecn, controller_config
from topologies.settings import STORAGE_PRIORITY as LOSSLESS

if TYPE_CHECKING:
    from controller.propagation import Spread
    from topologies.html_report import LinkMap
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.lab import Flow
    from topologies.virtual.pauses import PauseWatch

NAME = "propagation"
SUMMARY = "how far PFC spreads, by load, with DCQCN, with PFC domains of one rack, and with a priority for each rack"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "window_ms": Option(0.3, "of traffic at each load", low=0.1, high=10),
    "settle_ms": Option(0.5, "before that: DCQCN needs some time", low=0.1, high=20),
}
RECEIVER, VICTIM = "h1", ("h6", "h9")  # the victim goes from rack 2 to rack 3
LOCAL = ("h2", "h3")  # of the receiver's rack
REMOTE = ("h5", "h8", "h11")  # one of each other rack
LOADS = (60, 100, 120, 200, 400)  # percent of the receiver's link
LENGTH_M, XOFF_BYTES = 10, 60_000
VICTIM_LOAD = 50  # percent
OTHER = {2: 4, 3: 5, 4: 2}  # leaf -> lossless priority of the traffic to hosts of other racks than 1
EVERYWHERE, WITH_DCQCN, BY_RACK, BY_PRIORITY = (
    "PFC everywhere",
    "PFC and DCQCN",
    "PFC within racks",
    "a priority for each rack",
)
FABRICS = (EVERYWHERE, WITH_DCQCN, BY_RACK, BY_PRIORITY)
HOPS_ALARM = 2
DROPS = ("drop_queue_limit", "drop_pg_limit", "drop_headroom", "drop_pool", "drop_port")


def topology(rate_bps: int) -> Topology:
    return leaf_spine(4, 2, 3, rate_bps)


def configuration(fabric: Topology, name: str) -> tuple[dict[str, Any], Dcb]:
    """What the controller writes for one of the four."""
    from topologies.virtual import planned

    priorities = (LOSSLESS, *OTHER.values()) if name == BY_PRIORITY else (LOSSLESS,)
    dscp = {0: 0, CNP_DSCP: CNP_PRIORITY} | {8 * p + 2: p for p in priorities}
    dcb = Dcb(pfc=tuple(sorted(priorities)), dscp_to_priority=dscp)
    if name == WITH_DCQCN:
        # Kmax well below XOFF: who marks late is paused first (R20.3)
        dcb = replace(dcb, ecn={LOSSLESS: Ecn(5_000, 40_000, 0.2)})
    dcb = planned(fabric, dcb, length_m=LENGTH_M, xoff_bytes=XOFF_BYTES)
    made = deepcopy(controller_config(fabric, dcb))
    if name == BY_RACK:
        made["qos_profiles"]["between"] = {**made["qos_profiles"]["fabric"], "lossless": []}
        for switch, held in made["switches"].items():
            for number, port in held["ports"].items():
                if fabric.peer(switch, number).port:
                    port["pfc"], port["qos"] = [], "between"
                    port["buffers"] = dict.fromkeys(range(8), "lossy")
    return made, dcb


@dataclass(frozen=True, slots=True)
class Point:
    """One load on one fabric. Rates in Gb/s of payload."""

    source: str  # "all racks", "own rack"
    load: int
    first_hops: int  # while the load was new
    hops: int
    chain: str
    racks: int  # with hosts that were paused
    victim: float
    incast: float
    lost: int
    xoff: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One fabric."""

    points: list[Point]
    picture: LinkMap

    def at(self, source: str, load: int) -> Point:
        return next(p for p in self.points if (p.source, p.load) == (source, load))


def run(bench: Bench) -> Outcome:
    """The same loads on four fabrics."""
    fabric = topology(bench.number("rate_gbps") * 10**9)
    runs = {name: _run(bench, fabric, name) for name in FABRICS}
    worst = runs[EVERYWHERE].at("all racks", LOADS[-1])
    return Outcome(
        verdict(runs),
        [_table(runs)],
        [_plot(runs)],
        {f"{name}: {what}": value for name, seen in runs.items() for what, value in _figures(seen)},
        [f"{EVERYWHERE}, {worst.load}% from all racks: {worst.chain}"],
        [seen.picture for seen in runs.values()],
    )


def _run(bench: Bench, fabric: Topology, name: str) -> Seen:
    from topologies.virtual import LabSettings
    from topologies.virtual.pauses import PauseWatch, link_map, xoffs

    config, dcb = configuration(fabric, name)
    cases = [("own rack", 200), *(("all racks", load) for load in LOADS)]

    async def body(lab: VirtualLab) -> Seen:
        points = []
        watch, before = PauseWatch(lab), xoffs(lab)
        for source, load in cases:
            before = xoffs(lab)
            points.append(await _point(bench, lab, watch, name, source, load))
        return Seen(points, link_map(lab, f"{name}: XOFF frames at {cases[-1][1]}% from {cases[-1][0]}", before))

    settings = LabSettings(length_m=LENGTH_M, pfc=frozenset(dcb.pfc), dscp_to_priority=dcb.dscp_to_priority)
    return bench.run(name, fabric, config, body, settings)


def _priority(name: str, lab: VirtualLab, target: str) -> int:
    leaf = lab.topology.host(target).leaf_index
    return OTHER.get(leaf, LOSSLESS) if name == BY_PRIORITY else LOSSLESS


def _start(lab: VirtualLab, name: str, source: str, load: int) -> tuple[list[Flow], list[Flow]]:
    """The incast and the victims."""
    rate_bps = lab.topology.links[0].rate_bps
    senders = LOCAL if source == "own rack" else (*LOCAL[:1], *REMOTE)
    profile = "cx4" if name == WITH_DCQCN else "off"
    each_bps = min(rate_bps, load * rate_bps // 100 // len(senders))
    # several queue pairs each, for both spines
    incast = [
        lab.rdma(
            host,
            RECEIVER,
            rate_bps=each_bps // 4,
            reliable=False,
            dcqcn=profile,
            priority=_priority(name, lab, RECEIVER),
        )
        for host in senders
        for _ in range(4)
    ]
    victims = [
        lab.rdma(
            VICTIM[0],
            VICTIM[1],
            rate_bps=VICTIM_LOAD * rate_bps // 400,
            reliable=False,
            dcqcn=profile,
            priority=_priority(name, lab, VICTIM[1]),
        )
        for _ in range(4)
    ]
    return incast, victims


def _longest(watch: PauseWatch) -> Spread | None:
    return max(watch.chains().values(), key=lambda chain: chain.hops, default=None)


def _lost(lab: VirtualLab) -> int:
    """Frames that switches dropped so far. Past P4Runtime: this is asked for often."""
    return sum(
        lab.core(switch.name).tm.read_counter(kind, port * 8 + n).packets
        for switch in lab.topology.switches
        for kind in DROPS
        for port in switch.ports
        for n in range(8)
    )


async def _point(bench: Bench, lab: VirtualLab, watch: PauseWatch, name: str, source: str, load: int) -> Point:
    from topologies.virtual.pauses import xoffs

    window_ms = float(bench.options["window_ms"])
    watch.chains()
    incast, victims = _start(lab, name, source, load)
    await lab.sleep(ms=float(bench.options["settle_ms"]))
    first_hops, before = _longest(watch), _lost(lab)
    told, received = xoffs(lab), [sum(f.received.rx_bytes for f in flows) for flows in (incast, victims)]
    await lab.sleep(ms=window_ms)
    longest = _longest(watch)
    now = xoffs(lab)
    rates = [
        (sum(f.received.rx_bytes for f in flows) - count) * 8e-6 / window_ms
        for flows, count in zip((incast, victims), received, strict=True)
    ]
    lost = _lost(lab) - before
    paused = {
        lab.topology.host(host).leaf
        for (sender, host), counts in now.items()
        if host in lab.nics and sum(counts) > sum(told[sender, host])
    }
    lab.stop((*incast, *victims))
    await lab.finished((*incast, *victims))
    await lab.drained()
    hops = longest.hops if longest else 0
    labels = {"load": str(load), "source": source}
    for what, value in (("hops", hops), ("victim Gb/s", rates[1]), ("incast Gb/s", rates[0])):
        bench.metrics.append(Metric(name, lab.now_ps, what, value, labels))
    return Point(
        source=source,
        load=load,
        first_hops=first_hops.hops if first_hops else 0,
        hops=hops,
        chain=str(longest or "no pause"),
        racks=len(paused),
        victim=rates[1],
        incast=rates[0],
        lost=lost,
        xoff=sum(sum(counts) - sum(told[key]) for key, counts in now.items()),
    )


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(runs: Mapping[str, Seen]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    free, most = runs[EVERYWHERE], LOADS[-1]
    over = [load for load in LOADS if load > 100]

    def hops(name: str, loads: Sequence[int]) -> list[int]:
        return [runs[name].at("all racks", load).hops for load in loads]

    def share(name: str, load: int) -> float:
        """What the victim has of what it has at the lightest load."""
        return runs[name].at("all racks", load).victim / free.at("all racks", LOADS[0]).victim

    def all_lost(name: str) -> int:
        return sum(point.lost for point in runs[name].points)

    return [
        Check(
            f"{EVERYWHERE}: no pause below the receiver's rate; 3 hops beyond it, more than the {HOPS_ALARM} of R21",
            hops(EVERYWHERE, LOADS[:1]) == [0] and hops(EVERYWHERE, over) == [3] * len(over),
            ", ".join(f"{load}%: {n}" for load, n in zip(LOADS, hops(EVERYWHERE, LOADS), strict=True)),
        ),
        Check(
            f"{EVERYWHERE}: an incast from the own rack goes over one link",
            free.at("own rack", 200).hops == 1 and free.at("own rack", 200).racks == 1,
            free.at("own rack", 200).chain,
        ),
        Check(
            f"{EVERYWHERE}: a flow between two other racks pays for it",
            share(EVERYWHERE, most) < 0.9,
            ", ".join(f"{load}%: {100 * share(EVERYWHERE, load):.0f}%" for load in LOADS),
        ),
        Check(
            f"{WITH_DCQCN}: the pauses go no further than {HOPS_ALARM} hops, and the other flow keeps its rate",
            max(hops(WITH_DCQCN, over)) <= HOPS_ALARM and min(share(WITH_DCQCN, load) for load in LOADS) > 0.9,
            ", ".join(
                f"{load}%: {n} hops, {100 * share(WITH_DCQCN, load):.0f}%"
                for load, n in zip(LOADS, hops(WITH_DCQCN, LOADS), strict=True)
            ),
        ),
        Check(
            f"{BY_RACK}: one hop at any load, the other flow keeps its rate, and frames between racks are lost",
            max(hops(BY_RACK, over)) <= 1
            and min(share(BY_RACK, load) for load in LOADS) > 0.95
            and runs[BY_RACK].at("all racks", most).lost > 0,
            f"{all_lost(BY_RACK):,} frames lost in all, {runs[BY_RACK].at('all racks', most).lost:,} at {most}%",
        ),
        Check(
            f"{BY_PRIORITY}: as far as everywhere, but the flow between other racks keeps its rate",
            hops(BY_PRIORITY, over) == hops(EVERYWHERE, over)
            and min(share(BY_PRIORITY, load) for load in LOADS) > 0.98,
            ", ".join(f"{load}%: {100 * share(BY_PRIORITY, load):.0f}%" for load in LOADS),
        ),
        Check(
            "where PFC is everywhere nothing is lost",
            all(all_lost(name) == 0 for name in (EVERYWHERE, WITH_DCQCN, BY_PRIORITY)),
            ", ".join(f"{name}: {all_lost(name)}" for name in (EVERYWHERE, WITH_DCQCN, BY_PRIORITY)),
        ),
    ]


def _figures(seen: Seen) -> list[tuple[str, int | float]]:
    found: list[tuple[str, int | float]] = []
    for p in seen.points:
        name = f"{p.source} {p.load}%"
        found += [(f"{name} hops at first", p.first_hops), (f"{name} hops", p.hops)]
        found += [(f"{name} victim Gb/s", round(p.victim, 2)), (f"{name} lost", p.lost)]
    return found


def _table(runs: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            p.source,
            f"{p.load}%",
            str(p.first_hops),
            str(p.hops),
            p.chain,
            str(p.racks),
            f"{p.victim:.1f}",
            f"{p.incast:.1f}",
            f"{p.lost:,}",
            f"{p.xoff:,}",
        ]
        for name, seen in runs.items()
        for p in seen.points
    ]
    heads = (
        "fabric",
        "from",
        "load",
        "hops at first",
        "then",
        "longest chain",
        "racks",
        "other flow",
        "incast",
        "lost",
        "XOFF",
    )
    return Table("Propagation (rates in Gb/s of payload)", heads, rows)


def _plot(runs: Mapping[str, Seen]) -> Plot:
    def lines(of: str) -> list[Line]:
        chosen = {name: [p for p in seen.points if p.source == "all racks"] for name, seen in runs.items()}
        return [
            Line(
                name,
                [float(p.load) for p in points],
                [float(getattr(p, of)) for p in points],
                "dashed" if name in (WITH_DCQCN, BY_PRIORITY) else "points",  # they lie upon others
            )
            for name, points in chosen.items()
        ]

    panels = [
        Panel("hops of the longest pause", lines("hops"), levels=[(HOPS_ALARM, "R21: at most 2")]),
        Panel("other flow, Gb/s", lines("victim")),
        Panel("frames lost", lines("lost"), y_log=True),
    ]
    return Plot("propagation", "An incast from all racks, and a flow between two others", "load, % of the link", panels)
