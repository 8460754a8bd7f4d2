"""Scenario chaos (requirement R24): something breaks, under traffic, again and again; does the fabric come back?

A plan of named steps (topologies.chaos), drawn from the seed or read from a file, on one fabric that lives through all
of them. Around each step the same is done and asked: traffic before; the fault; the fault mended; is every byte
delivered, is the controller in step with every switch, is nothing left in a queue, paused, or mitigated; was anything
lossless lost that should not have been; is the traffic after it as fast as before? In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcb.units import PS_PER_MS, PS_PER_US
from topologies.chaos import STEPS, Action, ChaosError, from_data, names, plan
from topologies.description import Topology, leaf_spine
from topologies.measure import DROPS
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config, host_ports, watchdog

if TYPE_CHECKING:
    from topologies.html_report import LinkMap
    from topologies.measure import Snapshot
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.lab import Flow

NAME = "chaos"
SUMMARY = "broken NICs, flapping links, lost and late PFC, controller and switches killed: does the fabric come back?"
OPTIONS = {
    "steps": Option("", f"with commas, in this order; empty: all of {', '.join(STEPS)}"),
    "plan": Option("", "a YAML file with the actions, instead of steps and seed"),
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "window_ms": Option(0.2, "over which throughput is measured, before and after a step", low=0.05, high=10),
    "planned_us": Option(10, "PFC response that headroom is planned for", low=0, high=1000),
    "response_us": Option(9, "the longest that slow-pfc-response draws", low=1, high=1000),
}
LENGTH_M = 10
XOFF_BYTES = 60_000
WATCHDOG_MS = 1
PACED_BPS = 5_000_000_000
INCAST_BPS, INCAST = 45_000_000_000, (("h3", "h1"), ("h6", "h1"), ("h8", "h1"))
WINDOW_BYTES = 256 * 1024
PAUSE_MARGIN_US = 100
WATCHDOG_DROPS = ("tm_drop_storm_tx", "tm_drop_storm_rx")
TIMEOUT_MS = 2000


def topology(rate_bps: int) -> Topology:
    return leaf_spine(2, 2, 4, rate_bps)


def configuration(fabric: Topology, planned_us: int) -> dict[str, Any]:
    """Headroom for this response; the switch's own watchdog on every port to a host."""
    from topologies.virtual import planned

    dcb = planned(
        fabric, Dcb(pfc=(LOSSLESS,)), length_m=LENGTH_M, response_ps=planned_us * PS_PER_US, xoff_bytes=XOFF_BYTES
    )
    made = deepcopy(controller_config(fabric, dcb))
    for port in host_ports(fabric, made):
        port["pfc_watchdog"] = watchdog(WATCHDOG_MS, mode="switch")
    return made


@dataclass(frozen=True, slots=True)
class Seen:
    """One step. Rates in Gb/s of payload, times in milliseconds."""

    action: Action
    start_ms: float
    before: float
    during: float
    after: float
    recovered_ms: float  # from the mending until every byte was delivered and the controller in step
    whole: bool  # every byte of every flow arrived
    out_of_step: list[str]  # switches that the controller does not know to hold its configuration
    stuck: list[str]
    lost: list[str]  # lossless frames that should not have been lost: where, and how many
    allowed: int  # lossless frames that the step may lose
    wire_lost: int  # frames that wires lost, PFC frames among them
    sync: str


def actions(bench: Bench, fabric: Topology) -> list[Action]:
    """The plan. ChaosError where options name what there is not."""
    path = str(bench.options["plan"])
    if path:
        import yaml

        try:
            return from_data(fabric, yaml.safe_load(Path(path).read_text()))
        except (OSError, yaml.YAMLError) as error:
            raise ChaosError(f"plan: {path}: {error}") from None
    return plan(fabric, names(str(bench.options["steps"])), bench.seed, response_us=bench.number("response_us"))


def run(bench: Bench) -> Outcome:
    """One fabric, one plan."""
    from topologies.virtual import LabSettings
    from topologies.virtual.lab import LabError
    from topologies.virtual.pauses import link_map

    fabric = topology(bench.number("rate_gbps") * 10**9)
    try:
        todo = actions(bench, fabric)
    except ChaosError as error:
        raise LabError(str(error)) from None

    async def body(lab: VirtualLab) -> tuple[list[Seen], LinkMap]:
        wires: dict[str, Any] = {
            f"to {host.name}": lab.link(host.leaf, host.name).from_(host.leaf).source_of("bytes")
            for host in fabric.hosts
        }
        series = lab.series(100, **wires)
        start_ps = lab.now_ps
        seen = []
        for number, action in enumerate(todo, 1):
            bench.progress(f"step {number} of {len(todo)}: {action}")
            seen.append(await _step(bench, lab, action, start_ps))
        bench.record(NAME, series)
        return seen, link_map(lab, "XOFF frames of all steps")

    seen, picture = bench.run(
        NAME, fabric, configuration(fabric, bench.number("planned_us")), body, LabSettings(length_m=LENGTH_M)
    )
    return Outcome(
        verdict(seen),
        [_table(seen)],
        [_plot(seen)],
        {f"{n} {one.action.step}: {what}": value for n, one in enumerate(seen, 1) for what, value in _figures(one)},
        [f"{n}: {one.action}; {one.sync}" for n, one in enumerate(seen, 1)],
        [picture],
    )


# --- one step ---------------------------------------------------------------------------------------------------------


def _flows(lab: VirtualLab) -> list[Flow]:
    """An incast that keeps PFC at work, and a pair of each host with one of the other rack."""
    hosts = [host.name for host in lab.topology.hosts]
    pairs = [(hosts[n], hosts[(n + 5) % 8]) for n in range(8)]
    return [lab.rdma(a, b, rate_bps=PACED_BPS, window_bytes=WINDOW_BYTES, ack_every=1) for a, b in pairs] + [
        lab.rdma(a, b, rate_bps=INCAST_BPS, window_bytes=WINDOW_BYTES, ack_every=1) for a, b in INCAST
    ]


async def _rate(lab: VirtualLab, flows: list[Flow], window_ms: float) -> float:
    before = sum(flow.received.rx_bytes for flow in flows)
    await lab.sleep(ms=window_ms)
    return (sum(flow.received.rx_bytes for flow in flows) - before) * 8e-6 / window_ms


async def _step(bench: Bench, lab: VirtualLab, action: Action, start_ps: int) -> Seen:
    window_ms = float(bench.options["window_ms"])
    before = await lab.snapshot((*DROPS, *WATCHDOG_DROPS), ())
    begun_ms = (lab.now_ps - start_ps) / PS_PER_MS
    wire_lost = _wire_lost(lab)
    statuses = {status.name: status for status in lab.controller.status()}
    flows = _flows(lab)
    await lab.sleep(us=100)
    rate_before = await _rate(lab, flows, window_ms)
    at_fault = sum(flow.received.rx_bytes for flow in flows)
    fault_ps = lab.now_ps
    await _do(lab, action)
    mended_ps = lab.now_ps
    during = (sum(flow.received.rx_bytes for flow in flows) - at_fault) * 8e3 / (mended_ps - fault_ps)
    lab.stop(flows)
    await lab.finished(flows, timeout_ms=TIMEOUT_MS)
    await lab.controller.wait_synced(timeout=TIMEOUT_MS / 1e3)
    recovered_ms = (lab.now_ps - mended_ps) / PS_PER_MS
    again = _flows(lab)
    await lab.sleep(us=100)
    rate_after = await _rate(lab, again, window_ms)
    lab.stop(again)
    await lab.finished(again, timeout_ms=TIMEOUT_MS)
    await lab.drained()
    await lab.sleep(us=PAUSE_MARGIN_US + 65535 * 512 / bench.number("rate_gbps") / 1e3, ms=WATCHDOG_MS)
    after = await lab.snapshot((*DROPS, *WATCHDOG_DROPS), ())
    lost, allowed = _lost(lab.topology, action, before, after)
    now = {status.name: status for status in lab.controller.status()}
    return Seen(
        action=action,
        start_ms=begun_ms,
        before=rate_before,
        during=during,
        after=rate_after,
        recovered_ms=recovered_ms,
        whole=all(f.sent.bytes_acked == f.sent.bytes == f.received.rx_bytes for f in (*flows, *again)),
        out_of_step=[name for name, status in now.items() if status.state.value != "synced"],
        stuck=_stuck(lab),
        lost=lost,
        allowed=allowed,
        wire_lost=_wire_lost(lab) - wire_lost,
        sync=_sync(action, statuses, now),
    )


async def _do(lab: VirtualLab, action: Action) -> None:
    """The fault, for its time; mended when this returns."""
    us, target = action.duration_us, action.target
    if action.step == "nic-storm":
        lab.nics[target[0]].storm([LOSSLESS], action.interval_us * PS_PER_US, start_ps=lab.now_ps)
        await lab.sleep(us=us)
        lab.nics[target[0]].storm((), 1)
    elif action.step == "link-flap":
        a, b = target
        for _ in range(action.times):
            lab.set_link(a, b, up=False)
            await lab.sleep(us=us / action.times / 2)
            lab.set_link(a, b, up=True)
            await lab.sleep(us=us / action.times / 2)
    elif action.step == "link-jitter":
        for direction in lab.link(target[0], target[1]).directions:
            direction.set_delay(jitter_ps=action.jitter_ns * 1000)
        await lab.sleep(us=us)
        for direction in lab.link(target[0], target[1]).directions:
            direction.set_delay(jitter_ps=0)
    elif action.step == "pfc-loss":
        direction = lab.link(target[0], target[1]).from_(target[0])
        direction.set_errors(pfc_loss=Fraction(action.loss_percent, 100))
        await lab.sleep(us=us)
        direction.set_errors()
    elif action.step == "slow-pfc-response":
        for direction in lab.link(target[0], target[1]).directions:
            direction.set_pfc_response(action.response_us * PS_PER_US)
        await lab.sleep(us=us)
        for direction in lab.link(target[0], target[1]).directions:
            direction.set_pfc_response(0)
    elif action.step == "controller-restart":
        await lab.stop_controller()
        await lab.sleep(us=us)
        await lab.start_controller()
    elif action.step == "switch-restart":
        lab.kill_switch(target[0])
        await lab.sleep(us=us)
        lab.start_switch(target[0])


def _lost(fabric: Topology, action: Action, before: Snapshot, after: Snapshot) -> tuple[list[str], int]:
    """Lossless frames that switches dropped during a step: those that it may not lose, and the number of the others."""
    found, allowed = [], 0
    for switch, counters in after.counters.items():
        for name in (*DROPS, *WATCHDOG_DROPS):
            for (port, n), (packets, _) in counters[name].items():
                count = packets - before.counters[switch][name][port, n][0]
                if n != LOSSLESS or count <= 0:  # a switch that was killed counts from 0
                    continue
                if _may_lose(fabric, action, switch, port, name):
                    allowed += count
                else:
                    found.append(f"{switch}:{port} {name} {count:,}")
    return found, allowed


def _may_lose(fabric: Topology, action: Action, switch: str, port: int, counter: str) -> bool:
    if action.step == "nic-storm":
        host = fabric.host(action.target[0])
        return counter in WATCHDOG_DROPS and (switch, port) == (host.leaf, host.number)
    if action.step == "link-flap":
        return counter == "tm_drop_port" and switch in action.target and fabric.peer(switch, port).node in action.target
    if action.step == "pfc-loss":
        return counter == "tm_drop_headroom" and (switch, fabric.peer(switch, port).node) == action.target
    return action.step == "switch-restart" and switch == action.target[0]


def _wire_lost(lab: VirtualLab) -> int:
    return sum(direction.stats().lost for link in lab.fabric.links for direction in link.directions)


def _stuck(lab: VirtualLab) -> list[str]:
    """What should not be there once nothing is sent any more."""
    found = []
    for switch in lab.topology.switches:
        tm = lab.core(switch.name).tm
        for port in switch.ports:
            for n in range(8):
                states = ("queue_depth", "pg_depth", "pg_xoff", "pause_left", "storm_state")
                found += [f"{switch.name}:{port} {s} {n}" for s in states if tm.read_state(s, port * 8 + n)]
    if not lab.is_empty():
        found.append("frames on a wire")
    return found


def _sync(action: Action, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if action.step == "controller-restart":
        pushes, written = (sum(getattr(s, k) for s in now.values()) for k in ("pipeline_pushes", "updates_written"))
        return f"the new controller pushed {pushes} programs and wrote {written} entries: the switches held them"
    if action.step == "switch-restart":
        name = action.target[0]
        pushes = now[name].pipeline_pushes - before[name].pipeline_pushes
        return f"the controller pushed {pushes} program to {name} and wrote {now[name].last_sync_updates} entries"
    moved = sum(now[n].updates_written - before[n].updates_written for n in now)
    return f"the controller wrote {moved} entries"


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(seen: list[Seen]) -> list[Check]:
    """Pure. Three claims for each step."""
    checks = []
    for number, one in enumerate(seen, 1):
        name = f"{number} {one.action.step}"
        checks += [
            Check(
                f"{name}: comes back: every byte delivered, throughput after it as before",
                one.whole and one.after > 0.95 * one.before > 0,
                f"{one.after:.1f} of {one.before:.1f} Gb/s ({one.during:.1f} meanwhile), "
                f"all delivered {one.recovered_ms:.2f} ms after the mending",
            ),
            Check(
                f"{name}: the controller is in step with every switch, and nothing is left queued, paused or mitigated",
                not one.out_of_step and not one.stuck,
                "; ".join([*one.out_of_step, *one.stuck[:5]]) or one.sync,
            ),
            Check(
                f"{name}: nothing lossless is lost"
                + ("" if STEPS[one.action.step].lossless else " but where it breaks"),
                not one.lost,
                ", ".join(one.lost)
                or f"switches dropped {one.allowed:,} frames where it breaks, wires lost {one.wire_lost:,}",
            ),
        ]
    return checks


def _figures(one: Seen) -> list[tuple[str, int | float | str]]:
    return [
        ("action", str(one.action)),
        ("recovered ms", round(one.recovered_ms, 3)),
        ("during Gb/s", round(one.during, 2)),
        ("after Gb/s", round(one.after, 2)),
        ("dropped where it breaks", one.allowed),
        ("lost by wires", one.wire_lost),
        ("dropped elsewhere", len(one.lost)),
    ]


def _table(seen: list[Seen]) -> Table:
    rows = [
        [
            f"{n} {one.action}",
            *(f"{rate:.1f}" for rate in (one.before, one.during, one.after)),
            f"{one.recovered_ms:.2f}",
            f"{one.allowed:,}",
            f"{one.wire_lost:,}",
            ", ".join(one.lost) or "0",
        ]
        for n, one in enumerate(seen, 1)
    ]
    heads = ("step", "Gb/s before", "meanwhile", "after", "recovered ms", "dropped there", "lost by wires", "elsewhere")
    return Table("Chaos", heads, rows)


def _plot(seen: list[Seen]) -> Plot:
    x = [float(n) for n in range(1, len(seen) + 1)]
    marks = [(n, one.action.step) for n, one in zip(x, seen, strict=True)]
    lines = [
        Line("before", x, [one.before for one in seen], "points"),
        Line("while it is broken", x, [one.during for one in seen], "points"),
        Line("after", x, [one.after for one in seen], "points"),
    ]
    recovered = [Line("", x, [one.recovered_ms for one in seen], "points")]
    panels = [
        Panel("delivered, Gb/s", lines, marks=marks),
        Panel("ms until all is delivered", recovered, y_log=True),
    ]
    return Plot("chaos", "Step by step", "step", panels)
