"""Scenario parking-lot (SIGCOMM'15, figure 3): PFC alone shares by port, not by flow. In virtual time.

Four hosts write to one receiver; the near host sits on the receiver's own leaf, three far ones come from another leaf
over two spines. The leaf pauses its ingress ports in turn, so that each gets the same: the near host has a port for
itself, the far ones share theirs. ECMP decides how many: all three behind one spine, and the near host has half of the
link. Each placement is run with PFC alone and with DCQCN; PFC's shares are held against what follows from the ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.ecmp import Measured

NAME = "parking-lot"
SUMMARY = "PFC alone shares a link by ingress port, the near host has half of it; DCQCN gives equal shares"
OPTIONS = {
    "rate_gbps": Option(40, "rate of every link (40 as in the paper)", low=10, high=400),
    "pfc_ms": Option(2.0, "of each run with PFC alone; measured in its second half", low=0.5, high=100),
    "dcqcn_ms": Option(60.0, "of each run with DCQCN, which needs time to converge", low=2, high=1000),
    "profile": Option("paper", "DCQCN's parameters", choices=("paper", "cx4")),
    "xoff_kb": Option(250, "of the lossless buffer; above Kmax, so that ECN acts first", low=20, high=4000),
}
RECEIVER, NEAR, FAR = "h5", "h6", ("h1", "h2", "h3")
WIRE = 1024 / (1024 + 58 + 24)  # payload of what a frame takes: headers; FCS, preamble and gap
LENGTH_M = 10
PLACEMENTS: Mapping[str, tuple[str, str, str]] = {
    "3 + 0": ("spine1", "spine1", "spine1"),
    "2 + 1": ("spine1", "spine1", "spine2"),
}
PFC, DCQCN = "PFC alone", "DCQCN"
EXACT, FAIR = 0.02, 0.95


def topology(rate_bps: int) -> Topology:
    return leaf_spine(2, 2, 4, rate_bps)


def by_port(vias: Sequence[str]) -> list[float]:
    """Shares with PFC alone, near host first: the link by ingress ports that have flows, each port by its flows."""
    ports = 1 + len(set(vias))
    return [1 / ports, *(1 / ports / vias.count(via) for via in vias)]


def run(bench: Bench) -> Outcome:
    """One fabric for PFC alone, one with DCQCN; on each, every placement."""
    seen = {(what, p): m for what in (PFC, DCQCN) for p, m in _run(bench, what).items()}
    link_bps = bench.number("rate_gbps") * 10**9 * WIRE
    shares = {key: [r / link_bps for r in m.rates_bps] for key, m in seen.items()}
    figures: dict[str, float] = {}
    for (what, placement), found in shares.items():
        figures[f"{what}, {placement}: near host's share"] = round(found[0], 4)
        figures[f"{what}, {placement}: Jain"] = round(_jain(found), 4)
        figures[f"{what}, {placement}: XOFF"] = seen[what, placement].xoff_frames
    return Outcome(
        verdict(shares, {key: m.lost for key, m in seen.items()}),
        [_table(shares, seen, link_bps)],
        [_plot(seen)],
        figures,
        [
            "SIGCOMM'15, figure 3, at 40 Gb/s: with PFC alone the near host gets up to 20 Gb/s (quoted from memory)",
            "ECMP places flows by UDP source port; ports for each placement are chosen by its hash",
        ],
    )


def _run(bench: Bench, what: str) -> dict[str, Measured]:
    from topologies.virtual import LabSettings, planned
    from topologies.virtual.ecmp import Paths, Placed, measure
    from topologies.virtual.tuning import dcqcn_of, ecn_of

    rate_bps, profile = bench.number("rate_gbps") * 10**9, str(bench.options["profile"])
    fabric = topology(rate_bps)
    dcb = Dcb(pfc=(LOSSLESS,), ecn={LOSSLESS: ecn_of(profile, rate_bps)})
    dcb = planned(fabric, dcb, length_m=LENGTH_M, xoff_bytes=bench.number("xoff_kb") * 1000)
    reaction = dcqcn_of(profile, rate_bps) if what == DCQCN else "off"
    ms = float(bench.options["dcqcn_ms" if what == DCQCN else "pfc_ms"])

    async def body(lab: VirtualLab) -> dict[str, Measured]:
        paths = await Paths.learn(lab, [(far, RECEIVER) for far in FAR])
        found = {}
        for placement, vias in PLACEMENTS.items():
            flows = [Placed(NEAR, RECEIVER), *(Placed(h, RECEIVER, v) for h, v in zip(FAR, vias, strict=True))]
            start = lab.now_ps
            found[placement] = await measure(lab, paths, flows, ms=ms, dcqcn=reaction, priority=LOSSLESS)
            for line in found[placement].curves:
                labels = {"host": line.label, "placement": placement}
                for x, y in zip(line.x, line.y, strict=True):
                    bench.metrics.append(Metric(what, start + round(x * 1e9), "Gb/s", y, labels))
        return found

    return bench.run(what, fabric, controller_config(fabric, dcb), body, LabSettings(length_m=LENGTH_M))


def _jain(shares: Sequence[float]) -> float:
    from topologies.virtual.bench import jain

    return jain(shares)


def verdict(shares: Mapping[tuple[str, str], Sequence[float]], lost: Mapping[tuple[str, str], int]) -> list[Check]:
    """Pure: shares of the link by run and placement, near host first; frames lost."""
    checks = []
    for placement, vias in PLACEMENTS.items():
        got, due = shares[PFC, placement], by_port(vias)
        checks.append(
            Check(
                f"PFC alone, {placement}: the link is shared by ingress port, within {100 * EXACT:.0f} points",
                max(abs(a - b) for a, b in zip(got, due, strict=True)) <= EXACT,
                f"{_percent(got)}; by ports {_percent(due)}",
            )
        )
    near = shares[PFC, "3 + 0"][0]
    checks.append(
        Check(
            "PFC alone: the near host takes half of the link", abs(near - 0.5) <= EXACT, f"{100 * near:.1f}%, fair: 25%"
        )
    )
    for placement in PLACEMENTS:
        got = shares[DCQCN, placement]
        checks.append(
            Check(
                f"DCQCN, {placement}: equal shares (Jain's index {FAIR} or more) of 99% of the link",
                _jain(got) >= FAIR and sum(got) >= 0.99,
                f"{_jain(got):.3f} (PFC alone {_jain(shares[PFC, placement]):.3f}); {_percent(got)}",
            )
        )
    total = sum(lost.values())
    checks.append(Check("nothing is lost", total == 0, f"{total} frames"))
    return checks


def _percent(shares: Sequence[float]) -> str:
    return " ".join(f"{100 * s:.1f}" for s in shares) + " %"


def _table(
    shares: Mapping[tuple[str, str], Sequence[float]], seen: Mapping[tuple[str, str], Measured], link_bps: float
) -> Table:
    rows = []
    for (what, placement), found in shares.items():
        gbps = [f"{share * link_bps / WIRE / 1e9:.1f}" for share in found]
        rows.append([what, placement, *gbps, f"{_jain(found):.3f}", f"{seen[what, placement].xoff_frames:,}"])
    heads = ("run", "far hosts by spine", f"{NEAR} (near)", *FAR, "Jain", "XOFF")
    return Table("Gb/s of the receiver's link", heads, rows)


def _plot(seen: Mapping[tuple[str, str], Measured]) -> Plot:
    panels = []
    for placement in PLACEMENTS:
        due = sorted({round(rate / 1e9, 1) for rate in seen[PFC, placement].rates_bps})
        levels = [(due[-1], "the most with PFC alone"), (due[0], "the least with PFC alone")]
        curves = seen[DCQCN, placement].curves
        panels.append(Panel("Gb/s of payload", curves, title=f"DCQCN, far hosts {placement}", levels=levels))
    return Plot(NAME, "Parking lot: four hosts to one; with DCQCN, and what PFC alone gives", "ms", panels)
