"""`dcbctl`: runs the controller of a lab, and asks a running one through its control socket.

Exit codes: 0 done, 1 the run failed (no controller, a switch refused or is away), 2 wrong use (config, target, value).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from controller import dcbx_cli, plan_cli, render, telemetry_cli, watchdog_cli, why_cli
from controller.cli_common import AsJson, Lab, OneTarget, Save, Target, errors, profile_or_keys, report
from controller.client import ClientError, request

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Control a lossless fabric through P4Runtime.")
show = typer.Typer(no_args_is_help=True, help="Show state of the switches (-j: JSON).")
set_ = typer.Typer(no_args_is_help=True, help="Change the desired state; the difference is written at once.")
app.add_typer(show, name="show")
app.add_typer(set_, name="set")
app.add_typer(dcbx_cli.app, name="dcbx")
app.add_typer(watchdog_cli.app, name="pfcwd")
why_cli.add_to(app)
plan_cli.add_to(app)

app.command("watch")(telemetry_cli.watch)
app.command("events")(telemetry_cli.events)
show.command("telemetry")(telemetry_cli.show)

_LINE_WIDTH = 10_000

Format = Annotated[str, typer.Option("--format", help="table, or dcb: as iproute2's dcb prints it.")]


def _print(what: str, view: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(view, indent=2))
        return
    # whole lines for pipes and for terminals that are too narrow, which wrap them: nothing is cut off
    Console(width=_LINE_WIDTH).print(render.TABLES[what](view))


def _show(what: str, target: str | None, lab: str, as_json: bool) -> None:
    with errors():
        _print(what, request(lab, "show", what=what, target=target), as_json)


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="YAML file with the desired state.")],
    lab: Lab = "lab",
    p4: Annotated[str | None, typer.Option("--p4", help="Directory of dcb.json and its P4Info, or NAME.json.")] = None,
    election_id: Annotated[int, typer.Option(min=1, help="P4Runtime election id; the larger is primary.")] = 100,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run the controller in the foreground. SIGHUP or `dcbctl reload` reads CONFIG again."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("dcblab").setLevel(logging.DEBUG if verbose else logging.INFO)
    # imported here: the commands that only ask a running controller start much faster without
    from controller.config import ConfigError
    from controller.daemon import serve
    from controller.program import ProgramError

    with errors():
        try:
            asyncio.run(serve(config, lab=lab, p4_directory=p4, election_id=election_id))
        except (ConfigError, ProgramError) as error:
            raise ClientError(str(error), 2) from None


@app.command()
def check(config: Annotated[str, typer.Argument(help="YAML file with the desired state.")]) -> None:
    """Check a config file and change nothing."""
    from controller import config as configuration

    with errors():
        try:
            loaded = configuration.load(config)
        except configuration.ConfigError as error:
            raise ClientError(str(error), 2) from None
        for warning in configuration.warnings(loaded):
            print(f"dcbctl: warning: {warning}", file=sys.stderr)
        print(f"{config}: good: {len(loaded.switches)} switches")


@app.command()
def reload(lab: Lab = "lab") -> None:
    """Let the controller read its config file again and write the difference."""
    with errors():
        report(request(lab, "reload"))


@app.command()
def status(lab: Lab = "lab", as_json: AsJson = False) -> None:
    """State of every switch: connection, entries, updates written, last error."""
    with errors():
        _print("status", request(lab, "status"), as_json)


@app.command()
def config(lab: Lab = "lab") -> None:
    """Print the config in force as YAML."""
    with errors():
        print(request(lab, "config")["yaml"], end="")


@app.command()
def clear(
    what: Annotated[str, typer.Argument(metavar="watermarks|counters")], target: Target = None, lab: Lab = "lab"
) -> None:
    """Set watermarks or counters to 0."""
    with errors():
        request(lab, "clear", what=what, target=target)


@app.command()
def shell(switch: Annotated[str, typer.Argument(metavar="SWITCH")], lab: Lab = "lab") -> None:
    """Tell how to open p4runtime-shell on a switch, in an environment of its own (it pins an old protobuf)."""
    with errors():
        found = [item for item in request(lab, "status")["switches"] if item["name"] == switch]
        if not found:
            raise ClientError(f"switch {switch!r}: not in the config", 2)
        print("python3 -m venv ~/.p4runtime-shell && ~/.p4runtime-shell/bin/pip install p4runtime-shell")
        print(
            f"~/.p4runtime-shell/bin/python -m p4runtime_sh --grpc-addr {found[0]['address']}"
            f" --device-id {found[0]['device_id']} --election-id 0,1"
        )
        print(f"# election id 1 is below the controller's {found[0]['election_id']}: the shell reads, it cannot write")


# ---- show -----------------------------------------------------------------------------------------------------------


def _formatted(what: str, target: str | None, lab: str, as_json: bool, style: str) -> None:
    with errors():
        if style not in ("table", "dcb"):
            raise ClientError(f"--format: {style!r}: table or dcb is wanted", 2)
        view = request(lab, "show", what=what, target=target)
        if style == "dcb" and not as_json:
            print(render.ets_dcb(view) if what == "ets" else render.pfc_dcb(view))
        else:
            _print(what, view, as_json)


@show.command("pfc")
def show_pfc(
    target: Annotated[
        list[str] | None,
        typer.Argument(metavar="[priority|counters|storm-control] [SWITCH[:PORT]]", help="Default: every port."),
    ] = None,
    lab: Lab = "lab",
    as_json: AsJson = False,
    style: Format = "table",
) -> None:
    """PFC frames per port and priority and pause time. priority: what has PFC; storm-control: limits, dialects."""
    words = list(target or [])
    what = "pfc"
    if words and words[0] in ("priority", "counters", "storm-control"):
        what = {"counters": "pfc"}.get(words[0], f"pfc_{words[0]}")
        words.pop(0)
    if len(words) > 1:
        print(f"dcbctl: show pfc: {words[1]!r}: one SWITCH[:PORT] is wanted", file=sys.stderr)
        raise typer.Exit(2)
    _formatted(what, words[0] if words else None, lab, as_json, style if what == "pfc" else "table")


@show.command("ets")
def show_ets(target: Target = None, lab: Lab = "lab", as_json: AsJson = False, style: Format = "table") -> None:
    """Scheduler of each queue: strict, ETS weight, credit-based shaper."""
    _formatted("ets", target, lab, as_json, style)


@show.command("ecn")
def show_ecn(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """ECN profiles, and packets marked and dropped per queue."""
    _show("ecn", target, lab, as_json)


@show.command("qcn")
def show_qcn(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """Congestion points (802.1Qau) and their messages."""
    _show("qcn", target, lab, as_json)


@show.command("counters")
def show_counters(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """Packets and bytes per port and priority."""
    _show("counters", target, lab, as_json)


@show.command("queue")
def show_queue(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """Depth, watermark and drops per queue."""
    _show("queue", target, lab, as_json)


@show.command("buffer")
def show_buffer(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """Ingress priority groups: occupancy, headroom, watermarks, XOFF."""
    _show("buffer", target, lab, as_json)


@show.command("thresholds")
def show_thresholds(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """XOFF of groups that a threshold policy moves, its bounds, and what was predicted."""
    _show("thresholds", target, lab, as_json)


@show.command("route")
def show_route(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """Routes as the switches hold them."""
    _show("route", target, lab, as_json)


@show.command("drops")
def show_drops(target: Target = None, lab: Lab = "lab", as_json: AsJson = False) -> None:
    """Dropped packets by reason."""
    _show("drops", target, lab, as_json)


# ---- set ------------------------------------------------------------------------------------------------------------


def _set(lab: str, what: str, target: str, save: bool, **params: Any) -> None:
    with errors():
        report(request(lab, "set", what=what, target=target, save=save, **params))


@set_.command("pfc")
def set_pfc(
    target: OneTarget,
    state: Annotated[str, typer.Argument(metavar="on|off")],
    priorities: Annotated[str, typer.Argument(metavar="PRIO[,PRIO]")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Turn PFC of some priorities on or off: `dcbctl set pfc leaf1:1 on 3,4`."""
    _set(lab, "pfc", target, save, state=state, priorities=priorities)


@set_.command("ets")
def set_ets(
    target: OneTarget,
    spec: Annotated[str, typer.Argument(metavar="QUEUE=WEIGHT|strict|cbs:RATE|default[,...]")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Set schedulers of queues; queues not named keep theirs: `dcbctl set ets leaf1:1 0=40,3=60,6=strict`."""
    _set(lab, "ets", target, save, spec=spec)


@set_.command("ecn")
def set_ecn(
    target: OneTarget,
    queue: Annotated[int, typer.Argument(min=0, max=7)],
    values: Annotated[list[str], typer.Argument(metavar="PROFILE | off | kmin=N kmax=N pmax=P drop_non_ect=on|off")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Set the ECN thresholds of a queue: `dcbctl set ecn leaf1:1 3 kmin=20000 kmax=80000 pmax=0.1`."""
    pairs = profile_or_keys("ecn", values, "thresholds")
    _set(lab, "ecn", target, save, queue=queue, values=pairs)


@set_.command("buffer")
def set_buffer(
    target: OneTarget,
    pg: Annotated[int, typer.Argument(min=0, max=7, help="Priority group.")],
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="PROFILE | off | KEY=VALUE ...",
            help="xoff, xon, alpha, xon_offset, headroom, reserved, pool, headroom_pool.",
        ),
    ],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Set the buffer of a priority group; keys not named keep theirs: `dcbctl set buffer leaf1:1 3 headroom=90000`."""
    pairs = profile_or_keys("buffer", values, "keys")
    _set(lab, "buffer", target, save, pg=pg, values=pairs)


@set_.command("pool")
def set_pool(
    target: Annotated[str, typer.Argument(metavar="SWITCH", help="A switch, or all.")],
    pool: Annotated[int, typer.Argument(min=0, max=7)],
    size: Annotated[str, typer.Argument(metavar="BYTES", help="Such as 16777216, 16M or 16MiB.")],
    headroom: Annotated[bool, typer.Option("--headroom", help="A headroom pool.")] = False,
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Size of a shared pool or of a headroom pool: `dcbctl set pool leaf1 1 8MiB`."""
    try:
        size_bytes = plan_cli.parse_size(size)
    except ValueError as error:
        print(f"dcbctl: set pool: size: {size!r}: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    _set(lab, "pool", target, save, pool=pool, size=size_bytes, headroom=headroom)


@set_.command("trust")
def set_trust(
    target: OneTarget,
    trust: Annotated[str, typer.Argument(metavar="port|pcp|dscp")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """What the priority of a frame is taken from."""
    _set(lab, "trust", target, save, value=trust)


@set_.command("rate")
def set_rate(
    target: OneTarget,
    rate: Annotated[str, typer.Argument(metavar="RATE")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Rate of a port: `dcbctl set rate leaf1:1 100M`."""
    _set(lab, "rate", target, save, value=rate)


def main() -> None:
    """Entry point of `dcbctl`."""
    app()


if __name__ == "__main__":
    main()
