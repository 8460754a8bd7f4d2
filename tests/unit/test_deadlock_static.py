"""The static deadlock check: up-down routes have no cycle, bounces and a ring have one, and it is named."""

from __future__ import annotations

from typing import Any

import pytest

from controller import config
from controller.deadlock import Buffer, cycles, dependencies
from controller.links import Links, PortRef
from topologies.description import leaf_spine
from topologies.settings import Dcb, controller_config


def fabric(*, leaves: int = 4) -> dict[str, Any]:
    return controller_config(leaf_spine(leaves, 2, 2), Dcb(pfc=(3,)))


def route(data: dict[str, Any], switch: str, leaf: int, *via: tuple[int, str]) -> None:
    """Replace the routes to the hosts of a leaf: (port, next switch) of each way."""
    topology = leaf_spine(4, 2, 2)
    hops = []
    for port, peer in via:
        end = topology.peer(switch, port)
        assert end.node == peer
        hops.append({"port": port, "mac": topology.switch(peer).port_mac(end.port)})
    for prefix in (f"10.{leaf}.0.1/32", f"10.{leaf}.0.2/32"):
        routes = [r for r in data["switches"][switch]["routes"] if r["prefix"] != prefix]
        data["switches"][switch]["routes"] = [*routes, {"prefix": prefix, "via": hops}]


def bounced() -> dict[str, Any]:
    """spine1-leaf1 and spine2-leaf4 have failed, and the spines go round by another leaf.

    To leaf1: spine1 -> leaf3 -> spine2 -> leaf1. To leaf4: spine2 -> leaf2 -> spine1 -> leaf4.
    """
    data = fabric()
    route(data, "spine1", 1, (3, "leaf3"))
    route(data, "leaf3", 1, (4, "spine2"))
    route(data, "spine2", 4, (2, "leaf2"))
    route(data, "leaf2", 4, (3, "spine1"))
    return data


RING = "leaf2:4 pg 3 -> spine1:2 pg 3 -> leaf3:3 pg 3 -> spine2:3 pg 3 -> leaf2:4 pg 3"


def test_links_follow_next_hops_and_peers() -> None:
    links = Links(config.parse(fabric(leaves=2)))
    assert links.peer(PortRef("leaf1", 3)) == PortRef("spine1", 1)
    assert links.peer(PortRef("spine2", 2)) == PortRef("leaf2", 4)
    assert {str(edge) for edge in links.edges} == {"leaf1:1", "leaf1:2", "leaf2:1", "leaf2:2"}
    assert links.neighbour(PortRef("leaf1", 3)) == "spine1:1"
    assert links.neighbour(PortRef("leaf1", 1)) == "h1"


def test_links_without_routes_come_from_peer() -> None:
    data = fabric(leaves=2)
    for switch in data["switches"].values():
        switch["routes"] = []
    assert Links(config.parse(data)).peer(PortRef("leaf2", 4)) == PortRef("spine2", 2)


def test_up_down_routes_have_no_cycle() -> None:
    parsed = config.parse(fabric(leaves=2))
    assert cycles(parsed) == []
    # h1's buffer waits for both spines' buffers of leaf 1, and they for leaf 2's
    holders = {(d.holder, d.waits_for) for d in dependencies(parsed)}
    assert (Buffer("leaf1", 1, 3), Buffer("spine1", 1, 3)) in holders
    assert (Buffer("spine1", 1, 3), Buffer("leaf2", 3, 3)) in holders
    assert (Buffer("leaf1", 3, 3), Buffer("spine2", 1, 3)) not in holders  # nothing comes down and goes up again


def test_bounces_through_two_leaves_are_a_cycle_of_four_buffers() -> None:
    (cycle,) = cycles(config.parse(bounced()))
    assert str(cycle) == RING
    first = cycle.dependencies[0]
    assert (first.out_port, first.priority, first.prefixes[:2]) == (3, 3, ("10.4.0.1/32", "10.4.0.2/32"))


def test_one_bounce_is_none() -> None:
    data = bounced()
    route(data, "spine2", 4, (4, "leaf4"))
    assert cycles(config.parse(data)) == []


def test_no_cycle_where_the_bounce_moves_to_another_lossless_priority() -> None:
    """Tagger's cure (CoNEXT 2017), as SONiC's tunnel_dscp_remapping: the second ascent has a priority of its own."""
    data = bounced()
    fabric_map = {0: 0, 26: 3, 27: 4, 48: 6}
    data["qos_profiles"]["fabric"] |= {"dscp_to_priority": fabric_map, "lossless": [3, 4]}
    data["qos_profiles"]["edge"] = data["qos_profiles"]["fabric"] | {"dscp_to_priority": {0: 0, 26: 3, 48: 6}}
    for name, switch in data["switches"].items():
        for number, port in switch["ports"].items():
            port["pfc"] = [3, 4]
            port["buffers"][4] = "lossless"
            if name.startswith("leaf") and number <= 2:
                port["qos"] = "edge"  # hosts may not use the mark of bounced packets
    for spine, leaf_port in (("spine1", 3), ("spine2", 2)):
        data["switches"][spine]["ports"][leaf_port]["dscp_rewrite"] = {3: 27}
    assert cycles(config.parse(data)) == []
    for switch in data["switches"].values():  # and where they may, the ring is back, in priority 4
        for port in switch["ports"].values():
            port["qos"] = "fabric"
    (cycle,) = cycles(config.parse(data))
    assert {d.holder.pg for d in cycle.dependencies} == {4}


@pytest.mark.parametrize("missing", ["pfc", "lossless"])
def test_lossy_priorities_cannot_deadlock(missing: str) -> None:
    data = bounced()
    if missing == "lossless":
        data["qos_profiles"]["fabric"]["lossless"] = []
    else:
        for port in data["switches"]["spine1"]["ports"].values():
            port["pfc"] = []
    assert cycles(config.parse(data)) == []


def test_two_lossless_priorities_make_two_cycles() -> None:
    data = bounced()
    qos = data["qos_profiles"]["fabric"]
    qos["dscp_to_priority"][30] = 4
    qos["lossless"] = [3, 4]
    for switch in data["switches"].values():
        for port in switch["ports"].values():
            port["pfc"] = [3, 4]
    found = cycles(config.parse(data))
    assert [{d.holder.pg for d in cycle.dependencies} for cycle in found] == [{3}, {4}]


def test_ring_of_three_switches_that_route_clockwise() -> None:
    """The textbook case: hosts two hops away, every switch sends clockwise."""

    def port_mac(switch: int, port: int) -> str:
        return f"02:01:00:00:{switch:02x}:{port:02x}"

    data: dict[str, Any] = {
        "qos_profiles": {"default": {"trust": "port", "default_priority": 3, "lossless": [3]}},
        "switches": {},
    }
    for n in range(3):
        hop = {"port": 3, "mac": port_mac((n + 1) % 3, 2)}
        data["switches"][f"s{n}"] = {
            "device_id": n + 1,
            "address": f"unix:/run/s{n}",
            "ports": {p: {"mac": port_mac(n, p), "rate": "100G", "pfc": [3]} for p in (1, 2, 3)},
            "routes": [
                {"prefix": f"10.{n}.0.1/32", "via": [{"port": 1, "mac": f"02:00:00:00:00:{n:02x}"}]},
                {"prefix": f"10.{(n + 1) % 3}.0.1/32", "via": [hop]},
                {"prefix": f"10.{(n + 2) % 3}.0.1/32", "via": [hop]},
            ],
        }
    (cycle,) = cycles(config.parse(data))
    assert str(cycle) == "s0:2 pg 3 -> s1:2 pg 3 -> s2:2 pg 3 -> s0:2 pg 3"
    # without the routes of two hops there is no transit, and no cycle
    for n in range(3):
        data["switches"][f"s{n}"]["routes"].pop()
    assert cycles(config.parse(data)) == []


def test_a_default_route_is_followed_by_longest_prefix() -> None:
    data = bounced()
    for leaf, prefix in (("leaf2", "10.4.0.1/32"), ("leaf3", "10.1.0.1/32")):
        routes = data["switches"][leaf]["routes"]
        via = next(r["via"] for r in routes if r["prefix"] == prefix)
        data["switches"][leaf]["routes"] = [
            r for r in routes if r["via"] != via or not r["prefix"].startswith(prefix[:5])
        ]
        data["switches"][leaf]["routes"].append({"prefix": "0.0.0.0/0", "via": via})
    assert [str(cycle) for cycle in cycles(config.parse(data))] == [RING]
