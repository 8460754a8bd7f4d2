"""Bad control input while traffic flows: each request is refused with its reason, and every frame goes its way.

The bundled program on a native core behind the P4Runtime service. A frame goes through before and after every request,
and from a second thread while a program is being refused or verified.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dcb_switch import DcbSwitch, data
from finsy.proto import p4r
from p4rt_client import DCB_JSON, DCB_P4INFO, DEVICE_ID, config

from switch.p4rt.errors import P4RuntimeError

FRAME = data(200)
LPM = r'match { field_id: 1 lpm { value: "\x0a\x02\x00\x00" prefix_len: 16 } }'
ROUTE = r'action { action { action_id: @ingress.route params { param_id: 1 value: "\x01" } } }'
MULTICAST_TO_777 = (
    "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 1 replicas { egress_port: 777 } } }"
)
HEX_101 = r"\x65"
PORT_2_TC_3 = r'match { field_id: 1 exact { value: "\x02" } } match { field_id: 2 exact { value: "\x03" } }'


def route(key: str, action: str = ROUTE) -> str:
    return f"table_entry {{ table_id: @ingress.ipv4_lpm {key} {action} }}"


def lpm(value: str, prefix_len: int) -> str:
    return f'match {{ field_id: 1 lpm {{ value: "{value}" prefix_len: {prefix_len} }} }}'


def call(action: str, value: str = "") -> str:
    params = f'params {{ param_id: 1 value: "{value}" }}' if value else ""
    return f"action {{ action {{ action_id: {action} {params} }} }}"


@pytest.fixture(scope="module")
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    yield made
    made.service.close()


def forwards(switch: DcbSwitch) -> bool:
    """A frame into port 1 leaves port 2, once, with its TTL less by one."""
    now = switch.switch_core.now_ps + 10**6
    switch.receive(1, FRAME, now)
    out = switch.until(now)
    return [(o.port, len(o.frame), o.frame[22]) for o in out] == [(2, 200, FRAME[22] - 1)]


BAD: list[tuple[str, str, str, str]] = [
    ("unknown table id", "table_entry { table_id: 33554433 }", "NOT_FOUND", "0x2000001"),
    ("id of an action as table", f"table_entry {{ table_id: @ingress.route {LPM} }}", "INVALID_ARGUMENT", "table"),
    ("unknown action id", route(LPM, call("16777217")), "INVALID_ARGUMENT", "0x1000001"),
    ("action of another table", route(LPM, call("@ingress.acl_drop")), "INVALID_ARGUMENT", "not an action of it"),
    ("missing key", "table_entry { table_id: @ingress.nexthop }", "INVALID_ARGUMENT", "nexthop"),
    ("unknown field id", route('match { field_id: 9 exact { value: "1" } }'), "INVALID_ARGUMENT", "9"),
    ("field given twice", route(f"{LPM} {LPM}"), "INVALID_ARGUMENT", "dst"),
    ("wrong kind of match", route('match { field_id: 1 exact { value: "abcd" } }'), "INVALID_ARGUMENT", "dst"),
    ("key wider than its field", route(lpm(r"\x01\0\0\0\0", 8)), "INVALID_ARGUMENT", "does not fit in bit<32>"),
    ("prefix longer than its field", route(lpm(r"\x0a\0\0\0", 33)), "INVALID_ARGUMENT", "33"),
    ("bits behind the prefix", route(lpm(r"\x0a\0\0\x01", 8)), "INVALID_ARGUMENT", "dst"),
    (
        "parameter too wide",
        route(LPM, call("@ingress.route", r"\x01\0\0")),
        "INVALID_ARGUMENT",
        "does not fit in bit<16>",
    ),
    ("missing parameter", route(LPM, call("@ingress.route")), "INVALID_ARGUMENT", "nexthop"),
    ("no action", route(LPM, ""), "INVALID_ARGUMENT", "action"),
    ("priority where none is", route(f"priority: 5 {LPM}"), "INVALID_ARGUMENT", "priority"),
    (
        "no priority where one must be",
        f"table_entry {{ table_id: @ingress.acl {call('@ingress.acl_drop')} }}",
        "INVALID_ARGUMENT",
        "priority",
    ),
    ("duplicate", route(lpm(r"\x0a\x01\0\x02", 32)), "ALREADY_EXISTS", "ipv4_lpm"),
    (
        "weight beyond 100",
        rf"table_entry {{ table_id: @egress.tm_scheduler {PORT_2_TC_3} {call('@egress.tm_ets', HEX_101)} }}",
        "INVALID_ARGUMENT",
        "weight 101",
    ),
    ("a counter that is inserted", "counter_entry { counter_id: @ingress.rx }", "INVALID_ARGUMENT", "MODIFY"),
    ("member without a profile", "action_profile_member { member_id: 1 }", "INVALID_ARGUMENT", "action_profile_id"),
    (
        "groups beside one-shot sets",
        "action_profile_group { action_profile_id: @ingress.ecmp group_id: 1 members { member_id: 77 weight: 1 } }",
        "INVALID_ARGUMENT",
        "cannot be mixed",
    ),
    (
        "multicast to a port beyond 9 bits",
        MULTICAST_TO_777,
        "INVALID_ARGUMENT",
        "0x309 does not fit",
    ),
    ("nothing at all", "", "INVALID_ARGUMENT", "entity"),
]


@pytest.mark.parametrize(("text", "code", "said"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_malformed_write_is_refused_by_name(switch: DcbSwitch, text: str, code: str, said: str) -> None:
    assert forwards(switch)
    before = switch.read(
        "table_entry { table_id: @ingress.ipv4_lpm }", "table_entry { table_id: @egress.tm_scheduler }"
    )
    outcome, message = switch.insert(text)
    assert (outcome, said in message) == (code, True), message
    assert forwards(switch)
    after = switch.read("table_entry { table_id: @ingress.ipv4_lpm }", "table_entry { table_id: @egress.tm_scheduler }")
    assert before == after


@pytest.mark.parametrize("kind", ["MODIFY", "DELETE"])
def test_what_is_not_there_is_not_found(switch: DcbSwitch, kind: str) -> None:
    assert switch.write((kind, f"table_entry {{ table_id: @ingress.ipv4_lpm {LPM} {ROUTE} }}"))[0][0] == "NOT_FOUND"
    assert forwards(switch)


def test_good_updates_of_a_bad_batch_are_done(switch: DcbSwitch) -> None:
    """CONTINUE_ON_ERROR, the default of P4Runtime: each update has its own outcome."""
    good = f"table_entry {{ table_id: @ingress.ipv4_lpm {LPM} {ROUTE} }}"
    outcomes = switch.write(("INSERT", BAD[0][1]), ("INSERT", good), ("INSERT", good), ("DELETE", good))
    assert [code for code, _ in outcomes] == ["NOT_FOUND", "OK", "ALREADY_EXISTS", "OK"]
    assert forwards(switch)


# --- programs --------------------------------------------------------------------------------------------------------


class Traffic:
    """Sends frames through the core from a thread of its own until it is left, and counts those that did not leave."""

    def __init__(self, switch: DcbSwitch) -> None:
        self.switch = switch
        self.sent = self.lost = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.sent += 1
            self.lost += not forwards(self.switch)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


def request(text: bytes, action: str = "VERIFY_AND_COMMIT") -> Any:
    message = config(DCB_JSON, DCB_P4INFO)
    message.p4_device_config = text
    kind = p4r.SetForwardingPipelineConfigRequest.Action.Value(action)
    return p4r.SetForwardingPipelineConfigRequest(
        device_id=DEVICE_ID, election_id=p4r.Uint128(low=1), action=kind, config=message
    )


def test_a_program_with_unsupported_features_is_refused_with_the_list(switch: DcbSwitch) -> None:
    program = json.loads(DCB_JSON.read_bytes())
    ingress = next(p for p in program["pipelines"] if p["name"] == "ingress")
    ingress["tables"][0]["match_type"] = "fuzzy"
    action = next(a for a in program["actions"] if a["primitives"])
    action["primitives"][0]["op"] = "teleport"
    program["calculations"][0]["algo"] = "sha3"
    held = switch.switch_core
    with Traffic(switch) as traffic:
        with pytest.raises(P4RuntimeError) as caught:
            switch.service.prepare(request(json.dumps(program).encode())).build()
        for text in (b"", b"{", b"\xff\xfe", b"[]", json.dumps({"program": []}).encode(), b"null"):
            with pytest.raises(P4RuntimeError) as other:
                switch.service.prepare(request(text)).build()
            assert other.value.code.name == "INVALID_ARGUMENT"
    assert caught.value.code.name == "INVALID_ARGUMENT"
    for said in ("fuzzy", "teleport", "sha3"):
        assert said in str(caught.value)
    assert switch.switch_core is held
    assert traffic.sent > 1
    assert traffic.lost == 0
    assert forwards(switch)
    switch.assert_empty()


def test_verifying_a_good_program_disturbs_nothing(switch: DcbSwitch) -> None:
    held = switch.switch_core
    with Traffic(switch) as traffic:
        change = switch.service.prepare(request(DCB_JSON.read_bytes(), "VERIFY"))
        change.build()
        switch.service.finish(change)
    assert switch.switch_core is held
    assert traffic.sent > 1
    assert traffic.lost == 0
    assert forwards(switch)


def test_a_stranger_changes_nothing(switch: DcbSwitch) -> None:
    """Writes and programs of a client that is not primary."""
    write = p4r.WriteRequest(device_id=DEVICE_ID, election_id=p4r.Uint128(low=99))
    with pytest.raises(P4RuntimeError, match="primary"):
        switch.service.write(write)
    push = request(DCB_JSON.read_bytes())
    push.election_id.low = 99
    with pytest.raises(P4RuntimeError, match="primary"):
        switch.service.prepare(push)
    assert forwards(switch)


def test_no_compiler_is_no_fault_of_the_program(switch: DcbSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with Traffic(switch) as traffic, pytest.raises(P4RuntimeError, match="there is no C compiler") as caught:
        switch.service.prepare(request(DCB_JSON.read_bytes())).build()
    assert caught.value.code.name == "INTERNAL"
    assert (traffic.sent > 0, traffic.lost) == (True, 0)
    assert forwards(switch)
