"""Scenario ecn-pfc-conflict (requirement R20.3): ECN begins to mark above the level at which PFC has long said stop.

Three hosts in each of two racks write to h1 in a third, together more than its link carries; DCQCN is on at every
NIC. The spine's port to h1's leaf is congested. Where its Kmin lies above what XOFF lets the queue become, nothing is
ever marked: DCQCN is blind and goes on at full rate, PFC alone holds the senders back, for ever, and with them h8,
which shares a leaf with three of them and writes to a host that has room. With Kmin and Kmax below XOFF the same NICs
find the fair rate, PFC stops, and the victim has its full rate. In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dcb.units import PS_PER_MS, PS_PER_US
from topologies.description import Host, Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table, Value
from topologies.settings import STORAGE_PRIORITY, Dcb, Ecn, controller_config

if TYPE_CHECKING:
    from hosts.nic_config import NicConfig
    from topologies.virtual import Bench, VirtualLab

NAME = "ecn-pfc-conflict"
SUMMARY = "Kmin above XOFF: PFC acts before ECN, DCQCN is blind, a victim suffers; the cure: Kmax below XOFF"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "load_gbps": Option(22, "of each of the six senders, at most", low=1, high=400),
    "victim_gbps": Option(30, "of the victim", low=1, high=400),
    "xoff": Option(100_000, "threshold in bytes, of the conflict", low=20_000, high=2_000_000),
    "kmin": Option(400_000, "in bytes, of the conflict; Kmax is four times this", low=5_000, high=4_000_000),
    "duration_ms": Option(4.0, "of traffic in each run", low=1, high=100),
    "dcqcn": Option("cx4", "profile of the NICs", choices=("cx4", "paper", "off")),
}
LOSSLESS = STORAGE_PRIORITY
LENGTH_M = 10
TARGET, VICTIM, VICTIM_TARGET = "h1", "h8", "h12"
SENDERS = ("h5", "h6", "h7", "h9", "h10", "h11")
PLOTTED = (SENDERS[0], SENDERS[3], VICTIM)
MESSAGE_BYTES = 64 * 1024  # of the victim: an I/O
CONFLICT, LOW_ECN, HIGH_XOFF = "Kmin above XOFF", "ECN below XOFF", "XOFF above Kmax"
PMAX = 0.2  # as HPCC's run.py
LOST = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool", "tm_drop_queue")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What PFC and ECN of one run are set to, in bytes."""

    xoff: int
    kmin: int
    kmax: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed. Rates in Gb/s of payload over its second half; XOFFs of switches in all, and then."""

    thresholds: Thresholds
    warnings: list[str]
    senders: list[float]
    victim: float
    stall_us: float  # longest time between two messages of the victim, without its usual one
    marked: int
    cnps: int
    xoffs: int
    xoffs_late: int
    victim_paused: float
    lost: int
    curves: Mapping[str, Line]


def topology(rate_bps: int) -> Topology:
    return leaf_spine(3, 1, 4, rate_bps)


def runs_of(options: Mapping[str, Value]) -> dict[str, Thresholds]:
    """The conflict, and the two ways out: lower ECN, or raise XOFF."""
    xoff, kmin = int(options["xoff"]), int(options["kmin"])
    return {
        CONFLICT: Thresholds(xoff, kmin, 4 * kmin),
        LOW_ECN: Thresholds(xoff, xoff // 10, xoff * 4 // 10),
        HIGH_XOFF: Thresholds(5 * kmin, kmin, 4 * kmin),
    }


def run(bench: Bench) -> Outcome:
    """Three fabrics that differ in thresholds alone."""
    seen = {name: _run(bench, name, thresholds) for name, thresholds in runs_of(bench.options).items()}
    return Outcome(
        verdict(seen, float(bench.options["victim_gbps"])),
        [_table(seen)],
        [_plot(seen)],
        {f"{name}: {what}": value for name, s in seen.items() for what, value in _figures(s)},
        [f"{name}: {line}" for name, s in seen.items() for line in s.warnings[:1]],
    )


def _run(bench: Bench, name: str, thresholds: Thresholds) -> Seen:
    from controller import config as controller_settings
    from hosts.nic_config import EventKind
    from topologies.virtual import LabSettings, planned

    fabric = topology(bench.number("rate_gbps") * 10**9)
    ecn = Ecn(thresholds.kmin, thresholds.kmax, PMAX)
    dcb = Dcb(pfc=(LOSSLESS,), ecn={LOSSLESS: ecn}, pool_bytes=64 << 20)
    config = controller_config(fabric, planned(fabric, dcb, length_m=LENGTH_M, xoff_bytes=thresholds.xoff))
    warned = controller_settings.warnings(controller_settings.parse(config))
    half_ps = round(float(bench.options["duration_ms"]) * PS_PER_MS / 2)
    load_bps, victim_bps = bench.number("load_gbps") * 10**9, bench.number("victim_gbps") * 10**9
    dcqcn = str(bench.options["dcqcn"])

    def nic(host: Host, made: NicConfig) -> NicConfig:
        return replace(made, events=made.events | {EventKind.MESSAGE}) if host.name == VICTIM_TARGET else made

    async def body(lab: VirtualLab) -> Seen:
        port = lab.port_to("spine1", "leaf1")
        start_ps = lab.now_ps
        series = lab.series(
            10,
            queues={"queue to h1": ("spine1", port, LOSSLESS)},
            **{
                host: lab.link(fabric.host(host).leaf, host).from_(host).source_of("bytes")
                for host in (*SENDERS, VICTIM)
            },
        )
        flows = [lab.rdma(host, TARGET, rate_bps=load_bps, dcqcn=dcqcn, priority=LOSSLESS) for host in SENDERS]
        victim = lab.rdma(
            VICTIM,
            VICTIM_TARGET,
            rate_bps=victim_bps,
            dcqcn=dcqcn,
            priority=LOSSLESS,
            message_bytes=MESSAGE_BYTES,
        )
        await lab.sleep(ps=half_ps)
        middle, middle_ps = await lab.snapshot(("pfc_tx_xoff",), ()), lab.now_ps
        before = [f.received.rx_bytes for f in (*flows, victim)]
        paused = lab.nics[VICTIM].stats().paused_ps[LOSSLESS]
        await lab.sleep(ps=half_ps)
        after = [f.received.rx_bytes for f in (*flows, victim)]
        paused = lab.nics[VICTIM].stats().paused_ps[LOSSLESS] - paused
        rates = [(b - a) * 8e3 / half_ps for a, b in zip(before, after, strict=True)]
        end = await lab.snapshot((*LOST, "pfc_tx_xoff", "ce_marked"), ())
        times = [e.time_ps for e in lab.nics[VICTIM_TARGET].events() if e.kind is EventKind.MESSAGE]
        usual_ps = MESSAGE_BYTES * 8 * 10**12 / victim_bps * 1106 / 1024  # wire bytes of a packet over its payload
        late = [b - a for a, b in pairwise(times) if b > middle_ps]
        curves = {line.label: line for line in bench.record(name, series)}
        lab.stop()
        await lab.finished()
        await lab.drained()
        return Seen(
            thresholds,
            [line for line in warned if "kmin" in line],
            rates[:-1],
            rates[-1],
            (max(late, default=half_ps) - usual_ps) / PS_PER_US,
            end.packets("ce_marked", LOSSLESS),
            sum(f.sent.cnps for f in flows),
            end.packets("pfc_tx_xoff", LOSSLESS),
            end.packets("pfc_tx_xoff", LOSSLESS) - middle.packets("pfc_tx_xoff", LOSSLESS),
            paused / half_ps,
            sum(end.packets(counter, LOSSLESS) for counter in LOST),
            {label: _since(line, start_ps) for label, line in curves.items()},
        )

    return bench.run(name, fabric, config, body, LabSettings(length_m=LENGTH_M, nic=nic))


def _since(line: Line, start_ps: int) -> Line:
    return Line(line.label, [x - start_ps / PS_PER_MS for x in line.x], line.y)


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(seen: Mapping[str, Seen], victim_gbps: float) -> list[Check]:
    """Pure. Each claim with the figures that decide it. victim_gbps: what the victim offers, on the wire."""
    offered = victim_gbps * 1024 / 1106
    conflict = seen[CONFLICT]
    fair = sum(conflict.senders) / len(conflict.senders)
    lost = sum(s.lost for s in seen.values())
    checks = [
        Check(
            "in conflict nothing is ever marked: DCQCN is blind",
            conflict.marked == 0 and conflict.cnps == 0,
            f"{conflict.marked} frames marked, {conflict.cnps} CNPs",
        ),
        Check(
            "in conflict PFC goes on for ever, and the victim pays for a congestion that is not on its way",
            conflict.xoffs_late > 0 and conflict.victim < 0.9 * offered,
            f"{conflict.xoffs_late:,} XOFFs in the second half; victim {conflict.victim:.2f} of {offered:.2f} Gb/s, "
            f"paused {100 * conflict.victim_paused:.0f}% of the time, an I/O up to {conflict.stall_us:.0f} us late",
        ),
        Check(
            "in conflict the victim gets what each sender gets: their ingress groups drain at one rate",
            abs(conflict.victim - fair) < 0.05 * fair,
            f"{conflict.victim:.2f} Gb/s, the link's {len(conflict.senders)}th part is {fair:.2f}",
        ),
        Check("the config check warns of the conflict", len(conflict.warnings) > 0, _first(conflict.warnings)),
    ]
    for name in (LOW_ECN, HIGH_XOFF):
        s = seen[name]
        checks += [
            Check(
                f"{name}: ECN marks, DCQCN reacts, and PFC is silent once it has",
                s.marked > 0 and s.cnps > 0 and s.xoffs_late == 0,
                f"{s.marked:,} marked, {s.cnps:,} CNPs, {s.xoffs:,} XOFFs in all, {s.xoffs_late} in the second half",
            ),
            Check(
                f"{name}: the victim has its rate",
                s.victim > 0.98 * offered,
                f"{s.victim:.2f} of {offered:.2f} Gb/s; an I/O up to {s.stall_us:.0f} us late; senders "
                f"{', '.join(f'{r:.1f}' for r in s.senders)} Gb/s (fairness {jain(s.senders):.3f})",
            ),
            Check(f"{name}: no warning", not s.warnings, _first(s.warnings)),
        ]
    checks.append(Check("nothing is lost in any run", lost == 0, f"{lost} frames"))
    return checks


def jain(values: list[float]) -> float:
    """Jain's index of fairness."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _first(lines: list[str]) -> str:
    return lines[0] if lines else "none"


def _figures(s: Seen) -> list[tuple[str, Value]]:
    return [
        ("victim Gb/s", round(s.victim, 3)),
        ("senders Gb/s", round(sum(s.senders), 3)),
        ("fairness", round(jain(s.senders), 4)),
        ("marked", s.marked),
        ("XOFFs in the second half", s.xoffs_late),
        ("I/O late us", round(s.stall_us, 2)),
    ]


def _table(seen: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            f"{s.thresholds.xoff:,}",
            f"{s.thresholds.kmin:,} / {s.thresholds.kmax:,}",
            f"{s.marked:,}",
            f"{s.cnps:,}",
            f"{s.xoffs:,}",
            f"{s.xoffs_late:,}",
            f"{sum(s.senders):.1f}",
            f"{s.victim:.2f}",
            f"{100 * s.victim_paused:.0f}%",
            f"{s.stall_us:.0f}",
        ]
        for name, s in seen.items()
    ]
    heads = (
        "run",
        "XOFF",
        "Kmin / Kmax",
        "marked",
        "CNPs",
        "XOFFs",
        "2nd half",
        "to h1 Gb/s",
        "victim",
        "paused",
        "late us",
    )
    return Table("PFC against ECN", heads, rows)


def _plot(seen: Mapping[str, Seen]) -> Plot:
    from topologies.virtual.bench import rates

    queues = [
        Line(name, s.curves["queue to h1"].x, [y / 1e3 for y in s.curves["queue to h1"].y]) for name, s in seen.items()
    ]
    levels = [(s.thresholds.kmin / 1e3, f"Kmin, {name}") for name, s in seen.items() if name != HIGH_XOFF]
    panels = [Panel("queue at the spine, kB", queues, levels=levels)]
    for name, s in seen.items():
        panels.append(Panel("Gb/s out of the NIC", [rates(s.curves[host]) for host in PLOTTED], title=name))
    return Plot(NAME, "Six senders to h1, and a victim that writes elsewhere", "ms", panels)
