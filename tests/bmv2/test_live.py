"""BMv2 as it is installed here answers as the goldens say: they are recorded again and compared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GOLDENS = sorted((HERE / "goldens").glob("*.json"))

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on the PATH"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace of its own"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All scenarios recorded now; one switch each."""
    directory = tmp_path_factory.mktemp("goldens")
    command = [sys.executable, str(HERE / "record.py"), "--output", str(directory)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return directory


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_bmv2_answers_as_recorded(golden: Path, recorded: Path) -> None:
    then, now = (json.loads(path.read_text()) for path in (golden, recorded / golden.name))
    # Another BMv2 may say another version; its answers must be the same.
    del then["recorded_from"], now["recorded_from"]
    assert now == then
