"""sonic-mgmt's congestion and oversubscription tests (tests/snappi_tests/pfc) at 100 and 400 Gb/s in virtual time.

Two or more ports send into one. Lossless priorities lose nothing, whatever is offered; lossy ones lose what their share
of the wire does not carry. All queues have the same weight, so the shares are known in advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from snappi_lab import FRAME, LOSSLESS, QUEUE_LIMIT, WIRE_PS, SnappiLab, xoff

from dcb.units import PS_PER_MS, PS_PER_US

RX = 2
MS, US = PS_PER_MS, PS_PER_US
LOSSY = (0, 1, 5)
LENGTH_PS = 700 * US
BURSTS = 3
Mix = Mapping[int, float]  # priority -> percent of the line, of each sender


def mix(lossless: float, lossy: float) -> Mix:
    """Percent of the line, spread evenly over the lossless and three lossy priorities."""
    return dict.fromkeys(LOSSLESS, lossless / len(LOSSLESS)) | dict.fromkeys(LOSSY, lossy / len(LOSSY))


def start(rig: SnappiLab, sources: Iterable[int], of: Mix) -> dict[int, int]:
    """Flows into RX, a picosecond grid apart from each other. Frames that will be sent, by priority."""
    sent = dict.fromkeys(of, 0)
    for n, source in enumerate(sources):
        for k, (priority, percent) in enumerate(of.items()):
            at_ps = rig.now_ps + 7_000 * n + 11_000 * k
            sent[priority] += rig.send(source, RX, priority, percent, start_ps=at_ps, length_ps=LENGTH_PS)
    return sent


def shares(rig: SnappiLab, after_ps: int, over_ps: int) -> dict[int, int]:
    """Bytes that each queue of RX sends in the time `over_ps` that begins `after_ps` from now; no byte of the wire is
    left idle in it."""
    rig.advance(after_ps)
    before = rig.dequeued(RX)
    rig.advance(over_ps)
    sent = {q: count - before[q] for q, count in rig.dequeued(RX).items()}
    assert abs(sum(sent.values()) // FRAME - over_ps // WIRE_PS) <= 1
    return sent


def check_nothing_unseen(rig: SnappiLab, sent: Mapping[int, int]) -> dict[int, int]:
    """After everything has drained: what was sent has arrived or was dropped at a queue's limit. Drops by priority."""
    rig.drain()
    counts, seen = rig.counts(), rig.received()
    arrived = {p: sum(n for (_, to, q), n in seen.items() if (to, q) == (RX, p)) for p in sent}
    dropped = {p: counts["tm_drop_queue"].get((RX, p), 0) for p in sent}
    assert {p: arrived[p] + dropped[p] for p in sent} == sent
    assert set(counts.drops()) <= {"tm_drop_queue"}
    assert not any(dropped.get(p, 0) for p in LOSSLESS)
    return {p: n for p, n in dropped.items() if n}


@pytest.mark.parametrize("lossless", [90, 88], ids=["90-10", "88-12"])
def test_multiple_prio_diff_dist(rig: SnappiLab, lossless: int) -> None:
    """test_pfc_port_congestion, 2 -> 1: 2 * 10% of lossy traffic is below its share and loses nothing; lossless traffic
    takes the rest of the wire and waits upstream."""
    sent = start(rig, (1, 3), mix(lossless, 100 - lossless))
    took = shares(rig, 200 * US, 400 * US)
    total = sum(took.values())
    lossy_percent = 2 * (100 - lossless)
    assert sum(took[p] for p in LOSSY) / total == pytest.approx(lossy_percent / 100, abs=0.002)
    assert abs(took[3] - took[4]) <= 2 * FRAME  # equal weights, both backlogged
    assert check_nothing_unseen(rig, sent) == {}
    for port in (1, 3):
        told = {p for arrival in rig.control[port] for p in range(8) if arrival.frame[17] >> p & 1}
        assert told == set(LOSSLESS)


def test_multiple_prio_uni_dist(rig: SnappiLab) -> None:
    """test_pfc_port_congestion, 2 -> 1 at 40/60: each of five priorities gets a fifth of the wire, so half of the lossy
    frames (2 * 60 into 60) are lost, and none of the lossless (2 * 40 into 40, the rest waits)."""
    sent = start(rig, (1, 3), mix(40, 60))
    took = shares(rig, 200 * US, 400 * US)
    for a in (*LOSSLESS, *LOSSY):
        for b in (*LOSSLESS, *LOSSY):
            assert abs(took[a] - took[b]) <= 2 * FRAME, took
    lost = check_nothing_unseen(rig, sent)
    assert set(lost) == set(LOSSY)
    in_queue = QUEUE_LIMIT // FRAME
    for priority in LOSSY:
        # it gets its fifth while all five are backlogged, and at the end what it has queued
        expected = sent[priority] - LENGTH_PS / 5 / WIRE_PS - in_queue
        assert lost[priority] == pytest.approx(expected, abs=0.02 * sent[priority])


def test_m2o_oversubscribe_lossless(rig: SnappiLab) -> None:
    """120% of lossless beside 20% of background traffic: nothing is lost, background arrives in full and on time."""
    rig.core.tm.clear_watermark("queue_watermark", RX * 8)
    sent = start(rig, (1, 3), {3: 30, 4: 30, 0: 10})
    took = shares(rig, 200 * US, 400 * US)
    assert took[0] / sum(took.values()) == pytest.approx(0.2, abs=0.002)
    assert abs(took[3] - took[4]) <= 2 * FRAME
    assert rig.core.tm.read_state("queue_watermark", RX * 8) <= 20 * FRAME  # background never waited long
    assert check_nothing_unseen(rig, sent) == {}
    assert rig.control[1]
    assert rig.control[3]


def test_m2o_oversubscribe_lossy(rig: SnappiLab) -> None:
    """120% of lossy beside 30% of lossless traffic: no PFC at all, lossless untouched; the lossy queue gives 30% less
    than is offered, and drops exactly what neither left nor was queued."""
    sent = start(rig, (1, 3), {3: 15, 0: 60})
    took = shares(rig, 250 * US, 400 * US)
    assert took[3] / sum(took.values()) == pytest.approx(0.3, abs=0.002)
    lost = check_nothing_unseen(rig, sent)
    assert set(lost) == {0}
    expected = sent[0] - 0.7 * LENGTH_PS / WIRE_PS - QUEUE_LIMIT // FRAME
    assert lost[0] == pytest.approx(expected, abs=0.01 * sent[0])
    assert not any(rig.control.values())


def test_m2o_oversubscribe_lossless_lossy(rig: SnappiLab) -> None:
    """Theirs: lossless 40% and 20%, lossy 20% and 40% of two senders: 60 and 60 into 100. Half each: lossless waits,
    lossy loses 10 of its 60."""
    lossless = {s: rig.send(s, RX, 3, percent, length_ps=LENGTH_PS) for s, percent in ((1, 40), (3, 20))}
    lossy = {s: rig.send(s, RX, 0, percent, length_ps=LENGTH_PS) for s, percent in ((1, 20), (3, 40))}
    sent = {3: sum(lossless.values()), 0: sum(lossy.values())}
    took = shares(rig, 300 * US, 350 * US)
    assert abs(took[3] - took[0]) <= 2 * FRAME
    lost = check_nothing_unseen(rig, sent)
    # it fills its queue first, and overtakes lossless by no more than a frame
    assert lost[0] == pytest.approx(sent[0] * 10 / 60 - QUEUE_LIMIT // FRAME, abs=0.02 * sent[0])


def test_m2o_fluctuating_lossless(rig: SnappiLab) -> None:
    """Lossless traffic that goes between 30% and 120% of the wire every 100 us: lossless all the same; PFC in each
    burst, and none in a calm once the burst has left."""
    base_ps, sent = rig.now_ps, 0
    for source in (1, 3):
        sent += rig.send(source, RX, 3, 15, start_ps=base_ps, length_ps=LENGTH_PS)
        for burst in range(BURSTS):
            at_ps = base_ps + (200 * burst + 50) * US
            sent += rig.send(source, RX, 3, 45, start_ps=at_ps, length_ps=100 * US)
    rig.advance(LENGTH_PS)
    rig.drain()
    assert rig.counts().drops() == {}
    seen = rig.received()
    assert sum(seen.values()) == sent
    for port in (1, 3):
        phases = {(arrival.time_ps - base_ps) // (200 * US) for arrival in rig.control[port]}
        assert phases == set(range(BURSTS))
        calm = [a for a in rig.control[port] if (a.time_ps - base_ps) % (200 * US) < 50 * US]
        assert calm == []


def test_lossless_response_to_external_pause_storms(rig: SnappiLab) -> None:
    """The receiver storms both lossless priorities: of two senders' lossless traffic nothing arrives and nothing is
    lost, both are told to wait, background goes on at its rate. When it is over all of it arrives."""
    rig.storm(RX, LOSSLESS, 900 * US)
    rig.advance(10 * US)
    sent = start(rig, (1, 3), {3: 12.5, 4: 12.5, 0: 25})
    rig.advance(LENGTH_PS + 50 * US)
    seen = rig.received()
    assert {p: sum(n for (_, _, q), n in seen.items() if q == p) for p in sent} == {3: 0, 4: 0, 0: sent[0]}
    assert all(rig.control[port] for port in (1, 3))
    rig.drain()
    assert rig.counts().drops() == {}
    assert sum(rig.received().values()) == sent[3] + sent[4]


def test_lossless_response_to_throttling_pause_storms(rig: SnappiLab) -> None:
    """The receiver pauses for 6.144 us of every 12.288 us: in each gap as many frames leave as start within it, 75 of
    81.92 ns. Two senders offer more; nothing is lost."""
    quanta = 1200
    pause_ps = quanta * 5_120
    assert pause_ps == 75 * WIRE_PS
    rig.send_frame(RX, xoff(RX, [3], quanta), count=None, gap_ps=2 * pause_ps)
    for source in (1, 3):
        rig.send(source, RX, 3, 40)
    rig.advance(200 * US)
    before = rig.dequeued(RX)[3]
    rig.advance(20 * 2 * pause_ps)
    assert rig.dequeued(RX)[3] - before == 20 * 75 * FRAME
    rig.stop()
    rig.drain()
    counts = rig.counts()
    assert counts.drops() == {}
    assert counts["rx"] == {(s, 3): n for (s, _, _), n in sorted(rig.received().items())}


def test_mixed_speed_diff_dist(rig: SnappiLab) -> None:
    """400G -> 100G at 88/12: lossy is 48 of 100 and arrives in full, lossless gets the other 52."""
    sent = start(rig, (4,), mix(88, 12))
    took = shares(rig, 250 * US, 400 * US)
    assert sum(took[p] for p in LOSSY) / sum(took.values()) == pytest.approx(0.48, abs=0.002)
    assert check_nothing_unseen(rig, sent) == {}
    assert rig.control[4]


def test_mixed_speed_uni_dist(rig: SnappiLab) -> None:
    """400G -> 100G at 40/60: a fifth of the wire each; of the lossy frames three quarters are lost (240 into 60)."""
    sent = start(rig, (4,), mix(40, 60))
    took = shares(rig, 200 * US, 400 * US)
    assert max(took[p] for p in sent) - min(took[p] for p in sent) <= 2 * FRAME
    lost = check_nothing_unseen(rig, sent)
    for priority in LOSSY:
        assert lost[priority] / sent[priority] == pytest.approx(0.75, abs=0.02)


def test_mixed_speed_no_congestion(rig: SnappiLab) -> None:
    """400G -> 100G and back at 100 Gb/s: no PFC, no loss."""
    sent = start(rig, (4,), dict.fromkeys(range(8), 25 / 8))
    back = {p: rig.send(RX, 4, p, 100 / 8, length_ps=LENGTH_PS) for p in range(8)}
    rig.drain()
    counts, seen = rig.counts(), rig.received()
    assert {p: seen[4, RX, p] for p in range(8)} == sent
    assert {p: seen[RX, 4, p] for p in range(8)} == back
    assert (counts.drops(), counts["pfc_tx_frames"]) == ({}, {})
