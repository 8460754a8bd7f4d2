"""The RoCEv2 sender and receiver: `python -m hosts.roce send|recv ...` builds the C program and becomes it.

Interface, source address and next hop are filled in from routes and neighbours where they are not given.
A launcher that starts many takes `binary()` once and executes it in each host's namespace
(`mnexec -a PID BINARY send ...`). The program prints JSON lines: "ready" when its sockets are open, "progress" on
request, at the end "result". `parse_events` reads them. docs/traffic.md explains options and fields.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hosts.build import BuildError, build
from hosts.net import NetError, default_device, find_way


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


_INTERFACE = ("-i", "--interface", "--dev")


def _given(arguments: Sequence[str], names: Sequence[str]) -> str | None:
    """The last value of an option, written as `--name value` or `--name=value`."""
    value = None
    for position, argument in enumerate(arguments):
        name, equals, rest = argument.partition("=")
        if argument in names and position + 1 < len(arguments):
            value = arguments[position + 1]
        elif equals and name in names:
            value = rest
    return value


def complete(arguments: Sequence[str]) -> list[str]:
    """The program's arguments with interface, source and next hop filled in where the kernel knows them.

    Reads routes and neighbours of this namespace. Raises `hosts.net.NetError`; arguments that lack more than that are
    left for the program to complain about.
    """
    completed = list(arguments)
    device = _given(arguments, _INTERFACE)
    if not arguments or "--help" in arguments or "-h" in arguments:
        return completed
    if arguments[0] == "recv" and device is None:
        return [*completed, "--interface", default_device()]
    destination = _given(arguments, ("--dst", "--dst-ip"))
    if arguments[0] == "send" and destination is not None:
        source, hop = _given(arguments, ("--src", "--src-ip")), _given(arguments, ("--dst-mac",))
        if None in (device, source, hop):
            try:
                way = find_way(destination, device=device, src_ip=source, dst_mac=hop)
            except ValueError:
                return completed  # not an address: the program names the option
            completed += ["--interface", way.device] if device is None else []
            completed += ["--src", way.src_ip] if source is None else []
            completed += ["--dst-mac", way.dst_mac] if hop is None else []
    return completed


def main() -> None:
    """Replaces this process by the program."""
    try:
        path = binary()
        arguments = complete(sys.argv[1:])
    except (BuildError, NetError, OSError) as error:
        sys.exit(f"error: {error}")
    os.execv(path, ["roce", *arguments])


if __name__ == "__main__":
    main()
