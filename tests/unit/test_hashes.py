"""Hash algorithms, the random generator and the meter against published values and independent formulas."""

from __future__ import annotations

import binascii
import zlib

from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import checksum as scapy_checksum

from switch.api import MeterConfig
from switch.hashes import ALGORITHMS, compute
from switch.meter import GREEN, RED, YELLOW, MeterCell
from switch.rng import Generator, splitmix64

CHECK = b"123456789"  # the customary input of the catalogues of CRCs


def test_check_values() -> None:
    assert compute("crc16", CHECK) == 0xBB3D
    assert compute("crc16_custom", CHECK) == 0xBB3D
    assert compute("crc32", CHECK) == 0xCBF43926
    assert compute("crc32_custom", CHECK) == 0xCBF43926
    assert compute("crcCCITT", CHECK) == 0x29B1


def test_empty_input() -> None:
    values = {name: compute(name, b"") for name in ALGORITHMS}
    assert values == {
        "crc16": 0,
        "crc16_custom": 0,
        "crc32": 0,
        "crc32_custom": 0,
        "crcCCITT": 0xFFFF,
        "csum16": 0xFFFF,
        "cksum16": 0xFFFF,
        "xor16": 0,
        "identity": 0,
    }


def test_rfc_1071_example() -> None:
    # RFC 1071 section 3: the sum of these words is 0xDDF2
    assert compute("csum16", bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2 ^ 0xFFFF


def test_xor16_and_identity() -> None:
    assert compute("xor16", bytes.fromhex("1234 5678 9A")) == 0x1234 ^ 0x5678 ^ 0x9A00
    assert compute("identity", bytes.fromhex("0102")) == 0x0102
    assert compute("identity", bytes.fromhex("0102030405060708 09")) == 0x0102030405060708


@given(st.binary(max_size=70))
def test_against_other_implementations(data: bytes) -> None:
    assert compute("crc32", data) == zlib.crc32(data)
    assert compute("crcCCITT", data) == binascii.crc_hqx(data, 0xFFFF)
    assert compute("csum16", data) == scapy_checksum(data)


def test_splitmix64_published_sequence() -> None:
    # the first outputs of splitmix64 with seed 1234567, as in the reference implementations' tests
    gamma, seed = 0x9E3779B97F4A7C15, 1234567
    outputs = [splitmix64(seed + step * gamma) for step in range(5)]
    assert outputs == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_generator_starts_as_specified() -> None:
    assert Generator(0).state == 0xE220A8397B1DCDAF
    first = Generator(0)
    state = 0xE220A8397B1DCDAF
    state ^= state >> 12
    state = (state ^ (state << 25)) % 2**64
    state ^= state >> 27
    assert first.next() == state * 0x2545F4914F6CDD1D % 2**64
    assert first.state == state


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_uniform_stays_in_its_range_and_draws_once(seed: int, one: int, other: int) -> None:
    low, high = sorted((one, other))
    generator, twin = Generator(seed), Generator(seed)
    assert low <= generator.uniform(low, high) <= high
    twin.next()
    assert generator.state == twin.state


def test_uniform_over_all_of_64_bits_is_the_number_itself() -> None:
    assert Generator(5).uniform(0, 2**64 - 1) == Generator(5).next()


def test_meter_that_is_not_configured_is_green() -> None:
    assert [MeterCell().execute(10**9, 0) for _ in range(3)] == [GREEN] * 3


def test_meter_refills_to_the_picosecond() -> None:
    # 8 Gb/s = 10^9 bytes a second: a byte in 1000 ps
    cell = MeterCell()
    cell.configure(MeterConfig(cir=10**9, cburst=100, pir=10**9, pburst=100), now_ps=7)
    assert cell.execute(100, 7) == GREEN
    assert cell.execute(1, 7 + 999) == RED
    assert cell.execute(1, 7 + 1000) == GREEN
    assert cell.execute(1, 7 + 1999) == RED
    assert cell.execute(100, 7 + 1000 + 100 * 1000 - 1) == RED
    assert cell.execute(100, 7 + 1000 + 100 * 1000) == GREEN


def test_meter_never_holds_more_than_its_bursts() -> None:
    cell = MeterCell()
    cell.configure(MeterConfig(cir=10**6, cburst=10, pir=10**6, pburst=20), now_ps=0)
    year_ps = 365 * 24 * 3600 * 10**12
    assert [cell.execute(10, year_ps) for _ in range(3)] == [GREEN, YELLOW, RED]


def test_meter_survives_a_clock_that_goes_back() -> None:
    cell = MeterCell()
    cell.configure(MeterConfig(cir=10**12, cburst=1, pir=10**12, pburst=1), now_ps=100)
    assert cell.execute(1, 100) == GREEN
    assert cell.execute(1, 50) == RED  # no tokens for time that has passed already
    assert cell.execute(1, 100) == RED
    assert cell.execute(1, 101) == GREEN


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**4),
    st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 10**9)), max_size=30),
)
def test_meter_conforms_to_its_rate(rate: int, burst: int, packets: list[tuple[int, int]]) -> None:
    """Green bytes in any run never exceed burst + rate * time (exact integers)."""
    cell = MeterCell()
    cell.configure(MeterConfig(cir=rate, cburst=burst, pir=rate, pburst=burst), now_ps=0)
    now = green = 0
    for size, gap_ps in packets:
        now += gap_ps
        if cell.execute(size, now) == GREEN:
            green += size
    assert green * 10**12 <= burst * 10**12 + rate * now
