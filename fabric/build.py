"""Compiles the event engine to a shared object of its own and keeps it, named by the hash of everything that made it.

The engine is the same for every program: what it needs of a switch it calls through function pointers. The result
lies beside the built programs (`switch.build.cache_directory`) and appears by an atomic rename, so that any number of
processes may build at once.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import tempfile
from pathlib import Path

from switch.build import (
    BASE_FLAGS,
    FAST_FLAGS,
    SANITIZE_FLAGS,
    BuildError,
    cache_directory,
    compiler,
)
from switch.build import NATIVE as SWITCH_NATIVE

NATIVE = Path(__file__).parent / "native"

__all__ = ["BuildError", "build_engine"]


def build_engine(*, sanitize: bool = False) -> Path:
    """The engine's shared object, from the cache or newly built; raises `BuildError` with what the compiler says.

    `sanitize`: with AddressSanitizer and UndefinedBehaviorSanitizer (the process then needs libasan preloaded).
    """
    command = [*compiler(), *BASE_FLAGS, *(SANITIZE_FLAGS if sanitize else FAST_FLAGS)]
    sources = sorted(NATIVE.glob("*.c"))
    digest = hashlib.sha256("\0".join(command).encode())
    version = subprocess.run([*compiler(), "--version"], capture_output=True, check=False).stdout
    digest.update(version)
    for path in [*sources, *sorted(NATIVE.glob("*.h")), *sorted(SWITCH_NATIVE.glob("*.h"))]:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    directory = cache_directory()
    target = directory / f"fabric-{digest.hexdigest()[:32]}.so"
    if target.exists():
        return target
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"the cache directory {directory} cannot be made: {error}; set DCBLAB_CACHE") from error
    with tempfile.TemporaryDirectory(dir=directory, prefix="build-") as work:
        built = Path(work) / "fabric.so"
        line = [*command, f"-I{SWITCH_NATIVE}", "-shared", "-o", str(built), *map(str, sources)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"{shlex.join(line)} failed with {done.returncode}:\n{done.stderr[-4000:]}")
        built.replace(target)
    return target
