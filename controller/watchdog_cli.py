"""`dcbctl pfcwd`: the PFC watchdog, with the commands and the tables that users of SONiC's `pfcwd` know.

Shape: options -> one request on the control socket -> a table, or JSON as it came. Exit codes as of `dcbctl`;
`show stats --check-storm` also ends with 1 where something is stormed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from controller.cli_common import AsJson, Lab, Save, Target, errors, follow, report
from controller.client import request

app = typer.Typer(no_args_is_help=True, help="PFC watchdog: finds priorities that a peer never stops pausing.")
show = typer.Typer(no_args_is_help=True, help="Show what is watched, and what was found (-j: JSON).")
app.add_typer(show, name="show")

Empty = Annotated[bool, typer.Option("--empty", "-e", help="Also queues that never stormed.")]
CheckStorm = Annotated[bool, typer.Option("--check-storm", help="Only stormed queues; exit code 1 if there is one.")]
Words = Annotated[list[str], typer.Argument(metavar="SWITCH[:PORT]... DETECTION_TIME", help="all: every port. In ms.")]
_STATS = (
    "QUEUE",
    "STATUS",
    "STORM DETECTED/RESTORED",
    "TX OK/DROP",
    "RX OK/DROP",
    "TX LAST OK/DROP",
    "RX LAST OK/DROP",
)
_CONFIG = ("PORT", "ACTION", "DETECTION TIME", "RESTORATION TIME", "HISTORY", "PRIORITIES", "MODE", "EMPTY QUEUE")
_HISTORY = (
    "PORT",
    "PRIORITY",
    "RX PAUSE TRANSITIONS",
    "TOTAL RX PAUSE TIME US",
    "RECENT RX PAUSE TIME US",
    "RECENT RX PAUSE TIMESTAMP",
)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Right-aligned columns under a rule, as SONiC's tools print them."""
    widths = [max([len(name) + 2, *(len(row[n]) for row in rows)]) for n, name in enumerate(header)]
    lines = [[name.rjust(width) for name, width in zip(header, widths, strict=True)]]
    lines.append(["-" * width for width in widths])
    lines += [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return "\n".join("  ".join(line) for line in lines)


def _queue(row: Any) -> str:
    other = "" if row["queue"] == row["priority"] else f" (queue {row['queue']})"
    return f"{row['name']}:{row['priority']}{other}"


def stats_table(rows: Sequence[Any]) -> str:
    """`pfcwd show stats`."""
    return table(
        _STATS,
        [
            (
                _queue(row),
                row["status"],
                f"{row['detected']}/{row['restored']}",
                f"{row['tx_ok']}/{row['tx_drop']}",
                f"{row['rx_ok']}/{row['rx_drop']}",
                f"{row['tx_last_ok']}/{row['tx_last_drop']}",
                f"{row['rx_last_ok']}/{row['rx_last_drop']}",
            )
            for row in rows
        ],
    )


def config_table(rows: Sequence[Any]) -> str:
    """`pfcwd show config`, and what this watchdog has beyond SONiC's."""
    return table(
        _CONFIG,
        [
            (
                row["name"],
                row["action"],
                str(row["detection_time_ms"]),
                "infinite" if row["restoration_time_ms"] is None else str(row["restoration_time_ms"]),
                "enable",
                ",".join(str(priority) for priority in row["priorities"]) or "N/A",
                row["mode"],
                "enable" if row["empty_queue"] else "disable",
            )
            for row in rows
        ],
    )


def history_table(rows: Sequence[Any]) -> str:
    """`show pfc counters --history`."""
    return table(
        _HISTORY,
        [
            (
                row["name"],
                str(row["priority"]),
                f"{row['transitions']:,}",
                f"{row['total_ns'] // 1000:,}",
                f"{row['recent_ns'] // 1000:,}",
                "N/A" if row["recent_time"] is None else _timestamp(row["recent_time"], "%Y-%m-%d.%H:%M:%S"),
            )
            for row in rows
        ],
    )


def _timestamp(at_s: float, form: str) -> str:
    return f"{time.strftime(form, time.localtime(at_s))}.{int(at_s * 1000) % 1000:03d}"


def _faults(view: Any) -> None:
    for switch, fault in view["faults"].items():
        print(f"dcbctl: {switch}: not watched now: {fault}", file=sys.stderr)


# ---- show -----------------------------------------------------------------------------------------------------------


@show.command("config")
def show_config(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """What is watched, and how: times in ms."""
    with errors():
        view = request(lab, "pfcwd", what="config", target=target)
    if as_json:
        print(json.dumps(view, indent=2))
        return
    print(f"Changed polling interval to {view['poll_interval_ms']}ms")
    if view["big_red_switch"]:
        print("BIG_RED_SWITCH: enable: every priority with PFC is dropped, nothing is watched")
    print(config_table(view["ports"]))


@show.command("stats")
def show_stats(
    target: Target = None,
    lab: Lab = "lab",
    as_json: AsJson = False,
    empty: Empty = False,
    check_storm: CheckStorm = False,
) -> None:
    """Storms found and ended, and the packets that went and were dropped in them."""
    with errors():
        view = request(lab, "pfcwd", what="stats", target=target)
    stormed = [row for row in view["queues"] if row["status"] == "stormed"]
    if check_storm:
        view["queues"] = stormed
    elif not empty:
        view["queues"] = [row for row in view["queues"] if row["detected"] or row["restored"]]
    if as_json:
        print(json.dumps(view, indent=2))
    else:
        _faults(view)
        print(stats_table(view["queues"]))
    raise typer.Exit(1 if check_storm and stormed else 0)


app.command("stats")(show_stats)


@app.command()
def history(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """How often and how long the peer of each watched port paused it, while it was watched."""
    with errors():
        view = request(lab, "pfcwd", what="history", target=target)
    if as_json:
        print(json.dumps(view, indent=2))
    else:
        _faults(view)
        print(history_table(view["queues"]))


@app.command()
def watch(
    target: Target = None,
    lab: Lab = "lab",
    as_json: AsJson = False,
    past: Annotated[bool, typer.Option("--history", help="Begin with what has happened already.")] = False,
    duration: Annotated[float | None, typer.Option(min=0, help="Seconds; default: until Ctrl-C.")] = None,
) -> None:
    """Print storms as they begin and end, a line each."""
    follow(
        lab,
        "pfcwd",
        target,
        past=past,
        duration_s=duration,
        show=lambda events: _print_events(events, as_json),
    )


def _print_events(events: Sequence[Any], as_json: bool) -> None:
    for event in events:
        at = _timestamp(event["time"], "%H:%M:%S")
        print(json.dumps(event) if as_json else f"{at} {event['switch']} {event['kind']}: {event['text']}", flush=True)


# ---- changes --------------------------------------------------------------------------------------------------------


def _change(lab: str, what: str, save: bool, **params: Any) -> None:
    with errors():
        result = request(lab, "pfcwd", what=what, save=save, **params)
        for note in result["notes"]:
            print(note)
        report(result)


@app.command()
def start(
    words: Words,
    action: Annotated[str, typer.Option("--action", "-a", help="drop, forward or alert.")] = "drop",
    restoration_time: Annotated[
        str | None, typer.Option("--restoration-time", "-r", help="ms, or never. Default: twice the detection time.")
    ] = None,
    priorities: Annotated[str | None, typer.Option("--priorities", help="3,4. Default: those with PFC.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="poll, or switch: the switch's own timer.")] = None,
    empty_queue: Annotated[
        bool | None, typer.Option("--empty-queue/--no-empty-queue", help="Also while no packet waits.")
    ] = None,
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Watch ports: `dcbctl pfcwd start -a drop -r 400 leaf1:1 leaf2:1 200`."""
    *targets, detection = words
    if not targets:
        print("dcbctl: pfcwd start: SWITCH[:PORT] and DETECTION_TIME are wanted", file=sys.stderr)
        raise typer.Exit(2)
    if not detection.isdecimal():
        print(f"dcbctl: detection_time_ms: {detection!r}: a number of milliseconds is wanted", file=sys.stderr)
        raise typer.Exit(2)
    more: dict[str, Any] = {"mode": mode, "empty_queue": empty_queue}
    if priorities is not None:
        more["priorities"] = [int(word) if word.isdecimal() else word for word in priorities.split(",")]
    _change(
        *(lab, "start", save),
        target=targets,
        action=action,
        detection_time_ms=int(detection),
        restoration_time_ms=restoration_time,
        **more,
    )


@app.command()
def stop(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="[SWITCH[:PORT]]...", help="Default: every port.")
    ] = None,
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Watch ports no more. What was dropped because of a storm flows again."""
    _change(lab, "stop", save, target=targets or None)


@app.command()
def interval(
    milliseconds: Annotated[int, typer.Argument(metavar="POLL_INTERVAL")], lab: Lab = "lab", save: Save = False
) -> None:
    """Set the polling interval, 100..1000 ms; no detection or restoration time may be shorter."""
    _change(lab, "interval", save, interval_ms=milliseconds)


@app.command("start-default")
def start_default(lab: Lab = "lab", save: Save = False) -> None:
    """Watch every port with PFC: drop, 200 ms each to detect, restore and poll, more on switches of over 32 ports."""
    _change(lab, "start-default", save)


app.command("start_default", hidden=True)(start_default)


def _red(state: Annotated[str, typer.Argument(metavar="enable|disable")], lab: Lab = "lab", save: Save = False) -> None:
    """Drop every priority with PFC on every port, and watch nothing."""
    _change(lab, "big-red-switch", save, state=state)


app.command("big-red-switch")(_red)
app.command("big_red_switch", hidden=True)(_red)


@app.command()
def clear(target: Target = None, lab: Lab = "lab") -> None:
    """Set the statistics of `show stats` to 0. Refused while one of them is stormed."""
    with errors():
        request(lab, "pfcwd", what="clear", target=target)
