"""Scenario vendor-chain (requirement R23): server - switch - switch - server, each of another maker, loaded up to 120%.

h1 writes through swA and swB to h2, whose host takes less than the link brings; h3 at swB writes to h2 as well. The
load goes up to 120% of the line, and PFC goes the whole chain: h2 pauses swB, swB pauses swA, swA pauses h1. Then the
makers differ, one thing at a time: how swB spells XON and XOFF, how swA reads a time, how fast swA heeds, for which
cable swB's headroom was set, for which priority swA does PFC at all. PFC is captured at each node. In virtual time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dcb.headroom import exact_headroom
from dcb.units import PS_PER_US
from topologies.description import Endpoint, Host, Link, Switch, Tier, Topology
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table, Value
from topologies.settings import STORAGE_PRIORITY, Dcb, controller_config

if TYPE_CHECKING:
    from hosts.nic_config import NicConfig
    from topologies.virtual import Bench, VirtualLab

NAME = "vendor-chain"
SUMMARY = "server - switch - switch - server of different makers up to 120% load: which differences of PFC interoperate"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "drain_percent": Option(90, "of the line that h2's host takes", low=20, high=100),
    "cross_percent": Option(40, "of the line that h3 offers", low=1, high=90),
    "response_us": Option(47, "of the slow switch", low=1, high=200),
    "length_m": Option(1000, "of the long cable between the switches", low=20, high=20_000),
    "window_us": Option(1000, "measured at each load", low=100, high=10_000),
}
LOSSLESS, OTHER = STORAGE_PRIORITY, 4
LOADS = (60, 80, 100, 120)
SHORT_M, MTU_BYTES = 10, 1100
XOFF_BYTES, XON_BYTES = 400_000, 380_000
A_TO_B, B_TO_A = 2, 3  # ports between the switches
LOST = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool", "tm_drop_queue")
CHAIN = (("h2", "swB"), ("swB", "swA"), ("swA", "h1"))  # who pauses whom
BETWEEN = CHAIN[1]


@dataclass(frozen=True, slots=True)
class Case:
    """One chain. `lossless` and `full`: what it should come to at 120%: nothing lost, the rate of equals."""

    b_sends: str = "standard"
    a_reads: str = "standard"
    slow: bool = False  # swA heeds after response_us
    far: bool = False  # the long cable
    told: bool = True  # swB's headroom is planned for it
    a_pfc: int = LOSSLESS
    lossless: bool = True
    full: bool = True


STANDARD = "both as 802.1Qbb"
CASES: Mapping[str, Case] = {
    STANDARD: Case(),
    "B clears the bit for XON": Case(b_sends="clear-bit", full=False),
    "B clears the bit, A is told": Case(b_sends="clear-bit", a_reads="clear-bit"),
    "B says 0x8000 for XOFF": Case(b_sends="until-resumed"),
    "A reads the top bit as for ever": Case(a_reads="until-resumed"),
    "A heeds late, B does not know": Case(slow=True, told=False, lossless=False),
    "A heeds late, B plans for it": Case(slow=True),
    "long cable, B does not know": Case(far=True, told=False, lossless=False),
    "long cable, B plans for it": Case(far=True),
    "A does PFC for priority 4": Case(a_pfc=OTHER, lossless=False),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One load: goodput to h2 in Gb/s, frames lost, XOFFs by (sender, receiver), how long swA was paused."""

    gbps: float
    lost: int
    xoffs: Mapping[tuple[str, str], int]
    paused_percent: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What one chain showed at each load, and what `dcbtraffic explain` says of the PFC that each node sent."""

    steps: Mapping[int, Step]
    explained: Mapping[tuple[str, str], list[str]]


def topology(rate_bps: int) -> Topology:
    """h1 - swA - swB - h2, and h3 at swB."""
    switches = (Switch("swA", Tier.LEAF, 1, (1, A_TO_B)), Switch("swB", Tier.LEAF, 2, (1, 2, B_TO_A)))
    hosts = (Host("h1", "swA", 1, 1), Host("h2", "swB", 2, 1), Host("h3", "swB", 2, 2))
    links = [Link(Endpoint(h.name, 0), Endpoint(h.leaf, h.number), rate_bps) for h in hosts]
    links.append(Link(Endpoint("swA", A_TO_B), Endpoint("swB", B_TO_A), rate_bps))
    return Topology("chain", switches, hosts, tuple(links))


def configuration(fabric: Topology, case: Case, options: Mapping[str, Value]) -> dict[str, Any]:
    """Both switches, with what differs in this chain."""
    rate_bps = fabric.links[0].rate_bps
    near = exact_headroom(rate_bps, SHORT_M, mtu_bytes=MTU_BYTES).headroom_bytes
    dcb = Dcb(pfc=(LOSSLESS,), xoff_bytes=XOFF_BYTES, xon_bytes=XON_BYTES, headroom_bytes=near)
    made = deepcopy(controller_config(fabric, dcb))
    planned = exact_headroom(
        rate_bps,
        int(options["length_m"]) if case.far else SHORT_M,
        mtu_bytes=MTU_BYTES,
        response_ps=int(options["response_us"]) * PS_PER_US if case.slow else 0,
    ).headroom_bytes
    made["buffer_profiles"]["from-swA"] = made["buffer_profiles"]["lossless"] | {
        "headroom": planned if case.told else near
    }
    to_a, to_b = made["switches"]["swB"]["ports"][B_TO_A], made["switches"]["swA"]["ports"][A_TO_B]
    to_a["buffers"][LOSSLESS] = "from-swA"
    to_a["pfc_dialect"] = {"tx": case.b_sends}
    to_b["pfc_dialect"] = {"rx": case.a_reads}
    to_b["pfc"] = [case.a_pfc]
    return made


def run(bench: Bench) -> Outcome:
    """A fabric for each chain; the load goes up on it."""
    fabric = topology(bench.number("rate_gbps") * 10**9)
    seen = {}
    for number, (name, case) in enumerate(CASES.items()):
        with _captures(bench, name) as folder:
            steps = _run(bench, fabric, name, case, folder)
            seen[name] = Seen(steps, _explained(fabric, folder))
        bench.progress(f"{number + 1} of {len(CASES)} chains done")
    return Outcome(
        verdict(seen),
        [_table(seen), _pfc_table(seen[STANDARD])],
        [_plot(seen)],
        _figures(seen),
        list(_notes(seen)),
    )


def _notes(seen: Mapping[str, Seen]) -> Iterator[str]:
    """`dcbtraffic explain`, at each node of equals, and between the switches elsewhere."""
    for name, s in seen.items():
        for way in CHAIN if name == STANDARD else (BETWEEN,):
            for line in s.explained[way]:
                yield f"{name}: {way[0]} to {way[1]}: {line}"


@contextmanager
def _captures(bench: Bench, name: str) -> Iterator[Path]:
    """Where the pcaps of a run go: kept with --pcap, else read and thrown away."""
    if bench.captures is not None:
        yield bench.captures / name
    else:
        with tempfile.TemporaryDirectory(prefix="dcblab-") as made:
            yield Path(made)


def _capture_name(fabric: Topology, sender: str, receiver: str) -> str:
    """File of a direction, as `Link.capture` names it."""
    link = next(x for x in fabric.links if {x.a.node, x.b.node} == {sender, receiver})
    a, b = (link.a, link.b) if link.a.node == sender else (link.b, link.a)
    return f"{a.node}-{a.port}_{b.node}-{b.port}.pcap"


def _explained(fabric: Topology, folder: Path) -> dict[tuple[str, str], list[str]]:
    """Hints and summary of what each node sent, by 802.1Qbb, as `dcbtraffic explain` has them."""
    from hosts.capture import explain_capture

    found = {}
    for way in CHAIN:
        path = folder / _capture_name(fabric, *way)
        lines = [line.strip() for line in explain_capture(path, fabric.links[0].rate_bps, as_json=False)]
        summary = next(n for n, line in enumerate(lines) if line.endswith("of them invalid"))
        found[way] = [*dict.fromkeys(line for line in lines[:summary] if line.startswith("hint")), *lines[summary:]]
    return found


def _run(bench: Bench, fabric: Topology, name: str, case: Case, folder: Path) -> dict[int, Step]:
    from hosts.nic_config import ReceiveBuffer
    from topologies.virtual import LabSettings

    rate_bps, cross = fabric.links[0].rate_bps, bench.number("cross_percent")
    drain_bps = rate_bps * bench.number("drain_percent") // 100

    def nic(host: Host, made: NicConfig) -> NicConfig:
        slow = ReceiveBuffer(drain_bps=drain_bps, bytes=1 << 20)
        return replace(made, buffer=slow) if host.name == "h2" else made

    async def body(lab: VirtualLab) -> dict[int, Step]:
        if case.slow:
            lab.link("swA", "swB").from_("swB").set_pfc_response(bench.number("response_us") * PS_PER_US)
        found = {}
        for load in LOADS:
            offered = {"h3": min(cross, load - 1), "h1": load - min(cross, load - 1)}
            flows = [
                lab.rdma(host, "h2", reliable=False, rate_bps=rate_bps * percent // 100, priority=LOSSLESS)
                for host, percent in offered.items()
            ]
            await lab.sleep(us=400)  # what does not fit has filled the buffers
            found[load] = step = await _measure(lab, bench, flows, folder if load == LOADS[-1] else None)
            for what, value in (("goodput Gb/s", step.gbps), ("lost", step.lost)):
                bench.metrics.append(Metric(name, lab.now_ps, what, value, {"load_percent": str(load)}))
            lab.stop(flows)
            await lab.drained()
        return found

    settings = LabSettings(length_m=SHORT_M, fabric_length_m=bench.number("length_m") if case.far else SHORT_M, nic=nic)
    return bench.run(name, fabric, configuration(fabric, case, bench.options), body, settings)


async def _measure(lab: VirtualLab, bench: Bench, flows: list[Any], folder: Path | None) -> Step:
    from topologies.virtual.pauses import xoffs

    async def lost() -> int:
        snapshot = await lab.snapshot(LOST, ())
        return sum(snapshot.packets(counter, LOSSLESS) for counter in LOST)

    def received() -> int:
        return sum(flow.received.rx_bytes for flow in flows)

    def paused() -> int:
        return int(lab.core("swA").tm.read_state("paused_ns", A_TO_B * 8 + LOSSLESS))

    window_us = bench.number("window_us")
    start, gone, before, silent = received(), await lost(), xoffs(lab), paused()
    if folder is not None and bench.captures is None:
        folder.mkdir(parents=True, exist_ok=True)
        for a, b in CHAIN:
            lab.link(a, b).from_(a).capture(folder / _capture_name(lab.topology, a, b))
    await lab.sleep(us=window_us)
    counts = {way: n[LOSSLESS] - before[way][LOSSLESS] for way, n in xoffs(lab).items()}
    share = (paused() - silent) / (10 * window_us)
    step = Step((received() - start) * 8e-3 / window_us, await lost() - gone, counts, share)
    if folder is not None and bench.captures is None:
        for a, b in CHAIN:
            lab.link(a, b).from_(a).capture(None)
    return step


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(seen: Mapping[str, Seen]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    top = LOADS[-1]
    best = {load: step.gbps for load, step in seen[STANDARD].steps.items()}
    chain = {way: seen[STANDARD].steps[top].xoffs[way] for way in CHAIN}
    checks = [
        Check(
            f"at {top}% PFC goes the whole chain, and is seen at each node",
            all(chain.values()),
            ", ".join(f"{a} to {b} {n} XOFFs" for (a, b), n in chain.items()),
        ),
    ]
    low = [f"{name} {step.lost}" for name, s in seen.items() if (step := s.steps[LOADS[0]]).lost]
    same = all(abs(s.steps[LOADS[0]].gbps / best[LOADS[0]] - 1) < 0.01 for s in seen.values())
    checks.append(
        Check(
            f"at {LOADS[0]}% no chain shows its fault: nothing lost, the same goodput",
            not low and same,
            ", ".join(low) or f"{best[LOADS[0]]:.1f} Gb/s in all {len(seen)}",
        )
    )
    for name, case in CASES.items():
        step = seen[name].steps[top]
        ratio = step.gbps / best[top]
        if case.lossless:
            words = "nothing is lost" + (
                ", at full rate" if case.full else ", but throughput is down by a fifth or more"
            )
            held = step.lost == 0 and (ratio > 0.98 if case.full else ratio < 0.8)
        else:
            words, held = "lossless frames are lost", step.lost > 0
        evidence = f"{step.lost:,} lost, {step.gbps:.1f} of {best[top]:.1f} Gb/s, swA paused {step.paused_percent:.0f}%"
        checks.append(Check(f"{name}: {words}", held, f"{evidence} of the time"))
    return checks


def _figures(seen: Mapping[str, Seen]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, s in seen.items():
        for load, step in s.steps.items():
            found[f"{name}, {load}%: Gb/s"] = round(step.gbps, 2)
            found[f"{name}, {load}%: lost"] = step.lost
    return found


def _table(seen: Mapping[str, Seen]) -> Table:
    rows = []
    for name, s in seen.items():
        top = s.steps[LOADS[-1]]
        cells = [
            f"{s.steps[load].gbps:.1f}" + (f" ({s.steps[load].lost:,})" if s.steps[load].lost else "") for load in LOADS
        ]
        rows.append([name, *cells, f"{top.xoffs[BETWEEN]}", f"{top.paused_percent:.0f}%", _word(CASES[name], top)])
    heads = ("chain", *(f"{load}%" for load in LOADS), "XOFFs B to A", "A paused", "at 120%")
    return Table("Goodput to h2 over offered load, Gb/s (frames lost)", heads, rows)


def _word(case: Case, step: Step) -> str:
    if step.lost:
        return "loses"
    return "interoperates" if case.full else "lossless, slow"


def _pfc_table(standard: Seen) -> Table:
    rows = [[f"{a} to {b}", *(str(standard.steps[load].xoffs[a, b]) for load in LOADS)] for a, b in CHAIN]
    return Table(f"XOFF frames, {STANDARD}", ("from and to", *(f"{load}%" for load in LOADS)), rows)


def _plot(seen: Mapping[str, Seen]) -> Plot:
    loads = [float(load) for load in LOADS]
    dialects = [name for name, case in CASES.items() if not case.slow and not case.far and case.a_pfc == LOSSLESS]
    others = [STANDARD, *(name for name in CASES if name not in dialects)]

    def lines(names: list[str]) -> list[Line]:
        return [Line(name, loads, [seen[name].steps[load].gbps for load in LOADS], "points") for name in names]

    lost = [Line(name, loads, [float(seen[name].steps[load].lost) for load in LOADS], "points") for name in others]
    return Plot(
        NAME,
        "What reaches h2, over the offered load",
        "% of the line offered",
        [
            Panel("Gb/s", lines(dialects), title="how PFC is spelled"),
            Panel("Gb/s", lines(others), title="response, headroom, priority"),
            Panel("frames lost", lost, title="response, headroom, priority"),
        ],
    )
