"""The control plane of a virtual fabric: switches as `dcbswitch` runs them, and the way to them.

A `VirtualSwitch` is core, target and P4Runtime service of one switch in this process. It is started, killed and
restarted; a killed one forgets everything, as a process does. Its core is made when a pipeline is pushed, and another
one takes its place with the next: `on_core` is told. A `ControlPlane` has the switches of a fabric, polls them when the
world has run, and makes clients: `Controller(config, client=plane.client)`.

    def main():
        plane = ControlPlane(world)                      # in the VirtualLoop
        leaf1 = plane.add("leaf1", device_id=1, ports=[1, 2, 3])
        async with Controller(config, client=plane.client) as controller:
            await controller.wait_synced()

Who drives the cores (the fabric's engine) is a `CoreObserver`: told before the control plane touches a core, which is
to be brought to the present, and after, when its next deadline, and what it has sent, may be other ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from finsy.proto import p4i, p4r

from fabric.channel import Connection, Delays, VirtualClient
from fabric.engine import Fabric
from fabric.loop import PS_PER_NS, VirtualLoop
from switch.core import SwitchCore
from switch.model import Program
from switch.p4rt.control import Event, PortEvent
from switch.p4rt.errors import P4RuntimeError, unimplemented
from switch.p4rt.service import Outgoing, Service
from switch.target import Target, TargetFactory

T = TypeVar("T")
KILLED = "Socket closed"
CUT = "Connection reset by peer"


class CoreObserver(Protocol):
    """Who drives the cores. All of it is called at the world's present."""

    def on_core(self, switch: VirtualSwitch, core: SwitchCore | None) -> None:
        """A switch forwards with this core from now on, which stands at the present and has all its ports; None: with
        none, as before a pipeline is pushed. The one before is closed after this returns."""

    def settle(self, switch: VirtualSwitch) -> None:
        """The control plane is about to touch the core: bring it to the present."""

    def touched(self, switch: VirtualSwitch) -> None:
        """It has: what the core sent is to be taken, its next deadline asked for."""


class FabricCores:
    """A `CoreObserver`: the cores of switches are those of the nodes of the same name in a fabric.

    `Fabric.add_switch(name, None)` and `connect` come first; every new core gets the ports and rates of its links. The
    fabric's `run` leaves all cores at the present and asks for their deadlines anew, so nothing else is to be done.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric

    def on_core(self, switch: VirtualSwitch, core: SwitchCore | None) -> None:
        self.fabric.replace_switch(switch.name, core)
        for link in self.fabric.links if core is not None else ():
            for direction in link.directions:
                node, port = direction.source
                if node == switch.name and core is not None:
                    core.tm.set_port(port, direction.rate_bps)

    def settle(self, switch: VirtualSwitch) -> None:
        """The core stands at the present."""

    def touched(self, switch: VirtualSwitch) -> None:
        """The fabric asks by itself."""


class _Target(Target):
    """A target whose ports are the fabric's: they are there from the start, and go up and down as it says."""

    def __init__(self, core: SwitchCore, p4info: p4i.P4Info, program: Program, switch: VirtualSwitch) -> None:
        super().__init__(core, p4info, program)
        self._switch = switch
        self._told_up = dict(switch.ports)  # what the service knows; Target's own record is of interfaces
        core.advance(switch.plane.loop.now_ps)
        for port in switch.ports:
            core.tm.add_port(port)

    def start(self) -> None:
        super().start()
        self._told_up = dict(self._switch.ports)
        self._switch.plane.observer.on_core(self._switch, self.core)

    def port_is_up(self, port: int) -> bool:
        return self._told_up.get(port, True)

    def port_exists(self, port: int) -> bool:
        return port == self.core.cpu_port or port in self._switch.ports

    def events(self) -> list[Event]:
        found = super().events()
        for port, up in self._switch.ports.items() if self._running else ():
            if self._told_up[port] != up:
                self._told_up[port] = up
                found.append(PortEvent(port, up))
        return found


class _Factory(TargetFactory):
    """Of one switch."""

    switch: VirtualSwitch

    def _target(self, core: SwitchCore, p4info: p4i.P4Info, program: Program) -> Target:
        return _Target(core, p4info, program, self.switch)


class _Process:
    """One life of a switch: what dies with it. A `fabric.channel.Server`."""

    def __init__(self, switch: VirtualSwitch) -> None:
        self._switch = switch
        self.alive = True
        self.service = Service(switch.device_id, switch.factory)

    @property
    def target(self) -> Target | None:
        """The target that forwards."""
        target = self.service.target
        assert target is None or isinstance(target, Target)
        return target

    def connected(self, connection: Connection) -> None:
        """Nothing is kept of a connection before its stream speaks."""

    def stream_message(self, connection: Connection, message: p4r.StreamMessageRequest) -> None:
        self._switch.plane.deliver(self._touch(lambda: self.service.stream_message(connection, message)))
        self._switch.poll()

    def stream_ended(self, connection: Connection) -> None:
        self._switch.plane.deliver(self._touch(lambda: self.service.disconnect(connection)))

    def call(self, request: Any) -> list[Any]:
        try:
            return self._touch(lambda: self._answer(request))
        finally:
            self._switch.poll()

    def _touch(self, work: Callable[[], T]) -> T:
        observer, switch = self._switch.plane.observer, self._switch
        observer.settle(switch)
        try:
            return work()
        finally:
            observer.touched(switch)

    def _answer(self, request: Any) -> list[Any]:
        match request:
            case p4r.WriteRequest():
                self.service.write(request)
                return [p4r.WriteResponse()]
            case p4r.ReadRequest():
                return self._read(request)
            case p4r.GetForwardingPipelineConfigRequest():
                return [self.service.get_config(request)]
            case p4r.SetForwardingPipelineConfigRequest():
                return self._set_config(request)
            case p4r.CapabilitiesRequest():
                return [self.service.capabilities()]
        raise unimplemented(f"{type(request).__name__}: no such RPC")

    def _read(self, request: p4r.ReadRequest) -> list[Any]:
        responses: list[Any] = []
        try:
            responses.extend(self.service.read(request))
        except P4RuntimeError as error:
            error.responses = responses  # type: ignore[attr-defined]
            raise
        return responses

    def _set_config(self, request: p4r.SetForwardingPipelineConfigRequest) -> list[Any]:
        change = self.service.prepare(request)
        change.build()
        self.service.finish(change)
        return [p4r.SetForwardingPipelineConfigResponse()]


class VirtualSwitch:
    """See the module. `ports`: number -> up."""

    def __init__(
        self, plane: ControlPlane, name: str, device_id: int, ports: Iterable[int], factory: _Factory, seed: str
    ) -> None:
        factory.switch = self
        self.plane, self.name, self.device_id, self.factory = plane, name, device_id, factory
        self.ports = dict.fromkeys(sorted(ports), True)
        self.delays = plane.delays
        self.generator = random.Random(seed)
        self.reachable = True
        self.stalled = False
        self.connections: list[Connection] = []
        self._process: _Process | None = None
        self._due_ps: int | None = None

    # ---- the process ------------------------------------------------------------------------------------------------

    @property
    def server(self) -> _Process | None:
        """The process, where one runs."""
        return self._process

    @property
    def core(self) -> SwitchCore | None:
        """The core that forwards, once a pipeline is pushed."""
        target = self._process.target if self._process is not None else None
        return None if target is None else target.core

    @property
    def service(self) -> Service | None:
        """The P4Runtime service, while the switch runs. To look at."""
        return None if self._process is None else self._process.service

    def start(self) -> None:
        """Run it, without a program. Nothing where it runs."""
        if self._process is None:
            self._process = _Process(self)

    def kill(self) -> None:
        """End it as SIGKILL would: entries, packets and counters are gone, connections break."""
        process, self._process = self._process, None
        if process is None:
            return
        process.alive = False
        for connection in list(self.connections):
            connection.break_off(KILLED)
        self.plane.observer.on_core(self, None)
        process.service.close()

    def restart(self) -> None:
        """Kill it and start it anew, at once."""
        self.kill()
        self.start()

    # ---- the way to it ----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Break the connections of the control plane; none can be made until `heal`. Forwarding goes on."""
        self.reachable = False
        for connection in list(self.connections):
            connection.break_off(CUT)

    def stall(self) -> None:
        """Hold everything between controllers and switch until `heal`, without either being told."""
        self.stalled = True

    def heal(self) -> None:
        """End `cut` and `stall`; what was held arrives now."""
        self.reachable, self.stalled = True, False
        for connection in list(self.connections):
            connection.to_switch.resume()
            connection.to_client.resume()

    # ---- the data plane ---------------------------------------------------------------------------------------------

    def set_port(self, port: int, up: bool) -> None:
        """Carrier of a port. KeyError where there is no such port."""
        if port not in self.ports:
            raise KeyError(f"switch {self.name}: port {port}: ports are {', '.join(map(str, self.ports))}")
        self.ports[port] = up
        self.poll()

    def poll(self) -> None:
        """Deliver what the data plane has to say, and what is due."""
        process = self._process
        if process is None or process.target is None:
            return
        loop = self.plane.loop
        now_ns = loop.now_ps // PS_PER_NS
        self.plane.deliver(process.service.poll(now_ns, now_ns))
        deadline_ns = process.service.next_deadline_ns(now_ns)
        if deadline_ns is None:
            return
        due_ps = max(deadline_ns * PS_PER_NS, loop.now_ps + PS_PER_NS)
        if self._due_ps is None or self._due_ps <= loop.now_ps or due_ps < self._due_ps:
            self._due_ps = due_ps
            loop.call_at_ps(due_ps, self._on_due, process)

    def _on_due(self, process: _Process) -> None:
        self._due_ps = None
        if process is self._process:
            self.plane.observer.settle(self)  # ages of entries count from the present of the core
            self.poll()


class ControlPlane:
    """The switches of a fabric. `seed`: of the jitters; each switch has a generator of its own."""

    def __init__(
        self, loop: VirtualLoop, observer: CoreObserver, *, delays: Delays | None = None, seed: int = 0
    ) -> None:
        self.loop, self.observer, self.delays, self.seed = loop, observer, delays or Delays(), seed
        self.switches: dict[str, VirtualSwitch] = {}
        loop.add_watcher(self.poll)

    def add(
        self,
        name: str,
        device_id: int,
        ports: Iterable[int],
        *,
        cpu_port: int = 510,
        drop_port: int = 511,
        seed: int = 0,
        started: bool = True,
    ) -> VirtualSwitch:
        """A switch. `seed`: of its program's random numbers. ValueError where the name is taken."""
        if name in self.switches:
            raise ValueError(f"switch {name}: there is one of this name")
        factory = _Factory(cpu_port=cpu_port, drop_port=drop_port, seed=seed)
        switch = VirtualSwitch(self, name, device_id, ports, factory, f"{self.seed}/{name}")
        self.switches[name] = switch
        if started:
            switch.start()
        return switch

    def client(self, switch: str, address: str) -> VirtualClient:
        """A client of a switch; `Controller(config, client=plane.client)`. KeyError where there is no such switch."""
        if switch not in self.switches:
            raise KeyError(f"switch {switch}: not in the fabric (there are: {', '.join(self.switches) or 'none'})")
        return VirtualClient(self.switches[switch], address)

    def poll(self) -> None:
        """Take what all data planes have to say."""
        for switch in self.switches.values():
            switch.poll()

    @staticmethod
    def deliver(messages: Iterable[Outgoing]) -> None:
        """Stream messages on their way."""
        for outgoing in messages:
            assert isinstance(outgoing.client, Connection)
            outgoing.client.respond(outgoing.message)

    def close(self) -> None:
        """Kill all switches and let go of the loop."""
        for switch in self.switches.values():
            switch.kill()
        self.loop.remove_watcher(self.poll)
