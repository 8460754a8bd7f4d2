"""The chaos scenario: every step heals, a seed repeats it to the byte, and a fault beyond the plan is found out."""

from __future__ import annotations

import pytest

from topologies.chaos import STEPS
from topologies.scenario import Outcome, parse_options
from topologies.scenarios import chaos
from topologies.virtual import Bench

LOSSLESS_STEPS = {name for name, step in STEPS.items() if step.lossless}
SLOW_SEED = 4  # hits leaf2 - spine1, which the incast goes over


def bench(*options: str, seed: int = 1) -> Bench:
    return Bench(seed=seed, options=parse_options(chaos.OPTIONS, ["window_ms=0.1", *options]))


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return chaos.run(bench())


def test_every_step_heals(outcome: Outcome) -> None:
    assert [check.claim for check in outcome.checks if not check.passed] == []
    assert len(outcome.checks) == 3 * len(STEPS)


def test_controller_and_switch_come_back_by_reading_and_by_writing(outcome: Outcome) -> None:
    assert "the new controller pushed 0 programs and wrote 0 entries" in outcome.notes[5]
    assert "the controller pushed 1 program to leaf2 and wrote " in outcome.notes[6]
    assert "wrote 0 entries" not in outcome.notes[6]


def test_steps_that_lose_frames_lose_some_and_the_others_none(outcome: Outcome) -> None:
    lost = [
        int(outcome.figures[f"{n} {name}: dropped where it breaks"])
        + int(outcome.figures[f"{n} {name}: lost by wires"])
        for n, name in enumerate(STEPS, 1)
    ]
    assert [count == 0 for count in lost] == [name in LOSSLESS_STEPS for name in STEPS]


def test_a_plan_is_repeated_to_the_byte() -> None:
    once, again = bench("steps=pfc-loss"), bench("steps=pfc-loss")
    assert chaos.run(once).figures == chaos.run(again).figures
    assert once.traces == again.traces


def test_a_response_beyond_the_plan_is_found_out() -> None:
    """47 us against headroom for none: the step calls itself lossless, and frames are lost."""
    found = chaos.run(bench("steps=slow-pfc-response", "planned_us=0", "response_us=47", seed=SLOW_SEED))
    failed = [check.claim for check in found.checks if not check.passed]
    assert "1 slow-pfc-response: nothing lossless is lost" in failed
