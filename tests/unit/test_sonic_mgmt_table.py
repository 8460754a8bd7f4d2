"""docs/sonic-mgmt.md names tests that exist, and no snappi test that it does not name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "sonic-mgmt.md").read_text()
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def rows() -> list[list[str]]:
    """Cells of the rows of all tables, without heads."""
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and "| ours |" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
    assert len(set(named)) >= 80
    for path, test in named:
        assert test in DEFINED.findall((ROOT / path).read_text()), f"{path}::{test}"
    elsewhere = {test for path in (ROOT / "tests").rglob("test_*.py") for test in DEFINED.findall(path.read_text())}
    assert set(re.findall(r"`(test_\w+)`", TEXT)) <= elsewhere


def test_a_row_has_tests_or_says_why_not() -> None:
    assert len(rows()) >= 60
    for row in rows():
        assert len(row) >= 2, row
        assert row[1].startswith("`tests/") or row[-1], row


def test_every_snappi_test_is_in_the_table() -> None:
    for path in (ROOT / "tests" / "fabric").glob("test_snappi_*.py"):
        for test in DEFINED.findall(path.read_text()):
            assert f"`tests/fabric/{path.name}::{test}`" in TEXT, test
