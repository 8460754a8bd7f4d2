"""dcb.dcbx.tlv: bytes worked out by hand from 802.1Q annex D, tshark's view, every rule with its message, any bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dcbx_net import LOW, ROCE, STORAGE, said, tshark, write_pcap
from hypothesis import given
from hypothesis import strategies as st

from dcb.dcbx.tlv import (
    AppEntry,
    ApplicationPriority,
    ApplicationVlan,
    AppVlanEntry,
    CongestionNotification,
    EtsConfiguration,
    EtsRecommendation,
    EtsTable,
    PfcConfiguration,
    Subtype,
    decode,
    decode_all,
    is_dcbx,
)
from dcb.lldp.tlv import OrganizationalTlv, TlvError

TABLES = "00010020" + "283c000000000000" + "0202000000000000"  # priority 3 -> 1, 6 -> 2; 40 % and 60 %; ETS, ETS

VECTORS = [
    (EtsConfiguration(STORAGE, willing=True, max_tcs=3), "fe19 0080c2 09 83" + TABLES),
    (EtsConfiguration(STORAGE, cbs=True, max_tcs=8), "fe19 0080c2 09 40" + TABLES),
    (EtsConfiguration(STORAGE, max_tcs=8, reserved=7), "fe19 0080c2 09 38" + TABLES),
    (EtsRecommendation(STORAGE), "fe19 0080c2 0a 00" + TABLES),
    (PfcConfiguration(0b00001000, willing=True, cap=8), "fe06 0080c2 0b 88 08"),
    (PfcConfiguration(0b10000001, mbc=True, cap=2, reserved=3), "fe06 0080c2 0b 72 81"),
    (PfcConfiguration(0, cap=0), "fe06 0080c2 0b 00 00"),
    (ApplicationPriority(()), "fe05 0080c2 0c 00"),
    (ApplicationPriority((ROCE,)), "fe08 0080c2 0c 00 63 12b7"),
    (
        ApplicationPriority((AppEntry(1, 0x8906, 3), AppEntry(5, 26, 7), AppEntry(6, 1, 0, 3)), 0x80),
        "fe0e 0080c2 0c 80 61 8906 e5 001a 1e 0001",
    ),
    (ApplicationVlan(()), "fe04 0080c2 10"),
    (
        ApplicationVlan((AppVlanEntry(100, 1, 0x8906), AppVlanEntry(4094, 3, 4791, 1))),
        "fe0c 0080c2 10 0641 8906 ffeb 12b7",
    ),
    (CongestionNotification(0x28, 0x08), "fe06 0080c2 08 28 08"),
]


@pytest.mark.parametrize(("tlv", "octets"), VECTORS)
def test_bytes(tlv: PfcConfiguration, octets: str) -> None:
    encoded = tlv.encode()
    assert encoded.raw().encode() == bytes.fromhex(octets)
    assert is_dcbx(encoded)
    assert decode(encoded) == tlv


def test_max_tcs_0_is_8() -> None:
    ets = decode(OrganizationalTlv(b"\x00\x80\xc2", 9, bytes.fromhex("00" + TABLES)))
    assert isinstance(ets, EtsConfiguration)
    assert ets.max_tcs == 8


def ets(head: str = "00", prio: str = "00000000", bw: str = "64" + "00" * 7, tsa: str = "02" + "00" * 7) -> bytes:
    return bytes.fromhex(head + prio + bw + tsa)


RULES = [
    # length and truncation
    (9, b"", "ETS Configuration TLV: length: 4, must be 25"),
    (9, ets()[:-1], "ETS Configuration TLV: length: 24, must be 25"),
    (9, ets() + b"\0", "ETS Configuration TLV: length: 26, must be 25"),
    (10, ets()[:-1], "ETS Recommendation TLV: length: 24, must be 25"),
    (11, b"\x08", "PFC Configuration TLV: length: 5, must be 6"),
    (11, b"\x08\x08\x00", "PFC Configuration TLV: length: 7, must be 6"),
    (12, b"", "Application Priority TLV: length: 4, must be 5 + 3n"),
    (12, bytes(2), "Application Priority TLV: length: 6, must be 5 + 3n"),
    (12, bytes(3), "Application Priority TLV: length: 7, must be 5 + 3n"),
    (16, bytes(1), "Application VLAN TLV: length: 5, must be 4 + 4n"),
    (16, bytes(7), "Application VLAN TLV: length: 11, must be 4 + 4n"),
    (8, bytes(1), "Congestion Notification TLV: length: 5, must be 6"),
    # traffic classes
    (
        9,
        ets("03", "00000003"),
        "ETS Configuration TLV: traffic class of priority 7: 3, must be 0..2: 3 classes",
    ),
    (
        9,
        ets("00", "80000000"),
        "ETS Configuration TLV: traffic class of priority 0: 8, must be 0..7: 8 classes",
    ),
    (
        10,
        ets("00", "0f000000"),
        "ETS Recommendation TLV: traffic class of priority 1: 15, must be 0..7: 8 classes",
    ),
    # bandwidth
    (9, ets(bw="6300000000000000"), "ETS Configuration TLV: bandwidth sum: 99, must be 100"),
    (9, ets(bw="3233000000000000"), "ETS Configuration TLV: bandwidth sum: 101, must be 100"),
    (9, ets(bw="5959595900000000"), "ETS Configuration TLV: bandwidth sum: 356, must be 100"),
    (10, ets(bw="5959595900000000"), "ETS Recommendation TLV: bandwidth sum: 356, must be 100"),
    (9, ets(bw="0000000000000000"), "ETS Configuration TLV: bandwidth sum: 0, must be 100"),
    (
        9,
        ets(bw="65ff000000000000"),
        "ETS Configuration TLV: bandwidth of traffic class 0: 101, must be 0..100 per cent",
    ),
    (
        9,
        ets(bw="3200000000000000", tsa="00" * 8),
        "ETS Configuration TLV: bandwidth sum: 50, must be 100, or 0 as no traffic class is ETS",
    ),
    # TSA
    (
        9,
        ets(tsa="0203000000000000"),
        "ETS Configuration TLV: TSA of traffic class 1: 3, must be 0 (strict), 1 (CBS), 2 (ETS) or 255 (vendor)",
    ),
    (
        10,
        ets(tsa="02000000000000fe"),
        "ETS Recommendation TLV: TSA of traffic class 7: 254, must be 0 (strict), 1 (CBS), 2 (ETS) or 255 (vendor)",
    ),
    # PFC
    (11, b"\x09\x08", "PFC Configuration TLV: PFC cap: 9, must be 0..8"),
    (
        11,
        b"\x02\x07",
        "PFC Configuration TLV: PFC enable: 0x07, enables 3 priorities (0,1,2), must be at most PFC cap 2",
    ),
    (11, b"\x00\x80", "PFC Configuration TLV: PFC enable: 0x80, enables 1 priorities (7), must be at most PFC cap 0"),
    # applications
    (
        12,
        bytes.fromhex("00 65 0040"),
        "Application Priority TLV: protocol ID of selector 5 (DSCP): 64, must be 0..63",
    ),
    (16, bytes.fromhex("fff1 8906"), "Application VLAN TLV: VID: 4095, must be 0..4094"),
    (16, bytes.fromhex("0015 0040"), "Application VLAN TLV: protocol ID of selector 5 (DSCP): 64, must be 0..63"),
]


@pytest.mark.parametrize(("subtype", "info", "message"), RULES)
def test_every_rule_refuses_one_tlv_with_its_reason_and_the_others_are_taken(
    subtype: int, info: bytes, message: str
) -> None:
    bad = OrganizationalTlv(b"\x00\x80\xc2", subtype, info)
    others = [tlv.encode() for tlv, _ in (VECTORS[0], VECTORS[3], VECTORS[4], VECTORS[8], VECTORS[11], VECTORS[12])]
    # PFC beside no ETS, so that its cap counts priorities.
    good = [tlv for tlv in others if tlv.subtype != subtype and not (subtype == 11 and tlv.subtype == 9)]
    found = decode_all([bad, *good])
    assert [str(problem.error) for problem in found.problems] == [message]
    assert found.problems[0].tlv.subtype == subtype
    assert list(found.encode()) == sorted(good, key=lambda tlv: tlv.subtype)
    assert found.refused(Subtype(subtype))


@pytest.mark.parametrize(
    "info",
    [
        ets(bw="00" * 8, tsa="00" * 8),  # all strict, sum 0
        ets(bw="64" + "00" * 7, tsa="00" * 8),  # all strict, sum 100
        ets(bw="3232000000000000", tsa="0200000000000000"),  # a strict class holds bandwidth while it is reconfigured
        ets(bw="00" * 8, tsa="01ff000000000000"),  # CBS and vendor specific only
        ets(bw="0064000000000000", tsa="0202000000000000"),  # an ETS class with no bandwidth
        ets("07", "66666666"),
    ],
)
def test_what_the_rules_let_pass(info: bytes) -> None:
    for subtype in (9, 10):
        assert decode(OrganizationalTlv(b"\x00\x80\xc2", subtype, info)).encode().info == info


@pytest.mark.parametrize("which", range(len(VECTORS)))
def test_a_duplicate_is_refused_and_the_first_counts(which: int) -> None:
    tlv = VECTORS[which][0].encode()
    other = (
        next(v.encode() for v, _ in VECTORS if v.encode().subtype == tlv.subtype and v.encode() != tlv)
        if (tlv.subtype not in (8, 10))
        else tlv
    )
    found = decode_all([tlv, other])
    assert found.encode() == (tlv,)
    (problem,) = found.problems
    assert problem.error.rule == "must occur once in a PDU; the first counts"
    assert str(problem.error).endswith("TLV: occurrence: duplicate, must occur once in a PDU; the first counts")


def test_a_bad_first_one_makes_the_second_a_duplicate_still() -> None:
    found = decode_all([OrganizationalTlv(b"\x00\x80\xc2", 11, b"\x09\x08"), PfcConfiguration(8).encode()])
    assert found.pfc is None
    assert len(found.problems) == 2


def test_pfc_cap_counts_traffic_classes_where_ets_tells_them() -> None:
    """Three priorities in one traffic class need a cap of one."""
    shared = EtsConfiguration(EtsTable((1, 1, 1, 0, 0, 0, 0, 0)))
    pfc = PfcConfiguration(0b0111, cap=1)
    assert decode_all([shared.encode(), pfc.encode()]).pfc == pfc
    assert decode_all([pfc.encode()]).pfc is None
    apart = EtsConfiguration(EtsTable((1, 2, 1, 0, 0, 0, 0, 0)))
    (problem,) = decode_all([apart.encode(), pfc.encode()]).problems
    assert str(problem.error) == (
        "PFC Configuration TLV: PFC enable: 0x07, enables 2 traffic classes (0,1,2), must be at most PFC cap 1"
    )


def test_records_keep_the_rules_too() -> None:
    with pytest.raises(TlvError, match=r"bandwidth sum: 356, must be 100"):
        EtsTable(bandwidth=(89, 89, 89, 89, 0, 0, 0, 0), tsa=(2,) * 8)
    with pytest.raises(TlvError, match=r"max TCs: 0, must be 1..8"):
        EtsConfiguration(EtsTable(), max_tcs=0)
    with pytest.raises(TlvError, match=r"priority: 8, must be 0..7"):
        AppEntry(1, 0, 8)
    with pytest.raises(TlvError, match=r"entries: 169, must be 0..168"):
        ApplicationPriority((ROCE,) * 169)
    assert len(ApplicationPriority((ROCE,) * 168).encode().raw().value) == 509
    assert len(ApplicationVlan((AppVlanEntry(1, 3, 4791),) * 126).encode().raw().value) == 508


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_every_bit(tmp_path: Path) -> None:
    """Each vector in a frame of its own; tshark's names for what it found, and no malformed mark."""
    write_pcap(tmp_path / "a.pcap", [said(LOW, [tlv.encode()]) for tlv, _ in VECTORS])
    fields = [
        "lldp.ieee.802_1.subtype",
        "lldp.dcbx.ieee.willing",
        "lldp.dcbx.ieee.ets.cbs",
        "lldp.dcbx.ieee.ets.maxtcs",
    ]
    fields += [f"lldp.dcbx.feature.pg.pgid_prio{n}" for n in range(8)]
    fields += [f"lldp.dcbx.feature.pg.per{n}" for n in range(8)]
    fields += [f"lldp.dcbx.ieee.ets.tsa{n}" for n in range(8)]
    fields += ["lldp.dcbx.ieee.pfc.mbc", "lldp.dcbx.ieee.pfc.numtcs"]
    fields += [f"lldp.dcbx.feature.pfc.prio{n}" for n in range(8)]
    fields += ["lldp.dcbx.ieee.app.prio", "lldp.dcbx.iee.app.sf", "lldp.dcbx.feature.app.proto"]
    fields += [f"lldp.ieee.802_1qau.cnpv.prio{n}" for n in range(8)]
    fields += [f"lldp.ieee.802_1qau.ready.prio{n}" for n in range(8)]
    fields += ["_ws.malformed"]
    arguments = [argument for name in fields for argument in ("-e", name)]
    lines = tshark(tmp_path / "a.pcap", "-T", "fields", "-E", "separator=;", *arguments)
    assert len(lines) == len(VECTORS)
    for (tlv, _), line in zip(VECTORS, lines, strict=True):
        seen = {name: value for name, value in zip(fields, line.split(";"), strict=True) if value}
        assert "_ws.malformed" not in seen
        assert int(seen.pop("lldp.ieee.802_1.subtype"), 16) == tlv.encode().subtype
        assert seen == expected(tlv)


def expected(tlv: object) -> dict[str, str]:
    """What tshark should say of a TLV, by the fields of the record."""
    if isinstance(tlv, EtsConfiguration | EtsRecommendation):
        table = tlv.table
        seen = {f"lldp.dcbx.feature.pg.pgid_prio{n}": str(value) for n, value in enumerate(table.priority_tc)}
        seen |= {f"lldp.dcbx.feature.pg.per{n}": str(value) for n, value in enumerate(table.bandwidth)}
        seen |= {f"lldp.dcbx.ieee.ets.tsa{n}": str(value) for n, value in enumerate(table.tsa)}
        if isinstance(tlv, EtsConfiguration):
            seen["lldp.dcbx.ieee.willing"] = str(int(tlv.willing))
            seen["lldp.dcbx.ieee.ets.cbs"] = str(int(tlv.cbs))
            seen["lldp.dcbx.ieee.ets.maxtcs"] = str(tlv.max_tcs % 8)
        return seen
    if isinstance(tlv, PfcConfiguration):
        seen = {f"lldp.dcbx.feature.pfc.prio{n}": str(tlv.enable >> n & 1) for n in range(8)}
        seen["lldp.dcbx.ieee.willing"] = str(int(tlv.willing))
        seen["lldp.dcbx.ieee.pfc.mbc"] = str(int(tlv.mbc))
        return seen | {"lldp.dcbx.ieee.pfc.numtcs": str(tlv.cap)}
    if isinstance(tlv, ApplicationPriority) and tlv.entries:
        return {
            "lldp.dcbx.ieee.app.prio": ",".join(str(one.priority) for one in tlv.entries),
            "lldp.dcbx.iee.app.sf": ",".join(str(one.selector) for one in tlv.entries),
            "lldp.dcbx.feature.app.proto": ",".join(f"0x{one.protocol:04x}" for one in tlv.entries),
        }
    if isinstance(tlv, CongestionNotification):
        seen = {f"lldp.ieee.802_1qau.cnpv.prio{n}": str(tlv.cnpv >> n & 1) for n in range(8)}
        return seen | {f"lldp.ieee.802_1qau.ready.prio{n}": str(tlv.ready >> n & 1) for n in range(8)}
    return {}


subtypes = st.sampled_from([int(subtype) for subtype in Subtype])


@given(
    subtypes, st.one_of(st.binary(max_size=60), st.binary(min_size=21, max_size=21), st.binary(min_size=2, max_size=2))
)
def test_any_bytes(subtype: int, info: bytes) -> None:
    tlv = OrganizationalTlv(b"\x00\x80\xc2", subtype, info)
    found = decode_all([tlv])
    if found.problems:
        assert found.encode() == ()
    else:
        assert found.encode() == (tlv,)


@given(
    st.lists(st.integers(0, 7), min_size=8, max_size=8),
    st.lists(st.integers(0, 100), min_size=8, max_size=8),
    st.lists(st.sampled_from([0, 1, 2, 255]), min_size=8, max_size=8),
)
def test_the_bandwidth_rule(priority_tc: list[int], bandwidth: list[int], tsa: list[int]) -> None:
    """A table is valid exactly where its bandwidths sum to 100, or to 0 without an ETS class."""
    valid = sum(bandwidth) == 100 or (sum(bandwidth) == 0 and 2 not in tsa)
    try:
        table = EtsTable.build(priority_tc, bandwidth, tsa)
    except TlvError:
        assert not valid
        return
    assert valid
    assert EtsTable.from_octets("x", table.octets()) == table
