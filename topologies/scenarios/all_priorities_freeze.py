"""Scenario all-priorities-freeze (requirement R15): PFC on all eight priorities freezes a ToR, PFC on one does not.

Two racks, traffic of all eight priorities. The operating system of one host, h1, hangs: its NIC's receive buffer fills
and the NIC pauses whatever it may. With PFC on every priority nothing of the rack moves any more, management and
control protocols included. With PFC on one, that one stands and seven go on: their frames for the hung host are dropped
at its NIC, which hurts nobody else. In virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dcb.units import PS_PER_MS, PS_PER_US
from topologies.description import Host, Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY, Dcb, controller_config

if TYPE_CHECKING:
    from fabric.engine import Series
    from hosts.nic_config import NicConfig
    from topologies.html_report import LinkMap
    from topologies.virtual import Bench, VirtualLab
    from topologies.virtual.lab import Flow

NAME = "all-priorities-freeze"
SUMMARY = "one host hangs: with PFC on all eight priorities the whole ToR freezes, with PFC on one it does not"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "load_gbps": Option(2.5, "of each of the 72 flows", low=0.5, high=3),
    "window_ms": Option(0.5, "over which throughput is measured", low=0.1, high=10),
    "nic_buffer_kb": Option(512, "receive buffer of a NIC", low=64, high=16384),
    "drain_gbps": Option(0.0, "what the sick host takes; 0: it hangs", low=0, high=100),
}
HUNG, HOSTS, LENGTH_M = "h1", 4, 10
FAST_BPS = 10**12  # what a well host takes
SETTLE = 3  # windows that the fault gets before throughput is measured
ALL, ONE = "PFC on all eight", "PFC on one"
EIGHT = tuple(range(8))
DSCP_TO_PRIORITY = {8 * p + 2: p for p in EIGHT}  # 26 is priority 3, as everywhere
PAIRS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "to the sick host": (("h2", HUNG), ("h3", HUNG), ("h4", HUNG), ("h5", HUNG)),
    "within its rack": (("h2", "h3"), ("h3", "h4"), ("h4", "h2")),
    "into its rack": (("h5", "h4"),),
    "out of its rack": (("h2", "h6"),),
}
OTHERS = ("within its rack", "into its rack", "out of its rack")


def topology(rate_bps: int) -> Topology:
    return leaf_spine(2, 2, HOSTS, rate_bps)


Rates = Mapping[tuple[str, int], float]
"""Gb/s of payload by group of flows and priority."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed. Ports are the ToR's to hosts."""

    before: Rates
    during: Rates
    after: Rates
    paused_ports: int  # where at least one priority stands: paused, or told the peer to pause
    frozen_ports: int  # where all eight do
    host_dropped: int
    lossless_lost: int
    curve: list[Line]
    marks: list[tuple[float, str]]
    picture: LinkMap

    def standing(self, group: str) -> list[int]:
        """Priorities of which a group received nothing while the host was sick."""
        return [p for p in EIGHT if self.during[group, p] == 0]

    def share(self, group: str, priority: int) -> float:
        """Of what it had before."""
        return self.during[group, priority] / self.before[group, priority]


def run(bench: Bench) -> Outcome:
    """The same fault twice: PFC on all eight priorities, and on one."""
    runs = {ALL: _run(bench, ALL, EIGHT), ONE: _run(bench, ONE, (STORAGE_PRIORITY,))}
    return Outcome(
        verdict(runs),
        [_table(runs)],
        [_plot(runs)],
        {f"{name}: {what}": value for name, seen in runs.items() for what, value in _figures(seen)},
        [
            "cure: PFC only on priorities that need it (RoCE); for those a watchdog on ports to hosts (nic-storm)",
            "the deployment article (R15) enabled it on all and lost a ToR at peak hour; it gives no figures",
        ],
        [seen.picture for seen in runs.values()],
    )


def _run(bench: Bench, name: str, priorities: tuple[int, ...]) -> Seen:
    from hosts.nic_config import ReceiveBuffer
    from topologies.virtual import LabSettings, planned
    from topologies.virtual.pauses import link_map

    fabric = topology(bench.number("rate_gbps") * 10**9)
    dcb = planned(fabric, Dcb(pfc=priorities, dscp_to_priority=DSCP_TO_PRIORITY), length_m=LENGTH_M)
    window_ms, buffer = float(bench.options["window_ms"]), bench.number("nic_buffer_kb") * 1000
    drain_bps = round(float(bench.options["drain_gbps"]) * 1e9)

    def nic(host: Host, config: NicConfig) -> NicConfig:
        if host.name != HUNG:
            return config
        # one buffer for all: a priority may take a sixteenth of it before the NIC pauses it
        return replace(config, buffer=ReceiveBuffer(FAST_BPS, buffer, buffer // 16, buffer // 32))

    async def body(lab: VirtualLab) -> Seen:
        flows = _start(lab, round(float(bench.options["load_gbps"]) * 1e9))
        await lab.sleep(us=100)
        start_ps = lab.now_ps
        fine = lab.fabric.sample(20 * PS_PER_US, _wires(lab), until_ps=start_ps + round(6.5 * window_ms * PS_PER_MS))
        before = await _measure(lab, flows, window_ms)
        hung_ms = (lab.now_ps - start_ps) / PS_PER_MS
        lab.nics[HUNG].set_drain(drain_bps, lab.now_ps, stalled=not drain_bps)
        await lab.sleep(ms=SETTLE * window_ms)
        during = await _measure(lab, flows, window_ms)
        paused, frozen = _ports(lab)
        picture = link_map(lab, f"{name}: XOFF frames since the host hangs")
        mended_ms = (lab.now_ps - start_ps) / PS_PER_MS
        lab.nics[HUNG].set_drain(FAST_BPS, lab.now_ps)
        await lab.sleep(ms=window_ms)
        after = await _measure(lab, flows, window_ms)
        lab.stop()
        await lab.finished()
        await lab.drained()
        end = await lab.snapshot(registers=())
        return Seen(
            before=before,
            during=during,
            after=after,
            paused_ports=paused,
            frozen_ports=frozen,
            host_dropped=lab.nics[HUNG].stats().rx_drop,
            lossless_lost=sum(end.lost(p) for p in priorities),
            curve=_curve(bench, name, fine, start_ps),
            marks=[(hung_ms, f"{HUNG} hangs"), (mended_ms, "and is well again")],
            picture=picture,
        )

    config = controller_config(fabric, dcb)
    settings = LabSettings(length_m=LENGTH_M, pfc=frozenset(priorities), dscp_to_priority=DSCP_TO_PRIORITY, nic=nic)
    return bench.run(name, fabric, config, body, settings)


def _start(lab: VirtualLab, load_bps: int) -> dict[tuple[str, int], list[Flow]]:
    return {
        (group, p): [lab.rdma(a, b, reliable=False, rate_bps=load_bps, priority=p) for a, b in pairs]
        for group, pairs in PAIRS.items()
        for p in EIGHT
    }


async def _measure(lab: VirtualLab, flows: Mapping[tuple[str, int], list[Flow]], window_ms: float) -> Rates:
    def received() -> dict[tuple[str, int], int]:
        return {key: sum(flow.received.rx_bytes for flow in held) for key, held in flows.items()}

    before = received()
    await lab.sleep(ms=window_ms)
    return {key: (count - before[key]) * 8e-6 / window_ms for key, count in received().items()}


def _ports(lab: VirtualLab) -> tuple[int, int]:
    """Ports of leaf1 to hosts with a priority that stands, and those where all eight do."""
    tm = lab.core("leaf1").tm
    standing = [
        sum(bool(tm.read_state("pause_left", port * 8 + p) or tm.read_state("pg_xoff", port * 8 + p)) for p in EIGHT)
        for port in range(1, HOSTS + 1)
    ]
    return sum(n > 0 for n in standing), sum(n == 8 for n in standing)


def _wires(lab: VirtualLab) -> dict[str, Any]:
    """Bytes towards the hosts that are not sick, by host."""
    hosts = ("h3", "h4", "h6")
    labels = ("within the rack (h3)", "within and into the rack (h4)", "out of the rack (h6)")
    links = [(lab.topology.host(host).leaf, host) for host in hosts]
    return {
        label: lab.link(leaf, host).from_(leaf).source_of("bytes")
        for label, (leaf, host) in zip(labels, links, strict=True)
    }


def _curve(bench: Bench, name: str, series: Series, start_ps: int) -> list[Line]:
    from topologies.virtual.bench import rates

    slopes = [rates(line) for line in bench.record(name, series)]
    return [Line(s.label, [x - start_ps / PS_PER_MS for x in s.x], s.y) for s in slopes]


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(runs: Mapping[str, Seen]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    every, one = runs[ALL], runs[ONE]
    stands = {group: every.standing(group) for group in OTHERS}
    goes = [p for p in EIGHT if p != STORAGE_PRIORITY]
    least = min((one.share(group, p), group, p) for group in OTHERS for p in goes)
    back = {name: min(s.after[key] / s.before[key] for key in s.before if key[0] in OTHERS) for name, s in runs.items()}
    return [
        Check(
            f"{ALL}: one sick host stops every priority of every other flow of its rack",
            all(found == list(EIGHT) for found in stands.values()),
            "; ".join(f"{group}: {len(found)} of 8 stand" for group, found in stands.items()),
        ),
        Check(
            f"{ALL}: the ToR is frozen: all eight priorities stand at every port to a host",
            every.frozen_ports == HOSTS,
            f"{every.frozen_ports} of {HOSTS} ports frozen, {every.paused_ports} with a priority that stands",
        ),
        Check(
            f"{ONE}: the other seven go on undiminished",
            least[0] > 0.97,
            f"at least {100 * least[0]:.1f}% of before ({least[1]}, priority {least[2]})",
        ),
        Check(
            f"{ONE}: the lossless one stands there too: fewer priorities contain a fault, a watchdog ends it",
            all(STORAGE_PRIORITY in one.standing(group) for group in ("within its rack", "into its rack")),
            f"priority {STORAGE_PRIORITY} of: "
            + ", ".join(group for group in OTHERS if STORAGE_PRIORITY in one.standing(group)),
        ),
        Check(
            f"{ONE}: no port of the ToR is frozen",
            one.frozen_ports == 0,
            f"{one.frozen_ports} of {HOSTS} ports; {one.host_dropped:,} frames dropped at the sick host's NIC",
        ),
        Check(
            "nothing lossless is lost in either",
            all(seen.lossless_lost == 0 for seen in runs.values()) and every.host_dropped == 0,
            ", ".join(f"{name}: {seen.lossless_lost}" for name, seen in runs.items()),
        ),
        Check(
            "when the host is well again so is the rack",
            min(back.values()) > 0.95,
            ", ".join(f"{name}: {100 * share:.0f}% at least" for name, share in back.items()),
        ),
    ]


def _figures(seen: Seen) -> Iterable[tuple[str, int | float]]:
    for group in PAIRS:
        yield f"{group}, priorities that stand", len(seen.standing(group))
    yield "others Gb/s", round(sum(rate for (group, _), rate in seen.during.items() if group in OTHERS), 3)
    yield "frozen ports", seen.frozen_ports
    yield "dropped at the host", seen.host_dropped


def _table(runs: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            group,
            f"{sum(seen.before[group, p] for p in EIGHT):.1f}",
            f"{sum(seen.during[group, p] for p in EIGHT):.1f}",
            ",".join(map(str, seen.standing(group))) or "none",
            f"{sum(seen.after[group, p] for p in EIGHT):.1f}",
        ]
        for name, seen in runs.items()
        for group in PAIRS
    ]
    heads = ("run", "flows", "Gb/s before", "host is sick", "priorities that stand", "after")
    return Table("All eight priorities together", heads, rows)


def _plot(runs: Mapping[str, Seen]) -> Plot:
    panels = [Panel("Gb/s", seen.curve, title=name, marks=seen.marks) for name, seen in runs.items()]
    return Plot("all-priorities-freeze", "What reaches hosts that are well, all priorities", "ms", panels)
