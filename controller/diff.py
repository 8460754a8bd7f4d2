"""Desired entries against those that a switch holds -> updates in stages. Sans-IO.

P4Runtime may apply the updates of one WriteRequest in any order, so whatever depends on something else is in a later
stage: inserts and modifies go from what is referred to (members) to what refers (routes), deletes the other way
round, after them. Buffers and schedulers come before the classification that sends traffic into them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from controller.entries import CloneSession, Entity, Group, Key, Member, MeterCell


class Kind(Enum):
    """What an update does to one entity."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Update:
    """One update. A DELETE carries the entity as the switch holds it."""

    kind: Kind
    entity: Entity

    def __str__(self) -> str:
        return f"{self.kind.value} {self.entity}"


# tables that refer to entries of an earlier tier, or that direct traffic into what an earlier tier configures
_TIER_OF_TABLE = {
    "ingress.nexthop": 2,
    "ingress.priority_map": 2,
    "ingress.pcp_to_priority": 2,
    "ingress.dscp_to_priority": 2,
    "ingress.app_priority": 2,
    "ingress.port_config": 3,
    "ingress.ipv4_lpm": 3,
    "ingress.ipv6_lpm": 3,
    "ingress.acl": 3,
}


def tier(entity: Entity) -> int:
    """0: refers to nothing .. 3: refers to the lower ones."""
    if isinstance(entity, Member | CloneSession | MeterCell):
        return 0
    if isinstance(entity, Group):
        return 1
    return _TIER_OF_TABLE.get(entity.table, 0)


def by_key(entities: Iterable[Entity]) -> dict[Key, Entity]:
    """Index entities by their P4Runtime identity. ValueError when two share one."""
    index: dict[Key, Entity] = {}
    for entity in entities:
        if entity.key in index:
            raise ValueError(f"{entity}: two entries with the same key")
        index[entity.key] = entity
    return index


def plan(desired: Iterable[Entity], actual: Iterable[Entity]) -> list[list[Update]]:
    """Stages of updates that turn `actual` into `desired`; empty when they are equal. ValueError on duplicate keys."""
    want, have = by_key(desired), by_key(actual)
    writes: dict[int, list[Update]] = {}
    deletes: dict[int, list[Update]] = {}
    for key, entity in want.items():
        held = have.get(key)
        if held is None:
            writes.setdefault(tier(entity), []).append(Update(Kind.INSERT, entity))
        elif held != entity:
            writes.setdefault(tier(entity), []).append(Update(Kind.MODIFY, entity))
    for key, entity in have.items():
        if key not in want:
            deletes.setdefault(tier(entity), []).append(Update(Kind.DELETE, entity))
    return [writes[level] for level in sorted(writes)] + [deletes[level] for level in sorted(deletes, reverse=True)]
