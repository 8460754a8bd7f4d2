"""Flows on chosen paths: which UDP source port makes ECMP send a flow where; placements are run and measured.

What a scenario about contention needs. The path of a RoCEv2 flow is decided by the selector of dcb.p4 (addresses, UDP
ports, destination queue pair): `Paths` knows its hash and learns from a few probes through the idle fabric which rest
belongs to which neighbour. `measure` starts the flows of a placement, looks at what they deliver in the second half,
stops them and waits until the fabric is empty.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dcb.units import PS_PER_MS, PS_PER_S
from hosts.nic_config import QPN_BASE, Dcqcn, ip_number
from topologies.scenario import Line
from topologies.virtual.lab import LabError, VirtualLab

FIRST_PORT, LAST_PORT = 49152, 65535
UDP, ROCE_PORT = 17, 4791
PROBES = 8  # of one byte each, for a leaf
SAMPLES = 40


class Placed(NamedTuple):
    """A flow and the neighbour of its leaf that it goes by; None: there is no choice."""

    source: str
    target: str
    via: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Payload delivered, in b/s, by flow: over the second half; and curves over milliseconds, in Gb/s."""

    rates_bps: list[float]
    curves: list[Line]
    xoff_frames: int
    lost: int


class Paths:
    """Where leaves send what: neighbours by the rest of the hash. `learn` makes one."""

    def __init__(self, lab: VirtualLab, neighbours: Mapping[str, Mapping[int, str]]) -> None:
        self._lab, self._neighbours = lab, neighbours

    @classmethod
    async def learn(cls, lab: VirtualLab, pairs: Iterable[tuple[str, str]]) -> Paths:
        """Send probes of one byte for one (source, target) of each source's leaf through the idle fabric.

        LabError where a leaf does not send by this hash: two probes with the same rest went different ways.
        """
        leaves: dict[str, tuple[str, str]] = {}
        for source, target in pairs:
            leaves.setdefault(lab.topology.host(source).leaf, (source, target))
        return cls(lab, {leaf: await _neighbours(lab, leaf, *pair) for leaf, pair in leaves.items()})

    def source_port(self, source: str, target: str, via: str) -> int:
        """A UDP source port with which the next flow from source to target goes by this neighbour of the leaf."""
        neighbours = self._neighbours[self._lab.topology.host(source).leaf]
        for port in range(FIRST_PORT, LAST_PORT + 1):
            if neighbours.get(_rest(self._lab, source, target, port, len(neighbours))) == via:
                return port
        raise LabError(f"{source} -> {target}: no UDP source port goes by {via}")


def _rest(lab: VirtualLab, source: str, target: str, port: int, ways: int) -> int:
    """The rest of the selector's hash for the next flow between two hosts."""
    a, b = (ip_number(lab.topology.host(host).ip4) for host in (source, target))
    qpn = QPN_BASE + lab.nics[target].next_flow()
    fields = struct.pack(">IIBHH", a, b, UDP, port, ROCE_PORT) + qpn.to_bytes(3)
    return zlib.crc32(fields) % ways


async def _neighbours(lab: VirtualLab, leaf: str, source: str, target: str) -> Mapping[int, str]:
    hops = lab.topology.next_hops(lab.topology.switch(leaf), lab.topology.host(target))
    peers = [lab.topology.peer(leaf, port).node for port, _ in hops]
    wires = {peer: lab.link(leaf, peer).from_(leaf) for peer in peers}
    found: dict[int, str] = {}
    for n in range(PROBES * len(peers)):
        rest = _rest(lab, source, target, FIRST_PORT + n, len(peers))
        before = {peer: wire.stats().sent_frames for peer, wire in wires.items()}
        await lab.finished([lab.rdma(source, target, bytes=1, udp_source_port=FIRST_PORT + n)])
        (taken,) = (peer for peer, wire in wires.items() if wire.stats().sent_frames > before[peer])
        if found.setdefault(rest, taken) != taken:
            raise LabError(f"{leaf}: goes by {taken} where {found[rest]} was expected: not the hash of dcb.p4")
    return found


async def measure(
    lab: VirtualLab, paths: Paths, flows: Sequence[Placed], *, ms: float, dcqcn: str | Dcqcn = "off", priority: int = 3
) -> Measured:
    """Run flows at once for `ms` of virtual time, measure their second half, stop them, drain. LabError where not."""
    before = await lab.snapshot()
    start = lab.now_ps
    running = []
    for f in flows:
        chosen: dict[str, Any] = (
            {} if f.via is None else {"udp_source_port": paths.source_port(f.source, f.target, f.via)}
        )
        running.append(lab.rdma(f.source, f.target, dcqcn=dcqcn, priority=priority, **chosen))
    step = round(ms * PS_PER_MS) // SAMPLES
    times, got = [lab.now_ps], [[0] * len(running)]
    for _ in range(SAMPLES):
        await lab.sleep_until(times[-1] + step)
        times.append(lab.now_ps)
        got.append([flow.received.rx_bytes for flow in running])
    lab.stop(running)
    await lab.finished(running)
    if not await lab.drained():
        raise LabError(f"at {lab.now_ps / PS_PER_MS:.3f} ms: the fabric does not drain")
    after = await lab.snapshot()
    middle = SAMPLES // 2
    seconds = (times[-1] - times[middle]) / PS_PER_S
    rates = [(b - a) * 8 / seconds for a, b in zip(got[middle], got[-1], strict=True)]
    middles = [(t - start) / PS_PER_MS for t in times[1:]]
    curves = [
        Line(f.source, middles, [(got[k + 1][n] - got[k][n]) * 8e3 / (times[k + 1] - times[k]) for k in range(SAMPLES)])
        for n, f in enumerate(flows)
    ]
    return Measured(
        rates, curves, after.xoff_frames() - before.xoff_frames(), after.lost(priority) - before.lost(priority)
    )
