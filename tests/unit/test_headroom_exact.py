"""The exact method against the real switch core in virtual time: planned headroom loses nothing, a byte less loses a
frame.

The peer is modelled here in a few lines: it starts frames back to back, delivers each a wire time and a link delay
later, and starts none from the moment on that a PFC frame has closed its gate.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, repeat

import pytest
from dcb_switch import RATE_BPS, DcbSwitch, data

from dcb.headroom import HeadroomError, exact_headroom
from dcb.headroom.exact import (
    frames_in_window,
    link_ps,
    min_quanta,
    uniform_headroom,
    window_ps,
    wire_ps,
    worst_inflight,
)

PS_PER_BYTE = 200  # 40 Gb/s
GAP_PS = 12 * PS_PER_BYTE  # delivered at the end of the FCS, as the fabric does
G = 10**9
XOFF, XON = 20_000, 10_000
GROUP = 1 * 8 + 3


@dataclass
class Run:
    """What a run showed."""

    frames: int  # that the peer sent
    headroom_used: int
    dropped: int


def run(headroom: int, sizes: list[int], *, length_m: int, reverse: int, response_ps: int = 0) -> Run:
    """The peer sends `sizes`, then the last of them for ever; port 2 is stuck. reverse: frame on the wire."""
    switch = DcbSwitch()
    try:
        switch.static_group(1, 3, 0, XOFF, XON, headroom)
        switch.send_pfc(1, 1 << 3)
        switch.hold(2)
        delay = 5000 * length_m
        held, crossing_ps, start = 0, 0, 0
        for size in chain(sizes, repeat(sizes[-1])):  # when the crossing frame arrives
            start += wire_ps(size, RATE_BPS)
            held += size
            if held >= XOFF:
                crossing_ps = start - GAP_PS + delay
                break
        events: list[tuple[int, int, str, int]] = [(0, 1, "start", 0)]
        if reverse:
            heapq.heappush(events, (crossing_ps - 1, 0, "reverse", reverse))
        gate_ps = None
        sent, arrived = 0, 0
        while events:
            now, _, kind, size = heapq.heappop(events)
            for output in switch.until(now - 1) if now else []:
                if output.frame[:6].hex() == "0180c2000001" and gate_ps is None:
                    gate_ps = output.end_ps - GAP_PS + delay + response_ps
            if kind == "reverse":
                switch.receive(3, data(size, priority=0, to=1, source=3), now)
            elif kind == "arrive":
                switch.receive(1, data(size), now)
                arrived += 1
            elif gate_ps is None or now < gate_ps:
                size = sizes[min(sent, len(sizes) - 1)]
                sent += 1
                end = now + wire_ps(size, RATE_BPS)
                heapq.heappush(events, (end - GAP_PS + delay, 2, "arrive", size))
                heapq.heappush(events, (end, 1, "start", 0))
            assert sent < 10_000
        assert arrived == sent
        return Run(
            sent,
            switch.state("egress.tm_pg_headroom_watermark", GROUP),
            switch.count("egress.tm_drop_headroom", GROUP)[0],
        )
    finally:
        switch.service.close()


@pytest.mark.parametrize(
    ("size", "length_m", "reverse", "response_ps"),
    [(1500, 100, 1500, 0), (1500, 0, 0, 0), (200, 40, 9000, 0), (9000, 300, 64, 1_500_000)],
)
def test_the_cliff_of_equal_frames(size: int, length_m: int, reverse: int, response_ps: int) -> None:
    window = window_ps(RATE_BPS, link_ps(length_m), reverse_mtu_bytes=reverse, response_ps=response_ps)
    needed = uniform_headroom(window, RATE_BPS, size, XOFF)
    crossing = -(-XOFF // size)
    expected = crossing + frames_in_window(window, RATE_BPS, size)
    enough = run(needed, [size], length_m=length_m, reverse=reverse, response_ps=response_ps)
    assert enough == Run(expected, needed, 0)
    short = run(needed - 1, [size], length_m=length_m, reverse=reverse, response_ps=response_ps)
    assert (short.frames, short.dropped) == (expected, 1)
    # what is planned for any mix of frames covers it
    mtu = max(size, reverse)
    assert exact_headroom(RATE_BPS, length_m, mtu_bytes=mtu, response_ps=response_ps).headroom_bytes >= needed


@pytest.mark.parametrize(("mtu", "length_m"), [(1500, 100), (9216, 40), (1500, 7)])
def test_the_cliff_of_the_worst_mix(mtu: int, length_m: int) -> None:
    """Frames chosen as badly as the derivation says: XOFF - 1 bytes first, then full ones that leave no gap unused."""
    budget = exact_headroom(RATE_BPS, length_m, mtu_bytes=mtu)
    window, frames = budget.values["window_ps"], budget.values["frames"]
    held = [mtu] * ((XOFF - 1) // mtu - 1)
    rest = XOFF - 1 - sum(held)
    held += [rest // 2, rest - rest // 2]
    before = -(-window // PS_PER_BYTE) - 1  # wire bytes, all frames but the last
    carried = before - 24 * (frames - 1)
    mix = [mtu] * (carried // mtu)
    if len(mix) < frames - 1:
        left = carried - sum(mix)
        if left < 60:
            mix[-1] -= 60 - left
            left = 60
        mix.append(left)
    assert len(mix) == frames - 1
    assert sum(mix) == carried
    sizes = [*held, mtu, *mix, mtu]
    enough = run(budget.headroom_bytes, sizes, length_m=length_m, reverse=mtu)
    assert enough == Run(len(sizes), budget.headroom_bytes, 0)
    assert run(budget.headroom_bytes - 1, sizes, length_m=length_m, reverse=mtu).dropped == 1


def test_by_hand_at_10g() -> None:
    # 800 ps a byte. W = (1500 + 24) * 800 - 1 + (84 - 24) * 800 + 2 * 500,000 = 2,267,199 ps = 2833.99 bytes of wire:
    # 2833 before the last frame take less: 1524 + 1309, carrying 2833 - 48 = 2785; the last 1500; the crossing one 1499
    budget = exact_headroom(10 * G, 100, mtu_bytes=1500)
    assert budget.values == {"window_ps": 2_267_199, "frames": 3, "inflight_bytes": 2785 + 1500}
    assert budget.headroom_bytes == 1499 + 2785 + 1500
    assert sum(line.bytes for line in budget.lines) == budget.headroom_bytes
    assert exact_headroom(10 * G, 100, mtu_bytes=1500, dynamic=True).headroom_bytes == 1500 + 2785 + 1500
    # delivered with the gap: 24 bytes of wire more, 19,200 ps
    gap = exact_headroom(10 * G, 100, mtu_bytes=1500, gap_counts=True)
    assert gap.values["window_ps"] == 2_267_199 + 19_200
    assert gap.headroom_bytes == budget.headroom_bytes + 24
    # a side that sends no data still sends PFC frames: XOFF again, or of another group, may be on the wire
    alone = exact_headroom(10 * G, 100, mtu_bytes=1500, reverse_mtu_bytes=0)
    assert alone.values["window_ps"] == 84 * 800 - 1 + 60 * 800 + 2 * 500_000
    # nothing to wait for
    assert window_ps(10 * G, 500_000, reverse_mtu_bytes=0) == 1_048_000


def test_frames_that_start_in_a_window() -> None:
    # w(1000) = 1024 bytes = 819,200 ps at 10 Gb/s; a frame that would start at the end of the window is not started
    assert [frames_in_window(w, 10 * G, 1000) for w in (0, 1, 819_200, 819_201)] == [0, 1, 1, 2]
    assert uniform_headroom(819_201, 10 * G, 1000, 2500) == 500 + 2000
    assert uniform_headroom(0, 10 * G, 1000, 2000) == 0
    assert uniform_headroom(0, 10 * G, 1000, 2000, held_bytes=1999) == 999
    with pytest.raises(HeadroomError, match="held_bytes: 2000"):
        uniform_headroom(0, 10 * G, 1000, 2000, held_bytes=2000)


def _mixes(budget: int, smallest: int, mtu: int) -> Iterator[int]:
    """Bytes of every list of frames whose wire time fits in `budget` bytes of wire (small numbers only)."""
    yield 0
    for size in range(smallest, mtu + 1):
        if size + 24 <= budget:
            for more in _mixes(budget - size - 24, smallest, mtu):
                yield size + more


@pytest.mark.parametrize("wire", [1, 83, 84, 85, 90, 95, 168, 170, 178, 179, 191])
def test_worst_mix_against_all_mixes(wire: int) -> None:
    window = wire * 800  # starts strictly before: wire - 1 bytes for all but the last
    assert worst_inflight(window, 10 * G, 72, 60)[0] == max(_mixes(wire - 1, 60, 72)) + 72
    assert worst_inflight(0, 10 * G, 72, 60) == (0, 0)


def test_lowest_pause_time() -> None:
    # w(9216) = 73,920 bits: half of the quanta has to cover it: 2 * 73920 / 512 = 288.75
    assert min_quanta(9216) == 289
    # nothing sent: two PFC frames of 672 bits: 1344 / 512 = 2.6
    assert min_quanta(0) == 3


def test_odd_rates_round_up() -> None:
    assert wire_ps(60, 3 * G) == 224_000
    assert wire_ps(61, 7 * G) == -(-85 * 8 * 1000 // 7)
    assert link_ps(Fraction(1, 3)) == 1667
