"""dcb.lldp.tlv and pdu: bytes worked out by hand from 802.1AB, scapy, tshark, and any bytes at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dcbx_net import LOW, tshark, write_pcap
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.lldp import (
    LLDPDUChassisID,
    LLDPDUEndOfLLDPDU,
    LLDPDUGenericOrganisationSpecific,
    LLDPDUManagementAddress,
    LLDPDUPortDescription,
    LLDPDUPortID,
    LLDPDUSystemCapabilities,
    LLDPDUSystemDescription,
    LLDPDUSystemName,
    LLDPDUTimeToLive,
)
from scapy.layers.l2 import Ether

from dcb.lldp.agent import LldpAgent, LocalSystem
from dcb.lldp.pdu import PduError, build_frame, decode_frame, decode_pdu, is_lldp
from dcb.lldp.tlv import (
    Capability,
    ChassisId,
    ManagementAddress,
    OrganizationalTlv,
    PortId,
    RawTlv,
    SystemCapabilities,
    TimeToLive,
    TlvError,
    decode,
)

HEAD = bytes.fromhex("0207 04 020000000001 0403 05 6531 0602 0079")  # chassis ID (MAC), port ID "e1", TTL 121
FULL = LocalSystem(
    ChassisId.mac(LOW),
    PortId.interface("e1"),
    "to leaf1",
    "spine1",
    "dcblab",
    SystemCapabilities(Capability.BRIDGE | Capability.ROUTER, Capability.BRIDGE),
    (ManagementAddress(1, bytes([10, 0, 0, 1]), 2, 7), ManagementAddress(2, bytes(15) + b"\1", 2, 7, b"\x2b\x06\x01")),
)


def full_frame() -> bytes:
    agent = LldpAgent(LOW, FULL)
    agent.set_organizational([OrganizationalTlv(b"\x00\x80\xc2", 1, b"\x00\x64")], 0)
    agent.set_port_enabled(True, 0)
    (frame,) = agent.frames_to_send(0)
    return frame


def test_smallest_frame_byte_for_byte() -> None:
    agent = LldpAgent(LOW, LocalSystem(ChassisId.mac(LOW), PortId.interface("e1")))
    agent.set_port_enabled(True, 0)
    (frame,) = agent.frames_to_send(0)
    assert frame == bytes.fromhex("0180c200000e 020000000001 88cc") + HEAD + bytes(60 - 14 - len(HEAD))


def test_scapy_reads_what_is_sent() -> None:
    packet = Ether(full_frame())
    assert packet.dst == "01:80:c2:00:00:0e"
    assert (packet[LLDPDUChassisID].subtype, packet[LLDPDUChassisID].id) == (4, "02:00:00:00:00:01")
    assert (packet[LLDPDUPortID].subtype, packet[LLDPDUPortID].id) == (5, b"e1")
    assert packet[LLDPDUTimeToLive].ttl == 121
    assert packet[LLDPDUPortDescription].description == b"to leaf1"
    assert packet[LLDPDUSystemName].system_name == b"spine1"
    assert packet[LLDPDUSystemDescription].description == b"dcblab"
    capabilities = packet[LLDPDUSystemCapabilities]
    assert (capabilities.mac_bridge_available, capabilities.router_available) == (1, 1)
    assert (capabilities.mac_bridge_enabled, capabilities.router_enabled) == (1, 0)
    first = packet[LLDPDUManagementAddress]
    assert (first.management_address, first.interface_number) == (bytes([10, 0, 0, 1]), 7)
    second = packet.getlayer(LLDPDUManagementAddress, 2)
    assert (second.management_address_subtype, second.object_id) == (2, b"\x2b\x06\x01")
    assert (packet[LLDPDUGenericOrganisationSpecific].org_code, packet[LLDPDUGenericOrganisationSpecific].subtype) == (
        0x0080C2,
        1,
    )


def test_what_scapy_sends_is_read() -> None:
    packet = (
        Ether(src="02:00:00:00:00:ff", dst="01:80:c2:00:00:0e")
        / LLDPDUChassisID(subtype=7, id=b"rack 5")
        / LLDPDUPortID(subtype=3, id="02:00:00:00:00:aa")
        / LLDPDUTimeToLive(ttl=65535)
        / LLDPDUSystemName(system_name=b"h1")
        / LLDPDUManagementAddress(management_address_subtype=1, management_address=b"\x0a\x00\x00\x02")
        / LLDPDUManagementAddress(management_address_subtype=1, management_address=b"\x0a\x00\x00\x03")
        / LLDPDUGenericOrganisationSpecific(org_code=0x00120F, subtype=4, data=b"\x23\x28")
        / LLDPDUEndOfLLDPDU()
    )
    pdu = decode_frame(bytes(packet)).pdu
    assert (pdu.chassis_id.text, pdu.port_id.text, pdu.ttl.seconds) == ("rack 5", "02:00:00:00:00:aa", 65535)
    assert pdu.text(5) == "h1"
    assert [address.text for address in pdu.management_addresses] == ["10.0.0.2", "10.0.0.3"]
    assert pdu.organizational == (OrganizationalTlv(b"\x00\x12\x0f", 4, b"\x23\x28"),)
    assert pdu.problems == ()


LLDPAD = (
    "0180c200000e02aa0000000188cc02070402aa0000000104070302aa00000001060200780813496e74657266616365202020332061732076"
    "610a02766d0c394c696e757820766d20362e31382e34342d66632d7637383220233120534d5020505245454d50545f44594e414d49432040"
    "30207838365f36340e040080008010181102fe80000000000000b88dc5fffe92704d0200000003000000"
)
LLDPD = (
    "0180c200000e02aa0000000188cc02070402aa0000000104070302aa00000001060200780a02766d0c5544656269616e20474e552f4c696e"
    "75782031322028626f6f6b776f726d29204c696e757820362e31382e34342d66632d7637383220233120534d5020505245454d50545f4459"
    "4e414d4943204030207838365f36340e04009c008010181102fe80000000000000d8e197fffe06def102000000020008027661fe0900120f"
    "030100000000fe0900120f0100800000360000"
)


@pytest.mark.parametrize(
    ("octets", "capabilities", "address", "description", "organizational"),
    [
        (LLDPAD, SystemCapabilities(0x80, 0x80), "fe80::b88d:c5ff:fe92:704d", "Interface   3 as va", []),
        (LLDPD, SystemCapabilities(0x9C, 0x80), "fe80::d8e1:97ff:fe06:def1", "va", [3, 1]),
    ],
    ids=["lldpad 1.1+git20221028", "lldpd 1.0.16"],
)
def test_frames_of_real_daemons(
    octets: str, capabilities: SystemCapabilities, address: str, description: str, organizational: list[int]
) -> None:
    """As captured on a veth from Debian 12's lldpad and lldpd."""
    frame = bytes.fromhex(octets)
    pdu = decode_frame(frame).pdu
    assert (pdu.problems, pdu.unrecognized) == ((), ())
    assert pdu.encode() == frame[14:]
    assert (pdu.chassis_id.text, pdu.port_id.text, pdu.ttl.seconds) == ("02:aa:00:00:00:01", "02:aa:00:00:00:01", 120)
    assert (pdu.text(4), pdu.text(5), pdu.capabilities) == (description, "vm", capabilities)
    assert [one.text for one in pdu.management_addresses] == [address]
    assert [tlv.subtype for tlv in pdu.organizational] == organizational


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_what_is_sent(tmp_path: Path) -> None:
    write_pcap(tmp_path / "a.pcap", [full_frame()])
    fields = ["lldp.chassis.id.mac", "lldp.port.id", "lldp.time_to_live", "lldp.tlv.system.name"]
    fields += ["lldp.tlv.system.desc", "lldp.port.desc", "lldp.tlv.system_cap", "lldp.tlv.enable_system_cap"]
    fields += ["lldp.mgn.addr.ip4", "lldp.mgn.addr.ip6", "lldp.ieee.802_1.port_vlan.id"]
    arguments = [argument for name in (*fields, "_ws.malformed") for argument in ("-e", name)]
    (line,) = tshark(tmp_path / "a.pcap", "-T", "fields", "-E", "separator=;", *arguments)
    assert line == ("02:00:00:00:00:01;e1;121;spine1;dcblab;to leaf1;0x0014;0x0004;10.0.0.1;::1;100;")


def pdu_of(*tlvs: str) -> bytes:
    return HEAD + b"".join(bytes.fromhex(tlv) for tlv in tlvs) + b"\0\0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "TLV 0: End Of LLDPDU (type 0), must be Chassis ID (type 1)"),
        ("0000", "TLV 0: End Of LLDPDU (type 0), must be Chassis ID (type 1)"),
        ("0403056531 0602 0079", "TLV 0: Port ID (type 2), must be Chassis ID (type 1)"),
        ("0207 04 020000000001 0602 0079", "TLV 1: Time To Live (type 3), must be Port ID (type 2)"),
        ("0207 04 020000000001 0403 05 6531", "TLV 2: End Of LLDPDU (type 0), must be Time To Live (type 3)"),
        ("0207 04 020000000001 0403 05 6531 1403 616263", "TLV 2: Reserved type 10 (type 10), must be Time To Live"),
        ("0201 04 0403 05 6531 0602 0079", "Chassis ID TLV: length: 1, must be 2..256"),
        ("0200 0403 05 6531 0602 0079", "Chassis ID TLV: length: 0, must be 2..256"),
        ("0207 04 020000000001 0401 05 0602 0079", "Port ID TLV: length: 1, must be 2..256"),
        ("0207 04 020000000001 0403 05 6531 0601 79", "Time To Live TLV: length: 1, must be at least 2"),
        ("0207 04 0200", "Chassis ID TLV: length: 7, but only 3 bytes are left in the frame"),
        ("0207 04 020000000001 0403 05 6531 0602 0079 0a", "TLV 3: header truncated, 1 byte is left and it has 2"),
        (
            "0207 04 020000000001 0403 05 6531 0602 0079 fe19 0080c2",
            "Organizationally Specific TLV: length: 25, but only",
        ),
        ("0207 04 020000000001 0403 05 6531 0602 0079 0001 00", "End Of LLDPDU TLV: length: 1, must be 0"),
        ("0207 04 020000000001 0403 05 6531 0602 0079 0602 0079", "TLV 3: Time To Live: occurs twice, must occur once"),
        ("0207 04 020000000001 0403 05 6531 0602 0079 0207 04 020000000001", "TLV 3: Chassis ID: occurs twice"),
    ],
)
def test_what_discards_the_pdu(data: str, message: str) -> None:
    with pytest.raises(PduError) as caught:
        decode_pdu(bytes.fromhex(data))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("tlv", "message"),
    [
        ("0e03 001400", "System Capabilities TLV: length: 3, must be 4"),
        (
            "0e04 0004 0014",
            "System Capabilities TLV: enabled capabilities: 0x0014, must be among the system capabilities 0x0004",
        ),
        ("1008 05010a000001 0200", "Management Address TLV: length: 8, must be 9..167"),
        (
            "100c 01010a000001 02 00000007 00",
            "Management Address TLV: management address string length: 1, must be 2..32",
        ),
        (
            "100c 21010a000001 02 00000007 00",
            "Management Address TLV: management address string length: 33, must be 2..32",
        ),
        (
            "100c 0b010a000001 02 00000007 00",
            "Management Address TLV: management address string length: 11, leaves 0 of the 6 bytes that interface and "
            "OID length need",
        ),
        (
            "100c 05010a000001 02 00000007 03",
            "Management Address TLV: OID string length: 3, must be 0, which is what follows",
        ),
        ("fe03 0080c2", "Organizationally Specific TLV: length: 3, must be at least 4"),
    ],
)
def test_what_discards_a_tlv_alone(tlv: str, message: str) -> None:
    good = "0a02 6831"
    pdu = decode_pdu(pdu_of(tlv, good))
    assert [str(problem.error) for problem in pdu.problems] == [message]
    assert pdu.problems[0].index == 3
    assert pdu.text(5) == "h1"
    assert pdu.encode() == pdu_of(tlv, good)


def test_length_limits_of_texts() -> None:
    with pytest.raises(TlvError, match=r"System Name TLV: length: 256, must be 0..255"):
        decode(RawTlv(5, bytes(256)))
    assert decode(RawTlv(5, bytes(255))).raw() == RawTlv(5, bytes(255))  # type: ignore[union-attr]


def test_duplicates() -> None:
    """A second basic TLV is discarded alone; management addresses repeat, but not the same one."""
    mgmt1, mgmt2 = "100c 05010a000001 02 00000007 00", "100c 05010a000002 02 00000007 00"
    pdu = decode_pdu(pdu_of("0a02 6831", "0a02 6832", mgmt1, mgmt2, mgmt1))
    assert pdu.text(5) == "h1"
    assert [address.text for address in pdu.management_addresses] == ["10.0.0.1", "10.0.0.2"]
    assert [str(problem.error) for problem in pdu.problems] == [
        "System Name TLV: occurrence: duplicate, must occur at most once; the first one counts",
        "Management Address TLV: management address: 10.0.0.1, occurs twice, each must be different",
    ]


def test_reserved_and_unknown_tlvs_are_kept_byte_for_byte() -> None:
    data = pdu_of("1403 616263", "fe06 aabbcc 07 dead", "fc00")
    pdu = decode_pdu(data)
    assert pdu.unrecognized == (RawTlv(10, b"abc"), RawTlv(126, b""))
    assert pdu.organizational == (OrganizationalTlv(b"\xaa\xbb\xcc", 7, b"\xde\xad"),)
    assert pdu.encode() == data


def test_what_follows_the_end_is_padding_and_the_end_may_be_absent() -> None:
    assert decode_pdu(HEAD + b"\0\0" + b"\xff" * 9).encode() == HEAD + b"\0\0"
    bare = decode_pdu(HEAD)
    assert (bare.ended, bare.encode()) == (False, HEAD)


def test_ttl_bytes_beyond_two_are_ignored_and_kept() -> None:
    data = bytes.fromhex("0207 04 020000000001 0403 05 6531 0604 0079 beef 0000")
    assert decode_pdu(data).ttl == TimeToLive(121, b"\xbe\xef")
    assert decode_pdu(data).encode() == data


def test_frames_tagged_and_others() -> None:
    plain = build_frame(LOW, HEAD + b"\0\0")
    tagged = plain[:12] + bytes.fromhex("8100e009") + plain[12:]
    assert decode_frame(tagged).pdu == decode_frame(plain).pdu
    assert not is_lldp(plain[:12] + b"\x08\x00" + plain[14:])
    with pytest.raises(PduError, match="not an LLDP frame"):
        decode_frame(b"")
    with pytest.raises(ValueError, match="source: 5 bytes, a MAC address has 6"):
        build_frame(LOW[:5], HEAD)
    with pytest.raises(ValueError, match="LLDPDU: 1501 bytes, must fit into 1500"):
        build_frame(LOW, bytes(1501))


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for candidate in (data, HEAD + data):
        try:
            pdu = decode_pdu(candidate)
        except PduError:
            continue
        again = pdu.encode()
        assert candidate.startswith(again)
        assert decode_pdu(again) == pdu


@given(st.integers(0, 127), st.binary(max_size=511))
def test_any_tlv(tlv_type: int, value: bytes) -> None:
    raw = RawTlv(tlv_type, value)
    try:
        view = decode(raw)
    except TlvError:
        return
    assert (view if isinstance(view, RawTlv) else view.raw()) == raw
