"""`dcblab` where it needs no root: wrong use is exit 2 with option, value and rule on standard error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml

from controller.config import parse
from topologies import cli
from topologies.paths import run_dir

COMMAND = [sys.executable, "-m", "topologies.cli"]


def dcblab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config", "--rate", "fast"], "dcblab: --rate 'fast': a rate is an integer of bit/s or a string such as"),
        (["config", "--rate", "0"], "dcblab: --rate '0': a rate is 1 to 10000000000000 bit/s"),
        (["config", "--leaves", "0"], "dcblab: leaves 0: must be 1..99"),
        (["config", "--hosts", "201"], "dcblab: hosts_per_leaf 201: must be 1..200"),
        (["config", "--pfc", "3,8"], "dcblab: --pfc '3,8': priorities are 0..7 with commas between them"),
        (["config", "--lab", "../x"], "dcblab: lab '../x': must be 1 to 32 of"),
        (["clean", "--lab", ".."], "dcblab: lab '..': must be 1 to 32 of"),
        (["up", "--lab", ""], "dcblab: lab '': must be 1 to 32 of"),
        (["up", "--leaves", "0"], "dcblab: leaves 0: must be 1..99"),
        (["up", "--pfc", "9"], "dcblab: --pfc '9': priorities are 0..7"),
        (["up", "--rate", "1X"], "dcblab: --rate '1X': a rate is"),
        (["up", "--script", "/nonexistent"], "dcblab: script /nonexistent: no such file"),
    ],
)
def test_wrong_use(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: Python takes a second to start with all that `dcblab` imports."""
    monkeypatch.setattr(sys, "argv", ["dcblab", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.startswith(message), said.err


def test_wrong_use_as_a_process() -> None:
    done = dcblab("run", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dcblab: scenario 'nonsense': not one of "), done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="for users who are not root")
def test_a_lab_needs_root() -> None:
    done = dcblab("up")
    assert (done.returncode, "need root" in done.stderr) == (2, True)


def test_config_prints_what_the_controller_takes() -> None:
    done = dcblab("config", "--leaves", "3", "--spines", "1", "--hosts", "2", "--rate", "1G", "--pfc", "3,4")
    assert (done.returncode, done.stderr) == (0, "")
    config = parse(yaml.safe_load(done.stdout))
    assert sorted(config.switches) == ["leaf1", "leaf2", "leaf3", "spine1"]
    assert {port.rate for switch in config.switches.values() for port in switch.ports.values()} == {10**9}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../run", "/tmp", "a b", "-x", "a\n", "x" * 33, "ä"])
def test_a_lab_is_a_name_and_not_a_way_out(name: str) -> None:
    """The folder of a lab is removed with it."""
    with pytest.raises(ValueError, match=r"lab .*: must be 1 to 32 of"):
        run_dir(name)


@pytest.mark.parametrize("name", ["lab", "a", "Lab-2_x", "0", "x" * 32])
def test_names_of_labs(name: str) -> None:
    assert run_dir(name).name == name
