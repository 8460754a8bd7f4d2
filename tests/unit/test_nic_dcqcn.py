"""DCQCN's reaction point against its formulas, CNPs at chosen times; both profiles (reference/dcb.md, 6)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest
from nic_pair import GBPS, IP, MAC, US, Pair, wire_ps

from dcb.units import PS_PER_S
from hosts.nic import NicError, connect_rdma
from hosts.nic_config import ENDLESS, ONE_Q32, Dcqcn, RdmaConfig
from hosts.packets import FrameSpec, Kind, build

LINE = 100 * GBPS
G = Fraction(1, 256)
T0 = 10 * US  # of the first CNP: the flow begins at 0
FULL = 14 + 20 + 8 + 12 + 1024 + 4


@cache
def cnp() -> bytes:
    return build(FrameSpec(Kind.CNP, MAC[1], MAC[0], IP[1], IP[0], dscp=48, queue_pair=0x100))


def flow_under(profile: Dcqcn, *cnps_ps: int) -> Pair:
    pair = Pair()
    connect_rdma(*pair.nics, RdmaConfig(bytes=ENDLESS, dcqcn=profile, reliable=False, mtu_bytes=4096))
    for at in cnps_ps:
        pair.put(0, cnp(), at)
    return pair


def rate(pair: Pair, at_ps: int) -> int:
    pair.run(at_ps)
    return pair.nics[0].flow(0).rate_bps


def alpha(pair: Pair, at_ps: int) -> float:
    pair.run(at_ps)
    return pair.nics[0].flow(0).alpha_q32 / ONE_Q32


def test_before_the_first_cnp_a_flow_goes_at_line_rate() -> None:
    pair = flow_under(Dcqcn.paper())
    assert rate(pair, 100 * US) == LINE
    assert alpha(pair, 100 * US) == 1


def test_a_cnp_cuts_the_rate_by_half_of_alpha_and_the_pace_follows() -> None:
    pair = flow_under(Dcqcn.paper(), 10 * US, 60 * US)
    assert rate(pair, 10 * US) == LINE // 2  # alpha is 1
    assert pair.nics[0].flow(0).target_bps == LINE
    starts = [s.start_ps for s in pair.run(50 * US).sent[0] if s.start_ps > 12 * US]
    assert {b - a for a, b in pairwise(starts)} == {2 * wire_ps(FULL - 1024 + 4096)}
    assert rate(pair, 60 * US) == LINE // 4
    flow = pair.nics[0].flow(0)
    assert (flow.target_bps, flow.cnps, flow.alpha_q32) == (LINE // 2, 2, ONE_Q32)


def test_a_wait_goes_on_at_the_new_rate() -> None:
    """At 1 Gb/s a frame takes 33.2 us; a CNP in the middle of the wait doubles what is left of it."""
    frame_bits = (FULL - 1024 + 4096 + 24) * 8
    pair = Pair()
    slow = RdmaConfig(bytes=ENDLESS, dcqcn=Dcqcn.paper(), reliable=False, mtu_bytes=4096, rate_bps=GBPS)
    connect_rdma(*pair.nics, slow)
    pair.put(0, cnp(), 50 * US)
    first = (frame_bits + 16 * 8) * 1000  # RETH; 1 ns per bit
    assert 0 < first < 50 * US < first + frame_bits * 1000
    pair.run(100 * US)
    left = first + frame_bits * 1000 - 50 * US
    assert [s.start_ps for s in pair.sent[0][:3]] == [0, first, 50 * US + 2 * left]


def test_alpha_decays_by_g_each_55_us_without_a_cnp_and_the_next_cut_is_smaller() -> None:
    pair = flow_under(Dcqcn.paper(), T0, T0 + 55 * 40 * US + 1)
    for k in (1, 7, 40):
        assert alpha(pair, T0 + k * 55 * US - 1) == pytest.approx(float((1 - G) ** (k - 1)), abs=1e-8)
        assert alpha(pair, T0 + k * 55 * US) == pytest.approx(float((1 - G) ** k), abs=1e-8)
    before = rate(pair, T0 + 55 * 40 * US)
    decayed = (1 - G) ** 40
    assert rate(pair, T0 + 55 * 40 * US + 1) == pytest.approx(before * float(1 - decayed / 2), abs=300)
    assert alpha(pair, T0 + 55 * 40 * US + 1) == pytest.approx(float(decayed * (1 - G) + G), abs=1e-8)


def test_fast_recovery_halves_the_way_five_times_then_40_mbps_are_added() -> None:
    pair = flow_under(Dcqcn.paper(), T0, T0 + 50 * US)
    assert rate(pair, T0 + 50 * US) == 25 * GBPS
    expected, target = Fraction(25 * GBPS), Fraction(50 * GBPS)
    for k in range(1, 12):
        at = T0 + (50 + 55 * k) * US
        assert rate(pair, at - 1) == -(-expected // 1)
        if k > 5:
            target += 40_000_000
        expected = (expected + target) / 2
        assert abs(rate(pair, at) - expected) < 2
        expected = Fraction(rate(pair, at))  # halves are rounded up: no drift is carried on
        assert pair.nics[0].flow(0).target_bps == target
    # after 5 steps: 50 - 25 / 2^5
    again = flow_under(Dcqcn.paper(), T0, T0 + 50 * US)
    assert rate(again, T0 + (50 + 55 * 5) * US) == 50 * GBPS - 25 * GBPS // 32


def test_the_byte_counter_recovers_too() -> None:
    slow = replace(Dcqcn.paper(), increase_timer_ps=PS_PER_S, byte_counter_bytes=100 * (FULL - 1024 + 4096))
    pair = flow_under(slow, T0).run(T0)
    begun = len(pair.sent[0])
    for steps in range(1, 5):
        while len(pair.sent[0]) - begun < 100 * steps:
            pair.run(pair.now_ps + US)
        sent = (len(pair.sent[0]) - begun) // 100
        assert pair.nics[0].flow(0).rate_bps == LINE - LINE // 2 // 2**sent
    assert sent == 4


def test_hyper_increase_needs_both_counters_and_grows() -> None:
    both = replace(Dcqcn.paper(), fast_recovery=1, byte_counter_bytes=0, ai_bps=10**6, hai_bps=10**7)
    pair = flow_under(both, T0, T0 + 10 * US)
    target = 50 * GBPS
    for k, added in enumerate((0, 10**6, 10**7, 2 * 10**7, 3 * 10**7), start=1):
        pair.run(T0 + (10 + 55 * k) * US)
        target += added
        assert pair.nics[0].flow(0).target_bps == target
    # with a byte counter that has not expired it stays additive
    timer_only = replace(both, byte_counter_bytes=1 << 40)
    pair = flow_under(timer_only, T0, T0 + 10 * US).run(T0 + (10 + 55 * 5) * US)
    assert pair.nics[0].flow(0).target_bps == 50 * GBPS + 4 * 10**6


def test_recovery_ends_at_line_rate_with_nothing_left_to_do() -> None:
    pair = flow_under(replace(Dcqcn.paper(), increase_timer_ps=US), T0)
    assert rate(pair, 60 * US) == LINE
    assert pair.nics[0].flow(0).target_bps == LINE


def test_a_rate_has_a_floor() -> None:
    pair = flow_under(Dcqcn.paper(), *(T0 + k * 50 * US for k in range(20)))
    assert rate(pair, T0 + 19 * 50 * US) == Dcqcn.paper().min_rate_bps


def test_the_vendor_form_cuts_at_most_every_4_us_and_moves_alpha_at_its_ticks() -> None:
    pair = flow_under(Dcqcn.cx4(LINE), 10 * US, 12 * US + 1)
    assert rate(pair, 10 * US) == LINE // 2
    assert alpha(pair, 11 * US) == 1  # the tick after a CNP: (1 - g) + g
    decayed = 1 - G
    assert alpha(pair, 12 * US) == pytest.approx(float(decayed), abs=1e-8)
    assert rate(pair, 14 * US - 1) == LINE // 2
    raised = (1 - G) * decayed + G  # at 13 us, for the CNP just after 12 us
    assert alpha(pair, 13 * US) == pytest.approx(float(raised), abs=1e-8)
    at_cut = (1 - G) * raised
    assert rate(pair, 14 * US) == pytest.approx(LINE / 2 * float(1 - at_cut / 2), abs=300)


def test_the_vendor_form_increases_each_300_us_by_one_recovery_then_20_then_200_mbps() -> None:
    pair = flow_under(Dcqcn.cx4(LINE), T0, T0 + 4 * US)
    low = rate(pair, T0 + 4 * US)
    assert pair.nics[0].flow(0).target_bps == LINE  # kept by the second of two decreases in a row
    pair.run(T0 + 304 * US)
    once = (low + LINE) // 2
    assert once - 1 <= rate(pair, T0 + 304 * US) <= once + 1
    pair.put(0, cnp(), T0 + 305 * US)  # after an increase the target comes down
    expected = rate(pair, T0 + 305 * US)
    target = pair.nics[0].flow(0).target_bps
    assert once - 1 <= target <= once + 1
    for k, added in enumerate((0, 20_000_000, 200_000_000, 200_000_000), start=1):
        at = T0 + (305 + 300 * k) * US
        assert rate(pair, at - 1) == expected
        target += added
        expected = (expected + target + 1) // 2
        assert (rate(pair, at), pair.nics[0].flow(0).target_bps) == (expected, target)


def test_profiles_are_named_and_scale_with_the_port() -> None:
    assert Dcqcn.named("cx4", 25 * GBPS).ai_bps == 5_000_000
    assert Dcqcn.named("cx4", 100 * GBPS).hai_bps == 200_000_000
    assert Dcqcn.named("paper", LINE) == Dcqcn.paper()
    with pytest.raises(ValueError, match="'dctcp' is not a profile"):
        Dcqcn.named("dctcp", LINE)


def test_without_dcqcn_a_cnp_is_counted_and_changes_nothing() -> None:
    pair = flow_under(Dcqcn.off(), 10 * US)
    assert rate(pair, 20 * US) == LINE
    assert pair.nics[0].flow(0).cnps == 1


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(NicError, match="alpha_timer_ps and increase_timer_ps must be 1 or more"):
        flow_under(replace(Dcqcn.paper(), alpha_timer_ps=0))
    with pytest.raises(NicError, match=r"dcqcn\.g: must be more than 0"):
        flow_under(replace(Dcqcn.paper(), g=Fraction(2)))
