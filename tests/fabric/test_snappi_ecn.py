"""sonic-mgmt's tests/snappi_tests/ecn at 100 Gb/s in virtual time: where, how often and for which pauses.

The numbers of docs/testplan/ecn: dequeue marking of 2N packets, accuracy with Kmin 500 KB, Kmax 2000 KB, Pmax 5% over
200 rounds (DCBLAB_FULL=1; else 80), marks against PFC quanta. The device's generator is seeded, so a test that passes
passes always; the bounds hold for any seed but one in a million.
"""

from __future__ import annotations

import os
from math import ceil, log, sqrt
from pathlib import Path
from typing import Any

import pytest
from snappi_lab import FRAME, QUANTUM_PS, RATES, RESPONSE_PS, WIRE_PS, SnappiLab, config, data, xoff

from dcb.headroom.exact import link_ps
from dcb.units import PS_PER_MS, PS_PER_US
from fabric.tester import UNPAUSED
from topologies.artifacts import draw
from topologies.scenario import Line, Panel, Plot

DEBUG = False  # half a million frames, thousands of them queued: the checks of each event take minutes
TX, RX, PRIORITY = 1, 2, 3
MS, US = PS_PER_MS, PS_PER_US
ROUNDS = 200 if os.environ.get("DCBLAB_FULL") == "1" else 80
KMIN, KMAX, PMAX = 500_000, 2_000_000, 0.05
PACKETS = 2_200
FAILS_BY_CHANCE = 1e-6


def with_ecn(kmin: int, kmax: int, pmax: float = 1.0) -> dict[str, Any]:
    """The profile at RX's lossless queue; a group that takes a whole round without pausing the sender."""
    group = {"reserved": 0, "xoff": 4_000_000, "xon": 3_000_000, "headroom": 100_000}
    profile = {"kmin_bytes": kmin, "kmax_bytes": kmax, "pmax": pmax}
    return config({TX: {"buffers": {PRIORITY: group}}, RX: {"ecn": {PRIORITY: profile}}})


def marks(rig: SnappiLab, packets: int) -> list[bool]:
    """Pause RX, send so many packets at line rate, resume; which of them arrived marked CE, in order."""
    rig.send_frame(RX, xoff(RX, [PRIORITY]), count=2 + packets * WIRE_PS // (300 * US), gap_ps=300 * US)
    rig.advance(5 * US)
    rig.testers[TX].send(data(TX, RX, PRIORITY), count=packets, start_ps=rig.now_ps, priority=UNPAUSED)
    rig.advance(packets * WIRE_PS + 10 * US)
    rig.stop()
    rig.send_frame(RX, xoff(RX, [PRIORITY], 0))
    rig.drain()
    found = [a.frame[15] & 3 == 3 for a in rig.testers[RX].arrivals() if a.frame[12:14] == b"\x08\x00"]
    assert len(found) == packets
    return found


def test_dequeue_ecn(rig: SnappiLab) -> None:
    """EGRESS_ECN: Kmin = Kmax = N KB, 2N packets of 1 KB wait: the first is marked and the last is not; by packets left
    behind, the first N are and the other N are not, which no marking at enqueue would give."""
    rig.apply(with_ecn(50_000, 50_000))
    assert marks(rig, 100) == [True] * 50 + [False] * 50
    counts = rig.counts()
    assert counts["ce_marked"] == {(RX, PRIORITY): 50}
    assert counts.drops() == {}


def bound(probabilities: list[float], rounds: int, bins: int) -> float:
    """How far the marks of independent draws may be from their sum. By Bernstein's inequality for a sum X of Bernoulli
    variables with variance V: P(|X - E X| >= t) <= 2 exp(-t^2 / (2 (V + t / 3))); t solves that for the chance of a
    false alarm, shared evenly by the bins (union bound)."""
    variance = rounds * sum(p * (1 - p) for p in probabilities)
    size = log(2 * bins / FAILS_BY_CHANCE)
    return size / 3 + sqrt(size**2 / 9 + 2 * size * variance)


def theory(depth: int) -> float:
    """Probability of a mark with so many bytes left in the queue."""
    if depth >= KMAX:
        return 1.0
    return max(0, depth - KMIN) / (KMAX - KMIN) * PMAX


def test_red_accuracy(rig: SnappiLab, tmp_path: Path) -> None:
    """ECN_ACCURACY: marks by queue depth against (q - Kmin) / (Kmax - Kmin) * Pmax, 0 below and 1 from Kmax on."""
    rig.apply(with_ecn(KMIN, KMAX, PMAX))
    seen = [0] * PACKETS  # by packets left behind
    for _ in range(ROUNDS):
        for position, mark in enumerate(marks(rig, PACKETS)):
            seen[PACKETS - 1 - position] += mark
    kmin, kmax = KMIN // FRAME, KMAX // FRAME
    assert seen[: kmin + 1] == [0] * (kmin + 1)
    assert seen[kmax:] == [ROUNDS] * (PACKETS - kmax)
    width, rows = 100, []
    lows = range(kmin, kmax, width)
    for low in lows:
        probabilities = [theory(q * FRAME) for q in range(low, low + width)]
        expected, allowed = ROUNDS * sum(probabilities), bound(probabilities, ROUNDS, len(lows) + 1)
        rows.append((low + width / 2, sum(seen[low : low + width]), expected, allowed))
        assert abs(rows[-1][1] - expected) <= allowed, rows[-1]
    everything = [theory(q * FRAME) for q in range(kmin, kmax)]
    total = sum(seen[kmin:kmax])
    assert abs(total - ROUNDS * sum(everything)) <= bound(everything, ROUNDS, len(lows) + 1)
    # the bounds are narrow enough to tell a wrong Pmax (4%, 6%) or Kmin from the right one
    assert bound(everything, ROUNDS, len(lows) + 1) < 0.2 * ROUNDS * sum(everything)
    observed = Line("observed", [x for x, *_ in rows], [n / (ROUNDS * width) for _, n, *_ in rows], "points")
    line = Line("theory", [kmin, kmax], [0.0, PMAX])
    edges = []
    for sign, label in ((-1, ""), (1, "beyond: a chance of 1e-6")):
        y = [(expected + sign * allowed) / (ROUNDS * width) for _, _, expected, allowed in rows]
        edges.append(Line(label, observed.x, y, "dashed"))
    panels = [Panel("share marked", [line, observed, *edges])]
    plot = Plot("red-accuracy", "Marks by queue depth", "KB left in the queue", panels)
    assert draw(plot, tmp_path / "red-accuracy.png").stat().st_size > 5_000


def queue_model(arrivals: list[int], closed: list[tuple[int, int]], kmin_packets: int) -> int:
    """Marks at a queue whose gate is closed in these intervals: a frame leaves when the one before has, the gate is
    open and it is there; it is marked where as many are left."""
    marked, free = 0, 0
    left: list[int] = []
    for arrival in arrivals:
        start = max(arrival, free)
        for begin, end in closed:
            if begin <= start < end:
                start = end
        free = start + WIRE_PS
        left.append(start)
    for number, start in enumerate(left):
        waiting = sum(1 for arrival in arrivals[number + 1 :] if arrival <= start)
        marked += waiting >= kmin_packets
    return marked


@pytest.mark.parametrize("quanta", [500, 1000, 2000, 4000, 16000])
def test_ecn_marking_with_pfc_quanta_variance(rig: SnappiLab, quanta: int) -> None:
    """The longer the peer's pause, the deeper the queue and the more marks: none up to Kmin, then exactly as many as a
    queue that is filled at 50% of the line and drained at all of it has."""
    kmin = 20
    rig.apply(with_ecn(kmin * FRAME, kmin * FRAME))
    gap_ps = 2 * WIRE_PS
    start_ps = rig.now_ps + 1_000
    packets = 1_500
    rig.testers[TX].send(data(TX, RX, PRIORITY), count=packets, start_ps=start_ps, gap_ps=gap_ps, priority=UNPAUSED)
    at_ps = start_ps + 10 * US + 333
    rig.send_frame(RX, xoff(RX, [PRIORITY], quanta), start_ps=at_ps)
    rig.advance(packets * gap_ps + 200 * US)
    byte_ps = 80
    arrived = [start_ps + n * gap_ps + (FRAME + 12) * byte_ps + link_ps(300) for n in range(packets)]
    closes_ps = at_ps + 72 * byte_ps + link_ps(300) + RESPONSE_PS
    expected = queue_model(arrived, [(closes_ps, closes_ps + quanta * QUANTUM_PS)], kmin)
    counts = rig.counts()
    assert counts["ce_marked"].get((RX, PRIORITY), 0) == expected
    assert counts.drops() == {}
    # in a pause of T half a line fills T / 2w frames, which leave again one for every two that arrived
    deepest = quanta * QUANTUM_PS / gap_ps
    assert (expected > 0) == (ceil(deepest) > kmin)
    assert RATES[TX] == RATES[RX]
