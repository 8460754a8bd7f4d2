"""Threshold policies: the arithmetic by hand, and predictors that mean harm, also on the switch core."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import cycle, repeat
from typing import Any

import pytest
from dcb_switch import RATE_BPS, DcbSwitch, data

from dcb.headroom.exact import exact_headroom, wire_ps
from dcb.thresholds import (
    Bounds,
    DynamicAlpha,
    EwmaPredictor,
    HoltPredictor,
    PlannedGroup,
    PredictivePolicy,
    Sample,
    StaticPolicy,
    plan_bounds,
    predictor,
)
from dcb.thresholds.policy import series_peak

MS = 10**9
BOUNDS = Bounds(min_xoff_bytes=10_000, max_xoff_bytes=90_000, headroom_bytes=20_000, xon_gap_bytes=4_000)


class Script:
    """A predictor that gives the answers of a list, raising those that are exceptions."""

    def __init__(self, answers: Iterator[Any]) -> None:
        self._answers = answers
        self.seen: list[float] = []

    def observe(self, demand_bytes: float) -> None:
        self.seen.append(demand_bytes)

    def predict(self, steps: int) -> float:
        answer = next(self._answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]


def sample(ms: int, occupancy: int, arrived: int = 0, **rest: int) -> Sample:
    return Sample(ms * MS, occupancy, arrived, **rest)


def test_xoff_is_baseline_and_predicted_peak_times_1_2() -> None:
    script = Script(repeat(10_000))
    policy = PredictivePolicy(BOUNDS, 40_000, script)
    assert policy.setting.xoff_bytes == 40_000
    setting = policy.sample(sample(10, 3000))
    # 40,000 + 12,000; XON 4000 below; what XOFF gives up of 90,000 is headroom: 20,000 + 38,000
    assert (setting.xoff_bytes, setting.xon_bytes, setting.headroom_bytes) == (52_000, 48_000, 58_000)
    assert setting.reason == "baseline 40000 + 10000 x 1.2"
    assert script.seen == [3000.0]


def test_demand_is_the_burst_and_one_round_trip_of_arrivals() -> None:
    policy = PredictivePolicy(BOUNDS, 40_000, Script(repeat(0)))
    policy.sample(sample(10, 7000))
    # the fill before counts; 100,000 bytes in 10 ms, of which 50 us are 500
    assert policy.demand(sample(20, 2000, 100_000, rtt_ps=50 * 10**6)) == 7500
    assert policy.demand(sample(20, 2000, 100_000, rtt_ps=50 * 10**6, peak_bytes=9000)) == 9500
    assert policy.demand(sample(20, 8000, 100_000)) == 8000


def test_down_in_steps_and_no_needless_change() -> None:
    policy = PredictivePolicy(BOUNDS, 20_000, Script(iter([50_000, 49_000, 0, 0, 0, 0, 0])))
    found = [policy.sample(sample(10 * n, 0)).xoff_bytes for n in range(1, 8)]
    # 20,000 + 60,000; 78,800 is within a twentieth; then an eighth of 80,000 at a time
    assert found == [80_000, 80_000, 70_000, 60_000, 50_000, 40_000, 30_000]


def test_static_and_dynamic_policies() -> None:
    static = StaticPolicy(BOUNDS, 500_000)
    assert static.sample(sample(1, 50_000)).xoff_bytes == 90_000
    dynamic = DynamicAlpha(BOUNDS, -2, reserved_bytes=1000)
    assert dynamic.sample(sample(1, 0, pool_free_bytes=100_000)).xoff_bytes == 26_000
    assert dynamic.sample(sample(2, 0, pool_free_bytes=0)).xoff_bytes == 10_000
    assert dynamic.sample(sample(3, 0, pool_free_bytes=10**9)).xoff_bytes == 90_000


def test_predictors_follow_the_series() -> None:
    ewma, holt = EwmaPredictor(), HoltPredictor()
    for made in (ewma, holt):
        assert made.predict(1) == 0
        for _ in range(100):
            made.observe(5000)
        assert made.predict(3) == pytest.approx(5000, rel=0.01)
    # mean 5000 + 1/8 * 8000 = 6000; deviation 0 + 1/4 * 8000 = 2000: 6000 + 4 * 2000; not below the last peak, 13,000
    ewma.observe(13_000)
    assert ewma.predict(1) == pytest.approx(14_000, rel=1e-3)
    ramp = HoltPredictor()
    for n in range(200):
        ramp.observe(1000 * n)
    assert ramp.predict(5) == pytest.approx(204_000, rel=0.01)
    with pytest.raises(ValueError, match="predictor: 'oracle': ewma, holt or lstm"):
        predictor("oracle")


def test_bounds_of_a_pool() -> None:
    def group(xoff: int, moves: bool, **rest: int) -> PlannedGroup:
        return PlannedGroup(xoff, xoff - 4000, 2000, 20_000, moves, **rest)

    groups = {"a": group(30_000, True), "b": group(30_000, True), "c": group(12_000, False)}
    # 28,000 + 28,000 + 10,000 of 100,000: 34,000 left, 17,000 each
    found = plan_bounds(groups, 100_000)
    assert found == {
        "a": Bounds(15_000, 47_000, 20_000, 4000),
        "b": Bounds(15_000, 47_000, 20_000, 4000),
    }
    tight = plan_bounds(groups, 50_000)  # does not carry the baselines: nothing more is given
    assert tight["a"].max_xoff_bytes == 30_000
    named = plan_bounds({"a": group(30_000, True, min_xoff_bytes=1, max_xoff_bytes=33_000)}, 100_000)
    assert named["a"] == Bounds(2000, 33_000, 20_000, 4000)
    with pytest.raises(ValueError, match="min_xoff_bytes: 5: 1 <= min"):
        Bounds(5, 4, 0, 1)


def _oscillating() -> Iterator[float]:
    return cycle([0.0, 1e30])


def _random() -> Iterator[Any]:
    generator = random.Random(7)
    pool = [
        math.nan,
        math.inf,
        -math.inf,
        -1,
        1e300,
        10**40,
        0,
        12_345,
        "x",
        None,
        True,
        ValueError("no"),
        MemoryError(),
    ]
    while True:
        yield generator.choice(pool)


HOSTILE: dict[str, Callable[[], Iterator[Any]]] = {
    "not a number": lambda: repeat(math.nan),
    "infinite": lambda: repeat(math.inf),
    "negative": lambda: repeat(-1e18),
    "huge": lambda: repeat(10**40),
    "oscillating": _oscillating,
    "raises": lambda: repeat(RuntimeError("broken")),
    "at an end": lambda: iter(()),
    "no number at all": lambda: repeat("many"),
    "anything": _random,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_predictor_stays_within_the_bounds(name: str) -> None:
    policy = PredictivePolicy(BOUNDS, 40_000, Script(HOSTILE[name]()))
    for n in range(300):
        setting = policy.sample(sample(10 * n, n * 977 % 100_000, n * 31_337))
        assert 10_000 <= setting.xoff_bytes <= 90_000
        assert 0 <= setting.xon_bytes < setting.xoff_bytes
        assert setting.xoff_bytes + setting.headroom_bytes == 110_000
        assert all(isinstance(v, int) for v in (setting.xoff_bytes, setting.xon_bytes, setting.headroom_bytes))
    faults = policy.faults
    if name in ("not a number", "infinite", "negative"):
        assert (faults.no_number, policy.setting.xoff_bytes) == (300, 40_000)
    if name in ("raises", "at an end", "no number at all"):
        assert (faults.raised, policy.setting.xoff_bytes) == (300, 40_000)
        assert policy.setting.reason.startswith("baseline: the predictor failed: ")
    if name == "huge":
        assert (faults.out_of_bounds, policy.setting.xoff_bytes) == (300, 90_000)


LENGTH_M, MTU = 40, 1500
PLANNED = exact_headroom(RATE_BPS, LENGTH_M, mtu_bytes=MTU).headroom_bytes


def run(policy: PredictivePolicy | None, *, naive: int | None = None) -> tuple[int, int, int]:
    """A peer that sends for ever into a port that drains half; the policy is asked, and written, every 3 us. (settings,
    drops, XOFFs).

    naive: XOFF jumps between the bounds and the headroom stays at this, as somebody without bounds would do it.
    """
    switch = DcbSwitch()
    try:
        bounds = Bounds(6_000, 60_000, PLANNED, 3_000)
        switch.send_pfc(1, 1 << 3)
        switch.put("egress.tm_port", (2,), "egress.tm_set_port", RATE_BPS // 2)
        switch.static_group(1, 3, 0, 60_000, 57_000, PLANNED)
        delay, gap = 5000 * LENGTH_M, 12 * 200
        frame, wire = data(MTU), wire_ps(MTU, RATE_BPS)
        now = next_start = next_sample = 0
        paused_until, seen, settings = 0, 0, set()
        arrivals: list[int] = []
        gates: list[tuple[int, int]] = []
        flip = cycle([6_000, 60_000])
        for _ in range(2000):
            paused = max(paused_until, next_start)
            due = switch.switch_core.next_deadline()  # a PFC frame may leave then
            times = [paused, next_sample, *arrivals[:1], *(at for at, _ in gates[:1])]
            now = min([*times, due + 1] if due is not None else times)
            for output in switch.until(max(now - 1, 0)):
                if output.port == 1 and output.frame[:6].hex() == "0180c2000001":
                    quanta = int.from_bytes(output.frame[18 + 6 : 18 + 8], "big")
                    gates.append((output.end_ps - gap + delay, quanta))
            if gates and gates[0][0] == now:
                at, quanta = gates.pop(0)
                paused_until = at + quanta * 512 * 25 if quanta else at  # 25 ps a bit
            elif arrivals and arrivals[0] == now:
                arrivals.pop(0)
                switch.receive(1, frame, now)
                seen += MTU
            elif now == next_sample:
                next_sample += 3_000_000
                depth = switch.state("egress.tm_pg_depth", 11)
                if naive is not None:
                    xoff = next(flip)
                    switch.static_group(1, 3, 0, xoff, xoff - 3000, naive)
                elif policy is not None:
                    setting = policy.sample(Sample(now, depth, seen))
                    switch.static_group(1, 3, 0, setting.xoff_bytes, setting.xon_bytes, setting.headroom_bytes)
                    settings.add(setting.xoff_bytes)
                    assert setting == bounds.setting(setting.xoff_bytes, setting.reason)
                seen = 0
            elif now >= next_start and now >= paused_until:
                arrivals.append(now + wire - gap + delay)
                next_start = now + wire
        switch.switch_core.tm.check()
        return len(settings), switch.count("egress.tm_drop_headroom", 11)[0], switch.count("egress.pfc_tx_xoff", 11)[0]
    finally:
        switch.service.close()


def test_nothing_is_lost_whatever_the_predictor_says() -> None:
    bounds = Bounds(6_000, 60_000, PLANNED, 3_000)
    for name in ("oscillating", "anything"):
        settings, drops, pauses = run(PredictivePolicy(bounds, 10_000, Script(HOSTILE[name]())))
        assert drops == 0, name
        assert settings > 2
        assert pauses > 2
    # a threshold that jumps by itself uses up no headroom either; three frames less of it are too few here
    assert run(None, naive=PLANNED)[1] == 0
    assert run(None, naive=PLANNED - 3 * MTU)[1] > 0


# ---- LSTM -------------------------------------------------------------------------------------------------------

HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed")
def test_without_pytorch_the_lstm_says_so() -> None:
    with pytest.raises(ImportError, match=r"predictor lstm: PyTorch is not installed: pip install dcblab\[lstm\]"):
        predictor("lstm")


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed (pip install dcblab[lstm])")
def test_the_lstm_learns_a_periodic_burst() -> None:
    made: Any = predictor("lstm")
    assert made.predict(1) == 0
    series = [200_000 if n % 8 == 0 else 2_000 for n in range(192)]
    for value in series:
        made.observe(value)
        made.predict(1)
    assert made.trainings == 3
    # a burst is foretold one step ahead, and its absence too
    foretold = {}
    for n in range(192, 208):
        foretold[n % 8] = made.predict(1)
        made.observe(200_000 if n % 8 == 0 else 2_000)
    assert foretold[0] == pytest.approx(200_000, rel=0.3)
    assert max(foretold[n] for n in range(1, 8)) < 20_000
    policy = PredictivePolicy(BOUNDS, 40_000, made, factor=Fraction(6, 5))
    assert 10_000 <= policy.sample(sample(1, 2000)).xoff_bytes <= 90_000


def test_peaks_of_a_series() -> None:
    assert series_peak([1, 5, 2, 7, 3], 2) == [5, 7, 7]
