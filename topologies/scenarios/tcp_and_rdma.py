"""Scenario tcp-and-rdma (requirement R25): TCP's AIMD and RDMA's rate control do not get on in one queue.

h2 and h3 write by RDMA to h1, h4 and h5 send TCP to h1; each kind alone fills the link. In one lossless queue TCP never
loses a packet, so it never slows down and fills the buffer; DCQCN hears of that by ECN, and gives way to it. In one
lossy queue it is the same with DCQCN, and without it the other way round: RDMA at line rate takes the queue, and sends
again what it loses. The cures: a class each, with ETS; and a plane each, with NICs, links and a switch of its own (TCP
moves to h9, h10 and h6 on leaf2). In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dcb.units import PS_PER_MS
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table, Value
from topologies.settings import BUSINESS_PRIORITY, STORAGE_PRIORITY, Dcb, Ecn, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.lab import Flow

NAME = "tcp-and-rdma"
SUMMARY = "TCP and RDMA in one queue starve each other; cures: a class each with ETS, a plane each"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "flows": Option(2, "flows of each host", low=1, high=16),
    "duration_ms": Option(6.0, "of traffic in each run", low=1, high=200),
    "dcqcn": Option("cx4", "profile of RDMA", choices=("cx4", "paper")),
    "xoff": Option(400_000, "threshold of lossless groups, bytes", low=50_000, high=4_000_000),
    "kmax": Option(160_000, "bytes from which on all is marked; Kmin is a quarter", low=10_000, high=4_000_000),
    "window": Option(256_000, "bytes that an RDMA flow has in flight at most", low=10_000, high=4_000_000),
    "queue": Option(200_000, "bytes of a lossy queue", low=20_000, high=4_000_000),
}
LENGTH_M = 10
RDMA_HOSTS = ("h2", "h3")
LOSSLESS, LOSSY = STORAGE_PRIORITY, BUSINESS_PRIORITY
DROPS = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool", "tm_drop_queue")
RDMA_PAYLOAD, RDMA_WIRE, TCP_PAYLOAD, TCP_WIRE = 1024, 1106, 1460, 1538


@dataclass(frozen=True, slots=True)
class Case:
    """One run: which of the two sends, at which priority, and how."""

    rdma: int | None = LOSSLESS
    tcp: int | None = LOSSLESS
    dcqcn: bool = True
    dctcp: bool = False
    pfc: bool = True
    ets: bool = False
    planes: bool = False


RDMA_ALONE, TCP_ALONE = "RDMA alone", "TCP alone"
ONE_LOSSLESS, ONE_DCTCP = "one lossless queue", "one lossless queue, DCTCP"
ONE_LOSSY, ONE_BLIND = "one lossy queue", "one lossy queue, no DCQCN"
CLASSES, PLANES = "a class each, ETS 50/50", "a plane each"
CASES: Mapping[str, Case] = {
    RDMA_ALONE: Case(tcp=None),
    TCP_ALONE: Case(rdma=None, tcp=LOSSY),
    ONE_LOSSLESS: Case(),
    ONE_DCTCP: Case(dctcp=True),
    ONE_LOSSY: Case(rdma=LOSSY, tcp=LOSSY, pfc=False),
    ONE_BLIND: Case(rdma=LOSSY, tcp=LOSSY, pfc=False, dcqcn=False),
    CLASSES: Case(tcp=LOSSY, ets=True),
    PLANES: Case(tcp=LOSSY, planes=True),
}


PLOTTED = (ONE_LOSSLESS, ONE_DCTCP, ONE_LOSSY, CLASSES, PLANES)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed over its second half. Shares: of the wire of h1's link; queue bytes where RDMA waits."""

    rdma: float
    tcp: float
    resent: int  # RDMA packets, in all
    timeouts: int  # of RDMA
    dropped: int  # frames, in all
    marked: int
    xoffs: int
    tcp_paused: float
    queue_mean: float
    curves: list[Line]


def topology(rate_bps: int) -> Topology:
    return leaf_spine(2, 1, 5, rate_bps)


def configuration(fabric: Topology, case: Case, options: Mapping[str, Value]) -> dict[str, Any]:
    """Classes, thresholds and scheduler of one run."""
    from topologies.virtual import planned

    kmax = int(options["kmax"])
    ecn = Ecn(kmax // 4, kmax, 0.2)
    dcb = Dcb(ecn={LOSSLESS: ecn, LOSSY: ecn}, queue_limit_bytes=int(options["queue"]))
    if case.pfc:
        dcb = planned(
            fabric, dcb.with_pfc(LOSSLESS), length_m=LENGTH_M, mtu_bytes=1514, xoff_bytes=int(options["xoff"])
        )
    if case.ets:
        dcb = dcb.with_ets({LOSSLESS: 50, LOSSY: 50, 6: "strict", 7: "strict"})
    return controller_config(fabric, dcb)


def run(bench: Bench) -> Outcome:
    """Each alone, both in one queue three ways, and the cures."""
    fabric = topology(bench.number("rate_gbps") * 10**9)
    seen = {name: _run(bench, fabric, name, case) for name, case in CASES.items()}
    return Outcome(
        verdict(seen),
        [_table(seen)],
        [_plot(seen)],
        {f"{name}: {what}": value for name, s in seen.items() for what, value in _figures(s)},
    )


def _run(bench: Bench, fabric: Topology, name: str, case: Case) -> Seen:
    from hosts.nic_config import TcpAlgorithm
    from topologies.virtual import LabSettings
    from topologies.virtual.bench import rates

    rate_bps, count = fabric.links[0].rate_bps, bench.number("flows")
    half_ps = round(float(bench.options["duration_ms"]) * PS_PER_MS / 2)
    tcp_hosts, tcp_target = (("h9", "h10"), "h6") if case.planes else (("h4", "h5"), "h1")

    async def body(lab: VirtualLab) -> Seen:
        start_ps = lab.now_ps
        wires = {
            f"{what} {host}": lab.link(fabric.host(host).leaf, host).from_(host).source_of("bytes")
            for what, hosts in (("RDMA", RDMA_HOSTS), ("TCP", tcp_hosts))
            for host in hosts
        }
        queue = LOSSY if case.rdma is None else case.rdma
        series = lab.series(20, queues={"queue": ("leaf1", 1, queue)}, **wires)
        rdma: list[Flow] = []
        tcp: list[Flow] = []
        if case.rdma is not None:
            dcqcn = str(bench.options["dcqcn"]) if case.dcqcn else "off"
            hosts = [host for host in RDMA_HOSTS for _ in range(count)]
            window = bench.number("window")
            rdma = [lab.rdma(host, "h1", priority=case.rdma, dcqcn=dcqcn, window_bytes=window) for host in hosts]
        if case.tcp is not None:
            kind = TcpAlgorithm.DCTCP if case.dctcp else TcpAlgorithm.RENO
            hosts = [host for host in tcp_hosts for _ in range(count)]
            tcp = [lab.tcp(host, tcp_target, priority=case.tcp, algorithm=kind, ecn=case.dctcp) for host in hosts]

        def received(flows: list[Flow]) -> int:
            return sum(flow.received.rx_bytes for flow in flows)

        def paused() -> int:
            return sum(sum(lab.nics[host].stats().paused_ps) for host in tcp_hosts)

        await lab.sleep(ps=half_ps)
        before = received(rdma), received(tcp)
        silent = paused()
        await lab.sleep(ps=half_ps)
        after = received(rdma), received(tcp)
        silent = paused() - silent
        end = await lab.snapshot((*DROPS, "ce_marked", "pfc_tx_xoff"), ())
        depth, *sent = bench.record(name, series)
        late = [y for x, y in zip(depth.x, depth.y, strict=True) if x * PS_PER_MS > start_ps + half_ps]
        resent = sum(flow.sent.packets_resent for flow in rdma)
        lab.stop()
        possible = rate_bps * half_ps / (8 * 10**12)
        return Seen(
            (after[0] - before[0]) / possible * RDMA_WIRE / RDMA_PAYLOAD,
            (after[1] - before[1]) / possible * TCP_WIRE / TCP_PAYLOAD,
            resent,
            sum(flow.sent.timeouts for flow in rdma),
            sum(end.packets(counter, p) for counter in DROPS for p in range(8)),
            sum(end.packets("ce_marked", p) for p in range(8)),
            sum(end.packets("pfc_tx_xoff", p) for p in range(8)),
            silent / half_ps / len(tcp_hosts),
            sum(late) / max(1, len(late)),
            [_since(rates(line), start_ps) for line in sent if any(line.y)],
        )

    pfc = frozenset({LOSSLESS}) if case.pfc else frozenset[int]()
    config = configuration(fabric, case, bench.options)
    return bench.run(name, fabric, config, body, LabSettings(length_m=LENGTH_M, pfc=pfc))


def _since(line: Line, start_ps: int) -> Line:
    return replace(line, x=[x - start_ps / PS_PER_MS for x in line.x])


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(seen: Mapping[str, Seen]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    rdma, tcp = seen[RDMA_ALONE].rdma, seen[TCP_ALONE].tcp
    lossless, lossy, blind, classes, planes = (seen[n] for n in (ONE_LOSSLESS, ONE_LOSSY, ONE_BLIND, CLASSES, PLANES))
    return [
        Check("each alone has the link", rdma > 0.85 and tcp > 0.85, f"RDMA {_percent(rdma)}, TCP {_percent(tcp)}"),
        Check(
            "in one lossless queue TCP starves RDMA: it never loses, so it never slows down, and DCQCN gives way",
            lossless.rdma < 0.1 and lossless.tcp > 0.85 and lossless.dropped == 0,
            f"RDMA {_percent(lossless.rdma)}, TCP {_percent(lossless.tcp)}; {lossless.xoffs:,} XOFFs, "
            f"{lossless.queue_mean / 1e3:,.0f} kB in the queue where RDMA alone has "
            f"{seen[RDMA_ALONE].queue_mean / 1e3:,.0f}",
        ),
        Check(
            "in one lossy queue RDMA with DCQCN has less than half of a fair share",
            lossy.rdma < 0.25 and lossy.tcp > lossy.rdma and lossy.dropped > 0,
            f"RDMA {_percent(lossy.rdma)}, TCP {_percent(lossy.tcp)}; {lossy.dropped:,} frames dropped, RDMA sent "
            f"{lossy.resent:,} packets again",
        ),
        Check(
            "and RDMA without DCQCN starves TCP, at the price of sending again what it loses",
            blind.tcp < 0.1 and blind.resent > 0,
            f"TCP {_percent(blind.tcp)}, RDMA {_percent(blind.rdma)}; {blind.dropped:,} frames dropped, RDMA sent "
            f"{blind.resent:,} packets again",
        ),
        Check(
            f"{CLASSES}: RDMA has its half, loses nothing, waits little; TCP is never paused",
            abs(classes.rdma - 0.5) < 0.05
            and classes.rdma + classes.tcp > 0.85
            and classes.resent == 0
            and classes.tcp_paused == 0,
            f"RDMA {_percent(classes.rdma)}, TCP {_percent(classes.tcp)}; RDMA's queue "
            f"{classes.queue_mean / 1e3:,.0f} kB; TCP lost {classes.dropped:,} frames",
        ),
        Check(
            f"{PLANES}: as if alone",
            abs(planes.rdma - rdma) < 0.02 and abs(planes.tcp - tcp) < 0.02 and planes.resent == 0,
            f"RDMA {_percent(planes.rdma)} of its link, TCP {_percent(planes.tcp)} of its own",
        ),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _figures(s: Seen) -> list[tuple[str, Value]]:
    return [
        ("RDMA share", round(s.rdma, 4)),
        ("TCP share", round(s.tcp, 4)),
        ("dropped", s.dropped),
        ("RDMA resent", s.resent),
        ("XOFFs", s.xoffs),
        ("queue kB", round(s.queue_mean / 1e3, 1)),
    ]


def _table(seen: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            _percent(s.rdma) if CASES[name].rdma is not None else "-",
            _percent(s.tcp) if CASES[name].tcp is not None else "-",
            f"{s.dropped:,}",
            f"{s.resent:,}",
            f"{s.timeouts:,}",
            f"{s.marked:,}",
            f"{s.xoffs:,}",
            _percent(s.tcp_paused),
            f"{s.queue_mean / 1e3:,.0f}",
        ]
        for name, s in seen.items()
    ]
    heads = ("run", "RDMA", "TCP", "dropped", "RDMA resent", "timeouts", "marked", "XOFFs", "TCP paused", "queue kB")
    return Table("Shares of the link", heads, rows)


def _plot(seen: Mapping[str, Seen]) -> Plot:
    return Plot(
        NAME,
        "What the senders put on the wire",
        "ms",
        [Panel("Gb/s", seen[name].curves, title=name) for name in PLOTTED],
    )
