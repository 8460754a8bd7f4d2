"""Scenario slow-pfc-response (requirement R17): a peer that takes 47 us to obey, against headroom for less than 10 us.

The deployment article asks for a PFC response below 10 us and met a switch that took 47. Two fabrics, one with headroom
planned for 10 us, one for 47; on each the response goes from 0 to 60 us. A sender at full rate into a receiver that
stands shows, beside the formula, what is dropped and what headroom is used; then an incast of reliable RDMA shows what
the applications see. In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcb.headroom.exact import frames_in_window, link_ps, window_ps
from dcb.units import PS_PER_S, PS_PER_US
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "slow-pfc-response"
SUMMARY = "a peer that takes 47 us to obey XOFF, against headroom planned for less than 10 us, and for 47"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "length_m": Option(40, "of every link", low=1, high=10_000),
    "planned_us": Option(10, "response that the switch was planned for", low=0, high=1000),
    "response_us": Option(47, "response of the slow peer, and what the second plan is for", low=1, high=1000),
    "window_ms": Option(2.0, "of incast at each response", low=0.1, high=100),
}
FRAME_BYTES = 1082
RETH_BYTES = 16  # the first frame of a message is longer by these
MTU_BYTES = 1100  # that headroom is planned for (topologies.virtual.plan)
RECEIVER, SENDERS = "h1", ("h2", "h3")
STEPS_US = (0, 5, 10, 15, 20, 30, 40, 47, 60)


def topology(rate_bps: int) -> Topology:
    return leaf_spine(1, 1, 3, rate_bps)


@dataclass(frozen=True, slots=True)
class Plan:
    """Thresholds of every lossless group, and the links."""

    rate_bps: int
    length_m: int
    xoff_bytes: int
    headroom_bytes: int

    def frames(self, response_ps: int) -> int:
        """What a sender at full rate gets into an empty group that does not drain."""
        window = window_ps(self.rate_bps, link_ps(self.length_m), reverse_mtu_bytes=0, response_ps=response_ps)
        return -(-(self.xoff_bytes - RETH_BYTES) // FRAME_BYTES) + frames_in_window(window, self.rate_bps, FRAME_BYTES)

    def dropped(self, response_ps: int) -> int:
        """Of these, frames that find no room."""
        return max(0, self.frames(response_ps) - self._room)

    def used_bytes(self, response_ps: int) -> int:
        """Headroom that is in use when the sender stands."""
        return min(self.frames(response_ps), self._room) * FRAME_BYTES + RETH_BYTES - self.xoff_bytes

    @property
    def _room(self) -> int:
        """Frames that fit."""
        return (self.xoff_bytes + self.headroom_bytes - RETH_BYTES) // FRAME_BYTES


@dataclass(frozen=True, slots=True)
class Point:
    """One response on one fabric. goodput_bps: of both senders, acknowledged within the window."""

    response_us: int
    dropped: int
    headroom_bytes: int
    incast_dropped: int
    resent: int
    goodput_bps: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """One plan."""

    plan: Plan
    points: list[Point]

    def at(self, response_us: int) -> Point:
        return next(point for point in self.points if point.response_us == response_us)


def run(bench: Bench) -> Outcome:
    """Both plans, each on a fabric of its own."""
    planned_us, response_us = bench.number("planned_us"), bench.number("response_us")
    if planned_us >= response_us:
        planned_us = response_us - 1
    steps = sorted({*STEPS_US, planned_us, response_us})
    runs = {us: _run(bench, us, steps) for us in (planned_us, response_us)}
    return Outcome(
        verdict(runs),
        [_table(runs)],
        [_plot(runs)],
        {f"planned for {us} us: {what}": value for us, seen in runs.items() for what, value in _figures(seen)},
        [
            f"headroom by the exact method for a response of {us} us: {seen.plan.headroom_bytes:,} bytes a group"
            for us, seen in runs.items()
        ],
    )


def _run(bench: Bench, planned_us: int, steps: list[int]) -> Seen:
    from topologies.virtual import LabSettings, planned

    rate_bps, length_m = bench.number("rate_gbps") * 10**9, bench.number("length_m")
    fabric = topology(rate_bps)
    dcb = planned(fabric, Dcb(pfc=(LOSSLESS,)), length_m=length_m, response_ps=planned_us * PS_PER_US)
    plan = Plan(rate_bps, length_m, dcb.xoff_bytes, dcb.headroom_bytes)
    name = f"planned for {planned_us} us"

    async def body(lab: VirtualLab) -> Seen:
        points = []
        for response_us in steps:
            for host in SENDERS:
                lab.link("leaf1", host).from_("leaf1").set_pfc_response(response_us * PS_PER_US)
            dropped, used = await _cliff(lab)
            points.append(await _incast(bench, lab, name, response_us, dropped, used))
        return Seen(plan, points)

    return bench.run(name, fabric, controller_config(fabric, dcb), body, LabSettings(length_m=length_m))


async def _cliff(lab: VirtualLab) -> tuple[int, int]:
    """A sender at full rate into a receiver that stands: frames dropped, and headroom used in bytes."""
    tm, group = lab.core("leaf1").tm, lab.topology.host(SENDERS[0]).number * 8 + LOSSLESS
    nic = lab.nics[RECEIVER]
    nic.storm([LOSSLESS], 50 * PS_PER_US, start_ps=lab.now_ps)
    await lab.sleep(us=2)
    before = tm.read_counter("drop_headroom", group).packets
    tm.clear_watermark("pg_headroom_watermark", group)
    flow = lab.rdma(SENDERS[0], RECEIVER, reliable=False)
    xoffs = lab.link("leaf1", SENDERS[0]).from_("leaf1").stats().xoff[LOSSLESS]
    while lab.link("leaf1", SENDERS[0]).from_("leaf1").stats().xoff[LOSSLESS] == xoffs:
        await lab.sleep(us=2)
    direction = lab.link("leaf1", SENDERS[0]).from_(SENDERS[0])
    frames = -1
    while direction.stats().sent_frames != frames:  # it stands
        frames = direction.stats().sent_frames
        await lab.sleep(us=1)
    dropped = tm.read_counter("drop_headroom", group).packets - before
    used = tm.read_state("pg_headroom_watermark", group)
    nic.storm((), 1)
    lab.stop([flow])
    await lab.finished([flow])
    await lab.drained()
    return dropped, used


async def _incast(bench: Bench, lab: VirtualLab, name: str, response_us: int, dropped: int, used: int) -> Point:
    window_ms = float(bench.options["window_ms"])
    before = (await lab.snapshot(("tm_drop_headroom",), ())).packets("tm_drop_headroom", LOSSLESS)
    flows = [lab.rdma(host, RECEIVER, ack_every=1) for host in SENDERS]
    await lab.sleep(ms=window_ms)
    goodput_bps = sum(flow.sent.bytes_acked for flow in flows) * 8e3 / window_ms
    lab.stop(flows)
    await lab.finished(flows)
    await lab.drained()
    lost = (await lab.snapshot(("tm_drop_headroom",), ())).packets("tm_drop_headroom", LOSSLESS) - before
    labels = {"response_us": str(response_us)}
    for what, value in (("dropped", dropped), ("headroom_bytes", used), ("incast goodput_bps", goodput_bps)):
        bench.metrics.append(Metric(name, lab.now_ps, what, value, labels))
    return Point(
        response_us=response_us,
        dropped=dropped,
        headroom_bytes=used,
        incast_dropped=lost,
        resent=sum(flow.sent.packets_resent for flow in flows),
        goodput_bps=goodput_bps,
        whole=all(f.sent.bytes_acked == f.sent.bytes == f.received.rx_bytes for f in flows),
    )


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(runs: Mapping[int, Seen]) -> list[Check]:
    """Pure. `runs`: by the response that was planned for, the shorter first."""
    (short_us, short), (long_us, long_) = runs.items()
    checks = []
    for us, seen in runs.items():
        wrong = [p for p in seen.points if p.dropped != seen.plan.dropped(p.response_us * PS_PER_US)]
        drops = ", ".join(f"{p.response_us} us {p.dropped:,}" for p in seen.points if p.dropped) or "none"
        checks.append(
            Check(
                f"planned for {us} us: each response drops what the formula says, to the frame",
                not wrong,
                f"dropped: {drops}" if not wrong else f"not at {', '.join(str(p.response_us) for p in wrong)} us",
            )
        )
    used = [
        (p.headroom_bytes, seen.plan.used_bytes(p.response_us * PS_PER_US))
        for seen in runs.values()
        for p in seen.points
    ]
    checks.append(
        Check(
            "headroom in use is what the formula says, to the byte",
            all(a == b for a, b in used),
            f"{sum(a == b for a, b in used)} of {len(used)} runs",
        )
    )
    longer_ps = (long_us - short_us) * PS_PER_US
    price_bytes = longer_ps * short.plan.rate_bps * MTU_BYTES // (8 * PS_PER_S * (MTU_BYTES + 24))
    late = [p for p in short.points if p.response_us > short_us]
    checks += [
        Check(
            f"planned for {short_us} us: nothing is lost up to {short_us} us",
            all(p.dropped == p.incast_dropped == p.resent == 0 for p in short.points if p.response_us <= short_us),
            ", ".join(f"{p.response_us} us: {p.incast_dropped}" for p in short.points if p.response_us <= short_us),
        ),
        Check(
            f"planned for {short_us} us: a response of {long_us} us breaks RDMA",
            short.at(long_us).incast_dropped > 0
            and short.at(long_us).goodput_bps < 0.9 * short.at(short_us).goodput_bps,
            f"{short.at(long_us).incast_dropped:,} frames lost, {short.at(long_us).resent:,} sent again, "
            f"{short.at(long_us).goodput_bps / 1e9:.1f} instead of {short.at(short_us).goodput_bps / 1e9:.1f} Gb/s",
        ),
        Check(
            f"planned for {long_us} us: nothing is lost up to {long_us} us, and RDMA has its throughput",
            all(p.dropped == p.incast_dropped == p.resent == 0 for p in long_.points if p.response_us <= long_us)
            and long_.at(long_us).goodput_bps > 0.98 * short.at(short_us).goodput_bps,
            f"{long_.at(long_us).goodput_bps / 1e9:.1f} Gb/s at {long_us} us",
        ),
        Check(
            "the price is buffer: what frames of the largest size carry in the longer response",
            abs(long_.plan.headroom_bytes - short.plan.headroom_bytes - price_bytes) < MTU_BYTES,
            f"headroom {long_.plan.headroom_bytes:,}, not {short.plan.headroom_bytes:,} bytes a port and priority: "
            f"the difference is {price_bytes:,} by hand",
        ),
        Check(
            "reliable RDMA delivers every byte in every run",
            all(p.whole for seen in runs.values() for p in seen.points),
            f"{sum(p.resent for p in late):,} frames sent again",
        ),
    ]
    return checks


def _figures(seen: Seen) -> list[tuple[str, int | float]]:
    found: list[tuple[str, int | float]] = [("headroom", seen.plan.headroom_bytes)]
    for p in seen.points:
        found += [
            (f"{p.response_us} us dropped", p.dropped),
            (f"{p.response_us} us headroom used", p.headroom_bytes),
            (f"{p.response_us} us incast dropped", p.incast_dropped),
            (f"{p.response_us} us Gb/s", round(p.goodput_bps / 1e9, 2)),
        ]
    return found


def _table(runs: Mapping[int, Seen]) -> Table:
    rows = [
        [
            f"{us} us: {seen.plan.headroom_bytes:,}",
            str(p.response_us),
            f"{p.headroom_bytes:,}",
            f"{seen.plan.used_bytes(p.response_us * PS_PER_US):,}",
            f"{p.dropped:,}",
            f"{seen.plan.dropped(p.response_us * PS_PER_US):,}",
            f"{p.incast_dropped:,}",
            f"{p.resent:,}",
            f"{p.goodput_bps / 1e9:.1f}",
        ]
        for us, seen in runs.items()
        for p in seen.points
    ]
    heads = (
        "planned: headroom",
        "response us",
        "used",
        "formula",
        "dropped",
        "formula",
        "incast: dropped",
        "again",
        "Gb/s",
    )
    return Table("One XOFF against a sender at full rate, and an incast of two", heads, rows)


def _plot(runs: Mapping[int, Seen]) -> Plot:
    x = [float(p.response_us) for p in next(iter(runs.values())).points]
    dropped, goodput = [], []
    for us, seen in runs.items():
        formula = [float(seen.plan.dropped(p.response_us * PS_PER_US)) for p in seen.points]
        dropped.append(Line(f"planned for {us} us", x, [p.dropped for p in seen.points], "points"))
        dropped.append(Line(f"formula, {us} us", x, formula, "dashed"))
        goodput.append(Line(f"planned for {us} us", x, [p.goodput_bps / 1e9 for p in seen.points], "points"))
    marks = [(float(us), f"planned {us} us") for us in runs]
    panels = [
        Panel("frames dropped by one XOFF", dropped, marks=marks),
        Panel("incast, Gb/s of payload", goodput, marks=marks),
    ]
    return Plot("slow-pfc-response", "A peer that obeys late", "PFC response, us", panels)
