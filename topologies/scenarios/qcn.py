"""Scenario qcn (requirement R6): a congestion point tells the sources themselves, by Ethernet frames, to slow down.

Hosts of one rack write to another host of it, each able to fill its link alone; the last of them joins later. With PFC
alone the queue stands at what XOFF allows and every source is stopped and started. With QCN (802.1Qau) the switch
samples the queue of the full port, computes how far it is from its set point and where it is going, and sends a
congestion notification message to the source of the sampled frame; the NIC's rate limiter takes what the feedback says
off the flow's rate and recovers. The queue settles at the set point and PFC falls silent. DCQCN does the same job
with ECN marks and messages between hosts, which cross routers: beside it, with its paper's figures. In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dcb.units import PS_PER_MS
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table, Value
from topologies.settings import CNP_PRIORITY, STORAGE_PRIORITY, Dcb, Ecn, controller_config

if TYPE_CHECKING:
    from hosts.nic_config import Dcqcn, Qcn
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.lab import Flow

NAME = "qcn"
SUMMARY = "QCN end to end: queue at its set point, sources slowed by messages, PFC silent; beside none and DCQCN"
OPTIONS = {
    "senders": Option(4, "hosts that write, the last of which joins after a third of the time", low=2, high=32),
    "rate_gbps": Option(10, "rate of every link: QCN's figures are meant for 10", low=1, high=100),
    "duration_ms": Option(540.0, "of traffic in each run; the last third is measured", low=3, high=5000),
    "qeq": Option(34_000, "set point in bytes", low=2_000, high=1_000_000),
    "weight": Option(1, "w is 2 to this", low=-10, high=10),
    "sample": Option(150_000, "bytes between samples at the least congestion", low=2_000, high=10_000_000),
    "profile": Option("standard", "of the reaction point; scaled: by the link's rate", choices=("standard", "scaled")),
}
LOSSLESS = STORAGE_PRIORITY
LENGTH_M = 10
XOFF_BYTES = 150_000  # of each sender's port: room for QCN to work below
SHARE = 1024 / 1106  # payload of a full frame over its wire bytes
SHARE_OF_FRAME = 1024 / 1082  # over its bytes
NONE, QCN, DCQCN = "PFC alone", "QCN", "DCQCN"
ECN = Ecn(5_000, 200_000, 0.01)  # SIGCOMM'15
LOST = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool", "tm_drop_queue")
COUNTERS = (*LOST, "pfc_tx_xoff", "tm_qcn_samples", "tm_qcn_cnms", "cnm_tx", "cnm_rx", "tx", "ce_marked")


@dataclass(frozen=True, slots=True)
class Seen:
    """One run. Rates in Gb/s of payload, queue in bytes, both over the last third; `middle`: of the third before."""

    rates: list[float]
    middle: list[float]
    queue_mean: float
    queue_p99: float
    queue_empty: float  # share of the samples
    xoffs: int
    xoffs_late: int
    samples: int
    asked: int  # messages that congestion points asked for
    sent: int  # and that left
    received: int  # by NICs: CNMs, or CNPs under DCQCN
    messages_per_ms: float
    limited: int  # flows that a message has slowed down
    marked: int
    lost: int
    queue: Line
    curves: list[Line]

    @property
    def total(self) -> float:
        return sum(self.rates)


def topology(senders: int, rate_bps: int) -> Topology:
    return leaf_spine(1, 1, senders + 1, rate_bps)


def run(bench: Bench) -> Outcome:
    """One fabric for each kind of congestion control."""
    from hosts.nic_config import Dcqcn, Qcn

    rate_bps = bench.number("rate_gbps") * 10**9
    qcn = Qcn.standard() if bench.options["profile"] == "standard" else Qcn.scaled(rate_bps)
    point = {"qeq": bench.number("qeq"), "weight": bench.number("weight"), "sample": bench.number("sample")}
    seen = {
        NONE: _run(bench, NONE, Qcn.off(), Dcqcn.off(), None),
        QCN: _run(bench, QCN, qcn, Dcqcn.off(), point),
        DCQCN: _run(bench, DCQCN, Qcn.off(), Dcqcn.paper(), None),
    }
    qeq, link = bench.number("qeq"), bench.number("rate_gbps") * SHARE
    return Outcome(
        verdict(seen, qeq, link),
        [_table(seen)],
        [_plot(seen, qeq, link / bench.number("senders"))],
        {f"{name}: {figure}": value for name, one in seen.items() for figure, value in _figures(one)},
        [
            f"all of the link is {link:.2f} Gb/s of payload, a fair part {link / bench.number('senders'):.2f}",
            "DCQCN: SIGCOMM'15 (Kmin 5 KB, Kmax 200 KB, Pmax 1%), which its authors give for 40 Gb/s",
        ],
    )


def _run(bench: Bench, name: str, qcn: Qcn, dcqcn: Dcqcn, point: Mapping[str, int] | None) -> Seen:
    from topologies.virtual import LabSettings, planned

    senders = bench.number("senders")
    fabric = topology(senders, bench.number("rate_gbps") * 10**9)
    dcb = Dcb(pfc=(LOSSLESS,), ecn={LOSSLESS: ECN} if name == DCQCN else {}, pool_bytes=64 << 20)
    config = controller_config(fabric, planned(fabric, dcb, length_m=LENGTH_M, xoff_bytes=XOFF_BYTES))
    target, last = f"h{senders + 1}", f"h{senders}"
    if point is not None:
        _add_point(config, "leaf1", point)
    third_ps = round(float(bench.options["duration_ms"]) * PS_PER_MS / 3)

    async def body(lab: VirtualLab) -> Seen:
        port, start_ps = lab.port_to("leaf1", target), lab.now_ps
        hosts = [f"h{n}" for n in range(1, senders + 1)]
        wires = {host: lab.link("leaf1", host).from_(host).source_of("bytes") for host in hosts}
        series = lab.series(max(10.0, third_ps / 2e9), queues={"queue": ("leaf1", port, LOSSLESS)}, **wires)

        def start(host: str) -> Flow:
            return lab.rdma(host, target, priority=LOSSLESS, dcqcn=dcqcn, qcn=qcn)

        flows = [start(host) for host in hosts if host != last]
        await lab.sleep(ps=third_ps)
        flows.append(start(last))
        joined = [flow.received.rx_bytes for flow in flows]
        await lab.sleep(ps=third_ps)
        middle, before = await lab.snapshot(COUNTERS, ()), [flow.received.rx_bytes for flow in flows]
        messages = sum(flow.sent.cnms + flow.sent.cnps for flow in flows)
        await lab.sleep(ps=third_ps)
        after = [flow.received.rx_bytes for flow in flows]
        end = await lab.snapshot(COUNTERS, ())
        found = [flow.sent for flow in flows]
        queue, *curves = (_since(line, start_ps) for line in bench.record(name, series))
        late = sorted(y for x, y in zip(queue.x, queue.y, strict=True) if x >= 2 * third_ps / PS_PER_MS)
        lab.stop()
        await lab.finished()
        await lab.drained()
        done = await lab.snapshot(COUNTERS, ())
        nics = [lab.nics[host].stats() for host in hosts]
        received = sum(n.rx_cnm for n in nics) if name == QCN else sum(n.rx_cnp for n in nics)
        return Seen(
            rates=[(b - a) * 8e3 / third_ps for a, b in zip(before, after, strict=True)],
            middle=[(b - a) * 8e3 / third_ps for a, b in zip(joined, before, strict=True)],
            queue_mean=sum(late) / len(late),
            queue_p99=late[len(late) * 99 // 100],
            queue_empty=sum(not y for y in late) / len(late),
            xoffs=end.packets("pfc_tx_xoff", LOSSLESS),
            xoffs_late=end.packets("pfc_tx_xoff", LOSSLESS) - middle.packets("pfc_tx_xoff", LOSSLESS),
            samples=end.packets("tm_qcn_samples", LOSSLESS),
            asked=done.packets("tm_qcn_cnms", LOSSLESS),
            sent=done.packets("cnm_tx", LOSSLESS),
            received=received,
            messages_per_ms=(sum(f.cnms + f.cnps for f in found) - messages) * PS_PER_MS / third_ps,
            limited=sum(f.cnms + f.cnps > 0 for f in found),
            marked=end.packets("ce_marked", LOSSLESS),
            lost=sum(done.packets(counter, n) for counter in LOST for n in (LOSSLESS, CNP_PRIORITY)),
            queue=queue,
            curves=curves,
        )

    return bench.run(name, fabric, config, body, LabSettings(length_m=LENGTH_M))


def _add_point(config: dict[str, Any], switch: str, point: Mapping[str, int]) -> None:
    """The lossless queue of every port becomes a congestion point."""
    for port in config["switches"][switch]["ports"].values():
        port["qcn"] = {LOSSLESS: dict(point)}


def _since(line: Line, start_ps: int) -> Line:
    return Line(line.label, [x - start_ps / PS_PER_MS for x in line.x], line.y)


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(seen: Mapping[str, Seen], qeq: int, link_gbps: float) -> list[Check]:
    """Pure. Each claim with the figures that decide it. link_gbps: of payload."""
    from topologies.virtual.bench import jain

    none, qcn, dcqcn = seen[NONE], seen[QCN], seen[DCQCN]
    lost = sum(s.lost for s in seen.values())
    return [
        Check(
            "PFC alone: the queue stands far above the set point, and PFC goes on for ever",
            none.queue_mean > 3 * qeq and none.xoffs_late > 0,
            f"{none.queue_mean:,.0f} bytes on average, {none.xoffs_late:,} XOFFs in the last third",
        ),
        Check(
            "QCN: the queue is around its set point",
            qeq / 2 < qcn.queue_mean < 3 * qeq / 2,
            f"{qcn.queue_mean:,.0f} bytes on average, Qeq {qeq:,}; 99% of the time below {qcn.queue_p99:,.0f}",
        ),
        Check(
            "QCN: PFC is silent once it has settled",
            qcn.xoffs_late == 0,
            f"{qcn.xoffs_late:,} XOFFs in the last third, {qcn.xoffs:,} in all",
        ),
        Check(
            "QCN: the link is used",
            qcn.total > 0.95 * link_gbps,
            f"{qcn.total:.2f} of {link_gbps:.2f} Gb/s; the queue was empty {100 * qcn.queue_empty:.1f}% of the time",
        ),
        Check(
            "QCN: shares come together, slowly, and no flow is left with less than half of its fair part",
            jain(qcn.rates) > jain(qcn.middle) and min(qcn.rates) > link_gbps / len(qcn.rates) / 2,
            f"{_rates(qcn.rates)} Gb/s, Jain's index {jain(qcn.rates):.3f}; {jain(qcn.middle):.3f} in the third before",
        ),
        Check(
            "QCN: every message that a congestion point asks for leaves, and reaches the NIC of its flow",
            0 < qcn.asked == qcn.sent == qcn.received,
            f"{qcn.asked:,} asked for, {qcn.sent:,} sent, {qcn.received:,} received, of {qcn.samples:,} samples",
        ),
        Check(
            "QCN: every flow has been slowed down by messages of its own",
            qcn.limited == len(qcn.rates),
            f"{qcn.limited} of {len(qcn.rates)}",
        ),
        Check(
            "DCQCN: the same, by hosts: PFC silent, the link used",
            dcqcn.xoffs_late == 0 and dcqcn.total > 0.95 * link_gbps,
            f"{dcqcn.xoffs_late:,} XOFFs in the last third, {dcqcn.total:.2f} Gb/s, queue {dcqcn.queue_mean:,.0f} "
            f"bytes on average, {_rates(dcqcn.rates)} Gb/s (Jain {jain(dcqcn.rates):.3f})",
        ),
        Check("nothing is lost in any run", lost == 0, f"{lost} frames"),
    ]


def _rates(rates: list[float]) -> str:
    return ", ".join(f"{rate:.2f}" for rate in rates)


def _figures(s: Seen) -> list[tuple[str, Value]]:
    from topologies.virtual.bench import jain

    return [
        ("Gb/s", round(s.total, 3)),
        ("fairness", round(jain(s.rates), 4)),
        ("fairness in the third before", round(jain(s.middle), 4)),
        ("queue mean", round(s.queue_mean)),
        ("queue p99", round(s.queue_p99)),
        ("queue empty", round(s.queue_empty, 4)),
        ("messages", s.received),
        ("messages per ms", round(s.messages_per_ms, 2)),
        ("samples", s.samples),
        ("XOFFs", s.xoffs),
        ("XOFFs in the last third", s.xoffs_late),
        ("lost", s.lost),
    ]


def _table(seen: Mapping[str, Seen]) -> Table:
    from topologies.virtual.bench import jain

    def row(name: str, s: Seen) -> list[str]:
        return [
            *(
                name,
                f"{s.total:.2f}",
                _rates(s.rates),
                f"{jain(s.middle):.3f} {jain(s.rates):.3f}",
                f"{s.queue_mean / 1000:,.1f}",
            ),
            *(f"{s.queue_p99 / 1000:,.1f}", f"{s.messages_per_ms:.1f}", f"{s.xoffs:,}", f"{s.xoffs_late:,}"),
            str(s.lost),
        ]

    heads = (
        "run",
        "Gb/s",
        "by flow",
        "Jain before, then",
        "queue KB",
        "99% below",
        "messages/ms",
        "XOFFs",
        "late",
        "lost",
    )
    return Table(
        "The last third (XOFFs: all, and of the last third)", heads, [row(name, s) for name, s in seen.items()]
    )


def _smooth(line: Line, parts: int) -> Line:
    """Bytes of a wire -> Gb/s of payload over `parts` stretches of the run."""
    from topologies.virtual.bench import rates

    step = max(1, len(line.x) // parts)
    coarse = Line(line.label, line.x[::step], line.y[::step])
    slope = rates(coarse)
    return Line(line.label, slope.x, [y * SHARE_OF_FRAME for y in slope.y])


def _plot(seen: Mapping[str, Seen], qeq: int, fair_gbps: float) -> Plot:
    def kilobytes(name: str) -> Line:
        line = seen[name].queue
        return Line(name, line.x, [y / 1000 for y in line.y])

    def flows(name: str) -> Panel:
        curves = [_smooth(line, 150) for line in seen[name].curves]
        return Panel("Gb/s", curves, f"{name}: payload of each flow", levels=((fair_gbps, "fair"),))

    def queues(name: str) -> Panel:
        title = f"{name}: queue of the port to the target"
        return Panel("KB", [kilobytes(name)], title, levels=((qeq / 1000, "Qeq"),))

    return Plot(
        "qcn",
        "QCN: queue and rates, beside PFC alone and DCQCN",
        "ms",
        [queues(NONE), queues(QCN), queues(DCQCN), flows(QCN), flows(DCQCN)],
    )
