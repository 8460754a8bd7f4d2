"""The key `qcn` of a port: queues that are congestion points of 802.1Qau, and the entries that they become.

`controller.config` has the key; docs/contract.md, 3, has the table `egress.tm_qcn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from controller.entries import Action, Entity, TableEntry, match
from controller.values import U32_MAX, no_bool

TABLE = "egress.tm_qcn"
Exponent = Annotated[int, BeforeValidator(no_bool), Field(ge=-10, le=10)]
Positive = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=U32_MAX)]
SetPoint = Annotated[int, BeforeValidator(no_bool), Field(ge=100, le=U32_MAX)]
Percent = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=50)]
MessagePriority = Annotated[int, BeforeValidator(no_bool), Field(ge=0, le=7)]


class CongestionPoint(BaseModel):
    """A queue that tells sources when it is too full. Defaults, and the least set point, are IEEE8021-CN-MIB's.

    qeq: set point in bytes. weight: w is 2^weight. sample: bytes between samples at the least congestion, give or take
    `jitter` per cent. priority: of the messages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    qeq: SetPoint = 26_000
    weight: Exponent = 1
    sample: Positive = 150_000
    jitter: Percent = 15
    priority: MessagePriority = 6


def cpid(mac: int, queue: int) -> int:
    """Identifier of a congestion point: the port's MAC address, then the queue in 16 bits."""
    return mac << 16 | queue


def congestion_points(port: int, mac: int, points: Mapping[int, CongestionPoint]) -> Iterator[Entity]:
    """Entries of a port's congestion points, by queue."""
    for queue, point in points.items():
        action = Action.of(
            "egress.tm_set_qcn",
            qeq=point.qeq,
            weight=point.weight & 0xFF,
            sample=point.sample,
            jitter=point.jitter,
            priority=point.priority,
            cpid=cpid(mac, queue),
        )
        yield TableEntry(TABLE, match({"port": port, "queue": queue}), action, 0)
