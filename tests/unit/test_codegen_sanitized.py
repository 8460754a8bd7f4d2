"""The tests of generated C once more, on a build with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from codegen_fuzz import SANITIZE

HERE = Path(__file__).parent
FILES = ("test_codegen_programs.py", "test_codegen_tables.py", "test_codegen_runtime.py", "test_differential.py")


@pytest.mark.skipif(SANITIZE, reason="this is the sanitized run itself")
def test_the_same_tests_under_asan_and_ubsan() -> None:
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    asan = Path(found.stdout.strip())
    if not asan.is_absolute():
        pytest.skip("the C compiler has no AddressSanitizer run time")
    environment = os.environ | {
        "DCB_TEST_SANITIZE": "1",
        "LD_PRELOAD": str(asan.resolve()),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(str(HERE / name) for name in FILES)],
        env=environment, capture_output=True, text=True, cwd=HERE.parents[1], check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
