"""What the commands of `dcbctl` have in common: options, errors, the answer to a change, following events.

`controller.cli` and the rooms of its sub-commands (`*_cli`) use it; nothing here knows a command.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from controller.client import ClientError, request

Lab = Annotated[str, typer.Option("--lab", "-l", help="Name of the lab.")]
AsJson = Annotated[bool, typer.Option("--json", "-j", help="JSON instead of tables.")]
Target = Annotated[str | None, typer.Argument(metavar="[SWITCH[:PORT]]", help="Default: every port.")]
OneTarget = Annotated[str, typer.Argument(metavar="SWITCH[:PORT]", help="A port, all ports of a switch, or all.")]
Save = Annotated[bool, typer.Option("--save", help="Also write the config file (comments in it are lost).")]
POLL_S = 20.0
"""How long the controller may keep a question for events that have not happened yet."""


@contextmanager
def errors() -> Iterator[None]:
    """Errors as `dcbctl: ...` on stderr with the exit code that belongs to them."""
    try:
        yield
    except ClientError as error:
        code, text = error.code, str(error)
    except OSError as error:
        code, text = 1, str(error)
    else:
        return
    for line in text.splitlines():
        print(f"dcbctl: {line}", file=sys.stderr)
    raise typer.Exit(code)


def report(result: Any) -> None:
    """What came of a change, switch by switch, and its warnings. ClientError where a switch has refused it."""
    changed = any(switch["updates"] for switch in result["switches"].values())
    for name, switch in result["switches"].items():
        if switch["state"] == "synced" and changed and not switch["updates"]:
            continue  # of a large fabric, show the switches that changed
        if switch["state"] == "synced":
            print(f"{name}: {switch['updates']} updates")
        else:
            print(f"dcbctl: {name}: {switch['state']}: {switch['error']}; written when it can be", file=sys.stderr)
    for warning in result["warnings"]:
        print(f"dcbctl: warning: {warning}", file=sys.stderr)
    if result["refused"]:
        raise ClientError("\n".join(result["refused"]))


def follow(
    lab: str,
    method: str,
    target: str | None,
    *,
    past: bool,
    duration_s: float | None,
    show: Callable[[Sequence[Any]], None],
) -> None:
    """Show the events of a method of the control socket as they come, for `duration_s` or until Ctrl-C.

    `past`: begin with those that have happened already.
    """
    end = None if duration_s is None else time.monotonic() + duration_s
    with errors():
        view = request(lab, method, what="events", target=target)
        if past:
            show(view["events"])
        try:
            while end is None or time.monotonic() < end:
                wait_s = POLL_S if end is None else max(0.0, min(POLL_S, end - time.monotonic()))
                view = request(lab, method, what="events", target=target, seen=view["seen"], wait_s=wait_s)
                show(view["events"])
        except KeyboardInterrupt:
            return


def profile_or_keys(command: str, values: Sequence[str], keys: str) -> dict[str, str]:
    """`PROFILE`, `off` or `KEY=VALUE ...` -> what the control socket takes. typer.Exit(2) for a mixture."""
    pairs: dict[str, str] = {}
    for word in values:
        key, equals, value = word.partition("=")
        if equals:
            pairs[key] = value
        else:
            pairs["off" if word == "off" else "profile"] = word
    if len(values) > 1 and ("off" in pairs or "profile" in pairs):
        print(f"dcbctl: set {command}: {' '.join(values)!r}: a profile, off, or {keys}, not both", file=sys.stderr)
        raise typer.Exit(2)
    return pairs
