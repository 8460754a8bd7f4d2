"""`dcbctl dcbx ...`: asks a running controller about DCBX, and changes what ports are configured with.

Exit codes as of `dcbctl`; `mismatch` also ends with 1 where a link does not agree.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from controller.cli_common import Lab, OneTarget, Save, errors, follow, report
from controller.client import request

app = typer.Typer(no_args_is_help=True, help="DCBX: what ports say, accept and run (-j: JSON).")
set_ = typer.Typer(no_args_is_help=True, help="Change what ports are configured with; it is announced at once.")
app.add_typer(set_, name="set")

AsJson = Annotated[bool, typer.Option("--json", "-j", help="JSON.")]
Target = Annotated[str | None, typer.Argument(metavar="[SWITCH[:PORT]]", help="Default: every port with DCBX.")]


@app.command()
def show(
    target: Target = None,
    lab: Lab = "lab",
    as_json: AsJson = False,
    style: Annotated[str, typer.Option("--format", help="table, lldptool or dcb.")] = "table",
    local: Annotated[bool, typer.Option("--local", help="With lldptool: what the port says, not its peer.")] = False,
) -> None:
    """Local, remote and operational configuration of each port, in one screen.

    lldptool: as `lldptool -t -n -i PORT`; dcb: as `dcb ets|pfc|app show dev PORT`.
    """
    with errors():
        view = request(lab, "dcbx", what="show", target=target, format=style, local=local)
        if as_json:
            print(json.dumps(view, indent=2))
            return
        for number, port in enumerate(view["ports"]):
            if style != "table" and len(view["ports"]) > 1:
                print(f"# {port['name']}")
            elif style == "table" and number:
                print()
            print(port["text"].rstrip("\n"))
        if not view["ports"]:
            print("dcbctl: no port speaks DCBX (key dcbx of the config)", file=sys.stderr)


@app.command()
def mismatch(
    target: Target = None,
    lab: Lab = "lab",
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="Also the links that agree.")] = False,
) -> None:
    """Links that do not agree: what each end sends, accepts and runs, and what to change. Exit code 1 if any."""
    with errors():
        view = request(lab, "dcbx", what="mismatch", target=target)
    bad = [link for link in view["links"] if not link["agrees"]]
    if as_json:
        print(json.dumps(view if every else {"links": bad}, indent=2))
    else:
        for link in view["links"] if every else bad:
            peer = f" to {link['peer']}" if link["peer"] else ""
            print(f"{link['name']}{peer}: {'agrees' if link['agrees'] else 'does not agree'}")
            print("\n".join(f"  {line}" for line in link["text"].splitlines()))
        if not every and not bad:
            print(f"{len(view['links'])} links, all agree")
    raise typer.Exit(1 if bad else 0)


@app.command()
def watch(
    target: Target = None,
    lab: Lab = "lab",
    as_json: AsJson = False,
    history: Annotated[bool, typer.Option("--history", help="Begin with what has happened already.")] = False,
    duration: Annotated[float | None, typer.Option(min=0, help="Seconds; default: until Ctrl-C.")] = None,
) -> None:
    """Print what happens, a line each: neighbours, operational changes with their reasons, elected sources, faults."""
    follow(
        lab,
        "dcbx",
        target,
        past=history,
        duration_s=duration,
        show=lambda events: _print_events(events, as_json),
    )


def _print_events(events: Sequence[Any], as_json: bool) -> None:
    for event in events:
        if as_json:
            print(json.dumps(event), flush=True)
            continue
        at = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        print(
            f"{at}.{int(event['time'] * 1000) % 1000:03d} {event['port'] or event['switch']} {event['kind']}: ", end=""
        )
        print(event["text"], flush=True)


def _set(lab: str, key: str, target: str, value: str, save: bool, **more: Any) -> None:
    with errors():
        report(request(lab, "set", what="dcbx", key=key, target=target, value=value, save=save, **more))


@set_.command("ets")
def set_ets(
    target: OneTarget,
    spec: Annotated[str, typer.Argument(metavar="TC=PERCENT|strict[,...] | default")],
    mapping: Annotated[str | None, typer.Option("--map", metavar="PRIO=TC[,...]", help="Others keep theirs.")] = None,
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """The whole ETS table: `dcbctl dcbx set ets spine1:1 0=40,1=60,2=strict --map 3=1,6=2`."""
    _set(lab, "ets", target, spec, save, map=mapping)


@set_.command("pfc")
def set_pfc(
    target: OneTarget,
    priorities: Annotated[str, typer.Argument(metavar="PRIO[,PRIO] | none | default")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """The priorities with PFC: `dcbctl dcbx set pfc spine1:1 3,4`."""
    _set(lab, "pfc", target, priorities, save)


@set_.command("app")
def set_app(
    target: OneTarget,
    entries: Annotated[str, typer.Argument(metavar="udp:4791=3,dscp:26=3,... | none | default")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """The application table; also tcp:, port:, ethertype:0x8906=3 and default=0."""
    _set(lab, "app", target, entries, save)


@set_.command("willing")
def set_willing(
    target: OneTarget,
    attributes: Annotated[str, typer.Argument(metavar="ets,pfc,app | all | none | default")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Of what a port takes its peer's configuration."""
    _set(lab, "willing", target, attributes, save)


@set_.command("role")
def set_role(
    target: OneTarget,
    role: Annotated[str, typer.Argument(metavar="manual|auto-upstream|auto-downstream|configuration-source")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """What a port is in its switch."""
    _set(lab, "role", target, role, save)


@set_.command("mode")
def set_mode(
    target: OneTarget,
    mode: Annotated[str, typer.Argument(metavar="auto|ieee|cee")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """The dialect that a port speaks."""
    _set(lab, "mode", target, mode, save)


@set_.command("tie-break")
def set_tie_break(
    target: OneTarget,
    rule: Annotated[str, typer.Argument(metavar="lower-mac|higher-mac")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Who keeps its own PFC where both ends are willing; open-lldp does it the other way round (higher-mac)."""
    _set(lab, "tie_break", target, rule, save)


@set_.command("enabled")
def set_enabled(
    target: OneTarget,
    state: Annotated[str, typer.Argument(metavar="on|off")],
    lab: Lab = "lab",
    save: Save = False,
) -> None:
    """Switch LLDP and DCBX of a port on or off."""
    _set(lab, "enabled", target, state, save)
