"""What a scenario runs on: each `run` is a fresh fabric, from a seed, in a virtual-time loop of its own.

The bench keeps what the results folder wants of every run (resolved configuration, metrics, captures) and tells the
screen what is going on. One thread; a run ends when its body returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from fabric.engine import Fabric, Series
from fabric.loop import PS_PER_S, run
from topologies.description import Topology
from topologies.scenario import Line, Metric, Value
from topologies.virtual.lab import LabSettings, VirtualLab

T = TypeVar("T")
LIMIT_PS = 600 * PS_PER_S


class Bench:
    """See the module. `options`: the scenario's, by name. `captures`: folder for pcaps, None: none are written."""

    def __init__(
        self,
        *,
        seed: int = 1,
        options: Mapping[str, Value] | None = None,
        progress: Callable[[str], None] = lambda _: None,
        captures: Path | None = None,
        debug: bool | None = None,
    ) -> None:
        self.seed, self.options, self.progress, self.captures, self.debug = (
            seed,
            options or {},
            progress,
            captures,
            debug,
        )
        self.configs: dict[str, dict[str, Any]] = {}
        self.metrics: list[Metric] = []
        self.traces: dict[str, str] = {}
        self.hops = 0

    def number(self, name: str) -> int:
        """An option that is a whole number."""
        value = self.options[name]
        assert isinstance(value, int)
        return value

    def run(
        self,
        name: str,
        topology: Topology,
        configuration: Mapping[str, Any],
        body: Callable[[VirtualLab], Awaitable[T]],
        settings: LabSettings | None = None,
    ) -> T:
        """Build the fabric, bring it up, let `body` play on it; returns what the body does. `name`: of this run."""
        if name in self.configs:
            raise ValueError(f"run {name!r}: there was one of this name")
        self.progress(f"{name}: {len(topology.switches)} switches, {len(topology.hosts)} hosts")
        self.configs[name] = dict(configuration)
        fabric = Fabric(self.seed, debug=self.debug)
        made: list[VirtualLab] = []

        async def main() -> T:
            made.append(VirtualLab(fabric, topology, configuration, settings, seed=self.seed))
            async with made[0] as lab:
                if self.captures is not None:
                    lab.capture(self.captures / name)
                result = await body(lab)
                self.traces[name] = fabric.trace_hash
                self.hops += fabric.hops
                self.progress(f"{name}: done at {lab.now_ps / 1e9:.3f} ms of virtual time, {fabric.hops:,} frame hops")
                return result

        try:
            return run(fabric, main(), limit_ps=LIMIT_PS)
        finally:
            fabric.close()
            for lab in made:
                lab.free()

    def record(
        self, run_name: str, series: Series, labels: Mapping[str, Mapping[str, str]] | None = None
    ) -> list[Line]:
        """Take a series into metrics.jsonl and return it as curves over milliseconds, one for each of its labels."""
        rows = series.rows()
        times_ms = [row[0] / 1e9 for row in rows]
        lines = []
        for n, label in enumerate(series.labels, 1):
            extra = dict((labels or {}).get(label, {}))
            self.metrics += [Metric(run_name, row[0], label, row[n], extra) for row in rows]
            lines.append(Line(label, times_ms, [row[n] for row in rows]))
        return lines


def rates(line: Line, *, scale: float = 8e-6) -> Line:
    """The slope of a curve of bytes over milliseconds, in Gb/s (`scale` 8e-6), at the later of each two points."""
    pairs = zip(line.x, line.y, strict=True)
    points = [(x1, (y1 - y0) / (x1 - x0) * scale) for (x0, y0), (x1, y1) in pairwise(pairs) if x1 > x0]
    return Line(line.label, [x for x, _ in points], [y for _, y in points], line.style)


def jain(values: Iterable[float]) -> float:
    """Jain's fairness index: 1 where all are equal, 1/n where one has everything."""
    found = list(values)
    squares = sum(v * v for v in found)
    return sum(found) ** 2 / (len(found) * squares) if squares else 1.0
