"""Scenario dcbx-bring-up: one port of a spine is told PFC, ETS and applications; a fabric and its hosts learn them.

A 2x2 fabric of two hosts a leaf. h1 and h2 write to h3 as their DCBX agents say; h4 refuses (not willing, another PFC
priority). Description and verdict, both pure; `topologies.dcbx_lab` runs it on Mininet, in virtual time
`topologies.virtual.dcbx_bring_up`, where two senders also run through the move of PFC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topologies.description import Topology, leaf_spine
from topologies.network import Target
from topologies.results import Check
from topologies.scenario import Option
from topologies.scenarios import storage_and_business

if TYPE_CHECKING:
    from topologies import scenario
    from topologies.virtual import Bench

NAME = "dcbx-bring-up"
SUMMARY = "one port configures a fabric by DCBX: bring-up, lossless storage, a live move to another priority, a refusal"
TARGETS = (Target.EMBEDDED, Target.BMV2)
RATE_BPS = 20_000_000  # the lab's headroom then is longer than a busy machine keeps a process waiting
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=10, high=400),
    "length_m": Option(5, "of every link", low=1, high=1000),
    "duration_us": Option(500, "of traffic in each incast", low=300, high=10_000),
    "control_us": Option(100, "between controller and switches, each way", low=1, high=10_000),
}
SENDERS = ("h1", "h2")
RECEIVER = "h3"
REFUSES = "h4"
REFUSES_PRIORITY = 5
BEFORE, AFTER = 3, 4
SHARES = {BEFORE: {0: 40, BEFORE: 60}, AFTER: {0: 40, AFTER: 60}}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a target can carry: rate of every link, buffers (fields of Dcb)."""

    rate_bps: int
    buffers: Mapping[str, Any]

    @property
    def flow_bps(self) -> int:
        """Of each sender: two are 160% of the receiver's link."""
        return self.rate_bps * 4 // 5


_BMV2 = storage_and_business.SETTINGS[Target.BMV2]
SETTINGS = {Target.EMBEDDED: Setting(RATE_BPS, {}), Target.BMV2: Setting(_BMV2.rate_bps, _BMV2.buffers)}


def topology(rate_bps: int = RATE_BPS) -> Topology:
    """The fabric."""
    return leaf_spine(2, 2, 2, rate_bps)


@dataclass(frozen=True, slots=True)
class Load:
    """Storage to the receiver: frames sent and lost, by sender; XOFF frames in the fabric for the priority."""

    name: str
    priority: int
    sent: Mapping[str, int]
    lost: Mapping[str, int]
    xoff: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """What is run: PFC by switch and port, and by host; ETS and RoCE's marks by host."""

    priority: int
    seconds: float
    ports: Mapping[str, Mapping[int, Sequence[int]]]
    hosts: Mapping[str, Sequence[int]]
    bandwidth: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was seen."""

    without: Load  # before any host speaks DCBX
    first: Agreement
    lossless: Load
    refusal: Load  # the host that refuses and one that agreed
    mismatches: Sequence[str]  # ports whose link does not agree
    second: Agreement
    moved: Load


def verdict(outcome: Outcome) -> list[Check]:
    """What the scenario proves."""
    checks = [
        Check(
            "before hosts speak DCBX, storage from them is lossy",
            sum(outcome.without.lost.values()) > 0,
            f"{sum(outcome.without.lost.values()):,} of {sum(outcome.without.sent.values()):,} frames lost",
        )
    ]
    for agreement, step in ((outcome.first, "brought up"), (outcome.second, "moved at the source")):
        checks += _agreed(agreement, step)
    for load in (outcome.lossless, outcome.moved):
        lost = sum(load.lost.values())
        evidence = f"{sum(load.sent.values()):,} sent, {lost} lost, {load.xoff} XOFF for priority {load.priority}"
        claim = f"{load.name}: an incast as DCBX says loses nothing and is paused"
        checks.append(Check(claim, lost == 0 and load.xoff > 0 and all(load.sent.values()), evidence))
    refusing = topology().host(REFUSES)
    port = f"{refusing.leaf}-eth{refusing.number}"
    checks.append(
        Check(
            f"{REFUSES}, which refuses, is the one mismatch that is reported",
            list(outcome.mismatches) == [port],
            ", ".join(outcome.mismatches) or "none",
        )
    )
    by_host = outcome.refusal.lost
    others = [count for name, count in by_host.items() if name != REFUSES]
    checks.append(
        Check(
            f"{REFUSES} is not lossless, and does no harm to who is",
            by_host[REFUSES] > 0 and not any(others),
            ", ".join(f"{name}: {count:,} lost" for name, count in by_host.items()),
        )
    )
    return checks


def run(bench: Bench) -> scenario.Outcome:
    """In virtual time."""
    from topologies.virtual import dcbx_bring_up as virtual

    return virtual.run(bench)


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.2f} ms"


def _agreed(agreement: Agreement, step: str) -> list[Check]:
    refusing = topology().host(REFUSES)
    ports = {(s, n): list(pfc) for s, of in agreement.ports.items() for n, pfc in of.items()}
    refused = ports.pop((refusing.leaf, refusing.number))
    willing = {name: list(pfc) for name, pfc in agreement.hosts.items() if name != REFUSES}
    same_ets = {tuple(row) for name, row in agreement.bandwidth.items() if name != REFUSES}
    wanted = tuple(SHARES[agreement.priority].get(tc, 0) for tc in range(8))
    p = agreement.priority
    return [
        Check(
            f"PFC {p}, {step}: every port but the one to {REFUSES} is lossless for priority {p}",
            set(map(tuple, ports.values())) == {(p,)} and not refused,
            f"{sum(pfc == [p] for pfc in ports.values())} of {len(ports)} ports, after {_took(agreement.seconds)}",
        ),
        Check(
            f"PFC {p}, {step}: all willing hosts run the same PFC and ETS",
            set(map(tuple, willing.values())) == {(p,)} and same_ets == {wanted},
            f"PFC {p} on {', '.join(willing)}; ETS {'/'.join(str(share) for share in wanted if share)}",
        ),
    ]
