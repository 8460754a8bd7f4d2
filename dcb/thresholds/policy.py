"""Threshold policies: who decides where a priority group turns XOFF, as state machines. Sans-IO; time is passed in.

Samples of a group go in, a `Setting` (xoff, xon, headroom) comes out. What a policy or a predictor wants passes through
`Bounds` last, and nothing it says can get past them:

- XOFF stays within min_xoff..max_xoff. max_xoff is what the planner found the pool to carry when every group is at its
own. - XOFF + headroom is always max_xoff + the planned headroom. A group that is lowered to x while it holds up to the
old XOFF
  keeps room for all that and for what is in flight after a pause: lowering takes nothing from the headroom, it adds to
  it.
- XON is below XOFF by the planned gap, never negative.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

PS_PER_S = 10**12
_LEAST_CHANGE = 20  # a change below a twentieth is not worth a write
_LONGEST_STEP = 8  # down by at most an eighth of the range at once


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of a group since the sample before. Bytes without FCS.

    occupancy_bytes: held now. peak_bytes: the most held, where it is known (else occupancy). arrived_bytes: received.
    rtt_ps: how long a pause takes to come into force, measured or computed; None: not known. pool_free_bytes: for
    `DynamicAlpha`.
    """

    time_ps: int
    occupancy_bytes: int
    arrived_bytes: int
    peak_bytes: int | None = None
    rtt_ps: int | None = None
    pool_free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """What a group is to be set to, in bytes, and why."""

    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The planner's limits of one group. headroom_bytes: planned, at XOFF = max_xoff_bytes."""

    min_xoff_bytes: int
    max_xoff_bytes: int
    headroom_bytes: int
    xon_gap_bytes: int

    def __post_init__(self) -> None:
        if not 1 <= self.min_xoff_bytes <= self.max_xoff_bytes:
            raise ValueError(
                f"min_xoff_bytes: {self.min_xoff_bytes}: 1 <= min <= max_xoff_bytes {self.max_xoff_bytes} is wanted"
            )
        if self.headroom_bytes < 0 or self.xon_gap_bytes < 1:
            raise ValueError("headroom_bytes must not be negative, and xon_gap_bytes at least 1")

    def setting(self, xoff_bytes: int, reason: str = "") -> Setting:
        """The safe setting next to a wish."""
        xoff = min(max(xoff_bytes, self.min_xoff_bytes), self.max_xoff_bytes)
        return Setting(
            xoff, max(0, xoff - self.xon_gap_bytes), self.max_xoff_bytes + self.headroom_bytes - xoff, reason
        )


class ThresholdPolicy(Protocol):
    """One group's policy. `setting` is in force; `sample` may change it."""

    @property
    def setting(self) -> Setting: ...

    def sample(self, sample: Sample) -> Setting: ...


class StaticPolicy:
    """XOFF stays where it was put."""

    def __init__(self, bounds: Bounds, xoff_bytes: int) -> None:
        self.setting = bounds.setting(xoff_bytes, "static")

    def sample(self, sample: Sample) -> Setting:
        """The same as ever."""
        return self.setting


class DynamicAlpha:
    """XOFF = 2^alpha of what is free in the pool: what the switch does by itself for a dynamic group, as a policy."""

    def __init__(self, bounds: Bounds, alpha: int, reserved_bytes: int = 0) -> None:
        self._bounds, self._alpha, self._reserved = bounds, alpha, reserved_bytes
        self.setting = bounds.setting(bounds.max_xoff_bytes, "nothing seen yet")

    def sample(self, sample: Sample) -> Setting:
        """Follows the free pool."""
        wish = self._reserved + int(Fraction(2) ** self._alpha * max(0, sample.pool_free_bytes))
        self.setting = self._bounds.setting(wish, f"2^{self._alpha} of {sample.pool_free_bytes} free bytes")
        return self.setting


class Predictor(Protocol):
    """Foretells the peak of a series. Not trusted: it may raise, and return what it likes.

    `observe` takes the demand (bytes) of an interval; `predict` says the largest demand of the next `steps` intervals.
    """

    def observe(self, demand_bytes: float) -> None: ...

    def predict(self, steps: int) -> float: ...


@dataclass
class Faults:
    """How often the predictor was of no use, by kind."""

    raised: int = 0
    no_number: int = 0
    out_of_bounds: int = 0
    last: str = ""


class PredictivePolicy:
    """XOFF = baseline + predicted peak x factor, within bounds (R22: a factor of 1.2 over the next 10 ms).

    The demand of an interval is its burst (how far the group filled) and what arrives in one round trip at the rate of
    the interval. A predictor that raises or returns no finite, non-negative number leaves the baseline. XOFF goes up at
    once, and down by an eighth of the range a sample.
    """

    def __init__(
        self,
        bounds: Bounds,
        baseline_bytes: int,
        predictor: Predictor,
        *,
        factor: Fraction = Fraction(6, 5),
        horizon_ps: int = 10 * 10**9,
        interval_ps: int = 10 * 10**9,
    ) -> None:
        self._bounds, self._baseline, self._predictor = bounds, baseline_bytes, predictor
        self._factor = factor
        self._steps = max(1, -(-horizon_ps // max(1, interval_ps)))
        self._last: Sample | None = None
        self.faults = Faults()
        self.predicted_bytes = 0
        self.setting = bounds.setting(baseline_bytes, "baseline: nothing seen yet")

    def demand(self, sample: Sample) -> int:
        """Bytes that the interval before `sample` asked for: its burst and one round trip of its arrivals."""
        last = self._last
        burst = max(sample.occupancy_bytes, sample.peak_bytes or 0, last.occupancy_bytes if last else 0)
        if last is None or sample.rtt_ps is None or sample.time_ps <= last.time_ps:
            return burst
        return burst + sample.arrived_bytes * sample.rtt_ps // (sample.time_ps - last.time_ps)

    def sample(self, sample: Sample) -> Setting:
        """Take a sample; the setting that is to be in force now."""
        demand = self.demand(sample)
        self._last = sample
        peak = self._ask(demand)
        if peak is None:
            self.setting = self._limit(self._baseline, f"baseline: the predictor failed: {self.faults.last}")
            return self.setting
        self.predicted_bytes = peak
        wish = self._baseline + math.ceil(peak * self._factor)
        if wish > self._bounds.max_xoff_bytes:
            self.faults.out_of_bounds += 1
        self.setting = self._limit(wish, f"baseline {self._baseline} + {peak} x {float(self._factor):g}")
        return self.setting

    def _ask(self, demand: int) -> int | None:
        try:
            self._predictor.observe(float(demand))
            answer = self._predictor.predict(self._steps)
            peak = float(answer)
        except Exception as error:  # whatever it is, the switch keeps safe thresholds
            self.faults.raised += 1
            self.faults.last = f"{type(error).__name__}: {error}"
            return None
        if not math.isfinite(peak) or peak < 0 or isinstance(answer, bool):
            self.faults.no_number += 1
            self.faults.last = f"{answer!r} bytes"
            return None
        return min(math.ceil(peak), 2**48)

    def _limit(self, wish: int, reason: str) -> Setting:
        """Within bounds, no needless change, down in steps."""
        now = self.setting.xoff_bytes
        target = self._bounds.setting(wish).xoff_bytes
        if target < now:
            step = max(1, (self._bounds.max_xoff_bytes - self._bounds.min_xoff_bytes) // _LONGEST_STEP)
            target = max(target, now - step)
        if abs(target - now) * _LEAST_CHANGE < now and target not in (self._baseline, self._bounds.max_xoff_bytes):
            target = now
        return self._bounds.setting(target, reason)


# ---- statistical predictors -------------------------------------------------------------------------------------


class EwmaPredictor:
    """Moving mean and deviation: peak = max(mean + k * deviation, the last peak). Weights as of TCP's RTO."""

    def __init__(self, gain: float = 1 / 8, deviation_gain: float = 1 / 4, k: float = 4.0, window: int = 16) -> None:
        self._gain, self._deviation_gain, self._k = gain, deviation_gain, k
        self._recent: deque[float] = deque(maxlen=window)
        self._mean: float | None = None
        self._deviation = 0.0

    def observe(self, demand_bytes: float) -> None:
        """The next value of the series."""
        self._recent.append(demand_bytes)
        if self._mean is None:
            self._mean = demand_bytes
            return
        error = demand_bytes - self._mean
        self._mean += self._gain * error
        self._deviation += self._deviation_gain * (abs(error) - self._deviation)

    def predict(self, steps: int) -> float:
        """Peak of the next steps."""
        if self._mean is None:
            return 0.0
        return max(self._mean + self._k * self._deviation, max(list(self._recent)[-steps:]))


class HoltPredictor:
    """Level and trend (Holt's double exponential smoothing): the higher end of the line, and k mean errors."""

    def __init__(self, level_gain: float = 0.3, trend_gain: float = 0.1, k: float = 2.0) -> None:
        self._level_gain, self._trend_gain, self._k = level_gain, trend_gain, k
        self._level: float | None = None
        self._trend = 0.0
        self._error = 0.0

    def observe(self, demand_bytes: float) -> None:
        """The next value of the series."""
        if self._level is None:
            self._level = demand_bytes
            return
        foretold = self._level + self._trend
        self._error += 0.25 * (abs(demand_bytes - foretold) - self._error)
        level = self._level_gain * demand_bytes + (1 - self._level_gain) * foretold
        self._trend += self._trend_gain * (level - self._level - self._trend)
        self._level = level

    def predict(self, steps: int) -> float:
        """Peak of the next steps."""
        if self._level is None:
            return 0.0
        return max(0.0, self._level, self._level + steps * self._trend) + self._k * self._error


def predictor(name: str) -> Predictor:
    """`ewma`, `holt` or `lstm`. Raises ValueError, and `dcb.thresholds.lstm.NoTorchError` where PyTorch is absent."""
    if name == "ewma":
        return EwmaPredictor()
    if name == "holt":
        return HoltPredictor()
    if name == "lstm":
        from dcb.thresholds.lstm import LstmPredictor  # which needs PyTorch

        return LstmPredictor()
    raise ValueError(f"predictor: {name!r}: ewma, holt or lstm is wanted")


# ---- the planner's part -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A static group of a pool, for `plan_bounds`. moves: a policy moves its XOFF."""

    xoff_bytes: int
    xon_bytes: int
    reserved_bytes: int
    headroom_bytes: int
    moves: bool
    min_xoff_bytes: int | None = None
    max_xoff_bytes: int | None = None


def plan_bounds(groups: Mapping[object, PlannedGroup], pool_bytes: int) -> dict[object, Bounds]:
    """Bounds of the groups of one pool that move: what they may take together with all others never exceeds the pool.

    What the pool has beyond the baselines of all static groups is shared out evenly; a wish for max_xoff cuts it. A
    pool that does not carry the baselines leaves no room upwards. Lowest: min_xoff or half of the baseline, reserved at
    least.
    """
    taken = sum(group.xoff_bytes - group.reserved_bytes for group in groups.values())
    moving = [key for key, group in groups.items() if group.moves]
    share = max(0, pool_bytes - taken) // len(moving) if moving else 0
    found = {}
    for key in moving:
        group = groups[key]
        top = group.xoff_bytes + share
        if group.max_xoff_bytes is not None:
            top = max(1, min(top, max(group.max_xoff_bytes, group.reserved_bytes)))
        bottom = group.xoff_bytes // 2 if group.min_xoff_bytes is None else group.min_xoff_bytes
        bottom = min(max(1, bottom, group.reserved_bytes), top)
        gap = max(1, group.xoff_bytes - group.xon_bytes)
        found[key] = Bounds(bottom, top, group.headroom_bytes, gap)
    return found


def series_peak(values: Sequence[float], steps: int) -> list[float]:
    """For each place of a series but the last `steps`: the largest of the `steps` values after it."""
    return [max(values[at + 1 : at + 1 + steps]) for at in range(len(values) - steps)]
