"""`dcblab chaos`: break things on purpose, by name and seed. Thin: arguments in, a run of the scenario `chaos` out.

Exit codes: 0 the fabric came back from every step, 1 it did not, or a run failed, 2 wrong use.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from topologies import virtual_cli
from topologies.chaos import STEPS, Action, ChaosError, from_data, names, plan
from topologies.scenario import parse_options


def add_to(app: typer.Typer) -> None:
    """Register `chaos`."""
    app.command("chaos")(chaos)


def _fail(message: str, code: int = 2) -> typer.Exit:
    print(f"dcblab: {message}", file=sys.stderr)
    return typer.Exit(code)


def _real(actions: Sequence[Action], seed: int, lab: str, out: Path | None) -> NoReturn:
    from controller.config import ConfigError
    from topologies import chaos_lab, report
    from topologies.network import NetworkError, require_root
    from topologies.paths import results_dir, run_dir

    for action in actions:
        if not STEPS[action.step].real:
            raise _fail(f"steps: {action.step!r}: virtual labs alone can do it")
    try:
        run_dir(lab)
        require_root()
    except (ValueError, NetworkError) as error:
        raise _fail(str(error)) from None
    folder = out or results_dir("chaos") / time.strftime("%Y%m%d-%H%M%S")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    try:
        report.make_folder(folder)
        seen = asyncio.run(chaos_lab.run(actions, lab, console.print))
    except (NetworkError, ConfigError, TimeoutError, OSError) as error:
        raise _fail(str(error), 1) from None
    checks = chaos_lab.verdict(seen)
    console.print("What this proves:")
    report.print_checks(console, checks)
    facts = {"scenario": "chaos", "seed": seed, "plan": [action.as_dict() for action in actions]}
    for path in report.save(folder, [], checks, facts):
        console.print(f"  {path}")
    raise typer.Exit(0 if all(check.passed for check in checks) else 1)


def chaos(
    steps: Annotated[str, typer.Option(help="steps in their order, with commas between [all]")] = "",
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="a YAML file with the actions; --show prints one to start from")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="draws what each step hits, and how hard")] = 1,
    settings: virtual_cli.Settings = None,
    out: virtual_cli.Out = None,
    pcap: Annotated[bool, typer.Option("--pcap", help="a pcap of every link and direction")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="check the invariants at every event")] = False,
    mininet: Annotated[
        bool, typer.Option("--mininet", help="in real time, as root; faults last a thousand times as long")
    ] = False,
    lab: Annotated[str, typer.Option("--lab", help="with --mininet: name of the lab")] = "lab",
    list_: Annotated[bool, typer.Option("--list", help="list the steps, and do nothing")] = False,
    show: Annotated[bool, typer.Option("--show", help="print the plan as YAML, and do nothing")] = False,
) -> None:
    """Break NICs, links, PFC, controller and switches, and ask after each step whether the fabric came back."""
    import yaml

    from topologies.scenarios import chaos as scenario

    if list_:
        for step in STEPS.values():
            print(f"{step.name}: {step.summary} [{'virtual, mininet' if step.real else 'virtual'}]")
        raise typer.Exit
    if plan_file is not None and steps:
        raise _fail("--plan and --steps: one of them")
    if lab != "lab" and not mininet:
        raise _fail("--lab: is of --mininet")
    if mininet:
        from topologies import chaos_lab

        fabric = chaos_lab.topology()
        steps = steps or ("" if plan_file else ",".join(name for name, step in STEPS.items() if step.real))
    else:
        fabric = scenario.topology(100 * 10**9)
    try:
        if plan_file is not None:
            actions = from_data(fabric, yaml.safe_load(plan_file.read_text()))
        else:
            response_us = parse_options(scenario.OPTIONS, settings or [])["response_us"]
            actions = plan(fabric, names(steps), seed, response_us=int(response_us))
    except ChaosError as error:
        raise _fail(f"--{error}") from None
    except ValueError as error:
        raise _fail(str(error)) from None
    except (OSError, yaml.YAMLError) as error:
        raise _fail(f"--plan {plan_file}: {error}") from None
    if show:
        print(yaml.safe_dump([action.as_dict() for action in actions], sort_keys=False), end="")
        raise typer.Exit
    if mininet:
        if settings or pcap or debug:
            raise _fail("--set, --pcap, --debug: are of virtual time, without --mininet")
        _real(actions, seed, lab, out)
    chosen = [f"steps={steps}", *(["plan=" + str(plan_file)] if plan_file else []), *(settings or [])]
    virtual_cli.run(scenario.NAME, seed, chosen, out, pcap, debug)
