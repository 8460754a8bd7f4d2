"""DCBX in the controller: config, local configuration, overlay and its updates, and agents in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from dcbx_fabric import HOSTS, SOURCE, Net, S, config, fabric, leaf_spine, switch
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import Config, ConfigError, dump, parse_text, warnings
from controller.dcbx_control import edit
from controller.dcbx_overlay import Run, app_entries, ets_table, local_settings, overlay, profile_ids, restored
from controller.desired import build
from controller.diff import plan
from controller.entries import Action, TableEntry
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector

STORAGE = EtsTable((0, 0, 0, 1, 0, 0, 2, 0), (40, 60, 0, 0, 0, 0, 0, 0), (2, 2, 0, 0, 0, 0, 0, 0))
ROCE = AppEntry(Selector.UDP, 4791, 3)
TTL_S = 121


def one_port(dcbx: dict[str, Any] | None = None, **port: Any) -> Config:
    """leaf1 with port 1."""
    entry = switch(1, {1: ("leaf1-eth1", dcbx or {})})
    entry["ports"][1] |= port
    return config({"leaf1": entry})


def faults(*arguments: Any, **port: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        one_port(*arguments, **port)
    return caught.value.problems


# ---- config ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dcbx", "fault"),
    [
        ({"foo": 1}, "dcbx.foo: 1: unknown key"),
        (
            {"role": "upstream"},
            "dcbx.role: 'upstream': Input should be 'manual', 'auto-upstream', 'auto-downstream' or",
        ),
        ({"pfc": [8]}, "dcbx.pfc.0: 8: Input should be less than or equal to 7"),
        ({"ets": {"bandwidth": {0: 40, 1: 50}}}, "bandwidth sum is 90, must be 100"),
        ({"ets": {"bandwidth": {0: 100}, "strict": [0]}}, "traffic class 0 is in bandwidth and in strict"),
        ({"app": [{"udp": 1, "tcp": 1, "priority": 3}]}, "exactly one of ether_type, tcp, udp, port, dscp, default"),
        ({"app": [{"priority": 3}]}, "exactly one of ether_type, tcp, udp, port, dscp, default"),
        ({"app": [{"ether_type": 5, "priority": 3}]}, "an EtherType is 0x600..0xffff"),
        ({"app": [{"dscp": 64, "priority": 3}]}, "dcbx.app.0.dscp: 64: Input should be less than or equal to 63"),
        ({"willing": ["all"]}, "dcbx.willing.0: 'all': Input should be 'ets', 'pfc' or 'app'"),
        ({"lossless_buffers": "none"}, "dcbx.lossless_buffers: 'none': not in buffer_profiles (known: lossless)"),
        ({"management_address": "leaf1"}, "an IPv4 or IPv6 address is wanted"),
        ({"tx_interval_s": 0}, "dcbx.tx_interval_s: 0: Input should be greater than or equal to 1"),
        ({"max_tcs": 2}, "dcbx: traffic class of priority 2: 2, must be 0..1: 2 classes"),
        ({"pfc": [3, 4], "pfc_cap": 1}, "dcbx: PFC enable: 0x18, enables 2 traffic classes (3,4), must be at most"),
    ],
)
def test_every_fault_names_field_value_and_rule(dcbx: dict[str, Any], fault: str) -> None:
    found = faults(dcbx)
    assert len(found) == 1
    assert fault in found[0]
    assert found[0].startswith("switches.leaf1.ports.1.dcbx")


def test_a_port_replaces_single_keys_of_its_switch_and_survives_dump() -> None:
    data = {"leaf1": switch(1, {1: ("a", {"role": "manual", "pfc": []}), 2: ("b", {"enabled": False})}, pfc=[3])}
    data["leaf1"]["dcbx"]["role"] = "auto-downstream"
    loaded = config(data)
    assert parse_text(dump(loaded)) == loaded
    first = loaded.switches["leaf1"].dcbx_of(1)
    assert first is not None
    assert (first.role, first.pfc, first.lossless_buffers) == ("manual", [], "lossless")
    assert loaded.switches["leaf1"].dcbx_of(2) is None


def test_a_port_that_speaks_dcbx_is_not_warned_of_for_what_dcbx_decides() -> None:
    assert warnings(one_port(pfc=[3])) == []
    assert len(warnings(one_port({"enabled": False}, pfc=[3]))) == 1


def test_more_ports_than_profiles_are_refused() -> None:
    with pytest.raises(ConfigError, match="dcbx: 128 ports: the program has room for 127 that speak DCBX"):
        config({"leaf1": switch(1, {n: (f"p{n}", {}) for n in range(1, 129)})})


# ---- LocalAdminParam ------------------------------------------------------------------------------------------------


def test_what_dcbx_leaves_open_is_what_the_port_is_configured_with() -> None:
    found = local_settings(one_port(pfc=[3], ets={0: {"ets": 2}, 3: {"ets": 3}, 6: "strict"}), "leaf1", 1)
    # weights 2, 3 and 1 for each of 1, 2, 4, 5, 7: of 10
    assert found.ets == EtsTable((0, 1, 2, 3, 4, 5, 6, 7), (20, 10, 10, 30, 10, 10, 0, 10), (2, 2, 2, 2, 2, 2, 0, 2))
    assert found.recommendation == found.ets
    assert (found.pfc_enable, found.pfc_willing, found.ets_willing) == (0b1000, False, False)
    assert found.app == (AppEntry(Selector.DSCP, 26, 3),)


def test_eight_equal_queues_sum_to_100() -> None:
    base = one_port()
    table = ets_table(base.qos_profiles["default"], {})
    assert table.bandwidth == (13, 13, 13, 13, 12, 12, 12, 12)


def test_an_upstream_port_is_willing_and_brings_no_applications_of_its_own() -> None:
    found = local_settings(one_port({"role": "auto-upstream"}), "leaf1", 1)
    assert (found.ets_willing, found.pfc_willing, found.app_accept) == (True, True, True)
    assert found.recommendation is None
    assert found.app == ()
    some = local_settings(one_port({"role": "auto-upstream", "willing": ["pfc"]}), "leaf1", 1)
    assert (some.ets_willing, some.pfc_willing, some.app_accept) == (False, True, False)


def test_applications_that_dcbx_can_say() -> None:
    rules = [
        {"priority": 3, "ether_type": 0x8906},
        {"priority": 4, "ip_proto": 17, "l4_dst_port": 4791},
        {"priority": 5, "ip_proto": 6, "l4_dst_port": 3260},
        {"priority": 6, "l4_dst_port": 80},
        {"priority": 7, "ip_proto": 89},  # no DCBX selector is about protocols
        {"priority": 7, "ether_type": 0x800, "l4_dst_port": 80},
    ]
    profile = one_port().qos_profiles["default"].model_validate({"app_priority": rules, "dscp_to_priority": {46: 5}})
    assert app_entries(profile) == (
        AppEntry(1, 0x8906, 3),
        AppEntry(3, 4791, 4),
        AppEntry(2, 3260, 5),
        AppEntry(4, 80, 6),
        AppEntry(5, 46, 5),
    )


# ---- overlay --------------------------------------------------------------------------------------------------------


def entries(conf: Config, runs: dict[int, Run], name: str = "leaf1") -> list[Any]:
    return build(overlay(conf, {name: runs}), name)


def by_table(entities: list[Any], table: str, **key: int) -> dict[Any, Action]:
    return {
        e.match: e.action
        for e in entities
        if isinstance(e, TableEntry) and e.table == table and set(key.items()) <= set(e.match)
    }


def test_what_is_agreed_becomes_entries() -> None:
    conf = one_port(ets={3: {"cbs": "10M"}}, ecn={3: {"kmin_bytes": 1, "kmax_bytes": 2}}, queue_limits={3: 777})
    held = entries(conf, {1: Run(STORAGE, 0b1000, (ROCE, AppEntry(1, 0, 5), AppEntry(4, 80, 2), AppEntry(5, 26, 4)))})
    own = 254
    set_port = Action.of(
        "ingress.set_port", trust=2, default_priority=5, qos_profile=own, pfc_rx_enable=8, pause_rx_enable=0
    )
    assert list(by_table(held, "ingress.port_config").values()) == [set_port]
    [pfc] = by_table(held, "egress.tm_pfc").values()
    assert (pfc["tx_enable"], pfc["queue_map"]) == (8, 1 << 9 | 2 << 18)
    assert {dict(m)["tc"]: a for m, a in by_table(held, "egress.tm_scheduler").items()} == {
        0: Action.of("egress.tm_ets", weight=40),
        1: Action.of("egress.tm_ets", weight=60),
        2: Action.of("egress.tm_strict"),
        3: Action.of("egress.tm_cbs", idle_slope_bps=10_000_000),  # nothing is in that queue: as it was
    }
    assert {
        dict(m)["priority"]: (a["queue"], a["pg"], a["lossless"])
        for m, a in by_table(held, "ingress.priority_map", qos_profile=own).items()
    } == {
        0: (0, 0, 0),
        1: (0, 1, 0),
        2: (0, 2, 0),
        3: (1, 3, 1),
        4: (0, 4, 0),
        5: (0, 5, 0),
        6: (2, 6, 0),
        7: (0, 7, 0),
    }
    [group] = by_table(held, "egress.tm_priority_group").values()
    assert (group.name, group["headroom"], group["priorities"]) == ("egress.tm_pg_static", 100000, 8)
    # what belonged to queue 3 goes with priority 3 to queue 1
    assert {dict(m)["queue"] for m in by_table(held, "egress.ecn_profile")} == {1, 3}
    assert {dict(m)["queue"]: a["limit"] for m, a in by_table(held, "egress.tm_queue").items()} == {3: 777, 1: 777}
    assert {dict(m)["dscp"]: a["priority"] for m, a in by_table(held, "ingress.dscp_to_priority").items()} == {26: 4}
    rules = [
        (e.priority, dict(e.match), e.action["priority"])
        for e in held
        if getattr(e, "table", "") == "ingress.app_priority"
    ]
    assert [(p, m["ip_proto"].value, m["l4_dst_port"].value, prio) for p, m, prio in rules] == [
        (3, 17, 4791, 3),
        (2, 6, 80, 2),
        (1, 17, 80, 2),
    ]
    assert by_table(held, "ingress.pcp_to_priority") == {}


def test_a_port_keeps_its_own_trust_and_takes_dscp_where_it_says_nothing() -> None:
    run = {1: Run(STORAGE, 0, (AppEntry(5, 46, 5),))}
    for port, trust in (({}, 2), ({"trust": "pcp"}, 1)):
        [action] = by_table(entries(one_port(**port), run), "ingress.port_config").values()
        assert action["trust"] == trust
    with_pcp = by_table(entries(one_port(trust="pcp"), run), "ingress.pcp_to_priority")
    assert len(with_pcp) == 16


def test_a_weight_is_at_least_1_and_a_strict_class_is_strict() -> None:
    table = EtsTable((0, 1, 2, 3, 3, 3, 3, 3), (100, 0, 0, 0, 0, 0, 0, 0), (2, 2, 0, 0, 0, 0, 0, 0))
    actions = by_table(entries(one_port(), {1: Run(table, 0, ())}), "egress.tm_scheduler")
    assert [actions[m] for m in sorted(actions)] == [
        Action.of("egress.tm_ets", weight=100),
        Action.of("egress.tm_ets", weight=1),
        Action.of("egress.tm_strict"),
        Action.of("egress.tm_strict"),
    ]


def test_moving_pfc_touches_that_port_and_those_priorities_alone() -> None:
    conf = config({"leaf1": switch(1, {1: ("a", {}), 2: ("b", {})})})
    before = {n: Run(STORAGE, 0b1000, (ROCE,)) for n in (1, 2)}
    after = before | {2: Run(STORAGE, 0b10000, (ROCE,))}
    updates = [u for stage in plan(entries(conf, after), entries(conf, before)) for u in stage]
    assert sorted(f"{u.kind.value} {u.entity}" for u in updates) == [
        "delete egress.tm_priority_group[pg=3, port=2]",
        "insert egress.tm_priority_group[pg=4, port=2]",
        "modify egress.tm_pfc[port=2]",
        "modify ingress.port_config[ingress_port=2]",
        "modify ingress.priority_map[priority=3, qos_profile=253]",
        "modify ingress.priority_map[priority=4, qos_profile=253]",
    ]
    # buffers before what sends frames into them, and taken away after
    order = [u.entity.table for u in updates if isinstance(u.entity, TableEntry)]
    assert order[-1] == "egress.tm_priority_group"
    assert order.index("ingress.port_config") > order.index("ingress.priority_map")


def test_profile_numbers_follow_ports_and_never_meet_the_files() -> None:
    data = switch(1, {n: (f"p{n}", {}) for n in (1, 7, 255, 256, 509)})
    for number, port in data["ports"].items():
        port["mac"] = f"02:01:00:00:{number >> 8:02x}:{number & 255:02x}"
    many = config({"leaf1": data})
    running = overlay(many, {"leaf1": {n: Run(STORAGE, 0, ()) for n in (1, 7, 255, 256, 509)}})
    ids = profile_ids(running, "leaf1")
    own = {n: ids[running.switches["leaf1"].ports[n].qos] for n in (1, 7, 255, 256, 509)}
    # 255 - port modulo 255; 1 and 256 both want 254, 509 wants 1, the file's: who comes later takes the next below
    assert own == {1: 254, 7: 248, 255: 255, 256: 253, 509: 252}
    assert len(set(ids.values())) == len(ids)
    assert ids["default"] == 1
    assert 0 not in ids.values()


def tables(draw: Any) -> EtsTable:
    tc = draw(st.lists(st.integers(0, 7), min_size=8, max_size=8))
    tsa = [draw(st.sampled_from([0, 2])) for _ in range(8)]
    ets = [n for n in range(8) if tsa[n] == 2]
    bandwidth = [0] * 8
    if ets:
        cuts = sorted(draw(st.lists(st.integers(0, 100), min_size=len(ets) - 1, max_size=len(ets) - 1)))
        for n, share in zip(ets, [b - a for a, b in zip([0, *cuts], [*cuts, 100], strict=True)], strict=True):
            bandwidth[n] = share
    return EtsTable.build(tc, bandwidth, tsa)


apps = st.lists(
    st.one_of(
        st.builds(AppEntry, st.just(1), st.integers(0x600, 0xFFFF), st.integers(0, 7)),
        st.builds(AppEntry, st.integers(2, 4), st.integers(0, 0xFFFF), st.integers(0, 7)),
        st.builds(AppEntry, st.just(5), st.integers(0, 63), st.integers(0, 7)),
        st.builds(AppEntry, st.just(1), st.just(0), st.integers(0, 7)),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 255), apps)
def test_what_a_switch_holds_tells_what_ran(data: Any, pfc: int, app: list[AppEntry]) -> None:
    """A controller that starts again writes nothing."""
    conf = one_port()
    held = entries(conf, {1: Run(tables(data.draw), pfc, tuple(app))})
    run = restored(conf, "leaf1", 1, held)
    assert run is not None
    assert run.pfc_enable == pfc
    assert plan(entries(conf, {1: run}), held) == []


def test_a_switch_that_dcbx_did_not_configure_tells_nothing() -> None:
    conf = one_port()
    assert restored(conf, "leaf1", 1, build(conf, "leaf1")) is None
    assert restored(conf, "leaf1", 1, []) is None


# ---- a fabric in virtual time ---------------------------------------------------------------------------------------


def lossless(net: Net) -> set[tuple[int, ...]]:
    """The PFC maps of all ports of all switches."""
    return {run.pfc_enable for agent in net.agents.values() for run in agent.runs().values()}  # type: ignore[misc]


def agreed(net: Net) -> set[int]:
    return {port.operational.pfc_agreed for port in net.hosts.values()}


def test_a_two_tier_fabric_converges_on_its_one_source() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.carry()  # nothing waits for a timer: frames that are carried at once settle it at time 0
    assert net.now_ns == 0
    assert lossless(net) == {0b1000}
    assert agreed(net) == {0b1000}
    for name in HOSTS:
        oper = net.hosts[name].operational
        assert oper.ets == STORAGE
        assert set(oper.app) == {ROCE, AppEntry(5, 26, 3), AppEntry(5, 48, 6)}
    assert {n: a.switch.election.source for n, a in net.agents.items()} == {
        "leaf1": "leaf1-eth3",
        "leaf2": "leaf2-eth3",
        "spine1": "spine1-eth1",
        "spine2": "spine2-eth1",
    }
    # and it stays so: refreshes change nothing
    changes = {name: net.hosts[name].counters.state_changes for name in HOSTS}
    net.run(600 * S)
    assert {name: net.hosts[name].counters.state_changes for name in HOSTS} == changes
    assert lossless(net) == {0b1000}


def moved(priority: int) -> dict[str, Any]:
    return SOURCE | {"pfc": [priority], "app": [{"udp": 4791, "priority": priority}]}


def test_a_change_at_the_source_reaches_every_host_at_once() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(20 * S)
    net.configure(config(leaf_spine(moved(4))))
    assert net.now_ns == 20 * S
    assert lossless(net) == {0b10000}
    assert agreed(net) == {0b10000}
    assert {net.hosts[n].operational.app for n in HOSTS} == {(AppEntry(3, 4791, 4),)}


def test_a_source_that_changes_its_mind_is_slowed_to_a_frame_a_second() -> None:
    """txCredit: five at once, then one each second (802.1AB 9.2.5.12)."""
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(20 * S)
    for number in range(8):
        net.configure(config(leaf_spine(moved(number % 2 + 3))))
    assert agreed(net) != {0b10000} or lossless(net) != {0b10000}
    end = net.run(40 * S, lambda: lossless(net) == {0b10000} and agreed(net) == {0b10000})
    assert 21 * S <= end <= 26 * S


def test_who_refuses_is_not_lossless_and_is_reported() -> None:
    from dcb.dcbx.report import link_report

    refuses = DcbxSettings(pfc_enable=0b100000)
    net = fabric(config(leaf_spine()), {"h4": refuses})
    net.start()
    net.run(10 * S)
    runs = {(n, p): run.pfc_enable for n, agent in net.agents.items() for p, run in agent.runs().items()}
    assert runs.pop(("leaf2", 2)) == 0
    assert set(runs.values()) == {0b1000}
    found = link_report(net.agents["leaf2"].port(2))
    assert not found.agrees
    assert "neither end is willing: make one willing, or set PFC 3 there or 5 here" in found.text
    others = [
        link_report(a.port(n)).agrees for a in net.agents.values() for n in a.names if (a.name, n) != ("leaf2", 2)
    ]
    assert others == [True] * 11


def test_a_silent_host_is_lossy_when_its_ttl_is_over_to_the_second() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(45 * S)
    net.down.add(("h1", 0))
    last = max(time for time, node, _, _ in net.sent if node == "h1" and time <= 45 * S)
    end = net.run(300 * S, lambda: net.agents["leaf1"].runs()[1].pfc_enable == 0)
    assert end == last + TTL_S * S
    assert net.agents["leaf1"].runs()[2].pfc_enable == 0b1000


def test_a_second_neighbour_suspends_and_gives_back() -> None:
    from dcbx_fabric import host

    net = fabric(config(leaf_spine()))
    net.start()
    net.run(10 * S)
    stranger = host("x-eth0", "02:00:00:00:00:99")
    stranger.set_link(True, net.now_ns)
    [frame] = stranger.frames_to_send(net.now_ns)
    net.agents["leaf1"].receive(1, frame, net.now_ns)
    assert net.agents["leaf1"].runs()[1].pfc_enable == 0
    net.run(net.now_ns + TTL_S * S)
    assert net.agents["leaf1"].runs()[1].pfc_enable == 0b1000


def test_a_source_that_goes_away_leaves_nothing_behind() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(10 * S)
    net.configure(config(leaf_spine({"role": "auto-downstream"})))
    net.run(300 * S)
    assert lossless(net) == {0}
    assert agreed(net) == {0}
    assert {net.agents[n].switch.election.source for n in ("spine1",)} == {None}


# ---- restarts -------------------------------------------------------------------------------------------------------


def held_by(net: Net) -> dict[str, list[Any]]:
    running = overlay(net.config, {name: agent.runs() for name, agent in net.agents.items()})
    return {name: build(running, name) for name in net.agents}


def restart(net: Net) -> dict[str, list[Any]]:
    """New agents on switches that hold what the old ones left; the old ones say no goodbye."""
    from controller.dcbx import DcbxAgent

    held = held_by(net)
    net.agents = {name: DcbxAgent(name) for name in net.config.switches}
    for name, agent in net.agents.items():
        agent.configure(net.config, net.now_ns)
        agent.activate(held[name], net.now_ns)
    return held


def test_a_controller_that_starts_again_changes_nothing_anywhere() -> None:
    net = fabric(config(leaf_spine()), {"h4": DcbxSettings(pfc_enable=0b100000)})
    net.start()
    net.run(10 * S)
    changes = {name: port.counters.state_changes for name, port in net.hosts.items()}
    held = restart(net)
    assert all(agent.holding for agent in net.agents.values())

    seen: list[bool] = []

    def look() -> bool:
        seen.append(all(plan(entities, held[name]) == [] for name, entities in held_by(net).items()))
        return not any(agent.holding for agent in net.agents.values())

    end = net.run(200 * S, look)
    # hosts repeat themselves every 30 s, and do not know that anything happened
    assert end <= 40 * S
    net.run(400 * S)
    look()
    assert len(seen) > 5
    assert all(seen)
    assert {name: port.counters.state_changes for name, port in net.hosts.items()} == changes


def test_a_host_that_went_away_meanwhile_is_waited_for_no_longer_than_its_ttl() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(10 * S)
    net.down.add(("h1", 0))
    restart(net)
    end = net.run(400 * S, lambda: net.agents["leaf1"].runs()[1].pfc_enable == 0)
    assert end == 10 * S + TTL_S * S
    assert not net.agents["leaf1"].holding
    assert net.agents["leaf1"].runs()[2].pfc_enable == 0b1000


def test_goodbye_makes_hosts_go_their_own_way_at_once() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(10 * S)
    frames = net.agents["leaf1"].shut_down(net.now_ns)
    assert sorted(port for port, _ in frames) == [1, 2, 3, 4]
    for port, frame in frames:
        assert frame[14:].rstrip(b"\0").endswith(bytes.fromhex("06020000").rstrip(b"\0"))  # TTL 0 is the last TLV
        if port == 1:
            net.hosts["h1"].receive(frame, net.now_ns)
    assert net.hosts["h1"].operational.pfc_enable == 0
    assert net.agents["leaf1"].frames_to_send(net.now_ns) == []


def test_a_backup_is_silent() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(10 * S)
    agent = net.agents["leaf1"]
    agent.deactivate(net.now_ns)
    assert agent.frames_to_send(net.now_ns) == []
    said = len(net.sent)
    net.run(100 * S)
    assert "leaf1" not in {node for _, node, _, _ in net.sent[said:]}
    assert {run.pfc_enable for run in agent.runs().values()} == {0}


def test_ports_come_and_go_with_the_config() -> None:
    net = fabric(config(leaf_spine()))
    net.start()
    net.run(10 * S)
    data = leaf_spine()
    data["leaf1"]["ports"][2]["dcbx"] = {"enabled": False}
    agent = net.agents["leaf1"]
    agent.configure(config(data), net.now_ns)
    frames = agent.frames_to_send(net.now_ns)
    assert [port for port, frame in frames if b"\x06\x02\x00\x00" in frame] == [2]  # goodbye where it is not spoken now
    assert sorted(agent.runs()) == [1, 3, 4]
    assert agent.runs()[1].pfc_enable == 0b1000
    assert agent.switch.election.source == "leaf1-eth3"
    agent.configure(config(leaf_spine()), net.now_ns)
    net.config = config(leaf_spine())
    net.run(net.now_ns + 40 * S)
    assert agent.runs()[2].pfc_enable == 0b1000


# ---- set ------------------------------------------------------------------------------------------------------------


def test_set() -> None:
    conf = one_port(pfc=[3])

    def local(key: str, value: str, base: Config = conf, **more: Any) -> DcbxSettings:
        return local_settings(edit(base, {"key": key, "target": "leaf1:1", "value": value, **more}), "leaf1", 1)

    assert local("pfc", "3,4").pfc_enable == 0b11000
    assert local("pfc", "none").pfc_enable == 0
    assert local("ets", "0=40,1=60,2=strict", map="0=0,1=0,2=0,3=1,4=0,5=0,6=2,7=0").ets == STORAGE
    assert local("app", "udp:4791=3,dscp:26=4,ethertype:0x8906=5,default=1").app == (
        ROCE,
        AppEntry(5, 26, 4),
        AppEntry(1, 0x8906, 5),
        AppEntry(1, 0, 1),
    )
    assert local("app", "none").app == ()
    assert local("willing", "all").pfc_willing
    assert local("tie_break", "higher-mac").tie_break.value == "higher-mac"
    assert local("mode", "cee").mode.value == "cee"
    changed = edit(conf, {"key": "pfc", "target": "leaf1:1", "value": "4"})
    assert local("pfc", "default", changed) == local_settings(conf, "leaf1", 1)
    off = edit(conf, {"key": "enabled", "target": "leaf1:1", "value": "off"})
    assert off.switches["leaf1"].dcbx_of(1) is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pfc", "x", "pfc: 'x': priorities such as 3,4, or none"),
        ("pfc", "9", "switches.leaf1.ports.1.dcbx.pfc.0: 9: Input should be less than or equal to 7"),
        ("ets", "0=40", "bandwidth sum is 40, must be 100"),
        ("ets", "0:40", "ets: '0:40': NUMBER=VALUE is wanted"),
        ("ets", "0=many", "ets: 0=many: per cent 0..100 or strict is wanted"),
        ("app", "icmp:1=3", "app: 'icmp:1=3': udp:PORT=PRIO"),
        ("app", "udp:4791", "app: 'udp:4791': udp:PORT=PRIO"),
        ("willing", "some", "'some': Input should be 'ets', 'pfc' or 'app'"),
        ("role", "king", "'king': Input should be 'manual'"),
        ("colour", "red", "key: 'colour': one of ets, pfc, app"),
        ("enabled", "maybe", "enabled: 'maybe': on or off is wanted"),
    ],
)
def test_set_refuses(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edit(one_port(), {"key": key, "target": "leaf1:1", "value": value})
    assert message in str(caught.value)


def test_set_on_a_port_without_dcbx_says_so() -> None:
    with pytest.raises(ConfigError, match="no port there speaks DCBX"):
        edit(one_port({"enabled": False}), {"key": "pfc", "target": "leaf1:1", "value": "3"})
