"""dcbx-bring-up at 100 Gb/s in virtual time: the steps of `topologies.dcbx_lab`, and two senders through the move.

Those two are reliable connections of the same incast: h1 takes the marks of each agreement (`follow`), h2 keeps what it
began with, as senders of real labs do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dcb.dcbx.report import link_report
from dcb.dcbx.settings import DcbxSettings
from dcb.units import PS_PER_US
from fabric.channel import Delays
from fabric.engine import Series
from topologies import scenario as plain
from topologies.dcbx import dcbx_config, source_dcbx, source_port
from topologies.description import Host
from topologies.measure import Snapshot
from topologies.results import Check
from topologies.scenarios import dcbx_bring_up as scenario
from topologies.settings import STORAGE_DSCP, STORAGE_PRIORITY, Dcb
from topologies.virtual.bench import Bench, rates
from topologies.virtual.lab import LabSettings, VirtualLab
from topologies.virtual.plan import planned

STEP_US = 20  # between two looks at what is agreed
TIMEOUT_US = 1_000_000
SERIES_US = 10
BEFORE_MOVE_US = 300
AFTER_MOVE_US = 500
SETTLE_US = 300  # what was lost before the agreement is sent again
WINDOW_BYTES = 1_000_000  # more than the lossless groups of the way hold
RTO_PS = 524_288_000  # 4.096 us * 2^7: code 7 of InfiniBand
XOFF_BYTES = 300_000  # more than a lossy queue may hold (Dcb.queue_limit_bytes)
RUN = "dcbx"
FOLLOWS, STAYS = scenario.SENDERS
PRIORITIES = (scenario.BEFORE, scenario.AFTER)
INGRESS_DROPS = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool")
STUBBORN = {"priority": STORAGE_PRIORITY, "dscp": STORAGE_DSCP}  # whatever DCBX says


@dataclass(frozen=True, slots=True)
class Sender:
    """A sender that runs through the move. `*_after`: since the agreement has settled, to the end."""

    host: str
    resent: int  # packets, until then
    resent_after: int
    sent_after: Mapping[int, int]  # frames that its NIC sent, by the NIC's priority
    lost_after: int  # frames that its leaf's port dropped as they came in


@dataclass(frozen=True, slots=True)
class Moved:
    """The move while senders run. Times in us, from when the source is told; frames by priority in the switches."""

    hosts_us: float  # the last willing host runs the new priority
    all_us: float  # every switch holds it
    follows: Sender
    stays: Sender
    lost_moving: Mapping[int, int]  # frames that switches dropped until it had settled
    lost_after: Mapping[int, int]
    delivered: Mapping[str, tuple[int, int]]  # bytes that each sender had to deliver, and did


class _Runner:
    def __init__(self, lab: VirtualLab, bench: Bench) -> None:
        self._lab, self._bench = lab, bench
        self._duration_us = bench.number("duration_us")
        self._rate_bps = bench.number("rate_gbps") * 10**9
        self._refusing = lab.topology.host(scenario.REFUSES)
        self.plot: plain.Plot | None = None

    def ports(self) -> dict[str, dict[int, list[int]]]:
        """PFC priorities by switch and port."""
        switches = self._lab.controller.running.switches
        return {name: {n: list(p.pfc) for n, p in switch.ports.items()} for name, switch in switches.items()}

    def mismatches(self) -> list[str]:
        """Interfaces of switches whose links do not agree."""
        return [
            name
            for agent in self._lab.controller.dcbx.agents.values()
            for number, name in agent.names.items()
            if not link_report(agent.port(number)).agrees
        ]

    def lossless(self) -> dict[str, list[int]]:
        """Priorities that are lossless by host, as their agents say."""
        agents = self._lab.agents.items()
        return {name: list(agent.dcbx.agent.port.operational.lossless_priorities) for name, agent in agents}

    async def agreement(self, priority: int, start_ps: int) -> scenario.Agreement:
        """Wait until nobody but the refusing host lacks `priority` and switches hold it; then what is run."""

        def agreed() -> bool:
            ports = self.ports()
            ports[self._refusing.leaf].pop(self._refusing.number)
            willing = [found for name, found in self.lossless().items() if name != scenario.REFUSES]
            return all(pfc == [priority] for pfc in (*willing, *(p for of in ports.values() for p in of.values())))

        for _ in range(TIMEOUT_US // STEP_US):
            if agreed():
                break
            await self._lab.sleep(us=STEP_US)
        else:
            raise TimeoutError(f"PFC {priority}: not agreed on within {TIMEOUT_US / 1e6:g} s: {self.ports()}")
        await self._lab.controller.wait_synced(timeout=TIMEOUT_US / 1e6)
        seconds = (self._lab.now_ps - start_ps) / 1e12
        tables = {name: agent.dcbx.agent.port.operational.ets for name, agent in self._lab.agents.items()}
        bandwidth = {name: list(table.bandwidth) for name, table in tables.items()}
        return scenario.Agreement(priority, seconds, self.ports(), self.lossless(), bandwidth)

    async def load(self, name: str, priority: int, senders: Mapping[str, Mapping[str, Any]]) -> scenario.Load:
        """Storage from each sender at once (unreliable: what is lost stays lost), to the end and drained.

        `senders`: what they mark it with whatever DCBX says; nothing: as their agents say.
        """
        lab, before = self._lab, await self._lab.snapshot()
        flow_bps = self._rate_bps * 4 // 5
        size = flow_bps * self._duration_us // 8_000_000
        flows = {
            host: lab.rdma(host, scenario.RECEIVER, bytes=size, rate_bps=flow_bps, reliable=False, **marks)
            for host, marks in senders.items()
        }
        await lab.finished(list(flows.values()))
        if not await lab.drained():
            raise TimeoutError(f"{name}: switches do not drain")
        after = await lab.snapshot()
        sent = {host: flow.sent.packets_sent for host, flow in flows.items()}
        lost = {host: sent[host] - flow.received.rx_packets for host, flow in flows.items()}
        xoff = after.packets("pfc_tx_xoff", priority) - before.packets("pfc_tx_xoff", priority)
        return scenario.Load(name, priority, sent, lost, xoff)

    async def move(self, configuration: dict[str, Any]) -> tuple[scenario.Agreement, Moved]:
        """Tell the source another priority while h1 and h2 write to h3; the senders go on for as long as it took."""
        lab = self._lab
        switch, port = source_port(lab.topology)
        at = lab.port_to(lab.topology.host(scenario.RECEIVER).leaf, scenario.RECEIVER)
        leaf = lab.topology.host(scenario.RECEIVER).leaf
        series = lab.series(
            SERIES_US,
            queues={f"queue {n}": (leaf, at, n) for n in PRIORITIES},
            **{host: lab.link(host, "leaf1").from_(host).source_of("bytes") for host in scenario.SENDERS},
        )
        first_ps = lab.now_ps
        flows = {
            host: lab.rdma(
                host,
                scenario.RECEIVER,
                rate_bps=self._rate_bps * 4 // 5,
                window_bytes=WINDOW_BYTES,
                rto_ps=RTO_PS,
                follow=host == FOLLOWS,
            )
            for host in scenario.SENDERS
        }
        await lab.sleep(us=BEFORE_MOVE_US)
        told_ps, before = lab.now_ps, await lab.snapshot()
        source = source_dcbx([scenario.AFTER], scenario.SHARES[scenario.AFTER])
        configuration["switches"][switch]["ports"][port]["dcbx"] = source
        await lab.apply(configuration)
        agreement = await self.agreement(scenario.AFTER, told_ps)
        agreed_ps = lab.now_ps
        await lab.sleep(us=SETTLE_US)
        settled = await lab.snapshot()
        resent = {host: flow.sent.packets_resent for host, flow in flows.items()}
        sent = {host: lab.nics[host].stats().tx_frames_prio for host in flows}
        await lab.sleep(us=max(AFTER_MOVE_US, self._duration_us))
        after = await lab.snapshot()
        senders = {}
        for host, flow in flows.items():
            now, before_ = lab.nics[host].stats().tx_frames_prio, sent[host]
            frames = {n: now[n] - before_[n] for n in PRIORITIES}
            lost = _lost_at(lab.topology.host(host), after) - _lost_at(lab.topology.host(host), settled)
            again = flow.sent.packets_resent
            senders[host] = Sender(host, resent[host], again - resent[host], frames, lost)
        lab.stop(flows.values())
        await lab.finished(list(flows.values()))
        if not await lab.drained():
            raise TimeoutError("the move: switches do not drain")
        marks = [lab.agents[host].changes[-1][0] for host in lab.agents if host != scenario.REFUSES]
        self.plot = self._plot(series, first_ps, {"source is told": told_ps, "hosts": max(marks), "all": agreed_ps})
        return agreement, Moved(
            hosts_us=(max(marks) - told_ps) / PS_PER_US,
            all_us=(agreed_ps - told_ps) / PS_PER_US,
            follows=senders[FOLLOWS],
            stays=senders[STAYS],
            lost_moving={n: settled.lost(n) - before.lost(n) for n in PRIORITIES},
            lost_after={n: after.lost(n) - settled.lost(n) for n in PRIORITIES},
            delivered={host: (flow.sent.bytes, flow.received.rx_bytes) for host, flow in flows.items()},
        )

    def _plot(self, series: Series, first_ps: int, marks: Mapping[str, int]) -> plain.Plot:
        lines = {line.label: line for line in self._bench.record(RUN, series)}
        shifted = {
            label: plain.Line(label, [x - first_ps / 1e9 for x in line.x], line.y) for label, line in lines.items()
        }
        where = [((time_ps - first_ps) / 1e9, text) for text, time_ps in marks.items()]
        queues = [shifted[f"queue {n}"] for n in PRIORITIES]
        kilobytes = [plain.Line(f"{q.label} to {scenario.RECEIVER}", q.x, [y / 1000 for y in q.y]) for q in queues]
        labels = {FOLLOWS: f"{FOLLOWS}, follows the agreement", STAYS: f"{STAYS}, keeps its marks"}
        sent = [replace(rates(shifted[host]), label=labels[host]) for host in scenario.SENDERS]
        panels = [
            plain.Panel("Gb/s sent", sent, marks=where),
            plain.Panel("kB queued", kilobytes, marks=where),
        ]
        title = f"PFC moves from {scenario.BEFORE} to {scenario.AFTER} while two senders write to {scenario.RECEIVER}"
        return plain.Plot("move", title, "ms", panels)


def _lost_at(host: Host, snapshot: Snapshot) -> int:
    """Frames of the two priorities from a host that its leaf's port dropped as they came in."""
    counters = snapshot.counters[host.leaf]
    return sum(counters[name][host.number, n][0] for name in INGRESS_DROPS for n in PRIORITIES)


def run(bench: Bench) -> plain.Outcome:
    """The scenario in virtual time: the claims of real time, and those about senders that run through the move."""
    rate_bps = bench.number("rate_gbps") * 10**9
    topology = scenario.topology(rate_bps)
    dcb = planned(topology, Dcb(pfc=(scenario.BEFORE,)), length_m=bench.number("length_m"), xoff_bytes=XOFF_BYTES)
    configuration = dcbx_config(topology, dcb, source_dcbx([scenario.BEFORE], scenario.SHARES[scenario.BEFORE]))
    delays = Delays(one_way_ps=bench.number("control_us") * PS_PER_US)
    settings = LabSettings(length_m=bench.number("length_m"), delays=delays)
    runners: list[_Runner] = []

    async def body(lab: VirtualLab) -> tuple[scenario.Outcome, Moved]:
        runner = _Runner(lab, bench)
        runners.append(runner)
        stubborn = dict.fromkeys(scenario.SENDERS, STUBBORN)
        without = await runner.load("no DCBX on hosts", scenario.BEFORE, stubborn)
        start_ps = lab.now_ps
        for host in topology.hosts:
            refuses = DcbxSettings(pfc_enable=1 << scenario.REFUSES_PRIORITY)
            lab.start_dcbx(host.name, refuses if host.name == scenario.REFUSES else None)
        first = await runner.agreement(scenario.BEFORE, start_ps)
        as_agreed: dict[str, Mapping[str, Any]] = {host: {} for host in scenario.SENDERS}
        lossless = await runner.load(f"PFC {scenario.BEFORE}", scenario.BEFORE, as_agreed)
        mixed: dict[str, Mapping[str, Any]] = {scenario.SENDERS[0]: {}, scenario.REFUSES: STUBBORN}
        refusal = await runner.load(f"{scenario.REFUSES} refuses", scenario.BEFORE, mixed)
        mismatches = runner.mismatches()
        second, moved = await runner.move(configuration)
        again = await runner.load(f"PFC {scenario.AFTER}", scenario.AFTER, as_agreed)
        return scenario.Outcome(without, first, lossless, refusal, mismatches, second, again), moved

    outcome, moved = bench.run(RUN, topology, configuration, body, settings)
    figures: dict[str, plain.Value] = {
        "agreed after ms": outcome.first.seconds * 1000,
        "moved after ms": outcome.second.seconds * 1000,
        "lost without DCBX": sum(outcome.without.lost.values()),
        "lost as agreed": sum(outcome.lossless.lost.values()) + sum(outcome.moved.lost.values()),
        "lost in the move, priority 3": moved.lost_moving[scenario.BEFORE],
        "lost in the move, priority 4": moved.lost_moving[scenario.AFTER],
        f"{FOLLOWS}: resent": moved.follows.resent,
        f"{STAYS}: resent": moved.stays.resent,
    }
    checks = [*scenario.verdict(outcome), *_moved_checks(moved)]
    plots = [runner.plot for runner in runners if runner.plot is not None]
    return plain.Outcome(checks=checks, tables=[_table(outcome)], plots=plots, figures=figures)


def _moved_checks(moved: Moved) -> list[Check]:
    follows, stays, old, new = moved.follows, moved.stays, scenario.BEFORE, scenario.AFTER
    elsewhere = sum(moved.lost_after.values()) - follows.lost_after - stays.lost_after
    lost_moving = ", ".join(f"{frames:,} of priority {n}" for n, frames in moved.lost_moving.items())
    return [
        Check(
            f"{FOLLOWS}, which runs through the move and follows it, is lossless at priority {new} from then on",
            follows.sent_after[new] > 0
            and not (follows.sent_after[old] or follows.resent_after or follows.lost_after or elsewhere),
            f"{follows.sent_after[new]:,} frames of priority {new}, {follows.sent_after[old]} of {old}, "
            f"{follows.lost_after + elsewhere} lost, {follows.resent_after} sent again",
        ),
        Check(
            f"{STAYS}, which keeps its marks, has lost its losslessness",
            stays.sent_after[old] > 0 and not stays.sent_after[new] and stays.lost_after > 0,
            f"{stays.sent_after[old]:,} frames of priority {old}, {stays.lost_after:,} lost at leaf1, "
            f"{stays.resent_after:,} sent again",
        ),
        Check(
            "the move is not hitless, but a reliable connection delivers everything",
            sum(moved.lost_moving.values()) > 0 and all(due == got for due, got in moved.delivered.values()),
            f"lost {lost_moving} while it took {moved.all_us / 1000:.2f} ms (hosts: {moved.hosts_us / 1000:.2f} ms); "
            f"{FOLLOWS} sent {follows.resent:,} packets again",
        ),
    ]


def _table(outcome: scenario.Outcome) -> plain.Table:
    loads = (outcome.without, outcome.lossless, outcome.refusal, outcome.moved)
    rows = [
        [load.name, host, f"{load.sent[host]:,}", f"{load.lost[host]:,}", f"{load.xoff:,}"]
        for load in loads
        for host in load.sent
    ]
    return plain.Table("Incasts to h3 (frames)", ("load", "from", "sent", "lost", "XOFF"), rows)
