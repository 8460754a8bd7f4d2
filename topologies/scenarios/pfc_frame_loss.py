"""Scenario pfc-frame-loss (requirement R12): PFC frames are lost as any frame. What does it cost, and who sees it?

leaf1 pauses spine1, and its PFC frames get lost. A lost XOFF: the peer goes on until the refresh, half of the quanta
later; what headroom does not hold is dropped. A lost XON: the peer stands until the time of the last XOFF has run out.
One of each is lost on purpose and compared with the formula to the frame and to the nanosecond; then each with a
probability, under an incast of reliable RDMA, for three settings: the longest quanta, short quanta, and short quanta
with headroom for one lost XOFF. In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dcb.headroom.budget import ceil_div
from dcb.headroom.exact import frames_in_window, link_ps, window_ps
from dcb.units import PS_PER_S, PS_PER_US
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config

if TYPE_CHECKING:
    from fabric.links import Direction
    from topologies.virtual import Bench, VirtualLab

NAME = "pfc-frame-loss"
SUMMARY = "PFC frames get lost: a lost XOFF drops frames, a lost XON stops the link; by formula, and by rate of loss"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "length_m": Option(100, "of every link", low=1, high=10_000),
    "short_quanta": Option(2000, "of the two settings with a short pause", low=500, high=20_000),
    "window_ms": Option(2.0, "of traffic at each rate of loss", low=0.1, high=100),
}
FRAME_BYTES = 1082
RETH_BYTES = 16  # the first frame of a message is longer by these
LONG = 65535
RATES = (Fraction(0), Fraction(1, 1000), Fraction(1, 100), Fraction(1, 20), Fraction(1, 5), Fraction(1, 2), Fraction(1))
NO_LOSS_X = 0.01  # where a logarithmic axis shows 0
RECEIVER, REMOTE, LOCAL = "h1", "h3", "h2"
PAUSING, PAUSED = "leaf1", "spine1"


def topology(rate_bps: int) -> Topology:
    return leaf_spine(2, 1, 2, rate_bps)


def quanta_ps(quanta: Fraction | int, rate_bps: int) -> int:
    """Time of quanta at a rate, rounded up to a picosecond."""
    return ceil_div(Fraction(quanta) * 512 * PS_PER_S / rate_bps)


@dataclass(frozen=True, slots=True)
class Setting:
    """Quanta of the XOFF frames, and thresholds of every lossless group in bytes."""

    quanta: int
    rate_bps: int
    length_m: int
    xoff_bytes: int
    headroom_bytes: int

    def sent(self, lost_xoffs: int) -> int:
        """Frames that a peer without end sends into an empty group that does not drain, with so many XOFF lost."""
        window = window_ps(self.rate_bps, link_ps(self.length_m), reverse_mtu_bytes=0)
        window += lost_xoffs * quanta_ps(Fraction(self.quanta, 2), self.rate_bps)
        crossing = ceil_div(Fraction(self.xoff_bytes - RETH_BYTES, FRAME_BYTES))
        return crossing + frames_in_window(window, self.rate_bps, FRAME_BYTES)

    def dropped(self, lost_xoffs: int) -> int:
        """Frames of these that find no room."""
        room = (self.xoff_bytes + self.headroom_bytes - RETH_BYTES) // FRAME_BYTES
        return max(0, self.sent(lost_xoffs) - room)

    def paused_ps(self, xoffs: int) -> int:
        """How long a peer stands that got so many XOFF in a row, the last of which runs out."""
        refresh = quanta_ps(Fraction(self.quanta, 2), self.rate_bps)
        return (xoffs - 1) * refresh + quanta_ps(self.quanta, self.rate_bps)


@dataclass(frozen=True, slots=True)
class Single:
    """One XOFF lost, then one XON, of a group that does not drain until then."""

    dropped: int
    xoffs: int  # that arrived before the XON that did not
    paused_ps: int


@dataclass(frozen=True, slots=True)
class Point:
    """Traffic with a rate of loss."""

    rate: Fraction
    pfc_sent: int
    pfc_lost: int
    pfc_received: int  # that the paused switch counted
    dropped: int
    resent: int
    goodput_bps: float  # of the sender behind the paused switch
    whole: bool  # every byte arrived, sooner or later


@dataclass(frozen=True, slots=True)
class Seen:
    """One setting."""

    setting: Setting
    single: Single
    points: list[Point]
    evidence: str  # of dcbctl why


def settings(bench: Bench, fabric: Topology) -> dict[str, Dcb]:
    """The three settings, by name."""
    from topologies.virtual import planned

    short, rate_bps, length_m = (
        bench.number("short_quanta"),
        bench.number("rate_gbps") * 10**9,
        bench.number("length_m"),
    )
    long_ = planned(fabric, Dcb(pfc=(LOSSLESS,), pfc_quanta=LONG), length_m=length_m)
    half = replace(long_, pfc_quanta=short)
    extra = ceil_div(Fraction(quanta_ps(Fraction(short, 2), rate_bps) * rate_bps, 8 * PS_PER_S))
    roomy = replace(half, headroom_bytes=half.headroom_bytes + extra)
    return {f"quanta {LONG}": long_, f"quanta {short}": half, f"quanta {short}, headroom for a lost XOFF": roomy}


def run(bench: Bench) -> Outcome:
    """Each setting on a fabric of its own."""
    fabric = topology(bench.number("rate_gbps") * 10**9)
    runs = {name: _run(bench, fabric, name, dcb) for name, dcb in settings(bench, fabric).items()}
    return Outcome(
        verdict(runs),
        [_singles(runs), _points(runs)],
        [_plot(runs)],
        {f"{name}: {what}": value for name, seen in runs.items() for what, value in _figures(seen)},
        [
            *(f"{name}: {seen.evidence}" for name, seen in runs.items()),
            "seen by: drops of the headroom; PFC frames that one end counts as sent and the other does not receive",
        ],
    )


# --- one run ----------------------------------------------------------------------------------------------------------


def _run(bench: Bench, fabric: Topology, name: str, dcb: Dcb) -> Seen:
    from controller import why
    from topologies.virtual import LabSettings

    rate_bps, length_m = bench.number("rate_gbps") * 10**9, bench.number("length_m")
    setting = Setting(dcb.pfc_quanta, rate_bps, length_m, dcb.xoff_bytes, dcb.headroom_bytes)

    async def body(lab: VirtualLab) -> Seen:
        wire = lab.link(PAUSING, PAUSED).from_(PAUSING)
        single = await _single(lab, wire, dcb.xon_bytes)
        points = [await _point(bench, lab, name, wire, rate) for rate in RATES]
        port = lab.port_to(PAUSED, PAUSING)
        asked = await why.why(lab.controller, f"{PAUSED}:{port}", LOSSLESS, 1e-4)
        return Seen(setting, single, points, f"why {PAUSED}:{port} {LOSSLESS}: {asked['questions'][3]['evidence']}")

    config = controller_config(fabric, dcb)
    return bench.run(name, fabric, config, body, LabSettings(length_m=length_m))


async def _lose_one(lab: VirtualLab, wire: Direction) -> None:
    """Lose the next PFC frame of a wire, and no other."""
    before = wire.stats().lost_pfc
    wire.set_errors(pfc_loss=1)
    while wire.stats().lost_pfc == before:
        await lab.sleep(ns=50)
    wire.set_errors()


async def _single(lab: VirtualLab, wire: Direction, xon_bytes: int) -> Single:
    from topologies.virtual.lab import LabError

    leaf, spine, port = lab.core(PAUSING).tm, lab.core(PAUSED).tm, lab.port_to(PAUSED, PAUSING)
    group = lab.port_to(PAUSING, PAUSED) * 8 + LOSSLESS
    paused = port * 8 + LOSSLESS
    nic = lab.nics[RECEIVER]
    nic.storm([LOSSLESS], 50 * PS_PER_US, start_ps=lab.now_ps)  # nothing drains
    await lab.sleep(us=2)
    flow = lab.rdma(REMOTE, RECEIVER, reliable=False)
    await _lose_one(lab, wire)
    while not spine.read_state("pause_left", paused):
        await lab.sleep(us=1)
    await lab.sleep(us=10)
    dropped = leaf.read_counter("drop_headroom", group).packets
    nic.storm((), 1)
    while leaf.read_state("pg_depth", group) > xon_bytes + 3 * FRAME_BYTES:
        await lab.sleep(ns=50)
    xoffs = wire.stats().xoff[LOSSLESS] - 1  # one was lost
    lab.stop([flow])
    await _lose_one(lab, wire)
    if wire.stats().xon[LOSSLESS] != 1 or wire.stats().xoff[LOSSLESS] != xoffs + 1:
        raise LabError(f"{wire.name}: an XOFF was lost where the XON was to be")
    while spine.read_state("pause_left", paused):
        await lab.sleep(us=5)
    paused_ns = spine.read_state("paused_ns", paused)
    await lab.drained()
    return Single(dropped, xoffs, paused_ns * 1000)


async def _point(bench: Bench, lab: VirtualLab, name: str, wire: Direction, rate: Fraction) -> Point:
    port = lab.port_to(PAUSED, PAUSING)
    counters = ("pfc_rx_xoff", "pfc_rx_xon", "tm_drop_headroom", "tm_drop_pg")
    before, earlier = await lab.snapshot(counters, ()), wire.stats()
    wire.set_errors(pfc_loss=rate)
    flows = [lab.rdma(host, RECEIVER, ack_every=1) for host in (REMOTE, LOCAL)]
    window_ms = float(bench.options["window_ms"])
    await lab.sleep(ms=window_ms)
    goodput_bps = flows[0].sent.bytes_acked * 8e3 / window_ms
    lab.stop(flows)
    await lab.finished(flows)
    await lab.drained()
    after, now = await lab.snapshot(counters, ()), wire.stats()

    def counted(counter: str) -> int:
        pair = (s.counters[PAUSED][counter][port, LOSSLESS][0] for s in (before, after))
        return -next(pair) + next(pair)

    dropped = sum(after.packets(c, LOSSLESS) - before.packets(c, LOSSLESS) for c in counters[2:])
    labels = {"loss": f"{float(rate):g}"}
    bench.metrics.append(Metric(name, lab.now_ps, "frames dropped", dropped, labels))
    bench.metrics.append(Metric(name, lab.now_ps, "goodput_bps", goodput_bps, labels))
    return Point(
        rate=rate,
        pfc_sent=now.pfc_frames - earlier.pfc_frames,
        pfc_lost=now.lost_pfc - earlier.lost_pfc,
        pfc_received=counted("pfc_rx_xoff") + counted("pfc_rx_xon"),
        dropped=dropped,
        resent=sum(flow.sent.packets_resent for flow in flows),
        goodput_bps=goodput_bps,
        whole=all(f.sent.bytes_acked == f.sent.bytes == f.received.rx_bytes for f in flows),
    )


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(runs: Mapping[str, Seen]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    checks = []
    for name, seen in runs.items():
        want = seen.setting.dropped(1)
        checks.append(
            Check(
                f"{name}: one lost XOFF drops what comes until the refresh and has no room, to the frame",
                seen.single.dropped == want,
                f"{seen.single.dropped:,} frames, formula {want:,}",
            )
        )
    for name, seen in runs.items():
        want = seen.setting.paused_ps(seen.single.xoffs)
        checks.append(
            Check(
                f"{name}: with its XON lost the peer stands until the time of the last XOFF has run out",
                want - 1000 < seen.single.paused_ps <= want,
                f"{seen.single.paused_ps / PS_PER_US:,.3f} us, formula {want / PS_PER_US:,.4f} us "
                f"({seen.single.xoffs} XOFF)",
            )
        )
    points = [(name, point) for name, seen in runs.items() for point in seen.points]
    clean = [point for _, point in points if not point.rate]
    checks.append(
        Check(
            "without loss of PFC frames nothing is dropped",
            all(p.dropped == 0 and p.pfc_lost == 0 and p.pfc_sent > 0 for p in clean),
            ", ".join(f"{p.pfc_sent:,} PFC frames, {p.dropped} dropped" for p in clean),
        )
    )
    checks.append(
        Check(
            "every loss is visible: what one end counts as sent and the other does not receive is what was lost",
            all(p.pfc_sent - p.pfc_received == p.pfc_lost for _, p in points) and any(p.pfc_lost for _, p in points),
            f"{sum(p.pfc_lost for _, p in points):,} lost in {len(points)} runs",
        )
    )
    checks.append(
        Check(
            "it is survived: reliable RDMA delivers every byte at each rate of loss, also if all PFC frames are lost",
            all(p.whole for _, p in points),
            f"{sum(p.dropped for _, p in points):,} frames dropped, {sum(p.resent for _, p in points):,} sent again",
        )
    )
    long_, half, roomy = runs.values()
    few = [p for p in long_.points if 0 < p.rate <= Fraction(1, 20) and p.pfc_lost]
    pairs = [(p, next(q for q in half.points if q.rate == p.rate)) for p in few]
    checks.append(
        Check(
            "short quanta cost less of the throughput",
            bool(pairs) and sum(q.goodput_bps for _, q in pairs) > sum(p.goodput_bps for p, _ in pairs),
            "; ".join(
                f"at {float(p.rate):g}: {q.goodput_bps / 1e9:.1f} Gb/s, long {p.goodput_bps / 1e9:.1f}"
                for p, q in pairs
            ),
        )
    )
    lost = [sum(p.dropped for p in seen.points if p.rate <= Fraction(1, 20)) for seen in (half, roomy)]
    checks.append(
        Check(
            "headroom for one lost XOFF drops less up to 5% of loss: it takes two in a row",
            lost[1] < lost[0],
            f"{lost[1]:,} frames, without it {lost[0]:,}",
        )
    )
    return checks


def _figures(seen: Seen) -> list[tuple[str, int | float]]:
    found: list[tuple[str, int | float]] = [
        ("dropped for one XOFF", seen.single.dropped),
        ("paused for one XON us", round(seen.single.paused_ps / PS_PER_US, 3)),
    ]
    for p in seen.points:
        found += [
            (f"{float(p.rate):g} dropped", p.dropped),
            (f"{float(p.rate):g} Gb/s", round(p.goodput_bps / 1e9, 2)),
        ]
    return found


def _singles(runs: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            f"{seen.setting.headroom_bytes:,}",
            f"{seen.single.dropped:,}",
            f"{seen.setting.dropped(1):,}",
            f"{seen.single.paused_ps / PS_PER_US:,.3f}",
            f"{seen.setting.paused_ps(seen.single.xoffs) / PS_PER_US:,.3f}",
        ]
        for name, seen in runs.items()
    ]
    heads = ("setting", "headroom", "XOFF lost: dropped", "formula", "XON lost: paused us", "formula")
    return Table("One frame lost on purpose", heads, rows)


def _points(runs: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            f"{100 * float(p.rate):g}%",
            *(f"{n:,}" for n in (p.pfc_sent, p.pfc_lost, p.dropped, p.resent)),
            f"{p.goodput_bps / 1e9:.1f}",
        ]
        for name, seen in runs.items()
        for p in seen.points
    ]
    heads = ("setting", "lost", "PFC sent", "PFC lost", "dropped", "sent again", "Gb/s of the remote sender")
    return Table("Incast with a rate of loss", heads, rows)


def _plot(runs: Mapping[str, Seen]) -> Plot:
    def lines(of: str) -> list[Line]:
        made = []
        for name, seen in runs.items():
            values = [p.dropped if of == "dropped" else p.goodput_bps / 1e9 for p in seen.points]
            made.append(Line(name, [100 * float(p.rate) or NO_LOSS_X for p in seen.points], values, "points"))
        return made

    panels = [
        Panel("frames dropped", lines("dropped"), y_log=True),
        Panel("Gb/s behind the paused switch", lines("Gb/s")),
    ]
    return Plot(
        "pfc-frame-loss",
        "Two senders to one host; PFC frames of leaf1 to spine1 get lost",
        "% lost (left: none)",
        panels,
        x_log=True,
    )
