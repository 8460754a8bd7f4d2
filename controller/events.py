"""Events of a controller, of all kinds in one sequence: alarms, watchdog, DCBX, sessions; as JSON lines.

`EventHub` numbers what services tell it (`emit`), keeps the newest in memory for `dcbctl events`, and writes each as a
line to a file where the config names one. Times are of the service's clock; `wall_offset_ns` makes dates of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

LOGGER = logging.getLogger("dcblab.controller")
KEPT = 10_000
KINDS = ("alarm", "watchdog", "deadlock", "dcbx", "session")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `port`: name, empty where it is about a switch or the fabric."""

    number: int
    time_ns: int
    kind: str
    switch: str
    port: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self, wall_offset_ns: int) -> dict[str, Any]:
        """`time`: seconds since 1970; `time_ns`: of the controller's clock."""
        return {
            "number": self.number,
            "time": (self.time_ns + wall_offset_ns) / 1e9,
            "time_ns": self.time_ns,
            "kind": self.kind,
            "switch": self.switch,
            "port": self.port,
            "text": self.text,
            **self.data,
        }


class EventHub:
    """See the module. `clock_ns`: the clock that events without a time of their own are stamped with."""

    def __init__(self, clock_ns: Callable[[], int], wall_offset_ns: int = 0) -> None:
        self.wall_offset_ns = wall_offset_ns
        self.newest = 0
        self._clock_ns = clock_ns
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._path: Path | None = None
        self._file: IO[str] | None = None
        self._news = asyncio.Event()

    def emit(
        self, kind: str, text: str, *, switch: str = "", port: str = "", time_ns: int | None = None, **data: Any
    ) -> Event:
        """Number an event, keep it, write it to the file."""
        self.newest += 1
        stamp_ns = self._clock_ns() if time_ns is None else time_ns
        event = Event(self.newest, stamp_ns, kind, switch, port, text, data)
        self._events.append(event)
        if self._file is not None:
            try:
                self._file.write(json.dumps(event.as_json(self.wall_offset_ns)) + "\n")
            except OSError as error:
                LOGGER.error("events: %s: %s; no more events are written there", self._path, error)
                self._file = None
        self._news.set()
        self._news = asyncio.Event()
        return event

    def since(self, number: int) -> list[Event]:
        """Events after that one, as far as they are kept."""
        return [event for event in self._events if event.number > number]

    async def wait(self, number: int, timeout_s: float) -> None:
        """Return when there is an event after that one, or the time is over."""
        if self.newest <= number:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout_s)

    def write_to(self, path: str | None) -> None:
        """Append to another file from now on; None: to none. A file that cannot be opened is logged, not raised."""
        wanted = None if path is None else Path(path)
        if wanted == self._path:
            return
        self.close()
        self._path = wanted
        if wanted is not None:
            try:
                self._file = wanted.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                LOGGER.error("telemetry.events: %s: %s", wanted, error.strerror or error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = self._path = None
