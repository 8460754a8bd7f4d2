"""dcb.units: exact integers from what people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcb.units import format_rate, format_time_ps, parse_rate, parse_time_ps


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        *(("100M", 10**8), ("2.5G", 2_500_000_000), ("10Gbit", 10**10), ("64k", 64_000), ("1", 1), (1000, 1000)),
        *(("0.001K", 1), ("1.2T", 1_200_000_000_000), (" 40 gbps ", 40 * 10**9)),
    ],
)
def test_rates(text: object, rate_bps: int) -> None:
    assert parse_rate(text) == rate_bps


@pytest.mark.parametrize("text", ["", "M", "-1M", "1.5", "0", "11T", "1e6", "100 X", True, 1.5, None])
def test_wrong_rates(text: object) -> None:
    with pytest.raises(ValueError, match="a rate is"):
        parse_rate(text)


@given(st.integers(1, 10**13))
def test_rates_survive_their_spelling(rate_bps: int) -> None:
    assert parse_rate(format_rate(rate_bps)) == rate_bps


@pytest.mark.parametrize(
    ("text", "time_ps"),
    [
        ("1", 10**12),
        ("2.5s", 25 * 10**11),
        ("40us", 40_000_000),
        ("500 ms", 5 * 10**11),
        ("0.5ns", 500),
        (3, 3 * 10**12),
    ],
)
def test_times(text: object, time_ps: int) -> None:
    assert parse_time_ps(text) == time_ps


@pytest.mark.parametrize("text", ["", "s", "-1s", "0.1ps", "1h", 1.5, True])
def test_wrong_times(text: object) -> None:
    with pytest.raises(ValueError, match="a time is"):
        parse_time_ps(text)


def test_spellings() -> None:
    assert [format_rate(r) for r in (10**8, 1500, 10**12, 7)] == ["100M", "1500", "1T", "7"]
    assert [format_time_ps(t) for t in (838_848_000, 1, 0, 10**12, -1500)] == ["838.848us", "1ps", "0s", "1s", "-1.5ns"]


@given(st.integers(0, 10**20))
def test_times_survive_their_spelling(time_ps: int) -> None:
    assert parse_time_ps(format_time_ps(time_ps)) == time_ps
