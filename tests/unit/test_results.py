"""Options, comparison, grid and resumption of runs in virtual time; no fabric runs here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from topologies import artifacts, sweep
from topologies.compare import Difference, compare
from topologies.scenario import Line, Option, Panel, Plot, parse_options

OPTIONS = {
    "xoff": Option(60_000, "XOFF in bytes", low=1_000, high=1_000_000),
    "watchdog": Option(True, "watchdog on"),
    "cc": Option("paper", "profile", choices=("paper", "cx4", "off")),
    "load": Option(1.2, "of the link", low=0),
}


def test_options_have_the_type_of_their_default() -> None:
    assert parse_options(OPTIONS, ["xoff=9000", "watchdog=off", "cc=off", "load=2"]) == {
        "xoff": 9000,
        "watchdog": False,
        "cc": "off",
        "load": 2.0,
    }
    assert parse_options(OPTIONS, []) == {"xoff": 60_000, "watchdog": True, "cc": "paper", "load": 1.2}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("xoff", "NAME=VALUE is wanted"),
        ("xof=1", "NAME one of xoff, watchdog, cc, load"),
        ("xoff=1.5", "int is wanted"),
        ("xoff=999", "at least 1000"),
        ("xoff=1000001", "at most 1e"),
        ("watchdog=maybe", "on or off"),
        ("cc=bbr", "one of paper, cx4, off"),
        ("load=-1", "at least 0"),
    ],
)
def test_options_that_are_refused(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        parse_options(OPTIONS, [text])
    assert text in str(caught.value)


def results(**changes: Any) -> dict[str, Any]:
    base = {
        "scenario": "x",
        "target": "virtual",
        "seed": 1,
        "options": {"xoff": 60_000},
        "versions": {"p4c": "1"},
        "checks": [{"claim": "nothing is lost", "passed": True, "evidence": "0"}],
        "figures": {"lost": 0, "gbps": 99.0, "who": "h1"},
    }
    return base | changes


def test_compare_names_what_differs() -> None:
    other = results(
        options={"xoff": 30_000},
        checks=[{"claim": "nothing is lost", "passed": False, "evidence": "7"}],
        figures={"lost": 7, "gbps": 49.5, "who": "h1", "more": 1},
    )
    assert compare(results(), other) == [
        Difference("option xoff", "60,000", "30,000", "differs"),
        Difference("nothing is lost", "proved", "FAILED", "differs"),
        Difference("lost", "0", "7", "+7"),
        Difference("gbps", "99", "49.5", "-50.0%"),
        Difference("who", "h1", "h1", "="),
        Difference("more", "-", "1", "differs"),
    ]


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    points = sweep.grid("x", OPTIONS, ["xoff=1000,2000", "cc=paper,off"], [1, 2], tmp_path)
    assert len(points) == 8
    assert points[1].options == {"xoff": 1000, "cc": "off"}
    assert points[-1].folder == tmp_path / "xoff=2000,cc=off,seed=2"
    command = sweep.command(points[0])
    assert command[3:] == [
        *("run", "x", "--virtual", "--seed", "1", "--set", "xoff=1000", "--set", "cc=paper"),
        *("--out", str(tmp_path / "xoff=1000,cc=paper,seed=1")),
    ]
    with pytest.raises(ValueError, match="given twice"):
        sweep.grid("x", OPTIONS, ["xoff=1000", "xoff=2000"], [1], tmp_path)


def test_a_sweep_runs_what_is_not_done_and_collects_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = sweep.grid("x", OPTIONS, ["xoff=3000,1000,2000"], [1], tmp_path)
    ran = []

    def fake(point: sweep.Point) -> str:
        ran.append(point.options["xoff"])
        if point.options["xoff"] == 2000 and len(ran) < 4:
            return "out of luck"
        point.folder.mkdir()
        figures = {"gbps": point.options["xoff"] / 100}
        (point.folder / "results.json").write_text(json.dumps(results(figures=figures, options=dict(point.options))))
        return ""

    monkeypatch.setattr(sweep, "_one", fake)
    seen: list[sweep.Progress] = []
    failed = sweep.run(points, 1, seen.append)
    assert {folder.name: text for folder, text in failed.items()} == {"xoff=2000,seed=1": "out of luck"}
    assert (seen[-1].finished, seen[-1].total, seen[-1].failed) == (3, 3, 1)
    assert sweep.run(points, 1) == {}  # takes up what is missing, and that alone
    assert ran == [3000, 1000, 2000, 2000]
    assert not sweep.grid("y", OPTIONS, ["xoff=3000"], [1], tmp_path)[0].done  # another scenario's results
    written = sweep.collect("x", points, tmp_path)
    assert [path.name for path in written] == ["sweep.jsonl", "sweep.png"]
    rows = [json.loads(line) for line in written[0].read_text().splitlines()]
    assert rows[0] == {"xoff": 3000, "seed": 1, "passed": True, "gbps": 30.0}


def test_results_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(artifacts.ResultsError, match="no results there"):
        artifacts.load(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(artifacts.ResultsError, match="not the results"):
        artifacts.load(tmp_path)


def test_a_plot_is_a_picture(tmp_path: Path) -> None:
    panel = Panel("Gb/s", [Line("a", [0, 1], [1, 2], "step"), Line("b", [0, 1], [2, 0])], marks=[(0.5, "cut")])
    path = artifacts.draw(
        Plot("p", "title", "ms", [panel, Panel("x", [Line("", [0, 1], [0, 9])], y_log=True)]), tmp_path / "p.png"
    )
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
