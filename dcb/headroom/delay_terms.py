"""Headroom by delay terms, in the manner of 802.1Q annex O: what can still arrive after the threshold is crossed.

Sans-IO, exact. Conservative by construction: every term counts at the full rate, wire overhead counts as buffer. The
bits in flight from the crossing until the peer is silent are

    frame just leaving (the PFC frame cannot pre-empt it) + PFC frame + 2 interface delays + cable there and back
    + the peer's response time + one lossless frame that the peer has just started

and a buffer made of cells stores a frame of L bytes in ceil(L / cell) cells, so the sum grows by the worst ratio.
Sizes: MTU here is the whole frame with FCS, as the standards count; the result in bytes is rounded up to cells.
"""

from __future__ import annotations

from fractions import Fraction

from dcb.headroom.budget import Budget, Line, ceil_div
from dcb.headroom.constants import DEFAULTS, QUANTUM_BITS, Constants, HeadroomError, at_least, fraction

METHOD = "delay"


def worst_cell_ratio(cell_bytes: int, smallest_bytes: int, largest_bytes: int) -> Fraction:
    """Largest ceil(L / cell) * cell / L over frames of smallest..largest bytes; 1 for a cell of 1 byte.

    The ratio is largest just past a multiple of the cell (L = k * cell + 1), and falls with k.
    """
    cell = at_least("cell_bytes", cell_bytes, 1)
    past_a_multiple = -(-(smallest_bytes - 1) // cell) * cell + 1
    candidates = [size for size in (smallest_bytes, past_a_multiple) if size <= largest_bytes]
    return max(Fraction(-(-size // cell) * cell, size) for size in candidates)


def delay_headroom(
    rate_bps: int,
    length_m: Fraction | int | str,
    *,
    mtu_out_bytes: int = 9216,
    mtu_in_bytes: int = 9216,
    min_frame_bytes: int = 64,
    cell_bytes: int = 1,
    constants: Constants = DEFAULTS,
) -> Budget:
    """Headroom of one priority group of a port.

    rate_bps: rate of the link. length_m: cable one way, metres. mtu_out_bytes: largest frame (with FCS) of any priority
    that this side may be sending; mtu_in_bytes: largest lossless frame of the peer; min_frame_bytes: its smallest.
    cell_bytes: unit of the buffer, 1 for one that counts bytes. Raises HeadroomError.
    """
    at_least("rate_bps", rate_bps, 1)
    at_least("min_frame_bytes", min_frame_bytes, 1)
    at_least("mtu_out_bytes", mtu_out_bytes, 64)
    if at_least("mtu_in_bytes", mtu_in_bytes, 64) < min_frame_bytes:
        raise HeadroomError(f"mtu_in_bytes: {mtu_in_bytes}: must not be below min_frame_bytes {min_frame_bytes}")
    length = fraction("length_m", length_m)
    overhead = constants.get("frame_overhead_bits")
    interface = constants.get("interface_bits", rate_bps)
    cable = 2 * length * constants.get("cable_ns_per_m") * rate_bps / 10**9
    quanta = constants.get("response_quanta", rate_bps)
    lines = [
        Line("frame just leaving", mtu_out_bytes * 8 + overhead, f"mtu out {mtu_out_bytes} bytes; 802.1Q annex O"),
        Line("PFC frame", constants.get("pfc_frame_bits"), constants.source("pfc_frame_bits")),
        Line("interface delay, both ends", 2 * interface, constants.source("interface_bits")),
        Line("cable, there and back", cable, constants.source("cable_ns_per_m")),
        Line("peer's response", quanta * QUANTUM_BITS, f"{quanta} quanta; {constants.source('response_quanta')}"),
        Line("frame just started by the peer", mtu_in_bytes * 8 + overhead, f"mtu in {mtu_in_bytes} bytes"),
    ]
    bits = sum((line.bits for line in lines), Fraction(0))
    ratio = worst_cell_ratio(cell_bytes, min_frame_bytes, mtu_in_bytes)
    total_bytes = ceil_div(bits * ratio / 8, cell_bytes) * cell_bytes
    if cell_bytes == 1:
        rounding = "rounded up to a byte"
    else:
        rounding = f"cells of {cell_bytes} bytes hold frames of {min_frame_bytes}..{mtu_in_bytes}: at worst x {ratio}"
    lines.append(Line("cell rounding", total_bytes * 8 - bits, rounding))
    return Budget(METHOD, rate_bps, tuple(lines), total_bytes, {"cell_bytes": cell_bytes})
