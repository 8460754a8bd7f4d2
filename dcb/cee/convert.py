"""Between CEE's configuration and that of 802.1Qaz, so that a port is configured once and runs either.

priority group n          traffic class n, ETS with the group's percentage
link strict (PGID 15)     a strict traffic class: the highest that no priority is in
strict, CBS, vendor TSA   link strict; CEE has one such group, so the order among several is lost
CEE selector 0, 1         IEEE selector 1 (EtherType), 4 (any of TCP, SCTP, UDP, DCCP)
IEEE selector 2, 3, 4     CEE selector 1; selector 5 (DSCP) has no counterpart and is left out
"""

from __future__ import annotations

from collections.abc import Iterable

from dcb.cee.tlv import LINK_STRICT, AppFeature, CeeApp, PriorityGroups
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector, Tsa, bits


def ets_from_groups(groups: PriorityGroups) -> EtsTable:
    """What a port schedules by that runs these priority groups."""
    used = {group for group in groups.pgid if group != LINK_STRICT}
    strict = next((n for n in range(7, -1, -1) if n not in used), 7)
    priority_tc = tuple(strict if group == LINK_STRICT else group for group in groups.pgid)
    has_strict = LINK_STRICT in groups.pgid
    tsa = tuple(
        Tsa.ETS if n in used or (groups.percent[n] and not (has_strict and n == strict)) else Tsa.STRICT
        for n in range(8)
    )
    return EtsTable.build(priority_tc, groups.percent, tsa)


def groups_from_ets(ets: EtsTable, max_tcs: int = 8) -> PriorityGroups:
    """What a port announces in CEE that is configured with this table."""
    pgid = tuple(group if ets.tsa[group] == Tsa.ETS else LINK_STRICT for group in ets.priority_tc)
    return PriorityGroups(pgid, ets.bandwidth, max_tcs)


def app_from_cee(feature: AppFeature) -> tuple[AppEntry, ...]:
    """The applications in IEEE's terms, an entry for each priority; reserved selectors left out."""
    selectors = {0: Selector.ETHER_TYPE, 1: Selector.ANY_PORT}
    return tuple(
        AppEntry(selectors[one.selector], one.protocol, priority)
        for one in feature.entries
        if one.selector in selectors
        for priority in bits(one.priorities)
    )


def app_to_cee(entries: Iterable[AppEntry]) -> AppFeature:
    """The applications in CEE's terms, the priorities of one application together."""
    maps: dict[tuple[int, int], int] = {}
    for entry in entries:
        if 1 <= entry.selector <= 4:
            key = (0 if entry.selector == Selector.ETHER_TYPE else 1, entry.protocol)
            maps[key] = maps.get(key, 0) | 1 << entry.priority
    return AppFeature(
        tuple(CeeApp(selector, protocol, priorities) for (selector, protocol), priorities in maps.items())
    )
