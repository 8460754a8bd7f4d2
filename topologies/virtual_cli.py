"""`dcblab run NAME --virtual`, `dcblab compare` and `dcblab sweep`: arguments in, results folders and exit codes out.

Exit codes: 0 every claim proved, 1 a claim did not hold or a run failed, 2 wrong use.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as ScreenTable

from topologies import artifacts, report, sweep
from topologies.compare import compare as compare_results
from topologies.paths import results_dir
from topologies.scenario import Outcome, Table, parse_options
from topologies.scenarios import is_virtual, scenarios

Out = Annotated[Path | None, typer.Option(help="folder for results [results/SCENARIO/TIME]")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of an option of the scenario; repeat it")]


def _fail(message: str, code: int) -> typer.Exit:
    print(f"dcblab: {message}", file=sys.stderr)
    return typer.Exit(code)


def add_to(app: typer.Typer) -> None:
    """Register `compare` and `sweep`."""
    app.command("compare")(compare)
    app.command("sweep")(sweep_)


def virtual_scenario(name: str) -> ModuleType:
    """The module of a scenario that runs in virtual time. typer.Exit(2) where there is none of this name."""
    module = scenarios().get(name)
    if module is None or not is_virtual(module):
        known = ", ".join(n for n, m in scenarios().items() if is_virtual(m))
        raise _fail(f"scenario {name!r}: not one that runs in virtual time: {known}", 2)
    return module


def run(name: str, seed: int, settings: list[str], out: Path | None, pcap: bool, debug: bool) -> None:
    """Run a scenario in virtual time, show what it proves, leave a results folder. Ends by typer.Exit."""
    from controller.config import ConfigError
    from fabric.engine import FabricError
    from hosts.nic import NicError
    from topologies.virtual.bench import Bench
    from topologies.virtual.lab import LabError

    module = virtual_scenario(name)
    try:
        options = parse_options(module.OPTIONS, settings)
    except ValueError as error:
        raise _fail(str(error), 2) from None
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    folder = out or results_dir(name) / time.strftime("%Y%m%d-%H%M%S")
    try:
        report.make_folder(folder)
    except OSError as error:
        raise _fail(f"results folder {folder}: {error.strerror}", 1) from None
    console.print(f"{module.NAME}: {module.SUMMARY} (virtual time, seed {seed})")
    started = time.monotonic()
    with console.status("") as status:

        def progress(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(text)

        captures = folder / "pcap" if pcap else None
        bench = Bench(seed=seed, options=options, progress=progress, captures=captures, debug=debug or None)
        try:
            outcome = module.run(bench)
        except (LabError, ConfigError, FabricError, NicError, TimeoutError, OSError) as error:
            raise _fail(f"{name}: {error}", 1) from None
    _show(console, outcome)
    written = artifacts.save(
        folder,
        scenario=module.NAME,
        summary=module.SUMMARY,
        seed=seed,
        options=options,
        outcome=outcome,
        configs=bench.configs,
        metrics=bench.metrics,
    )
    console.print(f"  {bench.hops:,} frame hops in {time.monotonic() - started:.1f} s; results:")
    for path in written:
        if path.suffix in (".json", ".png", ".html"):
            console.print(f"  {path}")
    raise typer.Exit(0 if outcome.passed else 1)


def _show(console: Console, outcome: Outcome) -> None:
    for table in outcome.tables:
        console.print(_screen(table))
    for note in outcome.notes:
        console.print(f"  {note}", markup=False)
    console.print("What this proves:")
    report.print_checks(console, outcome.checks)


def _screen(table: Table) -> ScreenTable:
    made = ScreenTable(title=table.title, title_justify="left", header_style="bold")
    for number, column in enumerate(table.columns):
        made.add_column(column, justify="left" if number == 0 else "right")
    for row in table.rows:
        made.add_row(*row)
    return made


def compare(
    a: Annotated[Path, typer.Argument(help="results folder of a run")],
    b: Annotated[Path, typer.Argument(help="and of another")],
) -> None:
    """Put two runs side by side: options, claims and figures."""
    try:
        rows = compare_results(artifacts.load(a), artifacts.load(b))
    except artifacts.ResultsError as error:
        raise _fail(str(error), 2) from None
    table = ScreenTable(header_style="bold")
    for heading in ("", f"A {a}", f"B {b}", "B against A"):
        table.add_column(heading, justify="left" if not heading else "right", overflow="fold")
    for row in rows:
        table.add_row(row.what, row.a, row.b, row.change)
    Console(highlight=False, width=None if sys.stdout.isatty() else 140).print(table)


def sweep_(
    scenario: Annotated[str, typer.Argument(help="a scenario that runs in virtual time")],
    settings: Annotated[list[str], typer.Option("--set", help="NAME=V1,V2,... ; repeat it: the grid is their product")],
    seeds: Annotated[str, typer.Option(help="seeds, with commas")] = "1",
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="processes [all cores]")] = os.cpu_count() or 1,
    out: Annotated[Path | None, typer.Option(help="folder; one that exists is taken up where it stopped")] = None,
) -> None:
    """Run a scenario over a grid of options, on all cores; a sweep that was interrupted goes on where it stopped."""
    module = virtual_scenario(scenario)
    folder = out or results_dir(scenario) / "sweep"
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
        points = sweep.grid(scenario, module.OPTIONS, settings, numbers, folder)
        report.make_folder(folder)
    except (ValueError, OSError) as error:
        raise _fail(str(error), 2) from None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"{scenario}: {len(points)} points", total=len(points))

        def progress(now: sweep.Progress) -> None:
            bar.update(task, completed=now.finished, description=f"{scenario}: {now.last}, {now.failed} failed")

        failed = sweep.run(points, jobs, progress)
        bar.update(task, completed=len(points))
    for path in sweep.collect(scenario, points, folder):
        console.print(f"  {path}")
    for path, text in failed.items():
        print(f"dcblab: {path}: {text}", file=sys.stderr)
    raise typer.Exit(1 if failed else 0)
