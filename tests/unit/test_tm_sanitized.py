"""The tests of the traffic manager and the core once more, on a build with AddressSanitizer and UBSan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from l2_core import SANITIZE

HERE = Path(__file__).parent
FILES = ("test_core.py", "test_tm_buffer.py", "test_tm_pfc.py", "test_tm_scheduler.py", "test_tm_random.py")


def _runtime(name: str) -> Path | None:
    found = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    return path.resolve() if path.is_absolute() else None


@pytest.mark.skipif(SANITIZE, reason="this is the sanitized run itself")
def test_the_same_tests_under_asan_and_ubsan() -> None:
    asan = _runtime("libasan.so")
    if asan is None:
        pytest.skip("the C compiler has no AddressSanitizer run time")
    environment = os.environ | {
        "DCB_TEST_SANITIZE": "1",
        "LD_PRELOAD": str(asan),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *(str(HERE / name) for name in FILES)],
        env=environment, capture_output=True, text=True, cwd=HERE.parents[1], check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
