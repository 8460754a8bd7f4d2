"""The verdict of dcbx-bring-up: what was seen either proves a claim or fails it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topologies.dcbx import dcbx_config, one_source, source_dcbx, source_port
from topologies.scenarios.dcbx_bring_up import Agreement, Load, Outcome, topology, verdict
from topologies.settings import Dcb

PORTS = {"leaf1": range(1, 5), "leaf2": range(1, 5), "spine1": range(1, 3), "spine2": range(1, 3)}


def agreement(priority: int) -> Agreement:
    ports = {s: {n: [] if (s, n) == ("leaf2", 2) else [priority] for n in of} for s, of in PORTS.items()}
    hosts = {name: [priority] for name in ("h1", "h2", "h3")} | {"h4": []}
    shares = [40 if tc == 0 else 60 if tc == priority else 0 for tc in range(8)]
    return Agreement(priority, 1.0, ports, hosts, dict.fromkeys(("h1", "h2", "h3"), shares) | {"h4": [0] * 8})


GOOD = Outcome(
    without=Load("none", 3, {"h1": 100, "h2": 100}, {"h1": 50, "h2": 0}, 0),
    first=agreement(3),
    lossless=Load("PFC 3", 3, {"h1": 100, "h2": 100}, {"h1": 0, "h2": 0}, 5),
    refusal=Load("refuses", 3, {"h1": 100, "h4": 100}, {"h1": 0, "h4": 40}, 5),
    mismatches=["leaf2-eth2"],
    second=agreement(4),
    moved=Load("PFC 4", 4, {"h1": 100, "h2": 100}, {"h1": 0, "h2": 0}, 5),
)


def failed(outcome: Outcome) -> list[int]:
    return [number for number, check in enumerate(verdict(outcome)) if not check.passed]


def test_what_is_right_is_proved() -> None:
    assert failed(GOOD) == []
    assert len(verdict(GOOD)) == 9


@pytest.mark.parametrize(
    ("outcome", "claims"),
    [
        (replace(GOOD, without=replace(GOOD.without, lost={"h1": 0, "h2": 0})), [0]),
        (replace(GOOD, first=agreement(4)), []),  # consistent in itself
        (replace(GOOD, first=replace(GOOD.first, hosts=GOOD.first.hosts | {"h2": []})), [2]),
        (replace(GOOD, first=replace(GOOD.first, bandwidth=GOOD.second.bandwidth)), [2]),
        (replace(GOOD, first=replace(GOOD.first, ports=GOOD.second.ports)), [1]),
        (replace(GOOD, second=replace(GOOD.second, ports=GOOD.second.ports | {"leaf2": {2: [4]}})), [3]),
        (replace(GOOD, lossless=replace(GOOD.lossless, lost={"h1": 1, "h2": 0})), [5]),
        (replace(GOOD, lossless=replace(GOOD.lossless, xoff=0)), [5]),
        (replace(GOOD, moved=replace(GOOD.moved, sent={"h1": 100, "h2": 0})), [6]),
        (replace(GOOD, mismatches=[]), [7]),
        (replace(GOOD, mismatches=["leaf1-eth1", "leaf2-eth2"]), [7]),
        (replace(GOOD, refusal=replace(GOOD.refusal, lost={"h1": 0, "h4": 0})), [8]),
        (replace(GOOD, refusal=replace(GOOD.refusal, lost={"h1": 1, "h4": 40})), [8]),
    ],
)
def test_what_is_wrong_fails_its_claim_alone(outcome: Outcome, claims: list[int]) -> None:
    assert failed(outcome) == claims


def test_only_the_source_is_configured() -> None:
    from controller.config import parse

    data = dcbx_config(topology(), Dcb(), source_dcbx([3], {0: 40, 3: 60}))
    config = parse(data)
    told = [
        (name, number)
        for name, switch in config.switches.items()
        for number, port in switch.ports.items()
        if port.pfc or port.ets or (port.dcbx and (port.dcbx.pfc or port.dcbx.ets or port.dcbx.app))
    ]
    assert told == [source_port(topology())] == [("spine1", 1)]
    assert all(not profile.lossless and not profile.dscp_to_priority for profile in config.qos_profiles.values())
    roles = {name: {n: p.dcbx.role for n, p in s.ports.items() if p.dcbx} for name, s in config.switches.items()}
    down, up = "auto-downstream", "auto-upstream"
    assert roles == {
        "leaf1": {1: down, 2: down, 3: up, 4: up},
        "leaf2": {1: down, 2: down, 3: up, 4: up},
        "spine1": {1: "configuration-source", 2: down},
        "spine2": {1: up, 2: up},
    }


@pytest.mark.parametrize(
    ("pfc", "bandwidth"), [((3,), {0: 50, 3: 50}), ((3, 4), {0: 34, 3: 33, 4: 33}), ((), {0: 100}), ((0,), {0: 100})]
)
def test_a_source_shares_equally(pfc: tuple[int, ...], bandwidth: dict[int, int]) -> None:
    data = one_source(topology(), Dcb(pfc=pfc))
    source = data["switches"]["spine1"]["ports"][1]["dcbx"]
    assert (source["pfc"], source["ets"]["bandwidth"]) == (list(pfc), bandwidth)
