"""The tests of the NIC once more, on a build with AddressSanitizer and UBSan."""

from __future__ import annotations

from pathlib import Path

import pytest
from l2_core import SANITIZE
from sanitized import run_again

HERE = Path(__file__).parent
FILES = (
    "test_nic_port.py",
    "test_nic_rdma.py",
    "test_nic_dcqcn.py",
    "test_nic_qcn.py",
    "test_nic_tcp.py",
    "test_nic_random.py",
    "test_nic_driver.py",
)


@pytest.mark.skipif(SANITIZE, reason="this is the sanitized run itself")
def test_the_same_tests_under_asan_and_ubsan() -> None:
    run_again(HERE / name for name in FILES)
