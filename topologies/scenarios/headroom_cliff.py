"""Scenario headroom-cliff: with the planned headroom nothing is lost, with one byte less a frame is. In virtual time.

h2's NIC is stuck and pauses its leaf; h1 sends lossless frames of one size to it without a gap. The leaf says XOFF to
h1 in the worst moment there is: h3's frame to h1 has started a picosecond before, and the PFC frame has to wait for
it. What still comes from h1 fills the headroom. Over cables of 5 m to 2 km at 100, 200 and 400 Gb/s the headroom is set
(by the controller, live) to what `dcb.headroom.exact` plans, to one byte less, and to what HPCC's simulator reserves.
The unit of our buffer is the byte; with one byte less, the last frame finds no room and is dropped whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcb.headroom import DEFAULTS, delay_headroom, exact_headroom, sonic_headroom
from dcb.headroom.constants import QUANTUM_BITS
from dcb.headroom.exact import link_ps, wire_ps
from dcb.units import PS_PER_S, PS_PER_US
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY, Dcb, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "headroom-cliff"
SUMMARY = "planned headroom loses nothing, one byte less loses a frame: over length and rate, beside other formulas"
OPTIONS = {
    "payload_bytes": Option(4096, "of every RDMA packet", low=256, high=4096),
    "longest_m": Option(2000, "longest cable", low=5, high=20_000),
    "rate_gbps": Option("all", "rates of links", choices=("all", "100", "200", "400")),
    "response": Option("standard", "of the peer: what 802.3 allows, or none", choices=("standard", "none")),
}
LOSSLESS = STORAGE_PRIORITY
RATES_GBPS = (100, 200, 400)
LENGTHS_M = (5, 40, 100, 300, 600, 1000, 2000, 5000, 20_000)
STAIRS_M, STEPS = 300, 8
HEADERS_BYTES = 58  # Ethernet, IPv4, UDP, BTH, invariant CRC; without FCS
RETH_BYTES = 16  # in the first packet of a message
HELD_FRAMES = 5  # in the group when the crossing one comes
INDEX = 1 * 8 + LOSSLESS  # of port 1, to h1
SETTLE_US = 30


@dataclass(frozen=True, slots=True)
class Case:
    """One cable. Sizes of frames without FCS."""

    rate_bps: int
    length_m: int
    frame_bytes: int
    response_ps: int

    @property
    def planned(self) -> int:
        """By the exact method, for a peer that sends frames of one size."""
        size = self.frame_bytes
        return exact_headroom(
            self.rate_bps, self.length_m, mtu_bytes=size, min_frame_bytes=size, response_ps=self.response_ps
        ).headroom_bytes

    @property
    def hpcc(self) -> int:
        """3 x rate x delay of the link, as HPCC's simulator has it."""
        return 3 * self.rate_bps * link_ps(self.length_m) // (8 * PS_PER_S)

    @property
    def sonic(self) -> int:
        """SONiC's dynamic formula for Spectrum-1: its port MTU of 9100, its pause quanta, its cells."""
        return sonic_headroom(self.rate_bps, self.length_m, lossless_mtu_bytes=self.frame_bytes).headroom_bytes

    @property
    def annex_o(self) -> int:
        """Delay terms in the manner of 802.1Q annex O. Above 100 Gb/s no interface delay is known: counted as none."""
        known = dict(DEFAULTS.named("interface_bits").by_rate)
        constants = DEFAULTS if self.rate_bps in known else DEFAULTS.override({"interface_bits": 0})
        size = self.frame_bytes + 4
        return delay_headroom(
            self.rate_bps, self.length_m, mtu_out_bytes=size, mtu_in_bytes=size, constants=constants
        ).headroom_bytes

    @property
    def has_interface_delay(self) -> bool:
        """Whether the delay terms are complete at this rate."""
        return self.rate_bps in dict(DEFAULTS.named("interface_bits").by_rate)


@dataclass(frozen=True, slots=True)
class Shot:
    """One try with some headroom: frames lost, and the most that was used of it."""

    headroom: int
    lost: int
    used: int


def response_ps(rate_bps: int, kind: str) -> int:
    """What a peer takes to heed a pause."""
    if kind == "none":
        return 0
    quanta = DEFAULTS.get("response_quanta", rate_bps)
    return int(quanta * QUANTUM_BITS * PS_PER_S / rate_bps)


def lengths(longest_m: int) -> list[int]:
    return [length for length in LENGTHS_M if length <= longest_m]


def run(bench: Bench) -> Outcome:
    """A fabric for each rate; cables are changed under it."""
    size = bench.number("payload_bytes") + HEADERS_BYTES
    shots: dict[Case, list[Shot]] = {}
    stairs: list[Shot] = []
    stairs_case: Case | None = None
    chosen = str(bench.options["rate_gbps"])
    for rate_gbps in RATES_GBPS if chosen == "all" else (int(chosen),):
        rate_bps = rate_gbps * 10**9
        response = response_ps(rate_bps, str(bench.options["response"]))
        cases = [Case(rate_bps, length, size, response) for length in lengths(bench.number("longest_m"))]
        tries = {case: [case.planned, case.planned - 1, case.hpcc] for case in cases}
        last = next((c for c in reversed(cases) if c.length_m <= STAIRS_M), cases[0])
        if stairs_case is None:
            stairs_case = last
            tries[last] += [max(0, last.planned - n * size // 2) for n in range(1, 2 * STEPS)]
        found = _run(bench, f"{rate_gbps}G", rate_bps, tries)
        for case, seen in found.items():
            shots[case] = list(seen[:3])
            if case is stairs_case:
                stairs = [seen[0], seen[1], *seen[3:]]
    assert stairs_case is not None
    return Outcome(
        verdict(shots, stairs_case, stairs),
        [_table(shots)],
        [_plot(shots), _stairs_plot(stairs_case, stairs)],
        _figures(shots),
        [
            "unit: our traffic manager counts bytes where an ASIC counts cells: 'one cell less' is one byte here",
            *(f"peer's response at {c.rate_bps // 10**9}G: {c.response_ps / 1e3:.0f} ns" for c in _firsts(shots)),
            "annex O: frames of the same size; no interface delay is known above 100G, there it counts none",
            "SONiC: Spectrum-1 with its defaults (port MTU 9100), lossless MTU as here",
        ],
    )


def topology(rate_bps: int) -> Topology:
    return leaf_spine(1, 1, 3, rate_bps)


def _run(bench: Bench, name: str, rate_bps: int, tries: dict[Case, list[int]]) -> dict[Case, list[Shot]]:
    from topologies.virtual import LabSettings

    fabric = topology(rate_bps)
    size = next(iter(tries)).frame_bytes
    xoff = RETH_BYTES + HELD_FRAMES * size + 1  # the crossing frame finds xoff - 1: all of it but a byte is beyond

    def dcb(headroom: int) -> Dcb:
        return Dcb(pfc=(LOSSLESS,), reserved_bytes=0, xoff_bytes=xoff, xon_bytes=size, headroom_bytes=headroom)

    async def body(lab: VirtualLab) -> dict[Case, list[Shot]]:
        found: dict[Case, list[Shot]] = {}
        for case, headrooms in tries.items():
            for link in lab.fabric.links:
                for direction in link.directions:
                    direction.set_delay(delay_ps=link_ps(case.length_m))
            lab.link("h1", "leaf1").from_("leaf1").set_pfc_response(case.response_ps)
            found[case] = []
            for headroom in headrooms:
                await lab.apply(controller_config(fabric, dcb(headroom)))
                found[case].append(await _shoot(lab, case, headroom))
                shot, labels = found[case][-1], {"length_m": str(case.length_m), "headroom": str(headroom)}
                bench.metrics.append(Metric(name, lab.now_ps, "frames lost", shot.lost, labels))
                bench.metrics.append(Metric(name, lab.now_ps, "headroom used", shot.used, labels))
        return found

    config = controller_config(fabric, dcb(next(iter(tries.values()))[0]))
    return bench.run(name, fabric, config, body, LabSettings(length_m=next(iter(tries)).length_m))


async def _shoot(lab: VirtualLab, case: Case, headroom: int) -> Shot:
    """h2 stuck, h1 into it, h3's frame to h1 a picosecond too early."""
    core, size, delay = lab.core("leaf1"), case.frame_bytes, link_ps(case.length_m)
    byte_ps = 8 * PS_PER_S // case.rate_bps
    before = core.tm.read_counter("drop_headroom", INDEX).packets
    core.tm.clear_watermark("pg_headroom_watermark", INDEX)
    start = lab.now_ps + 2 * delay + SETTLE_US * PS_PER_US
    lab.nics["h2"].storm([LOSSLESS], 10 * PS_PER_US, start_ps=lab.now_ps)
    flow = lab.rdma("h1", "h2", reliable=False, start_ps=start, mtu_bytes=size - HEADERS_BYTES, priority=LOSSLESS)
    held = (HELD_FRAMES * (size + 24) + RETH_BYTES) * byte_ps
    crossing = start + held + (size + 12) * byte_ps + delay
    payload = size - HEADERS_BYTES - RETH_BYTES  # a frame of the same size, in one packet
    lab.rdma(
        "h3",
        "h1",
        bytes=payload,
        reliable=False,
        start_ps=crossing - 1 - (size + 12) * byte_ps - delay,
        mtu_bytes=payload,
        priority=0,
    )
    silent = crossing + case.response_ps + 2 * delay + 4 * wire_ps(size, case.rate_bps)
    await lab.sleep_until(silent + SETTLE_US * PS_PER_US)
    lab.stop([flow])
    lost = core.tm.read_counter("drop_headroom", INDEX).packets - before
    used = core.tm.read_state("pg_headroom_watermark", INDEX)
    lab.nics["h2"].storm((), 1)
    await lab.sleep(us=200)  # the last XOFF has run out
    await lab.drained()
    return Shot(headroom, lost, used)


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(shots: dict[Case, list[Shot]], stairs_case: Case, stairs: Sequence[Shot]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    wrong = [_named(c) for c, (whole, _, _) in shots.items() if (whole.lost, whole.used) != (0, c.planned)]
    short = [_named(c) for c, (_, less, _) in shots.items() if less.lost != 1]
    steps = [(s.headroom, s.lost, steps_lost(stairs_case, s.headroom)) for s in stairs]
    off = [step for step in steps if step[1] != step[2]]
    losing = {c for c, (_, _, hpcc) in shots.items() if hpcc.lost}
    saved = {c for c in shots if c not in losing}
    checks = [
        Check(
            "with the planned headroom nothing is lost, and every byte of it is used",
            not wrong,
            f"{len(shots)} cables, {'not so: ' + ', '.join(wrong) if wrong else 'all to the byte'}",
        ),
        Check(
            "with one byte less exactly one frame is lost",
            not short,
            f"{len(shots)} cables, {'not so: ' + ', '.join(short) if short else 'one frame each'}",
        ),
        Check(
            "further down the cliff has steps of a frame: lost = ceil((planned - headroom) / frame)",
            not off and len(steps) > 4,
            f"{len(steps)} headrooms at {_named(stairs_case)}, {steps[-1][1]} frames lost at {steps[-1][0]:,} bytes"
            + (f"; off: {off}" if off else ""),
        ),
        Check(
            "HPCC's 3 x BDP loses on short cables: it has no term for frames, PFC frame and response",
            losing == {c for c in shots if c.hpcc < c.planned} and bool(losing),
            f"loses up to {_ends(losing, max)}; enough from {_ends(saved, min) if saved else 'no length'} on",
        ),
    ]
    low = [f"SONiC at {_named(c)}" for c in shots if c.sonic < c.planned]
    low += [f"annex O at {_named(c)}" for c in shots if c.has_interface_delay and c.annex_o < c.planned]
    slack = [c.sonic - c.planned for c in shots]
    checks.append(
        Check(
            "SONiC's formula, and annex O where its interface delay is known, are never below the cliff",
            not low,
            "; ".join(low) or f"SONiC has {min(slack):,} to {max(slack):,} bytes more than is used",
        )
    )
    return checks


def steps_lost(case: Case, headroom: int) -> int:
    """Frames that find no room: what is missing, in frames, rounded up."""
    return -(-max(0, case.planned - headroom) // case.frame_bytes)


def _firsts(shots: dict[Case, list[Shot]]) -> list[Case]:
    """The first case of each rate."""
    return list({c.rate_bps: c for c in reversed(shots)}.values())[::-1]


def _named(case: Case) -> str:
    return f"{case.rate_bps // 10**9}G {case.length_m} m"


def _ends(cases: set[Case], choose: Callable[[list[int]], int]) -> str:
    rates = sorted({c.rate_bps for c in cases})
    ends = {rate: choose([c.length_m for c in cases if c.rate_bps == rate]) for rate in rates}
    return ", ".join(f"{length} m at {rate // 10**9}G" for rate, length in ends.items())


def _figures(shots: dict[Case, list[Shot]]) -> dict[str, int]:
    found = {}
    for case, (whole, less, hpcc) in shots.items():
        found[f"{_named(case)}: used bytes"] = whole.used
        found[f"{_named(case)}: lost with planned - 1"] = less.lost
        found[f"{_named(case)}: lost with 3 x BDP"] = hpcc.lost
    return found


def _table(shots: dict[Case, list[Shot]]) -> Table:
    rows = [
        [
            f"{c.rate_bps // 10**9}G",
            f"{c.length_m:,}",
            f"{c.planned:,}",
            f"{whole.used:,}",
            str(whole.lost),
            str(less.lost),
            f"{c.hpcc:,}",
            str(hpcc.lost),
            f"{c.sonic:,}",
            f"{c.annex_o:,}",
        ]
        for c, (whole, less, hpcc) in shots.items()
    ]
    heads = ("rate", "m", "planned", "used", "lost", "lost, 1 byte less", "3 x BDP", "lost", "SONiC", "annex O")
    return Table("Headroom, bytes; frames lost", heads, rows)


def _plot(shots: dict[Case, list[Shot]]) -> Plot:
    panels = []
    for rate_bps in sorted({c.rate_bps for c in shots}):
        cases = [c for c in shots if c.rate_bps == rate_bps]
        x = [float(c.length_m) for c in cases]

        def line(label: str, values: Sequence[int], style: str, x: list[float] = x) -> Line:
            return Line(label, x, [v / 1e3 for v in values], style)  # type: ignore[arg-type]

        panels.append(
            Panel(
                "kB",
                [
                    line("used in the run (the cliff)", [shots[c][0].used for c in cases], "points"),
                    line("exact method", [c.planned for c in cases], "line"),
                    line("SONiC, Spectrum-1", [c.sonic for c in cases], "dashed"),
                    line("delay terms, annex O", [c.annex_o for c in cases], "dashed"),
                    line("HPCC, 3 x BDP", [c.hpcc for c in cases], "dashed"),
                ],
                title=f"{rate_bps // 10**9} Gb/s",
                y_log=True,
            )
        )
    return Plot("headroom-cliff", "Headroom below which frames are lost, over the cable", "m", panels, x_log=True)


def _stairs_plot(case: Case, stairs: Sequence[Shot]) -> Plot:
    points = sorted(stairs, key=lambda s: s.headroom)
    x = [s.headroom / 1e3 for s in points]
    every = range(points[0].headroom, case.planned + case.frame_bytes, 64)
    panel = Panel(
        "frames lost",
        [
            Line("ceil((planned - headroom) / frame)", [h / 1e3 for h in every], [steps_lost(case, h) for h in every]),
            Line("runs", x, [float(s.lost) for s in points], "dots"),
        ],
        marks=[(case.planned / 1e3, "planned")],
    )
    return Plot("stairs", f"{_named(case)}: frames lost over headroom", "headroom, kB", [panel])
