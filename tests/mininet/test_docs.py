"""The commands in README.md and docs/ work: every ```console block is run, in one lab, and must exit with 0.

In a block, `$ ` lines are for a terminal and `mininet> ` lines for the prompt of `dcblab up`; everything else is
output. What takes minutes or a prompt of its own (make, vagrant, `dcblab up` and `run`) is checked to exist and is run
by other tests. What goes on until Ctrl-C gets one; a refusal that a page shows has to be one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from scapy.contrib.mac_control import MACControlClassBasedFlowControl
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

pytestmark = pytest.mark.mininet

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = (
    *(["make"], ["vagrant"], ["dcbctl", "run"], ["python", "-m", "pytest"]),
    *(["dcblab", name] for name in ("up", "run", "compare", "sweep", "chaos")),
)
ENDLESS = ("dcbctl watch", "dcbctl watch -j", "dcbctl events --follow")
REFUSED = ("--buffer 32MiB",)
CTRL_C = "timeout --preserve-status --signal=INT 5"


def commands() -> Iterator[tuple[str, str, str]]:
    """(page, "$" or "mininet>", command without a comment at its end)."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.splitlines():
                if found := re.fullmatch(r"(\$|mininet>) (.*?)(?:\s+# .*)?", line):
                    yield page.relative_to(ROOT).as_posix(), found[1], found[2]


def plain(command: str) -> str:
    """A command without sudo and without the path of the environment."""
    return command.removeprefix("sudo ").removeprefix(".venv/bin/")


def words(command: str) -> list[str]:
    return shlex.split(plain(command))


def is_run_elsewhere(command: str) -> bool:
    """Also what reads the results of a run that is done elsewhere (`--out r`)."""
    split = words(command)
    return any(split[: len(start)] == start for start in ELSEWHERE) or any(word.startswith("r/") for word in split)


def test_the_readme_names_its_two_commands() -> None:
    first = [command for page, _, command in commands() if page == "README.md"][:2]
    assert first == ["make lab", "make test"]


@cache
def usage(program: str, command: str) -> str:
    return subprocess.run([BIN / program, command, "--help"], capture_output=True, text=True, check=True).stdout


def test_what_is_run_elsewhere_exists() -> None:
    for page, _, command in commands():
        split = words(command)
        if split[0] == "make":
            done = subprocess.run(["make", "-n", *split[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page}: {command}: {done.stderr}"
        elif split[0] in ("dcblab", "dcbctl") and is_run_elsewhere(command):
            options = [option for option in split if option.startswith("--")]
            missing = [option for option in options if option not in usage(split[0], split[1])]
            assert not missing, f"{page}: {command}: {missing}"


def wanted(command: str) -> tuple[int, ...]:
    """Exit codes that are right."""
    if plain(command) in ENDLESS:
        return (0, 130)
    return (1,) if any(part in command for part in REFUSED) else (0,)


def capture_of_a_storm(path: Path) -> None:
    """What docs/traffic.md explains: XOFF for priority 3 from a broken NIC, again and again."""
    times = {"c3_enabled": 1, "c3_pause_time": 65535}
    frame = Ether(dst="01:80:c2:00:00:01", src="02:01:00:00:00:01") / MACControlClassBasedFlowControl(**times)
    frames = [Ether(bytes(frame).ljust(60, b"\0")) for _ in range(5)]
    for n, one in enumerate(frames):
        one.time = 1_700_000_000 + n / 1000
    wrpcap(str(path), frames)


def test_every_other_command_works_in_a_lab(tmp_path: Path) -> None:
    capture_of_a_storm(tmp_path / "storm.pcap")
    chosen = [c for c in commands() if not is_run_elsewhere(c[2])]
    assert len(chosen) > 20
    lines = []
    for n, (_, prompt, command) in enumerate(chosen):
        mark = f"{'' if command.endswith('&') else ' ;'} echo @@ {n} $?"  # a name of a host ends at a space
        limit = f"{CTRL_C} " if plain(command) in ENDLESS else ""
        lines.append(("" if prompt == "mininet>" else "sh ") + limit + plain(command) + mark)
    script = tmp_path / "commands"
    script.write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "DCBLAB_RUN": str(tmp_path / "run"), "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        [BIN / "dcblab", "up", "--dcbx", "--script", str(script)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,  # 60 programs start, one after the other; a busy machine takes seconds for each
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    codes = {int(n): int(code) for n, code in re.findall(r"@@ (\d+) (\d+)", said)}
    failed = [(*chosen[n], codes.get(n)) for n in range(len(chosen)) if codes.get(n) not in wanted(chosen[n][2])]
    assert "Traceback" not in said, said
    assert not failed, f"{failed}\n{said}"
