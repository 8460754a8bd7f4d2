"""`dcblab chaos --mininet` in real time: a link flaps, the controller and a switch are killed, and all comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from topologies.cli import app

pytestmark = pytest.mark.mininet

PLAN = [
    {"step": "link-flap", "target": ["leaf1", "spine1"], "duration_us": 400, "times": 2},
    {"step": "controller-restart", "duration_us": 200},
    {"step": "switch-restart", "target": "leaf2", "duration_us": 200},
]


def test_a_lab_comes_back_from_a_flap_and_two_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCBLAB_RUN", str(tmp_path / "run"))
    plan, folder = tmp_path / "plan.yaml", tmp_path / "results"
    plan.write_text(yaml.safe_dump(PLAN))
    words = ["chaos", "--mininet", "--plan", str(plan), "--lab", "chaostest", "--out", str(folder)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    checks = json.loads((folder / "results.json").read_text())["checks"]
    assert [check["claim"] for check in checks if not check["passed"]] == []
    assert len(checks) == 7
    # a switch that was killed comes back empty, and is given its program and all of its entries; the others are not
    assert "the controller pushed 1 programs and wrote 128 entries" in checks[6]["evidence"]
    assert "the controller pushed 0 programs and wrote 0 entries" in checks[3]["evidence"]
