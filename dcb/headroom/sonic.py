"""SONiC's dynamic headroom: the formula of its buffer manager, in exact arithmetic, with the parameters of its ASICs.

Behaviour reference: sonic-swss cfgmgr/buffer_headroom_mellanox.lua (the virtual switch uses the same), versions named
in the project's notes. The share of small packets is given by count and converted to bytes, as the code does and the
design document does not. Sizes are rounded up to KiB. `xoff` is the headroom proper, `size` what a SONiC profile
reserves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dcb.headroom.budget import Budget, Line, ceil_div
from dcb.headroom.constants import DEFAULTS, KIB, QUANTUM_BITS, Constants, HeadroomError, at_least, fraction
from dcb.units import format_rate

METHOD = "sonic"
_EXTRA_BYTES = 2 * KIB


@dataclass(frozen=True, slots=True)
class Asic:
    """Parameters of an ASIC, sizes in KiB where SONiC's ASIC_TABLE has KiB."""

    name: str
    cell_bytes: int
    pipeline_latency_kib: Fraction
    mac_phy_kib: Fraction
    peer_response_kib: Fraction
    source: str
    rate_term_bytes: int = 0  # per Gb/s: speed/1000 * 15 B of Spectrum-4 and -5
    xoff_extra_kib: int = 0  # Spectrum-6


_MELLANOX = "SONiC platform/mellanox/asic_table.j2"


def _spectrum(name: str, cell: int, pipeline: int = 19, rate_term: int = 0, extra: int = 0) -> Asic:
    return Asic(name, cell, Fraction(pipeline), Fraction("0.8"), Fraction("3.8"), _MELLANOX, rate_term, extra)


ASICS = {
    asic.name: asic
    for asic in (
        _spectrum("spectrum-1", 96),
        _spectrum("spectrum-2", 144),
        _spectrum("spectrum-3", 144),
        _spectrum("spectrum-4", 192, rate_term=15),
        _spectrum("spectrum-5", 192, rate_term=15),
        _spectrum("spectrum-6", 256, pipeline=42, extra=18),
        replace(
            _spectrum("vs", 128, pipeline=18),
            source="SONiC platform/vs/docker-sonic-vs/asic_table.json (cell, pipeline)",
        ),
    )
}


def asic(name: str) -> Asic:
    """The parameters of an ASIC by name. Raises HeadroomError."""
    if name not in ASICS:
        raise HeadroomError(f"asic: {name!r}: not known (known: {', '.join(ASICS)})")
    return ASICS[name]


def worst_cell_factor(cell_bytes: int, min_packet_bytes: Fraction) -> int:
    """Factor by which small packets swell in cells: ceil(cell / 64) above twice 64, else ceil(2 cell / (1 + cell))."""
    if cell_bytes > 2 * min_packet_bytes:
        return ceil_div(cell_bytes / min_packet_bytes)
    return ceil_div(Fraction(2 * cell_bytes, 1 + cell_bytes))


def sonic_headroom(
    rate_bps: int,
    length_m: Fraction | int | str,
    *,
    asic: Asic = ASICS["spectrum-1"],
    mtu_bytes: int = 9100,
    lossless_mtu_bytes: int = 1024,
    small_packet_percent: int = 50,
    shared_headroom_pool: bool = False,
    lanes: int = 4,
    constants: Constants = DEFAULTS,
) -> Budget:
    """Headroom (`xoff`), `xon` and `size` of a lossless profile.

    mtu_bytes: MTU of the port. lossless_mtu_bytes, small_packet_percent (0..100, by count): LOSSLESS_TRAFFIC_PATTERN.
    lanes: 8 doubles xon. Raises HeadroomError.
    """
    if at_least("small_packet_percent", small_packet_percent, 0) > 100:
        raise HeadroomError(f"small_packet_percent: {small_packet_percent}: 0..100")
    at_least("rate_bps", rate_bps, 1)
    at_least("mtu_bytes", mtu_bytes, 64)
    at_least("lossless_mtu_bytes", lossless_mtu_bytes, 64)
    length, cell = fraction("length_m", length_m), asic.cell_bytes
    smallest = constants.get("sonic_min_packet_bytes")
    worst = worst_cell_factor(cell, smallest)
    mean = (small_packet_percent * smallest + (100 - small_packet_percent) * lossless_mtu_bytes) / 100
    small_share = smallest / mean  # as the code has it: the percentage is in the mean alone
    occupancy = 1 - small_share + small_share * worst
    speed_mbps = Fraction(rate_bps, 10**6)
    try:
        peer, peer_source = constants.get("sonic_pause_quanta", rate_bps) * QUANTUM_BITS / 8, "pause quanta of the rate"
    except HeadroomError:
        peer, peer_source = asic.peer_response_kib * KIB, f"peer_response {asic.peer_response_kib} KiB; {asic.source}"
    cable = 2 * length * rate_bps / 8 / constants.get("light_m_per_s")
    gearbox = 2 * speed_mbps * constants.get("sonic_gearbox_delay") / (8 * KIB)
    terms = [
        ("frame just leaving", Fraction(mtu_bytes), f"port mtu {mtu_bytes}"),
        ("cable, there and back", cable, constants.source("light_m_per_s")),
        ("gearbox, both ends", gearbox, constants.source("sonic_gearbox_delay")),
        ("MAC and PHY", asic.mac_phy_kib * KIB, f"{asic.mac_phy_kib} KiB; {asic.source}"),
        ("peer's response", peer, peer_source),
    ]
    if asic.rate_term_bytes:
        rate_term = speed_mbps / 1000 * asic.rate_term_bytes
        terms.append(("ASIC's rate term", rate_term, f"{asic.rate_term_bytes} bytes per Gb/s; {asic.source}"))
    propagation = sum((value for _, value, _ in terms), Fraction(0))
    plain = lossless_mtu_bytes + propagation * occupancy
    xoff = ceil_div(plain, KIB) * KIB
    rounding = xoff - plain
    xoff += asic.xoff_extra_kib * KIB
    ceiling = ceil_div(lossless_mtu_bytes + propagation * worst, KIB) * KIB
    extra = 0
    if not shared_headroom_pool and small_packet_percent != 100 and xoff + _EXTRA_BYTES < ceiling:
        extra = _EXTRA_BYTES
    xoff += extra
    xon = ceil_div(asic.pipeline_latency_kib * KIB, KIB) * KIB * (2 if lanes == 8 else 1)
    size = xon if shared_headroom_pool else xoff + xon + (mtu_bytes if lanes == 8 else 0)
    lines = [Line("lossless frame", Fraction(lossless_mtu_bytes * 8), "LOSSLESS_TRAFFIC_PATTERN mtu")]
    lines += [Line(name, value * 8, source) for name, value, source in terms]
    swell = propagation * (occupancy - 1) * 8
    lines.append(
        Line("cell occupancy", swell, f"x {float(occupancy):.4f}: small packets swell x {worst} in {cell} bytes")
    )
    lines.append(Line("rounding to KiB", rounding * 8, f"at {format_rate(rate_bps)}"))
    if asic.xoff_extra_kib:
        lines.append(Line("ASIC's addition", Fraction(asic.xoff_extra_kib * KIB * 8), asic.source))
    if extra:
        lines.append(Line("margin", Fraction(extra * 8), "2 KiB where all small packets would need more"))
    return Budget(METHOD, rate_bps, tuple(lines), xoff, {"xon_bytes": xon, "size_bytes": size, "cell_bytes": cell})
