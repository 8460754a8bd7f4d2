"""Workloads: lists of flows from files, from published size distributions, and of well-known shapes; and their start.

Pure but for reading a file: functions make `Flow`s, `start` gives them to NICs. Hosts are named by strings. All that is
random comes of one seeded generator per call and integer arithmetic alone: the same seed gives the same flows on any
machine. Times are integer picoseconds, sizes bytes, loads fractions of a host's link.

    flows = poisson(hosts, WEB_SEARCH, load=Fraction(1, 2), rate_bps=100 * 10**9, until_ps=10**10, seed=1)
    running = start(flows, nics, hops=hops, defaults=Defaults(rdma=RdmaConfig(dcqcn=Dcqcn.paper())))
"""

from __future__ import annotations

import csv
import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Final

from dcb.units import PS_PER_S
from hosts.nic import Connection, Nic, connect_rdma, connect_tcp
from hosts.nic_config import DSCP_TO_PRIORITY, RdmaConfig, TcpConfig

_UNIT: Final = 1 << 53  # a uniform draw is 1.._UNIT of these
_LOG_BITS: Final = 40


class WorkloadError(ValueError):
    """A workload that breaks a rule; the message names the field (or file and line), the value and the rule."""


class Protocol(StrEnum):
    RDMA = "rdma"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class Flow:
    """`bytes` from `source` to `target`, from `start_ps` on. dscp None: as the configuration of `start` says.

    messages > 1: `bytes` in so many equal messages. after: the index in the list of flows of the one whose k-th message
    must have been received at `source` before this one's message k (counted from 0) is sent.
    """

    source: str
    target: str
    bytes: int
    start_ps: int = 0
    protocol: Protocol = Protocol.RDMA
    dscp: int | None = None
    messages: int = 1
    after: int | None = None

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise WorkloadError(f"target: {self.target} is the source; a flow needs two hosts")
        if self.bytes < 1:
            raise WorkloadError(f"bytes: {self.bytes}, must be 1 or more")
        if self.start_ps < 0:
            raise WorkloadError(f"start_ps: {self.start_ps}, must be 0 or more")
        if self.messages < 1 or self.bytes % self.messages:
            raise WorkloadError(f"messages: {self.messages}, must divide bytes, {self.bytes}")
        if self.dscp is not None and not 0 <= self.dscp <= 63:
            raise WorkloadError(f"dscp: {self.dscp} is out of range, must be 0..63")


# --- size distributions


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """A cumulative distribution, linear between its points: (bytes, part of the flows with no more, of `whole`)."""

    name: str
    points: tuple[tuple[int, int], ...]
    whole: int = 1000
    source: str = ""

    def __post_init__(self) -> None:
        sizes, parts = [p[0] for p in self.points], [p[1] for p in self.points]
        if len(self.points) < 2 or sizes != sorted(set(sizes)) or parts != sorted(parts):
            raise WorkloadError(f"{self.name}: points must ascend, and be two or more")
        if parts[0] != 0 or parts[-1] != self.whole:
            raise WorkloadError(f"{self.name}: parts go from {parts[0]} to {parts[-1]}, must be from 0 to {self.whole}")

    @property
    def mean_bytes(self) -> Fraction:
        """The mean, exactly."""
        pairs = zip(self.points, self.points[1:], strict=False)
        return sum((Fraction((a + b) * (q - p), 2 * self.whole) for (a, p), (b, q) in pairs), Fraction(0))

    def at(self, numerator: int, denominator: int) -> int:
        """The size that numerator/denominator (in 0..1) of the flows do not exceed; at least 1 byte."""
        target = numerator * self.whole
        i = max(1, bisect_left([p[1] * denominator for p in self.points], target))
        (low, below), (high, upto) = self.points[i - 1], self.points[i]
        return max(1, low + (high - low) * (target - below * denominator) // ((upto - below) * denominator))


WEB_SEARCH: Final = SizeDistribution(
    "web-search",
    (
        (0, 0), (10_000, 150), (20_000, 200), (30_000, 300), (50_000, 400), (80_000, 530), (200_000, 600),
        (1_000_000, 700), (2_000_000, 800), (5_000_000, 900), (10_000_000, 970), (30_000_000, 1000),
    ),
    source="DCTCP (SIGCOMM'10), figure 4, as tabulated with HPCC: traffic_gen/WebSearch_distribution.txt",
)  # fmt: skip
HADOOP: Final = SizeDistribution(
    "hadoop",
    (
        (0, 0), (100, 10), (200, 20), (300, 50), (350, 150), (400, 200), (500, 300), (600, 400), (700, 500),
        (1_000, 600), (2_000, 670), (7_000, 700), (30_000, 720), (50_000, 820), (80_000, 870), (120_000, 900),
        (300_000, 950), (1_000_000, 975), (2_000_000, 990), (10_000_000, 1000),
    ),
    source="Facebook's Hadoop (SIGCOMM'15, Roy et al.), as tabulated with HPCC: traffic_gen/FbHdp_distribution.txt",
)  # fmt: skip
DISTRIBUTIONS: Final[Mapping[str, SizeDistribution]] = {d.name: d for d in (WEB_SEARCH, HADOOP)}


def minus_ln(numerator: int, denominator: int) -> Fraction:
    """-ln(numerator / denominator) for a ratio in (0, 1], to 2^-40, by squaring: no floating point."""
    if not 0 < numerator <= denominator:
        raise ValueError(f"{numerator}/{denominator}: must be more than 0 and at most 1")
    shift = denominator.bit_length() - numerator.bit_length()
    x = (numerator << (shift + 64)) // denominator  # in 2^-64: 0.5 .. 2
    whole = -shift
    while x < 1 << 64:
        x <<= 1
        whole -= 1
    bits = 0
    for _ in range(_LOG_BITS):
        x = x * x >> 64
        bits <<= 1
        if x >= 1 << 65:
            x >>= 1
            bits |= 1
    log2 = whole + Fraction(bits, 1 << _LOG_BITS)
    return -log2 * _LN2


_LN2: Final = Fraction(0xB17217F7D1CF79AB, 1 << 64)


# --- arrivals and shapes


def poisson(
    hosts: Sequence[str],
    sizes: SizeDistribution,
    *,
    load: Fraction,
    rate_bps: int,
    until_ps: int,
    seed: int,
    start_ps: int = 0,
    protocol: Protocol = Protocol.RDMA,
    dscp: int | None = None,
) -> list[Flow]:
    """Flows that arrive at each host as a Poisson process, to uniformly chosen others; by start time.

    `load` of each host's sending link of `rate_bps`, counted in payload: the mean gap is mean size * 8 / (load * rate).
    """
    _hosts(hosts, 2)
    if not 0 < load <= 2:
        raise WorkloadError(f"load: {load} is out of range, must be more than 0 and at most 2")
    generator = random.Random(seed)
    mean_gap_ps = sizes.mean_bytes * 8 * PS_PER_S / (Fraction(load) * rate_bps)
    flows = []
    for source in hosts:
        others = [h for h in hosts if h != source]
        at = Fraction(start_ps)
        while True:
            at += mean_gap_ps * minus_ln(generator.getrandbits(53) + 1, _UNIT)
            at = Fraction(int(at))
            if at >= until_ps:
                break
            target = others[generator.randrange(len(others))]
            flows.append(Flow(source, target, sizes.at(generator.getrandbits(53) + 1, _UNIT), int(at), protocol, dscp))
    return sorted(flows, key=lambda flow: flow.start_ps)


def incast(
    sources: Sequence[str],
    target: str,
    bytes_each: int,
    *,
    start_ps: int = 0,
    protocol: Protocol = Protocol.RDMA,
    dscp: int | None = None,
) -> list[Flow]:
    """Every source sends to one target at once."""
    _hosts(sources, 1)
    return [Flow(source, target, bytes_each, start_ps, protocol, dscp) for source in sources]


def all_to_all(
    hosts: Sequence[str],
    bytes_each: int,
    *,
    start_ps: int = 0,
    protocol: Protocol = Protocol.RDMA,
    dscp: int | None = None,
) -> list[Flow]:
    """Every host sends to every other, at once; host i begins its list with its successor, so that pairs differ."""
    _hosts(hosts, 2)
    n = len(hosts)
    return [
        Flow(hosts[i], hosts[(i + k) % n], bytes_each, start_ps, protocol, dscp) for k in range(1, n) for i in range(n)
    ]


def ring_all_reduce(hosts: Sequence[str], bytes_: int, *, start_ps: int = 0, dscp: int | None = None) -> list[Flow]:
    """Ring all-reduce of `bytes_` at each of N hosts: to its successor each sends 2(N-1) chunks of ceil(bytes/N).

    Chunk k + 1 is sent when chunk k has come from the predecessor (N - 1 steps of reduce-scatter, N - 1 of all-gather).
    """
    _hosts(hosts, 2)
    n = len(hosts)
    if bytes_ < 1:
        raise WorkloadError(f"bytes: {bytes_}, must be 1 or more")
    steps = 2 * (n - 1)
    total = steps * -(-bytes_ // n)
    return [
        Flow(hosts[i], hosts[(i + 1) % n], total, start_ps, Protocol.RDMA, dscp, messages=steps, after=(i - 1) % n)
        for i in range(n)
    ]


def _hosts(hosts: Sequence[str], least: int) -> None:
    if len(hosts) < least or len(set(hosts)) != len(hosts):
        raise WorkloadError(f"hosts: {list(hosts)}, must be {least} or more, each once")


# --- files

_COLUMNS: Final = ("source", "target", "bytes", "start_ps", "protocol", "dscp")


def read_csv(path: Path) -> list[Flow]:
    """A CSV file with a header: source, target, bytes, start_ps; protocol (rdma) and dscp may be absent or empty."""
    flows = []
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        names = rows.fieldnames or []
        unknown, missing = set(names) - set(_COLUMNS), set(_COLUMNS[:4]) - set(names)
        if unknown or missing:
            problem = f"{sorted(unknown)} are not known" if unknown else f"{sorted(missing)} are missing"
            raise WorkloadError(f"{path}: columns: {problem}; they are {', '.join(_COLUMNS)}")
        for row in rows:
            try:
                flows.append(
                    Flow(
                        row["source"],
                        row["target"],
                        int(row["bytes"]),
                        int(row["start_ps"]),
                        Protocol(row.get("protocol") or "rdma"),
                        int(row["dscp"]) if row.get("dscp") else None,
                    )
                )
            except (TypeError, ValueError) as error:
                raise WorkloadError(f"{path}:{rows.line_num}: {error}") from error
    return flows


def write_csv(path: Path, flows: Iterable[Flow]) -> None:
    """What `read_csv` reads. Flows that wait for others have no place in a file."""
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(_COLUMNS)
        for f in flows:
            if f.after is not None or f.messages > 1:
                raise WorkloadError(
                    f"after: the flow from {f.source} to {f.target} depends on another; a file has none"
                )
            out.writerow((f.source, f.target, f.bytes, f.start_ps, f.protocol, "" if f.dscp is None else f.dscp))


def read_hpcc(path: Path, hosts: Sequence[str]) -> list[Flow]:
    """HPCC's flow.txt: the number of flows, then `source target group port bytes start_s`, hosts as indices.

    The group (its queue) becomes the DSCP of that priority: 3 -> 26, 6 -> 48, else 0; its port is not used.
    """
    lines = path.read_text().split("\n")
    dscps = {priority: dscp for dscp, priority in DSCP_TO_PRIORITY.items()}
    flows = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            source, target, group, _, size, start = line.split()
            at = Decimal(start) * PS_PER_S
            flow = Flow(hosts[_index(source, hosts)], hosts[_index(target, hosts)], int(size), int(at))
        except (ValueError, InvalidOperation) as error:
            raise WorkloadError(f"{path}:{number}: {line!r}: {error or 'no decimal number'}") from error
        flows.append(replace(flow, dscp=dscps.get(int(group), 0)))
    try:
        count = int(lines[0].split()[0])
    except (ValueError, IndexError) as error:
        raise WorkloadError(f"{path}:1: {lines[0]!r} is not the number of flows") from error
    if count > len(flows):
        raise WorkloadError(f"{path}:1: {count} flows are promised, the file has {len(flows)}")
    return flows[:count]


def _index(text: str, hosts: Sequence[str]) -> int:
    if not 0 <= int(text) < len(hosts):
        raise WorkloadError(f"host {text} is out of range, must be 0..{len(hosts) - 1}")
    return int(text)


# --- starting


@dataclass(frozen=True, slots=True)
class Started:
    """A flow and where it runs: `connection.sender` at the NIC of `flow.source`, `.receiver` at that of `.target`."""

    flow: Flow
    connection: Connection


@dataclass(frozen=True, slots=True)
class Defaults:
    """How flows run: all but bytes, start time and DSCP; a flow's DSCP decides its priority (docs/contract.md, 7)."""

    rdma: RdmaConfig = field(default_factory=RdmaConfig)
    tcp: TcpConfig = field(default_factory=TcpConfig)


def start(
    flows: Sequence[Flow],
    nics: Mapping[str, Nic],
    *,
    hops: Mapping[str, str] | None = None,
    defaults: Defaults | None = None,
) -> list[Started]:
    """Give flows to the NICs of their hosts. `hops`: MAC of each host's next hop (its leaf port); None: back to back.

    UDP source ports of RDMA flows differ from flow to flow (49152 + index), so that ECMP spreads them.
    """
    settings = defaults or Defaults()
    for flow in flows:
        for host in (flow.source, flow.target):
            if host not in nics:
                raise WorkloadError(f"host {host}: has no NIC; there are {', '.join(nics)}")
        if flow.after is not None and (not 0 <= flow.after < len(flows) or flows[flow.after].target != flow.source):
            raise WorkloadError(f"after: {flow.after} is not a flow to {flow.source}")
    started: list[Started] = []
    for index, flow in enumerate(flows):
        source, target = nics[flow.source], nics[flow.target]
        sender_hop = hops[flow.source] if hops else None
        receiver_hop = hops[flow.target] if hops else None
        if flow.protocol is Protocol.TCP:
            tcp = replace(settings.tcp, bytes=flow.bytes, start_ps=flow.start_ps)
            if flow.dscp is not None:
                tcp = replace(tcp, dscp=flow.dscp, priority=DSCP_TO_PRIORITY.get(flow.dscp, 0))
            connection = connect_tcp(source, target, tcp, sender_hop=sender_hop, receiver_hop=receiver_hop)
        else:
            message_bytes = flow.bytes // flow.messages if flow.messages > 1 else settings.rdma.message_bytes
            rdma = replace(
                settings.rdma, bytes=flow.bytes, start_ps=flow.start_ps, message_bytes=message_bytes,
                udp_source_port=49152 + index % 16384,
            )  # fmt: skip
            if flow.dscp is not None:
                rdma = replace(rdma, dscp=flow.dscp, priority=DSCP_TO_PRIORITY.get(flow.dscp, 0))
            connection = connect_rdma(source, target, rdma, sender_hop=sender_hop, receiver_hop=receiver_hop)
        started.append(Started(flow, connection))
    for this in started:
        if this.flow.after is not None:
            nics[this.flow.source].wait_flow(this.connection.sender, started[this.flow.after].connection.receiver)
    return started
