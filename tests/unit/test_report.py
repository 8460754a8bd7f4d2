"""Results on disk: what sudo makes belongs to the user who called it; nothing that was there before changes hands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topologies import report
from topologies.results import Check


def test_only_what_was_made_is_given_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Path, int, int]] = []
    monkeypatch.setattr("topologies.report.os.geteuid", lambda: 0)
    monkeypatch.setattr("topologies.report.os.chown", lambda path, uid, gid: given.append((path, uid, gid)))
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1001")
    folder = tmp_path / "results" / "scenario"
    report.save(folder, [], [Check("a", True, "b")], {"scenario": "s"})
    assert sorted(path for path, _, _ in given) == [
        *(folder.parent, folder, folder / "report.html", folder / "results.json")
    ]
    assert {(uid, gid) for _, uid, gid in given} == {(1000, 1001)}
    data = json.loads((folder / "results.json").read_text())
    assert data == {"scenario": "s", "runs": [], "checks": [{"claim": "a", "passed": True, "evidence": "b"}]}
