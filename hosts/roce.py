"""The RoCEv2 sender and receiver: `python -m hosts.roce send|recv ...` builds the C program and becomes it.

A launcher that starts many takes `binary()` once and executes it in each host's namespace
(`mnexec -a PID BINARY send ...`). The program prints JSON lines: "ready" when its sockets are open, "progress" on
request, at the end "result". `parse_events` reads them. docs/traffic.md explains options and fields.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hosts.build import BuildError, build


def binary(*, sanitize: bool = False) -> Path:
    """The executable, built if need be. Raises `hosts.build.BuildError`."""
    return build("roce", sanitize=sanitize)


def parse_events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of the program's output, one a line. Raises `ValueError` for a line that is none."""
    for line in lines:
        if line.strip():
            event = json.loads(line)
            if not isinstance(event, dict) or "event" not in event:
                raise ValueError(f"not an event of roce: {line.strip()!r}")
            yield event


def result(output: str) -> dict[str, Any]:
    """The "result" object at the end of the program's whole output. Raises `ValueError` where there is none."""
    for event in parse_events(output.splitlines()):
        if event["event"] == "result":
            return event
    raise ValueError(f"no result in the output of roce: {output[-200:]!r}")


def main() -> None:
    """Replaces this process by the program."""
    try:
        path = binary()
    except (BuildError, OSError) as error:
        sys.exit(f"error: {error}")
    os.execv(path, ["roce", *sys.argv[1:]])


if __name__ == "__main__":
    main()
