"""Scenario all-reduce: a ring all-reduce against its closed formula, and what makes it slow. In virtual time.

N hosts hold S bytes each; every one sends 2(N-1) chunks of S/N to its successor, each when the one before has come from
its predecessor. With the links to itself it takes 2(N-1)/N * S / rate, and the latency of each of its 2(N-1) steps. The
ring is as fast as its slowest part: a host that takes its data slowly (PFC passes that on), or a link that many ring
neighbours share, as when the ring goes to and fro between two racks. The order of the ring is the cure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dcb.units import PS_PER_NS, PS_PER_S
from topologies.description import Host, Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, controller_config

if TYPE_CHECKING:
    from hosts.nic_config import NicConfig
    from topologies.virtual import Bench, VirtualLab

NAME = "all-reduce"
SUMMARY = "ring all-reduce against its closed formula; with a slow host, and over an oversubscribed spine"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "hosts": Option(8, "in the ring; even", low=4, high=64),
    "megabytes": Option(8, "at each host", low=1, high=1000),
    "slow_gbps": Option(25, "what the slow host takes", low=1, high=400),
}
LENGTH_M = 10
MTU_BYTES, HEADERS_BYTES, GAP_BYTES, RETH_BYTES, AETH_BYTES, ACK_EVERY = 1024, 58, 24, 16, 4, 16
SORTED, SLOW, CROSSED, SPREAD = "sorted by rack", "slow host", "to and fro, one spine", "to and fro, full bisection"
SLOW_HOST, NIC_BUFFER_BYTES, NIC_XOFF_BYTES = "h2", 2_000_000, 200_000
EXACT = 0.002


@dataclass(frozen=True, slots=True)
class Seen:
    """One run. Times in ps since it began; `bound_ps`: what the links, or the slow host, need for the bytes."""

    took_ps: int
    bound_ps: int
    xoff_frames: int
    lost: int
    busiest: int  # flows on the busiest link between switches
    progress: Line


def chunk_bytes(bytes_: int, hosts: int) -> int:
    """What a host sends in one step."""
    return -(-bytes_ // hosts)


def wire_bytes(chunk: int, overhead: int = GAP_BYTES) -> int:
    """What a chunk takes of a link, and the ACKs for another that share it: RETH in its first frame, an ACK for every
    16 frames and for its last. `overhead` of a frame: FCS, preamble and gap."""
    frames = -(-chunk // MTU_BYTES)
    data = chunk + frames * (HEADERS_BYTES + overhead) + RETH_BYTES
    return data + -(-frames // ACK_EVERY) * (HEADERS_BYTES + AETH_BYTES + overhead)


def bound_ps(bytes_: int, hosts: int, rate_bps: int, sharing: int = 1) -> int:
    """2(N-1)/N * S / rate, in wire bytes; `sharing`: how many chunks of a step go through one link of that rate."""
    return 2 * (hosts - 1) * wire_bytes(chunk_bytes(bytes_, hosts)) * sharing * 8 * PS_PER_S // rate_bps


def ring(hosts: int, crossing: bool) -> list[str]:
    """Order in the ring: racks one after the other, or to and fro between them at every step."""
    half = hosts // 2
    names = [f"h{n + 1}" for n in range(hosts)]
    return [name for pair in zip(names[:half], names[half:], strict=True) for name in pair] if crossing else names


def topology(rate_bps: int, hosts: int, spines: int) -> Topology:
    return leaf_spine(2, spines, hosts // 2, rate_bps)


def latency_ps(order: Sequence[str], fabric: Topology, rate_bps: int, bytes_: int) -> int:
    """What the 2(N-1) steps add: links, and at every switch a full frame once more, behind which the last one waits."""
    hosts = len(order)
    size = min(MTU_BYTES, chunk_bytes(bytes_, hosts))
    frame = (size + HEADERS_BYTES + GAP_BYTES) * 8 * PS_PER_S // rate_bps
    link = LENGTH_M * 5 * PS_PER_NS
    switches = [
        1 if fabric.host(a).leaf == fabric.host(b).leaf else 3
        for a, b in zip(order, [*order[1:], order[0]], strict=True)
    ]
    steps = 2 * (hosts - 1)
    around = [sum(switches[(first + n) % hosts] for n in range(steps)) for first in range(hosts)]
    return max(around) * (frame + link) + steps * link


def run(bench: Bench) -> Outcome:
    """Four rings."""
    rate_bps, slow_bps = bench.number("rate_gbps") * 10**9, bench.number("slow_gbps") * 10**9
    hosts, size = bench.number("hosts"), bench.number("megabytes") * 10**6
    alone = bound_ps(size, hosts, rate_bps)
    wide = hosts // 2
    seen = {
        SORTED: _run(bench, SORTED, ring(hosts, False), 1, alone),
        SLOW: _run(bench, SLOW, ring(hosts, False), 1, max(alone, slow_ps(size, hosts, slow_bps)), slow_bps),
        CROSSED: _run(bench, CROSSED, ring(hosts, True), 1, bound_ps(size, hosts, rate_bps, wide)),
        SPREAD: _run(bench, SPREAD, ring(hosts, True), wide, alone),
    }
    latency = latency_ps(ring(hosts, False), topology(rate_bps, hosts, 1), rate_bps, size)
    return Outcome(
        verdict(seen, alone + latency, wide),
        [_table(seen, size)],
        [_plot(seen)],
        {f"{name}: ms": s.took_ps / 1e9 for name, s in seen.items()},
        [
            f"2(N-1)/N * S / rate: {2 * (hosts - 1) * size * 8 / hosts / rate_bps * 1e3:.3f} ms; with headers, FCS, "
            f"preamble, gap and ACKs {alone / 1e9:.3f} ms; latency of the steps {latency / 1e6:.1f} us",
        ],
    )


def slow_ps(bytes_: int, hosts: int, slow_bps: int) -> int:
    """What a host needs that takes its frames (without FCS, preamble and gap) at `slow_bps`."""
    return 2 * (hosts - 1) * wire_bytes(chunk_bytes(bytes_, hosts), 0) * 8 * PS_PER_S // slow_bps


def _run(bench: Bench, name: str, order: Sequence[str], spines: int, bound: int, slow_bps: int | None = None) -> Seen:
    from hosts.nic_config import ReceiveBuffer
    from hosts.workloads import ring_all_reduce
    from topologies.virtual import LabSettings, planned

    rate_bps, hosts = bench.number("rate_gbps") * 10**9, len(order)
    fabric = topology(rate_bps, hosts, spines)
    dcb = planned(fabric, Dcb(pfc=(LOSSLESS,)), length_m=LENGTH_M, xoff_bytes=100_000)
    ways = [(leaf.name, spine.name) for leaf in fabric.leaves() for spine in fabric.spines()]

    def nic(host: Host, config: NicConfig) -> NicConfig:
        if slow_bps is None or host.name != SLOW_HOST:
            return config
        xoff = NIC_XOFF_BYTES
        return replace(config, buffer=ReceiveBuffer(slow_bps, NIC_BUFFER_BYTES, xoff, xoff // 2))

    async def body(lab: VirtualLab) -> Seen:
        start = lab.now_ps
        wires = [lab.link(a, b).from_(node) for a, b in ways for node in (a, b)]
        received = lab.series(
            max(1.0, bound / 1e6 / 200), bytes=lab.link("leaf1", "h1").from_("leaf1").source_of("bytes")
        )
        before = [wire.stats().sent_bytes for wire in wires]
        flows = lab.start(ring_all_reduce(order, bench.number("megabytes") * 10**6))
        await lab.finished(flows, timeout_ms=20 * bound / 1e9 + 10)
        took = max(flow.received.rx_last_ps or 0 for flow in flows) - start
        carried = max(wire.stats().sent_bytes - b for wire, b in zip(wires, before, strict=True))
        whole = 2 * (hosts - 1) * chunk_bytes(bench.number("megabytes") * 10**6, hosts)
        await lab.drained()
        after = await lab.snapshot()
        xoff = after.xoff_frames() + sum(sum(n.stats().xoff_tx) for n in lab.nics.values())
        (line,) = bench.record(name, received)
        progress = Line(name, [x - start / 1e9 for x in line.x], [y / 1e6 for y in line.y])
        return Seen(took, bound, xoff, after.lost(LOSSLESS), carried // whole, progress)

    return bench.run(name, fabric, controller_config(fabric, dcb), body, LabSettings(length_m=LENGTH_M, nic=nic))


def verdict(seen: dict[str, Seen], formula_ps: int, wide: int) -> list[Check]:
    """Pure. formula_ps: of the undisturbed ring, with its latency; wide: hosts of a rack."""
    base = seen[SORTED]
    slow, crossed, spread = (seen[name] for name in (SLOW, CROSSED, SPREAD))
    lost = sum(s.lost for s in seen.values())
    return [
        Check(
            f"{SORTED}: 2(N-1)/N * S / rate and the latency of its steps, within {100 * EXACT:g}%",
            abs(base.took_ps / formula_ps - 1) <= EXACT,
            f"{base.took_ps / 1e9:.4f} ms, formula {formula_ps / 1e9:.4f} ms",
        ),
        Check(
            f"{SLOW}: the whole ring goes at its pace, within 5%, and loses nothing",
            abs(slow.took_ps / slow.bound_ps - 1) <= 0.05 and slow.xoff_frames > 0 and slow.lost == 0,
            f"{slow.took_ps / 1e9:.3f} ms, {slow.bound_ps / 1e9:.3f} at the slow host's rate; "
            f"{slow.xoff_frames:,} XOFF",
        ),
        Check(
            f"{CROSSED}: {wide} chunks share a link at every step: {wide} times as long, within 5%",
            abs(crossed.took_ps / crossed.bound_ps - 1) <= 0.05,
            f"{crossed.took_ps / 1e9:.3f} ms, {crossed.bound_ps / 1e9:.3f} by the formula",
        ),
        Check(
            f"{SPREAD}: what ECMP puts on one link decides",
            1 <= spread.busiest <= wide and abs(spread.took_ps / (spread.busiest * spread.bound_ps) - 1) <= 0.1,
            f"{spread.busiest} flows on the busiest link, {spread.took_ps / spread.bound_ps:.2f} times the formula",
        ),
        Check(
            "sorted by rack, the ring needs no more than one spine: the order is the cure",
            base.took_ps * wide * 0.9 <= crossed.took_ps and base.xoff_frames == 0,
            f"{base.took_ps / 1e9:.3f} ms instead of {crossed.took_ps / 1e9:.3f}, {base.xoff_frames} XOFF",
        ),
        Check("nothing is lost", lost == 0, f"{lost} frames"),
    ]


def _table(seen: dict[str, Seen], size: int) -> Table:
    rows = [
        [
            name,
            f"{s.took_ps / 1e9:.3f}",
            f"{s.bound_ps / 1e9:.3f}",
            f"{s.took_ps / s.bound_ps:.3f}",
            f"{size * 8e3 / s.took_ps:.1f}",
            str(s.busiest),
            f"{s.xoff_frames:,}",
        ]
        for name, s in seen.items()
    ]
    heads = ("ring", "ms", "formula ms", "ratio", "Gb/s reduced", "most flows a fabric link", "XOFF")
    return Table("Ring all-reduce", heads, rows)


def _plot(seen: dict[str, Seen]) -> Plot:
    panel = Panel("MB received by h1", [s.progress for s in seen.values()])
    return Plot(NAME, "Ring all-reduce: sorted by rack, with a slow host, to and fro between racks", "ms", [panel])
