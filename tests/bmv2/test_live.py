"""The goldens recorded again, from BMv2 as it is installed here and from dcbswitch, and compared.

Over veth pairs and P4Runtime: tables of every kind, a selector, clone sessions, packet-in and -out, counters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GOLDENS = sorted((HERE / "goldens").glob("*.json"))
SWITCHES = {"embedded": str(Path(sys.executable).parent / "dcbswitch"), "bmv2": "simple_switch_grpc"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace of its own")
def test_answers_as_recorded(target: str, tmp_path: Path) -> None:
    """All scenarios recorded now, one switch each. Who was recorded may differ, nothing else."""
    command = [sys.executable, HERE / "record.py", "--output", tmp_path, "--switch", SWITCHES[target]]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert GOLDENS
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [golden.name for golden in GOLDENS]
    for golden in GOLDENS:
        then, now = (json.loads(path.read_text()) for path in (golden, tmp_path / golden.name))
        del then["recorded_from"], now["recorded_from"]
        assert now == then, golden.stem
