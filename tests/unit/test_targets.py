"""What the command line says of a target that is not there, and that docs/targets.md names tests that exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from topologies import network
from topologies.network import NetworkError

ROOT = Path(__file__).resolve().parents[2]


def feature_rows() -> list[str]:
    """The lines of the table, without its head."""
    matrix = (ROOT / "docs" / "targets.md").read_text().partition("## Feature by feature")[2].partition("\n## ")[0]
    return [
        line for line in matrix.splitlines() if line.startswith("| ") and not line.startswith(("| feature", "|---"))
    ]


def test_bmv2_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(NetworkError, match="--target bmv2: simple_switch_grpc is not on the PATH"):
        network.require_bmv2()


def test_every_row_of_the_feature_matrix_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "targets.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) >= 20
    for path, test in named:
        source = (ROOT / path).read_text()
        assert not test or re.search(rf"^(?:async )?def {test}\(", source, re.MULTILINE), f"{path}::{test}"
    rows = feature_rows()
    assert len(rows) >= 15
    assert all("`tests/" in row for row in rows), [row for row in rows if "`tests/" not in row]


def test_every_row_says_what_virtual_time_does() -> None:
    """By a test of the fabric, or because a test of the core holds there as well."""
    for row in feature_rows():
        _, _, embedded, _, virtual, _ = row.split("|")
        assert "`tests/fabric/" in virtual or (virtual.strip() == "same core" and "`tests/unit/" in embedded), row


def test_what_is_skipped_on_bmv2_is_a_feature_of_the_matrix() -> None:
    features = {row.split("|")[1].strip() for row in feature_rows()}
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    lacking = re.findall(r'^@pytest\.mark\.lacks_bmv2\("([^"]+)"\)$', sources, re.MULTILINE)
    assert lacking
    assert set(lacking) <= features
    assert len(lacking) == sources.count("@pytest.mark.lacks" + "_bmv2("), "a mark that this test cannot read"
