"""CEE's TLV: bytes by hand from the v1.01 layout, tshark's view, every rule with its message, conversion, any bytes."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path

import pytest
from dcbx_net import LOW, ROCE, STORAGE, said, tshark, write_pcap
from hypothesis import given
from hypothesis import strategies as st

from dcb.cee.convert import app_from_cee, app_to_cee, ets_from_groups, groups_from_ets
from dcb.cee.tlv import (
    AppFeature,
    CeeApp,
    CeeTlv,
    Control,
    Feature,
    Header,
    PfcFeature,
    PriorityGroups,
    SubTlv,
    decode,
    decode_cin,
    is_cee,
    is_cin,
)
from dcb.dcbx.tlv import AppEntry, EtsTable
from dcb.lldp.tlv import OrganizationalTlv, TlvError

GROUPS = PriorityGroups((0, 0, 0, 1, 0, 0, 15, 0), (40, 60, 0, 0, 0, 0, 0, 0), 8)
FULL = CeeTlv(
    Control(5, 7),
    (
        Feature(Header(willing=True), GROUPS),
        Feature(Header(error=True), PfcFeature(0b1000, 4)),
        Feature(Header(enable=False), AppFeature((CeeApp(0, 0x8906, 0b1000), CeeApp(1, 3260, 0b1_0000)))),
    ),
)
FULL_BYTES = (
    "fe3d 001b21 02"
    "020a 00 00 00000005 00000007"
    "0411 00 00 c0 00 000100f0 283c000000000000 08"
    "0606 00 00 a0 00 08 04"
    "0810 00 00 00 00 8906 00 1b21 08 0cbc 01 1b21 10"
)


def test_bytes() -> None:
    tlv = FULL.encode()
    assert tlv.raw().encode() == bytes.fromhex(FULL_BYTES)
    assert is_cee(tlv)
    assert decode(tlv) == FULL


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_it(tmp_path: Path) -> None:
    write_pcap(tmp_path / "a.pcap", [said(LOW, [FULL.encode()])])
    prefix = "lldp.dcbx."
    want = {
        "proto": "0x02",
        "control.seq": "5",
        "control.ack": "7",
        "feature.enabled": "1,1,0",
        "feature.willing": "1,0,0",
        "feature.error": "0,1,0",
        **{f"feature.pg.pgid_prio{n}": str(group) for n, group in enumerate(GROUPS.pgid)},
        **{f"feature.pg.per{n}": str(share) for n, share in enumerate(GROUPS.percent)},
        "feature.pg.numtcs": "0x08",
        **{f"feature.pfc.prio{n}": str(int(n == 3)) for n in range(8)},
        "feature.pfc.numtcs": "0x04",
        "feature.app.proto": "0x8906,0x0cbc",
        "feature.app.sf": "0,1",
        "feature.app.prio": "3,4",
    }
    arguments = [argument for name in want for argument in ("-e", prefix + name)]
    fields = ("-T", "fields", "-E", "separator=;", *arguments, "-e", "_ws.malformed")
    (line,) = tshark(tmp_path / "a.pcap", *fields)
    assert dict(zip([*want, "malformed"], line.split(";"), strict=True)) == {**want, "malformed": ""}


def sub(kind: int, value: str) -> bytes:
    octets = bytes.fromhex(value)
    return (kind << 9 | len(octets)).to_bytes(2, "big") + octets


CONTROL = sub(1, "00000000000500000007")
GOOD_PFC = sub(3, "000080000808")


def tlv(*subs: bytes) -> OrganizationalTlv:
    return OrganizationalTlv(b"\x00\x1b\x21", 2, b"".join(subs))


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ((), "CEE DCBX TLV: Control sub-TLV: absent, must occur once"),
        ((GOOD_PFC,), "CEE DCBX TLV: Control sub-TLV: absent, must occur once"),
        ((CONTROL, CONTROL), "CEE DCBX TLV: Control sub-TLV: duplicate, must occur once"),
        ((sub(1, "00" * 9),), "CEE Control TLV: length: 9, must be 10"),
        ((CONTROL, b"\x06"), "CEE DCBX TLV: sub-TLV 1: header: 1 byte, must be 2 bytes: truncated"),
        ((CONTROL, GOOD_PFC[:-1]), "CEE DCBX TLV: sub-TLV 1 (type 3): length: 6, only 5 bytes are left"),
    ],
)
def test_what_refuses_the_whole(info: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(TlvError) as caught:
        decode(tlv(*info))
    assert str(caught.value) == message


PG = "000080 00 00000000"


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (3, "0000", "CEE PFC TLV: length: 2, must be at least 4"),
        (3, "0000800008", "CEE PFC TLV: length: 5, must be 6"),
        (3, "00008000080809", "CEE PFC TLV: length: 7, must be 6"),
        (3, "000080000809", "CEE PFC TLV: num TCs: 9, must be 0..8"),
        (3, "000080000702", "CEE PFC TLV: PFC enable: 0x07, enables 3 priorities, must be at most num TCs 2"),
        (2, PG + "64" + "00" * 6 + "08", "CEE Priority Group TLV: length: 16, must be 17"),
        (
            2,
            PG + "63" + "00" * 7 + "08",
            "CEE Priority Group TLV: percentage sum: 99, must be 100, or 0 where every priority is link strict",
        ),
        (
            2,
            PG + "59" * 4 + "00" * 4 + "08",
            "CEE Priority Group TLV: percentage sum: 356, must be 100, or 0 where every priority is link strict",
        ),
        (2, PG + "65" + "00" * 7 + "08", "CEE Priority Group TLV: percentage of PGID 0: 101, must be 0..100"),
        (2, PG + "64" + "00" * 7 + "09", "CEE Priority Group TLV: num TCs: 9, must be 0..8"),
        (
            2,
            "00008000 80000000" + "64" + "00" * 7 + "08",
            "CEE Priority Group TLV: PGID of priority 0: 8, must be 0..7 or 15 (link strict)",
        ),
        (4, "00008000 8906001b21", "CEE Application TLV: length: 9, must be 4 + 6n"),
    ],
)
def test_what_refuses_a_feature_alone(kind: int, value: str, message: str) -> None:
    other = sub(4, "00008000") if kind != 4 else GOOD_PFC
    found = decode(tlv(CONTROL, sub(kind, value), other))
    assert [str(problem.error) for problem in found.problems] == [message]
    assert found.feature(SubTlv(kind)) is None
    assert len(found.features) == 1


def test_a_second_feature_of_a_kind_is_told_and_the_first_kept() -> None:
    found = decode(tlv(CONTROL, GOOD_PFC, sub(3, "000080001008")))
    feature = found.feature(SubTlv.PFC)
    assert feature is not None
    assert feature.config == PfcFeature(8, 8)
    assert found.duplicates == {SubTlv.PFC}
    assert [str(problem.error) for problem in found.problems] == ["CEE PFC TLV: occurrence: duplicate, must occur once"]


def test_unknown_sub_tlvs_and_odd_ouis_are_kept() -> None:
    one = tlv(CONTROL, sub(4, "00008000 1234 ab cdef 01"), sub(6, "0000800180"))
    found = decode(one)
    assert found.feature(SubTlv.APPLICATION) == Feature(
        Header(), AppFeature((CeeApp(3, 0x1234, 1, bytes.fromhex("a8cdef")),))
    )
    assert [raw.type for raw in found.unknown] == [6]
    assert found.encode() == one


def test_all_link_strict_may_have_no_percentages() -> None:
    strict = PriorityGroups((15,) * 8, (0,) * 8)
    assert decode(CeeTlv(Control(1, 1), (Feature(Header(), strict),)).encode()).features[0].config == strict


def test_cin_is_read() -> None:
    """Sub-TLVs of CIN: control, PFC (no TC count), logical link."""
    cin = OrganizationalTlv(b"\x00\x1b\x21", 1, CONTROL + sub(3, "0000800008") + sub(6, "0000800080"))
    assert is_cin(cin)
    found = decode_cin(cin)
    assert found.control == Control(5, 7)
    assert found.names == ("Control", "PFC", "Logical Link")
    assert decode_cin(OrganizationalTlv(b"\x00\x1b\x21", 1, b"")).control is None


def test_conversion_to_802_1qaz() -> None:
    assert ets_from_groups(GROUPS) == EtsTable(
        (0, 0, 0, 1, 0, 0, 7, 0), (40, 60, 0, 0, 0, 0, 0, 0), (2, 2, 0, 0, 0, 0, 0, 0)
    )
    assert groups_from_ets(STORAGE) == GROUPS
    assert app_from_cee(AppFeature((CeeApp(0, 0x8906, 0b1010), CeeApp(1, 3260, 1), CeeApp(2, 9, 1)))) == (
        AppEntry(1, 0x8906, 1),
        AppEntry(1, 0x8906, 3),
        AppEntry(4, 3260, 0),
    )
    assert app_to_cee((ROCE, AppEntry(1, 0x8906, 3), AppEntry(2, 4791, 5), AppEntry(5, 26, 3))).entries == (
        CeeApp(1, 4791, 0b10_1000),
        CeeApp(0, 0x8906, 0b1000),
    )


@given(
    st.lists(st.sampled_from([*range(8), 15]), min_size=8, max_size=8),
    st.lists(st.integers(0, 100), min_size=7, max_size=7),
)
def test_every_priority_group_configuration_has_an_ets_table(pgid: list[int], cuts: list[int]) -> None:
    """Percentages as the gaps between seven sorted cuts of 0..100: all that sum to 100."""
    edges = [0, *sorted(cuts), 100]
    percent = tuple(high - low for low, high in itertools.pairwise(edges))
    groups = PriorityGroups(tuple(pgid), percent)
    table = ets_from_groups(groups)
    for priority, group in enumerate(pgid):
        if group == 15:
            assert table.tsa[table.priority_tc[priority]] == 0 or set(range(8)) <= set(pgid)
        else:
            assert (table.priority_tc[priority], table.tsa[group], table.bandwidth[group]) == (group, 2, percent[group])
    assert groups_from_ets(table).pgid == groups.pgid


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes(info: bytes, with_control: bool) -> None:
    one = tlv(CONTROL + info if with_control else info)
    try:
        found = decode(one)
    except TlvError:
        pass
    else:
        if not found.problems and not found.unknown:
            assert decode(found.encode()) == found
    with contextlib.suppress(TlvError):
        decode_cin(OrganizationalTlv(b"\x00\x1b\x21", 1, info))
