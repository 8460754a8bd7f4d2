"""DCBX over a fabric: a controller configuration in which one port knows what to do, and agents on the hosts.

`dcbx_config` is the configuration of `topologies.settings` without PFC, ETS and losslessness on any port; one port, the
first spine's to the first leaf, gets them as configuration-source. Leaves' uplinks and the other spines' ports are
auto-upstream, the rest auto-downstream. `HostAgents` runs `dcb-host` in every host.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from topologies.description import Tier, Topology
from topologies.network import FabricNetwork, NetworkError
from topologies.paths import run_dir
from topologies.processes import HostProcess
from topologies.settings import CNP_DSCP, CNP_PRIORITY, STORAGE_DSCP, Dcb, controller_config

ROCE_V2_PORT = 4791
START_TIMEOUT_S = 30.0
Json = dict[str, Any]


def source_dcbx(pfc: Iterable[int], shares: Mapping[int, int]) -> Json:
    """The source's configuration: PFC priorities, and per cent of each class of that number; CNPs strict on top.

    Storage (UDP 4791, DSCP 26) goes to the first PFC priority.
    """
    priorities = sorted(pfc)
    storage = priorities[0] if priorities else 0
    applications = [
        {"udp": ROCE_V2_PORT, "priority": storage},
        {"dscp": STORAGE_DSCP, "priority": storage},
        {"dscp": CNP_DSCP, "priority": CNP_PRIORITY},
    ]
    return {
        "role": "configuration-source",
        "pfc": priorities,
        "ets": {
            "priority_to_tc": {n: n if n in shares or n == CNP_PRIORITY else 0 for n in range(8)},
            "bandwidth": dict(shares),
            "strict": [CNP_PRIORITY],
        },
        "app": applications,
    }


def dcbx_config(topology: Topology, dcb: Dcb, source: Mapping[str, Any], *, lab: str = "lab", **lldp: int) -> Json:
    """A configuration in which only one port says what PFC, ETS and applications are to be.

    lldp: timers for all switches, such as tx_interval_s=5.
    """
    config = controller_config(topology, dcb.with_pfc(), lab=lab)
    for profile in config["qos_profiles"].values():
        profile["dscp_to_priority"] = {}
    for switch in topology.switches:
        entry = config["switches"][switch.name]
        entry["dcbx"] = {"lossless_buffers": "lossless", **lldp}
        for port in switch.ports:
            entry["ports"][port].pop("ets", None)
            entry["ports"][port]["dcbx"] = dict(_role(topology, switch.name, port, source))
    return config


def one_source(topology: Topology, dcb: Dcb, *, lab: str = "lab") -> Json:
    """`dcbx_config` whose source has the PFC of `dcb`, and equal shares of its classes and of everything else."""
    classes = sorted({0, *dcb.pfc} - {CNP_PRIORITY})
    shares = {tc: 100 // len(classes) + (n < 100 % len(classes)) for n, tc in enumerate(classes)}
    return dcbx_config(topology, dcb, source_dcbx(dcb.pfc, shares), lab=lab)


def start_host_agents(network: FabricNetwork, lab: str) -> None:
    """dcb-host in every host, until the network ends; returns when `dcb-host show` in a host has something to print."""
    states = {host: state_folder(lab) / f"{host.interface}.json" for host in network.topology.hosts}
    processes = {
        host: network.start(host.name, agent_command(host.interface, host.name, path)) for host, path in states.items()
    }
    deadline = time.monotonic() + START_TIMEOUT_S
    for host, path in states.items():
        while not path.exists():
            if processes[host].poll() is not None or time.monotonic() > deadline:
                raise NetworkError(f"host {host.name}: dcb-host wrote no state within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.05)


def state_folder(lab: str) -> Path:
    """Where the host agents of a lab keep their state."""
    return run_dir(lab) / "dcbx"


def agent_command(interface: str, name: str, state: Path) -> list[str]:
    """dcb-host on an interface."""
    command = [sys.executable, "-m", "hosts.dcbx", "-i", interface, "--name", name, "-q"]
    return [*command, "--state", str(state)]


def source_port(topology: Topology) -> tuple[str, int]:
    """The configuration-source: switch and port."""
    return next(switch.name for switch in topology.switches if switch.tier is Tier.SPINE), 1


def _role(topology: Topology, switch: str, port: int, source: Mapping[str, Any]) -> Mapping[str, Any]:
    if (switch, port) == source_port(topology):
        return source
    to_host = topology.peer(switch, port).node in {host.name for host in topology.hosts}
    down = to_host or switch == source_port(topology)[0]
    return {"role": "auto-downstream" if down else "auto-upstream"}


class HostAgents:
    """`async with HostAgents(net, "lab", {"h4": ["--willing", "none"]}):` dcb-host in every host, until exit."""

    def __init__(self, network: FabricNetwork, lab: str, options: Mapping[str, list[str]] | None = None) -> None:
        self._network, self._options = network, options or {}
        self._folder = state_folder(lab)
        self._stack = contextlib.AsyncExitStack()
        self.processes: dict[str, HostProcess] = {}

    async def __aenter__(self) -> HostAgents:
        try:
            for host in self._network.topology.hosts:
                await self.start(host.name)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, host: str) -> None:
        """Start the agent of a host (again)."""
        interface = self._network.topology.host(host).interface
        arguments = [*agent_command(interface, host, self.state_path(host)), *self._options.get(host, ())]
        self.processes[host] = await self._stack.enter_async_context(HostProcess(self._network, host, arguments))

    def sender(self, host: str) -> list[str]:
        """The RoCE sender of a host that does what its agent says; options of `hosts.roce` follow."""
        interface = self._network.topology.host(host).interface
        command = [sys.executable, "-m", "hosts.dcbx", "roce", "-i", interface]
        return [*command, "--state", str(self.state_path(host))]

    def state_path(self, host: str) -> Path:
        """The state file of a host's agent."""
        return self._folder / f"{host}.json"

    def state(self, host: str) -> Json:
        """What a host's agent says that it runs. NetworkError where it has said nothing yet."""
        try:
            state: Json = json.loads(self.state_path(host).read_text())
        except (OSError, ValueError) as error:
            raise NetworkError(f"host {host}: DCBX state: {error}") from None
        return state
