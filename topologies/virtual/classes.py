"""From a lab in virtual time to the `RunResult` that real labs give: same records, same verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topologies.measure import DROPS, Snapshot, drops, pfc_links
from topologies.results import ClassResult, RunResult
from topologies.scenario import Table
from topologies.virtual.lab import Flow, VirtualLab


def class_result(
    lab: VirtualLab,
    name: str,
    priority: int,
    flows: Sequence[Flow],
    before: Snapshot,
    after: Snapshot,
    duration_s: float,
) -> ClassResult:
    """One class: frames of its flows' data, and what switches dropped and marked of its priority (ACKs included)."""
    lost = sum(after.packets(counter, priority) - before.packets(counter, priority) for counter in DROPS)
    received = [flow.received for flow in flows]
    return ClassResult(
        name=name,
        priority=priority,
        offered=sum(flow.sent.packets_sent for flow in flows),
        received=sum(end.rx_packets for end in received),
        lost=lost,
        reordered=sum(end.rx_out_of_order for end in received),
        ce_marked=after.packets("ce_marked", priority) - before.packets("ce_marked", priority),
        received_bps=round(sum(end.rx_bytes for end in received) * 8 / duration_s),
    )


def run_result(
    lab: VirtualLab,
    name: str,
    classes: Sequence[ClassResult],
    before: Snapshot,
    after: Snapshot,
    duration_s: float,
    share: Mapping[int, float],
    configured_share: Mapping[int, float] | None,
) -> RunResult:
    """The record of one run. PFC that hosts heard and pause time come from their NICs and the switches."""
    nics = {host: nic.stats() for host, nic in lab.nics.items()}
    heard = {host: sum(s.xoff_rx) + sum(s.xon_rx) for host, s in nics.items()}
    paused_ns = {
        n: after.paused_ns(n) - before.paused_ns(n) + sum(s.paused_ps[n] for s in nics.values()) // 1000
        for n in range(8)
    }
    return RunResult(
        name=name,
        duration_s=duration_s,
        classes=tuple(classes),
        pfc=pfc_links(lab.topology, before, after, heard),
        share=share,
        configured_share=configured_share,
        paused_ns={n: ns for n, ns in paused_ns.items() if ns},
        left_in_buffers_bytes=after.buffered_bytes(),
        drops=drops(before, after),
    )


def tables(runs: Sequence[RunResult]) -> list[Table]:
    """Classes, drops and PFC of runs, as the real labs show them."""
    rows = []
    for run in runs:
        for c in run.classes:
            share = f"{100 * run.share.get(c.priority, 0.0):.1f}%"
            if run.configured_share is not None:
                share += f" of {100 * run.configured_share.get(c.priority, 0.0):.0f}%"
            figures = (c.offered, c.received, c.lost, c.reordered, c.ce_marked)
            paused_ms = run.paused_ns.get(c.priority, 0) / 1e6
            cells = [f"{n:,}" for n in figures]
            rows.append(
                [run.name, c.name, str(c.priority), *cells, f"{c.received_bps / 1e9:.1f}", share, f"{paused_ms:.2f}"]
            )
    heads = (
        "run",
        "class",
        "prio",
        "offered",
        "received",
        "lost",
        "reordered",
        "CE-marked",
        "Gb/s",
        "ETS share",
        "paused ms",
    )
    found = [Table("Traffic classes (frames)", heads, rows)]
    dropped = [
        [run.name, d.switch, d.reason, "-" if d.priority < 0 else str(d.priority), f"{d.frames:,}"]
        for run in runs
        for d in run.drops
    ]
    found.append(
        Table("Drops", ("run", "switch", "reason", "priority", "frames"), dropped or [["-", "-", "none", "-", "0"]])
    )
    pfc = [
        [run.name, link.sender, link.receiver, ",".join(map(str, link.priorities)), f"{link.xoff:,}", f"{link.xon:,}"]
        for run in runs
        for link in run.pfc
    ]
    found.append(Table("PFC frames per link", ("run", "from", "to", "priorities", "XOFF", "XON"), pfc))
    return found
