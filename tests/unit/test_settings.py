"""The controller accepts what `topologies.settings` writes, and it says what docs/contract.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller import config
from topologies.description import leaf_spine
from topologies.scenarios.storage_and_business import phases
from topologies.settings import controller_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("phase", phases(), ids=lambda p: p.name)
def test_every_phase_is_a_valid_configuration_without_warnings(phase: object) -> None:
    parsed = config.parse(controller_config(leaf_spine(), phase.dcb))  # type: ignore[attr-defined]
    assert config.warnings(parsed) == []
    assert config.parse_text(config.dump(parsed)) == parsed


def test_leaf_port_and_routes_by_hand() -> None:
    parsed = config.parse(controller_config(leaf_spine(), phases()[2].dcb, lab="x"))
    leaf2 = parsed.switches["leaf2"]
    assert (leaf2.device_id, leaf2.address.split("/")[-2:]) == (2, ["x", "leaf2.sock"])
    port = leaf2.ports[5]
    assert (port.peer, port.mac, port.rate, port.pfc) == ("spine1", "02:01:00:00:02:05", 100_000_000, [3])
    assert {number: port.arp_proxy for number, port in leaf2.ports.items()} == {n: n <= 4 for n in range(1, 7)}
    assert not any(port.arp_proxy for port in parsed.switches["spine1"].ports.values())
    routes = {route.prefix: [(hop.port, hop.mac) for hop in route.via] for route in leaf2.routes}
    assert len(routes) == 16
    assert routes["10.1.0.1/32"] == [(5, "02:02:00:00:01:02"), (6, "02:02:00:00:02:02")]
    assert routes["fd00:2::4/128"] == [(4, "02:00:00:00:02:04")]


def test_the_contracts_example_is_accepted_without_warnings() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "contract.md").read_text(), re.DOTALL)
    assert config.warnings(config.parse_text(example)) == []
