"""The rules of thumb of the deployment article (R18): XOFF, XON, watchdog time; and what a threshold costs (R13).

Pure functions in exact arithmetic. They give thresholds, not headroom: an XOFF of RTT x rate keeps the link busy; what
is in flight after XOFF comes on top (`delay_headroom`, `exact_headroom`).

The article's example, 100 Gb/s and 2 us, says "2 us x 100 Gb/s + 10% = 25 KB". The product alone is 25 KB; with the
margin that the formula names it is 27.5 KB. We compute the formula; margin 0 gives the printed number. Its XON, 12.5
KB, starts from 25 KB.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dcb.headroom.budget import PS_PER_S, ceil_div
from dcb.headroom.constants import DEFAULTS, HeadroomError, at_least, fraction

WATCHDOG_CLOS_3_TIER_MS = 50  # the article's setting for a three-tier Clos


def xoff_bytes(rate_bps: int, rtt_ps: int, margin: Fraction | int | str | None = None) -> int:
    """XOFF = rtt x rate x (1 + margin), rounded up. margin: a fraction, default 1/10 (`xoff_margin`); 0 for none."""
    at_least("rate_bps", rate_bps, 1)
    at_least("rtt_ps", rtt_ps, 0)
    share = DEFAULTS.get("xoff_margin") if margin is None else fraction("margin", margin)
    return ceil_div(Fraction(rate_bps * rtt_ps, 8 * PS_PER_S) * (1 + share))


def xon_bytes(xoff: int, rate_bps: int, resume_delay_ps: int | None = None) -> int:
    """XON = XOFF - resume delay x rate, rounded down. resume_delay_ps: default 1 us.

    Raises HeadroomError where that is negative: such an XOFF cannot keep the link busy through a resume.
    """
    at_least("rate_bps", rate_bps, 1)
    delay_ps = int(DEFAULTS.get("resume_delay_ns") * 1000) if resume_delay_ps is None else resume_delay_ps
    drained = ceil_div(Fraction(rate_bps * at_least("resume_delay_ps", delay_ps, 0), 8 * PS_PER_S))
    if drained > xoff:
        raise HeadroomError(f"xoff: {xoff}: below the {drained} bytes that go out in the resume delay of {delay_ps} ps")
    return xoff - drained


def watchdog_ps(longest_latency_ps: int, factor: Fraction | int | str | None = None) -> int:
    """Watchdog time = factor (3) x the longest latency of the network, rounded up."""
    at_least("longest_latency_ps", longest_latency_ps, 0)
    times = DEFAULTS.get("watchdog_factor") if factor is None else fraction("factor", factor)
    return ceil_div(longest_latency_ps * times)


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """What a threshold costs. Times in picoseconds, sizes in bytes."""

    queueing_ps: int  # delay of a frame behind a full XOFF level that drains at the rate
    needed_xoff_bytes: int  # rtt x rate: below it the link idles between XON and the first new frame
    throughput: Fraction  # share of the rate that a flow reaches at this XOFF, at most 1
    groups: int  # how many groups at this XOFF, with their headroom, the buffer holds at once


def tradeoff(rate_bps: int, rtt_ps: int, xoff: int, headroom_bytes: int, buffer_bytes: int) -> Tradeoff:
    """R13: a high threshold costs latency and buffer, a low one throughput.

    Model: the sender goes silent at XOFF and its data is back one round trip after XON; XOFF bytes drain in the
    meantime, so the share of the rate is min(1, xoff / (rtt x rate)).
    """
    at_least("rate_bps", rate_bps, 1)
    at_least("xoff", xoff, 1)
    at_least("headroom_bytes", headroom_bytes, 0)
    needed = ceil_div(Fraction(rate_bps * at_least("rtt_ps", rtt_ps, 0), 8 * PS_PER_S))
    share = Fraction(1) if needed <= xoff else Fraction(xoff, needed)
    queueing = ceil_div(Fraction(xoff * 8 * PS_PER_S, rate_bps))
    return Tradeoff(queueing, needed, share, at_least("buffer_bytes", buffer_bytes, 0) // (xoff + headroom_bytes))
