"""Runs test files again with DCB_TEST_SANITIZE=1: they then build and load C with ASan and UBSan."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _asan() -> Path | None:
    """The run time that the process must preload; None where the compiler has none."""
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    return path.resolve() if path.is_absolute() else None


def run_again(files: Iterable[Path]) -> None:
    """Fails with what a failing test, or a sanitizer, says; skips where there is no AddressSanitizer."""
    asan = _asan()
    if asan is None:
        pytest.skip("the C compiler has no AddressSanitizer run time")
    environment = os.environ | {
        "DCB_TEST_SANITIZE": "1",
        "LD_PRELOAD": str(asan),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *map(str, files)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
