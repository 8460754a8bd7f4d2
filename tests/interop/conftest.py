"""Fixtures of the interoperability tests: a link, lldpad and the NIC at its ends; all ended whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import fabriclab
import lldpad
import lldpd
import pytest
from fabriclab import FabricLab
from links import End, Link, Tap
from lldpad import Lldpad, Nic


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `needs_lldpad`, `needs_lldpd`, `debian_12s_lldpad` skip where there is none, and say so."""
    other = None if lldpad.is_debian_12s() else "seen with Debian 12's build of lldpad, and this is another"
    reasons = (("needs_lldpad", lldpad.missing()), ("needs_lldpd", lldpd.missing()), ("debian_12s_lldpad", other))
    for name, reason in reasons:
        for item in items:
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: pytest.Config) -> None:
    """The marks of this directory."""
    config.addinivalue_line("markers", "needs_lldpad: needs Debian's lldpad, its tools, a C compiler and tshark")
    config.addinivalue_line("markers", "needs_lldpd: needs Debian's lldpd")
    config.addinivalue_line("markers", "debian_12s_lldpad: about one build of lldpad; others may differ")


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
    """Starts lldpad in CEE mode, able to speak it (see ceefix.c) unless `repair` is false.

    Skips the test where a build that `ceefix.c` does not know loses CEE with its first frame.
    """

    def make(end: End, repair: bool = True) -> Lldpad:
        library = libraries["ceefix"] if repair else None
        agent = stack.enter_context(Lldpad(nic(end), tmp_path / end.name, library))
        agent.dcbtool("sc", "dcbx", "v:force-cee")
        agent.configure("dcb", "on")
        agent.stop()
        agent.start()
        assert agent.dcbtool("go", "dcbx")["DCBX Version"] == "FORCED CEE"
        if repair and not lldpad.is_debian_12s():
            agent.transmit()
            with Tap(end) as tap:
                tap.await_sent("its first frame")
            if "not applicable" in end.run("dcbtool", "go", end.name, "pfc").stdout:
                pytest.skip("this lldpad cannot send CEE, and ceefix.c does not know the build")
        return agent

    return make


@pytest.fixture(scope="module")
def fabric_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FabricLab]:
    """A leaf with two hosts and a controller, built once a module; a test sets the DCBX of the port that it uses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DCBLAB_RUN", str(tmp_path_factory.mktemp("run")))
        with fabriclab.fabric_lab() as lab:
            yield lab
