"""Config -> entries, against numbers worked out by hand from docs/contract.md."""

from __future__ import annotations

import pytest
from controller_fakes import CONFIG

from controller.config import ConfigError, parse_text
from controller.desired import OWNED_TABLES, build, ecn_slope, pmax_units, stable_ids
from controller.entries import (
    Action,
    CloneSession,
    Entity,
    Group,
    GroupRef,
    Lpm,
    Member,
    MemberRef,
    Range,
    TableEntry,
    Ternary,
)


def entries(text: str, table: str) -> dict[tuple[tuple[str, object], ...], TableEntry]:
    found = [e for e in build(parse_text(text), "leaf1") if isinstance(e, TableEntry) and e.table == table]
    return {entry.match: entry for entry in found}


def action(text: str, table: str, **key: int) -> object:
    return entries(text, table)[tuple(sorted(key.items()))].action


def with_port(extra: str) -> str:
    return CONFIG.replace("peer: h1", f"peer: h1, {extra}")


@pytest.mark.parametrize(
    ("pmax", "units"),
    [(1.0, 4294967295), (0.5, 2147483648), (0.1, 429496730), (0.01, 42949673), (2.0**-32, 1)],
)
def test_pmax_in_units_of_2_to_the_minus_32(pmax: float, units: int) -> None:
    assert pmax_units(pmax) == units


@pytest.mark.parametrize(
    ("kmin", "kmax", "pmax", "slope"),
    [
        # 429496730 * 65536 / 60000 = 469124961.62
        (20000, 80000, 0.1, 469124961),
        # 4294967295 * 65536 / 1 needs all 48 bits
        (0, 1, 1.0, 281474976645120),
        # 42949673 * 65536 / 195000 = 14434614.20
        (5000, 200000, 0.01, 14434614),
        (30000, 30000, 1.0, 0),
    ],
)
def test_ecn_slope(kmin: int, kmax: int, pmax: float, slope: int) -> None:
    assert ecn_slope(kmin, kmax, pmax_units(pmax)) == slope
    assert slope < 2**48


def test_ecn_profile() -> None:
    assert action(CONFIG, "egress.ecn_profile", egress_port=1, queue=3) == Action(
        "egress.set_ecn",
        (("drop_non_ect", 0), ("kmax_bytes", 80000), ("kmin_bytes", 20000), ("pmax", 429496730), ("slope", 469124961)),
    )
    assert len(entries(CONFIG, "egress.ecn_profile")) == 1


def test_port_config_and_pfc() -> None:
    set_port = Action.of(
        "ingress.set_port", trust=2, default_priority=0, qos_profile=1, pfc_rx_enable=0b1000, pause_rx_enable=0
    )
    assert action(CONFIG, "ingress.port_config", ingress_port=1) == set_port
    # identity: 7,6,5,4,3,2,1,0 from the top, three bits each = 0o76543210
    assert action(CONFIG, "egress.tm_pfc", port=1) == Action.of(
        "egress.tm_set_pfc", tx_enable=8, quanta=65535, queue_map=0o76543210
    )
    assert action(CONFIG, "egress.tm_pfc", port=2) == Action.of(
        "egress.tm_set_pfc", tx_enable=0, quanta=65535, queue_map=0o76543210
    )
    text = with_port("trust: pcp, pause_rx: true, pfc_quanta: 100").replace("pfc: [3]", "pfc: [6, 0]")
    text = text.replace("lossless: [3]}", "lossless: [3], priority_to_queue: {1: 0, 7: 2}, default_priority: 5}")
    assert action(text, "ingress.port_config", ingress_port=1) == Action.of(
        "ingress.set_port", trust=1, default_priority=5, qos_profile=1, pfc_rx_enable=0b01000001, pause_rx_enable=1
    )
    assert action(text, "egress.tm_pfc", port=1) == Action.of(
        "egress.tm_set_pfc", tx_enable=0b01000001, quanta=100, queue_map=0o26543200
    )


def test_arp_is_answered_where_the_config_says_so() -> None:
    assert entries(CONFIG, "ingress.arp_proxy") == {}
    found = entries(with_port("arp_proxy: true"), "ingress.arp_proxy")
    assert {key: entry.action for key, entry in found.items()} == {
        (("ingress_port", 1),): Action.of("ingress.arp_reply", mac=0x020100000101)
    }


def test_port_mac_and_rate() -> None:
    assert action(CONFIG, "egress.port_mac", egress_port=1) == Action.of("egress.set_src_mac", mac=0x020100000101)
    assert action(CONFIG, "egress.tm_port", port=3) == Action.of("egress.tm_set_port", rate_bps=100_000_000)


def test_classification_maps() -> None:
    assert {m: e.action for m, e in entries(CONFIG, "ingress.dscp_to_priority").items()} == {
        (("dscp", 26), ("qos_profile", 1)): Action.of("ingress.set_priority", priority=3),
        (("dscp", 48), ("qos_profile", 1)): Action.of("ingress.set_priority", priority=6),
    }
    text = CONFIG.replace("trust: dscp,", "trust: pcp, pcp_to_priority: {5: 1},")
    pcp = entries(text, "ingress.pcp_to_priority")
    assert len(pcp) == 16
    for dei in (0, 1):
        assert pcp[("dei", dei), ("pcp", 5), ("qos_profile", 1)].action == Action.of("ingress.set_priority", priority=1)
        assert pcp[("dei", dei), ("pcp", 4), ("qos_profile", 1)].action == Action.of("ingress.set_priority", priority=4)


def test_priority_map() -> None:
    text = CONFIG.replace("lossless: [3]", "lossless: [3], priority_to_queue: {1: 0}, priority_to_pg: {1: 0, 4: 3}")
    found = {
        priority: action(text, "ingress.priority_map", qos_profile=1, priority=priority) for priority in (0, 1, 3, 4)
    }
    assert found == {
        0: Action.of("ingress.set_class", queue=0, pg=0, lossless=0),
        1: Action.of("ingress.set_class", queue=0, pg=0, lossless=0),
        3: Action.of("ingress.set_class", queue=3, pg=3, lossless=1),
        4: Action.of("ingress.set_class", queue=4, pg=3, lossless=0),
    }
    assert len(entries(text, "ingress.priority_map")) == 8
    # PG 3 pauses every priority that fills it
    assert action(text, "egress.tm_priority_group", port=1, pg=3) == Action.of(
        "egress.tm_pg_static", reserved=3000, xoff=60000, xon=40000, headroom=500000, priorities=0b00011000
    )


def test_app_priority_first_match_wins() -> None:
    text = CONFIG.replace(
        "lossless: [3]",
        "lossless: [3], app_priority: [{ip_proto: 17, l4_dst_port: 4791, priority: 3}, "
        "{ether_type: 0x8906, priority: 4}]",
    )
    assert set(entries(text, "ingress.app_priority").values()) == {
        TableEntry(
            "ingress.app_priority",
            (("ip_proto", Ternary(17, 255)), ("l4_dst_port", Ternary(4791, 65535)), ("qos_profile", 1)),
            Action.of("ingress.set_priority", priority=3),
            2,
        ),
        TableEntry(
            "ingress.app_priority",
            (("ether_type", Ternary(0x8906, 65535)), ("qos_profile", 1)),
            Action.of("ingress.set_priority", priority=4),
            1,
        ),
    }


def test_scheduler() -> None:
    text = CONFIG.replace("6: strict", "6: strict, 5: {cbs: 10M}")
    assert {m: e.action for m, e in entries(text, "egress.tm_scheduler").items()} == {
        (("port", 1), ("tc", 0)): Action.of("egress.tm_ets", weight=40),
        (("port", 1), ("tc", 3)): Action.of("egress.tm_ets", weight=60),
        (("port", 1), ("tc", 5)): Action.of("egress.tm_cbs", idle_slope_bps=10_000_000),
        (("port", 1), ("tc", 6)): Action("egress.tm_strict"),
    }


def test_dynamic_buffers_and_queue_limits_are_twos_complement() -> None:
    text = with_port("queue_limits: {0: 200000, 1: {alpha: -1}}").replace(
        "xoff: 60000, xon: 40000", "alpha: -2, xon_offset: 2000"
    )
    assert action(text, "egress.tm_priority_group", port=1, pg=3) == Action.of(
        "egress.tm_pg_dynamic", reserved=3000, alpha=0xFE, xon_offset=2000, headroom=500000, priorities=8
    )
    assert action(text, "egress.tm_queue", port=1, queue=0) == Action.of("egress.tm_queue_static", limit=200000)
    assert action(text, "egress.tm_queue", port=1, queue=1) == Action.of("egress.tm_queue_dynamic", alpha=0xFF)


def test_rewrites_and_pool() -> None:
    text = with_port("pcp_rewrite: {3: 4}, dscp_rewrite: {3: 26}").replace(
        "device_id: 1", "device_id: 1\n    pool: 1000000"
    )
    assert action(text, "egress.pcp_rewrite", egress_port=1, priority=3) == Action.of("egress.set_pcp", pcp=4, dei=0)
    assert action(text, "egress.dscp_rewrite", egress_port=1, priority=3) == Action.of("egress.set_dscp", dscp=26)
    assert action(text, "egress.tm_pool", pool=0) == Action.of("egress.tm_set_pool", size=1_000_000)


def routing(text: str) -> list[Entity]:
    tables = ("ingress.nexthop", "ingress.ipv4_lpm", "ingress.ipv6_lpm")
    return [e for e in build(parse_text(text), "leaf1") if not isinstance(e, TableEntry) or e.table in tables]


def test_equal_next_hop_sets_share_one_nexthop_and_group() -> None:
    entities = routing(CONFIG)
    members = {e.action: e.member_id for e in entities if isinstance(e, Member)}
    hop1 = members[Action.of("ingress.forward", port=1, dst_mac=0x020000000101)]
    hop2 = members[Action.of("ingress.forward", port=2, dst_mac=0x020200000101)]
    hop3 = members[Action.of("ingress.forward", port=3, dst_mac=0x020200000201)]
    assert len(members) == 3
    groups = [e for e in entities if isinstance(e, Group)]
    assert [group.members for group in groups] == [tuple(sorted(((hop2, 1), (hop3, 1))))]
    nexthops = {e.match[0][1]: e.action for e in entities if isinstance(e, TableEntry) and e.table == "ingress.nexthop"}
    assert len(nexthops) == 2
    lpm = {e.match[0][1]: e.action for e in entities if isinstance(e, TableEntry) and e.table != "ingress.nexthop"}
    via1 = lpm[Lpm(0x0A010001, 32)]
    via2 = lpm[Lpm(0x0A020000, 16)]
    via3 = lpm[Lpm(0xFD000002 << 96, 32)]
    assert isinstance(via1, Action)
    assert isinstance(via2, Action)
    assert via2 == via3  # whatever order the hops are listed in
    assert nexthops[via1["nexthop"]] == MemberRef(hop1)
    assert nexthops[via2["nexthop"]] == GroupRef(groups[0].group_id)
    assert all(isinstance(number, int) and 1 <= number <= 65535 for number in nexthops)


def test_a_new_route_renumbers_nothing() -> None:
    more = (
        '      - {prefix: 10.9.0.0/16, via: [{port: 1, mac: "02:00:00:00:09:09"}, '
        '{port: 2, mac: "02:02:00:00:01:01"}]}\n'
    )
    text = CONFIG.replace("    routes:\n", "    routes:\n" + more)
    assert set(routing(CONFIG)) < set(routing(text))


def test_drop_punt_and_default_route() -> None:
    more = (
        "      - {prefix: 0.0.0.0/0, drop: true}\n"
        '      - {prefix: "::/0", punt: true}\n'
        '      - {prefix: 10.3.0.0/16, via: [{port: 2, mac: "02:02:00:00:01:01", weight: 3}, '
        '{port: 3, mac: "02:02:00:00:02:01"}]}\n'
    )
    entities = routing(CONFIG + more)
    assert TableEntry("ingress.ipv4_lpm", (), Action.of("ingress.drop_route")) in entities
    assert TableEntry("ingress.ipv6_lpm", (), Action.of("ingress.punt")) in entities
    weights = sorted(sorted(w for _, w in e.members) for e in entities if isinstance(e, Group))
    assert weights == [[1, 1], [1, 3]]


def test_acl_and_mirror_sessions() -> None:
    text = CONFIG + (
        "    acl:\n"
        "      - {in_port: 1, src_ip4: 10.1.0.0/16, l4_dst_port: 1000-2000, drop: true}\n"
        "      - {dscp: 0, l4_dst_port: 4791, mirror: 7}\n"
        "      - {ether_type: 0x0800, ip_proto: 6, set_class: {queue: 1, pg: 2, lossless: true}}\n"
        "      - {l4_dst_port: 0-65535, punt: true}\n"
        "    clone_sessions: {7: {port: 510, length: 128}}\n"
    )
    assert set(entries(text, "ingress.acl").values()) == {
        TableEntry(
            "ingress.acl",
            (
                ("in_port", Ternary(1, 511)),
                ("l4_dst_port", Range(1000, 2000)),
                ("src_ip4", Ternary(0x0A010000, 0xFFFF0000)),
            ),
            Action.of("ingress.acl_drop"),
            4,
        ),
        TableEntry(
            "ingress.acl",
            (("dscp", Ternary(0, 63)), ("l4_dst_port", Range(4791, 4791))),
            Action.of("ingress.acl_mirror", session=7),
            3,
        ),
        TableEntry(
            "ingress.acl",
            (("ether_type", Ternary(0x0800, 0xFFFF)), ("ip_proto", Ternary(6, 255))),
            Action.of("ingress.acl_set_class", queue=1, pg=2, lossless=1),
            2,
        ),
        TableEntry("ingress.acl", (), Action.of("ingress.acl_punt"), 1),
    }
    assert CloneSession(7, ((510, 0),), 0, 128) in build(parse_text(text), "leaf1")


def test_every_written_table_is_owned() -> None:
    written = {e.table for e in build(parse_text(CONFIG), "leaf1") if isinstance(e, TableEntry)}
    assert written <= set(OWNED_TABLES)
    assert len(set(OWNED_TABLES)) == len(OWNED_TABLES)


def test_ids_that_collide_take_the_next_free_one() -> None:
    items = [(n,) for n in range(7)]
    ids = stable_ids(items, 3)  # 7 items in 1..7
    assert sorted(ids.values()) == [1, 2, 3, 4, 5, 6, 7]
    assert ids == stable_ids(reversed(items), 3)


def test_congestion_points() -> None:
    """Defaults are IEEE8021-CN-MIB's; the identifier is the port's MAC address and the queue."""
    text = with_port("qcn: {3: {}, 0: {qeq: 34000, weight: -1, sample: 75000, jitter: 0, priority: 5}}")
    mac = 0x020100000101
    assert action(text, "egress.tm_qcn", port=1, queue=3) == Action.of(
        "egress.tm_set_qcn", qeq=26_000, weight=1, sample=150_000, jitter=15, priority=6, cpid=mac << 16 | 3
    )
    assert action(text, "egress.tm_qcn", port=1, queue=0) == Action.of(
        "egress.tm_set_qcn", qeq=34_000, weight=0xFF, sample=75_000, jitter=0, priority=5, cpid=mac << 16
    )
    assert len(entries(text, "egress.tm_qcn")) == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("{qeq: 99}", "qeq"), ("{weight: 11}", "weight"), ("{jitter: 51}", "jitter"), ("{priority: 8}", "priority")],
)
def test_congestion_points_out_of_range(wrong: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"switches\.leaf1\.ports\.1\.qcn\.3\.{says}"):
        parse_text(with_port(f"qcn: {{3: {wrong}}}"))
