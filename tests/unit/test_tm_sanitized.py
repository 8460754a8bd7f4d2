"""The tests of the traffic manager and the core once more, on a build with AddressSanitizer and UBSan."""

from __future__ import annotations

from pathlib import Path

import pytest
from l2_core import SANITIZE
from sanitized import run_again

HERE = Path(__file__).parent
FILES = ("test_core.py", "test_tm_buffer.py", "test_tm_pfc.py", "test_tm_scheduler.py", "test_tm_random.py")


@pytest.mark.skipif(SANITIZE, reason="this is the sanitized run itself")
def test_the_same_tests_under_asan_and_ubsan() -> None:
    run_again(HERE / name for name in FILES)
