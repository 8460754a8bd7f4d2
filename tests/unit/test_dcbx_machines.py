"""The two state machines of 802.1Q 38.4, exhaustively, against tables written out by hand."""

from __future__ import annotations

import pytest
from dcbx_net import HIGH, LOW

from dcb.dcbx.machines import AsymmetricMachine, State, SymmetricMachine, TieBreak

INIT, RX = State.INIT, State.RX_RECOMMEND

ASYMMETRIC = [
    # willing, remote, state, OperParam
    (False, None, INIT, "local"),
    (False, "remote", INIT, "local"),
    (True, None, INIT, "local"),
    (True, "remote", RX, "remote"),
]


@pytest.mark.parametrize(("willing", "remote", "state", "oper"), ASYMMETRIC)
@pytest.mark.parametrize("start", ASYMMETRIC)
def test_asymmetric_from_every_state_to_every_state(
    start: tuple[bool, str | None, State, str], willing: bool, remote: str | None, state: State, oper: str
) -> None:
    machine = AsymmetricMachine("local", start[0], start[1])
    machine.run()
    machine.local_willing, machine.remote_param = willing, remote
    machine.run()
    assert (machine.state, machine.oper_param) == (state, oper)


SYMMETRIC = [
    # local willing, remote: None or its willing, local MAC is the lower one, state
    (False, None, True, INIT),
    (False, None, False, INIT),
    (False, False, True, INIT),
    (False, False, False, INIT),
    (False, True, True, INIT),
    (False, True, False, INIT),
    (True, None, True, INIT),
    (True, None, False, INIT),
    (True, False, True, RX),
    (True, False, False, RX),
    (True, True, True, INIT),
    (True, True, False, RX),
]


@pytest.mark.parametrize(("willing", "remote_willing", "lower", "state"), SYMMETRIC)
@pytest.mark.parametrize("start", SYMMETRIC)
def test_symmetric_from_every_state_to_every_state(
    start: tuple[bool, bool | None, bool, State], willing: bool, remote_willing: bool | None, lower: bool, state: State
) -> None:
    machine = SymmetricMachine("local", False, b"")
    for local_willing, theirs, local_lower in (start[:3], (willing, remote_willing, lower)):
        machine.local_willing = local_willing
        machine.remote_param = None if theirs is None else "remote"
        machine.remote_willing = bool(theirs)
        machine.local_mac, machine.remote_mac = (LOW, HIGH) if local_lower else (HIGH, LOW)
        machine.run()
    assert machine.state is state
    assert machine.oper_param == ("remote" if state is RX else "local")


@pytest.mark.parametrize(("willing", "remote_willing", "lower", "state"), SYMMETRIC)
def test_higher_mac_differs_in_the_tie_only(
    willing: bool, remote_willing: bool | None, lower: bool, state: State
) -> None:
    machine = SymmetricMachine("local", willing, LOW if lower else HIGH, TieBreak.HIGHER_MAC)
    machine.remote_param = None if remote_willing is None else "remote"
    machine.remote_willing, machine.remote_mac = bool(remote_willing), HIGH if lower else LOW
    machine.run()
    tie = willing and remote_willing
    assert machine.state is ((RX if state is INIT else INIT) if tie else state)


@pytest.mark.parametrize("mine", list(TieBreak))
@pytest.mark.parametrize("theirs", list(TieBreak))
def test_two_willing_ends_agree_exactly_if_they_break_the_tie_alike(mine: TieBreak, theirs: TieBreak) -> None:
    """Alike: one keeps its own, the other takes it. Unlike: both keep their own, or each takes the other's."""
    low = SymmetricMachine("low's", True, LOW, mine, "high's", True, HIGH)
    high = SymmetricMachine("high's", True, HIGH, theirs, "low's", True, LOW)
    low.run()
    high.run()
    assert (low.oper_param == high.oper_param) is (mine is theirs)
    if mine is theirs is TieBreak.LOWER_MAC:
        assert low.oper_param == high.oper_param == "low's"


def test_the_mac_addresses_are_compared_as_numbers() -> None:
    machine = SymmetricMachine("local", True, bytes.fromhex("0a0000000000"), remote_mac=bytes.fromhex("09ffffffffff"))
    assert not machine.local_wins_tie
    machine.local_mac = machine.remote_mac
    assert machine.local_wins_tie  # a looped port keeps its own


@pytest.mark.parametrize(
    ("willing", "remote", "remote_willing", "local", "why"),
    [
        (True, None, False, LOW, "no Configuration received"),
        (False, "r", True, LOW, "not willing"),
        (True, "r", False, LOW, "willing, and the peer is not"),
        (True, "r", True, LOW, "both willing, this end has the lower MAC address"),
        (True, "r", True, HIGH, "both willing, the peer has the lower MAC address"),
    ],
)
def test_why(willing: bool, remote: str | None, remote_willing: bool, local: bytes, why: str) -> None:
    other = HIGH if local is LOW else LOW
    machine = SymmetricMachine(
        "l", willing, local, remote_param=remote, remote_willing=remote_willing, remote_mac=other
    )
    machine.run()
    assert machine.why == why
