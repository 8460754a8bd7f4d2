"""CEE's control and feature machines against tables written out by hand, and two of them talking."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dcb.cee.machine import NO_ERROR, CeeMachine, ErrorFlag, FeatureSettings
from dcb.cee.tlv import AppFeature, CeeProblem, CeeTlv, Control, Feature, Header, PfcFeature, PriorityGroups, SubTlv
from dcb.lldp.tlv import RawTlv, TlvError

PFC = SubTlv.PFC
MINE, THEIRS = PfcFeature(0b1000), PfcFeature(0b1_0000)


def settings(pfc: FeatureSettings | None = None) -> dict[SubTlv, FeatureSettings]:
    return {
        SubTlv.PRIORITY_GROUP: FeatureSettings(PriorityGroups()),
        PFC: pfc or FeatureSettings(MINE),
        SubTlv.APPLICATION: FeatureSettings(AppFeature()),
    }


def peer(config: PfcFeature | None, header: Header | None = None, seq: int = 1, ack: int = 1) -> CeeTlv:
    features = () if config is None else (Feature(header or Header(), config),)
    return CeeTlv(Control(seq, ack), features)


E = ErrorFlag
TABLE = [
    # enabled here, there; willing here, there; same configuration; error there -> OperMode, oper, error, flags
    (True, True, True, False, False, False, True, THEIRS, False, NO_ERROR),
    (True, True, True, False, False, True, False, MINE, False, E.PEER),
    (True, True, True, False, True, False, True, MINE, False, NO_ERROR),
    (True, True, False, True, False, False, True, MINE, False, NO_ERROR),
    (True, True, False, True, False, True, False, MINE, False, E.PEER),
    (True, True, False, False, True, False, True, MINE, False, NO_ERROR),
    (True, True, False, False, True, True, False, MINE, False, E.PEER),
    (True, True, False, False, False, False, False, MINE, True, E.MISMATCH),
    (True, True, False, False, False, True, False, MINE, True, E.MISMATCH | E.PEER),
    (True, True, True, True, True, False, True, MINE, False, NO_ERROR),
    (True, True, True, True, False, False, False, MINE, True, E.MISMATCH),
    *[
        (here, there, willing, theirs, same, False, False, MINE, False, NO_ERROR)
        for here, there in ((False, True), (True, False), (False, False))
        for willing in (False, True)
        for theirs in (False, True)
        for same in (False, True)
    ],
]


@pytest.mark.parametrize(
    ("here", "there", "willing", "theirs", "same", "peer_error", "mode", "oper", "error", "flags"), TABLE
)
def test_feature(
    here: bool, there: bool, willing: bool, theirs: bool, same: bool, peer_error: bool,
    mode: bool, oper: PfcFeature, error: bool, flags: ErrorFlag,
) -> None:  # fmt: skip
    machine = CeeMachine(settings(FeatureSettings(MINE, here, willing)))
    machine.receive(peer(MINE if same else THEIRS, Header(there, theirs, peer_error)))
    status = machine.features[PFC]
    assert (status.oper_mode, status.oper, status.error, status.flags) == (mode, oper, error, flags)
    announced = machine.tlv().feature(PFC)
    assert announced == Feature(Header(here, willing, error), MINE)  # what it wants, whatever it runs


def test_before_a_peer_nothing_runs() -> None:
    machine = CeeMachine(settings())
    status = machine.features[PFC]
    assert (status.oper_mode, status.oper, status.flags, status.syncd) == (False, MINE, NO_ERROR, False)
    assert machine.tlv().control == Control(1, 0)


def test_it_waits_for_its_acknowledgement() -> None:
    machine = CeeMachine(settings(FeatureSettings(MINE, willing=True)))
    machine.receive(peer(THEIRS, seq=9, ack=0))
    status = machine.features[PFC]
    assert (status.oper_mode, status.why) == (False, "waits for the peer to acknowledge SeqNo 1 (it has 0)")
    assert machine.tlv().control == Control(1, 9)  # theirs is acknowledged at once
    machine.receive(peer(THEIRS, seq=9, ack=1))
    assert (status.oper_mode, status.oper, status.syncd) == (True, THEIRS, True)


def test_a_change_counts_up_and_keeps_what_runs_until_acknowledged() -> None:
    machine = CeeMachine(settings())
    machine.receive(peer(MINE))
    other = PfcFeature(0b0010)
    machine.set_local(settings(FeatureSettings(other)))
    status = machine.features[PFC]
    assert machine.tlv().control.seq_no == 2
    assert (status.oper_mode, status.oper, status.syncd) == (True, MINE, False)
    machine.receive(peer(MINE, ack=1))
    assert status.oper == MINE
    machine.receive(peer(other, seq=2, ack=2))
    assert (status.oper_mode, status.oper) == (True, other)


def test_a_change_while_one_is_unacknowledged_waits() -> None:
    machine = CeeMachine(settings())
    machine.receive(peer(MINE))
    for enable in (1, 2, 4):
        machine.set_local(settings(FeatureSettings(PfcFeature(enable))))
    assert machine.tlv().control.seq_no == 2
    assert machine.features[PFC].settings.config == PfcFeature(1)
    machine.receive(peer(MINE, ack=2))
    assert machine.tlv().control.seq_no == 3
    assert machine.features[PFC].settings.config == PfcFeature(4)  # the one between was never said


def test_no_tlv() -> None:
    machine = CeeMachine(settings())
    machine.receive(peer(MINE))
    machine.receive(peer(None))
    status = machine.features[PFC]
    assert (status.oper_mode, status.oper, status.error, status.flags) == (False, MINE, True, E.NO_TLV)
    machine.receive(peer(MINE))
    assert (status.oper_mode, status.error, status.flags) == (True, False, NO_ERROR)


def test_peer_gone_begins_anew() -> None:
    machine = CeeMachine(settings())
    machine.receive(peer(MINE, seq=7))
    machine.set_local(settings(FeatureSettings(THEIRS)))
    machine.receive(None)
    status = machine.features[PFC]
    assert (status.oper_mode, status.oper, status.error, status.flags) == (False, THEIRS, True, E.NO_TLV)
    assert machine.tlv().control == Control(1, 0)
    machine.receive(None)
    assert machine.tlv().control == Control(1, 0)


def test_multi_peer_and_multi_tlv() -> None:
    machine = CeeMachine(settings())
    machine.receive(peer(MINE))
    machine.receive(peer(MINE, seq=2), multi_peer=True)
    status = machine.features[PFC]
    assert (status.oper_mode, status.error, status.flags) == (False, True, E.MULTI_PEER)
    assert machine.tlv().control.ack_no == 1  # none of them is acknowledged
    machine.receive(peer(MINE), multi_tlv=True)
    assert (status.oper_mode, status.error, status.flags) == (False, True, E.MULTI_TLV)
    machine.receive(replace(peer(MINE), duplicates=frozenset({PFC})))
    assert status.flags is E.MULTI_TLV
    machine.receive(peer(MINE))
    assert (status.oper_mode, status.flags) == (True, NO_ERROR)


def test_what_this_end_cannot_run_is_cfg() -> None:
    machine = CeeMachine(settings(FeatureSettings(PfcFeature(1, num_tcs=1), willing=True)))
    machine.receive(peer(PfcFeature(0b11)))
    status = machine.features[PFC]
    assert (status.oper_mode, status.error, status.flags) == (False, True, E.CFG)
    assert status.why == "the peer enables PFC on 2 priorities, this end can on 1"


def test_groups_beyond_this_end_are_cfg() -> None:
    local = {**settings(), SubTlv.PRIORITY_GROUP: FeatureSettings(PriorityGroups(num_tcs=2), willing=True)}
    machine = CeeMachine(local)
    theirs = PriorityGroups((0, 1, 2, 0, 0, 0, 0, 0), (50, 25, 25, 0, 0, 0, 0, 0))
    machine.receive(CeeTlv(Control(1, 1), (Feature(Header(), theirs),)))
    assert machine.features[SubTlv.PRIORITY_GROUP].flags is E.CFG


def test_a_feature_that_is_not_advertised_runs_as_configured() -> None:
    machine = CeeMachine(settings(FeatureSettings(MINE, advertise=False)))
    machine.receive(peer(THEIRS))
    status = machine.features[PFC]
    assert (status.oper_mode, status.oper, status.flags) == (True, MINE, NO_ERROR)
    assert machine.tlv().feature(PFC) is None


def test_a_bad_sub_tlv_leaves_the_last_good_one_in_force() -> None:
    machine = CeeMachine(settings(FeatureSettings(MINE, willing=True)))
    machine.receive(peer(THEIRS))
    problem = CeeProblem(RawTlv(PFC, b""), TlvError("CEE PFC", "length", 0, "must be at least 4"))
    machine.receive(replace(peer(None), problems=(problem,)))
    status = machine.features[PFC]
    assert (status.oper_mode, status.oper) == (True, THEIRS)


def test_versions_above_0_are_waited_for() -> None:
    machine = CeeMachine(settings())
    machine.receive(CeeTlv(Control(1, 1, oper_version=1, max_version=1), ()))
    assert machine.features[PFC].why == "waits for the peer to come down from version 1 to 0"
    machine.receive(peer(MINE, Header(oper_version=2)))
    assert machine.features[PFC].oper_mode is False
    machine.receive(peer(MINE))
    assert machine.features[PFC].oper_mode is True


@pytest.mark.parametrize("first_willing", [True, False])
def test_two_machines(first_willing: bool) -> None:
    """Three messages each way settle it, whatever the order; then both are silent."""
    a = CeeMachine(settings(FeatureSettings(MINE, willing=first_willing)))
    b = CeeMachine(settings(FeatureSettings(THEIRS, willing=not first_willing)))
    said = {0: None, 1: None}
    messages = 0
    while True:
        before = dict(said)
        for n, (one, other) in enumerate(((a, b), (b, a))):
            if one.tlv() != said[n]:
                said[n] = one.tlv()
                other.receive(one.tlv())
                messages += 1
        if said == before:
            break
    winner = THEIRS if first_willing else MINE
    assert a.features[PFC].oper == b.features[PFC].oper == winner
    assert a.features[PFC].oper_mode
    assert b.features[PFC].oper_mode
    assert messages <= 6
