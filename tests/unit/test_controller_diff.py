"""The difference between two states: properties over random configs, and the order of the stages."""

from __future__ import annotations

import random

import pytest
from controller_fakes import CONFIG
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import Config, parse, parse_text, to_data
from controller.desired import build
from controller.diff import Kind, Update, plan
from controller.entries import Action, Entity, Group, GroupRef, Member, MemberRef, TableEntry

ROUTING = {"ingress.nexthop", "ingress.ipv4_lpm", "ingress.ipv6_lpm"}


class FakeTables:
    """A switch that refuses dangling references, as P4Runtime servers do, after every single update."""

    def __init__(self, entities: list[Entity]) -> None:
        self.held = {entity.key: entity for entity in entities}
        self.check()

    def apply(self, stages: list[list[Update]], shuffle: random.Random) -> None:
        for stage in stages:
            order = list(stage)
            shuffle.shuffle(order)  # a server may take the updates of one request in any order
            for update in order:
                key = update.entity.key
                kind = update.kind
                assert (kind is Kind.INSERT) == (key not in self.held)
                if kind is Kind.DELETE:
                    del self.held[key]
                else:
                    self.held[key] = update.entity
                if not isinstance(update.entity, TableEntry) or update.entity.table in ROUTING:
                    self.check()

    def check(self) -> None:
        values = self.held.values()
        members = {e.member_id for e in values if isinstance(e, Member)}
        groups = {e.group_id for e in values if isinstance(e, Group)}
        nexthops = {
            dict(e.match)["nexthop"] for e in values if isinstance(e, TableEntry) and e.table == "ingress.nexthop"
        }
        for entity in values:
            if isinstance(entity, Group):
                assert {member for member, _ in entity.members} <= members
            elif isinstance(entity, TableEntry):
                if isinstance(entity.action, MemberRef):
                    assert entity.action.member_id in members
                elif isinstance(entity.action, GroupRef):
                    assert entity.action.group_id in groups
                elif isinstance(entity.action, Action) and entity.action.name == "ingress.route":
                    assert entity.action["nexthop"] in nexthops


hops = st.fixed_dictionaries(
    {
        "port": st.integers(1, 3),
        "mac": st.sampled_from(["02:00:00:00:00:01", "02:00:00:00:00:02"]),
        "weight": st.integers(1, 2),
    }
)
routes = st.dictionaries(
    st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "fd00::/16", "::/0"]),
    st.lists(hops, min_size=1, max_size=3, unique_by=lambda hop: (hop["port"], hop["mac"])),
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    ports = {}
    for number in (1, 2, 3):
        ports[number] = {
            "mac": f"02:00:00:00:01:0{number}",
            "rate": draw(st.sampled_from(["100M", "1G"])),
            "pfc": draw(st.lists(st.integers(0, 7), max_size=3, unique=True)),
            "ets": draw(st.dictionaries(st.integers(0, 7), st.just({"ets": 7}) | st.just("strict"), max_size=3)),
            "queue_limits": draw(st.dictionaries(st.integers(0, 7), st.integers(1, 3), max_size=3)),
        }
    listed = [{"prefix": prefix, "via": via} for prefix, via in draw(routes).items()]
    profile = {"lossless": draw(st.lists(st.integers(0, 7), max_size=2, unique=True))}
    switch = {"device_id": 1, "address": "unix:/x", "ports": ports, "routes": listed}
    return parse({"qos_profiles": {"default": profile}, "switches": {"s": switch}})


@settings(max_examples=100, deadline=None)
@given(configs(), configs(), st.integers(0, 2**32))
def test_applying_the_difference_gives_the_desired_state(before: Config, after: Config, seed: int) -> None:
    held, wanted = build(before, "s"), build(after, "s")
    switch = FakeTables(held)
    switch.apply(plan(wanted, held), random.Random(seed))
    assert switch.held == {entity.key: entity for entity in wanted}


@settings(max_examples=50, deadline=None)
@given(configs(), st.integers(0, 2**32))
def test_equal_states_need_no_update_in_any_order(config: Config, seed: int) -> None:
    entities = build(config, "s")
    shuffled = list(entities)
    random.Random(seed).shuffle(shuffled)
    assert plan(entities, shuffled) == []


def test_a_change_of_one_value_is_one_modify() -> None:
    before = build(parse_text(CONFIG), "leaf1")
    after = build(parse_text(CONFIG.replace("{ets: 40}", "{ets: 41}")), "leaf1")
    stages = plan(after, before)
    assert [[str(update) for update in stage] for stage in stages] == [["modify egress.tm_scheduler[port=1, tc=0]"]]
    assert stages[0][0].entity == TableEntry(
        "egress.tm_scheduler", (("port", 1), ("tc", 0)), Action.of("egress.tm_ets", weight=41)
    )


def test_a_route_that_goes_takes_its_hops_along_last() -> None:
    config = parse_text(CONFIG)
    data = to_data(config)
    del data["switches"]["leaf1"]["routes"][1:]  # both ECMP routes
    stages = plan(build(parse(data), "leaf1"), build(config, "leaf1"))
    assert [{(update.kind.value, type(update.entity).__name__) for update in stage} for stage in stages] == [
        {("delete", "TableEntry")},
        {("delete", "TableEntry")},
        {("delete", "Group")},
        {("delete", "Member")},
    ]
    assert [len(stage) for stage in stages] == [2, 1, 1, 2]


def test_two_entries_with_one_key_are_a_fault() -> None:
    entry = TableEntry("t", (("a", 1),), Action("x"))
    other = TableEntry("t", (("a", 1),), Action("y"))
    with pytest.raises(ValueError, match=r"t\[a=1\]: two entries with the same key"):
        plan([entry, other], [])
