"""`dcbctl plan`: the headroom budget line by line, and the buffer of a switch or of every switch of a config.

Without a config it plans for --rate and --length; with one, for each port by its rate and cable. Exit codes: 0 done; 1
the buffer cannot carry the plan, or the config has less headroom than it needs; 2 wrong use (config, option, constant).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

_WIDTH = 10_000
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZE = re.compile(r"([0-9]+)\s*(K|M|G|Ki|Mi|Gi)?B?")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("plan")(plan)


def _fail(code: int, text: str) -> NoReturn:
    for line in text.splitlines():
        print(f"dcbctl: plan: {line}", file=sys.stderr)
    raise typer.Exit(code)


def parse_size(text: str) -> int:
    """`16777216`, `16MiB`, `16M` (10^6) -> bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("bytes such as 16777216, 16M or 16MiB are wanted")
    return int(match[1]) * _UNITS[match[2] or ""]


def _read(option: str, text: str, parse: Callable[[str], int]) -> int:
    """The value of an option. ValueError naming it, the text and the rule."""
    try:
        return parse(text)
    except ValueError as error:
        rule = str(error)
        raise ValueError(rule if rule.startswith(f"{option}:") else f"{option}: {text!r}: {rule}") from None


def _size(option: str, text: str | None) -> int | None:
    return None if text is None else _read(option, text, parse_size)


def plan(
    config: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="YAML file: plan each port of it.")] = None,
    method: Annotated[
        str, typer.Option("--method", "-m", help="exact (our switch), delay (802.1Q annex O), sonic.")
    ] = "exact",
    rate: Annotated[str | None, typer.Option("--rate", help="Rate of the link, such as 100G.")] = None,
    length: Annotated[str | None, typer.Option("--length", help="Cable in metres; with CONFIG: of every port.")] = None,
    mtu: Annotated[
        int | None, typer.Option("--mtu", help="Largest frame: without FCS (exact), with (delay); MTU (sonic).")
    ] = None,
    reverse_mtu: Annotated[int | None, typer.Option("--reverse-mtu", help="Largest frame sent to the peer.")] = None,
    min_frame: Annotated[int, typer.Option("--min-frame", help="Smallest frame of the peer, with FCS.")] = 64,
    response: Annotated[
        str | None, typer.Option("--response", help="exact: the peer's response, such as 1.5us.")
    ] = None,
    cell: Annotated[int, typer.Option("--cell", help="delay: bytes of a buffer cell.")] = 1,
    asic: Annotated[str, typer.Option("--asic", help="sonic: whose parameters.")] = "spectrum-1",
    lossless_mtu: Annotated[int, typer.Option("--lossless-mtu", help="sonic: of LOSSLESS_TRAFFIC_PATTERN.")] = 1024,
    small_percent: Annotated[int, typer.Option("--small-percent", help="sonic: small packets, by count.")] = 50,
    constant: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME[.RATE]=VALUE", help="Another constant.")
    ] = None,
    ports: Annotated[int | None, typer.Option("--ports", min=1, max=512, help="Ports of this kind.")] = None,
    priorities: Annotated[int, typer.Option("--priorities", min=1, max=8, help="Lossless groups of a port.")] = 1,
    buffer: Annotated[str | None, typer.Option("--buffer", help="Buffer of a switch, such as 16MiB.")] = None,
    over_subscription: Annotated[
        str | None, typer.Option("--over-subscription", help="Headroom in a pool of sum / RATIO bytes; 1: all of it.")
    ] = None,
    alpha: Annotated[
        str | None, typer.Option("--alpha", help="Dynamic threshold: exponent, 1/4, huawei:5 (default 0).")
    ] = None,
    xoff: Annotated[str | None, typer.Option("--xoff", help="Static threshold, bytes.")] = None,
    reserved: Annotated[str, typer.Option("--reserved", help="Of each lossless group, bytes.")] = "0",
    lossy: Annotated[str | None, typer.Option("--lossy", help="Pool of lossy groups, bytes.")] = None,
    margin: Annotated[
        str, typer.Option("--margin", help="Bytes more for each headroom: a switch process that is late.")
    ] = "0",
    constants: Annotated[bool, typer.Option("--constants", help="Print the constants with their sources.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write pools and profiles into CONFIG (comments are lost).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="JSON instead of tables.")] = False,
) -> None:
    """Compute headroom and plan the buffer: `dcbctl plan --rate 100G --length 40`, `dcbctl plan lab.yaml`."""
    from controller import plan as planning
    from controller.config import ConfigError
    from dcb.buffers import PlanError, Thresholds, parse_alpha
    from dcb.headroom import DEFAULTS, HeadroomError
    from dcb.headroom.constants import fraction
    from dcb.units import parse_rate, parse_time_ps

    try:
        given = DEFAULTS.override(dict(_assignments(constant or [])))
        if constants:
            _print_constants(given, as_json)
            return
        if method not in planning.METHODS:
            _fail(2, f"method: {method!r}: one of {', '.join(planning.METHODS)} is wanted")
        if alpha is not None and xoff is not None:
            _fail(2, "alpha, xoff: a dynamic or a static threshold, not both")
        exponent = None
        if xoff is None:
            exponent = parse_alpha(int(alpha) if re.fullmatch(r"-?[0-9]+", alpha or "0") else alpha) if alpha else 0
        assert exponent is None or isinstance(exponent, int)
        options = planning.Options(
            method,
            mtu,
            reverse_mtu,
            min_frame,
            0 if response is None else _read("response", response, parse_time_ps),
            cell,
            asic,
            lossless_mtu,
            small_percent,
            over_subscription is not None,
            xoff is None,
            given,
        )
        thresholds = Thresholds(exponent, _size("xoff", xoff), reserved_bytes=_read("reserved", reserved, parse_size))
        ratio = None if over_subscription is None else fraction("over_subscription", over_subscription)
        metres = None if length is None else fraction("length", length)
        rest: dict[str, Any] = {
            "buffer_bytes": _size("buffer", buffer),
            "over_subscription": ratio,
            "margin_bytes": _read("margin", margin, parse_size),
            "lossy_bytes": _size("lossy", lossy),
        }
        if config is not None:
            if rate is not None or ports is not None:
                _fail(2, "rate, ports: come from CONFIG")
            _plan_config(config, options, thresholds, rest, metres, write, as_json)
            return
        if rate is None:
            _fail(2, "rate: missing: --rate (and --length), or a config, is wanted")
        if write:
            _fail(2, "write: there is no CONFIG to write")
        rate_bps = _read("rate", rate, parse_rate)
        _plan_ports(options, thresholds, rest, rate_bps, metres or Fraction(5), ports, priorities, as_json)
    except PlanError as error:
        _fail(1, str(error))
    except (HeadroomError, ConfigError, ValueError) as error:
        _fail(2, str(error))


def _assignments(texts: list[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            _fail(2, f"set: {text!r}: NAME=VALUE is wanted")
        pairs.append((name, value))
    return pairs


# ---- without a config -------------------------------------------------------------------------------------------


def _plan_ports(
    options: Any,
    thresholds: Any,
    rest: dict[str, Any],
    rate_bps: int,
    length: Fraction,
    ports: int | None,
    priorities: int,
    as_json: bool,
) -> None:
    from controller import plan as planning
    from dcb.buffers import PortSpec, plan_buffers
    from dcb.units import format_rate

    budget = planning.budget(options, rate_bps, length)
    result: dict[str, Any] = {"budget": budget.data() | {"length_m": float(length)}}
    parts: list[RenderableType] = [budget_table(budget, length)]
    if ports is not None or rest["buffer_bytes"] is not None:
        if rest["buffer_bytes"] is None:
            _fail(2, "buffer: missing: --buffer is wanted beside --ports")
        specs = [PortSpec(str(n + 1), rate_bps, length, tuple(range(priorities))) for n in range(ports or 1)]
        if not as_json:  # what was asked for also where the buffer cannot carry it
            _out(None, parts, as_json)
            parts = []
        made = plan_buffers(
            specs,
            lambda _port: budget,
            thresholds=thresholds,
            xon_gap=lambda port: planning.xon_gap(options, port.rate_bps),
            rate_text=format_rate,
            **rest,
        )
        result["plan"] = made.data()
        parts += [parts_table(made, ""), *made.notes, groups_table({"": made})]
    elif rest["margin_bytes"]:
        result["budget"]["margin_bytes"] = rest["margin_bytes"]
    _out(result, parts, as_json)


# ---- with a config ----------------------------------------------------------------------------------------------


def _plan_config(
    path: str,
    options: Any,
    thresholds: Any,
    rest: dict[str, Any],
    length: Fraction | None,
    write: bool,
    as_json: bool,
) -> None:
    from controller import config as configuration
    from controller import plan as planning

    loaded = configuration.load(path)
    margin = rest["margin_bytes"]
    rows = planning.compare(loaded, options, margin, length)
    plans = planning.plan_switches(loaded, options, thresholds, lengths=length, **rest)
    links = sorted({(row.rate_bps, row.length_m) for row in rows})
    budgets = [(planning.budget(options, *link), link[1]) for link in links]
    short = [row for row in rows if not row.enough]
    result = {
        "budgets": [budget.data() | {"length_m": float(metres)} for budget, metres in budgets],
        "groups": [row.data() for row in rows],
        "plans": {name: made.data() for name, made in plans.items()},
        "enough": not short,
        "written": write,
    }
    if write:
        configuration.save(planning.written(loaded, plans), path)
    parts: list[RenderableType] = [budget_table(budget, metres) for budget, metres in budgets]
    if rows:
        parts.append(rows_table(rows))
    for name, made in plans.items():
        parts += [parts_table(made, name), *made.notes]
    _out(result, parts, as_json)
    if write:
        print(f"{path}: pools and buffer profiles are written", file=sys.stderr if as_json else sys.stdout)
        return
    if short:
        for row in short:
            print(f"dcbctl: plan: {_shortfall(row)}", file=sys.stderr)
        raise typer.Exit(1)


def _shortfall(row: Any) -> str:
    where = f"{row.name} pg {row.pg}"
    if row.configured_bytes < row.needed_bytes:
        missing = row.needed_bytes - row.configured_bytes
        return f"{where}: headroom {row.configured_bytes}: {row.needed_bytes} are needed, {missing} more"
    return f"{where}: pfc_quanta {row.quanta}: below {row.needed_quanta} a pause can end before its refresh has arrived"


# ---- tables -----------------------------------------------------------------------------------------------------


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left or name == "Source" else "right", no_wrap=True)
    return table


def budget_table(budget: Any, length: Fraction) -> Table:
    """The budget of a link, a line for each term."""
    from dcb.headroom.budget import decimal
    from dcb.units import format_rate

    title = f"Headroom at {format_rate(budget.rate_bps)} over {float(length):g} m, method {budget.method}"
    table = _table(title, "Term", "Bits", "Bytes", "ns", "Source")
    for line in budget.lines:
        table.add_row(
            line.name, decimal(line.bits), decimal(line.bytes), decimal(line.ns(budget.rate_bps)), line.source
        )
    table.add_section()
    total = Fraction(budget.headroom_bytes)
    table.add_row("headroom", decimal(total * 8), decimal(total), decimal(total * 8 * 10**9 / budget.rate_bps), "")
    for name in ("xon_bytes", "size_bytes"):
        if name in budget.values:
            table.add_row(
                name.removesuffix("_bytes"),
                decimal(Fraction(budget.values[name]) * 8),
                decimal(Fraction(budget.values[name])),
            )
    return table


def parts_table(made: Any, name: str) -> Table:
    """What the buffer is spent on."""
    table = _table(f"Buffer of {name}" if name else "Buffer", "Part", "Bytes", "%")
    for part, size in made.parts:
        table.add_row(part, f"{size:,}", f"{100 * size / made.buffer_bytes:.1f}")
    table.add_section()
    table.add_row("buffer", f"{made.buffer_bytes:,}", "100.0")
    return table


def groups_table(plans: dict[str, Any]) -> Table:
    """The profiles of a plan."""
    table = _table("Profiles", "Profile", "Groups", "Reserved", "Headroom", "XOFF", "XON", "Pool", "Headroom pool")
    seen: dict[Any, int] = {}
    for made in plans.values():
        for group in made.groups:
            key = (group.profile, json.dumps(group.profile_data(), sort_keys=True))
            seen[key] = seen.get(key, 0) + 1
    for (profile, text), count in seen.items():
        data = json.loads(text)
        xoff = f"{data['xoff']:,}" if "xoff" in data else f"2^{data['alpha']} of the free pool"
        xon = f"{data['xon']:,}" if "xon" in data else f"{data['xon_offset']:,} below"
        table.add_row(
            profile,
            str(count),
            f"{data['reserved']:,}",
            f"{data['headroom']:,}",
            xoff,
            xon,
            str(data["pool"]),
            str(data.get("headroom_pool", "own")),
        )
    return table


def rows_table(rows: list[Any]) -> Table:
    """Needed against configured, for each lossless group."""
    from dcb.units import format_rate

    columns = ("Rate", "Cable m", "Needed", "Configured", "Spare", "Quanta", "Needed quanta", "")
    table = _table("Lossless groups", "Port", "PG", "Profile", *columns, left=3)
    for row in rows:
        table.add_row(
            row.name,
            str(row.pg),
            row.profile,
            format_rate(row.rate_bps),
            f"{float(row.length_m):g}",
            f"{row.needed_bytes:,}",
            f"{row.configured_bytes:,}",
            f"{row.configured_bytes - row.needed_bytes:,}",
            f"{row.quanta:,}",
            f"{row.needed_quanta:,}",
            "enough" if row.enough else "SHORT",
        )
    return table


def _print_constants(constants: Any, as_json: bool) -> None:
    from dcb.units import format_rate

    rows = []
    for item in constants:
        values = {format_rate(rate): str(value) for rate, value in item.by_rate} or str(item.value)
        rows.append({"name": item.name, "unit": item.unit, "value": values, "source": item.source})
    table = _table("Constants", "Name", "Unit", "Value", "Source", left=3)
    for row in rows:
        value = row["value"]
        shown = ", ".join(f"{rate} {number}" for rate, number in value.items()) if isinstance(value, dict) else value
        table.add_row(row["name"], row["unit"], shown, row["source"])
    _out({"constants": rows}, [table], as_json)


def _out(result: Any, parts: list[RenderableType], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=2))
        return
    console = Console(width=_WIDTH, highlight=False)
    for part in parts:
        console.print(part)
