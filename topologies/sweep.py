"""`dcblab sweep`: a scenario over a grid of options, a process for each point, on all cores; resumes where it stopped.

A point is complete when its folder holds results.json (written last). The points' figures come together in sweep.jsonl
and, where one option with numbers varies, in a plot.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies import artifacts
from topologies.scenario import Line, Option, Panel, Plot, Value

MAX_POINTS = 10_000


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of options, and the folder of its results."""

    options: Mapping[str, Value]
    seed: int
    folder: Path

    @property
    def done(self) -> bool:
        """Whether an earlier run has finished it."""
        return (self.folder / "results.json").exists()


@dataclass(frozen=True, slots=True)
class Progress:
    """For the screen."""

    finished: int
    total: int
    skipped: int
    failed: int
    last: str


def grid(known: Mapping[str, Option], given: Sequence[str], seeds: Sequence[int], folder: Path) -> list[Point]:
    """`name=a,b,c` texts -> points in the order given, last option fastest. ValueError naming what is wrong."""
    axes: list[tuple[str, list[Value]]] = []
    for text in given:
        name, equals, values = text.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--set {text}: NAME=V1,V2,... is wanted, NAME one of {', '.join(known) or '(none)'}")
        if name in (axis for axis, _ in axes):
            raise ValueError(f"--set {text}: {name} is given twice")
        axes.append((name, [known[name].parse(name, value) for value in values.split(",")]))
    points = []
    for seed in seeds:
        for choice in itertools.product(*(values for _, values in axes)):
            options = dict(zip((name for name, _ in axes), choice, strict=True))
            label = ",".join([*(f"{name}={value}" for name, value in options.items()), f"seed={seed}"])
            points.append(Point(options, seed, folder / label))
    if len(points) > MAX_POINTS:
        raise ValueError(f"--set: {len(points)} points; at most {MAX_POINTS} are run")
    return points


def command(scenario: str, point: Point) -> list[str]:
    """What runs a point."""
    options = [part for name, value in point.options.items() for part in ("--set", f"{name}={value}")]
    base = [sys.executable, "-m", "topologies.cli", "run", scenario, "--virtual", "--seed", str(point.seed)]
    return [*base, *options, "--out", str(point.folder)]


def run(
    scenario: str, points: Sequence[Point], jobs: int, progress: Callable[[Progress], None] = lambda _: None
) -> dict[Path, str]:
    """Run the points that are not done; returns what those that failed said, by folder. A failed claim is none."""
    todo = [point for point in points if not point.done]
    skipped = len(points) - len(todo)
    failed: dict[Path, str] = {}
    finished = 0
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        waiting = {pool.submit(_one, scenario, point): point for point in todo}
        try:
            pending: set[Future[str]] = set(waiting)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    point = waiting[future]
                    if error := future.result():
                        failed[point.folder] = error
                    finished += 1
                    progress(Progress(finished + skipped, len(points), skipped, len(failed), point.folder.name))
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
    return failed


def _one(scenario: str, point: Point) -> str:
    done = subprocess.run(command(scenario, point), capture_output=True, text=True, check=False)
    return "" if point.done else (done.stderr.strip() or done.stdout.strip())[-2000:] or f"exit code {done.returncode}"


def collect(scenario: str, points: Sequence[Point], folder: Path) -> list[Path]:
    """Write sweep.jsonl, and sweep.png where one option with numbers varies; returns what was written."""
    rows: list[dict[str, Any]] = []
    for point in points:
        if point.done:
            data = artifacts.load(point.folder)
            passed = all(check["passed"] for check in data["checks"])
            rows.append({**point.options, "seed": point.seed, "passed": passed, **data["figures"]})
    written = [folder / "sweep.jsonl"]
    written[0].write_text("".join(json.dumps(row) + "\n" for row in rows))
    varied = (
        [name for name in points[0].options if len({point.options[name] for point in points}) > 1] if points else []
    )
    if len(varied) == 1 and rows and _is_number(rows[0][varied[0]]):
        (name,) = varied
        rows.sort(key=lambda row: float(row[name]))
        figures = [
            key
            for key, value in rows[0].items()
            if key not in {*points[0].options, "seed", "passed"} and _is_number(value)
        ]
        panels = [
            Panel("", [Line("", [float(r[name]) for r in rows], [float(r[figure]) for r in rows], "points")], figure)
            for figure in figures
            if all(_is_number(row.get(figure)) for row in rows)
        ]
        if panels:
            plot = Plot("sweep", f"{scenario}: {name}", name, panels)
            written.append(artifacts.draw(plot, folder / "sweep.png"))
    return written


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
