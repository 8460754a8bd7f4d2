"""How a port's rate is divided among its queues: strict queues first, then ETS by weight, unused shares to the others.

Pure: integers in, integers out. For targets that know rates per queue and no scheduler (BMv2): `topologies.bmv2` asks
again whenever demand has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Queue:
    """What a queue is entitled to and what it wants. weight None: strict; demand_bps None: as much as there is."""

    weight: int | None
    demand_bps: int | None


def divide(rate_bps: int, queues: Mapping[int, Queue]) -> dict[int, int]:
    """Grants in bit/s by queue, at most `rate_bps` together; a strict queue of higher number goes first."""
    grants = dict.fromkeys(queues, 0)
    left = rate_bps
    for number in sorted((n for n, q in queues.items() if q.weight is None), reverse=True):
        demand = queues[number].demand_bps
        grants[number] = left if demand is None else min(demand, left)
        left -= grants[number]
    waiting = {n: q for n, q in queues.items() if q.weight is not None and q.demand_bps != 0}
    while waiting:
        total = sum(q.weight or 0 for q in waiting.values())
        content = {
            n: q.demand_bps
            for n, q in waiting.items()
            if q.demand_bps is not None and q.demand_bps * total <= left * (q.weight or 0)
        }
        if not content:
            for number, queue in waiting.items():
                grants[number] = left * (queue.weight or 0) // total
            break
        for number, demand_bps in content.items():
            grants[number] = demand_bps
            left -= demand_bps
            del waiting[number]
    return grants


def limits(rate_bps: int, queues: Mapping[int, Queue]) -> dict[int, int]:
    """The rate to set for each queue: its grant, or what it would be granted if it wanted all, where that is more.

    So a queue that wakes up has its share at once, and the sum is above the port's rate until the others are asked.
    """
    grants = divide(rate_bps, queues)
    found = {}
    for number, queue in queues.items():
        wants_all = {**queues, number: Queue(queue.weight, None)}
        found[number] = grants[number] if queue.demand_bps is None else divide(rate_bps, wants_all)[number]
    return found
