"""The goldens recorded again, from BMv2 as it is installed here and from dcbswitch, and compared."""

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

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace of its own")
needs_bmv2 = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="no simple_switch_grpc on the PATH")


def record(directory: Path, *arguments: str) -> None:
    command = [sys.executable, str(HERE / "record.py"), "--output", str(directory), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def compare(golden: Path, recorded: Path) -> None:
    """Who was recorded may differ, nothing else."""
    then, now = (json.loads(path.read_text()) for path in (golden, recorded))
    del then["recorded_from"], now["recorded_from"]
    assert now == then


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All scenarios recorded now; one BMv2 each."""
    directory = tmp_path_factory.mktemp("goldens")
    record(directory)
    return directory


@pytest.mark.bmv2
@needs_bmv2
@needs_root
@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_bmv2_answers_as_recorded(golden: Path, recorded: Path) -> None:
    compare(golden, recorded / golden.name)


@pytest.mark.mininet
@needs_root
def test_dcbswitch_answers_as_bmv2(tmp_path: Path) -> None:
    """Over veth pairs and P4Runtime: tables of every kind, a selector, clone sessions, packet-in."""
    executable = Path(sys.executable).parent / "dcbswitch"
    record(tmp_path, "--switch", str(executable), "acl")
    compare(HERE / "goldens" / "acl.json", tmp_path / "acl.json")
