"""QCN's reaction point against its rules, messages at chosen times: rates and targets are exact integers.

The messages are scapy's, about a packet as the NIC sent it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from nic_pair import GBPS, IP, MAC, US, Pair, config, wire_ps
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet
from scapy_qcn import Cnm, CnTag

from hosts.nic import NicError, connect_rdma
from hosts.nic_config import ENDLESS, Dcqcn, EventKind, Qcn, RdmaConfig
from hosts.packets import FrameSpec, Kind, build

LINE = 10 * GBPS
MS = 1000 * US
QP = 0x100
FULL = 14 + 20 + 8 + 12 + 1024 + 4  # a middle packet, without FCS
STANDARD = Qcn.standard()
TIMER_ONLY = replace(STANDARD, byte_limit_bytes=1 << 60)


def quoted(queue_pair: int = QP, *, source: str = IP[0], target: str = IP[1]) -> bytes:
    """The first 64 bytes from the EtherType on of a packet to a queue pair."""
    spec = FrameSpec(Kind.CNP, MAC[1], MAC[0], source, target, dscp=26, queue_pair=queue_pair)
    return build(spec)[12:76]


def cnm(feedback: int, msdu: bytes | None = None, tags: Callable[[Packet], Packet] = lambda inner: inner) -> bytes:
    msdu = quoted() if msdu is None else msdu
    message = Cnm(feedback=feedback, cpid=7, q_offset=100, priority=3, dst=MAC[1], msdu=msdu, msdu_len=len(msdu))
    return bytes(Ether(dst=MAC[0], src="02:01:00:00:01:01") / tags(message))


def flow_under(profile: Qcn, *messages: tuple[int, int], rate_bps: int = 0) -> Pair:
    """Messages are (time in ps, feedback)."""
    pair = Pair(config(0, LINE, events=frozenset({EventKind.CNM})), config(1, LINE))
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, qcn=profile, reliable=False, rate_bps=rate_bps))
    for at_ps, feedback in messages:
        pair.put(0, cnm(feedback), at_ps)
    return pair


def rates(pair: Pair, at_ps: int) -> tuple[int, int]:
    """(rate, target)"""
    pair.run(at_ps)
    flow = pair.nics[0].flow(0)
    return flow.rate_bps, flow.target_bps


def test_feedback_takes_a_128th_of_the_rate_each() -> None:
    for feedback in (1, 8, 63):
        pair = flow_under(STANDARD, (10 * US, feedback))
        assert rates(pair, 10 * US - 1) == (LINE, LINE)
        assert rates(pair, 10 * US) == (LINE * (128 - feedback) // 128, LINE)
        assert [(e.time_ps, e.kind, e.value) for e in pair.nics[0].events()] == [
            (10 * US, EventKind.CNM, LINE * (128 - feedback) // 128)
        ]
    flow = pair.nics[0].flow(0)
    assert (flow.cnms, flow.cnps, pair.nics[0].stats().rx_cnm) == (1, 0, 1)


def test_the_pace_is_the_rate() -> None:
    pair = flow_under(TIMER_ONLY, (10 * US, 32))  # three quarters
    starts = [sent.start_ps for sent in pair.run(MS).sent[0] if sent.start_ps > 20 * US]
    assert starts[-1] - starts[0] == pytest.approx((len(starts) - 1) * wire_ps(FULL, LINE) * 4 / 3, abs=1)


def test_the_least_factor_and_the_least_rate() -> None:
    strong = replace(STANDARD, gd=Fraction(1, 64))
    assert rates(flow_under(strong, (10 * US, 63)), 10 * US) == (LINE // 2, LINE)  # 63/64 would leave less
    many = flow_under(TIMER_ONLY, *((10 * US + n, 63) for n in range(30)))
    assert rates(many, 11 * US) == (5_000_000, LINE)  # (65/128)^30 of 10 Gb/s is 15 bit/s


def test_the_target_stays_within_the_first_cycle_of_the_byte_counter() -> None:
    """Two messages in a row, then one after a cycle: the target is the rate before it."""
    pair = flow_under(STANDARD, (10 * US, 64 // 2), (20 * US, 64 // 2))
    assert rates(pair, 20 * US) == (LINE * 9 // 16, LINE)
    while pair.nics[0].flow(0).rate_bps == LINE * 9 // 16:
        pair.run(pair.now_ps + US)
    sent_ps = pair.now_ps - 20 * US
    assert sent_ps == pytest.approx(150_000 * 8 * 10**12 / (LINE * 9 / 16) * (FULL + 24) / FULL, rel=0.02)
    raised = LINE * 25 // 32
    assert pair.nics[0].flow(0).rate_bps == raised  # half the way to 10 Gb/s
    pair.put(0, cnm(32), pair.now_ps)
    assert rates(pair, pair.now_ps + 1) == (raised * 3 // 4, raised)


def test_after_a_cycle_of_the_timer_alone_the_target_stays_unless_asked() -> None:
    messages = ((10 * US, 32), (10 * US + 16 * MS, 32))
    raised = LINE * 7 // 8
    assert rates(flow_under(TIMER_ONLY, *messages), 17 * MS) == (raised * 3 // 4, LINE)
    clamped = replace(TIMER_ONLY, clamp_after_timer=True)
    assert rates(flow_under(clamped, *messages), 17 * MS) == (raised * 3 // 4, raised)


def test_fast_recovery_then_active_increase() -> None:
    """The timer alone: five cycles of 15 ms half the way, then every 7.5 ms with 5 Mb/s more."""
    pair = flow_under(TIMER_ONLY, (US, 63), (MS, 63))
    rate, target = -(-(LINE * 65 // 128 * 65) // 128), LINE  # what is taken away is rounded down
    at = MS
    assert rates(pair, at) == (rate, target)
    for cycle in range(1, 11):
        at += 15 * MS if cycle <= 5 else 15 * MS // 2
        assert rates(pair, at - 1) == (rate, target)
        target = min(LINE, target + (5_000_000 if cycle > 5 else 0))
        rate = (rate + target + 1) // 2
        assert rates(pair, at) == (rate, target)
    assert LINE - rate == (LINE - LINE * 65 * 65 // 128**2) // 2**10  # half the way, ten times


def test_active_and_hyper_increase() -> None:
    """A target below line rate; byte counter and timer end their cycles as chosen."""
    profile = replace(STANDARD, byte_limit_bytes=10 * FULL, timer_ps=MS, fast_recovery=2)
    slow = 10**8  # the flow's own line: a frame takes 88.16 us
    pair = flow_under(profile, (US, 32), (MS // 2, 32), rate_bps=slow)
    assert pair.run(MS // 2).nics[0].flow(0).rate_bps == slow * 9 // 16
    # from here by the rules, cycle by cycle, in the order in which the counters end them
    rate, target, stages, bytes_left, next_timer = slow * 9 // 16, slow, [0, 0], 10 * FULL, MS // 2 + MS
    seen = set()
    frames = iter([s for s in pair.run(8 * MS).sent[0] if s.start_ps > MS // 2])
    again = flow_under(profile, (US, 32), (MS // 2, 32), rate_bps=slow)

    def ended(which: int) -> None:
        nonlocal rate, target
        stages[which] += 1
        least, most = min(stages), max(stages)
        more = (least - 2) * 50_000_000 if least > 2 else 5_000_000 if most > 2 else 0
        seen.add("hyper" if least > 2 else "active" if most > 2 else "fast")
        target = min(slow, target + more)
        rate = (rate + target + 1) // 2

    for frame in frames:
        while next_timer <= frame.start_ps and rate < slow:
            ended(1)
            next_timer += MS if stages[1] < 2 else MS // 2
        bytes_left -= len(frame.frame)
        if bytes_left <= 0 and rate < slow:
            ended(0)
            bytes_left += 10 * FULL if stages[0] < 2 else 5 * FULL
        assert rates(again, frame.start_ps) == (rate, target)
    assert seen == {"fast", "active", "hyper"}


def test_a_far_target_comes_nearer_at_the_end_of_a_first_cycle() -> None:
    """Five times 65/128 without a cycle: the target is 29.6 times the rate. The first cycle divides it by eight."""
    pair = flow_under(TIMER_ONLY, *((10 * US + n, 63) for n in range(5)))
    rate, target = pair.run(11 * US).nics[0].flow(0).rate_bps, LINE
    assert target > 10 * rate
    end = 10 * US + 4 + 15 * MS
    assert rates(pair, end) == ((rate + LINE // 8 + 1) // 2, LINE // 8)
    assert rates(pair, end + 15 * MS)[1] == LINE // 8


def test_at_line_rate_it_is_over() -> None:
    quick = replace(TIMER_ONLY, timer_ps=US)
    pair = flow_under(quick, (10 * US, 8))
    assert rates(pair, 100 * US) == (LINE, LINE)
    pair.put(0, cnm(64 // 8), 200 * US)  # and may begin again
    assert rates(pair, 200 * US) == (LINE * 15 // 16, LINE)


def test_both_reaction_points_the_lower_rate_counts() -> None:
    pair = Pair(config(0, LINE), config(1, LINE))
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, qcn=STANDARD, dcqcn=Dcqcn.paper(), reliable=False))
    pair.put(0, cnm(32), 10 * US)
    assert rates(pair, 10 * US)[0] == LINE * 3 // 4
    pair.put(0, build(FrameSpec(Kind.CNP, MAC[1], MAC[0], IP[1], IP[0], dscp=48, queue_pair=QP)), 20 * US)
    assert rates(pair, 20 * US)[0] == LINE // 2


@pytest.mark.parametrize(
    "tags",
    [
        lambda inner: Dot1Q(vlan=5, prio=6) / inner,
        lambda inner: CnTag(flow_id=3) / inner,
        lambda inner: Dot1Q(vlan=5) / Dot1Q(vlan=6) / CnTag(flow_id=3) / inner,
    ],
)
def test_tags_before_the_message(tags: Callable[[Packet], Packet]) -> None:
    pair = flow_under(STANDARD)
    pair.put(0, cnm(32, tags=tags), 10 * US)
    assert rates(pair, 10 * US)[0] == LINE * 3 // 4


@pytest.mark.parametrize(
    ("msdu", "counter"),
    [
        (quoted(0x101), "rx_unknown_flow"),  # another queue pair
        (quoted(target="10.9.9.9"), "rx_unknown_flow"),  # another host
        (quoted(source="10.9.9.9"), "rx_unknown_flow"),  # not sent from here
        (quoted()[:37], "rx_unknown_flow"),  # cut before the end of the queue pair's number
        (b"\x86\xdd" + quoted()[2:], "rx_unknown_flow"),
        (b"", "rx_unknown_flow"),
    ],
)
def test_whose_message(msdu: bytes, counter: str) -> None:
    pair = flow_under(STANDARD)
    pair.put(0, cnm(32, msdu), 10 * US)
    assert rates(pair, 10 * US) == (LINE, LINE)
    stats = pair.nics[0].stats()
    assert (stats.rx_cnm, getattr(stats, counter)) == (1, 1)


def test_malformed() -> None:
    good = cnm(32)
    for frame in (good[:-1], good[:30], good[:14] + b"\x10" + good[15:]):  # short, shorter, version 1
        pair = flow_under(STANDARD)
        pair.put(0, frame, 10 * US)
        assert rates(pair, 10 * US) == (LINE, LINE)
        assert pair.nics[0].stats().rx_malformed == 1


def test_feedback_0_and_a_flow_without_qcn() -> None:
    pair = flow_under(STANDARD, (10 * US, 0))
    assert rates(pair, 10 * US) == (LINE, LINE)
    pair = flow_under(Qcn.off(), (10 * US, 63))
    assert rates(pair, 10 * US)[0] == LINE
    assert pair.nics[0].flow(0).cnms == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gd": Fraction(2)}, "qcn.gd"),
        ({"least_factor": Fraction(0)}, "qcn.least_factor"),
        ({"timer_ps": 0}, "timer_ps and byte_limit_bytes"),
        ({"byte_limit_bytes": 0}, "timer_ps and byte_limit_bytes"),
        ({"min_rate_bps": 0}, "qcn.min_rate_bps"),
    ],
)
def test_settings(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(NicError, match=says):
        flow_under(replace(STANDARD, **wrong))  # type: ignore[arg-type]


def test_scaled() -> None:
    hundred = Qcn.scaled(100 * GBPS)
    assert (hundred.ai_bps, hundred.hai_bps, hundred.timer_ps) == (50_000_000, 500_000_000, 1500 * US)
    assert replace(Qcn.scaled(10 * GBPS), name="standard") == STANDARD
