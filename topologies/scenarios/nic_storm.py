"""Scenario nic-storm (requirements R20.1, R16): one broken NIC freezes a ToR and reaches into racks that it knows not.

Three racks. h1's NIC breaks and sends XOFF without end. What is for h1 stays in leaf1, then in the spines, then in the
other leaves, and everything lossless behind it stands too: within the rack, into the rack, and between two other racks.
Each cure alone, on the same fabric: the controller's PFC watchdog polling; the switch's own watchdog; storm control.
`dcbctl why`, asked two switches away, names the host. This is the run in virtual time; `topologies.nic_storm_lab` has
a smaller one in real time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dcb.units import PS_PER_MS, PS_PER_S, PS_PER_US
from fabric.channel import ONE_WAY_PS
from topologies.description import Topology, leaf_spine
from topologies.network import Target
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table
from topologies.settings import BUSINESS_PRIORITY as BUSINESS
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config, watchdog

if TYPE_CHECKING:
    from fabric.engine import Series
    from topologies.html_report import LinkMap
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.lab import Flow

NAME = "nic-storm"
SUMMARY = "a broken NIC storms XOFF: the ToR freezes, the pause spreads to other racks; watchdogs and storm control"
TARGETS = (Target.EMBEDDED,)
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "load_gbps": Option(5, "of each of the 32 flows", low=1, high=10),
    "storm_us": Option(50, "between two XOFF frames of the broken NIC", low=1, high=80),
    "window_ms": Option(0.5, "over which throughput is measured", low=0.1, high=10),
    "detect_ms": Option(100, "detection and restoration time of the polling watchdog", low=100, high=1000),
    "switch_detect_ms": Option(1, "of the switch's own watchdog", low=1, high=20),
    "control_rate": Option(100, "PFC frames a second that storm control lets through", low=1, high=100_000),
    "control_burst": Option(10, "and at once", low=1, high=1000),
}
BROKEN, QUANTA, LENGTH_M = "h1", 65535, 10
ASKED_AT = "leaf2"  # two links from the storm
FLOWS_PER_PAIR = 4  # so that both spines carry some of each
CONTROL = "priority 0, into its rack"
GROUPS: Mapping[str, Sequence[tuple[str, str]]] = {
    "to the broken host": (("h2", BROKEN), ("h5", BROKEN), ("h9", BROKEN)),
    "within its rack": (("h2", "h4"),),
    "into its rack": (("h6", "h3"),),
    "between other racks": (("h7", "h10"), ("h11", "h8")),
    CONTROL: (("h12", "h2"),),
}
VICTIMS = ("within its rack", "into its rack", "between other racks")
NO_CURE, POLLING, SWITCH, STORM_CONTROL = "no cure", "watchdog, polling", "watchdog of the switch", "storm control"
RUNS = (NO_CURE, POLLING, SWITCH, STORM_CONTROL)
POLL_MS = 100
LONG_MS = 20
STILL_PS = 50 * PS_PER_US  # no frame of a group for so long: it stands
LOST = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool", "tm_drop_queue")
PLOTTED_MS = 3
WAY_MS = ONE_WAY_PS / PS_PER_MS  # from the switch to the controller


def topology(rate_bps: int) -> Topology:
    return leaf_spine(3, 2, 4, rate_bps)


def pause_ps(rate_bps: int) -> int:
    """How long one XOFF of the storm pauses a port."""
    return -(-QUANTA * 512 * PS_PER_S // rate_bps)


def cured(config: Mapping[str, Any], cure: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The cure on every port that faces a host."""
    made = deepcopy(dict(config))
    if cure == POLLING:
        made["pfc_watchdog"] = {"poll_interval_ms": POLL_MS}
    for switch in made["switches"].values():
        for port in switch["ports"].values():
            if not str(port["peer"]).startswith("h"):
                continue
            if cure == POLLING:
                port["pfc_watchdog"] = watchdog(options["detect_ms"])
            elif cure == SWITCH:
                port["pfc_watchdog"] = watchdog(options["switch_detect_ms"], mode="switch")
            elif cure == STORM_CONTROL:
                port["pfc_storm_control"] = {"rate": options["control_rate"], "burst": options["control_burst"]}
    return made


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed. Rates in Gb/s by group of flows; times since the storm began."""

    before: Mapping[str, float]
    during: Mapping[str, float]  # the storm goes on; with a cure, once it has acted
    after: Mapping[str, float]  # the storm is over, and so is what the cure did
    frozen_us: Mapping[str, float]  # groups that stood, and when the last frame of each arrived
    chain: str
    hops: int
    hops_cured: int
    why: list[str]
    detected_ms: float | None
    storm_ms: float  # its length
    events: list[str]
    flushed: int  # dropped at the port of the broken host
    lost: int  # dropped anywhere else, of the lossless priority
    ignored: int
    paused_share: float  # of the time of `during`, by what the port of the broken host counted
    curve: list[Line]
    picture: LinkMap


def run(bench: Bench) -> Outcome:
    """The same storm four times: without a cure, and with each."""
    from topologies.virtual import planned

    fabric = topology(bench.number("rate_gbps") * 10**9)
    base = controller_config(fabric, planned(fabric, Dcb(pfc=(LOSSLESS,)), length_m=LENGTH_M))
    runs = {name: _run(bench, fabric, name, cured(base, name, bench.options)) for name in RUNS}
    return Outcome(
        verdict(runs, bench.options),
        [_rates(runs), _spread(runs)],
        [_plot(runs)],
        {f"{name}: {what}": value for name, seen in runs.items() for what, value in _figures(seen)},
        [
            f"the pause went: {runs[NO_CURE].chain}",
            *(f"why: {line}" for line in runs[NO_CURE].why),
            *(f"{name}: {event}" for name, seen in runs.items() for event in seen.events),
        ],
        [runs[NO_CURE].picture],
    )


# --- one run ----------------------------------------------------------------------------------------------------------


def _start(lab: VirtualLab, load_bps: int, groups: Iterable[str] = GROUPS) -> dict[str, list[Flow]]:
    return {
        group: [
            lab.rdma(a, b, reliable=False, rate_bps=load_bps, priority=BUSINESS if group == CONTROL else LOSSLESS)
            for a, b in GROUPS[group]
            for _ in range(FLOWS_PER_PAIR)
        ]
        for group in groups
    }


async def _measure(lab: VirtualLab, groups: Mapping[str, list[Flow]], window_ms: float) -> dict[str, float]:
    def received() -> dict[str, int]:
        return {name: sum(f.received.rx_bytes for f in flows) for name, flows in groups.items()}

    before = received()
    await lab.sleep(ms=window_ms)
    return {name: (count - before[name]) * 8e-6 / window_ms for name, count in received().items()}


def _run(bench: Bench, fabric: Topology, name: str, config: Mapping[str, Any]) -> Seen:
    from controller import why
    from topologies.virtual import LabSettings
    from topologies.virtual.pauses import PauseWatch, link_map

    options = bench.options
    window_ms, storm_ps = float(options["window_ms"]), bench.number("storm_us") * PS_PER_US
    load_bps = bench.number("load_gbps") * 10**9
    detect_ms = {POLLING: bench.number("detect_ms"), SWITCH: bench.number("switch_detect_ms")}.get(name, 0)
    is_long = detect_ms > LONG_MS  # then nothing is sent while the time passes: it would take minutes to compute

    async def body(lab: VirtualLab) -> Seen:
        watch = PauseWatch(lab)
        log = lab.controller.watchdog.switches["leaf1"].agent.log
        flows = _start(lab, load_bps)
        await lab.sleep(us=100)
        before = await _measure(lab, flows, window_ms)
        start_ps = lab.now_ps
        fine = lab.fabric.sample(20 * PS_PER_US, _wires(lab), until_ps=start_ps + PLOTTED_MS * PS_PER_MS)
        lab.nics[BROKEN].storm([LOSSLESS], storm_ps, quanta=QUANTA, start_ps=start_ps)
        await lab.sleep(ms=window_ms)
        chain = watch.chains().get(LOSSLESS)
        frozen = {
            group: (last - start_ps) / PS_PER_US
            for group, held in flows.items()
            if (last := max(flow.received.rx_last_ps or 0 for flow in held)) < lab.now_ps - STILL_PS
        }
        asked = await why.why(lab.controller, f"{ASKED_AT}:{lab.port_to(ASKED_AT, 'spine1')}", LOSSLESS, 2e-4)
        picture = link_map(lab, f"{name}: XOFF of the storm's first {window_ms:g} ms", priorities=[LOSSLESS])
        if is_long:
            lab.stop(flows[CONTROL])
        if detect_ms:
            for _ in range(100):
                if log:
                    break
                await lab.sleep(ms=detect_ms / 20)
        elif name == STORM_CONTROL:
            await lab.sleep_until(start_ps + round((_burst_ms(bench) + window_ms) * PS_PER_MS))
        detected = next(((event.time_ns * 1000 - start_ps) / PS_PER_MS for event in log), None)
        if is_long:
            flows |= _start(lab, load_bps, [CONTROL])
        await lab.sleep(us=100)
        watch.chains()
        paused_ps = _paused_ps(lab)
        period_ms = 1e3 / bench.number("control_rate")
        during_ms = period_ms * math.ceil(window_ms / period_ms) if name == STORM_CONTROL else window_ms
        during = await _measure(lab, flows, during_ms)
        paused = (_paused_ps(lab) - paused_ps) / (during_ms * PS_PER_MS)
        then = watch.chains().get(LOSSLESS)
        lab.nics[BROKEN].storm((), 1)
        storm_ms = (lab.now_ps - start_ps) / PS_PER_MS
        if is_long:
            lab.stop()
        await lab.sleep(ms=detect_ms * (3.1 if is_long else 1.1) + pause_ps(fabric.links[0].rate_bps) / PS_PER_MS)
        flows = _start(lab, load_bps) if is_long else flows
        await lab.sleep(us=100)
        after = await _measure(lab, flows, window_ms)
        lab.stop()
        await lab.finished()
        await lab.drained()
        end = await lab.snapshot((*LOST, "tm_drop_storm_tx", "pfc_rx_storm"), ())
        flushed = end.counters["leaf1"]["tm_drop_storm_tx"][1, LOSSLESS][0]
        lost = sum(end.packets(counter, LOSSLESS) for counter in (*LOST, "tm_drop_storm_tx")) - flushed
        return Seen(
            before=before,
            during=during,
            after=after,
            frozen_us=frozen,
            chain=str(chain or "nowhere"),
            hops=chain.hops if chain else 0,
            hops_cured=then.hops if then else 0,
            why=[
                asked["summary"],
                *(f"{q['question']} {_word(q['yes'])}: {q['evidence']}" for q in asked["questions"]),
            ],
            detected_ms=detected,
            storm_ms=storm_ms,
            events=[event.text for event in log],
            flushed=flushed,
            lost=lost,
            ignored=end.packets("pfc_rx_storm", 0),
            paused_share=paused,
            curve=_curve(bench, name, fine, start_ps),
            picture=picture,
        )

    return bench.run(name, fabric, config, body, LabSettings(length_m=LENGTH_M))


def _word(yes: bool) -> str:
    return "yes" if yes else "no"


def _burst_ms(bench: Bench) -> float:
    """How long the first frames hold the port that storm control lets through at once."""
    burst_us = bench.number("storm_us") * bench.number("control_burst")
    return burst_us / 1e3 + pause_ps(bench.number("rate_gbps") * 10**9) / PS_PER_MS


def _paused_ps(lab: VirtualLab) -> int:
    return int(lab.core("leaf1").tm.read_state("paused_ns", 8 + LOSSLESS)) * 1000


def _wires(lab: VirtualLab) -> dict[str, Any]:
    """What reaches the hosts of each group, in bytes; no host belongs to two."""
    found = {}
    for group, pairs in GROUPS.items():
        for _, target in pairs[:1]:
            leaf = lab.topology.host(target).leaf
            found[group] = lab.link(leaf, target).from_(leaf).source_of("bytes")
    return found


def _curve(bench: Bench, name: str, series: Series, start_ps: int) -> list[Line]:
    from topologies.virtual.bench import rates

    made = []
    for line in bench.record(name, series):
        slope = rates(line)
        made.append(Line(line.label, [x - start_ps / PS_PER_MS for x in slope.x], slope.y))
    return made


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(runs: Mapping[str, Seen], options: Mapping[str, Any]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    free = runs[NO_CURE]
    lossless = [group for group in GROUPS if group != CONTROL]
    stood = ", ".join(f"{group} {us:.0f} us" for group, us in free.frozen_us.items())
    checks = [
        Check(
            "no cure: all that is lossless stands, also between racks that send nothing to the broken host",
            set(free.frozen_us) == set(lossless) and all(free.during[group] == 0 for group in lossless),
            f"last frame after {stood or 'never'}; then 0 Gb/s",
        ),
        Check(
            "no cure: priority 0 of the same links goes on",
            free.during[CONTROL] > 0.99 * free.before[CONTROL],
            f"{free.during[CONTROL]:.1f} of {free.before[CONTROL]:.1f} Gb/s",
        ),
        Check(
            "the pause goes over 4 links: NIC, ToR, spine, other ToR, its hosts",
            free.hops == 4 and free.chain.startswith(f"{BROKEN} -> leaf1 -> spine"),
            free.chain,
        ),
        Check(
            f"`dcbctl why`, asked at {ASKED_AT}, names the broken host",
            f"is paused by {BROKEN}, which is no switch of this fabric" in free.why[0],
            free.why[0],
        ),
    ]
    for name in RUNS[1:]:
        seen = runs[name]
        worst = min(VICTIMS, key=lambda group: seen.during[group] / seen.before[group])
        figures = ", ".join(f"{g} {seen.during[g]:.1f} of {seen.before[g]:.1f} Gb/s" for g in VICTIMS)
        checks += [
            Check(
                f"{name}: with the storm going on, nobody else is slower than 90%",
                seen.during[worst] > 0.9 * seen.before[worst],
                figures,
            ),
            Check(
                f"{name}: nothing lossless is dropped but what is for the broken host",
                seen.lost == 0,
                f"{seen.flushed:,} frames dropped at its port, {seen.lost:,} elsewhere",
            ),
        ]
    low, poll = float(options["detect_ms"]), float(POLL_MS)
    seen_ms = runs[POLLING].detected_ms
    checks.append(
        Check(
            f"{POLLING}: detected within (T, T + poll), and a round trip of the control channel",
            seen_ms is not None and low - WAY_MS <= seen_ms < low + poll + WAY_MS,
            f"asked after {seen_ms or -1:.2f} ms, the switch answered {WAY_MS:g} ms later; T {low:g}, poll {poll:g} ms",
        )
    )
    low, seen_ms = float(options["switch_detect_ms"]), runs[SWITCH].detected_ms
    checks.append(
        Check(
            f"{SWITCH}: detected T after the first XOFF",
            seen_ms is not None and low + WAY_MS <= seen_ms < low + WAY_MS + 0.005,
            f"told to the controller after {seen_ms or -1:.3f} ms; T {low:g} ms, control channel {WAY_MS:g} ms",
        )
    )
    rate_bps, rate = int(options["rate_gbps"]) * 10**9, int(options["control_rate"])
    formula = min(1.0, rate * pause_ps(rate_bps) / PS_PER_S)
    checks.append(
        Check(
            f"{STORM_CONTROL}: the port is paused for rate x quanta x 512 / line rate of the time",
            abs(runs[STORM_CONTROL].paused_share - formula) < 0.001 and runs[STORM_CONTROL].ignored > 0,
            f"{100 * runs[STORM_CONTROL].paused_share:.3f}%, formula {100 * formula:.3f}%; "
            f"{runs[STORM_CONTROL].ignored:,} frames ignored",
        )
    )
    slow = [
        f"{name}: {group}"
        for name, seen in runs.items()
        for group in GROUPS
        if seen.after[group] < 0.95 * seen.before[group]
    ]
    checks.append(
        Check("after the storm everything is back, with or without a cure", not slow, ", ".join(slow) or "all")
    )
    return checks


def _figures(seen: Seen) -> list[tuple[str, int | float]]:
    rates = [(f"{group} Gb/s", round(rate, 3)) for group, rate in seen.during.items()]
    detected = -1.0 if seen.detected_ms is None else round(seen.detected_ms, 3)
    return [
        *rates,
        ("hops", seen.hops),
        ("hops then", seen.hops_cured),
        ("detected ms", detected),
        ("dropped at the port", seen.flushed),
        ("dropped elsewhere", seen.lost),
        ("paused share", round(seen.paused_share, 5)),
    ]


def _rates(runs: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            group,
            f"{seen.before[group]:.1f}",
            f"{seen.frozen_us[group]:.0f}" if group in seen.frozen_us else "-",
            f"{seen.during[group]:.1f}",
            f"{seen.after[group]:.1f}",
        ]
        for name, seen in runs.items()
        for group in GROUPS
    ]
    heads = ("cure", "flows", "before", "stands after us", "in the storm", "after it")
    return Table("Throughput, Gb/s", heads, rows)


def _spread(runs: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            str(seen.hops),
            str(seen.hops_cured),
            "-" if seen.detected_ms is None else f"{seen.detected_ms:.2f}",
            f"{100 * seen.paused_share:.2f}%",
            f"{seen.flushed:,}",
            f"{seen.lost:,}",
            f"{seen.ignored:,}",
        ]
        for name, seen in runs.items()
    ]
    heads = ("cure", "hops at first", "then", "detected ms", "port paused", "dropped there", "elsewhere", "PFC ignored")
    return Table("The pause", heads, rows)


def _plot(runs: Mapping[str, Seen]) -> Plot:
    panels = [
        Panel("Gb/s", seen.curve, title=name, marks=_marks(seen)) for name, seen in runs.items() if name != POLLING
    ]
    return Plot("nic-storm", "What reaches a host of each group, from the first XOFF of the storm", "ms", panels)


def _marks(seen: Seen) -> list[tuple[float, str]]:
    found = [(seen.storm_ms, "storm ends")] if seen.storm_ms < PLOTTED_MS else []
    return found if seen.detected_ms is None else [*found, (seen.detected_ms, "controller told")]
