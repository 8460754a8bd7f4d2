"""Arbitration without I/O: every rule of the specification's "Rules for Handling MasterArbitrationUpdate"."""

from __future__ import annotations

import pytest

from switch.p4rt.arbitration import Arbiter, Notification
from switch.p4rt.errors import P4RuntimeError


def brief(notices: list[Notification]) -> list[tuple[object, int | None, str]]:
    return [(notice.client, notice.election_id, notice.code.name) for notice in notices]


def refused(call, *arguments: object) -> tuple[str, str]:
    with pytest.raises(P4RuntimeError) as caught:
        call(*arguments)
    return caught.value.code.name, caught.value.message


def test_first_client_with_an_election_id_becomes_primary() -> None:
    arbiter = Arbiter(1)
    assert brief(arbiter.update("a", 1, "", 10)) == [("a", 10, "OK")]
    assert arbiter.is_primary("a")
    arbiter.check_primary(1, "", 10)


def test_lower_id_is_backup_and_only_it_is_told() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    assert brief(arbiter.update("b", 1, "", 9)) == [("b", 10, "ALREADY_EXISTS")]


def test_higher_id_takes_over_and_others_are_told_first() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    arbiter.update("b", 1, "", 9)
    assert brief(arbiter.update("c", 1, "", 11)) == [
        ("a", 11, "ALREADY_EXISTS"),
        ("b", 11, "ALREADY_EXISTS"),
        ("c", 11, "OK"),
    ]
    assert refused(arbiter.check_primary, 1, "", 10)[0] == "PERMISSION_DENIED"
    arbiter.check_primary(1, "", 11)


def test_no_primary_after_it_left_until_an_id_as_high_comes() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    arbiter.update("b", 1, "", 9)
    assert brief(arbiter.disconnect("a")) == [("b", 10, "NOT_FOUND")]
    assert refused(arbiter.check_primary, 1, "", 9)[0] == "PERMISSION_DENIED"
    # Still below the highest id ever seen.
    assert brief(arbiter.update("c", 1, "", 8)) == [("c", 10, "NOT_FOUND")]
    # Equal to it is enough: this is how a primary reconnects, and how finsy's backups take over.
    assert brief(arbiter.update("b", 1, "", 10)) == [("c", 10, "ALREADY_EXISTS"), ("b", 10, "OK")]


def test_backup_leaves_silently() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    arbiter.update("b", 1, "", 9)
    assert arbiter.disconnect("b") == []
    assert arbiter.disconnect("never seen") == []


def test_primary_may_step_down_and_all_are_told() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    arbiter.update("b", 1, "", 9)
    assert brief(arbiter.update("a", 1, "", 5)) == [("a", 10, "NOT_FOUND"), ("b", 10, "NOT_FOUND")]
    assert not arbiter.is_primary("a")


def test_primary_repeats_itself_and_all_are_told() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    arbiter.update("b", 1, "", 9)
    assert brief(arbiter.update("a", 1, "", 10)) == [("b", 10, "ALREADY_EXISTS"), ("a", 10, "OK")]


def test_equal_ids_of_two_live_clients_are_refused() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    code, message = refused(arbiter.update, "b", 1, "", 10)
    assert code == "INVALID_ARGUMENT"
    assert "election id 10 is already used" in message
    arbiter.update("b", 1, "", 9)
    assert refused(arbiter.update, "b", 1, "", 10)[0] == "INVALID_ARGUMENT"
    assert arbiter.is_primary("a")


def test_unset_election_id_never_wins_and_may_be_shared() -> None:
    arbiter = Arbiter(1)
    assert brief(arbiter.update("a", 1, "", None)) == [("a", None, "NOT_FOUND")]
    assert brief(arbiter.update("b", 1, "", None)) == [("b", None, "NOT_FOUND")]
    assert brief(arbiter.update("c", 1, "", 0)) == [
        ("a", 0, "ALREADY_EXISTS"),
        ("b", 0, "ALREADY_EXISTS"),
        ("c", 0, "OK"),
    ]
    assert refused(arbiter.check_primary, 1, "", None)[0] == "PERMISSION_DENIED"


def test_election_ids_have_128_bits() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", (1 << 64) - 1)
    assert brief(arbiter.update("b", 1, "", 1 << 64))[-1] == ("b", 1 << 64, "OK")


def test_roles_are_independent() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    assert brief(arbiter.update("b", 1, "qos", 1)) == [("b", 1, "OK")]
    assert brief(arbiter.update("c", 1, "qos", 10)) == [("b", 10, "ALREADY_EXISTS"), ("c", 10, "OK")]
    arbiter.check_primary(1, "", 10)
    arbiter.check_primary(1, "qos", 10)
    assert refused(arbiter.check_primary, 1, "qos", 1)[0] == "PERMISSION_DENIED"
    assert refused(arbiter.check_primary, 1, "routing", 1) == (
        "NOT_FOUND",
        "role 'routing': no client has ever opened a stream for it",
    )
    assert set(arbiter.primaries()) == {"a", "c"}


def test_wrong_device() -> None:
    arbiter = Arbiter(1)
    assert refused(arbiter.update, "a", 2, "", 1)[0] == "NOT_FOUND"
    assert refused(arbiter.check_primary, 2, "", 1)[0] == "NOT_FOUND"


def test_stream_keeps_its_device_and_role() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "", 10)
    assert refused(arbiter.update, "a", 2, "", 10)[0] == "FAILED_PRECONDITION"
    assert refused(arbiter.update, "a", 1, "qos", 10)[0] == "FAILED_PRECONDITION"


def test_too_many_streams() -> None:
    arbiter = Arbiter(1, max_streams_per_role=2)
    arbiter.update("a", 1, "", 1)
    arbiter.update("b", 1, "", 2)
    assert refused(arbiter.update, "c", 1, "", 3)[0] == "RESOURCE_EXHAUSTED"
    arbiter.update("c", 1, "qos", 3)


def test_writes_before_any_stream() -> None:
    assert refused(Arbiter(1).check_primary, 1, "", 1)[0] == "PERMISSION_DENIED"


def test_role_config_is_that_of_the_last_primary() -> None:
    arbiter = Arbiter(1)
    arbiter.update("a", 1, "qos", 10, b"one")
    assert arbiter.update("b", 1, "qos", 9, b"two")[0].role_config == b"one"
    assert arbiter.update("b", 1, "qos", 11, b"two")[0].role_config == b"two"
    assert arbiter.config_of("qos") == b"two"
