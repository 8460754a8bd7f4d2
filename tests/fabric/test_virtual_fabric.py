"""The control plane over the fabric's engine: a controller fills a leaf-spine, DCBX, traffic, a switch that dies."""

from __future__ import annotations

import asyncio

from dcbx_world import PROGRAM, dcbx_topology, lossless
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from controller import Controller
from dcb.lldp.transmit import LldpTimers
from fabric.control import ControlPlane, FabricCores
from fabric.dcbx import HostDcbx, is_lldp
from fabric.engine import Fabric
from fabric.loop import PS_PER_S, VirtualLoop, run
from fabric.tester import Tester

G = 10**9
TOPOLOGY, CONFIG = dcbx_topology()
RATE_BPS = 20_000_000  # of CONFIG
ALL = {"leaf1": range(1, 5), "leaf2": range(1, 5), "spine1": range(1, 3), "spine2": range(1, 3)}


class VirtualFabric:
    """Switches of CONFIG on the engine; testers with DCBX agents for hosts."""

    def __init__(self, fabric: Fabric) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop, self.fabric = loop, fabric
        self.plane = ControlPlane(loop, FabricCores(fabric))
        self.testers = {host.name: Tester(RATE_BPS, pfc=0xFF) for host in TOPOLOGY.hosts}
        self.agents: dict[str, HostDcbx] = {}
        self.data: dict[str, list[tuple[int, bytes]]] = {}
        for switch in TOPOLOGY.switches:
            fabric.add_switch(switch.name, None)
        for name, tester in self.testers.items():
            fabric.add_nic(name, tester)
        for link in TOPOLOGY.links:
            fabric.connect(link.a.node, link.a.port, link.b.node, link.b.port, rate_bps=RATE_BPS, length_m=10)
        for switch in TOPOLOGY.switches:
            self.plane.add(switch.name, switch.device_id, switch.ports)
        for host in TOPOLOGY.hosts:
            self.data[host.name] = []
            self.agents[host.name] = HostDcbx(
                loop,
                lambda frame, tester=self.testers[host.name]: tester.send(frame, start_ps=loop.now_ps),
                mac=bytes.fromhex(host.mac.replace(":", "")),
                interface=host.interface,
                name=host.name,
                timers=LldpTimers(msg_tx_interval_s=5),
            )
        loop.add_watcher(self._take)

    def _take(self) -> None:
        for name, tester in self.testers.items():
            for arrival in tester.arrivals():
                if is_lldp(arrival.frame):
                    self.agents[name].receive(arrival.frame)
                else:
                    self.data[name].append((arrival.time_ps, arrival.frame))



def frame(source: str, target: str) -> bytes:
    by_name = {host.name: host for host in TOPOLOGY.hosts}
    a, b = by_name[source], by_name[target]
    gateway = CONFIG.switches[a.leaf].ports[a.number].mac
    packet = Ether(dst=gateway, src=a.mac) / IP(src=a.ip4, dst=b.ip4, tos=26 << 2) / UDP(sport=1, dport=4791)
    return bytes(packet / bytes(200))


async def until(true, timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.05)


def history() -> tuple[object, str]:
    async def main() -> tuple[object, str]:
        made = VirtualFabric(fabric)
        try:
            return await story(made), fabric.trace_hash
        finally:
            made.plane.close()

    with Fabric(seed=1) as fabric:
        return run(fabric, main(), limit_ps=300 * PS_PER_S)


async def story(made: VirtualFabric) -> object:
    everywhere = {name: {port: [3] for port in ports} for name, ports in ALL.items()}
    async with Controller(CONFIG, p4=PROGRAM, client=made.plane.client) as controller:
        await controller.wait_synced(10)
        for agent in made.agents.values():
            agent.set_link(True)
        await until(lambda: lossless(controller) == everywhere)
        await controller.wait_synced(10)
        agreed_ps = made.loop.now_ps
        assert agreed_ps < PS_PER_S
        assert all(agent.state()["marks"]["roce"]["lossless"] for agent in made.agents.values())

        made.testers["h1"].send(frame("h1", "h3"), count=5, start_ps=made.loop.now_ps)
        await until(lambda: len(made.data["h3"]) == 5, 5)
        assert [bytes(data)[-200:] for _, data in made.data["h3"]] == [bytes(200)] * 5
        rx = (await controller.read_counters("leaf1", ["rx"], [1]))["rx"]
        assert rx[1, 3].packets == 5

        made.plane.switches["leaf2"].kill()
        lost = made.testers["h1"].count("tx_frames")
        made.testers["h1"].send(frame("h1", "h3"), count=3, start_ps=made.loop.now_ps)
        await asyncio.sleep(1)
        assert made.testers["h1"].count("tx_frames") >= lost + 3
        assert len(made.data["h3"]) == 5
        made.plane.switches["leaf2"].start()
        await controller.wait_synced(10)
        back = controller.session("leaf2").status
        assert (back.connects, back.pipeline_pushes) == (2, 2)
        assert lossless(controller) == everywhere  # neighbours still know each other: their time to live is not over
        made.testers["h1"].send(frame("h1", "h3"), count=2, start_ps=made.loop.now_ps)
        await until(lambda: len(made.data["h3"]) == 7, 5)
        return agreed_ps, made.loop.now_ps, made.data


def test_the_controller_runs_a_fabric_in_virtual_time_and_two_runs_are_alike() -> None:
    first = history()
    assert first == history()
