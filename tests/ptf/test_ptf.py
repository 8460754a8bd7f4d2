"""P4.org's packet test framework runs P4Runtime tests of ours (tests/ptf/cases) against a switch on veth.

`ptf` is in the test extra; `make setup` installs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from client_lab import PORTS, Lab

CASES = Path(__file__).parent / "cases"
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(not (BIN / "ptf").exists(), reason=f"no ptf in {BIN} (make setup installs it)")


def test_ptf_cases_pass(lab: Lab, tmp_path: Path) -> None:
    parameters = {
        "address": lab.address, "device_id": lab.device_id, "p4info": str(lab.p4info), "json": str(lab.json)
    }  # fmt: skip
    interfaces = [argument for port in PORTS for argument in ("--interface", f"{port}@h{port}")]
    written = ";".join(f"{name}={value!r}" for name, value in parameters.items())
    done = subprocess.run(
        [*lab.inside, BIN / "python", BIN / "ptf", "--test-dir", CASES, *interfaces, "--test-params", written,
         "--log-file", tmp_path / "ptf.log", "--default-timeout", "5", "--default-negative-timeout", "0.5"],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^(\S+) \.\.\. ok$", done.stderr + done.stdout, re.MULTILINE)
    assert sorted(ran) == ["routes.PacketIoTest", "routes.ReadBackTest", "routes.RouteTest"], done.stdout + done.stderr
