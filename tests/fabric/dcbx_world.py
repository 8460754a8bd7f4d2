"""The fabric of tests/mininet/test_dcbx.py in virtual time: DCBX from one port of a spine to all switches and hosts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from bare_world import BareWorld

from controller import Controller, P4Program
from controller.config import Config, parse
from dcb.dcbx.settings import DcbxSettings
from dcb.lldp.transmit import LldpTimers
from fabric.channel import Delays
from fabric.control import ControlPlane
from fabric.dcbx import HostDcbx
from fabric.loop import VirtualLoop
from topologies.dcbx import dcbx_config, source_dcbx
from topologies.description import Topology, leaf_spine
from topologies.settings import Dcb

PROGRAM = P4Program.load()


def dcbx_topology(leaves: int = 2, spines: int = 2, hosts: int = 2) -> tuple[Topology, Config]:
    topology = leaf_spine(leaves, spines, hosts, 20_000_000)
    return topology, parse(dcbx_config(topology, Dcb(), source_dcbx([3], {0: 40, 3: 60})))


class DcbxWorld:
    """Switches, wires, hosts with agents; in a VirtualLoop."""

    def __init__(
        self, world: BareWorld, topology: Topology, config: Config, delays: Delays, seed: int, refuses: str = "h4"
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop, self.world, self.config = loop, world, config
        self.plane = ControlPlane(loop, world, delays=delays, seed=seed)
        self.hosts: dict[str, HostDcbx] = {}
        for switch in topology.switches:
            self.plane.add(switch.name, switch.device_id, switch.ports)
            for number in switch.ports:
                peer = topology.peer(switch.name, number)
                if peer.port:
                    world.wire((switch.name, number), (peer.node, peer.port))
        for host in topology.hosts:
            end = (host.leaf, host.number)
            world.wire(end, (host.name, 0))
            agent = HostDcbx(
                loop,
                lambda frame, end=end: world.inject(loop.now_ps, end, frame),
                mac=bytes.fromhex(host.mac.replace(":", "")),
                interface=host.interface,
                name=host.name,
                settings=DcbxSettings(pfc_enable=1 << 5) if host.name == refuses else None,
                timers=LldpTimers(msg_tx_interval_s=5),
            )
            self.hosts[host.name] = agent
            world.taps[(host.name, 0)] = lambda frame, _when, agent=agent: agent.receive(frame)

    def controller(self, election_id: int = 100) -> Controller:
        return Controller(self.config, p4=PROGRAM, client=self.plane.client, election_id=election_id)

    async def until(self, true: Callable[[], bool], timeout_s: float = 60.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not true():
                await asyncio.sleep(0.05)


def lossless(controller: Controller) -> dict[str, dict[int, list[int]]]:
    return {n: {p: port.pfc for p, port in s.ports.items()} for n, s in controller.running.switches.items()}


@contextlib.asynccontextmanager
async def dcbx_world(
    world: BareWorld, *, delays: Delays | None = None, seed: int = 0, size: tuple[int, int, int] = (2, 2, 2)
) -> AsyncIterator[DcbxWorld]:
    topology, config = dcbx_topology(*size)
    made = DcbxWorld(world, topology, config, delays or Delays(), seed)
    try:
        yield made
    finally:
        made.plane.close()
