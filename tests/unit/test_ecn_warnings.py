"""The warning that PFC would act before ECN: at which Kmin it comes, and for which groups."""

from __future__ import annotations

import pytest

from controller.config import parse_text, warnings

CONFIG = """
qos_profiles: {{default: {{dscp_to_priority: {{26: 3}}, lossless: [3]}}}}
ecn_profiles: {{storage: {{kmin_bytes: {kmin}, kmax_bytes: 4000000}}}}
buffer_profiles:
  static: {{xoff: 100000, xon: 80000, headroom: 50000}}
  low: {{xoff: 60000, xon: 40000, headroom: 50000}}
  dynamic: {{reserved: 3000, alpha: -1, headroom: 50000}}
switches:
  leaf1:
    device_id: 1
    address: 127.0.0.1:1
    pool: 900000
    ports:
      1: {{mac: "02:01:00:00:01:01", rate: 100G, pfc: [3], ecn: {{3: storage}}, buffers: {{3: {one}}}}}
      2: {{mac: "02:01:00:00:01:02", rate: 100G, pfc: {pfc}, buffers: {{3: {two}}}}}
"""


def ecn(kmin: int, one: str = "static", two: str = "static", pfc: str = "[3]") -> list[str]:
    return [w for w in warnings(parse_text(CONFIG.format(kmin=kmin, one=one, two=two, pfc=pfc))) if ".ecn." in w]


@pytest.mark.parametrize(
    ("two", "xoff"),
    [
        ("static", 100_000),
        ("low", 60_000),
        # alone in its pool of 900,000 bytes, alpha 1/2: 3,000 + 1/2 x 900,000 / (1 + 1/2)
        ("dynamic", 303_000),
    ],
)
def test_kmin_at_the_xoff_of_a_group_that_feeds_the_queue(two: str, xoff: int) -> None:
    assert ecn(xoff - 1, two=two) == []
    assert ecn(xoff, two=two) == [
        f"switches.leaf1.ports.1.ecn.3: kmin {xoff} is not below {xoff}, at which group 3 of port 2 is XOFF: "
        "PFC pauses before ECN marks"
    ]


def test_its_own_port_does_not_feed_a_queue() -> None:
    assert ecn(70_000, one="low", two="static") == []


def test_a_group_without_pfc_never_says_xoff() -> None:
    assert ecn(4_000_000, pfc="[]") == []
