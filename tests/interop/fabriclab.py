"""A leaf with two hosts, its controller with DCBX, and ends for other people's agents inside the Mininet hosts.

Everything is as a user has it: dcbswitch in a namespace, LLDP punted to the controller and sent by packet-out, `dcbctl`
at the control socket. The network is built in the test's thread, which Mininet wants; the controller runs in a thread
of its own, since agents are waited for without asyncio. `Tables` is what the switch holds, read over P4Runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from links import End, ip, until
from typer.testing import CliRunner

from controller import Controller
from controller import config as configuration
from controller.cli import app
from controller.daemon import ControlServer, control_socket
from controller.entries import Action, TableEntry
from topologies.description import leaf_spine
from topologies.network import FabricNetwork
from topologies.settings import Dcb, controller_config

Value = TypeVar("Value")
Json = dict[str, Any]

LAB = "interop"
LEAF = "leaf1"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Tables:
    """What the switch holds of one port. scheduler: of each queue that has one, "strict" or its weight."""

    pfc_rx: int
    pfc_tx: int
    queue_map: list[int]
    scheduler: dict[int, str | int]
    lossless: list[int]
    queues: list[int]
    applications: dict[tuple[tuple[str, object], ...], int]


class FabricLab:
    """Use `fabric_lab()`. Ports are numbers of the leaf: 1 to host h1, 2 to h2."""

    def __init__(self, network: FabricNetwork, controller: Controller, loop: asyncio.AbstractEventLoop) -> None:
        self.network, self.controller, self._loop = network, controller, loop
        self._base = configuration.to_data(controller.config)

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """The outcome of something of the controller's."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def set(self, port: int, dcbx: Json) -> None:
        """A port with another `dcbx`, and a DCBX that has heard nothing yet; returns when the switch has it."""
        leaf = self._base["switches"][LEAF]["ports"][port]
        for value in ({"enabled": False}, dcbx):
            leaf["dcbx"] = value
            self.run(self.controller.apply(configuration.parse(self._base)))
        self.run(self.controller.wait_synced(TIMEOUT_S))

    def port_mac(self, port: int) -> str:
        """Address of a port of the leaf."""
        return self.network.topology.switch(LEAF).port_mac(port)

    def tables(self, port: int) -> Tables:
        """What the switch holds, asked of the switch."""
        held = [one for one in self.run(self.controller.session(LEAF).read_entities()) if isinstance(one, TableEntry)]

        def rows(table: str, **key: int) -> list[tuple[dict[str, Any], Action]]:
            found = [(dict(one.match), one.action) for one in held if one.table == table]
            return [
                (match, action)
                for match, action in found
                if isinstance(action, Action) and key.items() <= match.items()
            ]

        ((_, settings),) = rows("ingress.port_config", ingress_port=port)
        ((_, pfc),) = rows("egress.tm_pfc", port=port)
        classes = {m["priority"]: a for m, a in rows("ingress.priority_map", qos_profile=settings["qos_profile"])}
        scheduler = {
            match["tc"]: "strict" if action.name == "egress.tm_strict" else action["weight"]
            for match, action in rows("egress.tm_scheduler", port=port)
        }
        applications = {
            tuple((k, getattr(v, "value", v)) for k, v in match.items() if k != "qos_profile"): action["priority"]
            for match, action in rows("ingress.app_priority", qos_profile=settings["qos_profile"])
        }
        return Tables(
            settings["pfc_rx_enable"],
            pfc["tx_enable"],
            [pfc["queue_map"] >> 3 * n & 7 for n in range(8)],
            scheduler,
            [n for n in range(8) if classes[n]["lossless"]],
            [classes[n]["queue"] for n in range(8)],
            applications,
        )

    def until_tables(self, port: int, what: str, **wanted: object) -> Tables:
        """The tables of a port, once these of their fields are so."""

        def found() -> list[Tables]:
            tables = self.tables(port)
            return [tables] if {name: getattr(tables, name) for name in wanted} == wanted else []

        try:
            (tables,) = until(found, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the switch has {self.tables(port)}\n{self.screen(port)}") from None
        return tables

    def dcbctl(self, *words: str) -> str:
        """What `dcbctl dcbx ...` prints; run in this process, which is a second faster."""
        done = CliRunner().invoke(app, ["dcbx", *words, "--lab", LAB])
        assert done.exit_code == 0, done.output
        return done.stdout

    def screen(self, port: int) -> str:
        """`dcbctl dcbx show` of a port, for people."""
        return self.dcbctl("show", f"{LEAF}:{port}")

    def show(self, port: int) -> Json:
        """`dcbctl dcbx show -j` of a port."""
        (view,) = json.loads(self.dcbctl("show", f"{LEAF}:{port}", "-j"))["ports"]
        assert isinstance(view, dict)
        return view

    @contextlib.contextmanager
    def end(self, host: str) -> Iterator[End]:
        """The host's interface for agents; iproute2 knows its namespace by a name meanwhile."""
        namespace = f"iop{os.getpid()}{host}"
        ip("netns", "attach", namespace, str(self.network.pid(host)))
        try:
            described = self.network.topology.host(host)
            yield End(namespace, described.interface, described.mac)
        finally:
            ip("netns", "del", namespace)


def _serve(started: threading.Event, holder: list[asyncio.AbstractEventLoop]) -> None:
    async def forever() -> None:
        holder.append(asyncio.get_running_loop())
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    asyncio.run(forever())


@contextlib.contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own."""
    started, holder = threading.Event(), list[asyncio.AbstractEventLoop]()
    thread = threading.Thread(target=_serve, args=(started, holder), name="controller", daemon=True)
    thread.start()
    started.wait()
    (loop,) = holder
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join(TIMEOUT_S)


@contextlib.contextmanager
def fabric_lab() -> Iterator[FabricLab]:
    """leaf1 with h1 and h2, and spine1, in service; no port speaks DCBX yet. Where the run directory is: DCBLAB_RUN."""
    topology = leaf_spine(1, 1, 2)
    data = controller_config(topology, Dcb(), lab=LAB)
    for profile in data["qos_profiles"].values():
        profile["dscp_to_priority"] = {}
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(FabricNetwork(topology, lab=LAB))
        loop = stack.enter_context(_loop())
        controller = Controller(configuration.parse(data))
        lab = FabricLab(network, controller, loop)
        lab.run(controller.__aenter__())
        stack.callback(lambda: lab.run(controller.__aexit__(None, None, None)))
        server = ControlServer(controller, control_socket(LAB), None)
        lab.run(server.__aenter__())
        stack.callback(lambda: lab.run(server.__aexit__(None, None, None)))
        lab.run(controller.wait_synced(TIMEOUT_S))
        yield lab
        network.check_switches()
