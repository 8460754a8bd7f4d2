"""A directory of `.p4` files with `.stf` files beside them: compile each with p4c, play it, collect the results.

Every program runs in a process of its own, so that one that crashes or never ends is a result like another.
"""

from __future__ import annotations

import multiprocessing
import re
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic

from switch.build import BuildError
from switch.loader import UnsupportedProgram, load

from . import engines, runner
from .grammar import StfError, parse

COMPILER = "p4c-bm2-ss"
COMPILER_TIMEOUT_S = 120
PROGRAM_TIMEOUT_S = 300
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)

PASSED, REFUSED, FAILED, OTHER_MODEL, NOT_COMPILED = "passed", "refused", "failed", "other architecture", "p4c refuses"
STATUSES = (PASSED, FAILED, REFUSED, NOT_COMPILED, OTHER_MODEL)


@dataclass(frozen=True)
class Result:
    """Of one program: one of `STATUSES` and why, where it did not pass."""

    name: str
    status: str
    reason: str = ""


def compiler_version() -> str:
    """What p4c says about itself. Raises FileNotFoundError where it is not on the PATH."""
    if shutil.which(COMPILER) is None:
        raise FileNotFoundError(f"{COMPILER} is not on the PATH")
    done = subprocess.run(
        [COMPILER, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return " ".join(done.stdout.split()).partition("Version ")[2] or done.stdout.strip()


def programs(directory: Path) -> list[Path]:
    """Sources with an STF file of the same name, below `directory`."""
    return sorted(
        source for source in directory.rglob("*.p4") if source.is_file() and source.with_suffix(".stf").is_file()
    )


def uses_v1model(source: Path, seen: frozenset[Path] = frozenset()) -> bool:
    """Whether the program includes v1model.p4, itself or through files beside it."""
    names = _INCLUDE.findall(source.read_text(errors="replace"))
    if any(Path(name).name == "v1model.p4" for name in names):
        return True
    near = [(source.parent / name).resolve() for name in names]
    return any(uses_v1model(path, seen | {path}) for path in near if path.is_file() and path not in seen)


def compile_program(source: Path, output: Path, options: Sequence[str] = ()) -> str | None:
    """Make the JSON; None, or the first error of p4c. Runs beside the source, so that the JSON names no directories."""
    command = [COMPILER, "--arch", "v1model", *options, "-o", str(output.resolve()), source.name]
    try:
        done = subprocess.run(
            command, cwd=source.parent, capture_output=True, text=True, check=False, timeout=COMPILER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"does not end within {COMPILER_TIMEOUT_S} s"
    if done.returncode == 0 and output.exists():
        return None
    lines = [line.strip() for line in done.stderr.splitlines() if "error" in line or "Bug" in line]
    return lines[0] if lines else f"exit status {done.returncode}"


def play(json_text: str, stf_text: str, engine_name: str) -> Result:
    """One program on one engine; `name` of the result is the engine's."""
    try:
        program = load(json_text)
    except UnsupportedProgram as error:
        return Result(engine_name, REFUSED, str(error))
    try:
        statements = parse(stf_text)
        engine = engines.open_engine(engine_name, json_text, runner.ports_of(statements))
        try:
            runner.Runner(program, engine).run(statements)
        finally:
            engine.close()
    except (runner.Difference, StfError, engines.EngineError, BuildError) as error:
        return Result(engine_name, FAILED, str(error))
    return Result(engine_name, PASSED)


def run_program(source: Path, name: str, engine_names: Sequence[str], work: Path) -> Result:
    """Compile and play one program; the result is that of the first engine that does not pass."""
    if not uses_v1model(source):
        return Result(name, OTHER_MODEL)
    output = work / f"{source.stem}.json"
    refused = compile_program(source, output)
    if refused is not None:
        return Result(name, NOT_COMPILED, refused)
    for engine_name in engine_names:
        played = play(output.read_text(), source.with_suffix(".stf").read_text(errors="replace"), engine_name)
        if played.status == REFUSED:
            return Result(name, REFUSED, played.reason)
        if played.status != PASSED:
            return Result(name, played.status, f"{engine_name}: {played.reason}")
    return Result(name, PASSED)


def _child(source: Path, name: str, engine_names: Sequence[str], back: Connection) -> None:
    with tempfile.TemporaryDirectory(prefix="stf-") as work:
        try:
            result = run_program(source, name, engine_names, Path(work))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            result = Result(
                name, FAILED, f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            )
    back.send(result)


def run_directory(
    directory: Path, engine_names: Sequence[str], jobs: int, progress: Callable[[Result, int, int], None]
) -> list[Result]:
    """All programs below a directory, `jobs` at a time; in order of name. `progress` sees each result as it comes."""
    context = multiprocessing.get_context("fork")
    waiting = programs(directory)[::-1]
    total = len(waiting)
    running: dict[Connection, tuple[BaseProcess, str, float]] = {}
    results: list[Result] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            source = waiting.pop()
            name = str(source.relative_to(directory).with_suffix(""))
            ours, theirs = context.Pipe(duplex=False)
            process: BaseProcess = context.Process(target=_child, args=(source, name, engine_names, theirs))
            process.start()
            theirs.close()
            running[ours] = (process, name, monotonic() + PROGRAM_TIMEOUT_S)
        until = max(0.0, min(deadline for _, _, deadline in running.values()) - monotonic())
        done = [connection for connection in wait(list(running), until) if isinstance(connection, Connection)]
        for connection in done or [found for found, (_, _, deadline) in running.items() if deadline <= monotonic()]:
            process, name, _ = running.pop(connection)
            result = _take(connection, process, name, finished=connection in done)
            results.append(result)
            progress(result, len(results), total)
    return sorted(results, key=lambda result: result.name)


def _take(connection: Connection, process: BaseProcess, name: str, *, finished: bool) -> Result:
    try:
        if not finished:
            process.kill()
            return Result(name, FAILED, f"does not end within {PROGRAM_TIMEOUT_S} s")
        result = connection.recv()
        assert isinstance(result, Result)
        return result
    except EOFError:
        process.join()
        return Result(name, FAILED, f"the process ended with {process.exitcode}")
    finally:
        connection.close()
        process.join()
