"""`dcblab chaos`: break things on purpose, by name and seed. Thin: arguments in, a run of the scenario `chaos` out.

Exit codes: 0 the fabric came back from every step, 1 it did not, or a run failed, 2 wrong use.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from topologies import virtual_cli
from topologies.chaos import STEPS, ChaosError, from_data, names, plan
from topologies.scenario import parse_options


def add_to(app: typer.Typer) -> None:
    """Register `chaos`."""
    app.command("chaos")(chaos)


def _fail(message: str) -> typer.Exit:
    print(f"dcblab: {message}", file=sys.stderr)
    return typer.Exit(2)


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
    chosen = [f"steps={steps}", *(["plan=" + str(plan_file)] if plan_file else []), *(settings or [])]
    virtual_cli.run(scenario.NAME, seed, chosen, out, pcap, debug)
