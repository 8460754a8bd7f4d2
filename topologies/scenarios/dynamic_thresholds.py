"""Scenario dynamic-thresholds (requirement R22): who should decide where XOFF is, when traffic comes in bursts?

Eight hosts write to h1 through one leaf with a small shared buffer: first trickles, then large bursts of two hosts at a
time, then bursts of all eight. From the same hosts small messages go to h10, whose port is idle: they are late where
their host is paused. Five answers on one fabric: a low static threshold, an equal share of the pool, static thresholds
that together want more than there is, alpha (the switch's own), and a policy of the controller that predicts the next
10 ms and sets XOFF = baseline + predicted peak x 1.2 within the planner's bounds. In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dcb.headroom import exact_headroom
from dcb.units import PS_PER_MS, PS_PER_US
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table, Value
from topologies.settings import STORAGE_PRIORITY, Dcb, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.lab import Flow

NAME = "dynamic-thresholds"
SUMMARY = "static, alpha and predictive XOFF under bursts: pauses, loss, buffer, time of bursts and of bystanders"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "pool": Option(1_000_000, "shared pool of the lossless groups, bytes", low=200_000, high=64_000_000),
    "baseline": Option(30_000, "low static XOFF, and the policy's baseline", low=10_000, high=1_000_000),
    "pair": Option(250_000, "bytes of a burst of each of two hosts", low=1_000, high=10_000_000),
    "all": Option(200_000, "bytes of a burst of each of eight hosts", low=1_000, high=10_000_000),
    "phase_ms": Option(8, "length of each phase, a burst a millisecond", low=2, high=100),
    "alpha": Option(0, "exponent of the dynamic threshold", low=-7, high=3),
    "predictor": Option("ewma", "of the policy", choices=("ewma", "holt")),
}
LOSSLESS = STORAGE_PRIORITY
LENGTH_M, MTU_BYTES, RESERVED_BYTES, POOL = 10, 1100, 3_000, 1
TARGET, BYSTANDER = "h1", "h10"
SENDERS = tuple(f"h{n}" for n in range(2, 10))
TRICKLE_BYTES, MOUSE_BYTES, MICE_AFTER_US = 8_000, 4_096, (5, 8, 12, 17, 23, 30)
PHASES = ("trickle", "two at a time", "all at once")
LOW, SHARE, GREEDY, ALPHA, POLICY = "static, low", "static, equal share", "static, too much", "alpha", "predictive"
RUNS = (LOW, SHARE, GREEDY, ALPHA, POLICY)
GREEDY_SHARES = 3  # of the pool, for each group
LOST = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool", "tm_drop_queue")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed; by phase where there are three."""

    xoffs: list[int]
    paused_us: list[float]  # of all hosts together
    lost: int
    pool_peak: int
    burst_us: list[float]  # longest completion of a burst
    mouse_us: list[float]  # longest completion of a message to the bystander
    gbps: list[float]  # payload over the time that a burst took to its last flow
    xoff_bytes: Line  # of one group, over milliseconds
    used: Line
    bounds: tuple[int, int] | None


def topology(rate_bps: int) -> Topology:
    return leaf_spine(1, 1, 10, rate_bps)


def share(options: Mapping[str, Value], groups: int) -> int:
    """XOFF of a group when the pool is shared out evenly."""
    return RESERVED_BYTES + int(options["pool"]) // groups


def profile(name: str, options: Mapping[str, Value], groups: int) -> dict[str, Any]:
    """The buffer profile of the lossless groups in one run."""
    rate_bps = int(options["rate_gbps"]) * 10**9
    headroom = exact_headroom(rate_bps, LENGTH_M, mtu_bytes=MTU_BYTES, dynamic=name == ALPHA).headroom_bytes
    made: dict[str, Any] = {"reserved": RESERVED_BYTES, "headroom": headroom, "pool": POOL}
    gap = int(options["baseline"]) // 2
    if name == ALPHA:
        return made | {"alpha": int(options["alpha"]), "xon_offset": gap}
    xoff = int(options["baseline"]) if name in (LOW, POLICY) else share(options, groups)
    xoff *= GREEDY_SHARES if name == GREEDY else 1
    made |= {"xoff": xoff, "xon": xoff - gap}
    if name == POLICY:
        made["threshold_policy"] = {"predictor": str(options["predictor"]), "interval_ms": 1, "horizon_ms": 10}
    return made


def configuration(fabric: Topology, name: str, options: Mapping[str, Value]) -> dict[str, Any]:
    """The same config but for the profile."""
    made = deepcopy(controller_config(fabric, Dcb(pfc=(LOSSLESS,))))
    made["buffer_profiles"]["lossless"] = profile(name, options, len(fabric.switch("leaf1").ports))
    for switch in made["switches"].values():
        switch["pools"] = {POOL: int(options["pool"])}
    return made


def run(bench: Bench) -> Outcome:
    """Five runs of the same traffic."""
    from controller import config as controller_settings

    fabric = topology(bench.number("rate_gbps") * 10**9)
    seen, notes = {}, []
    for name in RUNS:
        config = configuration(fabric, name, bench.options)
        warned = controller_settings.warnings(controller_settings.parse(config))
        notes += [f"{name}: the config check says: {line}" for line in warned if "leaf1" in line][:1]
        seen[name] = _run(bench, fabric, name, config)
    return Outcome(
        verdict(seen, bench.number("pool"), bench.number("alpha")),
        [_table(seen), _by_phase(seen)],
        [_plot(seen)],
        {f"{name}: {what}": value for name, s in seen.items() for what, value in _figures(s)},
        notes,
    )


# --- one run ----------------------------------------------------------------------------------------------------------


def _burst(lab: VirtualLab, phase: int, turn: int, sizes: Sequence[int]) -> tuple[list[Flow], list[Flow]]:
    """Flows of one burst to h1, and messages from each of its hosts to the bystander some microseconds later."""
    pair = 2 * turn % len(SENDERS)
    hosts = (SENDERS[turn % len(SENDERS) :][:1], SENDERS[pair : pair + 2], SENDERS)[phase]
    bursts = [lab.rdma(host, TARGET, bytes=sizes[phase], priority=LOSSLESS) for host in hosts]
    times = [lab.now_ps + after_us * PS_PER_US for after_us in MICE_AFTER_US]
    mice = [
        lab.rdma(host, BYSTANDER, bytes=MOUSE_BYTES, priority=LOSSLESS, start_ps=time_ps)
        for host in hosts
        for time_ps in times
    ]
    return bursts, mice


def _run(bench: Bench, fabric: Topology, name: str, config: Mapping[str, Any]) -> Seen:
    from topologies.virtual import LabSettings

    sizes = (TRICKLE_BYTES, bench.number("pair"), bench.number("all"))
    turns = bench.number("phase_ms")

    async def body(lab: VirtualLab) -> Seen:
        core, port = lab.core("leaf1"), lab.topology.host(SENDERS[0]).number
        start_ps = lab.now_ps
        series = lab.series(5, used=lab.state("leaf1", "pool_used", 0, POOL))
        xoffs, paused_us, burst_us, mouse_us, gbps = [], [], [], [], []
        levels: list[tuple[float, float]] = []
        for phase in range(len(PHASES)):
            before = (await lab.snapshot(("pfc_tx_xoff",), ())).packets("pfc_tx_xoff", LOSSLESS, ["leaf1"])
            paused_ps = _paused_ps(lab)
            bursts: list[Flow] = []
            mice: list[Flow] = []
            rates = []
            for turn in range(turns):
                due_ps = start_ps + (phase * turns + turn + 1) * PS_PER_MS
                level = _level(lab, port, config)
                levels.append(((lab.now_ps - start_ps) / PS_PER_MS, level))
                bench.metrics.append(Metric(name, lab.now_ps, "xoff of a group", level))
                more, small = _burst(lab, phase, turn, sizes)
                await lab.finished([*more, *small])
                longest = max(f.sent.completion_ps or 0 for f in more)
                rates.append(len(more) * sizes[phase] * 8e3 / longest)
                bursts, mice = bursts + more, mice + small
                await lab.sleep_until(due_ps)
            after = (await lab.snapshot(("pfc_tx_xoff",), ())).packets("pfc_tx_xoff", LOSSLESS, ["leaf1"])
            xoffs.append(after - before)
            paused_us.append((_paused_ps(lab) - paused_ps) / PS_PER_US)
            burst_us.append(max(f.sent.completion_ps or 0 for f in bursts) / PS_PER_US)
            mouse_us.append(max(f.sent.completion_ps or 0 for f in mice) / PS_PER_US)
            gbps.append(sum(rates) / len(rates))
        end = await lab.snapshot(LOST, ())
        (used,) = bench.record(name, series)
        watched = lab.controller.thresholds.groups.get("leaf1", {}).get((port, LOSSLESS))
        return Seen(
            xoffs,
            paused_us,
            sum(end.packets(counter, LOSSLESS) for counter in LOST),
            core.tm.read_state("pool_watermark", POOL),
            burst_us,
            mouse_us,
            gbps,
            Line(name, [x for x, _ in levels], [y for _, y in levels], "step"),
            Line(name, [x - start_ps / PS_PER_MS for x in used.x], used.y),
            (watched.bounds.min_xoff_bytes, watched.bounds.max_xoff_bytes) if watched else None,
        )

    return bench.run(name, fabric, config, body, LabSettings(length_m=LENGTH_M))


def _paused_ps(lab: VirtualLab) -> int:
    return sum(lab.nics[host].stats().paused_ps[LOSSLESS] for host in SENDERS)


def _level(lab: VirtualLab, port: int, config: Mapping[str, Any]) -> int:
    """XOFF of a group of leaf1 that is empty, in an empty pool."""
    watched = lab.controller.thresholds.groups.get("leaf1", {}).get((port, LOSSLESS))
    if watched is not None:
        return watched.policy.setting.xoff_bytes
    made = config["buffer_profiles"]["lossless"]
    if "xoff" in made:
        return int(made["xoff"])
    from dcb.buffers.alpha import threshold

    return int(made["reserved"]) + threshold(config["switches"]["leaf1"]["pools"][POOL], made["alpha"], 1)


# --- what it proves ---------------------------------------------------------------------------------------------------


def congested(pool: int, alpha: int) -> int:
    """What all senders' groups take of the pool together when each is at its dynamic threshold."""
    from dcb.buffers.alpha import threshold

    return len(SENDERS) * threshold(pool, alpha, len(SENDERS))


def verdict(seen: Mapping[str, Seen], pool: int, exponent: int) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    low, fair, greedy, alpha, policy = (seen[name] for name in RUNS)
    safe = [name for name in RUNS if name != GREEDY]
    assert policy.bounds is not None
    least, most = policy.bounds
    levels = policy.xoff_bytes.y
    return [
        Check(
            "nothing is lost with a threshold that the pool can carry, moved or not",
            all(seen[name].lost == 0 and seen[name].pool_peak <= pool for name in safe),
            ", ".join(f"{name}: {seen[name].lost} lost, {seen[name].pool_peak:,} of {pool:,} used" for name in safe),
        ),
        Check(
            "thresholds that want more than the pool has lose nothing: the first byte of headroom is XOFF",
            greedy.lost == 0 and greedy.pool_peak == pool and greedy.xoffs[1] == 0 < greedy.xoffs[2],
            f"{greedy.lost:,} lost, {greedy.pool_peak:,} of {pool:,} used, {greedy.xoffs[2]:,} XOFFs",
        ),
        Check(
            "two at a time: a low threshold pauses hosts though the pool is nearly empty, and bystanders are late",
            low.paused_us[1] == max(s.paused_us[1] for s in seen.values()) and low.mouse_us[1] > 2 * alpha.mouse_us[1],
            f"hosts paused for {low.paused_us[1]:.0f} us, alpha {alpha.paused_us[1]:.0f}; a message of 4 kB takes up "
            f"to {low.mouse_us[1]:.1f} us, alpha {alpha.mouse_us[1]:.1f}",
        ),
        Check(
            "alpha lets two hosts have what is free, where an equal share pauses them",
            alpha.xoffs[1] == 0 and fair.xoffs[1] > 0,
            f"two at a time: alpha {alpha.xoffs[1]} XOFFs, equal share {fair.xoffs[1]}",
        ),
        Check(
            "all at once: alpha leaves the part of the pool free that its formula says, n a / (1 + n a) is taken",
            0 <= alpha.pool_peak - congested(pool, exponent) <= len(SENDERS) * MTU_BYTES,
            f"{alpha.pool_peak:,} bytes at most, {congested(pool, exponent):,} by the formula, whole frames beyond",
        ),
        Check(
            "the policy has learned when all come at once: fewer and shorter pauses than its baseline",
            policy.xoffs[2] < low.xoffs[2] and policy.paused_us[2] < 0.8 * low.paused_us[2] and levels[0] < max(levels),
            f"{policy.xoffs[2]} XOFFs instead of {low.xoffs[2]}, hosts paused for {policy.paused_us[2]:,.0f} us, not "
            f"{low.paused_us[2]:,.0f}; XOFF went from {levels[0]:,.0f} to {max(levels):,.0f}",
        ),
        Check(
            "and stays within what the planner allows",
            all(least <= level <= most for level in levels),
            f"{least:,}..{most:,} bytes",
        ),
    ]


def _figures(s: Seen) -> list[tuple[str, Value]]:
    return [
        ("XOFFs", sum(s.xoffs)),
        ("paused us", round(sum(s.paused_us), 1)),
        ("lost", s.lost),
        ("pool peak", s.pool_peak),
        ("burst us", round(max(s.burst_us), 2)),
        ("message us", round(max(s.mouse_us), 2)),
    ]


def _table(seen: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            f"{min(s.xoff_bytes.y):,.0f}..{max(s.xoff_bytes.y):,.0f}",
            f"{sum(s.xoffs):,}",
            f"{s.lost:,}",
            f"{s.pool_peak:,}",
        ]
        for name, s in seen.items()
    ]
    return Table("Thresholds", ("thresholds", "XOFF of a group", "XOFFs sent", "lost", "pool used at most"), rows)


def _by_phase(seen: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            phase,
            str(s.xoffs[n]),
            f"{s.paused_us[n]:,.0f}",
            f"{s.gbps[n]:.1f}",
            f"{s.burst_us[n]:.1f}",
            f"{s.mouse_us[n]:.1f}",
        ]
        for n, phase in enumerate(PHASES)
        for name, s in seen.items()
    ]
    heads = ("thresholds", "phase", "XOFFs", "hosts paused us", "burst Gb/s", "longest burst us", "longest message us")
    return Table("By phase", heads, rows)


def _plot(seen: Mapping[str, Seen]) -> Plot:
    def scaled(line: Line) -> Line:
        return Line(line.label, line.x, [y / 1e3 for y in line.y], line.style)

    return Plot(
        NAME,
        "Trickle, bursts of two, bursts of eight: thresholds and buffer",
        "ms",
        [
            Panel("XOFF of a group, kB", [scaled(seen[name].xoff_bytes) for name in RUNS if name != GREEDY]),
            *(Panel("held, kB", [scaled(seen[name].used)], title=name) for name in (LOW, ALPHA, POLICY)),
        ],
    )
