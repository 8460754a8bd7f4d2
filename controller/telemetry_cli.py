"""`dcbctl watch`, `dcbctl events`, `dcbctl show telemetry`: what a controller measures, live and as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from controller.cli_common import POLL_S, Lab, Target, errors
from controller.client import request
from controller.render import number
from dcb.units import format_time_ps

Json = dict[str, Any]
_WIDTH = 10_000


def watch(
    target: Target = None,
    lab: Lab = "lab",
    interval: Annotated[float, typer.Option("--interval", "-n", min=0.01, max=30, help="Seconds between screens.")] = 1,
    once: Annotated[bool, typer.Option("--once", help="One interval, then end.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Also priorities that do nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="A JSON line an interval.")] = False,
) -> None:
    """Live: what each port and priority does, pauses, alarms, storms. Ctrl-C ends it."""

    def ask() -> Json:
        view: Json = request(lab, "telemetry", what="watch", target=target, interval_ms=round(1000 * interval))
        return view

    with errors(), contextlib.suppress(KeyboardInterrupt):
        if as_json:
            while True:
                print(json.dumps(ask()), flush=True)
                if once:
                    return
        if once:
            Console(width=_WIDTH).print(screen(ask(), every))
            return
        with Live(Text("waiting for the first interval ..."), screen=sys.stdout.isatty(), auto_refresh=False) as live:
            while True:
                live.update(screen(ask(), every, live.console.width), refresh=True)


def bits(value_bps: int) -> str:
    """A rate with three digits: 1.23G, 45.6M, 789k; - for 0."""
    for unit, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value_bps >= factor:
            return f"{value_bps / factor:.3g}{unit}" if value_bps < 1000 * factor else f"{value_bps // factor}{unit}"
    return str(value_bps) if value_bps else "-"


def _time(value_ns: int | None) -> str:
    if value_ns is None:
        return "-"
    unit_ns = 1 if value_ns < 10**4 else 10**3 if value_ns < 10**7 else 10**6  # three or four digits are enough
    return format_time_ps(value_ns // unit_ns * unit_ns * 1000)


def _active(row: Json) -> bool:
    names = ("rx_bps", "tx_bps", "xoff_rx", "xoff_tx", "ce_marked", "dropped", "paused_permille", "queue_bytes")
    return any(row[name] for name in names) or row["storm"] not in (None, "operational")


# (heading, right-aligned, on a narrow terminal too)
_COLUMNS = (
    *(("Port", False, True), ("Peer", False, False), ("Prio", False, True), ("rx", True, True), ("tx", True, True)),
    *(("share", True, False), ("XOFF rx/s", True, True), ("XOFF tx/s", True, True), ("paused", True, True)),
    *(("queue B", True, True), ("group B", True, False), ("p99 delay", True, True), ("CE/s", True, False)),
    *(("drops", True, True), ("state", False, True)),
)
_WIDE = 120


def screen(view: Json, every: bool = False, width: int = _WIDTH) -> RenderableType:
    """One screen of `watch`: ports by priority, then alarms and storms. Below 120 columns some are left out."""
    shown = [n for n, (_, _, narrow) in enumerate(_COLUMNS) if narrow or width >= _WIDE]
    padding = (0, 1) if width >= _WIDE else (0, 1, 0, 0)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=padding)
    for n in shown:
        heading, right, _ = _COLUMNS[n]
        text = heading if width >= _WIDE else heading.replace(" ", "\n")
        table.add_column(text, justify="right" if right else "left", no_wrap=True)
    for port in view["ports"]:
        rows = [row for row in port["priorities"] if every or _active(row)]
        for index, row in enumerate(rows or [None]):
            head = (port["name"], port["peer"] or "-") if index == 0 else ("", "")
            cells = (*head, *(_cells(row) if row is not None else ("idle",)))
            table.add_row(*(cells[n] for n in shown if n < len(cells)))
    parts: list[RenderableType] = [
        f"{time.strftime('%H:%M:%S', time.localtime(view['time']))}  every {view['interval_ms'] / 1000:g} s",
        table,
    ]
    parts += [Text(f"no answer from {name}", style="bold red") for name in view["silent"]]
    for alarm in view["alarms"]:
        text = f"ALARM {alarm['title']}, {alarm['where']}: {_value(alarm['value'], alarm['unit'])}"
        text += f" (limit {_value(alarm['threshold'], alarm['unit'])}): {alarm['advice']}"
        parts.append(Text(text, style="bold red"))
    parts += [
        Text(f"STORM {item['name']} priority {item['priority']}: mitigated by the watchdog", style="bold red")
        for item in view["watchdog"]
    ]
    if not view["alarms"] and not view["watchdog"]:
        parts.append(Text("no alarm, no storm", style="green"))
    return Group(*parts)


def _value(value: int | None, unit: str) -> str:
    if value is None:
        return "-"
    return _time(value) if unit == "ns" else f"{value:,} {unit}"


def _cells(row: Json) -> tuple[str, ...]:
    share = "-"
    if row["share_permille"] is not None:
        share = f"{row['share_permille'] / 10:.1f}/{row['weight_permille'] / 10:.1f}%"
    states = [name for name in ("xoff", "paused") if row[name]]
    if row["storm"] not in (None, "operational"):
        states.append(row["storm"])
    return (
        f"{row['priority']}{'*' if row['pfc'] else ''}",
        bits(row["rx_bps"]),
        bits(row["tx_bps"]),
        share,
        number(row["xoff_rx"]),
        number(row["xoff_tx"]),
        "N/A" if row["paused_permille"] is None else f"{row['paused_permille'] / 10:.1f}%",
        number(row["queue_bytes"]),
        number(row["pg_bytes"]),
        _time(row["delay_p99_ns"]),
        number(row["ce_marked"]),
        number(row["dropped"]),
        " ".join(states),
    )


def events(
    lab: Lab = "lab",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on; Ctrl-C ends it.")] = False,
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", help="Only these: alarm, watchdog, deadlock, dcbx, session.")
    ] = None,
) -> None:
    """What happened, as JSON lines: alarms, watchdog, DCBX, connections to switches."""
    seen = 0
    with errors(), contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        while True:
            wait_s = POLL_S if follow and seen else 0
            view = request(lab, "telemetry", what="events", seen=seen, wait_s=wait_s, kinds=kinds)
            for event in view["events"]:
                print(json.dumps(event), flush=True)
            seen = max(view["seen"], 1)
            if not follow:
                return


def show(
    lab: Lab = "lab", as_json: Annotated[bool, typer.Option("--json", "-j", help="JSON instead of tables.")] = False
) -> None:
    """The metrics with their thresholds, the worst of the last interval, alarms and advice."""
    with errors():
        view = request(lab, "telemetry", what="state")
        if as_json:
            print(json.dumps(view, indent=2))
            return
        Console(width=_WIDTH).print(metrics(view))


def metrics(view: Json) -> RenderableType:
    """`show telemetry`."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for column in ("Metric", "Limit", "Worst", "Where", "State", "Advice"):
        table.add_column(column, no_wrap=True)
    for row in view["metrics"]:
        sign = "<=" if row["at_most"] else "<"
        state = f"{row['alarms']} ALARM" if row["alarms"] else "good"
        where = " ".join(filter(None, (row["where"] or "-", f"({row['detail']})" if row["detail"] else "")))
        limit = f"{sign} {_value(row['threshold'], row['unit'])}"
        advice = row["advice"] if row["alarms"] else ""
        table.add_row(row["title"], limit, _value(row["value"], row["unit"]), where, state, advice)
    notes = [] if view["on"] else ["telemetry is off: key telemetry of the config (docs/telemetry.md)"]
    notes += [f"no answer from {name}" for name in view["silent"]]
    notes += [f"Prometheus: {view['prometheus']}"] if view["prometheus"] else []
    return Group(table, *(Text(note) for note in notes))
