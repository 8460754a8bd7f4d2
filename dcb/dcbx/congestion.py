"""Congestion notification domains of 802.1Qau over a link: the defence of each priority, and what is announced of it.

Names of the states are those that are published (IEEE8021-CN-MIB's defence modes, Linux' dcbnl_cndd_states). The rules
by which a port moves between them are as we understand them; the text of the standard was not at hand (docs/qcn.md):

    edge             the peer does not say that the priority is a congestion notification priority value (CNPV)
    interior         it says so: what it sends needs no remapping any more, and this port says that it is ready
    interior-ready   it says that it is ready too: CN-TAGs may be sent to it

A pure function of what both ends say: sans-IO, nothing is kept.
"""

from __future__ import annotations

from enum import Enum

from dcb.dcbx.tlv import CongestionNotification


class Defence(Enum):
    """State of one priority on one port."""

    DISABLED = "disabled"
    """No CNPV here."""
    EDGE = "edge"
    INTERIOR = "interior"
    INTERIOR_READY = "interior-ready"


def announced(own: CongestionNotification, said: CongestionNotification | None) -> CongestionNotification:
    """What a port sends: its CNPVs, and of those ready that it can be and whose peer has them as CNPVs too.

    own.ready: priorities that this end can take CN-TAGs of. said: the one peer's TLV, None where there is none.
    """
    return CongestionNotification(own.cnpv, own.cnpv & own.ready & (said.cnpv if said is not None else 0))


def defences(own: CongestionNotification | None, said: CongestionNotification | None) -> tuple[Defence, ...]:
    """State of each priority, 0..7. own None: the port takes no part."""
    cnpv, theirs, ready = (own.cnpv if own else 0), (said.cnpv if said else 0), (said.ready if said else 0)

    def of(priority: int) -> Defence:
        if not cnpv >> priority & 1:
            return Defence.DISABLED
        if not theirs >> priority & 1:
            return Defence.EDGE
        return Defence.INTERIOR_READY if ready >> priority & 1 else Defence.INTERIOR

    return tuple(of(priority) for priority in range(8))
