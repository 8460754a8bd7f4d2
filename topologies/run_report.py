"""The HTML report of a scenario in real time, from its `RunResult`s: tables, plots and a map of PFC for each run.

Pure but for `html_report`, which draws; `topologies.report` calls it beside results.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from topologies import html_report
from topologies.html_report import LinkFlow, LinkMap
from topologies.results import Check, RunResult
from topologies.scenario import Line, Panel, Plot, Table, Value


def write(
    path: Path, title: str, runs: Sequence[RunResult], checks: Sequence[Check], facts: Mapping[str, Value]
) -> Path:
    """Write report.html of some runs."""
    return html_report.write(
        path,
        title=title,
        checks=checks,
        tables=[class_table(runs), pfc_table(runs), drop_table(runs)] if runs else [],
        plots=[timeline(run) for run in runs if run.samples],
        links=[pfc_map(run) for run in runs if run.pfc],
        facts=facts,
    )


def class_table(runs: Sequence[RunResult]) -> Table:
    """Per run and class: frames offered, received, lost, reordered, CE-marked; rate, share, pause time."""
    columns = ("run", "class", "priority", "offered", "received", "lost", "reordered", "CE-marked", "Mb/s")
    rows = []
    for run in runs:
        for c in run.classes:
            configured = "" if run.configured_share is None else f"{100 * run.configured_share.get(c.priority, 0):.0f}%"
            counts = (c.offered, c.received, c.lost, c.reordered, c.ce_marked)
            rows.append(
                (
                    *(run.name, c.name, str(c.priority), *(f"{count:,}" for count in counts)),
                    f"{c.received_bps / 1e6:.1f}",
                    f"{100 * run.share.get(c.priority, 0.0):.1f}%",
                    configured,
                    f"{run.paused_ns.get(c.priority, 0) / 1e9:.3f} s",
                )
            )
    return Table("Traffic classes (frames)", (*columns, "ETS share", "configured", "paused"), rows)


def pfc_table(runs: Sequence[RunResult]) -> Table:
    """PFC frames per run and link direction."""
    rows = [
        (
            *(run.name, link.sender, link.receiver, ", ".join(map(str, link.priorities))),
            *(f"{link.xoff:,}", f"{link.xon:,}", "n/a" if link.received is None else f"{link.received:,}"),
        )
        for run in runs
        for link in run.pfc
    ]
    return Table("PFC frames per link", ("run", "from", "to", "priorities", "XOFF", "XON", "both received"), rows)


def drop_table(runs: Sequence[RunResult]) -> Table:
    """Where frames were dropped, and why."""
    rows = [
        (run.name, d.switch, d.reason, "-" if d.priority < 0 else str(d.priority), f"{d.frames:,}")
        for run in runs
        for d in run.drops
    ]
    return Table("Drops by switch and reason", ("run", "switch", "reason", "priority", "frames"), rows)


def timeline(run: RunResult) -> Plot:
    """Throughput, bottleneck queue, and losses and XOFF frames of a run, over time."""
    time = [s.time_s for s in run.samples]
    names = {c.name: f"{c.name} (priority {c.priority})" for c in run.classes}
    levels = []
    if run.configured_share is not None:
        totals = sorted(sum(s.received_bps.values()) for s in run.samples)
        median = totals[len(totals) // 2] / 1e6
        levels = [(median * share, f"{100 * share:.0f}% by ETS") for share in run.configured_share.values()]
    rates = [Line(names[n], time, [s.received_bps[n] / 1e6 for s in run.samples]) for n in names]
    depths = [Line(names[n], time, [s.queue_bytes[n] / 1e3 for s in run.samples]) for n in names]
    counts = [Line(f"{n} frames lost", time, [s.lost[n] for s in run.samples], "step") for n in names]
    counts.append(Line("PFC XOFF sent", time, [s.pfc_xoff for s in run.samples], "dashed"))
    panels = (
        Panel("received, Mb/s", rates, levels=levels),
        Panel("bottleneck queue, kB", depths),
        Panel("frames since start", counts, y_log=True),
    )
    return Plot("timeline", run.name, "seconds", panels)


def tier(name: str) -> int:
    """0 spine, 1 leaf, 2 host: by the names of docs/contract.md, section 7."""
    return 0 if name.startswith("spine") else 1 if name.startswith("leaf") else 2


def _number(name: str) -> tuple[str, int]:
    digits = "".join(c for c in name if c.isdigit())
    return name.rstrip("0123456789"), int(digits or 0)


def pfc_map(run: RunResult) -> LinkMap:
    """Who told whom to stop, over the links that saw PFC: how far the pause has spread."""
    flows = [LinkFlow(link.sender, link.receiver, link.xoff, f"{link.xoff:,}") for link in run.pfc]
    names = {end for flow in flows for end in (flow.sender, flow.receiver)}
    tiers = [sorted((n for n in names if tier(n) == level), key=_number) for level in range(3)]
    pairs = sorted({(min(f.sender, f.receiver), max(f.sender, f.receiver)) for f in flows})
    hops = spread_hops((flow.sender, flow.receiver) for flow in flows)
    note = f"XOFF frames from sender to receiver; the longest way on from link to link is {hops} hops"
    return LinkMap(run.name, [names for names in tiers if names], pairs, flows, note)


def spread_hops(links: Iterable[tuple[str, str]]) -> int:
    """Links one after the other on the longest way through `links` (sender, receiver) that visits no node twice."""
    onward: dict[str, set[str]] = {}
    for sender, receiver in links:
        onward.setdefault(sender, set()).add(receiver)

    def longest(node: str, seen: frozenset[str]) -> int:
        return max((1 + longest(n, seen | {n}) for n in sorted(onward.get(node, set()) - seen)), default=0)

    return max((longest(node, frozenset({node})) for node in sorted(onward)), default=0)
