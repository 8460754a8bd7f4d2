"""Imports point one way (docs/design.md): topologies -> controller, fabric, hosts, switch -> dcb."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIDDLE = {"controller", "fabric", "hosts", "switch"}
ALLOWED = {
    "dcb": set(),
    "switch": {"dcb"},
    "hosts": {"dcb"},
    "fabric": {"dcb", "switch", "hosts"},
    "controller": {"dcb"},
    "topologies": MIDDLE | {"dcb"},
}
FORBIDDEN_IN_DCB = {"socket", "time", "asyncio", "subprocess", "threading", "select", "os"}


def imports(path: Path) -> Iterator[str]:
    """First component of every module that a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files, f"{room} has no file"
    for path in files:
        ours = set(imports(path)) & set(ALLOWED) - {room}
        assert ours <= ALLOWED[room], f"{path.relative_to(ROOT)} imports {ours - ALLOWED[room]}"


def test_dcb_does_no_io_and_reads_no_clock() -> None:
    for path in (ROOT / "dcb").rglob("*.py"):
        used = set(imports(path)) & FORBIDDEN_IN_DCB
        assert not used, f"{path.relative_to(ROOT)} imports {used}"
