"""Packets a second over veth pairs, h1 -> leaf1 -> h2 in namespaces: a bare packet-socket forwarder, dcbswitch, BMv2.

All in one run on one machine, so that the ratios mean something; the same frame, the same generator and counter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from controller import Controller
from controller import config as configuration
from hosts.build import build
from tests.bench.injection import Rate
from topologies.description import Topology, leaf_spine
from topologies.network import FabricNetwork
from topologies.paths import run_dir, switch_socket
from topologies.processes import HostProcess
from topologies.settings import Dcb, controller_config

LAB = "bench"
SECONDS = 3
ROUNDS = 3
FRAME_BYTES = 128
RATE_BPS = 100_000_000_000  # the traffic manager's rate: not what is measured
BMV2 = "simple_switch_grpc"


def frame(topology: Topology) -> str:
    """An IPv4 UDP frame from h1 to h2 by way of leaf1, as hexadecimal."""
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    h1, h2 = topology.host("h1"), topology.host("h2")
    gateway = topology.switch("leaf1").port_mac(h1.number)
    head = Ether(dst=gateway, src=h1.mac) / IP(src=h1.ip4, dst=h2.ip4) / UDP(sport=49152, dport=9)
    return bytes(head / bytes(FRAME_BYTES - len(head))).hex()


async def measure(network: FabricNetwork) -> float:
    """Packets a second that reach h2 while h1 sends as fast as it can: the best of the rounds."""
    return max([await measure_once(network) for _ in range(ROUNDS)])


async def measure_once(network: FabricNetwork) -> float:
    flood = str(build("flood"))
    topology = network.topology
    count = [flood, "count", "h2-eth0", "--match", "42=" + "00" * 8, "--idle-timeout", "1s"]
    send = [flood, "send", "h1-eth0", "--frame", frame(topology), "--duration", f"{SECONDS}s"]
    async with HostProcess(network, "h2", count) as counter:
        await counter.line(lambda text: "ready" in text, 10)
        async with HostProcess(network, "h1", send) as sender:
            await sender.output(SECONDS + 20)
        result = json.loads((await counter.output(20)).splitlines()[-1])
    return float(result["pps"])


@contextlib.asynccontextmanager
async def forwarder(network: FabricNetwork) -> AsyncIterator[None]:
    command = [str(build("forwarder")), "leaf1-eth1", "leaf1-eth2"]
    async with HostProcess(network, "leaf1", command) as process:
        await process.line(lambda text: "ready" in text, 10)
        yield


@contextlib.asynccontextmanager
async def embedded(network: FabricNetwork) -> AsyncIterator[None]:
    network.start_switches()
    async with configured(network.topology):
        yield


@contextlib.asynccontextmanager
async def bmv2(network: FabricNetwork) -> AsyncIterator[None]:
    socket = switch_socket(LAB, "leaf1")
    command = [BMV2, "--no-p4", "-i", "1@leaf1-eth1", "-i", "2@leaf1-eth2", "--device-id", "1"]
    command += ["--", "--grpc-server-addr", f"unix:{socket}", "--cpu-port", "510", "--priority-queues", "8"]
    async with HostProcess(network, "leaf1", command), configured(network.topology):
        yield


@contextlib.asynccontextmanager
async def configured(topology: Topology) -> AsyncIterator[None]:
    """The lab's controller with one leaf: the same entries for both switches."""
    settings = controller_config(topology, Dcb(), lab=LAB)
    settings["switches"] = {"leaf1": settings["switches"]["leaf1"]}
    async with Controller(configuration.parse(settings)) as controller:
        await controller.wait_synced(timeout=60)
        yield


async def run_all() -> list[Rate]:
    topology = leaf_spine(1, 1, 2, RATE_BPS, name=LAB)
    rates = []
    kinds = [
        ("bare forwarder over veth", forwarder, "recvmmsg and sendmmsg, no look at the frame"),
        ("dcbswitch over veth", embedded, "dcb.p4 with traffic manager; aim: at least 0.8 of the forwarder"),
    ]
    if shutil.which(BMV2):
        kinds.append(("BMv2 over veth", bmv2, "simple_switch_grpc, the same program and entries"))
    for name, device, note in kinds:
        with FabricNetwork(topology, lab=LAB, start_switches=False) as network:
            async with device(network):
                rates.append(Rate(name, await measure(network), note))
    return rates


def run() -> Iterator[Rate]:
    Path(run_dir(LAB)).parent.mkdir(parents=True, exist_ok=True)
    yield from asyncio.run(run_all())
    if not shutil.which(BMV2):
        print(f"BMv2 not measured: {BMV2} is not on the PATH")
