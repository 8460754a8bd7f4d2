"""Config -> the set of entries that each switch should hold. Sans-IO; the tables are those of docs/contract.md 2 and 3.

Ids are functions of what they stand for (a hash of the next hops), not of their order in the file: adding a route
renumbers nothing, so traffic of other prefixes never passes through a wrong next hop while updates are written.
Next-hop sets that are equal share one `nexthop` id; a set of one hop refers to a member, a larger one to an ECMP group.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from fractions import Fraction

from controller.buffer_config import group_pool_entry, pool_entries
from controller.config import (
    AclRule,
    BufferProfile,
    CbsSlope,
    Config,
    DynamicLimit,
    EcnProfile,
    EtsWeight,
    Port,
    Switch,
)
from controller.dcbx_overlay import profile_ids
from controller.entries import (
    Action,
    CloneSession,
    Entity,
    Group,
    GroupRef,
    Lpm,
    MatchValue,
    Member,
    MemberRef,
    MeterCell,
    Range,
    TableEntry,
    Ternary,
    match,
)
from controller.pfc_config import STORM_ACTIONS, dialects
from controller.qcn_config import congestion_points
from controller.watchdog_config import watched
from dcb.watchdog import Action as WatchdogAction

ECMP = "ingress.ecmp"
PROBABILITY_ONE = 2**32 - 1  # pmax is in units of 2^-32
WATCHDOG_ACTION = {WatchdogAction.ALERT: 0, WatchdogAction.FORWARD: 1, WatchdogAction.DROP: 2}
TRUST = {"port": 0, "pcp": 1, "dscp": 2}
_NEXTHOP_BITS, _MEMBER_BITS = 16, 31

# every table that `build` may write: what a switch holds in these beyond the desired entries is deleted
OWNED_TABLES = (
    "egress.tm_pool",
    "egress.tm_headroom_pool",
    "egress.tm_pg_pool",
    "egress.tm_port",
    "egress.tm_scheduler",
    "egress.tm_priority_group",
    "egress.tm_queue",
    "egress.tm_pfc",
    "egress.tm_watchdog",
    "egress.tm_qcn",
    "egress.pfc_tx_dialect",
    "ingress.pfc_policy",
    "egress.port_mac",
    "egress.ecn_profile",
    "egress.pcp_rewrite",
    "egress.dscp_rewrite",
    "ingress.pcp_to_priority",
    "ingress.dscp_to_priority",
    "ingress.app_priority",
    "ingress.priority_map",
    "ingress.port_config",
    "ingress.arp_proxy",
    "ingress.nexthop",
    "ingress.ipv4_lpm",
    "ingress.ipv6_lpm",
    "ingress.acl",
)

PFC_METER = "ingress.pfc_rx_meter"
OWNED_METERS = (PFC_METER,)  # as OWNED_TABLES: a cell that is not desired is taken its configuration

HopSet = tuple[tuple[int, int, int], ...]  # sorted (port, MAC, weight)


def mac_int(mac: str) -> int:
    """ "02:00:00:00:01:01" -> 0x020000000101."""
    return int(mac.replace(":", ""), 16)


def bitmap(priorities: Iterable[int]) -> int:
    """Priorities -> vector with bit n for priority n."""
    vector = 0
    for priority in priorities:
        vector |= 1 << priority
    return vector


def pmax_units(pmax: float) -> int:
    """Probability 0..1 -> units of 2^-32, rounded half up from its decimal spelling, at most 2^32 - 1."""
    exact = Fraction(str(pmax)) * 2**32
    return min(int(exact + Fraction(1, 2)), PROBABILITY_ONE)


def ecn_slope(kmin_bytes: int, kmax_bytes: int, pmax: int) -> int:
    """pmax * 2^16 / (kmax - kmin), truncated; 0 for a step (kmin = kmax). pmax in units of 2^-32."""
    return 0 if kmax_bytes == kmin_bytes else (pmax << 16) // (kmax_bytes - kmin_bytes)


def build(config: Config, switch_name: str) -> list[Entity]:
    """Everything that `switch_name` should hold. KeyError when the config has no such switch."""
    switch = config.switches[switch_name]
    ids = profile_ids(config, switch_name)
    entities: list[Entity] = []
    entities.extend(pool_entries(switch))
    for name, trust in {port.qos: port.trust for port in switch.ports.values()}.items():
        # the profile of a single DCBX port, of which there are many, has a PCP map only where it counts
        pcp_map = "~" not in name or (trust or config.qos_profiles[name].trust) == "pcp"
        entities.extend(_qos_profile(config, name, ids[name], pcp_map=pcp_map))
    for number, port in switch.ports.items():
        entities.extend(_port(config, number, port, ids[port.qos]))
    entities.extend(_watchdog(config, switch_name))
    entities.extend(_routes(switch))
    entities.extend(_acl(switch.acl))
    for session_id, session in switch.clone_sessions.items():
        entities.append(CloneSession(session_id, ((session.port, 0),), session.class_of_service, session.length))
    return entities


def _entry(table: str, key: dict[str, MatchValue], action: Action, priority: int = 0) -> TableEntry:
    return TableEntry(table, match(key), action, priority)


def _qos_profile(config: Config, name: str, profile_id: int, *, pcp_map: bool = True) -> Iterator[Entity]:
    profile = config.qos_profiles[name]

    def set_priority(priority: int) -> Action:
        return Action.of("ingress.set_priority", priority=priority)

    for pcp in range(8 if pcp_map else 0):
        for dei in range(2):
            yield _entry(
                "ingress.pcp_to_priority",
                {"qos_profile": profile_id, "pcp": pcp, "dei": dei},
                set_priority(profile.pcp_to_priority.get(pcp, pcp)),
            )
    for dscp, priority in profile.dscp_to_priority.items():
        yield _entry("ingress.dscp_to_priority", {"qos_profile": profile_id, "dscp": dscp}, set_priority(priority))
    for index, app in enumerate(profile.app_priority):
        key: dict[str, MatchValue] = {"qos_profile": profile_id}
        if app.ether_type is not None:
            key["ether_type"] = Ternary(app.ether_type, 0xFFFF)
        if app.ip_proto is not None:
            key["ip_proto"] = Ternary(app.ip_proto, 0xFF)
        if app.l4_dst_port is not None:
            key["l4_dst_port"] = Ternary(app.l4_dst_port, 0xFFFF)
        # first match wins, as the list reads
        yield _entry("ingress.app_priority", key, set_priority(app.priority), len(profile.app_priority) - index)
    for priority in range(8):
        yield _entry(
            "ingress.priority_map",
            {"qos_profile": profile_id, "priority": priority},
            Action.of(
                "ingress.set_class",
                queue=profile.queue_of(priority),
                pg=profile.pg_of(priority),
                lossless=int(priority in profile.lossless),
            ),
        )


def _port(config: Config, number: int, port: Port, profile_id: int) -> Iterator[Entity]:
    qos = config.qos_of(port)
    pfc_tx = bitmap(port.pfc)
    pfc_rx = pfc_tx
    if port.pfc_asymmetric:  # every priority may be stopped by the peer, and only lossless ones stop it
        pfc_rx, pfc_tx = 0xFF, bitmap(set(port.pfc) & set(qos.lossless))
    yield _entry(
        "ingress.port_config",
        {"ingress_port": number},
        Action.of(
            "ingress.set_port",
            trust=TRUST[port.trust or qos.trust],
            default_priority=qos.default_priority,
            qos_profile=profile_id,
            pfc_rx_enable=pfc_rx,
            pause_rx_enable=int(port.pause_rx),
        ),
    )
    if port.arp_proxy:
        answer = Action.of("ingress.arp_reply", mac=mac_int(port.mac))
        yield _entry("ingress.arp_proxy", {"ingress_port": number}, answer)
    yield _entry("egress.port_mac", {"egress_port": number}, Action.of("egress.set_src_mac", mac=mac_int(port.mac)))
    yield _entry("egress.tm_port", {"port": number}, Action.of("egress.tm_set_port", rate_bps=port.rate))
    queue_map = sum(qos.queue_of(priority) << (3 * priority) for priority in range(8))
    yield _entry(
        "egress.tm_pfc",
        {"port": number},
        Action.of("egress.tm_set_pfc", tx_enable=pfc_tx, quanta=port.pfc_quanta, queue_map=queue_map),
    )
    yield from _pfc_policy(number, port)
    for tc, scheduler in config.ets_of(port).items():
        yield _entry("egress.tm_scheduler", {"port": number, "tc": tc}, _scheduler(scheduler))
    for queue, ecn in config.ecn_of(port).items():
        yield _entry("egress.ecn_profile", {"egress_port": number, "queue": queue}, _ecn(ecn))
    for pg, profile in config.buffers_of(port).items():
        priorities = bitmap(priority for priority in range(8) if qos.pg_of(priority) == pg)
        yield _entry("egress.tm_priority_group", {"port": number, "pg": pg}, _priority_group(profile, priorities))
        yield from group_pool_entry(number, pg, profile)
    for queue, limit in port.queue_limits.items():
        action = (
            Action.of("egress.tm_queue_dynamic", alpha=limit.alpha & 0xFF)
            if isinstance(limit, DynamicLimit)
            else Action.of("egress.tm_queue_static", limit=limit)
        )
        yield _entry("egress.tm_queue", {"port": number, "queue": queue}, action)
    yield from congestion_points(number, mac_int(port.mac), port.qcn)
    for priority, pcp in port.pcp_rewrite.items():
        yield _entry(
            "egress.pcp_rewrite",
            {"egress_port": number, "priority": priority},
            Action.of("egress.set_pcp", pcp=pcp, dei=0),
        )
    for priority, dscp in port.dscp_rewrite.items():
        yield _entry(
            "egress.dscp_rewrite",
            {"egress_port": number, "priority": priority},
            Action.of("egress.set_dscp", dscp=dscp),
        )


def _pfc_policy(number: int, port: Port) -> Iterator[Entity]:
    """Dialect and storm control; nothing where both are as 802.1Qbb and the target have them anyway."""
    (rx, tx), storm = dialects(port.pfc_dialect), port.pfc_storm_control
    if rx or storm is not None:
        action = 0 if storm is None else STORM_ACTIONS[storm.action]
        policy = Action.of("ingress.set_pfc_policy", dialect=int(rx), storm_action=action)
        yield _entry("ingress.pfc_policy", {"ingress_port": number}, policy)
    if tx:
        dialect = Action.of("egress.set_pfc_dialect", dialect=int(tx))
        yield _entry("egress.pfc_tx_dialect", {"egress_port": number}, dialect)
    if storm is not None:
        yield MeterCell(PFC_METER, number, storm.rate, storm.burst)


def _watchdog(config: Config, switch_name: str) -> Iterator[Entity]:
    """The switch's own timers. Mitigation that the controller asks for (tm_storm) is state of the run, not config."""
    for of in watched(config, switch_name):
        if of.mode == "switch":
            yield _entry(
                "egress.tm_watchdog",
                {"port": of.port, "priority": of.priority},
                Action.of(
                    "egress.tm_set_watchdog",
                    detect_us=of.settings.detection_ns // 1000,
                    restore_us=(of.settings.restoration_ns or 0) // 1000,
                    action=WATCHDOG_ACTION[of.settings.action],
                    empty_queue=int(of.settings.empty_queue),
                ),
            )


def _scheduler(scheduler: str | EtsWeight | CbsSlope) -> Action:
    if isinstance(scheduler, EtsWeight):
        return Action.of("egress.tm_ets", weight=scheduler.ets)
    if isinstance(scheduler, CbsSlope):
        return Action.of("egress.tm_cbs", idle_slope_bps=scheduler.cbs)
    return Action.of("egress.tm_strict")


def _ecn(profile: EcnProfile) -> Action:
    pmax = pmax_units(profile.pmax)
    return Action.of(
        "egress.set_ecn",
        kmin_bytes=profile.kmin_bytes,
        kmax_bytes=profile.kmax_bytes,
        pmax=pmax,
        slope=ecn_slope(profile.kmin_bytes, profile.kmax_bytes, pmax),
        drop_non_ect=int(profile.drop_non_ect),
    )


def _priority_group(profile: BufferProfile, priorities: int) -> Action:
    if profile.alpha is not None:
        return Action.of(
            "egress.tm_pg_dynamic",
            reserved=profile.reserved,
            alpha=profile.alpha & 0xFF,
            xon_offset=profile.xon_offset or 0,
            headroom=profile.headroom,
            priorities=priorities,
        )
    return Action.of(
        "egress.tm_pg_static",
        reserved=profile.reserved,
        xoff=profile.xoff or 0,
        xon=profile.xon or 0,
        headroom=profile.headroom,
        priorities=priorities,
    )


# ---- routes ---------------------------------------------------------------------------------------------------------


def stable_ids(items: Iterable[tuple[object, ...]], bits: int) -> dict[tuple[object, ...], int]:
    """Give each item an id in 1 .. 2^bits - 1 that depends on its content; collisions take the next free one."""
    top = 2**bits - 1
    ids: dict[tuple[object, ...], int] = {}
    used: set[int] = set()
    for item in sorted(set(items), key=repr):
        number = int.from_bytes(hashlib.sha256(repr(item).encode()).digest()[:8], "big") % top + 1
        while number in used:
            number = number % top + 1
        used.add(number)
        ids[item] = number
    return ids


def hop_sets(switch: Switch) -> dict[str, HopSet]:
    """Prefix -> its next hops, sorted, for the routes that have some."""
    return {
        route.prefix: tuple(sorted((hop.port, mac_int(hop.mac), hop.weight) for hop in route.via))
        for route in switch.routes
        if route.via
    }


def _routes(switch: Switch) -> Iterator[Entity]:
    sets = hop_sets(switch)
    nexthop_ids = stable_ids(sets.values(), _NEXTHOP_BITS)
    member_ids = stable_ids(((port, mac) for hops in sets.values() for port, mac, _ in hops), _MEMBER_BITS)
    for hop, member_id in member_ids.items():
        port, mac = hop
        assert isinstance(port, int)
        assert isinstance(mac, int)
        yield Member(ECMP, member_id, Action.of("ingress.forward", port=port, dst_mac=mac))
    for hops in sorted(set(sets.values())):
        nexthop = nexthop_ids[hops]
        action: MemberRef | GroupRef
        if len(hops) == 1:
            action = MemberRef(member_ids[hops[0][:2]])
        else:
            members = tuple(sorted((member_ids[port, mac], weight) for port, mac, weight in hops))
            yield Group(ECMP, nexthop, members)
            action = GroupRef(nexthop)
        yield TableEntry("ingress.nexthop", match({"nexthop": nexthop}), action)
    for route in switch.routes:
        network = ipaddress.ip_network(route.prefix)
        table = f"ingress.ipv{network.version}_lpm"
        if route.drop:
            result = Action.of("ingress.drop_route")
        elif route.punt:
            result = Action.of("ingress.punt")
        else:
            result = Action.of("ingress.route", nexthop=nexthop_ids[sets[route.prefix]])
        yield _entry(table, {"dst": Lpm(int(network.network_address), network.prefixlen)}, result)


def _acl(rules: list[AclRule]) -> Iterator[Entity]:
    for index, rule in enumerate(rules):
        key: dict[str, MatchValue] = {}
        for name, value, bits in (
            ("in_port", rule.in_port, 9),
            ("ether_type", rule.ether_type, 16),
            ("ip_proto", rule.ip_proto, 8),
            ("dscp", rule.dscp, 6),
        ):
            if value is not None:
                key[name] = Ternary(value, (1 << bits) - 1)
        for name, prefix in (("src_ip4", rule.src_ip4), ("dst_ip4", rule.dst_ip4)):
            if prefix is not None:
                network = ipaddress.IPv4Network(prefix)
                key[name] = Ternary(int(network.network_address), int(network.netmask))
        if rule.l4_dst_port is not None:
            low, _, high = rule.l4_dst_port.partition("-")
            limits = Range(int(low), int(high or low))
            if limits != Range(0, 65535):
                key["l4_dst_port"] = limits
        if rule.drop:
            action = Action.of("ingress.acl_drop")
        elif rule.punt:
            action = Action.of("ingress.acl_punt")
        elif rule.mirror is not None:
            action = Action.of("ingress.acl_mirror", session=rule.mirror)
        else:
            assert rule.set_class is not None  # the model demands one of the four
            chosen = rule.set_class
            action = Action.of("ingress.acl_set_class", queue=chosen.queue, pg=chosen.pg, lossless=int(chosen.lossless))
        yield _entry("ingress.acl", key, action, rule.priority or len(rules) - index)
