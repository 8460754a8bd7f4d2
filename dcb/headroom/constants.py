"""The constants of every headroom formula, each with its unit and source, and how to override them.

Pure data. `Constants` is an immutable set of values: `DEFAULTS.override({"response_quanta": 67})` makes another one. A
name is a scalar (`cable_ns_per_m`) or depends on the rate (`response_quanta`, in a table by bit/s); `NAME` overrides it
for every rate, `NAME.RATE` (`response_quanta.10G`) for one. Values are exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dcb.units import format_rate, parse_rate

M, G = 10**6, 10**9
QUANTUM_BITS = 512  # 802.1Qbb, 802.3 annex 31B: a pause quantum
PFC_FRAME_BYTES = 60  # without FCS
MIN_FRAME_BYTES = 60  # without FCS; a shorter one is padded by the MAC
WIRE_OVERHEAD_BYTES = 24  # FCS 4, preamble and start delimiter 8, inter-frame gap 12
KIB = 1024


class HeadroomError(ValueError):
    """A value that a formula cannot take; the message is `field: value: rule`."""


def fraction(name: str, value: object) -> Fraction:
    """`67`, `"0.8"`, `"1/2"` or a Fraction -> exact fraction, not negative. Floats go by their decimal spelling."""
    try:
        if isinstance(value, bool):
            raise ValueError
        result = value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise HeadroomError(f"{name}: {value!r}: a number such as 67, 0.8 or 1/2 is wanted") from None
    if result < 0:
        raise HeadroomError(f"{name}: {value}: must not be negative")
    return result


def at_least(name: str, value: int, low: int) -> int:
    """`value` if it is an integer >= low. Raises HeadroomError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise HeadroomError(f"{name}: {value!r}: an integer of at least {low} is wanted")
    return value


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant. `value` where it is a scalar, `by_rate` (bit/s -> value) where it depends on the rate."""

    name: str
    unit: str
    source: str
    value: Fraction | None = None
    by_rate: tuple[tuple[int, Fraction], ...] = ()


def _scalar(name: str, unit: str, value: str, source: str) -> Constant:
    return Constant(name, unit, source, Fraction(value))


def _table(name: str, unit: str, table: Mapping[int, int], source: str) -> Constant:
    return Constant(name, unit, source, None, tuple((rate, Fraction(value)) for rate, value in table.items()))


# 802.3 annex 31B: the time within which a MAC has to heed a pause. For three of the speeds we know SONiC's table only.
RESPONSE_QUANTA_STANDARD = {
    100 * M: 1, 1 * G: 2, 10 * G: 60, 25 * G: 80, 40 * G: 118, 50 * G: 147, 100 * G: 394, 200 * G: 453, 400 * G: 905,
    800 * G: 905,
}  # fmt: skip
RESPONSE_QUANTA_SONIC = RESPONSE_QUANTA_STANDARD | {10 * G: 67}

_CONSTANTS = (
    _scalar("cable_ns_per_m", "ns/m", "5", "802.1Q annex O: 5 ns/m (light in fibre or copper at 0.66 c)"),
    _scalar("pfc_frame_bits", "bit", "672", "802.1Qbb: 64 bytes, and 20 of preamble and gap"),
    _scalar("frame_overhead_bits", "bit", "160", "802.3: preamble and start delimiter 64, inter-frame gap 96"),
    _table(
        "interface_bits",
        "bit",
        {10 * G: 8192, 25 * G: 6144, 40 * G: 24576, 100 * G: 122880},
        "802.3 delay constraints of MAC, PCS and PMD together, one end, as used with 802.1Q annex O",
    ),
    _table(
        "response_quanta",
        "quanta",
        RESPONSE_QUANTA_STANDARD,
        "802.3 annex 31B (10G 60, 25G 80, 40G 118, 100G 394, 400G 905); 50G, 200G and 800G as SONiC has them",
    ),
    _table(
        "sonic_pause_quanta",
        "quanta",
        RESPONSE_QUANTA_SONIC,
        "SONiC sonic-swss cfgmgr/buffer_headroom_mellanox.lua: 67 at 10G where the standard has 60; 800G repeats 400G",
    ),
    _scalar("light_m_per_s", "m/s", "198000000", "SONiC sonic-swss cfgmgr/buffer_headroom_mellanox.lua"),
    _scalar("sonic_min_packet_bytes", "byte", "64", "SONiC sonic-swss cfgmgr/buffer_headroom_mellanox.lua"),
    _scalar("sonic_gearbox_delay", "KiB/(Mb/s)", "0", "SONiC: ASIC_TABLE/PERIPHERAL_TABLE, no gearbox by default"),
    _scalar("resume_delay_ns", "ns", "1000", "article on RoCE, 3.2: time to resume 1 us"),
    _scalar("xoff_margin", "1", "1/10", "article on RoCE, 3.2: safety margin of 10%"),
    _scalar("watchdog_factor", "1", "3", "article on RoCE, 3.2: three times the longest network latency"),
)


@dataclass(frozen=True, slots=True)
class Constants:
    """A set of constants. Look up with `get`; `source` says where a value is from, an override included."""

    table: tuple[Constant, ...] = _CONSTANTS

    def __iter__(self) -> Iterator[Constant]:
        return iter(self.table)

    def named(self, name: str) -> Constant:
        """A constant by name. Raises HeadroomError, naming those there are."""
        for constant in self.table:
            if constant.name == name:
                return constant
        known = ", ".join(constant.name for constant in self.table)
        raise HeadroomError(f"constant: {name!r}: not known (known: {known})")

    def get(self, name: str, rate_bps: int | None = None) -> Fraction:
        """The value, at `rate_bps` where it depends on the rate. Raises HeadroomError where no value is known."""
        constant = self.named(name)
        if constant.value is not None:
            return constant.value
        found = dict(constant.by_rate).get(rate_bps or 0)
        if found is None:
            shown = format_rate(rate_bps) if rate_bps else "no rate"
            known = ", ".join(format_rate(rate) for rate, _ in constant.by_rate)
            raise HeadroomError(
                f"{name}: {shown}: no value is known for this rate (known: {known}); "
                f"give one with {name}=NUMBER ({constant.unit})"
            )
        return found

    def source(self, name: str) -> str:
        """Where the value is from."""
        return self.named(name).source

    def override(self, values: Mapping[str, object]) -> Constants:
        """Other values: NAME for every rate, NAME.RATE for one. Raises HeadroomError on a name or value at fault."""
        table = {constant.name: constant for constant in self.table}
        for key, value in values.items():
            name, dot, rate_text = key.partition(".")
            constant = self.named(name)
            number = fraction(key, value)
            if not dot:
                table[name] = Constant(name, constant.unit, "given", number)
                continue
            if constant.value is not None:
                raise HeadroomError(f"constant: {key!r}: {name} does not depend on the rate")
            try:
                rate_bps = parse_rate(rate_text)
            except ValueError as error:
                raise HeadroomError(f"constant: {key!r}: {error}") from None
            kept = dict(table[name].by_rate) | {rate_bps: number}
            source = f"{constant.source}; {format_rate(rate_bps)} given"
            table[name] = Constant(name, constant.unit, source, None, tuple(kept.items()))
        return Constants(tuple(table.values()))


DEFAULTS = Constants()
