"""A fabric of controller agents and hosts in one process: frames are carried at once, the clock moves by deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.config import Config, parse
from controller.dcbx import DcbxAgent
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.settings import DcbxSettings
from dcb.lldp.agent import LocalSystem
from dcb.lldp.tlv import ChassisId, PortId

S = 1_000_000_000
SOURCE: dict[str, Any] = {
    "role": "configuration-source",
    "ets": {"priority_to_tc": {3: 1, 6: 2}, "bandwidth": {0: 40, 1: 60}, "strict": [2]},
    "pfc": [3],
    "app": [{"udp": 4791, "priority": 3}, {"dscp": 26, "priority": 3}, {"dscp": 48, "priority": 6}],
}


def switch(device_id: int, ports: dict[int, tuple[str, dict[str, Any]]], **dcbx: Any) -> dict[str, Any]:
    """A switch of the config: {port: (name, its dcbx)}."""
    return {
        "device_id": device_id,
        "address": f"unix:/nowhere/{device_id}",
        "dcbx": {"lossless_buffers": "lossless", **dcbx},
        "ports": {
            number: {"name": name, "mac": f"02:01:00:00:{device_id:02x}:{number:02x}", "rate": "100M", "dcbx": own}
            for number, (name, own) in ports.items()
        },
    }


def config(switches: dict[str, Any]) -> Config:
    return parse(
        {
            "qos_profiles": {"default": {"dscp_to_priority": {26: 3}}},
            "buffer_profiles": {"lossless": {"xoff": 60000, "xon": 40000, "headroom": 100000}},
            "switches": switches,
        }
    )


def leaf_spine(source: dict[str, Any] = SOURCE) -> dict[str, Any]:
    """Two leaves, two spines, two hosts a leaf (ports 1, 2), uplinks at 3 and 4. The source is spine1's port 1."""
    up, down = {"role": "auto-upstream"}, {"role": "auto-downstream"}
    leaves = {
        f"leaf{i}": switch(i, {n: (f"leaf{i}-eth{n}", down if n < 3 else up) for n in range(1, 5)}) for i in (1, 2)
    }
    spines = {
        "spine1": switch(101, {1: ("spine1-eth1", source), 2: ("spine1-eth2", down)}),
        "spine2": switch(102, {1: ("spine2-eth1", up), 2: ("spine2-eth2", up)}),
    }
    return {**leaves, **spines}


def host(name: str, mac: str, settings: DcbxSettings | None = None) -> DcbxPort:
    address = bytes.fromhex(mac.replace(":", ""))
    system = LocalSystem(ChassisId.mac(address), PortId.interface(name), system_name=name)
    return DcbxPort(address, system, settings or DcbxSettings.host())


class Net:
    """Agents and hosts, and links between ("leaf1", 1) and ("h1", 0)."""

    def __init__(self, conf: Config, hosts: dict[str, DcbxPort], links: list[tuple[tuple[str, int], tuple[str, int]]]):
        self.now_ns = 0
        self.hosts, self.config = hosts, conf
        self.peers = {**dict(links), **{b: a for a, b in links}}
        self.down: set[tuple[str, int]] = set()
        self.agents = {name: DcbxAgent(name) for name in conf.switches}
        self.sent: list[tuple[int, str, int, bytes]] = []
        for agent in self.agents.values():
            agent.configure(conf, 0)

    def start(self) -> None:
        for agent in self.agents.values():
            agent.activate((), self.now_ns)
        for port in self.hosts.values():
            port.set_link(True, self.now_ns)

    def configure(self, conf: Config) -> None:
        self.config = conf
        for agent in self.agents.values():
            agent.configure(conf, self.now_ns)
        self.carry()

    def carry(self) -> None:
        while True:
            out = [(n, p, f) for n, a in self.agents.items() for p, f in a.frames_to_send(self.now_ns)]
            out += [(name, 0, frame) for name, port in self.hosts.items() for frame in port.frames_to_send(self.now_ns)]
            if not out:
                return
            for node, number, frame in out:
                self.sent.append((self.now_ns, node, number, frame))
                to = self.peers.get((node, number))
                if to is None or (node, number) in self.down or to in self.down:
                    continue
                if to[0] in self.agents:
                    self.agents[to[0]].receive(to[1], frame, self.now_ns)
                else:
                    self.hosts[to[0]].receive(frame, self.now_ns)

    def run(self, until_ns: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Run until a time, or until `stop` says so; returns when that was."""
        self.carry()
        nodes = [*self.agents.values(), *self.hosts.values()]
        while not stop():
            due = min((t for node in nodes if (t := node.next_deadline_ns()) is not None), default=until_ns + 1)
            if due > until_ns:
                self.now_ns = until_ns
                break
            self.now_ns = max(due, self.now_ns)
            for node in nodes:
                node.handle_timer(self.now_ns)
            self.carry()
        return self.now_ns


HOSTS = ("h1", "h2", "h3", "h4")


def fabric(conf: Config, settings: dict[str, DcbxSettings] | None = None) -> Net:
    """`leaf_spine` with its hosts, not started. settings: of hosts that are not plainly willing."""
    hosts = {
        name: host(f"{name}-eth0", f"02:00:00:00:00:{index:02x}", (settings or {}).get(name))
        for index, name in enumerate(HOSTS, 1)
    }
    links = [((f"leaf{1 + index // 2}", 1 + index % 2), (name, 0)) for index, name in enumerate(HOSTS)]
    links += [((f"leaf{i}", 2 + j), (f"spine{j}", i)) for i in (1, 2) for j in (1, 2)]
    return Net(conf, hosts, links)
