"""The tests of generated C once more, on a build with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from codegen_fuzz import SANITIZE
from sanitized import run_again

HERE = Path(__file__).parent
FILES = ("test_codegen_programs.py", "test_codegen_tables.py", "test_codegen_runtime.py", "test_differential.py")


@pytest.mark.skipif(SANITIZE, reason="this is the sanitized run itself")
def test_the_same_tests_under_asan_and_ubsan() -> None:
    run_again(HERE / name for name in FILES)
