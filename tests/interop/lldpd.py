"""Debian's lldpd at one end of a link, and what lldpcli says, as JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from links import End, until

# lldpd keeps its privilege separation directory and PID file in /run.
START = 'mount -t tmpfs tmpfs /run && mkdir -p /run/lldpd && exec lldpd -d -u "$0" -O /dev/null -I "$1" "${@:2}"'


def missing() -> str | None:
    """Why lldpd cannot be run here, or None."""
    absent = [name for name in ("lldpd", "lldpcli", "unshare") if shutil.which(name) is None]
    return f"{', '.join(absent)} not installed (apt-get install lldpd; make setup)" if absent else None


class Lldpd:
    """A running lldpd. `options` go to its command line."""

    def __init__(self, end: End, *options: str) -> None:
        self.end = end
        # Not in pytest's directory: the daemon gives up root, and has to reach its socket all the same.
        self._directory = Path(tempfile.mkdtemp(prefix="lldpd-"))
        self._directory.chmod(0o711)
        self._socket = self._directory / "socket"
        self._log = self._directory / "log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Lldpd:
        command = ["ip", "netns", "exec", self.end.namespace, "unshare", "-m", "bash", "-c", START]
        command += [str(self._socket), self.end.name, *self._options]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"lldpd ended:\n{self._log.read_text()[-2000:]}"
            done = self._cli("show", "interfaces")
            return done.returncode == 0 and self.end.name in done.stdout

        try:
            until(answers, "lldpd to answer")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.end.run("lldpcli", "-u", str(self._socket), "-f", "json0", *words)

    def cli(self, *words: str) -> Any:
        """What lldpcli answers, in its format with every level present and each element a list."""
        done = self._cli(*words)
        assert done.returncode == 0, f"lldpcli {' '.join(words)}: {done.stdout} {done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def neighbours(self) -> list[dict[str, Any]]:
        """The neighbours of the interface, in full."""
        shown = self.cli("show", "neighbors", "details")
        return [neighbour for part in shown["lldp"] for neighbour in part.get("interface", [])]
