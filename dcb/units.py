"""Rates and times as people write them, as exact integers: "100M" is 100_000_000 bit/s, "2.5ms" is 2_500_000_000 ps.

Pure functions. Decimal prefixes only (K, M, G, T = 10^3..10^12), as the rates of links are. A value that is not a whole
number of the result's unit is refused, so nothing is ever rounded on the way in.
"""

from __future__ import annotations

import re
from decimal import Decimal

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000
MAX_RATE_BPS = 10**13

_RATE_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:bit|bps|b/s)?", re.IGNORECASE)
_TIME_UNITS = {
    "": PS_PER_S,
    "min": 60 * PS_PER_S,
    "s": PS_PER_S,
    "ms": PS_PER_MS,
    "us": PS_PER_US,
    "µs": PS_PER_US,
    "ns": PS_PER_NS,
    "ps": 1,
}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(min|s|ms|us|µs|ns|ps)?")


def _whole(number: str, factor: int, message: str) -> int:
    exact = Decimal(number) * factor
    if exact != exact.to_integral_value():
        raise ValueError(message)
    return int(exact)


def parse_rate(value: object) -> int:
    """`"100M"`, `"2.5G"`, `"10Gbit"` or an integer of bit/s -> bit/s (1 .. 10^13). Raises ValueError."""
    message = 'a rate is an integer of bit/s or a string such as "100M" or "10G"'
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(message)
    if isinstance(value, int):
        rate_bps = value
    else:
        match = _RATE.fullmatch(value.strip())
        if match is None:
            raise ValueError(message)
        rate_bps = _whole(match[1], _RATE_UNITS[match[2].upper()], "a rate is a whole number of bit/s")
    if not 1 <= rate_bps <= MAX_RATE_BPS:
        raise ValueError(f"a rate is 1 to {MAX_RATE_BPS} bit/s")
    return rate_bps


def format_rate(rate_bps: int) -> str:
    """The shortest exact spelling of a rate: 100000000 -> "100M"."""
    for unit, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3)):
        if rate_bps >= factor and rate_bps % factor == 0:
            return f"{rate_bps // factor}{unit}"
    return str(rate_bps)


def parse_time_ps(value: object) -> int:
    """`"500ms"`, `"2.5s"`, `"40us"`, or a bare number of seconds -> picoseconds, not negative. Raises ValueError."""
    message = 'a time is a number of seconds or a string such as "500ms", "2.5s" or "40us"'
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(message)
    match = _TIME.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(message)
    return _whole(match[1], _TIME_UNITS[match[2] or ""], "a time is a whole number of picoseconds")


def format_time_ps(time_ps: int) -> str:
    """The exact time in the largest unit that leaves a number of at least 1: 838_848_000 -> "838.848us"."""
    sign, magnitude = ("-", -time_ps) if time_ps < 0 else ("", time_ps)
    for unit, factor in (("s", PS_PER_S), ("ms", PS_PER_MS), ("us", PS_PER_US), ("ns", PS_PER_NS)):
        if magnitude >= factor:
            whole, part = divmod(magnitude, factor)
            digits = str(part).zfill(len(str(factor)) - 1).rstrip("0")
            return f"{sign}{whole}{'.' if digits else ''}{digits}{unit}"
    return f"{sign}{magnitude}ps" if magnitude else "0s"
