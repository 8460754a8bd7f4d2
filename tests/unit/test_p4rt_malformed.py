"""Malformed requests: whatever bytes come in, the answer is an error or success, and target and store agree."""

from __future__ import annotations

import contextlib

import pytest
from finsy.proto import p4r
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from p4rt_client import DEVICE_ID
from p4rt_direct import Direct

from switch.api import GroupRef
from switch.p4rt.errors import P4RuntimeError
from switch.p4rt.service import BatchError
from switch.p4rt.store import ActionSet

SEEDS = [
    r'table_entry { table_id: @l2 match { field_id: 1 exact { value: "\x02" } } action { action { '
    r"action_id: @drop } } idle_timeout_ns: 5 }",
    r'table_entry { table_id: @acl priority: 9 match { field_id: 4 range { low: "\x01" high: "\x05" } '
    r"} action { action { action_id: @acl_deny } } meter_config { pir: 1 } counter_data { byte_count: "
    r"1 } }",
    r'table_entry { table_id: @routes match { field_id: 1 lpm { value: "\x0a\0\0\0" prefix_len: 8 } } '
    r'action { action { action_id: @route params { param_id: 1 value: "\x01" } params { param_id: 2 '
    r'value: "\x01" } } } }',
    r'table_entry { table_id: @balanced match { field_id: 1 exact { value: "\x01" } } action { '
    r"action_profile_action_set { action_profile_actions { weight: 1 action { action_id: @drop } } } "
    r"} }",
    "table_entry { table_id: @l2 is_default_action: true action { action { action_id: @drop } } }",
    "action_profile_member { action_profile_id: @shared member_id: 1 action { action_id: @drop } }",
    "action_profile_group { action_profile_id: @ecmp group_id: 1 members { member_id: 1 weight: 1 } }",
    "counter_entry { counter_id: @port_counter index { index: 1 } data { packet_count: 1 } }",
    "meter_entry { meter_id: @port_meter index { index: 1 } config { cir: 1 pir: 2 } }",
    "register_entry { register_id: @last_seen index { index: 1 } data { bitstring: '1' } }",
    "value_set_entry { value_set_id: @ParserImpl.routed_types members { match { field_id: 1 exact { value: '1' } } } }",
    "digest_entry { digest_id: @learn_t config { max_list_size: 1 } }",
    "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 1 } } }",
    "packet_replication_engine_entry { clone_session_entry { session_id: 1 replicas { port: '1' } } }",
    "direct_counter_entry { table_entry { table_id: @acl priority: 9 match { field_id: 4 range { "
    "low: '1' high: '2' } } } data { } }",
]


@pytest.fixture(scope="module")
def switch() -> Direct:
    return Direct()


def agree(switch: Direct) -> None:
    """Every entry of the store is in the pipeline with the same action, and nothing else is."""
    pipeline = switch.service._current()  # the service has no other way to look inside
    for table in pipeline.schema.tables.values():
        ours = {
            entry.handle: GroupRef(entry.action.group_id) if isinstance(entry.action, ActionSet) else entry.action
            for entry in pipeline.store.entries[table.id].values()
        }
        theirs = {handle: entry.action for handle, entry in switch.pipeline.entries[table.name].items()}
        assert ours == theirs
    for profile in pipeline.schema.profiles.values():
        state, fake = pipeline.store.profiles[profile.id], switch.pipeline.profiles[profile.name]
        hidden = {member for one in state.one_shots.values() for member in one.member_ids}
        assert set(state.members) | hidden == set(fake.members)
        assert set(state.groups) | set(state.one_shots) == set(fake.groups)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_mutated_updates(switch: Direct, data: st.DataObject) -> None:
    request = p4r.WriteRequest(device_id=DEVICE_ID, election_id=p4r.Uint128(low=1))
    request.atomicity = data.draw(st.sampled_from([0, 0, 1, 2]))
    for _ in range(data.draw(st.integers(1, 3))):
        raw = bytearray(switch.entity(data.draw(st.sampled_from(SEEDS))).SerializeToString())
        for _ in range(data.draw(st.integers(0, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        try:
            entity = p4r.Entity.FromString(bytes(raw))
        except DecodeError:
            continue
        request.updates.add(type=data.draw(st.sampled_from([1, 2, 3])), entity=entity)  # type: ignore[arg-type]
    try:
        switch.service.write(request)
    except BatchError as error:
        details = error.status().details
    except P4RuntimeError:
        details = [None] * len(request.updates)
    else:
        details = [None] * len(request.updates)
    assert len(details) == len(request.updates)
    agree(switch)
    query = p4r.ReadRequest(device_id=DEVICE_ID, entities=[update.entity for update in request.updates])
    with contextlib.suppress(P4RuntimeError):
        list(switch.service.read(query))
    switch.whole_state()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_random_stream_messages(switch: Direct, raw: bytes) -> None:
    try:
        message = p4r.StreamMessageRequest.FromString(raw)
    except DecodeError:
        return
    try:
        switch.service.stream_message("stranger", message)
    except P4RuntimeError:
        pass
    finally:
        switch.service.disconnect("stranger")
