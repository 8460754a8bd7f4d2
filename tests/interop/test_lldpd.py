"""Debian's lldpd and our DCBX port. It has no DCBX, but reads LLDP by its own lights and keeps what it does not know,
and it sends any TLV that it is told to: a decoder and an encoder that are not ours.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import pytest
from links import LOW_MAC, Link, ip
from lldpd import Lldpd
from peer import Peer

from dcb.dcbx.port import TlvRejected
from dcb.dcbx.settings import DcbxSettings
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector
from dcb.lldp.receive import NeighborRemoved
from dcb.lldp.tlv import ManagementAddress
from dcb.lldp.transmit import LldpTimers

pytestmark = [pytest.mark.mininet, pytest.mark.needs_lldpd]

TABLE = EtsTable.build([0, 0, 0, 1, 0, 0, 2, 0], [40, 60, 0, 0, 0, 0, 0, 0], [2, 2, 0, 0, 0, 0, 0, 0])
SWITCH = DcbxSettings.switch(TABLE, 1 << 3, (AppEntry(Selector.UDP, 4791, priority=3),))
ADDRESSES = (
    ManagementAddress(1, bytes([10, 0, 0, 1])),
    ManagementAddress(2, bytes.fromhex("fd") + bytes(14) + b"\x01"),
)


def values(elements: list[dict[str, Any]]) -> list[str]:
    """The values of lldpcli's list of elements."""
    return [element["value"] for element in elements]


def test_it_sees_us_and_our_tlvs(link: Link, stack: ExitStack) -> None:
    lldpd = stack.enter_context(Lldpd(link.right))
    peer = stack.enter_context(Peer(link.left, SWITCH, management_addresses=ADDRESSES))
    (seen,) = peer.until(lldpd.neighbours, "lldpd to see us")
    (chassis,), (port,) = seen["chassis"], seen["port"]
    assert chassis["id"] == [{"type": "mac", "value": LOW_MAC}]
    assert values(chassis["name"]) == ["dcblab"]
    assert values(chassis["descr"]) == ["dcblab interoperability test"]
    assert values(chassis["mgmt-ip"]) == ["10.0.0.1", "fd00::1"]
    assert port["id"] == [{"type": "ifname", "value": "left"}]
    assert values(port["descr"]) == ["to the other end"]
    assert values(port["ttl"]) == ["121"]
    tlvs = seen["unknown-tlvs"][0]["unknown-tlv"]
    assert {tlv["oui"] for tlv in tlvs} == {"00,80,C2"}
    unknown = {tlv["subtype"]: bytes.fromhex(tlv["value"].replace(",", "")) for tlv in tlvs}
    # By the layout of 802.1Q D.2.8 to D.2.11: priority 3 in class 1, 6 in 2; 40 and 60 %; ETS, ETS, strict
    table = bytes([0x00, 0x01, 0x00, 0x20, 40, 60, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0])
    assert unknown == {
        "9": b"\x00" + table,
        "10": b"\x00" + table,
        "11": bytes([0x08, 0x08]),
        "12": bytes([0x00, 3 << 5 | 3]) + (4791).to_bytes(2),
    }


def test_it_sees_us_go(link: Link, stack: ExitStack) -> None:
    lldpd = stack.enter_context(Lldpd(link.right))
    peer = stack.enter_context(Peer(link.left, SWITCH))
    peer.until(lldpd.neighbours, "lldpd to see us")
    peer.shut_down()
    peer.until(lambda: not lldpd.neighbours(), "lldpd to forget us", 3)


def test_it_forgets_us_when_we_fall_silent(link: Link, stack: ExitStack) -> None:
    lldpd = stack.enter_context(Lldpd(link.right))
    peer = stack.enter_context(Peer(link.left, SWITCH, LldpTimers(msg_tx_interval_s=1, msg_tx_hold=1)))
    (seen,) = peer.until(lldpd.neighbours, "lldpd to see us")
    assert values(seen["port"][0]["ttl"]) == ["2"]
    peer.port.lldp.set_port_enabled(False, peer.now_ns())
    peer.until(lambda: not lldpd.neighbours(), "lldpd to let our TTL run out", 6)


def test_we_see_it_with_two_management_addresses(link: Link, stack: ExitStack) -> None:
    ip("-n", link.right.namespace, "addr", "add", "10.9.9.1/24", "dev", link.right.name)
    link.right.run("sysctl", "-qw", f"net.ipv6.conf.{link.right.name}.disable_ipv6=0")
    ip("-n", link.right.namespace, "addr", "add", "fd09::1/64", "dev", link.right.name, "nodad")
    lldpd = stack.enter_context(Lldpd(link.right))
    lldpd.cli("configure", "system", "ip", "management", "pattern", "10.9.9.1,fd09::1")
    peer = stack.enter_context(Peer(link.left, SWITCH))
    lldpd.cli("update")  # it would send again in 30 s: it has no fast start

    def addresses() -> list[str]:
        remote = peer.port.peer
        views = remote.neighbor.pdu.views if remote is not None else ()
        return [view.text for view in views if isinstance(view, ManagementAddress)]

    peer.until(lambda: addresses() == ["10.9.9.1", "fd09::1"], "lldpd's two addresses")
    assert peer.port.lldp.counters.stats_tlvs_discarded_total == 0
    assert peer.port.peer is not None
    assert peer.port.peer.modes == ()  # no DCBX
    assert peer.port.operational.pfc_enable == 1 << 3
    assert peer.port.operational.pfc_agreed == 0


def announce(lldpd: Lldpd, *tlvs: tuple[str, int, bytes]) -> None:
    """Makes lldpd send organizationally specific TLVs: OUI, subtype, what follows."""
    for oui, subtype, info in tlvs:
        octets = ",".join(f"{octet:02x}" for octet in info)
        lldpd.cli("configure", "lldp", "custom-tlv", "add", "oui", oui, "subtype", str(subtype), "oui-info", octets)
    lldpd.cli("update")


DOT1 = "00,80,c2"
RECOMMENDED = bytes([0, 0x00, 0x01, 0x00, 0x20, 40, 60, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0])


def test_we_take_dcbx_that_it_was_told_to_send(link: Link, stack: ExitStack) -> None:
    lldpd = stack.enter_context(Lldpd(link.right))
    peer = stack.enter_context(Peer(link.left, DcbxSettings.host()))
    application = bytes([0x00, 3 << 5 | 3]) + (4791).to_bytes(2)
    announce(lldpd, (DOT1, 0x0A, RECOMMENDED), (DOT1, 0x0B, bytes([0x08, 1 << 3])), (DOT1, 0x0C, application))
    peer.until(lambda: peer.port.operational.app, "the application")
    assert peer.port.operational.ets == TABLE
    assert peer.port.operational.pfc_enable == peer.port.operational.pfc_agreed == 1 << 3
    assert peer.port.operational.app == (AppEntry(Selector.UDP, 4791, priority=3),)


def test_we_refuse_one_bad_tlv_alone_and_keep_unknown_ones(link: Link, stack: ExitStack) -> None:
    wrong = bytearray(RECOMMENDED)
    wrong[5] = 30  # 30 and 60 %: 90 in all
    lldpd = stack.enter_context(Lldpd(link.right))
    peer = stack.enter_context(Peer(link.left, DcbxSettings.host()))
    pfc = (DOT1, 0x0B, bytes([0x08, 1 << 3]))
    announce(lldpd, (DOT1, 0x0A, bytes(wrong)), pfc, ("33,44,55", 0xFE, b"\x01\x02\x03"))
    peer.until(lambda: peer.port.operational.pfc_enable == 1 << 3, "PFC")
    assert peer.port.operational.ets == EtsTable()
    assert peer.port.last_error is not None
    assert re.search(r"ETS Recommendation.*90.*100", peer.port.last_error)
    rejected = [event.rejection.octets for event in peer.events if isinstance(event, TlvRejected)]
    assert len(rejected) >= 1
    assert all(bytes(wrong) in octets for octets in rejected)
    assert peer.port.peer is not None
    kept = [tlv for tlv in peer.port.peer.neighbor.pdu.organizational if tlv.oui == bytes.fromhex("334455")]
    assert [(tlv.subtype, tlv.info) for tlv in kept] == [(0xFE, b"\x01\x02\x03")]


def test_we_see_it_go(link: Link, stack: ExitStack) -> None:
    lldpd = Lldpd(link.right)
    peer = stack.enter_context(Peer(link.left, SWITCH))
    with lldpd:
        peer.until(lambda: peer.port.peer is not None, "lldpd")
    peer.until(lambda: any(isinstance(event, NeighborRemoved) for event in peer.events), "lldpd's shutdown", 3)
    assert peer.port.remotes == {}
    assert peer.port.lldp.counters.stats_ageouts_total == 0
