"""Scenario victim-flow (SIGCOMM'15, figure 4): a flow that crosses no congested link is slowed by PFC. In virtual time.

Four racks. Four hosts of rack 1 write to one receiver in rack 4; the victim goes from rack 1 to rack 2. The receiver's
leaf pauses the spines, the spines pause leaf1's uplinks, and on an uplink the victim stands in the same queue. Then
hosts of rack 3 join in: they share no link with the victim, yet it gets less. ECMP decides who shares an uplink: a
number of placements is drawn. PFC alone is held against what follows from its ports, DCQCN against max-min fairness.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.ecmp import Measured

NAME = "victim-flow"
SUMMARY = "head-of-line blocking: PFC alone slows a flow that crosses no congested link; DCQCN does not"
OPTIONS = {
    "rate_gbps": Option(40, "rate of every link (40 as in the paper)", low=10, high=400),
    "draws": Option(5, "placements by ECMP, for each number of hosts in rack 3", low=1, high=64),
    "dcqcn_draws": Option(2, "the first of them, with DCQCN", low=1, high=64),
    "pfc_ms": Option(2.0, "of each draw with PFC alone; measured in its second half", low=0.5, high=100),
    "dcqcn_ms": Option(50.0, "of each draw with DCQCN: it raises rates slowly", low=2, high=1000),
    "profile": Option("paper", "DCQCN's parameters", choices=("paper", "cx4")),
    "xoff_kb": Option(250, "of the lossless buffer; above Kmax, so that ECN acts first", low=20, high=4000),
}
HOT, RECEIVER = ("h1", "h2", "h3", "h4"), "h16"
VICTIM, VICTIM_TARGET = "h5", "h6"
OTHERS = ("h11", "h12")  # of rack 3
SPINES = ("spine1", "spine2")
WIRE = 1024 / (1024 + 58 + 24)  # payload of what a frame takes: headers; FCS, preamble and gap
LENGTH_M = 10
PFC, DCQCN = "PFC alone", "DCQCN"
EXACT = 0.02
PAPER_GBPS_LINK = 40
PAPER_GBPS = {0: 10.0, 2: 4.5}  # medians of the victim by hosts in rack 3, at 40 Gb/s; quoted from memory


@dataclass(frozen=True, slots=True)
class Draw:
    """Spines by flow: of the hot flows of rack 1, of those of rack 3, of the victim."""

    hot: tuple[str, ...]
    others: tuple[str, ...]
    victim: str

    @property
    def sharing(self) -> int:
        """Hot flows on the victim's uplink."""
        return self.hot.count(self.victim)


def topology(rate_bps: int) -> Topology:
    """Racks of five; the fourth has the receiver, the second the victim's target."""
    return leaf_spine(4, 2, 5, rate_bps)


def draws(seed: int, count: int) -> dict[int, list[Draw]]:
    """Placements by number of hosts in rack 3; rack 1 is placed alike for every number."""
    generator = random.Random(seed)
    picks = [tuple(generator.choice(SPINES) for _ in range(7)) for _ in range(count)]
    return {n: [Draw(p[:4], p[4 : 4 + n], p[6]) for p in picks] for n in range(len(OTHERS) + 1)}


def all_draws(others: int) -> list[Draw]:
    """Every placement there is, each as likely."""
    return [Draw(p[:4], p[4 : 4 + others], p[-1]) for p in product(SPINES, repeat=5 + others)]


def by_port(draw: Draw) -> list[float]:
    """Shares of a link with PFC alone: hot flows of rack 1, of rack 3, the victim.

    Each ingress port that is paused gets as much as the next: the receiver's leaf shares by spines, a spine by leaves,
    a leaf by hosts. The victim's port at leaf1 is paused like those of the hot flows on its uplink.
    """
    ports = len({*draw.hot, *draw.others})

    def each(leaf: tuple[str, ...], spine: str) -> float:
        leaves = sum(spine in flows for flows in (draw.hot, draw.others))
        return 1 / ports / leaves / leaf.count(spine)

    shares = [each(draw.hot, spine) for spine in draw.hot] + [each(draw.others, spine) for spine in draw.others]
    return [*shares, each(draw.hot, draw.victim) if draw.sharing else 1.0]


def max_min(draw: Draw) -> list[float]:
    """Max-min fair shares of a link, in the same order."""
    links: list[set[str]] = [
        {f"host {n}", f"rack1 {via}", f"{via} rack4", "receiver"} for n, via in enumerate(draw.hot)
    ]
    links += [{f"other {n}", f"rack3 {via}", f"{via} rack4", "receiver"} for n, via in enumerate(draw.others)]
    links.append({"victim", f"rack1 {draw.victim}", f"{draw.victim} rack2"})
    left: dict[str, float] = defaultdict(lambda: 1.0)
    shares: dict[int, float] = {}
    while len(shares) < len(links):
        open_flows = [n for n in range(len(links)) if n not in shares]
        users = {link: [n for n in open_flows if link in links[n]] for n in open_flows for link in links[n]}
        tightest = min(users, key=lambda link: (left[link] / len(users[link]), link))
        share = left[tightest] / len(users[tightest])
        for n in users[tightest]:
            shares[n] = share
            for link in links[n]:
                left[link] -= share
    return [shares[n] for n in range(len(links))]


@dataclass(frozen=True, slots=True)
class Seen:
    """Shares of a link by draw, in the order of `by_port`, and what else a run showed."""

    shares: dict[int, list[list[float]]]
    lost: int
    xoff_frames: int


def run(bench: Bench) -> Outcome:
    """The same placements with PFC alone and with DCQCN."""
    placed = draws(bench.seed, bench.number("draws"))
    fewer = {n: some[: bench.number("dcqcn_draws")] for n, some in placed.items()}
    seen = {PFC: _run(bench, PFC, placed), DCQCN: _run(bench, DCQCN, fewer)}
    link_gbps = bench.number("rate_gbps")
    figures: dict[str, float] = {}
    for what, found in seen.items():
        for n, shares in found.shares.items():
            figures[f"{what}, {n} in rack 3: victim's median Gb/s"] = round(_victim(shares) * link_gbps, 3)
    for n in placed:
        figures[f"by ports, every placement, {n} in rack 3: median Gb/s"] = round(_median_by_port(n) * link_gbps, 3)
    return Outcome(
        verdict(placed, seen),
        [_table(placed, seen, link_gbps), _medians(seen, link_gbps)],
        [_plot(placed, seen, link_gbps)],
        figures,
        [
            "SIGCOMM'15, figure 4, 40 Gb/s, three tiers (quoted from memory): victim's median 10 Gb/s with nobody "
            "in rack 3, 4.5 with two",
            "rates are of the wire; 'by ports, all placements' is over all that ECMP may choose, each as likely",
        ],
    )


def _run(bench: Bench, what: str, placed: Mapping[int, Sequence[Draw]]) -> Seen:
    from topologies.virtual import LabSettings, planned
    from topologies.virtual.ecmp import Paths, Placed, measure
    from topologies.virtual.tuning import dcqcn_of, ecn_of

    rate_bps, profile = bench.number("rate_gbps") * 10**9, str(bench.options["profile"])
    fabric = topology(rate_bps)
    dcb = Dcb(pfc=(LOSSLESS,), ecn={LOSSLESS: ecn_of(profile, rate_bps)})
    dcb = planned(fabric, dcb, length_m=LENGTH_M, xoff_bytes=bench.number("xoff_kb") * 1000)
    reaction = dcqcn_of(profile, rate_bps) if what == DCQCN else "off"
    ms = float(bench.options["dcqcn_ms" if what == DCQCN else "pfc_ms"])

    async def body(lab: VirtualLab) -> Seen:
        paths = await Paths.learn(lab, [(HOT[0], RECEIVER), (OTHERS[0], RECEIVER)])
        shares: dict[int, list[list[float]]] = {}
        measured: list[Measured] = []
        for n, some in placed.items():
            shares[n] = []
            for number, draw in enumerate(some):
                flows = [Placed(h, RECEIVER, via) for h, via in zip(HOT, draw.hot, strict=True)]
                flows += [Placed(h, RECEIVER, via) for h, via in zip(OTHERS, draw.others, strict=False)]
                flows.append(Placed(VICTIM, VICTIM_TARGET, draw.victim))
                measured.append(await measure(lab, paths, flows, ms=ms, dcqcn=reaction, priority=LOSSLESS))
                shares[n].append([rate / WIRE / rate_bps for rate in measured[-1].rates_bps])
                for flow, share in zip(flows, shares[n][-1], strict=True):
                    labels = {"host": flow.source, "in_rack_3": str(n), "draw": str(number), "via": flow.via or ""}
                    bench.metrics.append(Metric(what, lab.now_ps, "share of a link", share, labels))
        return Seen(shares, sum(m.lost for m in measured), sum(m.xoff_frames for m in measured))

    return bench.run(what, fabric, controller_config(fabric, dcb), body, LabSettings(length_m=LENGTH_M))


def _victim(shares: Sequence[Sequence[float]]) -> float:
    return median(draw[-1] for draw in shares)


def _median_by_port(others: int) -> float:
    return median(by_port(draw)[-1] for draw in all_draws(others))


def verdict(placed: Mapping[int, Sequence[Draw]], seen: Mapping[str, Seen]) -> list[Check]:
    """Pure."""
    pfc, dcqcn = seen[PFC].shares, seen[DCQCN].shares
    off = [
        max(abs(a - b) for a, b in zip(got, by_port(draw), strict=True))
        for n, some in placed.items()
        for draw, got in zip(some, pfc[n], strict=True)
    ]
    most = max(placed)
    pairs = [
        (draw, pfc[n][k], got)
        for n, some in placed.items()
        for k, (draw, got) in enumerate(zip(some, dcqcn[n], strict=False))
    ]
    held = [(draw, alone[-1], got[-1]) for draw, alone, got in pairs if max_min(draw)[-1] > alone[-1] + EXACT]
    owed = [got[-1] / max_min(draw)[-1] for draw, _, got in pairs]
    wide = [_median_by_port(n) * PAPER_GBPS_LINK for n in (0, most)]
    lost = sum(s.lost for s in seen.values())
    return [
        Check(
            f"PFC alone: every flow gets what follows from the ports on its way, within {100 * EXACT:.0f}% of a link",
            max(off) <= EXACT,
            f"{len(off)} draws, off by {100 * max(off):.2f}% at most",
        ),
        Check(
            "PFC alone: hosts of rack 3 slow the victim, with which they share no link",
            _victim(pfc[most]) < _victim(pfc[0]) - EXACT,
            f"median {100 * _victim(pfc[0]):.1f}% of a link without them, {100 * _victim(pfc[most]):.1f}% with {most}",
        ),
        Check(
            "as in the paper: over all placements, at 40 Gb/s, the victim's median is 10 Gb/s, and half of it with two",
            abs(wide[0] - PAPER_GBPS[0]) < 0.1 and abs(wide[1] - PAPER_GBPS[2]) <= 0.5,
            f"{wide[0]:.1f} and {wide[1]:.1f} Gb/s by the ports; paper {PAPER_GBPS[0]:g} and {PAPER_GBPS[2]:g}",
        ),
        Check(
            "DCQCN: whenever PFC alone holds the victim below its fair share, it gets more",
            bool(held) and all(got > alone for _, alone, got in held),
            "; ".join(f"{100 * alone:.0f}% -> {100 * got:.0f}%" for _, alone, got in held),
        ),
        Check(
            "DCQCN: hosts of rack 3 do not slow the victim",
            all(b[-1] >= a[-1] - EXACT for a, b in zip(dcqcn[0], dcqcn[most], strict=True)),
            "; ".join(f"{100 * a[-1]:.0f}% -> {100 * b[-1]:.0f}%" for a, b in zip(dcqcn[0], dcqcn[most], strict=True))
            + f"; {100 * min(owed):.0f} to {100 * max(owed):.0f}% of its max-min share",
        ),
        Check("nothing is lost", lost == 0, f"{lost} frames"),
    ]


def _table(placed: Mapping[int, Sequence[Draw]], seen: Mapping[str, Seen], link_gbps: float) -> Table:
    rows = []
    for n, some in placed.items():
        for k, draw in enumerate(some):
            by, fair = by_port(draw)[-1], max_min(draw)[-1]
            cured = [f"{got[-1] * link_gbps:.1f}" for got in seen[DCQCN].shares[n][k : k + 1]] or ["-"]
            alone = [f"{v * link_gbps:.1f}" for v in (seen[PFC].shares[n][k][-1], by)]
            rows.append([str(n), str(k), str(draw.sharing), *alone, *cured, f"{fair * link_gbps:.1f}"])
    heads = ("in rack 3", "draw", "hot flows on its uplink", PFC, "by ports", DCQCN, "max-min")
    return Table("The victim, Gb/s", heads, rows)


def _medians(seen: Mapping[str, Seen], link_gbps: float) -> Table:
    rows = [
        [
            str(n),
            f"{_victim(seen[PFC].shares[n]) * link_gbps:.1f}",
            f"{_median_by_port(n) * link_gbps:.1f}",
            f"{PAPER_GBPS[n]:.1f}" if n in PAPER_GBPS and link_gbps == 40 else "-",
            f"{_victim(seen[DCQCN].shares[n]) * link_gbps:.1f}",
        ]
        for n in seen[PFC].shares
    ]
    heads = ("in rack 3", "PFC alone, draws", "by ports, all placements", "paper", "DCQCN, draws")
    return Table("The victim's median, Gb/s", heads, rows)


def _plot(placed: Mapping[int, Sequence[Draw]], seen: Mapping[str, Seen], link_gbps: float) -> Plot:
    counts = [float(n) for n in placed]

    def line(label: str, values: Sequence[float], dashed: bool = False) -> Line:
        return Line(label, counts, [value * link_gbps for value in values], "dashed" if dashed else "points")

    alone, cured = seen[PFC].shares, seen[DCQCN].shares
    lines = [
        line("PFC alone: median of draws", [_victim(alone[n]) for n in placed]),
        line("PFC alone: by ports, median of all placements", [_median_by_port(n) for n in placed], dashed=True),
    ]
    for k in range(len(cured[0])):
        sharing = f"{placed[0][k].sharing} hot flows on its uplink"
        lines += [
            line(f"DCQCN: draw {k}, {sharing}", [cured[n][k][-1] for n in placed]),
            line(f"max-min fair: draw {k}", [max_min(placed[n][k])[-1] for n in placed], dashed=True),
        ]
    panel = Panel("victim, Gb/s", lines)
    return Plot(NAME, "A victim of PFC: it shares no link with rack 3", "hosts of rack 3 that send", [panel])
