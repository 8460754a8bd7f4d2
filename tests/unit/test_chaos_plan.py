"""Chaos plans: by name and seed, from a file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from topologies.chaos import STEPS, Action, ChaosError, from_data, names, plan
from topologies.cli import app
from topologies.description import leaf_spine

FABRIC = leaf_spine(2, 2, 4)


def test_no_names_are_all_of_them_and_a_wrong_one_is_named() -> None:
    assert names("") == list(STEPS)
    assert names("link-flap, nic-storm,link-flap") == ["link-flap", "nic-storm", "link-flap"]
    with pytest.raises(ChaosError, match=r"^steps: 'flap': not one of nic-storm, link-flap, "):
        names("flap")


def test_a_seed_gives_the_same_plan_and_a_longer_one_begins_alike() -> None:
    assert plan(FABRIC, list(STEPS), 5) == plan(FABRIC, list(STEPS), 5)
    assert plan(FABRIC, ["nic-storm", "link-flap"], 5) == plan(FABRIC, list(STEPS), 5)[:2]
    assert len({str(plan(FABRIC, ["nic-storm"], seed)) for seed in range(20)}) > 10


def test_the_draw_is_the_same_on_every_machine() -> None:
    """A golden one: random.Random of a text, and randrange and choice of it, are the same everywhere."""
    assert plan(FABRIC, ["link-flap"], 3) == [Action("link-flap", ("spine2", "leaf1"), 1400, times=3)]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_drawn_is_there_and_within_its_bounds(seed: int) -> None:
    drawn = plan(FABRIC, list(STEPS), seed)
    assert from_data(FABRIC, [action.as_dict() for action in drawn]) == drawn
    for action in drawn:
        assert 500 <= action.duration_us <= 1500
        assert action.response_us <= 9
        assert action.jitter_ns <= 2000


def test_a_plan_survives_yaml() -> None:
    drawn = plan(FABRIC, list(STEPS), 1)
    assert from_data(FABRIC, yaml.safe_load(yaml.safe_dump([action.as_dict() for action in drawn]))) == drawn


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "plan: a list of actions is wanted"),
        ([], "plan: a list of actions is wanted"),
        (["nic-storm"], "plan[0]: 'nic-storm': a mapping with the key step is wanted"),
        ([{"step": "quake"}], "plan[0].step: 'quake': not one of "),
        ([{"step": "nic-storm", "target": ["h9"]}], "plan[0].target: ['h9']: nic-storm wants a host of the lab"),
        (
            [{"step": "link-flap", "target": ["leaf1", "leaf2"]}],
            "plan[0].target: ['leaf1', 'leaf2']: link-flap wants a",
        ),
        (
            [{"step": "controller-restart", "target": "h1"}],
            "plan[0].target: ['h1']: controller-restart wants a target of",
        ),
        ([{"step": "nic-storm", "target": "h1", "hours": 1}], "plan[0].hours: not one of "),
        ([{"step": "nic-storm", "target": "h1", "duration_us": 0}], "plan[0].duration_us: 0: at least 1 is wanted"),
        ([{"step": "nic-storm", "target": "h1", "duration_us": "1"}], "plan[0].duration_us: '1': a whole number, "),
        (
            [{"step": "pfc-loss", "target": ["leaf1", "spine1"], "loss_percent": 101}],
            "plan[0].loss_percent: 101: at most 100 is wanted",
        ),
    ],
)
def test_what_is_not_right_is_named(data: object, text: str) -> None:
    with pytest.raises(ChaosError) as error:
        from_data(FABRIC, data)
    assert str(error.value).startswith(text)


def test_the_command_prints_a_plan_that_it_takes_again(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["chaos", "--show", "--seed", "9"])
    assert shown.exit_code == 0
    path = tmp_path / "plan.yaml"
    path.write_text(shown.output)
    again = CliRunner().invoke(app, ["chaos", "--show", "--plan", str(path)])
    assert (again.exit_code, again.output) == (0, shown.output)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--steps", "quake"], "dcblab: --steps: 'quake': not one of nic-storm, "),
        (["--steps", "nic-storm", "--plan", "x.yaml"], "dcblab: --plan and --steps: one of them"),
        (["--plan", "/nowhere.yaml"], "dcblab: --plan /nowhere.yaml: "),
        (["--lab", "other"], "dcblab: --lab: is of --mininet"),
        (["--mininet", "--debug"], "dcblab: --set, --pcap, --debug: are of virtual time"),
        (["--mininet", "--steps", "link-jitter"], "dcblab: steps: 'link-jitter': virtual labs alone can do it"),
        (["--set", "planned_us=x"], "dcblab: --set planned_us=x: int is wanted"),
    ],
)
def test_wrong_use_is_named_and_ends_with_2(words: list[str], text: str) -> None:
    result = CliRunner().invoke(app, ["chaos", *words])
    assert result.exit_code == 2
    assert result.stderr.startswith(text)
