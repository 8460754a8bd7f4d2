"""Scenario deadlock (requirement R16): leaf-spine-leaf stands still after two links fail and the spines go round.

Four leaves, two spines. spine1 has lost its link to leaf1 and goes round by leaf3; spine2 has lost leaf4 and goes round
by leaf2. Packets that came down go up again, and four buffers wait for each other: leaf2, spine1, leaf3, spine2. Hosts
send RDMA; after a while nothing moves, and nothing ever will, also when the hosts have long stopped. The check of the
routes names the ring beforehand, the wait-for graph names it as it stands; a watchdog breaks it by dropping; two other
ways to route prevent it. In virtual time.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY, Dcb, controller_config, host_ports, watchdog

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "deadlock"
SUMMARY = "leaf-spine-leaf deadlock by re-routing after a failure: named before, named as it stands, broken, prevented"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "traffic_ms": Option(2.0, "of traffic", low=0.5, high=20),
    "detect_ms": Option(100, "watchdog detection time", low=100, high=5000),
}
LOSSLESS = STORAGE_PRIORITY
SECOND_PRIORITY = 4
BOUNCE_DSCP = 34
FLOWS_PER_PAIR = 2
FAILED = (("spine1", "leaf1"), ("spine2", "leaf4"))
PAIRS = (
    *(("h3", "h1"), ("h4", "h2"), ("h7", "h1"), ("h8", "h2")),  # to leaf1: half of it goes round by leaf3
    *(("h5", "h7"), ("h6", "h8"), ("h1", "h7"), ("h2", "h8")),  # to leaf4: half of it goes round by leaf2
    *(("h3", "h5"), ("h4", "h6"), ("h5", "h3"), ("h6", "h4")),  # between leaf2 and leaf3
)


def topology(rate_bps: int) -> Topology:
    return leaf_spine(4, 2, 2, rate_bps)


def _route(config: dict[str, Any], fabric: Topology, switch: str, leaf: int, *peers: str) -> None:
    """Send what is for the hosts of a leaf to these neighbours; none: drop it."""
    via = []
    for peer in peers:
        port = fabric.port_to(switch, peer)
        via.append({"port": port, "mac": fabric.switch(peer).port_mac(fabric.peer(switch, port).port)})
    for route in config["switches"][switch]["routes"]:
        if route["prefix"].startswith((f"10.{leaf}.", f"fd00:{leaf}:")):
            route.pop("via", None)
            route.update({"via": via} if via else {"drop": True})


def bounced(config: Mapping[str, Any], fabric: Topology) -> dict[str, Any]:
    """What a spine does that has lost a leaf and knows a way round: down to another leaf, which goes up again."""
    made = deepcopy(dict(config))
    _route(made, fabric, "spine1", 1, "leaf3")
    _route(made, fabric, "leaf3", 1, "spine2")
    _route(made, fabric, "spine2", 4, "leaf2")
    _route(made, fabric, "leaf2", 4, "spine1")
    return made


def without_valleys(config: Mapping[str, Any], fabric: Topology) -> dict[str, Any]:
    """The cure of routing: every leaf goes up only where the spine has a way down."""
    made = deepcopy(dict(config))
    for leaf, spine, lost in ((1, "spine2", "spine1"), (4, "spine1", "spine2")):
        _route(made, fabric, lost, leaf)
        for other in range(1, 5):
            if other != leaf:
                _route(made, fabric, f"leaf{other}", leaf, spine)
    return made


def second_priority(config: Mapping[str, Any], fabric: Topology) -> dict[str, Any]:
    """The cure of Tagger (CoNEXT 2017): what goes up a second time does so in a lossless priority of its own."""
    made = bounced(config, fabric)
    inside = made["qos_profiles"]["fabric"]
    inside["lossless"] = [LOSSLESS, SECOND_PRIORITY]
    made["qos_profiles"]["edge"] = deepcopy(inside)  # hosts may not use that mark
    inside["dscp_to_priority"] = {**inside["dscp_to_priority"], BOUNCE_DSCP: SECOND_PRIORITY}
    for switch in made["switches"].values():
        for port in switch["ports"].values():
            port["pfc"] = [LOSSLESS, SECOND_PRIORITY]
            port["buffers"][SECOND_PRIORITY] = "lossless"
    for port in host_ports(fabric, made):
        port["qos"] = "edge"
    for spine, leaf in (("spine1", "leaf3"), ("spine2", "leaf2")):
        made["switches"][spine]["ports"][fabric.port_to(spine, leaf)]["dscp_rewrite"] = {LOSSLESS: BOUNCE_DSCP}
    return made


def watched(config: Mapping[str, Any], detect_ms: int) -> dict[str, Any]:
    """The PFC watchdog on every port, action drop."""
    made = deepcopy(dict(config))
    made["pfc_watchdog"] = {"poll_interval_ms": 100}
    for switch in made["switches"].values():
        for port in switch["ports"].values():
            port["pfc_watchdog"] = watchdog(detect_ms)
    return made


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed. Times in milliseconds since traffic began."""

    possible: list[str]
    standing: list[str]
    left_bytes: int
    delivered: Line
    received_bytes: int
    dropped: int
    emptied_ms: float | None


def run(bench: Bench) -> Outcome:
    """Four fabrics: the deadlock; with a watchdog; with either prevention."""
    from topologies.virtual import planned

    fabric = topology(bench.number("rate_gbps") * 10**9)
    dcb = planned(fabric, Dcb(pfc=(LOSSLESS,)), length_m=10, xoff_bytes=60_000)
    base = controller_config(fabric, dcb)
    broken = bounced(base, fabric)
    runs = {
        "re-routed": _run(bench, fabric, "re-routed", broken),
        "watchdog": _run(bench, fabric, "watchdog", watched(broken, bench.number("detect_ms"))),
        "no valleys": _run(bench, fabric, "no valleys", without_valleys(base, fabric)),
        "second priority": _run(bench, fabric, "second priority", second_priority(base, fabric)),
    }
    return Outcome(
        _verdict(runs),
        [_table(runs)],
        [_plot(runs, float(bench.options["traffic_ms"]))],
        {f"{name}: {what}": value for name, seen in runs.items() for what, value in _figures(seen)},
        [
            *(f"possible by these routes: {text}" for text in runs["re-routed"].possible),
            *(f"standing still: {text}" for text in runs["re-routed"].standing),
            "cures: drop on a watchdog (loses frames), no routes with a valley, or a second lossless priority",
        ],
    )


def _figures(seen: Seen) -> list[tuple[str, int | float]]:
    emptied = -1.0 if seen.emptied_ms is None else round(seen.emptied_ms, 3)
    return [("bytes stuck", seen.left_bytes), ("frames dropped", seen.dropped), ("empty after ms", emptied)]


def _run(bench: Bench, fabric: Topology, name: str, config: Mapping[str, Any]) -> Seen:
    from controller import why
    from topologies.virtual import LabSettings

    traffic_ms = float(bench.options["traffic_ms"])
    patience_ms = 5 * bench.number("detect_ms") + 500

    async def body(lab: VirtualLab) -> Seen:
        possible = [item["text"] for item in why.possible(lab.controller.running)]
        for a, b in FAILED:
            lab.set_link(a, b, up=False)
        start_ps = lab.now_ps
        flows = [lab.rdma(a, b, reliable=False) for a, b in PAIRS for _ in range(FLOWS_PER_PAIR)]
        wires = {
            f"to {host.name}": lab.link(host.leaf, host.name).from_(host.leaf).source_of("bytes")
            for host in fabric.hosts
        }
        fine = lab.fabric.sample(20_000_000, wires, until_ps=lab.now_ps + round(2 * traffic_ms * 1e9))
        await lab.sleep(ms=traffic_ms)
        lab.stop(flows)
        standing: list[str] = []
        emptied_ms = None
        while (passed_ms := (lab.now_ps - start_ps) / 1e9) < patience_ms:
            if lab.is_empty():
                emptied_ms = passed_ms
                break
            if not standing:
                standing = [item["text"] for item in (await why.deadlock(lab.controller, 0.001))["now"]]
            await lab.sleep(ms=max(0.5, passed_ms / 10))
        after = await lab.snapshot(registers=("tm_pg_depth",), counters=("tm_drop_storm_tx", "tm_drop_storm_rx"))
        dropped = sum(after.packets(c, p) for c in ("tm_drop_storm_tx", "tm_drop_storm_rx") for p in range(8))
        lines = bench.record(name, fine)
        total = [sum(values) * 8e-6 for values in zip(*(line.y for line in lines), strict=True)]
        times = [x - start_ps / 1e9 for x in lines[0].x]
        slope = [
            (x1, (y1 - y0) / (x1 - x0)) for x0, x1, y0, y1 in zip(times, times[1:], total, total[1:], strict=False)
        ]
        received = sum(flow.received.rx_bytes for flow in flows)
        delivered = Line(name, [x for x, _ in slope], [y for _, y in slope])
        return Seen(possible, standing, after.buffered_bytes(), delivered, received, dropped, emptied_ms)

    priorities = frozenset({LOSSLESS, SECOND_PRIORITY}) if name == "second priority" else frozenset({LOSSLESS})
    return bench.run(name, fabric, config, body, LabSettings(length_m=10, pfc=priorities))


def _verdict(runs: Mapping[str, Seen]) -> list[Check]:
    stuck, broken = runs["re-routed"], runs["watchdog"]
    checks = [
        Check(
            "the check of the routes names the ring before a frame is sent",
            len(stuck.possible) == 1 and stuck.possible[0].count(" -> ") == 4,
            "; ".join(stuck.possible) or "none named",
        ),
        Check(
            "the fabric deadlocks: long after the last frame was sent, its buffers are as full",
            stuck.emptied_ms is None and stuck.left_bytes > 0,
            f"{stuck.left_bytes:,} bytes still wait",
        ),
        Check(
            "the wait-for graph names the ring as it stands",
            len(stuck.standing) == 1 and _same_ring(stuck.possible, stuck.standing),
            "; ".join(stuck.standing) or "none named",
        ),
        Check(
            "a watchdog breaks it, at the price of frames",
            broken.emptied_ms is not None and broken.dropped > 0 and broken.left_bytes == 0,
            f"{broken.dropped:,} frames dropped, empty after {broken.emptied_ms or 0:.1f} ms",
        ),
    ]
    for name in ("no valleys", "second priority"):
        seen = runs[name]
        checks.append(
            Check(
                f"{name}: no ring is possible, none appears, everything drains, nothing is dropped",
                not seen.possible and not seen.standing and seen.emptied_ms is not None and not seen.dropped,
                f"empty {(seen.emptied_ms or 0):.2f} ms after the start",
            )
        )
    return checks


def _same_ring(possible: list[str], standing: list[str]) -> bool:
    """Whether both name the same switches in the same order of waiting."""

    def switches(text: str) -> list[str]:
        names = [part.split(":")[0] for part in text.split(" -> ")][:-1]
        least = names.index(min(names))
        return names[least:] + names[:least]

    return switches(possible[0]) == switches(standing[0])


def _table(runs: Mapping[str, Seen]) -> Table:
    rows = [
        [
            name,
            str(len(seen.possible)),
            str(len(seen.standing)),
            f"{seen.received_bytes / 1e6:,.1f}",
            f"{seen.dropped:,}",
            f"{seen.left_bytes:,}",
            "never" if seen.emptied_ms is None else f"{seen.emptied_ms:.1f}",
        ]
        for name, seen in runs.items()
    ]
    heads = (
        "fabric",
        "rings possible",
        "rings seen",
        "MB delivered",
        "frames dropped",
        "bytes stuck",
        "empty after ms",
    )
    return Table("Deadlock", heads, rows)


def _plot(runs: Mapping[str, Seen], traffic_ms: float) -> Plot:
    lines = [seen.delivered for seen in runs.values()]
    panel = Panel("delivered to hosts, Gb/s", lines, marks=[(traffic_ms, "hosts stop")])
    return Plot("delivered", "What reaches the hosts, before and after the deadlock", "ms", [panel])
