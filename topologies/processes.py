"""Processes of a lab inside hosts: started with asyncio, awaited by what they print, gone with the lab.

`HostProcess` is one process; `fail` texts name the command and show the end of what it said on stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from topologies.network import FabricNetwork, NetworkError

END_TIMEOUT_S = 5.0


class HostProcess:
    """`async with HostProcess(net, "h1", [...]) as p:` runs the command in the host, at the latest until the exit."""

    def __init__(self, network: FabricNetwork, host: str, arguments: Sequence[str]) -> None:
        self.host = host
        self.arguments = list(arguments)
        self._network = network
        self._process: asyncio.subprocess.Process | None = None
        self._lines: list[str] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._network.command(self.host, self.arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=1 << 24,  # iperf3 prints its JSON on long lines
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            self.terminate()
            try:
                await asyncio.wait_for(self._process.communicate(), END_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
                await self._process.communicate()

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the process to end; a process that has ended is left alone."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def line(self, wanted: Callable[[str], bool], timeout_s: float) -> str:
        """The next output line that `wanted` accepts. NetworkError where the process ends or the time runs out."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                while raw := await self._process.stdout.readline():
                    text = raw.decode(errors="replace").rstrip("\n")
                    if wanted(text):
                        return text
        except TimeoutError:
            raise NetworkError(f"{self._name}: said nothing of what was awaited within {timeout_s:g} s") from None
        raise NetworkError(f"{self._name}: ended early{await self._complaint()}")

    async def output(self, timeout_s: float) -> str:
        """Everything that it prints until it ends by itself with exit code 0. NetworkError otherwise."""
        assert self._process is not None
        try:
            out, err = await asyncio.wait_for(self._process.communicate(), timeout_s)
        except TimeoutError:
            raise NetworkError(f"{self._name}: still running after {timeout_s:g} s") from None
        if self._process.returncode != 0:
            said = (err or out).decode(errors="replace").strip()
            raise NetworkError(f"{self._name}: exit code {self._process.returncode}: {said[-2000:]}")
        return out.decode(errors="replace")

    @property
    def _name(self) -> str:
        return f"{self.host}: {' '.join(self.arguments[:4])}"

    async def _complaint(self) -> str:
        assert self._process is not None
        _, err = await self._process.communicate()
        said = err.decode(errors="replace").strip()
        return f" with exit code {self._process.returncode}: {said[-2000:]}"
