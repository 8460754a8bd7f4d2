"""An itemised headroom budget: what each line costs in bits, bytes and nanoseconds at the rate, and where it is from.

Pure data; every method of this package returns one. `Budget.headroom_bytes` is what to configure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

PS_PER_S = 10**12
PS_PER_NS = 1000


def ceil_div(value: Fraction | int, unit: int = 1) -> int:
    """Smallest integer n with n * unit >= value."""
    exact = Fraction(value) / unit
    return -(-exact.numerator // exact.denominator)


def bits_of(time_ps: Fraction | int, rate_bps: int) -> Fraction:
    """Bits that a link of `rate_bps` carries in `time_ps`."""
    return Fraction(time_ps) * rate_bps / PS_PER_S


@dataclass(frozen=True, slots=True)
class Line:
    """One term. `bits` may be negative (what a rounding or an overhead takes away again)."""

    name: str
    bits: Fraction
    source: str
    counted: bool = True  # False: part of a sum that another line already has (shown for the reader)

    @property
    def bytes(self) -> Fraction:
        """Exact, not rounded."""
        return self.bits / 8

    def ns(self, rate_bps: int) -> Fraction:
        """Time that the bits take at the rate."""
        return self.bits * 10**9 / rate_bps


@dataclass(frozen=True, slots=True)
class Budget:
    """The result of a method. `values`: further results in bytes (or as named), such as xon or the window."""

    method: str
    rate_bps: int
    lines: tuple[Line, ...]
    headroom_bytes: int
    values: Mapping[str, int] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Plain data for JSON: bits exact where whole, else a decimal; bytes; ns as decimals with three digits."""
        return {
            "method": self.method,
            "rate_bps": self.rate_bps,
            "lines": [
                {
                    "name": line.name,
                    "bits": _number(line.bits),
                    "bytes": _number(line.bytes),
                    "ns": _number(line.ns(self.rate_bps)),
                    "counted": line.counted,
                    "source": line.source,
                }
                for line in self.lines
            ],
            "headroom_bytes": self.headroom_bytes,
            **self.values,
        }


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(round(value, 3))


def decimal(value: Fraction, digits: int = 1) -> str:
    """A fraction with a fixed number of decimals, thousands separators, rounded half up in exact arithmetic."""
    scaled = abs(value) * 10**digits
    whole, part = divmod(int(scaled + Fraction(1, 2)), 10**digits)
    sign = "-" if value < 0 and (whole or part) else ""
    return f"{sign}{whole:,}" + (f".{part:0{digits}d}" if digits else "")
