"""Headroom by delay terms, by SONiC's formula and by the articles' rules, against numbers worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dcb.headroom import DEFAULTS, Budget, HeadroomError, delay_headroom, sonic_headroom
from dcb.headroom.articles import Tradeoff, tradeoff, watchdog_ps, xoff_bytes, xon_bytes
from dcb.headroom.budget import decimal
from dcb.headroom.delay_terms import worst_cell_ratio
from dcb.headroom.sonic import asic, worst_cell_factor

G = 10**9
US = 10**6  # ps


def bits(budget: Budget) -> dict[str, Fraction]:
    return {line.name: line.bits for line in budget.lines}


# ---- delay terms ------------------------------------------------------------------------------------------------


def test_delay_terms_at_10g_over_100_m() -> None:
    budget = delay_headroom(10 * G, 100)
    assert bits(budget) == {
        "frame just leaving": 9216 * 8 + 160,
        "PFC frame": 672,
        "interface delay, both ends": 2 * 8192,
        "cable, there and back": 10_000,  # 1 us at 10 Gb/s
        "peer's response": 60 * 512,
        "frame just started by the peer": 9216 * 8 + 160,
        "cell rounding": 0,
    }
    # 73888 + 672 + 16384 + 10000 + 30720 + 73888 = 205552 bits
    assert budget.headroom_bytes == 25694
    assert budget.lines[0].ns(10 * G) == Fraction(73888, 10)


@pytest.mark.parametrize(
    ("rate_g", "interface", "quanta", "total_bits"),
    [
        # 2 * 73888 + 672 = 148448; cable of 300 m: 3000 ns
        (10, 8192, 60, 148448 + 16384 + 30720 + 30000),
        (25, 6144, 80, 148448 + 12288 + 40960 + 75000),
        (40, 24576, 118, 148448 + 49152 + 60416 + 120000),
        (100, 122880, 394, 148448 + 245760 + 201728 + 300000),
    ],
)
def test_delay_terms_of_every_sourced_rate(rate_g: int, interface: int, quanta: int, total_bits: int) -> None:
    budget = delay_headroom(rate_g * G, 300)
    assert bits(budget)["peer's response"] == quanta * 512
    assert bits(budget)["interface delay, both ends"] == 2 * interface
    assert budget.headroom_bytes == -(-total_bits // 8)
    assert sum(line.bits for line in budget.lines) == 8 * budget.headroom_bytes


def test_cell_rounding_takes_the_worst_frame() -> None:
    # 64 bytes in 144: 2.25; 145 in 288: 1.986. 64 in 96: 1.5; 97 in 192: 1.979
    assert worst_cell_ratio(144, 64, 9216) == Fraction(144, 64)
    assert worst_cell_ratio(96, 64, 9216) == Fraction(192, 97)
    assert worst_cell_ratio(64, 64, 9216) == Fraction(128, 65)
    assert worst_cell_ratio(64, 65, 9216) == Fraction(128, 65)
    assert worst_cell_ratio(64, 64, 64) == 1
    assert worst_cell_ratio(1, 64, 9216) == 1
    for cell in (1, 64, 96, 144, 208):
        brute = max(Fraction(-(-size // cell) * cell, size) for size in range(64, 1519))
        assert worst_cell_ratio(cell, 64, 1518) == brute
    # 205552 bits = 25694 bytes; * 192 / 97 = 50858.2..; in cells of 96: 530
    assert delay_headroom(10 * G, 100, cell_bytes=96).headroom_bytes == 530 * 96


def test_constants_can_be_overridden_and_keep_their_sources() -> None:
    changed = DEFAULTS.override({"response_quanta.10G": 67, "cable_ns_per_m": "4.9"})
    budget = delay_headroom(10 * G, 100, constants=changed)
    assert bits(budget)["peer's response"] == 67 * 512
    assert bits(budget)["cable, there and back"] == 9800
    assert delay_headroom(25 * G, 0, constants=changed).headroom_bytes == delay_headroom(25 * G, 0).headroom_bytes
    one = DEFAULTS.override({"response_quanta": 1})
    assert bits(delay_headroom(25 * G, 0, constants=one))["peer's response"] == 512
    assert changed.source("cable_ns_per_m") == "given"
    assert DEFAULTS.get("sonic_pause_quanta", 10 * G) == 67
    assert DEFAULTS.get("response_quanta", 10 * G) == 60
    assert all(constant.source and constant.unit for constant in DEFAULTS)


def test_what_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(HeadroomError, match=r"interface_bits: 1G: .*10G, 25G, 40G, 100G.*interface_bits="):
        delay_headroom(G, 5)
    assert delay_headroom(G, 5, constants=DEFAULTS.override({"interface_bits": 0})).headroom_bytes == 18691
    with pytest.raises(HeadroomError, match="constant: 'respons': not known"):
        DEFAULTS.override({"respons": 1})
    with pytest.raises(HeadroomError, match=r"cable_ns_per_m: -1: must not be negative"):
        DEFAULTS.override({"cable_ns_per_m": -1})
    with pytest.raises(HeadroomError, match="does not depend on the rate"):
        DEFAULTS.override({"cable_ns_per_m.10G": 5})
    with pytest.raises(HeadroomError, match="length_m: 'far'"):
        delay_headroom(10 * G, "far")
    with pytest.raises(HeadroomError, match="mtu_in_bytes: 64: must not be below min_frame_bytes 100"):
        delay_headroom(10 * G, 1, mtu_in_bytes=64, min_frame_bytes=100)


# ---- SONiC ------------------------------------------------------------------------------------------------------

VECTORS = [  # reference/dcb.md, 1.6: mtu 9100, lossless mtu 1024, small packets 50%, no shared headroom pool
    (10, 5, "spectrum-1", 19456, 38912),
    (10, 5, "spectrum-2", 21504, 40960),
    (25, 40, "spectrum-1", 21504, 40960),
    (25, 40, "spectrum-3", 23552, 43008),
    (100, 40, "spectrum-1", 48128, 67584),
    (100, 40, "spectrum-2", 53248, 72704),
    (100, 300, "spectrum-1", 84992, 104448),
    (100, 300, "spectrum-2", 94208, 113664),
    (400, 40, "spectrum-1", 102400, 121856),
    (400, 40, "spectrum-2", 112640, 132096),
]


@pytest.mark.parametrize(("rate_g", "length_m", "name", "xoff", "size"), VECTORS)
def test_sonic_vectors(rate_g: int, length_m: int, name: str, xoff: int, size: int) -> None:
    budget = sonic_headroom(rate_g * G, length_m, asic=asic(name))
    assert (budget.headroom_bytes, budget.values["xon_bytes"], budget.values["size_bytes"]) == (xoff, 19456, size)
    assert sum(line.bytes for line in budget.lines) == xoff


def test_sonic_variants() -> None:
    # shared headroom pool: size is xon alone, no margin of 2 KiB
    shared = sonic_headroom(10 * G, 5, shared_headroom_pool=True)
    assert (shared.headroom_bytes, shared.values["size_bytes"]) == (17408, 19456)
    # eight lanes: xon doubled, one mtu more
    wide = sonic_headroom(400 * G, 40, lanes=8)
    assert (wide.values["xon_bytes"], wide.values["size_bytes"]) == (38912, 102400 + 38912 + 9100)
    # all small: everything swells by 2 and no margin. 9100 + 63.13 + 819.2 + 4288 = 14270.33; * 2 + 1024 = 29564.66
    assert sonic_headroom(10 * G, 5, small_packet_percent=100).headroom_bytes == 29 * 1024
    # Spectrum-4: 100 * 15 bytes more before the cells: 9100 + 4040.4 + 819.2 + 25216 + 1500 = 40675.6, * 1.235294 (3 -
    # 1 = 2 times 11.7647%) + 1024 = 51270.4 -> 51 KiB = 52224, + 2 KiB
    assert sonic_headroom(100 * G, 32, asic=asic("spectrum-4"), mtu_bytes=9100).lines[6].bits == 1500 * 8
    # a rate that the table lacks: the ASIC's own peer response, 3.8 KiB
    odd = sonic_headroom(5 * G, 5)
    assert {line.name: line.bytes for line in odd.lines}["peer's response"] == Fraction("3891.2")
    # 10G with the standard's 60 quanta
    assert {
        line.name: line.bytes
        for line in sonic_headroom(10 * G, 5, constants=DEFAULTS.override({"sonic_pause_quanta.10G": 60})).lines
    }["peer's response"] == 60 * 64
    six = sonic_headroom(10 * G, 5, asic=asic("spectrum-6"))
    assert six.values["xon_bytes"] == 42 * 1024
    assert {line.name: line.bytes for line in six.lines}["ASIC's addition"] == 18 * 1024


@pytest.mark.parametrize(("cell", "factor"), [(96, 2), (128, 2), (144, 3), (192, 3), (256, 4), (1, 1)])
def test_sonic_cell_factor(cell: int, factor: int) -> None:
    assert worst_cell_factor(cell, Fraction(64)) == factor


def test_sonic_refusals() -> None:
    with pytest.raises(HeadroomError, match=r"small_packet_percent: 101: 0\.\.100"):
        sonic_headroom(10 * G, 5, small_packet_percent=101)
    with pytest.raises(HeadroomError, match="asic: 'trident'"):
        asic("trident")


# ---- articles ---------------------------------------------------------------------------------------------------


def test_articles_xoff_with_and_without_the_margin() -> None:
    # 2 us at 100 Gb/s are 200,000 bits = 25,000 bytes; the article prints that, and means 10% more
    assert xoff_bytes(100 * G, 2 * US) == 27500
    assert xoff_bytes(100 * G, 2 * US, 0) == 25000
    assert xoff_bytes(100 * G, 2 * US, "0.1") == 27500


def test_articles_xon() -> None:
    assert xon_bytes(25000, 100 * G, 1 * US) == 12500
    assert xon_bytes(27500, 100 * G) == 15000
    with pytest.raises(HeadroomError, match="xoff: 12499: below the 12500 bytes"):
        xon_bytes(12499, 100 * G, 1 * US)


def test_articles_watchdog() -> None:
    assert watchdog_ps(16_666_666_667) == 50_000_000_001
    assert watchdog_ps(10 * 10**9, 5) == 50 * 10**9


def test_tradeoff_of_a_threshold() -> None:
    # full throughput needs 25,000 bytes; 15,000 give 3/5 of the rate; a full level waits 15,000 * 80 ps
    low = tradeoff(100 * G, 2 * US, 15000, 50000, 2**20)
    assert low == Tradeoff(1_200_000, 25000, Fraction(3, 5), 16)
    high = tradeoff(100 * G, 2 * US, 250_000, 50000, 2**20)
    assert high == Tradeoff(20_000_000, 25000, Fraction(1), 3)


def test_decimals() -> None:
    assert decimal(Fraction(12345678, 1000)) == "12,345.7"
    assert decimal(Fraction(-1, 20)) == "-0.1"
    assert decimal(Fraction(-1, 100)) == "0.0"
    assert decimal(Fraction(5, 2), 0) == "3"
