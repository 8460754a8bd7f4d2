"""An environment with p4runtime-shell, made once: its protobuf classes clash with ours (it wants protobuf < 3.21).

Kept in the cache folder of built programs ($DCBLAB_CACHE, else ~/.cache/dcblab). It appears by a rename when all is in
it, so nobody sees half of one. Making it takes about 20 s; where pip reaches no index, the caller gets pip's reason.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from switch.build import cache_directory

PACKAGE = "p4runtime-shell==0.0.6"
TIMEOUT_S = 180.0


class NoShellError(Exception):
    """p4runtime-shell cannot be installed here; says why in a line."""


def shell_python() -> Path:
    """The Python of the environment, from the cache or made now. Raises `NoShellError`."""
    cache = cache_directory()
    version = f"py{sys.version_info.major}.{sys.version_info.minor}"
    made = cache / f"{PACKAGE.replace('==', '-')}-{version}"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="venv-") as folder:
            _make(Path(folder) / "venv")
            try:
                (Path(folder) / "venv").rename(made)
            except OSError:  # another process was first
                if not made.exists():
                    raise
    return made / "bin" / "python"


def _make(directory: Path) -> None:
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    for command in ([sys.executable, "-m", "venv", directory], [directory / "bin/python", *install, PACKAGE]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise NoShellError(f"{PACKAGE}: not installed within {TIMEOUT_S:g} s") from None
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stdout.strip()]
            raise NoShellError(f"{PACKAGE} cannot be installed: {errors[-1]}")
