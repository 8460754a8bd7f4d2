"""Leaf-spine descriptions: names, ports, addresses and paths, against docs/contract.md section 7 worked out by hand."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.description import Endpoint, leaf_spine


def test_two_by_two_by_four() -> None:
    fabric = leaf_spine(2, 2, 4, 100_000_000)
    assert [s.name for s in fabric.switches] == ["leaf1", "leaf2", "spine1", "spine2"]
    assert [s.device_id for s in fabric.switches] == [1, 2, 101, 102]
    assert [h.name for h in fabric.hosts] == [f"h{n}" for n in range(1, 9)]
    assert len(fabric.links) == 8 + 4
    h6 = fabric.host("h6")
    assert (h6.leaf, h6.number, h6.ip4, h6.ip6) == ("leaf2", 2, "10.2.0.2", "fd00:2::2")
    assert h6.mac == "02:00:00:00:02:02"
    assert fabric.peer("h6", 0) == Endpoint("leaf2", 2)
    assert fabric.peer("leaf2", 5) == Endpoint("spine1", 2)
    assert fabric.peer("spine2", 1) == Endpoint("leaf1", 6)
    assert fabric.switch("leaf2").port_mac(5) == "02:01:00:00:02:05"
    assert fabric.switch("spine1").port_mac(2) == "02:02:00:00:01:02"


def test_next_hops_follow_every_shortest_path() -> None:
    fabric = leaf_spine(2, 2, 4)
    h1 = fabric.host("h1")
    assert fabric.next_hops(fabric.switch("leaf1"), h1) == [(1, "02:00:00:00:01:01")]
    assert fabric.next_hops(fabric.switch("spine2"), h1) == [(1, "02:01:00:00:01:06")]
    assert fabric.next_hops(fabric.switch("leaf2"), h1) == [(5, "02:02:00:00:01:02"), (6, "02:02:00:00:02:02")]


@settings(max_examples=30)
@given(st.integers(1, 99), st.integers(1, 20), st.integers(1, 20))
def test_every_name_and_address_is_unique_and_valid(leaves: int, spines: int, hosts: int) -> None:
    fabric = leaf_spine(leaves, spines, hosts)
    macs = [h.mac for h in fabric.hosts] + [s.port_mac(p) for s in fabric.switches for p in s.ports]
    assert len(set(macs)) == len(macs)
    assert len({ipaddress.ip_address(a) for h in fabric.hosts for a in (h.ip4, h.ip6)}) == 2 * len(fabric.hosts)
    interfaces = [end.interface for link in fabric.links for end in (link.a, link.b)]
    assert len(set(interfaces)) == len(interfaces)
    assert max(map(len, interfaces)) <= 15
    assert len({s.device_id for s in fabric.switches}) == len(fabric.switches)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"leaves": 0}, "leaves 0: must be 1..99"),
        ({"spines": 100}, "spines 100: must be 1..99"),
        ({"hosts_per_leaf": 201}, "hosts_per_leaf 201: must be 1..200"),
        ({"hosts_per_leaf": 200, "spines": 56}, "hosts_per_leaf 200 + spines 56: a leaf has at most 255 ports"),
        ({"rate_bps": 999_999}, "rate_bps 999999: must be 1000000..800000000000"),
    ],
)
def test_refusals_name_the_argument_the_value_and_the_rule(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=r"must be|at most") as refusal:
        leaf_spine(**arguments)
    assert str(refusal.value) == message
