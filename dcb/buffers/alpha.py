"""Dynamic thresholds by name: the exponent that our switch and SONiC use, and the spellings of others. Pure functions.

A group may hold 2^alpha of what is free in its pool. `alpha` is the exponent, -8..7 over P4Runtime as SONiC's
`dynamic_th`.
"""

from __future__ import annotations

import re
from fractions import Fraction

ALPHA_MIN, ALPHA_MAX = -8, 7
# Index 0..7 of `qos buffer alpha`, as the PFC article configures a CE switch. No page of Huawei's with the table was
# found; these are the first eight steps of the merchant silicon that such switches are built on, 1/128 to 1. Not
# verified.
HUAWEI_ALPHA = {index: index - 7 for index in range(8)}
_NAMED = re.compile(r"(sonic|huawei):(-?[0-9]+)")
_RATIO = re.compile(r"([0-9]+)/([0-9]+)")


def parse_alpha(value: object) -> object:
    """Exponent, `"1/4"` or `"4/1"`, `"sonic:-2"`, `"huawei:5"` -> exponent. ValueError; no string: as it is."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if match := _NAMED.fullmatch(text):
        kind, number = match[1], int(match[2])
        if kind == "huawei":
            if number not in HUAWEI_ALPHA:
                raise ValueError("huawei:0 .. huawei:7 is wanted")
            return HUAWEI_ALPHA[number]
        if not ALPHA_MIN <= number <= ALPHA_MAX:
            raise ValueError(f"sonic:{ALPHA_MIN} .. sonic:{ALPHA_MAX} is wanted")
        return number
    if match := _RATIO.fullmatch(text):
        up, down = int(match[1]), int(match[2])
        if up and down and (max(up, down) % min(up, down) == 0) and (ratio := max(up, down) // min(up, down)):
            exponent = ratio.bit_length() - 1
            if 1 << exponent == ratio:
                return exponent if up >= down else -exponent
    raise ValueError('an exponent -8..7, a power of two such as "1/4", "sonic:-2" or "huawei:5" is wanted')


def share(alpha: int) -> Fraction:
    """2^alpha."""
    return Fraction(2) ** alpha


def threshold(pool_bytes: int, alpha: int, congested_groups: int) -> int:
    """Bytes that each of n equal groups holds when all are at their threshold: 2^a * pool / (1 + n * 2^a)."""
    factor = share(alpha)
    return int(factor * pool_bytes / (1 + congested_groups * factor))
