"""The tests of the whole program once more, on a build with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from dcb_switch import SANITIZE
from sanitized import run_again

HERE = Path(__file__).parent
FILES = (
    *("test_whole_pfc.py", "test_whole_buffer.py", "test_whole_control.py", "test_whole_garbage.py"),
    *("test_whole_storm.py", "test_whole_pools.py", "test_whole_dialects.py", "test_whole_sonic.py"),
    "test_whole_qcn.py",
)


@pytest.mark.skipif(SANITIZE, reason="this is the sanitized run itself")
def test_the_same_tests_under_asan_and_ubsan() -> None:
    run_again(HERE / name for name in FILES)
