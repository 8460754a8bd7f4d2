"""Hashes, meters, selectors and the build: published check values, closed formulas, refusals."""

from __future__ import annotations

import binascii
import ctypes
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from codegen_fuzz import SANITIZE
from codegen_json import program_json

from switch.api import ActionCall, GroupRef, KeyMatch, MatchKind, MeterConfig, PipelineError
from switch.build import BuildError, build_program
from switch.codegen.generator import generate
from switch.loader import load
from switch.native_pipeline import NativePipeline

REPOSITORY = Path(__file__).resolve().parents[2]
JSON_TEXT = (REPOSITORY / "p4src" / "build" / "dcb.json").read_text()
STATE_TEXT = (REPOSITORY / "tests" / "programs" / "state.json").read_text()
CHECK = b"123456789"  # the input of the check values in the catalogue of parametrised CRC algorithms


@pytest.fixture(scope="module")
def native() -> Iterator[NativePipeline]:
    pipeline = NativePipeline.from_library(build_program(JSON_TEXT, sanitize=SANITIZE), load(JSON_TEXT))
    yield pipeline
    pipeline.close()


def hashed(native: NativePipeline, name: str, data: bytes) -> int:
    function = getattr(native.library, f"pl_hash_{name}")
    function.restype, function.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t)
    return int(function(data, len(data)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crc8", 0xF4),  # CRC-8/SMBUS
        ("crc16", 0xBB3D),  # CRC-16/ARC
        ("crcCCITT", 0x29B1),  # CRC-16/IBM-3740
        ("crc32", 0xCBF43926),  # CRC-32/ISO-HDLC
        ("identity", 0x3132333435363738),
        ("xor16", 0x3132 ^ 0x3334 ^ 0x3536 ^ 0x3738 ^ 0x3900),
        ("xor32", 0x31323334 ^ 0x35363738 ^ 0x39000000),
        ("xxh64", 0x8CB841DB40E6AE83),  # published test value of XXH64 with seed 0
    ],
)
def test_hash_check_values(native: NativePipeline, name: str, value: int) -> None:
    assert hashed(native, name, CHECK) == value


def test_crc32_of_any_length_is_zlibs(native: NativePipeline) -> None:
    rng = random.Random(1)
    for length in range(70):
        data = rng.randbytes(length)
        assert hashed(native, "crc32", data) == binascii.crc32(data)
        assert hashed(native, "crcCCITT", data) == binascii.crc_hqx(data, 0xFFFF)


def test_internet_checksum_of_the_example_in_rfc_1071(native: NativePipeline) -> None:
    assert hashed(native, "csum16", bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2 ^ 0xFFFF
    assert hashed(native, "csum16", b"\xff\xff" * 40_000) == 0
    assert hashed(native, "csum16", b"\x12") == 0x1200 ^ 0xFFFF


def meter_program(kind: str) -> str:
    call = {
        "op": "execute_meter",
        "parameters": [
            {"type": "meter_array", "value": "m"},
            {"type": "field", "value": ["k", "index"]},
            {"type": "field", "value": ["k", "colour"]},
        ],
    }
    return program_json(
        {"k": [["index", 8], ["colour", 2]]},
        [{"name": "run", "id": 0, "runtime_data": [], "primitives": [call]}],
        init="c",
        action_calls=[{"name": "c", "id": 0, "action_id": 0, "next_node": None}],
        top={"meter_arrays": [{"name": "m", "id": 0, "rate_count": 2, "type": kind, "size": 4}]},
    )


GREEN, YELLOW, RED = 0, 1, 2


def colours(kind: str, steps: list[tuple[int, int]], config: MeterConfig | None) -> list[int]:
    """Colours of packets (time in ps, bytes) at a meter configured at time 0."""
    text = meter_program(kind)
    native = NativePipeline.from_library(build_program(text, sanitize=SANITIZE), load(text))
    native.meter_write("m", 2, config)
    seen = []
    for now_ps, size in steps:
        native.now_ps = now_ps
        packet = native.new_packet(bytes(size), 0)
        packet.set("k.index", 2)
        native.run_ingress(packet)
        seen.append(packet.get("k.colour"))
    native.close()
    return seen


def test_a_byte_meter_takes_its_bursts_and_refills_to_the_picosecond() -> None:
    """Committed 1000 B/s and 100 B, peak 3000 B/s and 200 B: 100 B take 100 ms and 33.3 ms."""
    config = MeterConfig(1000, 100, 3000, 200)
    steps = [
        (0, 100),  # both buckets full: leaves 0 and 100
        (0, 100),  # leaves 0 and 0
        (0, 100),
        (33_333_333_333, 100),  # 99.999999999 bytes of peak tokens
        (33_333_333_334, 100),  # 100.000000002; 33.3 bytes of committed ones
        (99_999_999_999, 100),  # peak again; one millionth of a millionth short of committed
        (100_000_000_000, 0),
        (166_666_666_668, 100),  # both are full again, since yellow packets take nothing from committed
        (100_000_000_000, 1),  # time that runs back brings nothing: committed is empty
    ]
    assert colours("bytes", steps, config) == [GREEN, YELLOW, RED, RED, YELLOW, YELLOW, GREEN, GREEN, YELLOW]


def test_a_packet_meter_counts_packets_and_no_configuration_is_green() -> None:
    steps = [(0, 1500), (0, 60), (0, 60), (500_000_000_000, 9000)]
    assert colours("packets", steps, MeterConfig(1, 1, 2, 2)) == [GREEN, YELLOW, RED, YELLOW]
    assert colours("packets", steps, None) == [GREEN] * 4


def test_a_meter_cell_outside_of_the_array_is_refused_by_control() -> None:
    text = meter_program("bytes")
    native = NativePipeline.from_library(build_program(text, sanitize=SANITIZE), load(text))
    with pytest.raises(PipelineError, match="index 4, must be below 4"):
        native.meter_write("m", 4, MeterConfig(1, 1, 1, 1))
    native.close()


def test_selector_groups_follow_their_weights(native: NativePipeline) -> None:
    """Members 1 and 2 with weights 1 and 3: over all hashes mod 4, one quarter and three quarters."""
    exact = MatchKind.EXACT
    native.table_insert("ingress.port_config", [KeyMatch(exact, 5)], 0, ActionCall("ingress.set_port", (0, 0, 0, 0, 0)))
    native.table_insert("ingress.ipv4_lpm", [KeyMatch(MatchKind.LPM, 0)], 0, ActionCall("ingress.route", (9,)))
    for member in (1, 2):
        native.member_set("ingress.ecmp", member, ActionCall("ingress.forward", (member, 0x020000000000 + member)))
    native.group_set("ingress.ecmp", 4, [(1, 1), (2, 3)])
    handle = native.table_insert("ingress.nexthop", [KeyMatch(exact, 9)], 0, GroupRef(4))
    frame = bytearray.fromhex(
        "020100000105 020000000101 0800 4500 002e 0000 0000 40 11 0000 0a010001 0a020003 0000 12b7 001a 0000".replace(
            " ", ""
        )
    )
    seen = {1: 0, 2: 0}
    for source in range(2000):
        frame[34:36] = source.to_bytes(2, "big")
        frame[24:26] = b"\0\0"
        frame[24:26] = hashed(native, "csum16", bytes(frame[14:34])).to_bytes(2, "big")
        packet = native.new_packet(bytes(frame) + bytes(18), 5)
        native.run_ingress(packet)
        seen[packet.get("standard_metadata.egress_spec")] += 1
    assert 400 < seen[1] < 600
    with pytest.raises(PipelineError, match="group 4 is in use"):
        native.group_delete("ingress.ecmp", 4)
    with pytest.raises(PipelineError, match="member 1 is in use"):
        native.member_delete("ingress.ecmp", 1)
    native.table_delete("ingress.nexthop", handle)
    native.group_set("ingress.ecmp", 4, [(2, 1)])
    native.member_delete("ingress.ecmp", 1)
    with pytest.raises(PipelineError, match="member 1 does not exist"):
        native.member_delete("ingress.ecmp", 1)
    native.group_delete("ingress.ecmp", 4)
    with pytest.raises(PipelineError, match="group 4 does not exist"):
        native.table_insert("ingress.nexthop", [KeyMatch(exact, 9)], 0, GroupRef(4))


def test_a_library_of_another_program_is_refused() -> None:
    library = build_program(STATE_TEXT, sanitize=SANITIZE)
    with pytest.raises(ValueError, match="another program"):
        NativePipeline.from_library(library, load(JSON_TEXT))


def test_the_same_program_is_built_once_and_generated_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_program(JSON_TEXT, sanitize=SANITIZE) == build_program(JSON_TEXT.encode(), sanitize=SANITIZE)
    assert generate(load(JSON_TEXT)) == generate(load(JSON_TEXT))
    monkeypatch.setenv("CC", "no-such-compiler-here")
    monkeypatch.setenv("DCBLAB_CACHE", str(tmp_path))
    with pytest.raises(BuildError, match="there is no C compiler: 'no-such-compiler-here' is not on the PATH"):
        build_program(JSON_TEXT)
    assert list(tmp_path.iterdir()) == []
