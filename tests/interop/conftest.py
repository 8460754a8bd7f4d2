"""Fixtures of the interoperability tests: a link, lldpad and the NIC at its ends; all ended whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import lldpad
import lldpd
import pytest
from links import End, Link
from lldpad import Lldpad, Nic


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the mark `needs_lldpad` or `needs_lldpd` skip where that is not installed, and say so."""
    for name, reason in (("needs_lldpad", lldpad.missing()), ("needs_lldpd", lldpd.missing())):
        for item in items:
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: pytest.Config) -> None:
    """The marks of this directory."""
    config.addinivalue_line("markers", "needs_lldpad: needs Debian's lldpad, its tools, a C compiler and tshark")
    config.addinivalue_line("markers", "needs_lldpd: needs Debian's lldpd")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The preload libraries by name, compiled."""
    directory = tmp_path_factory.mktemp("preload")
    return {name: lldpad.build(name, directory) for name in ("dcbnic", "ceefix")}


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """What a test starts and wants ended."""
    with contextlib.ExitStack() as opened:
        yield opened


@pytest.fixture
def link() -> Iterator[Link]:
    """A link whose left end has the lower MAC address."""
    with Link() as joined:
        yield joined


@pytest.fixture
def swapped() -> Iterator[Link]:
    """A link whose left end has the higher MAC address."""
    with Link(swap=True) as joined:
        yield joined


@pytest.fixture
def nic(libraries: dict[str, Path], tmp_path: Path) -> Callable[[End], Nic]:
    """Gives an end of a link a NIC with DCB."""

    def make(end: End) -> Nic:
        directory = tmp_path / end.name
        directory.mkdir()
        return Nic(end, libraries["dcbnic"], directory)

    return make


@pytest.fixture
def start(
    nic: Callable[[End], Nic], libraries: dict[str, Path], stack: contextlib.ExitStack, tmp_path: Path
) -> Callable[[End], Lldpad]:
    """Starts Debian's lldpad, unaltered, at an end of a link; it speaks IEEE."""
    return lambda end: stack.enter_context(Lldpad(nic(end), tmp_path / end.name))


@pytest.fixture
def start_cee(
    nic: Callable[[End], Nic], libraries: dict[str, Path], stack: contextlib.ExitStack, tmp_path: Path
) -> Callable[..., Lldpad]:
    """Starts lldpad in CEE mode, able to speak it (see ceefix.c) unless `repair` is false."""

    def make(end: End, repair: bool = True) -> Lldpad:
        library = libraries["ceefix"] if repair else None
        agent = stack.enter_context(Lldpad(nic(end), tmp_path / end.name, library))
        agent.dcbtool("sc", "dcbx", "v:force-cee")
        agent.configure("dcb", "on")
        agent.stop()
        agent.start()
        assert agent.dcbtool("go", "dcbx")["DCBX Version"] == "FORCED CEE"
        return agent

    return make
