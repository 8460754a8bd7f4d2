"""From a topology and a choice of DCB settings to the controller's configuration (docs/contract.md, section 7).

The outcome is a plain dict, as YAML would give it: `controller.config` validates it. One function, no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from topologies.description import Topology
from topologies.paths import switch_socket

STORAGE_DSCP = 26
CNP_DSCP = 48
STORAGE_PRIORITY = 3
CNP_PRIORITY = 6
BUSINESS_PRIORITY = 0
DSCP_TO_PRIORITY: Mapping[int, int] = {0: BUSINESS_PRIORITY, STORAGE_DSCP: STORAGE_PRIORITY, CNP_DSCP: CNP_PRIORITY}


@dataclass(frozen=True, slots=True)
class Ecn:
    """A WRED/ECN profile: queue bytes at dequeue, pmax 0..1."""

    kmin_bytes: int
    kmax_bytes: int
    pmax: float = 1.0
    drop_non_ect: bool = False


@dataclass(frozen=True, slots=True)
class Dcb:
    """DCB settings of every port of a fabric.

    pfc: lossless priorities. ets: weight per queue, or "strict"; None leaves every queue at equal weight.
    Thresholds in bytes.
    """

    pfc: tuple[int, ...] = ()
    ets: Mapping[int, int | str] | None = None
    ecn: Mapping[int, Ecn] = field(default_factory=dict)
    xoff_bytes: int = 160_000
    xon_bytes: int = 120_000
    reserved_bytes: int = 3_000
    headroom_bytes: int = (
        4_000_000  # in real time it covers a descheduled process (320 ms at 100 Mb/s), not only a cable
    )
    queue_limit_bytes: int = 200_000
    pool_bytes: int = 16 << 20
    dscp_to_priority: Mapping[int, int] = field(default_factory=lambda: DSCP_TO_PRIORITY)
    pfc_quanta: int = 65535

    def with_pfc(self, *priorities: int) -> Dcb:
        return replace(self, pfc=priorities)

    def with_ets(self, shares: Mapping[int, int | str]) -> Dcb:
        return replace(self, ets=dict(shares))


def controller_config(topology: Topology, dcb: Dcb, *, lab: str = "lab") -> dict[str, Any]:
    """The configuration of every switch: ports, classes, PFC, ETS, ECN, buffers and ECMP routes to every host."""
    ecn_profiles = {
        f"queue{queue}": {
            "kmin_bytes": e.kmin_bytes,
            "kmax_bytes": e.kmax_bytes,
            "pmax": e.pmax,
            "drop_non_ect": e.drop_non_ect,
        }
        for queue, e in dcb.ecn.items()
    }
    config: dict[str, Any] = {
        "qos_profiles": {
            "fabric": {
                "trust": "dscp",
                "default_priority": BUSINESS_PRIORITY,
                "dscp_to_priority": dict(dcb.dscp_to_priority),
                "priority_to_pg": {n: n for n in range(8)},
                "lossless": list(dcb.pfc),
            }
        },
        "ecn_profiles": ecn_profiles,
        "ets_profiles": {},
        "buffer_profiles": {
            "lossless": {
                "reserved": dcb.reserved_bytes,
                "xoff": dcb.xoff_bytes,
                "xon": dcb.xon_bytes,
                "headroom": dcb.headroom_bytes,
            },
            "lossy": {"reserved": 0, "alpha": 0},
        },
        "switches": {},
    }
    if dcb.ets is not None:
        config["ets_profiles"]["fabric"] = {
            queue: share if isinstance(share, str) else {"ets": share} for queue, share in dcb.ets.items()
        }
    for switch in topology.switches:
        config["switches"][switch.name] = {
            "device_id": switch.device_id,
            "address": f"unix:{switch_socket(lab, switch.name)}",
            "pool": dcb.pool_bytes,
            "ports": {port: _port(topology, switch.name, port, dcb) for port in switch.ports},
            "routes": _routes(topology, switch.name),
        }
    return config


def _port(topology: Topology, switch: str, port: int, dcb: Dcb) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "name": f"{switch}-eth{port}",
        "mac": topology.switch(switch).port_mac(port),
        "rate": topology.rate_bps(switch, port),
        "peer": topology.peer(switch, port).node,
        "qos": "fabric",
        "pfc": list(dcb.pfc),
        "pfc_quanta": dcb.pfc_quanta,
        "ecn": {queue: f"queue{queue}" for queue in dcb.ecn},
        "buffers": {pg: "lossless" if pg in dcb.pfc else "lossy" for pg in range(8)},
        "queue_limits": dict.fromkeys(range(8), dcb.queue_limit_bytes),
    }
    if topology.peer(switch, port).node in {host.name for host in topology.hosts}:
        settings["arp_proxy"] = True  # a host's kernel has a static neighbour, scapy and others ask
    if dcb.ets is not None:
        settings["ets"] = "fabric"
    return settings


def _routes(topology: Topology, switch: str) -> Sequence[dict[str, Any]]:
    routes = []
    for host in topology.hosts:
        via = [{"port": port, "mac": mac} for port, mac in topology.next_hops(topology.switch(switch), host)]
        routes += [{"prefix": f"{host.ip4}/32", "via": via}, {"prefix": f"{host.ip6}/128", "via": via}]
    return routes


def host_ports(topology: Topology, config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings of every port that faces a host, in a configuration as `controller_config` makes it."""
    for name, switch in config["switches"].items():
        for number, port in switch["ports"].items():
            if topology.peer(name, number).port == 0:
                yield port


def watchdog(detect_ms: int, **more: Any) -> dict[str, Any]:
    """A port's `pfc_watchdog`: action drop, the same time to detect and to restore; `more`: other keys."""
    return {"action": "drop", "detection_time_ms": detect_ms, "restoration_time_ms": detect_ms, **more}
