"""What a scenario in virtual time is made of: options in, runs on a `Bench`, an `Outcome` of claims and plots out.

A scenario is a module of `topologies.scenarios` with

    NAME, SUMMARY            one line each
    OPTIONS                  name -> Option: what `--set name=value` and `dcblab sweep` may change
    def run(bench) -> Outcome

`run` calls `bench.run(...)` once for each fabric that it wants to see (`topologies.virtual`). Records here are plain
data: `topologies.artifacts` writes them to the results folder, `topologies.report` shows them on the screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from topologies.results import Check

if TYPE_CHECKING:
    from topologies.html_report import LinkMap

Value = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Option:
    """What a user may set. `low` and `high` bound numbers; `choices` are all there is for a string."""

    default: Value
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def parse(self, name: str, text: str) -> Value:
        """The value of `name=text`. ValueError naming the option, the value and the rule."""
        value: Value
        try:
            if isinstance(self.default, bool):
                value = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}[text.lower()]
            else:
                value = type(self.default)(text)
        except (ValueError, KeyError):
            wanted = "on or off" if isinstance(self.default, bool) else f"{type(self.default).__name__}"
            raise ValueError(f"--set {name}={text}: {wanted} is wanted") from None
        if self.choices and value not in self.choices:
            raise ValueError(f"--set {name}={text}: one of {', '.join(self.choices)} is wanted")
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.low is not None and value < self.low:
                raise ValueError(f"--set {name}={text}: at least {self.low:g} is wanted")
            if self.high is not None and value > self.high:
                raise ValueError(f"--set {name}={text}: at most {self.high:g} is wanted")
        return value


def parse_options(known: Mapping[str, Option], given: Sequence[str]) -> dict[str, Value]:
    """`name=value` texts over the defaults. ValueError with the first that is not right."""
    values = {name: option.default for name, option in known.items()}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise ValueError(f"--set {text}: NAME=VALUE is wanted, NAME one of {', '.join(known) or '(none)'}")
        values[name] = known[name].parse(name, value)
    return values


# --- what a scenario shows -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for the screen, results.json and the report; cells are shown as they are."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A curve of a panel."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: Literal["line", "step", "points", "dots", "dashed"] = "line"


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. `marks`: vertical lines with a word; `levels`: horizontal ones."""

    y_label: str
    lines: Sequence[Line]
    title: str = ""
    y_log: bool = False
    marks: Sequence[tuple[float, str]] = ()
    levels: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of panels above each other with one x axis. `name`: of the file, without suffix."""

    name: str
    title: str
    x_label: str
    panels: Sequence[Panel]
    x_log: bool = False


@dataclass(frozen=True, slots=True)
class Metric:
    """One value at one time (virtual picoseconds) of one run: a line of metrics.jsonl."""

    run: str
    time_ps: int
    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a scenario has shown. `figures`: the numbers that `dcblab compare` and `sweep` put side by side."""

    checks: Sequence[Check]
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    figures: Mapping[str, Value] = field(default_factory=dict)
    notes: Sequence[str] = ()
    """Lines for the reader: what was found where (a cycle by name), what the paper says."""
    maps: Sequence[LinkMap] = ()
    """The fabric drawn, with what went over its links: for the report."""

    @property
    def passed(self) -> bool:
        """Whether every claim held."""
        return all(check.passed for check in self.checks)


class ScenarioModule(Protocol):
    """A module of `topologies.scenarios` that runs in virtual time."""

    NAME: str
    SUMMARY: str
    OPTIONS: Mapping[str, Option]
