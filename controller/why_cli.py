"""`dcbctl why` and `dcbctl deadlock`: where a pause comes from, and who waits for whom in a ring.

Exit codes as of `dcbctl`; `deadlock` also ends with 1 where a ring stands still now, or is possible.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.cli_common import Lab, errors
from controller.client import ClientError, request

AsJson = Annotated[bool, typer.Option("--json", "-j", help="JSON.")]
Interval = Annotated[float, typer.Option("--interval", min=0.01, max=10.0, help="Seconds between the two looks.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("why")(why)
    app.command("deadlock")(deadlock)


def why(
    port: Annotated[str, typer.Argument(metavar="SWITCH:PORT")],
    priority: Annotated[int, typer.Argument(min=0, max=7)],
    lab: Lab = "lab",
    interval: Interval = 0.2,
    as_json: AsJson = False,
) -> None:
    """Why a priority of a port does not send: the four questions of a stuck priority, and the pause hop by hop."""
    with errors():
        answer = request(lab, "why", target=port, priority=priority, interval=interval)
    print(json.dumps(answer, indent=2) if as_json else text(answer))


def text(answer: Any) -> str:
    """The answer of the controller for a screen."""
    state = f"paused, {answer['pause_left_quanta']} quanta left" if answer["paused"] else "not paused"
    lines = [
        f"{answer['name']} ({answer['switch']}:{answer['port']}, to {answer['neighbour']}), priority "
        f"{answer['priority']}: {state}; {answer['queue_bytes']} bytes wait, {answer['sent_frames']} frames left in "
        f"{answer['interval_s']:.2f} s"
    ]
    for item in answer["questions"]:
        lines.append(f"  {item['question']:38} {'yes' if item['yes'] else 'no':4} {item['evidence']}")
    for chain in answer["chains"]:
        lines.append(f"  {chain['cause']}, {chain['propagation_hops']} hops:")
        for hop in chain["hops"]:
            onward = f" waits for {hop['waits_for']}" if hop["waits_for"] else ""
            lines.append(f"    {hop['queue']}: {hop['bytes']} bytes, {hop['pause_left_quanta']} quanta{onward}")
    return "\n".join([*lines, f"  {answer['summary']}"])


def deadlock(
    config: Annotated[Path | None, typer.Argument(help="Check this file instead of asking a controller.")] = None,
    lab: Lab = "lab",
    interval: Interval = 0.2,
    as_json: AsJson = False,
) -> None:
    """Rings of queues that stand still now, and cyclic buffer dependencies that the routes make possible."""
    with errors():
        answer = request(lab, "deadlock", interval=interval) if config is None else _static(config)
    if as_json:
        print(json.dumps(answer, indent=2))
    else:
        for ring in answer["now"]:
            print(f"deadlock: {ring['text']}")
        for cycle in answer["possible"]:
            print(f"possible: {cycle['text']}")
            for dependency in cycle["dependencies"]:
                print(f"  {dependency}")
        if not answer["now"] and not answer["possible"]:
            print("no deadlock, and none possible by these routes and priorities")
    if answer["now"] or answer["possible"]:
        raise typer.Exit(1)


def _static(path: Path) -> Any:
    from controller import config as configuration
    from controller.why import possible

    try:
        return {"now": [], "possible": possible(configuration.load(path))}
    except configuration.ConfigError as error:
        raise ClientError(str(error), 2) from None
