"""A topology in virtual time: switches, NICs, links and the controller in this process, run by the fabric's clock.

`VirtualLab` builds the fabric of a `Topology`, starts the same controller that real labs have (through an in-process
P4Runtime channel) and hands out what a scenario works with: flows, faults, snapshots, series. It runs in a
`fabric.loop.VirtualLoop` (`Bench.run` makes one); whatever a body awaits lets virtual time pass, and nothing else does.

    async with VirtualLab(fabric, topology, config) as lab:
        flow = lab.rdma("h5", "h1", bytes=10_000_000)
        await lab.finished([flow])
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from finsy.proto import p4r

from controller import Controller, P4Program, state
from controller import config as controller_config_module
from dcb.dcbx.settings import DcbxSettings
from dcb.lldp.transmit import LldpTimers
from dcb.units import PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US
from fabric.channel import Delays
from fabric.control import ControlPlane, FabricCores, VirtualSwitch
from fabric.engine import Fabric, Series
from fabric.links import Link
from fabric.loop import VirtualLoop
from hosts import workloads
from hosts.nic import Connection, FlowState, FlowStats, Nic, connect_rdma, connect_tcp
from hosts.nic_config import ENDLESS, EVENTS, Dcqcn, EventKind, NicConfig, RdmaConfig, TcpConfig
from switch.core import SwitchCore
from topologies.description import Host, Topology
from topologies.measure import COUNTERS, REGISTERS, Snapshot
from topologies.settings import DSCP_TO_PRIORITY, STORAGE_PRIORITY
from topologies.virtual.agents import DcbxOf, NicAgent

SYNC_TIMEOUT_S = 60.0
DRAIN_STEP_PS = 10 * PS_PER_US
NOTIFY = frozenset({EventKind.FINISHED, EventKind.FAILED, EventKind.RAW, EventKind.LINK})


class LabError(RuntimeError):
    """Something that a scenario waited for did not come; the message says what and when."""


@dataclass(frozen=True, slots=True)
class LabSettings:
    """What a lab has beside its topology and the controller's configuration.

    length_m: of host links, fabric_length_m: of links between switches (None: the same). pfc_response_ps: of every
    node, from the arrival of a PFC frame until it acts. delays: between controller and switches. pfc: priorities that
    hosts pause and obey. nic: changes a host's NIC. dcbx: what each host says by DCBX from the start (`agents.willing`;
    None: it is silent); its NIC then runs what is agreed. lldp: timers of those agents.
    """

    length_m: int = 5
    fabric_length_m: int | None = None
    pfc_response_ps: int = 0
    delays: Delays = field(default_factory=Delays)
    pfc: frozenset[int] = frozenset({3})
    dscp_to_priority: Mapping[int, int] = field(default_factory=lambda: DSCP_TO_PRIORITY)
    nic: Callable[[Host, NicConfig], NicConfig] = lambda _, config: config
    dcbx: DcbxOf | None = None
    lldp: LldpTimers | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow between two hosts; statistics are read when they are asked for."""

    source: str
    target: str
    connection: Connection
    _sender: Nic
    _receiver: Nic

    @property
    def sent(self) -> FlowStats:
        """The sending end."""
        return self._sender.flow(self.connection.sender)

    @property
    def received(self) -> FlowStats:
        """The receiving end."""
        return self._receiver.flow(self.connection.receiver)

    @property
    def done(self) -> bool:
        """Finished or failed."""
        return self.sent.state in (FlowState.FINISHED, FlowState.FAILED)


class VirtualLab:
    """See the module. Attributes: `topology`, `fabric`, `plane`, `controller`; by name `switches`, `nics` and `agents`
    (DCBX of hosts)."""

    def __init__(
        self,
        fabric: Fabric,
        topology: Topology,
        configuration: Mapping[str, Any],
        settings: LabSettings | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.topology, self.fabric, self.settings = topology, fabric, settings or LabSettings()
        self._configuration, self._seed = configuration, seed
        self._loop = asyncio.get_running_loop()
        assert isinstance(self._loop, VirtualLoop)
        self._priority_dscp = {p: d for d, p in sorted(self.settings.dscp_to_priority.items(), reverse=True)}
        self.plane = ControlPlane(self._loop, FabricCores(fabric), delays=self.settings.delays, seed=seed)
        self.switches: dict[str, VirtualSwitch] = {}
        self.nics: dict[str, Nic] = {}
        self.agents: dict[str, NicAgent] = {}
        self.flows: list[Flow] = []
        self._links: dict[frozenset[str], Link] = {}
        self._waiting: list[tuple[list[Flow], asyncio.Future[None]]] = []
        self._program = P4Program.load()
        self._controller: Controller | None = None

    # --- life

    async def __aenter__(self) -> Self:
        try:
            self._build()
            await self.start_controller()
        except BaseException:
            await self._close()
            raise
        assert isinstance(self._loop, VirtualLoop)
        self._loop.add_watcher(self._watch)
        for host in self.topology.hosts:
            settings = self.settings.dcbx(host) if self.settings.dcbx else None
            if settings is not None:
                self.start_dcbx(host.name, settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert isinstance(self._loop, VirtualLoop)
        self._loop.remove_watcher(self._watch)
        await self._close()

    async def _close(self) -> None:
        await self.stop_controller()
        self.plane.close()

    def free(self) -> None:
        """Free the NICs: after the loop has ended and the fabric is closed."""
        for nic in self.nics.values():
            nic.close()

    def _build(self) -> None:
        response_ps = self.settings.pfc_response_ps
        for number, switch in enumerate(self.topology.switches):
            self.fabric.add_switch(switch.name, None, pfc_response_ps=response_ps)
            seed = self._seed * 1000 + number
            self.switches[switch.name] = self.plane.add(switch.name, switch.device_id, switch.ports, seed=seed)
        for host in self.topology.hosts:
            self.nics[host.name] = Nic(self.settings.nic(host, self._nic_config(host)))
            self.fabric.add_nic(host.name, self.nics[host.name], pfc_response_ps=response_ps)
        for link in self.topology.links:
            far = self.settings.fabric_length_m if link.a.port and link.b.port else None
            length_m = self.settings.length_m if far is None else far
            ends = (link.a.node, link.a.port, link.b.node, link.b.port)
            made = self.fabric.connect(*ends, rate_bps=link.rate_bps, length_m=length_m, set_rate=False)
            self._links[frozenset((link.a.node, link.b.node))] = made

    def _nic_config(self, host: Host) -> NicConfig:
        return NicConfig(
            mac=host.mac,
            ip=host.ip4,
            rate_bps=self.topology.rate_bps(host.leaf, host.number),
            pfc_rx=self.settings.pfc,
            pfc_tx=self.settings.pfc,
            dscp_to_priority=dict(self.settings.dscp_to_priority),
            events=EVENTS | {EventKind.RAW, EventKind.LINK},
            notify=NOTIFY,
        )

    # --- control plane

    @property
    def controller(self) -> Controller:
        """The running controller. LabError where it was stopped."""
        if self._controller is None:
            raise LabError("the controller is not running")
        return self._controller

    async def start_controller(self) -> None:
        """Start it (again) and wait until every switch holds the configuration."""
        config = controller_config_module.parse(self._configuration)
        controller = Controller(config, p4=self._program, client=self.plane.client)
        await controller.__aenter__()
        self._controller = controller
        await controller.wait_synced(timeout=SYNC_TIMEOUT_S)

    async def stop_controller(self) -> None:
        """The controller goes away; the switches go on with what they hold."""
        controller, self._controller = self._controller, None
        if controller is not None:
            await controller.__aexit__(None, None, None)

    async def apply(self, configuration: Mapping[str, Any]) -> None:
        """Let the controller write the difference to another configuration, and wait until the switches hold it."""
        self._configuration = configuration
        await self.controller.apply(controller_config_module.parse(configuration))
        await self.controller.wait_synced(timeout=SYNC_TIMEOUT_S)

    def start_dcbx(self, host: str, settings: DcbxSettings | None = None) -> NicAgent:
        """`dcb-host` on a host, from now on; `settings` None: willing. Its NIC runs what is agreed."""
        if host in self.agents:
            raise LabError(f"host {host}: speaks DCBX already")
        assert isinstance(self._loop, VirtualLoop)
        nic, described, link = self.nics[host], self.topology.host(host), self.fabric.link(host)
        agent = NicAgent(self._loop, nic, described, link, settings, self.settings.lldp)
        nic.frames()  # what came before is not for it
        self.agents[host] = agent
        agent.start()
        return agent

    # --- time

    @property
    def now_ps(self) -> int:
        """Virtual time since the fabric was made (the controller's first configuration took some of it)."""
        return self.fabric.now_ps

    async def sleep(self, *, s: float = 0, ms: float = 0, us: float = 0, ns: int = 0, ps: int = 0) -> None:
        """Let virtual time pass."""
        total = round(s * PS_PER_S) + round(ms * PS_PER_MS) + round(us * PS_PER_US) + ns * PS_PER_NS + ps
        await self.sleep_until(self.now_ps + total)

    async def sleep_until(self, time_ps: int) -> None:
        """Let virtual time pass up to `time_ps`."""
        assert isinstance(self._loop, VirtualLoop)
        woken = asyncio.Event()
        self._loop.call_at_ps(time_ps, woken.set)
        await woken.wait()

    async def finished(self, flows: Sequence[Flow] | None = None, *, timeout_ms: float = 1000) -> None:
        """Wait until flows (None: all) have finished or failed. LabError after `timeout_ms`, naming what did not."""
        wanted = list(self.flows if flows is None else flows)
        done = self._loop.create_future()
        self._waiting.append((wanted, done))
        self._watch()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await done
        except TimeoutError:
            behind = ", ".join(f"{f.source}->{f.target}" for f in wanted if not f.done)
            raise LabError(f"flows {behind}: not finished after {timeout_ms:g} ms") from None
        finally:
            self._waiting = [pair for pair in self._waiting if pair[1] is not done]

    def _watch(self) -> None:
        for agent in self.agents.values():
            agent.poll()
        for flows, done in self._waiting:
            if not done.done() and all(flow.done for flow in flows):
                done.set_result(None)

    async def drained(self, *, timeout_ms: float = 100) -> bool:
        """Wait until no switch and no wire holds a frame; False where that is not so after `timeout_ms`."""
        until_ps = self.now_ps + round(timeout_ms * PS_PER_MS)
        while not self.is_empty():
            if self.now_ps >= until_ps:
                return False
            await self.sleep(ps=DRAIN_STEP_PS)
        return True

    def is_empty(self) -> bool:
        """Whether no switch and no wire holds a frame now."""
        cores = (switch.core for switch in self.switches.values())
        wires = (direction for link in self.fabric.links for direction in link.directions)
        return not any(core.tm.read_state("pool_used", 0) or core.packets_held for core in cores if core) and not any(
            wire.stats().in_flight for wire in wires
        )

    # --- traffic

    def rdma(
        self,
        source: str,
        target: str,
        *,
        bytes: int = ENDLESS,
        priority: int | None = None,
        start_ps: int | None = None,
        dcqcn: str | Dcqcn = "off",
        follow: bool = False,
        **changes: Any,
    ) -> Flow:
        """An RDMA flow (RoCEv2) from now, or `start_ps`, on. `dcqcn`: off, paper, cx4 or a profile of one's own.

        `priority` None: with the marks that the source's agent says now, 3 where it has none. `follow`: both ends,
        where they have agents, take new marks as soon as they are agreed on. `changes`: other fields of
        `hosts.nic_config.RdmaConfig`. ENDLESS bytes: until `stop`.
        """
        if priority is None:
            marks = self.agents[source].marks if source in self.agents else {"priority": STORAGE_PRIORITY}
            priority = int(marks["priority"])
            changes = {"dscp": int(marks["dscp"])} | changes if "dscp" in marks else changes
        rate_bps = self.nics[source].config.rate_bps
        config = RdmaConfig(
            bytes=bytes,
            start_ps=self.now_ps if start_ps is None else start_ps,
            priority=priority,
            dscp=0 if "dscp" in changes else self.dscp(priority),
            dcqcn=Dcqcn.named(dcqcn, rate_bps) if isinstance(dcqcn, str) else dcqcn,
            udp_source_port=49152 + len(self.flows) % 16384,
        )
        flow = self._connect(source, target, replace(config, **changes))
        for host, number in ((source, flow.connection.sender), (target, flow.connection.receiver)):
            if follow and host in self.agents:
                self.agents[host].follow(number)
        return flow

    def tcp(
        self,
        source: str,
        target: str,
        *,
        bytes: int = ENDLESS,
        priority: int = 0,
        start_ps: int | None = None,
        **changes: Any,
    ) -> Flow:
        """A TCP flow. `changes`: other fields of `hosts.nic_config.TcpConfig`."""
        start = self.now_ps if start_ps is None else start_ps
        config = TcpConfig(bytes=bytes, start_ps=start, priority=priority, dscp=self.dscp(priority))
        return self._connect(source, target, replace(config, **changes))

    def _connect(self, source: str, target: str, config: RdmaConfig | TcpConfig) -> Flow:
        sender, receiver = self.nics[source], self.nics[target]
        hops = {"sender_hop": self._gateway(source), "receiver_hop": self._gateway(target)}
        if isinstance(config, RdmaConfig):
            connection = connect_rdma(sender, receiver, config, **hops)
        else:
            connection = connect_tcp(sender, receiver, config, **hops)
        flow = Flow(source, target, connection, sender, receiver)
        self.flows.append(flow)
        return flow

    def start(self, flows: Sequence[workloads.Flow], defaults: workloads.Defaults | None = None) -> list[Flow]:
        """Flows of `hosts.workloads`, their start times counted from now. `defaults`: all else of RDMA and TCP."""
        hops = {host.name: self._gateway(host.name) for host in self.topology.hosts}
        later = [replace(flow, start_ps=flow.start_ps + self.now_ps) for flow in flows]
        started = workloads.start(later, self.nics, hops=hops, defaults=defaults)
        made = [
            Flow(s.flow.source, s.flow.target, s.connection, self.nics[s.flow.source], self.nics[s.flow.target])
            for s in started
        ]
        self.flows += made
        return made

    def _gateway(self, host: str) -> str:
        described = self.topology.host(host)
        return self.topology.switch(described.leaf).port_mac(described.number)

    def dscp(self, priority: int) -> int:
        """The DSCP that hosts mark a priority with. KeyError where none is configured."""
        return self._priority_dscp[priority]

    def stop(self, flows: Iterable[Flow] | None = None) -> None:
        """No new data of these flows (None: all); they finish when what they sent is acknowledged."""
        for flow in self.flows if flows is None else flows:
            if not flow.done:
                flow._sender.stop_flow(flow.connection.sender, self.now_ps)

    # --- links and faults

    def link(self, a: str, b: str) -> Link:
        """The link between two nodes: `down()`, `up()`, `set_errors(...)`, `from_(node).set_delay(...)`."""
        try:
            return self._links[frozenset((a, b))]
        except KeyError:
            raise LabError(f"link {a}-{b}: no such link in {self.topology.name}") from None

    def set_link(self, a: str, b: str, up: bool) -> None:
        """Take a link down or up: frames on it are lost, both switches see their port go or come."""
        link = self.link(a, b)
        (link.up if up else link.down)()
        for node, port in (link.there.source, link.there.target):
            if node in self.switches:
                self.switches[node].set_port(port, up)

    def kill_switch(self, name: str) -> None:
        """As SIGKILL would: entries, counters and packets are gone; frames that come are lost."""
        self.switches[name].kill()

    def start_switch(self, name: str) -> None:
        """Start a killed switch, empty; the controller finds it and writes its configuration."""
        self.switches[name].start()

    # --- measuring

    async def snapshot(self, counters: Iterable[str] = COUNTERS, registers: Iterable[str] = REGISTERS) -> Snapshot:
        """Counters and registers of all switches, read in this moment (past the control channel and its delays)."""
        pairs = {s.name: await self._read(s.name, s.ports, counters, registers) for s in self.topology.switches}
        return Snapshot(
            self.now_ps / PS_PER_S, {n: pair[0] for n, pair in pairs.items()}, {n: pair[1] for n, pair in pairs.items()}
        )

    async def _read(
        self, switch: str, ports: tuple[int, ...], counters: Iterable[str], registers: Iterable[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        service = self.switches[switch].service

        async def read(entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
            assert service is not None
            request = p4r.ReadRequest(device_id=self.switches[switch].device_id, entities=entities)
            return [entity for response in service.read(request) for entity in response.entities]

        if service is None or service.target is None:  # killed
            return {n: dict.fromkeys(_cells(ports), (0, 0)) for n in counters}, {n: {} for n in registers}
        values = await state.read_counters(read, self._program, counters, ports)
        plain = {n: {key: (cell.packets, cell.bytes) for key, cell in cells.items()} for n, cells in values.items()}
        found = await state.read_registers(read, self._program, registers, ports)
        return plain, {n: dict(cells) for n, cells in found.items()}

    def core(self, switch: str) -> SwitchCore:
        """The core of a switch. LabError where it is dead."""
        core = self.switches[switch].core
        if core is None:
            raise LabError(f"switch {switch}: has no core now")
        return core

    def series(
        self, interval_us: float, *, queues: Mapping[str, tuple[str, int, int]] | None = None, **sources: Any
    ) -> Series:
        """Samples from now on. `queues`: label -> (switch, port, queue), their depth in bytes; `sources`: label -> what
        `state` or a link direction's `source_of` gives."""
        wanted = {label: self.state(s, "queue_depth", port, q) for label, (s, port, q) in (queues or {}).items()}
        return self.fabric.sample(round(interval_us * PS_PER_US), wanted | sources)

    def state(self, switch: str, kind: str, port: int = 0, n: int = 0) -> Any:
        """A series of a traffic manager's state, `kind` as in switch.tm_settings.STATE_KINDS."""
        return self.fabric.switch_state(switch, kind, port, n)

    def port_to(self, switch: str, peer: str) -> int:
        """The port of a switch that leads to a node. LabError where none does."""
        self.link(switch, peer)
        return self.topology.port_to(switch, peer)

    def capture(self, directory: Path, links: Iterable[tuple[str, str]] | None = None) -> None:
        """Write pcaps of links (None: all), one for each direction."""
        directory.mkdir(parents=True, exist_ok=True)
        chosen = list(self._links.values()) if links is None else [self.link(a, b) for a, b in links]
        for link in chosen:
            link.capture(directory)


def _cells(ports: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(port, n) for port in ports for n in range(8)]
