"""Roles and the elected source: one switch by hand-made neighbours, then two spines, two leaves and four hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dcbx_net import HIGH, LOW, MIDDLE, OTHER, ROCE, STORAGE, S, Wire, local, said, up

from dcb.dcbx.fabric import DcbxSwitch, PortRole, SourceChanged
from dcb.dcbx.port import DcbxPort, OperationalChanged
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.tlv import ApplicationPriority, EtsRecommendation, EtsTable, PfcConfiguration

UP, DOWN, SOURCE, MANUAL = (
    PortRole.AUTO_UPSTREAM,
    PortRole.AUTO_DOWNSTREAM,
    PortRole.CONFIGURATION_SOURCE,
    PortRole.MANUAL,
)
CONFIG = DcbxSettings.switch(STORAGE, 0b1000, (ROCE,))
PLAIN = DcbxSettings()
TOLD = [EtsRecommendation(STORAGE).encode(), PfcConfiguration(0b1000).encode(), ApplicationPriority((ROCE,)).encode()]
ELSE = [EtsRecommendation(OTHER).encode(), PfcConfiguration(0b1_0000).encode()]


def mac(switch: int, port: int) -> bytes:
    return bytes([2, 0, 0, 0, switch, port])


def switch(number: int, *ports: tuple[PortRole, DcbxSettings]) -> DcbxSwitch:
    """Ports p1, p2, .. with their links up."""
    one = DcbxSwitch()
    for n, (role, settings) in enumerate(ports, start=1):
        one.add_port(f"p{n}", DcbxPort(mac(number, n), local(mac(number, 0), f"p{n}"), settings), role, 0)
        one.set_link(f"p{n}", True, 0)
    return one


def runs(one: DcbxSwitch, name: str) -> tuple[EtsTable, int, tuple[object, ...]]:
    oper = one.ports[name].operational
    return oper.ets, oper.pfc_enable, oper.app


def test_a_configuration_source_of_its_own_configures_the_auto_ports_and_no_manual_one() -> None:
    one = switch(1, (SOURCE, CONFIG), (DOWN, PLAIN), (UP, PLAIN), (MANUAL, PLAIN))
    assert one.election.source == "p1"
    assert one.election.why == "configuration-source with a configuration of its own"
    assert one.election.ports == {
        "p1": "elected",
        "p2": "runs what p1 runs",
        "p3": "runs what p1 runs",
        "p4": "manual: takes no part",
    }
    for name in ("p1", "p2", "p3"):
        assert runs(one, name) == (STORAGE, 0b1000, (ROCE,))
        assert not one.ports[name].settings.pfc_willing
        assert one.ports[name].sent.recommendation == EtsRecommendation(STORAGE)
    assert runs(one, "p4") == (EtsTable(), 0, ())
    assert one.settings("p2") == PLAIN


def test_an_upstream_port_is_elected_when_it_follows_its_peer() -> None:
    one = switch(1, (DOWN, PLAIN), (UP, PLAIN), (UP, PLAIN))
    assert one.election.source is None
    assert one.election.why == "no port is fit to be the source"
    assert one.election.ports["p1"] == "auto-downstream ports are never the source"
    assert one.election.ports["p2"] == "does not follow a peer (ETS: no neighbour; PFC: no neighbour)"
    assert one.ports["p2"].settings.ets_willing
    assert one.ports["p3"].settings.ets_willing
    events = one.receive("p3", said(LOW, TOLD), S)
    assert one.election.source == "p3"
    assert one.election.why == "auto-upstream that follows its peer"
    changed = {name: event.changed for name, event in events if isinstance(event, OperationalChanged)}
    assert changed == {
        "p1": ("ets", "pfc", "app"),
        "p2": ("ets", "pfc", "app"),
        "p3": ("ets", "pfc", "app", "agreed"),
    }
    assert [event.before for name, event in events if isinstance(event, SourceChanged) and name == "p3"] == [None]
    assert [one.ports[f"p{n}"].settings.ets_willing for n in (1, 2, 3)] == [False, False, True]
    assert all(runs(one, f"p{n}") == (STORAGE, 0b1000, (ROCE,)) for n in (1, 2, 3))


def test_the_first_source_stays_and_another_follows_when_it_goes() -> None:
    one = switch(1, (UP, PLAIN), (UP, PLAIN), (DOWN, PLAIN))
    one.receive("p2", said(LOW, TOLD, ttl=10), 0)
    one.receive("p1", said(HIGH, ELSE), S)
    assert one.election.source == "p2"
    assert runs(one, "p1") == (STORAGE, 0b1000, (ROCE,))  # not willing now: what its peer says does not count
    events = one.handle_timer(10 * S)  # the first source's neighbour ages
    assert one.election.source == "p1"
    assert runs(one, "p3") == (OTHER, 0b1_0000, ())
    downs = [event for name, event in events if name == "p3" and isinstance(event, OperationalChanged)]
    assert [(event.before.pfc_enable, event.after.pfc_enable) for event in downs] == [(0b1000, 0b1_0000)]


def test_no_source_left_returns_every_port_to_its_own() -> None:
    one = switch(1, (UP, PLAIN), (DOWN, replace(PLAIN, pfc_enable=1)))
    one.receive("p1", said(LOW, TOLD), 0)
    assert runs(one, "p2") == (STORAGE, 0b1000, (ROCE,))
    events = one.set_link("p1", False, S)
    assert one.election.source is None
    assert runs(one, "p2") == (EtsTable(), 1, ())
    assert [name for name, event in events if isinstance(event, SourceChanged)] == ["p1"]


def test_a_configuration_source_takes_over_from_an_upstream_port() -> None:
    one = switch(1, (UP, PLAIN), (DOWN, PLAIN))
    one.receive("p1", said(LOW, TOLD), 0)
    one.add_port("p3", DcbxPort(MIDDLE, local(MIDDLE), DcbxSettings.switch(OTHER, 0x10)), SOURCE, S)
    assert one.election.source == "p3"
    assert runs(one, "p1") == runs(one, "p2") == (OTHER, 0x10, ())
    one.set_role("p3", MANUAL, 2 * S)
    assert one.election.source == "p1"
    assert runs(one, "p2") == (STORAGE, 0b1000, (ROCE,))


def test_a_willing_configuration_source_needs_its_peer() -> None:
    willing = replace(PLAIN, ets_willing=True, pfc_willing=True, app_accept=True)
    one = switch(1, (SOURCE, willing), (DOWN, PLAIN))
    assert one.election.source is None
    one.receive("p1", said(LOW, TOLD), 0)
    assert one.election.why == "configuration-source that follows its peer"
    assert runs(one, "p2") == (STORAGE, 0b1000, (ROCE,))


def test_a_new_configuration_of_the_source_spreads_in_one_step() -> None:
    one = switch(1, (SOURCE, CONFIG), (DOWN, PLAIN))
    one.frames_to_send(0)
    events = one.set_settings("p1", replace(CONFIG, pfc_enable=0b1_0000), S)
    assert {name: event.changed for name, event in events if isinstance(event, OperationalChanged)} == {
        "p1": ("pfc",),
        "p2": ("pfc",),
    }
    assert sorted(name for name, _ in one.frames_to_send(S)) == ["p1", "p2"]


def test_a_port_that_cannot_run_it_says_so_and_keeps_its_own() -> None:
    one = switch(1, (SOURCE, CONFIG), (DOWN, replace(PLAIN, max_tcs=2)), (DOWN, PLAIN))
    assert one.election.ports["p2"] == (
        "cannot run what p1 runs: ETS Configuration TLV: traffic class of priority 6: 2, must be 0..1: 2 classes"
    )
    assert runs(one, "p2") == (EtsTable(), 0, ())
    assert runs(one, "p3") == (STORAGE, 0b1000, (ROCE,))


def test_a_name_is_taken_once() -> None:
    one = switch(1, (DOWN, PLAIN))
    with pytest.raises(ValueError, match="port p1: is there already"):
        one.add_port("p1", DcbxPort(LOW, local(LOW), PLAIN), DOWN, 0)


class Fabric:
    """Spines 1 and 2, leaves 3 and 4, two hosts a leaf. Spine 1 port p1 is the source; spine 2 learns from its leaves.

    Spine port n goes to leaf n + 2; leaf port n to spine n; leaf ports 3 and 4 to hosts.
    """

    def __init__(self, host_settings: DcbxSettings | None = None) -> None:
        self.spines = [switch(1, (SOURCE, CONFIG), (DOWN, PLAIN)), switch(2, (UP, PLAIN), (UP, PLAIN))]
        self.leaves = [switch(n, (UP, PLAIN), (UP, PLAIN), (DOWN, PLAIN), (DOWN, PLAIN)) for n in (3, 4)]
        self.hosts = [up(mac(9, n), DcbxSettings.host()) for n in range(4)]
        if host_settings is not None:
            self.hosts[0] = up(mac(9, 0), host_settings)
        links = [
            ((spine, f"p{leaf_n}"), (leaf, f"p{spine_n}"))
            for spine_n, spine in enumerate(self.spines, start=1)
            for leaf_n, leaf in enumerate(self.leaves, start=1)
        ]
        links += [((self.leaves[n // 2], f"p{3 + n % 2}"), (host, "")) for n, host in enumerate(self.hosts)]
        self.wire = Wire(*links)  # type: ignore[arg-type]


def test_one_source_configures_a_fabric_at_once() -> None:
    fabric = Fabric()
    fabric.wire.run(0)
    for node in (*fabric.spines, *fabric.leaves):
        for name in node.ports:
            assert runs(node, name) == (STORAGE, 0b1000, (ROCE,)), name
            assert node.ports[name].operational.lossless_priorities == (3,)
    for host in fabric.hosts:
        assert (host.operational.ets, host.operational.lossless_priorities) == (STORAGE, (3,))
        assert host.operational.app == (ROCE,)
    assert [leaf.election.source for leaf in fabric.leaves] == ["p1", "p1"]
    assert fabric.spines[1].election.source in ("p1", "p2")
    fabric.wire.run(300 * S)  # and stays
    assert [leaf.election.source for leaf in fabric.leaves] == ["p1", "p1"]
    late = [event for time, _, event in fabric.wire.events if time > 0 and isinstance(event, OperationalChanged)]
    assert late == []


def test_pfc_from_3_to_4_at_the_source_reaches_every_host_at_the_same_time() -> None:
    fabric = Fabric()
    fabric.wire.run(60 * S)
    fabric.spines[0].set_settings("p1", replace(CONFIG, pfc_enable=0b1_0000), 60 * S)
    fabric.wire.run(60 * S)
    assert [host.operational.lossless_priorities for host in fabric.hosts] == [(4,)] * 4
    assert [leaf.ports["p3"].operational.lossless_priorities for leaf in fabric.leaves] == [(4,), (4,)]


def test_a_host_that_refuses_is_not_lossless_and_the_others_are() -> None:
    refuses = DcbxSettings(ets=STORAGE, pfc_enable=0b1_0000)
    fabric = Fabric(refuses)
    fabric.wire.run(10 * S)
    assert fabric.hosts[0].operational.lossless_priorities == ()
    assert fabric.leaves[0].ports["p3"].operational.lossless_priorities == ()
    assert fabric.leaves[0].ports["p4"].operational.lossless_priorities == (3,)
    assert [host.operational.lossless_priorities for host in fabric.hosts[1:]] == [(3,)] * 3


def test_a_leaf_that_loses_its_source_takes_the_same_from_the_other_spine() -> None:
    """Spine 2 had it from leaf 3, which has lost it: now from leaf 4, and leaf 3 from spine 2. PFC never stops."""
    fabric = Fabric()
    fabric.wire.run(60 * S)
    assert fabric.spines[1].election.source == "p1"
    fabric.wire.events.clear()
    fabric.spines[0].set_link("p1", False, 60 * S)
    fabric.leaves[0].set_link("p1", False, 60 * S)
    fabric.wire.run(200 * S)
    assert fabric.leaves[0].election.source == "p2"
    assert fabric.leaves[1].election.source == "p1"
    assert fabric.spines[1].election.source == "p2"
    assert [host.operational.lossless_priorities for host in fabric.hosts] == [(3,)] * 4
    assert [host.operational.ets for host in fabric.hosts] == [STORAGE] * 4
    changed = [event for _, _, event in fabric.wire.events if isinstance(event, OperationalChanged)]
    assert all(event.after.pfc_enable == 0b1000 for event in changed)
