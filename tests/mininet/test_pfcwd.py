"""A host with a broken NIC freezes a ToR in real time; storm control alone thaws it, and so does the watchdog alone.

`dcblab run nic-storm` as a user runs it: one network for all of it, real frames, real processes, `dcbctl` over the
control socket. What it proves is asked of its results; what it says of the spread, of its report.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from topologies import nic_storm_lab
from topologies.cli import app

pytestmark = pytest.mark.mininet


def test_a_broken_nic_freezes_a_tor_and_storm_control_or_the_watchdog_thaws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCBLAB_RUN", str(tmp_path / "run"))
    folder = tmp_path / "results"
    words = ["run", "nic-storm", "--duration", "6", "--lab", "pfcwdtest", "--out", str(folder)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    results = json.loads((folder / "results.json").read_text())
    failed = [check for check in results["checks"] if not check["passed"]]
    assert (len(results["checks"]), failed) == (9, [])
    frames = results["figures"]
    for phase in ("storm, no cure", "storm, storm control taken back"):  # a frozen ToR, to the frame
        assert frames[f"{phase}: {nic_storm_lab.TO_WELL}"] == frames[f"{phase}: {nic_storm_lab.TO_BROKEN}"] == 0
    assert frames[f"storm, watchdog: {nic_storm_lab.TO_BROKEN}"] == 0
    assert frames["hops"] == 4
    # the chain that `dcbctl why` printed ends at the host, two switches away from where it was asked
    assert re.search(
        r"leaf2:3 priority 3: .* waits for spine1:2\n *spine1:1 .* waits for leaf1:3\n *leaf1:1 ", result.output
    )
    assert "leaf1:1 is paused by h1, which is no switch of this fabric" in result.output
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    for sender, receiver in (("h1", "leaf1"), ("leaf1", "spine1"), ("spine1", "leaf2"), ("leaf2", "h4")):
        assert f"{sender} -&gt; {receiver}" in page
    assert "the longest way is 4 hops" in page
