"""Action profiles and selectors over the service: members, groups, one-shots, watch ports, references, sizes,
roll-back."""

from __future__ import annotations

import pytest
from p4rt_direct import OK, Direct

from switch.api import ActionCall, GroupRef, MemberRef


@pytest.fixture
def switch() -> Direct:
    return Direct(interfaces={1: "veth1", 2: "veth2", 3: "veth3"})


def member(number: int, port: int = 5, profile: str = "ecmp", action: str | None = None) -> str:
    act = action
    if act is None and profile == "ecmp":
        act = (
            f'action_id: @route params {{ param_id: 1 value: "\\x{port:02x}" }} params {{ param_id: 2 value: "\\x01" }}'
        )
    elif act is None:
        act = f'action_id: @forward params {{ param_id: 1 value: "\\x{port:02x}" }}'
    act = f"action {{ {act} }}" if act else ""
    return f"action_profile_member {{ action_profile_id: @{profile} member_id: {number} {act} }}"


def group(number: int, *members: tuple[int, int], more: str = "") -> str:
    inner = " ".join(f"members {{ member_id: {m} weight: {w} }}" for m, w in members)
    return f"action_profile_group {{ action_profile_id: @ecmp group_id: {number} {inner} {more} }}"


def entry(action: str, dst: int = 1, table: str = "balanced") -> str:
    act = f"action {{ {action} }}" if action else ""
    return f'table_entry {{ table_id: @{table} match {{ field_id: 1 exact {{ value: "\\x{dst:02x}" }} }} {act} }}'


def one_shot(*actions: tuple[int, int, str], dst: int = 1) -> str:
    inner = " ".join(
        f"""action_profile_actions {{ weight: {weight} {watch}
            action {{ action_id: @route params {{ param_id: 1 value: "\\x{port:02x}" }} params {{ param_id: 2 value:
            "\\x01" }} }} }}"""
        for port, weight, watch in actions
    )
    return entry(f"action_profile_action_set {{ {inner} }}", dst)


def test_members_groups_entries(switch: Direct) -> None:
    assert switch.insert(member(1, 5)) == OK
    assert switch.insert(member(2, 6)) == OK
    assert switch.insert(group(1, (1, 1), (2, 3))) == OK  # group 1 and member 1 do not collide
    assert switch.insert(entry("action_profile_group_id: 1", 1)) == OK
    assert switch.insert(entry("action_profile_member_id: 2", 2)) == OK
    profile = switch.pipeline.profiles["IngressImpl.ecmp"]
    assert profile.members == {1: ActionCall("IngressImpl.route", (5, 1)), 2: ActionCall("IngressImpl.route", (6, 1))}
    assert profile.groups == {1: ((1, 1), (2, 3))}
    actions = [e.action for e in switch.pipeline.entries["IngressImpl.balanced"].values()]
    assert actions == [GroupRef(1), MemberRef(2)]
    assert switch.read("action_profile_member {}") == [switch.entity(member(1, 5)), switch.entity(member(2, 6))]
    assert switch.read("action_profile_member { action_profile_id: @ecmp member_id: 2 }") == [
        switch.entity(member(2, 6))
    ]
    assert switch.read("action_profile_member { action_profile_id: @shared }") == []
    assert switch.read("action_profile_group {}") == [switch.entity(group(1, (1, 1), (2, 3)))]
    assert switch.read("table_entry { table_id: @balanced }")[0] == switch.entity(
        entry("action_profile_group_id: 1", 1)
    )
    assert switch.modify(member(1, 9)) == OK
    assert profile.members[1] == ActionCall("IngressImpl.route", (9, 1))
    assert switch.modify(group(1, (2, 2))) == OK
    assert profile.groups == {1: ((2, 2),)}
    assert switch.modify(entry("action_profile_member_id: 1", 1)) == OK
    assert switch.delete(group(1)) == OK
    assert profile.groups == {}


def test_action_profile_without_selector(switch: Direct) -> None:
    assert switch.insert(member(4, 3, "shared")) == OK
    assert switch.insert(entry("action_profile_member_id: 4", 1, "indirect")) == OK
    assert switch.pipeline.only("IngressImpl.indirect").action == MemberRef(4)
    code, message = switch.insert(entry("action_profile_group_id: 4", 2, "indirect"))
    assert (code, "has no selector" in message) == ("INVALID_ARGUMENT", True)
    code, message = switch.insert(entry("action_profile_action_set { }", 2, "indirect"))
    assert (code, "has no selector" in message) == ("INVALID_ARGUMENT", True)
    assert switch.insert("action_profile_group { action_profile_id: @shared group_id: 1 }")[0] == "INVALID_ARGUMENT"
    for number in range(10, 17):
        assert switch.insert(member(number, 3, "shared")) == OK
    assert switch.insert(member(20, 3, "shared"))[0] == "RESOURCE_EXHAUSTED"  # size 8


def test_references_protect(switch: Direct) -> None:
    for number in (1, 2, 3):
        switch.insert(member(number))
    switch.insert(group(1, (1, 1)))
    switch.insert(entry("action_profile_group_id: 1", 1))
    switch.insert(entry("action_profile_member_id: 2", 2))
    assert switch.delete(member(1))[0] == "FAILED_PRECONDITION"
    assert switch.delete(member(2))[0] == "FAILED_PRECONDITION"
    assert switch.delete(group(1))[0] == "FAILED_PRECONDITION"
    assert switch.delete(member(3)) == OK
    assert switch.modify(entry("action_profile_member_id: 2", 1)) == OK
    assert switch.delete(group(1)) == OK
    assert switch.delete(member(1)) == OK
    assert switch.delete(entry("", 1)) == OK
    assert switch.delete(member(2))[0] == "FAILED_PRECONDITION"
    assert switch.delete(entry("", 2)) == OK
    assert switch.delete(member(2)) == OK


@pytest.mark.parametrize(
    ("kind", "text", "code", "said"),
    [
        ("INSERT", member(1), "ALREADY_EXISTS", "member_id 1 exists"),
        ("INSERT", member(0), "INVALID_ARGUMENT", "member_id must not be 0"),
        ("INSERT", member(5, action=""), "INVALID_ARGUMENT", "action is missing"),
        ("INSERT", member(5, action="action_id: @punt"), "INVALID_ARGUMENT", "not an action of it"),
        ("MODIFY", member(5), "NOT_FOUND", "no member with member_id 5"),
        ("MODIFY", member(1, action=""), "INVALID_ARGUMENT", "action is missing"),
        ("DELETE", member(5), "NOT_FOUND", "no member with member_id 5"),
        ("INSERT", "action_profile_member { action_profile_id: 9 member_id: 1 }", "NOT_FOUND", "action_profile_id 0x9"),
        ("INSERT", group(1, (1, 1)), "ALREADY_EXISTS", "group_id 1 exists"),
        ("INSERT", group(0, (1, 1)), "INVALID_ARGUMENT", "group_id must not be 0"),
        ("INSERT", group(2, (7, 1)), "NOT_FOUND", "no member with member_id 7"),
        ("INSERT", group(2, (1, 0)), "INVALID_ARGUMENT", "weight 0: must be positive"),
        ("INSERT", group(2, (1, -1)), "INVALID_ARGUMENT", "weight -1: must be positive"),
        ("INSERT", group(2, (1, 1), (1, 2)), "INVALID_ARGUMENT", "member_id 1 is given twice"),
        ("INSERT", group(2, (1, 3), more="max_size: 2"), "RESOURCE_EXHAUSTED", "sum of weights 3 exceeds max_size 2"),
        ("INSERT", group(2, (1, 1), more="max_size: -1"), "INVALID_ARGUMENT", "max_size -1"),
        ("INSERT", group(2, (1, 16)), "RESOURCE_EXHAUSTED", "exceed size 16"),
        ("MODIFY", group(2, (1, 1)), "NOT_FOUND", "no group with group_id 2"),
        ("MODIFY", group(1, (1, 1), more="max_size: 9"), "INVALID_ARGUMENT", "must stay what it was at INSERT (0)"),
        ("DELETE", group(2), "NOT_FOUND", "no group with group_id 2"),
        ("INSERT", entry("action_profile_group_id: 2", 9), "NOT_FOUND", "no group with group_id 2"),
        ("INSERT", entry("action_profile_member_id: 5", 9), "NOT_FOUND", "no member with member_id 5"),
        (
            "INSERT",
            entry("action { action_id: @drop }", 9),
            "INVALID_ARGUMENT",
            "a member, a group or an action set must be given",
        ),
        ("INSERT", one_shot((5, 1, ""), dst=9), "INVALID_ARGUMENT", "they cannot be mixed"),
        (
            "INSERT",
            "action_profile_group { action_profile_id: @ecmp group_id: 2 members { member_id: 1 "
            "weight: 1 watch_port: '\\x09' } }",
            "INVALID_ARGUMENT",
            "watch_port 9: the switch has no such port",
        ),
    ],
)
def test_refusals_change_nothing(switch: Direct, kind: str, text: str, code: str, said: str) -> None:
    switch.insert(member(1))
    switch.insert(group(1, (1, 1)))
    before = switch.whole_state()
    ((got, message),) = switch.write((kind, text))
    assert got == code
    assert said in message
    assert switch.whole_state() == before


def test_one_shot(switch: Direct) -> None:
    text = one_shot((5, 1, ""), (6, 2, "watch_port: '\\x02'"), (5, 1, "watch: 3"))
    assert switch.insert(text) == OK
    profile = switch.pipeline.profiles["IngressImpl.ecmp"]
    (members,) = profile.groups.values()
    assert [(profile.members[m].params[0], weight) for m, weight in members] == [(5, 1), (6, 2), (5, 1)]
    assert switch.read("table_entry { table_id: @balanced }") == [switch.entity(text)]
    assert switch.read("action_profile_member {}") == []  # hidden
    assert switch.read("action_profile_group {}") == []
    other = one_shot((9, 1, ""))
    assert switch.modify(other) == OK
    assert [call.params[0] for call in profile.members.values()] == [9]
    assert len(profile.groups) == 1
    assert switch.read("table_entry { table_id: @balanced }") == [switch.entity(other)]
    for mixed in (member(1), group(1), entry("action_profile_member_id: 1", 2)):
        assert switch.insert(mixed)[0] == "INVALID_ARGUMENT"
    assert switch.delete(entry("")) == OK
    assert (profile.members, profile.groups) == ({}, {})
    assert switch.insert(member(1)) == OK  # free for the other style again


def test_one_shot_sizes(switch: Direct) -> None:
    assert switch.insert(one_shot((5, 17, "")))[0] == "RESOURCE_EXHAUSTED"
    assert switch.insert(one_shot((5, 10, ""))) == OK
    assert switch.insert(one_shot((5, 7, ""), dst=2))[0] == "RESOURCE_EXHAUSTED"
    assert switch.modify(one_shot((5, 16, ""))) == OK  # it replaces its own
    assert switch.insert(one_shot((5, 0, ""), dst=2))[0] == "INVALID_ARGUMENT"
    text = entry("action_profile_action_set { action_selection_mode: RANDOM }", 3)
    assert switch.insert(text)[0] == "UNIMPLEMENTED"
    text = entry("action_profile_action_set { size_semantics: SUM_OF_MEMBERS }", 3)
    assert switch.insert(text)[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize("step", ["member_set", "group_set", "table_insert"])
def test_half_done_one_shot_leaves_nothing(switch: Direct, step: str) -> None:
    switch.pipeline.refuse(step)
    assert switch.insert(one_shot((5, 1, ""), (6, 1, "")))[0] == "INVALID_ARGUMENT"
    profile = switch.pipeline.profiles["IngressImpl.ecmp"]
    assert (profile.members, profile.groups, switch.pipeline.entries["IngressImpl.balanced"]) == ({}, {}, {})
    assert switch.insert(member(1)) == OK


@pytest.mark.parametrize("step", ["member_set", "group_set", "member_delete"])
def test_half_done_one_shot_modify_keeps_the_old(switch: Direct, step: str) -> None:
    switch.insert(one_shot((5, 1, ""), (7, 2, "")))
    before = switch.whole_state()
    switch.pipeline.refuse(step)
    assert switch.modify(one_shot((6, 1, "")))[0] == "INVALID_ARGUMENT"
    assert switch.whole_state() == before
    profile = switch.pipeline.profiles["IngressImpl.ecmp"]
    (members,) = profile.groups.values()
    assert [(profile.members[m].params[0], weight) for m, weight in members] == [(5, 1), (7, 2)]
    assert len(profile.members) == 2


@pytest.mark.parametrize("step", ["group_delete", "member_delete"])
def test_half_done_one_shot_delete_keeps_it(switch: Direct, step: str) -> None:
    switch.insert(one_shot((5, 1, ""), (7, 2, "")))
    before = switch.whole_state()
    switch.pipeline.refuse(step)
    assert switch.delete(entry(""))[0] == "INVALID_ARGUMENT"
    assert switch.whole_state() == before
    assert switch.delete(entry("")) == OK
    assert switch.pipeline.profiles["IngressImpl.ecmp"].members == {}


def test_rollback_of_a_batch(switch: Direct) -> None:
    switch.insert(one_shot((5, 1, "")))
    before = switch.whole_state()
    outcomes = switch.write(
        ("MODIFY", one_shot((6, 1, ""))),
        ("DELETE", entry("")),
        ("INSERT", member(1)),
        ("INSERT", member(2)),
        ("INSERT", group(1, (1, 1))),
        ("MODIFY", group(1, (2, 1))),
        ("MODIFY", member(2, 9)),
        ("INSERT", entry("action_profile_group_id: 1", 2)),
        ("DELETE", member(9)),
        atomicity="ROLLBACK_ON_ERROR",
    )
    assert [code for code, _ in outcomes] == ["ABORTED"] * 8 + ["NOT_FOUND"]
    assert switch.whole_state() == before
    profile = switch.pipeline.profiles["IngressImpl.ecmp"]
    assert [call.params[0] for call in profile.members.values()] == [5]
    assert len(profile.groups) == 1
    assert switch.delete(entry("")) == OK
    assert (profile.members, profile.groups) == ({}, {})


def test_watched_ports(switch: Direct) -> None:
    switch.insert(member(1))
    switch.insert(member(2))
    text = (
        "action_profile_group { action_profile_id: @ecmp group_id: 1 members { member_id: 1 weight: "
        "1 watch_port: '\\x01' } "
        "members { member_id: 2 weight: 2 watch_port: '\\x02' } }"
    )
    groups = switch.pipeline.profiles["IngressImpl.ecmp"].groups
    assert switch.insert(text) == OK
    assert groups[1] == ((1, 1), (2, 2))
    switch.core.down.add(2)
    assert switch.service.next_deadline_ns(1000) == 1000 + 100_000_000
    switch.service.poll(2000, 0)
    assert groups[1] == ((1, 1),)
    assert switch.read("action_profile_group {}") == [switch.entity(text)]  # the configuration is unchanged
    switch.core.down.add(1)
    switch.service.poll(3000, 0)
    assert groups[1] == ()
    switch.core.down.clear()
    switch.service.poll(4000, 0)
    assert groups[1] == ((1, 1), (2, 2))
