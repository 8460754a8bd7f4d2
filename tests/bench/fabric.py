"""Packet-hops a second of a leaf-spine in virtual time on one core, with dcb.p4 in every switch, beside ns-3; memory.

A packet-hop is a frame that a node received. `python -m tests.bench.fabric --curve DIR` measures growth up to 128 hosts
of 100 Gb/s and leaves growth.json and growth.png there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hosts.nic import Nic, connect_rdma
from hosts.nic_config import ENDLESS, Dcqcn, NicConfig, RdmaConfig, TcpConfig
from switch.core import SwitchCore
from tests.fabric.virtual_lab import G, VirtualLab, configure, program, virtual_lab
from topologies.description import Topology, leaf_spine

RATE_BPS = 100 * G
LENGTH_M = 10
FRAME_BYTES = 1000
GAP_PS = 4 * (FRAME_BYTES + 24) * 80  # a quarter of 100 Gb/s: no queue builds up, whatever ECMP does
SOURCE_PORTS = 16
ROUNDS = 3
SHAPES = ((1, 1, 2), (2, 2, 4), (4, 4, 4), (4, 4, 8), (8, 4, 8), (8, 8, 16))  # of the curve
NS3_LIBRARIES = ("applications", "internet", "point-to-point", "network", "core")
P4SIM_NOTE = (
    "published, another machine (P4sim artifact, ipv4_time_usage.py): 1748 s for one switch at 10 Gb/s, about 3.75 "
    "million packets if its example's 3 s of 1000-byte packets were run: about 2,100 packets/s"
)


@dataclass(frozen=True, slots=True)
class HopRate:
    name: str
    hops_per_s: float
    note: str


@dataclass(frozen=True, slots=True)
class Growth:
    """One point of the curve."""

    hosts: int
    switches: int
    hops_per_s: float
    resident_bytes: int


def partner(topology: Topology, index: int, leaves: int) -> str:
    """The host of the same number on the next leaf."""
    per_leaf = len(topology.hosts) // leaves
    return topology.hosts[(index + per_leaf) % len(topology.hosts)].name


def load(lab: VirtualLab, leaves: int) -> None:
    """Each host sends to its partner without end."""
    for i, host in enumerate(lab.topology.hosts):
        target = partner(lab.topology, i, leaves)
        frames = [lab.frame(host.name, target, FRAME_BYTES, sport=49152 + k) for k in range(SOURCE_PORTS)]
        lab.testers[host.name].send(frames, count=None, priority=3, gap_ps=GAP_PS, start_ps=1000 * i)


def measure(lab: VirtualLab, duration_ps: int, rounds: int = ROUNDS) -> float:
    """Packet-hops per second of processor time, the best of the rounds; a tenth of one runs before."""
    lab.fabric.run(lab.fabric.now_ps + duration_ps // 10)
    best = 0.0
    for _ in range(rounds):
        hops, start = lab.fabric.hops, time.process_time()
        lab.fabric.run(lab.fabric.now_ps + duration_ps)
        best = max(best, (lab.fabric.hops - hops) / (time.process_time() - start))
    lost = sum(direction.stats().lost for link in lab.fabric.links for direction in link.directions)
    assert lost == 0
    return best


def leaf_spine_rate(leaves: int, spines: int, hosts: int, duration_ps: int, *, trace: bool = True) -> float:
    with virtual_lab(
        leaf_spine(leaves, spines, hosts, RATE_BPS), length_m=LENGTH_M, trace=trace, record_bytes=0
    ) as lab:
        load(lab, leaves)
        return measure(lab, duration_ps)


def nic_rate(leaves: int, spines: int, hosts: int, duration_ps: int) -> float:
    """The same with RDMA NICs: reliable connections with ACKs, paced at a quarter of the link."""
    topology = leaf_spine(leaves, spines, hosts, RATE_BPS)
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(virtual_lab(topology, length_m=LENGTH_M, record_bytes=0, hosts=False))
        nics = {h.name: Nic(NicConfig(mac=h.mac, ip=h.ip4, rate_bps=RATE_BPS)) for h in topology.hosts}
        for host in topology.hosts:
            lab.fabric.add_nic(host.name, nics[host.name])
            lab.fabric.connect(host.name, 0, host.leaf, host.number, rate_bps=RATE_BPS, length_m=LENGTH_M)
        for i, host in enumerate(topology.hosts):
            target = topology.host(partner(topology, i, leaves))
            hop, back = (topology.switch(h.leaf).port_mac(h.number) for h in (host, target))
            flow = RdmaConfig(bytes=ENDLESS, rate_bps=RATE_BPS // 4)
            connect_rdma(nics[host.name], nics[target.name], flow, sender_hop=hop, receiver_hop=back)
        rate = measure(lab, duration_ps)
        lab.fabric.close()
        for nic in nics.values():
            nic.close()
        return rate


def ns3_rate(leaves: int, spines: int, hosts: int, duration_ps: int) -> float | str:
    """ns-3 with the same pairs, sizes and times; or why not."""
    compiler = shutil.which("g++")
    if compiler is None or not Path("/usr/include/ns3/core-module.h").exists():
        return "ns-3 not measured: it needs g++ and Debian's libns3-dev (apt install g++ libns3-dev)"
    with tempfile.TemporaryDirectory() as work:
        binary = Path(work) / "ns3_leaf_spine"
        source = Path(__file__).with_name("ns3_leaf_spine.cc")
        libraries = [f"-lns3-{name}" for name in NS3_LIBRARIES]
        command = [compiler, "-O2", "-std=c++17", "-o", str(binary), str(source), *libraries]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode != 0:
            return f"ns-3 not measured: {built.stderr.strip()[-500:]}"
        arguments = (leaves, spines, hosts, RATE_BPS, LENGTH_M * 5000, FRAME_BYTES, GAP_PS, duration_ps)
        best = 0.0
        for _ in range(ROUNDS):
            done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, check=True)
            hops, seconds = done.stdout.split()
            best = max(best, int(hops) / float(seconds))
        return best


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def memory() -> tuple[int, int]:
    """Resident bytes of a switch set up as a leaf of 8 ports, and of a queued packet of FRAME_BYTES."""
    topology = leaf_spine(2, 2, 6, RATE_BPS)
    switch = topology.switch("leaf1")
    cores = [SwitchCore(program())]  # the library and the first one's share of it do not count
    before, count = resident_bytes(), 32
    for _ in range(count):
        cores.append(SwitchCore(program()))
        configure(cores[-1], topology, switch, RATE_BPS)
    each = (resident_bytes() - before) // count
    core, packets = cores[-1], 10_000
    with virtual_lab(leaf_spine(1, 1, 2, RATE_BPS), record_bytes=0) as lab:
        frame, core = lab.frame("h1", "h2", FRAME_BYTES), lab.cores["leaf1"]
        core.tm.block_port(2, True)
        core.tm.set_pool(1 << 30)
        before = resident_bytes()
        for _ in range(packets):
            core.receive(1, frame, 0)
        held = core.packets_held
        assert held == packets, held
        queued = (resident_bytes() - before) // packets
        lab.fabric.close()
    for made in cores:
        made.close()
    return each, queued


def flow_memory(count: int = 20_000) -> tuple[int, int]:
    """Resident bytes of an end of an RDMA flow with DCQCN and of a TCP connection at a NIC, timers included."""
    config = NicConfig("02:00:00:00:01:01", "10.1.0.1", RATE_BPS)
    far = {"remote_mac": "02:00:00:00:02:01", "remote_ip": "10.2.0.1"}
    rdma = RdmaConfig(bytes=ENDLESS, start_ps=10**15, dcqcn=Dcqcn.paper())
    tcp = TcpConfig(bytes=ENDLESS, start_ps=10**15)
    with Nic(config) as first, Nic(config) as second:
        before = resident_bytes()
        for i in range(count):
            first.add_rdma_flow(rdma, remote_flow=i, **far)
        between = resident_bytes()
        for i in range(count):
            second.add_tcp_flow(tcp, remote_flow=i, **far)
        return (between - before) // count, (resident_bytes() - between) // count


def memory_text() -> str:
    """One line for people."""
    (rdma, tcp), (each, queued) = flow_memory(), memory()  # in this order: what one run freed, the next has for nothing
    return (
        f"memory: {each / 1024:,.0f} KiB a switch (leaf of 8 ports), {queued:,} bytes a queued packet of "
        f"{FRAME_BYTES}, {rdma:,} bytes an end of an RDMA flow, {tcp:,} of a TCP connection"
    )


def run() -> Iterator[HopRate]:
    shape = (2, 2, 4)
    yield HopRate(
        "leaf-spine in virtual time", leaf_spine_rate(*shape, 2 * 10**9), "8 hosts, 1000-byte frames; aim: 1,000,000"
    )
    yield HopRate("the same without the trace hash", leaf_spine_rate(*shape, 2 * 10**9, trace=False), "")
    yield HopRate(
        "the same with RDMA NICs", nic_rate(*shape, 2 * 10**9), "reliable connections, 1024-byte payload, ACKs"
    )
    ns3 = ns3_rate(*shape, 10**9)
    if isinstance(ns3, str):
        print(ns3)
    else:
        yield HopRate(
            "ns-3, the same pairs, sizes and times", ns3, "IPv4 static routes, no PFC, no P4; aim: 10 times this"
        )
    yield HopRate("P4sim, one switch", 2_100, P4SIM_NOTE)


def measure_shape(leaves: int, spines: int, hosts: int) -> Growth:
    """One shape, hosts by leaf."""
    before = resident_bytes()
    with virtual_lab(leaf_spine(leaves, spines, hosts, RATE_BPS), length_m=LENGTH_M, record_bytes=0) as lab:
        load(lab, leaves)
        rate = measure(lab, 4 * 10**9 // (leaves * hosts), rounds=ROUNDS)
        return Growth(leaves * hosts, leaves + spines, rate, resident_bytes() - before)


def grow() -> Iterator[Growth]:
    """Each shape in a process of its own: what one freed, the next would have for nothing."""
    for shape in SHAPES:
        command = [sys.executable, "-m", "tests.bench.fabric", "--point", *map(str, shape)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        yield Growth(**json.loads(done.stdout))


def plot(points: list[Growth], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    hosts = [p.hosts for p in points]
    left.plot(hosts, [p.hops_per_s / 1e6 for p in points], marker="o")
    left.set(xlabel="hosts of 100 Gb/s", ylabel="million packet-hops/s, one core", xscale="log", ylim=(0, None))
    right.plot(hosts, [p.resident_bytes / 2**20 for p in points], marker="o")
    right.set(xlabel="hosts of 100 Gb/s", ylabel="resident MiB of the fabric", xscale="log", ylim=(0, None))
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", type=Path, metavar="DIR", help="growth up to 128 hosts: growth.json and growth.png")
    parser.add_argument("--memory", action="store_true", help="bytes of a switch, a queued packet and a flow")
    parser.add_argument(
        "--point", type=int, nargs=3, metavar=("LEAVES", "SPINES", "HOSTS"), help="one of them, as JSON"
    )
    arguments = parser.parse_args()
    if arguments.point:
        with virtual_lab(leaf_spine(1, 1, 1, RATE_BPS), record_bytes=0):
            pass  # libraries and the compiled program are not the fabric's
        print(json.dumps(asdict(measure_shape(*arguments.point))))
        return
    if arguments.curve:
        arguments.curve.mkdir(parents=True, exist_ok=True)
        points = []
        for point in grow():
            print(
                f"{point.hosts:4} hosts, {point.switches:3} switches: {point.hops_per_s:11,.0f} packet-hops/s, "
                f"{point.resident_bytes / 2**20:6.1f} MiB"
            )
            points.append(point)
        (arguments.curve / "growth.json").write_text(json.dumps([asdict(p) for p in points], indent=1) + "\n")
        plot(points, arguments.curve / "growth.png")
        return
    if arguments.memory:
        print(memory_text())
        return
    for rate in run():
        print(f"{rate.name}: {rate.hops_per_s:,.0f} packet-hops/s; {rate.note}")


if __name__ == "__main__":
    main()
