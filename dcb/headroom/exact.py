"""Headroom of OUR switch to the byte: the worst case of the traffic manager's own rules (docs/contract.md, section 4).

Sans-IO, integers. No cells, no interface delays: the traffic manager counts the bytes of whole frames without FCS,
charges a frame when it has arrived, and a frame of L bytes occupies the wire for w(L) = (max(L, 60) + 24) * 8 bit
times.

Derivation. A peer sends lossless frames back to back at rate r over a link of delay d; nothing of the group drains.

1. Crossing. The frame whose arrival takes the group to XOFF or beyond (time 0) found at most xoff - 1 bytes there. Of
   its L bytes all but one go to headroom: L - 1. (With a dynamic threshold other groups may have lowered the threshold
   below what the group holds without anything being evaluated; then all L do.)
2. PFC frame. It goes ahead of all queues, but waits for the frame on the wire. That one started before time 0, at the
   latest 1 ps before (an arrival at t is seen before any departure at t): wait = w(M) - 1 ps for the largest frame M of
   any priority that this side sends, at least a PFC frame: another group's, or the last one again. Then w(60) on the
   wire and d on the cable.
3. Response. The pause closes the peer's gate `response` later, at T = wait + w(60) + d + response. A frame that has
   started by then, before T and not at T, is finished.
4. In flight. A frame is delivered at the end of its FCS, 12 bytes of gap before the end of w (`fabric` does so). The
   crossing frame arrived at 0, so the next one, right behind its gap, starts at gap - d; the PFC frame takes w(60) less
   its gap. The peer starts frames at times s in [gap - d, T), a window of W = wait + w(60) - 2 gap + 2 d + response.
   (`gap_counts`: frames are delivered with their gap, as Output.end_ps has it; then W = wait + w(60) + 2 d + response.)
5. Bytes. Of the frames that start in [0, W), all but the last have wire time below W together; the last one is free: L
   bytes. For equal frames their number is ceil(W / w(L)). For the worst mix: let B be the most wire bytes that take
   less than W; n frames in B carry B - 24 n, so the fewest frames that can fill B, or as many full ones as fit,
   whichever is more.

Headroom = (1.) + (5.). It is tight: `uniform_headroom` gives, for a stream of equal frames into an empty group, what a
run in virtual time must show to the byte, and one byte less drops the last frame.
"""

from __future__ import annotations

from fractions import Fraction

from dcb.headroom.budget import PS_PER_S, Budget, Line, bits_of, ceil_div
from dcb.headroom.constants import (
    DEFAULTS,
    MIN_FRAME_BYTES,
    PFC_FRAME_BYTES,
    QUANTUM_BITS,
    WIRE_OVERHEAD_BYTES,
    Constants,
    HeadroomError,
    at_least,
    fraction,
)

METHOD = "exact"
_GAP_BYTES = 12
_SOURCE = "docs/contract.md, section 4"


def wire_bytes(frame_bytes: int) -> int:
    """Bytes of wire that a frame (without FCS) occupies: padding, FCS, preamble and gap included."""
    return max(frame_bytes, MIN_FRAME_BYTES) + WIRE_OVERHEAD_BYTES


def wire_ps(frame_bytes: int, rate_bps: int) -> int:
    """Time that a frame occupies the wire, rounded up to a picosecond."""
    return ceil_div(Fraction(wire_bytes(frame_bytes) * 8 * PS_PER_S, rate_bps))


def link_ps(length_m: Fraction | int | str, constants: Constants = DEFAULTS) -> int:
    """Delay of a cable one way, rounded up to a picosecond."""
    return ceil_div(fraction("length_m", length_m) * constants.get("cable_ns_per_m") * 1000)


def window_ps(
    rate_bps: int,
    delay_ps: int,
    *,
    reverse_mtu_bytes: int,
    response_ps: int = 0,
    wait_ps: int | None = None,
    pfc_frame_bytes: int = PFC_FRAME_BYTES,
    gap_counts: bool = False,
) -> int:
    """W: how long after the frame behind the crossing one the peer goes on starting frames (step 4); 0 at least.

    delay_ps: link one way. reverse_mtu_bytes: largest frame that this side sends, 0 for none. wait_ps: what the PFC
    frame waits, where it is known; default the worst. response_ps: of the peer. Sizes without FCS.
    """
    at_least("rate_bps", rate_bps, 1)
    if wait_ps is None:
        wait_ps = wire_ps(reverse_mtu_bytes, rate_bps) - 1 if reverse_mtu_bytes else 0
    pfc = wire_bytes(pfc_frame_bytes) - (0 if gap_counts else 2 * _GAP_BYTES)
    total = (
        at_least("wait_ps", wait_ps, 0)
        + 2 * at_least("delay_ps", delay_ps, 0)
        + at_least("response_ps", response_ps, 0)
    )
    return max(0, total + int(Fraction(pfc * 8 * PS_PER_S, rate_bps)))


def frames_in_window(window: int, rate_bps: int, frame_bytes: int) -> int:
    """Number of equal frames, back to back from time 0, that start before `window` ps."""
    return ceil_div(bits_of(window, rate_bps) / 8, wire_bytes(frame_bytes))


def uniform_headroom(window: int, rate_bps: int, frame_bytes: int, xoff_bytes: int, held_bytes: int = 0) -> int:
    """Headroom that a stream of equal frames takes of a static group: what runs in virtual time have to show.

    window: of `window_ps`. held_bytes: in the group before the first frame; below xoff_bytes.
    """
    if not 0 <= held_bytes < xoff_bytes:
        raise HeadroomError(f"held_bytes: {held_bytes}: 0 <= held < xoff {xoff_bytes} is wanted")
    crossing = ceil_div(xoff_bytes - held_bytes, frame_bytes)
    beyond = held_bytes + crossing * frame_bytes - xoff_bytes
    return beyond + frames_in_window(window, rate_bps, frame_bytes) * frame_bytes


def worst_inflight(
    window: int, rate_bps: int, mtu_bytes: int, min_frame_bytes: int = MIN_FRAME_BYTES
) -> tuple[int, int]:
    """(bytes, frames) that can start in [0, window) at worst, any mix of min_frame_bytes..mtu_bytes (step 5)."""
    at_least("min_frame_bytes", min_frame_bytes, MIN_FRAME_BYTES)
    at_least("mtu_bytes", mtu_bytes, min_frame_bytes)
    if window <= 0:
        return 0, 0
    before = ceil_div(bits_of(window, rate_bps) / 8) - 1  # wire bytes that take less than the window
    full = before // wire_bytes(mtu_bytes)
    best, frames = full * mtu_bytes, full
    if before >= (full + 1) * wire_bytes(min_frame_bytes):
        mixed = before - (full + 1) * WIRE_OVERHEAD_BYTES
        if mixed > best:
            best, frames = mixed, full + 1
    return best + mtu_bytes, frames + 1


def exact_headroom(
    rate_bps: int,
    length_m: Fraction | int | str,
    *,
    mtu_bytes: int = 9216,
    reverse_mtu_bytes: int | None = None,
    min_frame_bytes: int = MIN_FRAME_BYTES,
    response_ps: int = 0,
    pfc_frame_bytes: int = PFC_FRAME_BYTES,
    dynamic: bool = False,
    gap_counts: bool = False,
    constants: Constants = DEFAULTS,
) -> Budget:
    """Worst-case headroom of one lossless group of our switch. Sizes without FCS; raises HeadroomError.

    mtu_bytes: largest lossless frame of the peer; min_frame_bytes: smallest. reverse_mtu_bytes: largest frame that this
    side sends to the peer (default: mtu_bytes; 0: PFC frames alone). response_ps: from the arrival of the PFC frame to
    the closed gate (0 for dcbswitch). dynamic: an alpha threshold. gap_counts: a frame is delivered after its
    inter-frame gap (Output.end_ps).
    """
    at_least("rate_bps", rate_bps, 1)
    reverse = mtu_bytes if reverse_mtu_bytes is None else at_least("reverse_mtu_bytes", reverse_mtu_bytes, 0)
    reverse = max(reverse, pfc_frame_bytes)
    delay = link_ps(length_m, constants)
    window = window_ps(
        rate_bps,
        delay,
        reverse_mtu_bytes=reverse,
        response_ps=response_ps,
        pfc_frame_bytes=pfc_frame_bytes,
        gap_counts=gap_counts,
    )
    inflight, frames = worst_inflight(window, rate_bps, mtu_bytes, min_frame_bytes)
    crossing = mtu_bytes if dynamic else mtu_bytes - 1

    def bits(time_ps: int) -> Fraction:
        return bits_of(time_ps, rate_bps)

    wait = window_ps(rate_bps, 0, reverse_mtu_bytes=reverse, pfc_frame_bytes=pfc_frame_bytes)
    wait -= window_ps(rate_bps, 0, reverse_mtu_bytes=0, pfc_frame_bytes=pfc_frame_bytes)
    pfc = wire_bytes(pfc_frame_bytes) - (0 if gap_counts else 2 * _GAP_BYTES)
    lines = [
        Line("crossing frame, beyond XOFF", Fraction(crossing * 8), f"mtu {mtu_bytes}" + ("" if dynamic else " - 1")),
        Line("frame just leaving", bits(wait), f"largest frame sent {reverse} + {WIRE_OVERHEAD_BYTES}; {_SOURCE}"),
        Line(
            "PFC frame",
            Fraction(pfc * 8),
            f"{pfc_frame_bytes} + {WIRE_OVERHEAD_BYTES} bytes"
            + ("" if gap_counts else ", less two gaps of 12")
            + f"; {_SOURCE}",
        ),
        Line("cable, there and back", bits(2 * delay), constants.source("cable_ns_per_m")),
        Line("peer's response", bits(response_ps), f"{response_ps} ps, given"),
        Line("last frame started by the peer", Fraction(mtu_bytes * 8 if frames else 0), f"mtu {mtu_bytes}"),
    ]
    overhead = -WIRE_OVERHEAD_BYTES * max(frames - 1, 0)
    lines.append(Line("wire overhead of the frames before it", Fraction(overhead * 8), f"{frames - 1} frames"))
    rest = crossing + inflight - sum((line.bits for line in lines), Fraction(0)) / 8
    lines.append(Line("what no whole frame fills", rest * 8, "rounded down: only whole frames count"))
    return Budget(
        METHOD,
        rate_bps,
        tuple(lines),
        crossing + inflight,
        {"window_ps": window, "frames": frames, "inflight_bytes": inflight},
    )


def min_quanta(reverse_mtu_bytes: int) -> int:
    """Smallest pause time (quanta) of our switch for which the refresh, sent after half of it, is never too late.

    The refresh waits behind a frame of reverse_mtu_bytes at worst, and is never sooner than two PFC frames after the
    one before: the pause has to last for max(quanta / 2, two PFC frames) + w(M). At any rate; 65535 is the most.
    """
    waits = wire_bytes(reverse_mtu_bytes) * 8 if reverse_mtu_bytes else 0
    for_half = ceil_div(Fraction(2 * waits, QUANTUM_BITS))
    for_two = ceil_div(Fraction(2 * wire_bytes(PFC_FRAME_BYTES) * 8 + waits, QUANTUM_BITS))
    return min(max(for_half, for_two), 0xFFFF)
