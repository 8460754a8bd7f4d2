"""Debian's lldpad on an interface that `dcbnic.c` gives DCB, with lldptool's and dcbtool's answers parsed.

Each instance has a network namespace of its own (its control socket is abstract, so belongs to it), a mount and an IPC
namespace of its own (it keeps state in /dev/shm and /run), and its own configuration file.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from links import End, until

HERE = Path(__file__).parent
# A private /dev/shm and /run, then the daemon in place of the shell, so that a signal to the process reaches it.
START = 'mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && LD_PRELOAD="$0" exec lldpad -V 6 -f "$1"'


def missing() -> str | None:
    """Why lldpad cannot be run here, or None."""
    programs = ("lldpad", "lldptool", "dcbtool", "unshare", "tshark", "cc")
    absent = [name for name in programs if shutil.which(name) is None]
    return f"{', '.join(absent)} not installed (apt-get install lldpad tshark gcc; make setup)" if absent else None


# GNU build id of the lldpad that `ceefix.c` repairs and that what is only observed was observed with (Debian 12, amd64)
DEBIAN_12 = bytes.fromhex("5e3e44be471a2134b95518a0395438e8eb937375")


def is_debian_12s() -> bool:
    """Whether the installed lldpad is that build."""
    path = shutil.which("lldpad")
    return path is not None and DEBIAN_12 in Path(path).read_bytes()


def build(name: str, directory: Path) -> Path:
    """Compiles the preload library NAME*.c ("dcbnic" or "ceefix"); the compiler's warnings are errors."""
    library = directory / f"{name}.so"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    sources = [str(path) for path in sorted(HERE.glob(f"{name}*.c"))]
    done = subprocess.run([*command, *sources, "-ldl"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


class Nic:
    """The adapter that `dcbnic.c` shows to programs: its registers outlive them, its record says what they set."""

    def __init__(self, end: End, library: Path, directory: Path) -> None:
        self.end = end
        self.library = library
        self._record = directory / "record.jsonl"
        self.environment = {
            "DCBNIC_IFS": end.name,
            "DCBNIC_STATE": str(directory / "state"),
            "DCBNIC_RECORD": str(self._record),
        }

    def record(self, *commands: str) -> list[dict[str, Any]]:
        """Settings made so far, oldest first; of these commands only (SDCBX, IEEE_SET, PGTX_SCFG, ...) where given."""
        text = self._record.read_text() if self._record.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if not commands or line["cmd"] in commands]

    def last(self, *keys: str) -> dict[str, Any]:
        """By key ("ets", "pfc", "pgid", "dcbx", ...), what was set last and was not refused."""
        return {key: line[key] for line in self.record() for key in keys if key in line and line["result"] == 0}

    def dcb(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """iproute2's `dcb` on the adapter."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return self.end.run("env", f"LD_PRELOAD={self.library}", *settings, "dcb", *arguments)

    def show(self, tool: str) -> dict[str, Any]:
        """`dcb -j TOOL show dev IF`."""
        done = self.dcb("-j", tool, "show", "dev", self.end.name)
        assert done.returncode == 0, done.stderr
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown


@dataclass(frozen=True)
class Ets:
    """An ETS TLV as lldptool prints it."""

    willing: bool | None  # None for a recommendation
    priority_tc: list[int]
    bandwidth_percent: list[int]
    tsa: list[str]


@dataclass(frozen=True)
class Pfc:
    """A PFC TLV as lldptool prints it."""

    willing: bool
    cap: int
    enabled: list[int]


def _pairs(text: str) -> list[str]:
    """["0:a", "1:b", ...] as ["a", "b", ...]."""
    return [pair.split(":", 1)[1] for pair in text.split()]


class Tlvs(dict[str, list[str]]):
    """What `lldptool -t` prints: for each TLV's title its lines, stripped."""

    @classmethod
    def parse(cls, text: str) -> Tlvs:
        """From lldptool's output."""
        tlvs = cls()
        lines: list[str] = []
        for line in text.splitlines():
            if line[:1] in ("\t", " "):
                lines.append(line.strip())
            elif line:
                lines = tlvs.setdefault(line.strip(), [])
        return tlvs

    def _fields(self, title: str) -> dict[str, str]:
        return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in self[title])}

    def ets(self, title: str = "IEEE 8021QAZ ETS Configuration TLV") -> Ets:
        """The ETS Configuration TLV, or the one with another title."""
        fields = self._fields(title)
        willing = {"yes": True, "no": False}.get(fields.get("Willing", ""))
        bandwidth = [int(percent) for percent in re.findall(r"(\d+)%", fields["TC Bandwidth"])]
        return Ets(willing, [int(tc) for tc in _pairs(fields["PRIO_MAP"])], bandwidth, _pairs(fields["TSA_MAP"]))

    def recommendation(self) -> Ets:
        """The ETS Recommendation TLV."""
        return self.ets("IEEE 8021QAZ ETS Recommendation TLV")

    def pfc(self) -> Pfc:
        """The PFC TLV."""
        fields = self._fields("IEEE 8021QAZ PFC TLV")
        enabled = [int(priority) for priority in re.findall(r"\d+", fields["PFC enabled"])]
        return Pfc(fields["Willing"] == "yes", int(fields["PFC capable traffic classes"]), enabled)


class Lldpad:
    """A running lldpad; dcbtool and lldptool ask and tell it things. `stop` lets it say goodbye (TTL 0)."""

    def __init__(self, nic: Nic, directory: Path, repair: Path | None = None) -> None:
        self.nic = nic
        self._preload = " ".join(str(library) for library in (nic.library, repair) if library)
        self.end = nic.end
        self.config = directory / "lldpad.conf"
        self.log = directory / "lldpad.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Lldpad:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the daemon and waits until it answers."""
        settings = [f"{name}={value}" for name, value in self.nic.environment.items()]
        command = ["ip", "netns", "exec", self.end.namespace, "env", *settings, "unshare", "-m", "-i"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "sh", "-c", START, self._preload, str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"lldpad ended:\n{self.log.read_text()[-2000:]}"
            return self.end.run("lldptool", "-p").returncode == 0

        try:
            until(answers, "lldpad to answer")
        except BaseException:
            self.stop(kill=True)
            raise

    def stop(self, kill: bool = False) -> None:
        """Ends the daemon: politely (it sends shutdown LLDPDUs), or as a crash would."""
        process, self._process = self._process, None
        if process is None:
            return
        (process.kill if kill else process.terminate)()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def lldptool(self, *arguments: str) -> str:
        """What lldptool prints; fails where it refuses. The interface is added after the first argument."""
        done = self.end.run("lldptool", arguments[0], "-i", self.end.name, *arguments[1:])
        assert done.returncode == 0, f"lldptool {' '.join(arguments)}: {done.stdout} {done.stderr}"
        return done.stdout

    def transmit(self) -> None:
        """Sends and receives on the nearest bridge's address; without it lldpad is silent until it hears DCBX."""
        self.lldptool("-L", "adminStatus=rxtx")

    def receive_only(self) -> None:
        """Receives only."""
        self.lldptool("-L", "adminStatus=rx")

    def set(self, tlv: str, *settings: str) -> None:
        """`lldptool -T -i IF -V TLV settings...`."""
        self.lldptool("-T", "-V", tlv, *settings)

    def local(self) -> Tlvs:
        """TLVs that it sends."""
        return Tlvs.parse(self.lldptool("-t"))

    def neighbour(self) -> Tlvs:
        """TLVs that it has received; empty where it knows no neighbour."""
        done = self.end.run("lldptool", "-t", "-n", "-i", self.end.name)
        return Tlvs.parse(done.stdout) if done.returncode == 0 else Tlvs()

    def dcbtool(self, *arguments: str) -> dict[str, str]:
        """Fields that dcbtool prints; fails where it refuses."""
        done = self.end.run("dcbtool", *arguments)
        lines = [line.partition(":") for line in done.stdout.splitlines()]
        fields = {key.strip(): value.strip() for key, _, value in lines}
        assert fields.get("Status") == "Successful", f"dcbtool {' '.join(arguments)}: {done.stdout} {done.stderr}"
        return fields

    def configured(self, feature: str) -> dict[str, str]:
        """`dcbtool gc`: what the feature is configured to."""
        return self.dcbtool("gc", self.end.name, feature)

    def operational(self, feature: str) -> dict[str, str]:
        """`dcbtool go`: what the feature does."""
        return self.dcbtool("go", self.end.name, feature)

    def peer(self, feature: str) -> dict[str, str]:
        """`dcbtool gp`: what the other end says."""
        return self.dcbtool("gp", self.end.name, feature)

    def configure(self, feature: str, *settings: str) -> None:
        """`dcbtool sc`."""
        self.dcbtool("sc", self.end.name, feature, *settings)
