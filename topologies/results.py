"""What a run of a scenario measured, as plain records that turn into JSON, tables and plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ClassResult:
    """One traffic class over one run, in frames. `offered` entered the fabric, `received` reached the far host.

    `lost` is counted where it happened (switch drops, or gaps in the receiver's sequence numbers), so
    offered - received - lost is what was neither: 0 once the fabric has drained.
    """

    name: str
    priority: int
    offered: int
    received: int
    lost: int
    reordered: int
    ce_marked: int
    received_bps: int


@dataclass(frozen=True, slots=True)
class LinkPfc:
    """PFC frames on one direction of one link: `sender` told `receiver` to stop (XOFF) or go on (XON)."""

    sender: str
    receiver: str
    xoff: int
    xon: int
    priorities: tuple[int, ...]  # priorities with at least one frame
    received: int | None = None  # XOFF and XON that the receiver counted; None: a host that does not look


@dataclass(frozen=True, slots=True)
class Drops:
    """Frames that a switch dropped for one reason; priority -1 where they were lost before they had one."""

    switch: str
    reason: str
    priority: int
    frames: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of the progress line and of the plot."""

    time_s: float
    received_bps: Mapping[str, float]  # by class
    queue_bytes: Mapping[str, int]
    pfc_xoff: int
    lost: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run. Shares are of the bytes that left the bottleneck port while both of its queues were backlogged."""

    name: str
    duration_s: float
    classes: tuple[ClassResult, ...]
    pfc: tuple[LinkPfc, ...]
    share: Mapping[int, float]  # queue -> 0..1
    configured_share: Mapping[int, float] | None
    paused_ns: Mapping[int, int]  # priority -> time, summed over every paused port and host
    left_in_buffers_bytes: int
    drops: tuple[Drops, ...] = ()
    samples: tuple[Sample, ...] = field(default=())

    def traffic_class(self, name: str) -> ClassResult:
        return next(c for c in self.classes if c.name == name)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a scenario proves, or fails to."""

    claim: str
    passed: bool
    evidence: str
