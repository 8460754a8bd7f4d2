"""From a BMv2 JSON to a shared object: generated C plus the native sources, compiled by the system's C compiler.

The result is cached by a hash of everything that it depends on (the JSON, the generator, the C sources, compiler and
flags) under $DCBLAB_CACHE, else ~/.cache/dcblab. Sources that do not depend on the program are compiled once and
cached as objects. Every file appears by an atomic rename, so that any number of processes may build at once.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from switch.codegen import CodegenError, generate
from switch.loader import load

PACKAGE = Path(__file__).parent
NATIVE = PACKAGE / "native"
BASE_FLAGS = ("-std=gnu11", "-fno-strict-aliasing", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror")
SANITIZE_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1", "-O1")
DEBUG_FLAGS = ("-O0", "-g3")
FAST_FLAGS = ("-O2",)


class BuildError(OSError):
    """No compiler, or a compiler that fails; the message has its output."""


def cache_directory() -> Path:
    """Where built programs are kept: $DCBLAB_CACHE, else ~/.cache/dcblab."""
    configured = os.environ.get("DCBLAB_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "dcblab"


def compiler() -> list[str]:
    """The command of the C compiler: $CC, else cc. Raises `BuildError` where there is none."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(command[0]) is None:
        raise BuildError(
            f"there is no C compiler: {command[0]!r} is not on the PATH. Install one (apt install gcc), or set CC"
        )
    return command


@cache
def _compiler_version(command: tuple[str, ...]) -> str:
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return result.stdout


def _flags(*, sanitize: bool, debug: bool) -> tuple[str, ...]:
    return BASE_FLAGS + (SANITIZE_FLAGS if sanitize else DEBUG_FLAGS if debug else FAST_FLAGS)


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _generator_sources() -> list[bytes]:
    """What decides about the generated C, beside the JSON."""
    paths = sorted((PACKAGE / "codegen").glob("*.py")) + sorted(PACKAGE.glob("loader*.py")) + [PACKAGE / "model.py"]
    return [path.read_bytes() for path in paths]


def build_program(json_text: str | bytes, *, sanitize: bool = False, debug: bool = False) -> Path:
    """The shared object of a program, from the cache or newly built.

    `sanitize` builds with AddressSanitizer and UndefinedBehaviorSanitizer (the process then needs libasan preloaded),
    `debug` without optimisation. Raises `switch.loader.UnsupportedProgram` for a program that the target cannot run,
    `BuildError` for what the compiler says.
    """
    text = json_text.encode() if isinstance(json_text, str) else json_text
    command = compiler()
    flags = _flags(sanitize=sanitize, debug=debug)
    sources = sorted(NATIVE.glob("*.c"))
    headers = [path.read_bytes() for path in sorted(NATIVE.glob("*.h"))]
    tool = [" ".join(command).encode(), _compiler_version(tuple(command)).encode(), " ".join(flags).encode()]
    key = _hash([text, *_generator_sources(), *headers, *(path.read_bytes() for path in sources), *tool])
    directory = cache_directory()
    target = directory / f"program-{key[:32]}.so"
    if target.exists():
        return target
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"the cache directory {directory} cannot be made: {error}; set DCBLAB_CACHE") from error
    try:
        source = generate(load(text))
    except CodegenError as error:
        raise BuildError(f"the program cannot be turned into C: {error}") from error
    with tempfile.TemporaryDirectory(dir=directory, prefix="build-") as work_name:
        work = Path(work_name)
        program = work / "program.c"
        program.write_text(source)
        jobs = [(program, work / "program.o")]
        objects = [work / "program.o"]
        for path in sources:
            name = _hash([path.name.encode(), path.read_bytes(), *headers, *tool])
            cached = directory / f"{path.stem}-{name[:32]}.o"
            objects.append(cached)
            if not cached.exists():
                jobs.append((path, cached))
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            list(pool.map(lambda job: _compile(command, flags, job[0], job[1], work), jobs))
        built = work / "program.so"
        _run([*command, *flags, "-shared", "-o", str(built), *map(str, objects)])
        built.replace(target)
        if debug or sanitize:
            shutil.copyfile(program, target.with_suffix(".c"))
    return target


def _compile(command: Sequence[str], flags: Sequence[str], source: Path, target: Path, work: Path) -> None:
    made = work / f"{source.stem}.made.o"
    _run([*command, *flags, f"-I{NATIVE}", "-c", "-o", str(made), str(source)])
    made.replace(target)


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{shlex.join(command)} failed with {result.returncode}:\n{result.stderr[-4000:]}")
