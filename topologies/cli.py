"""`dcblab`: build fabrics and run scenarios. Thin: arguments in, `topologies` modules called, exit codes out.

Exit codes: 0 done and every claim proved, 1 a run failed or a claim did not hold, 2 wrong use (also: not root).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml
from rich.console import Console

from controller.config import ConfigError, parse_rate
from controller.program import DEFAULT_DIRECTORY
from topologies import chaos_cli, network, report, virtual_cli
from topologies.dcbx import one_source, start_host_agents
from topologies.description import Topology, leaf_spine
from topologies.network import FabricNetwork, NetworkError, Target
from topologies.paths import results_dir, run_dir
from topologies.results import RunResult
from topologies.scenario import Value
from topologies.scenarios import dcbx_bring_up, is_virtual, nic_storm, real_targets, scenarios, storage_and_business
from topologies.settings import STORAGE_PRIORITY, Dcb, Ecn, controller_config

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=__doc__.split("\n")[0])
SYNC_TIMEOUT_S = 60.0
RATES = {Target.EMBEDDED: "100M", Target.BMV2: "4M"}
virtual_cli.add_to(app)
chaos_cli.add_to(app)


def _lab_name(name: str) -> str:
    try:
        run_dir(name)
    except ValueError as error:
        raise _fail(str(error), 2) from None
    return name


TargetName = Annotated[Target, typer.Option("--target", help="what runs as switch: dcbswitch, or BMv2 from the PATH")]
LabName = Annotated[
    str, typer.Option("--lab", callback=_lab_name, help="name of the lab: its sockets are in /run/dcblab/NAME")
]


def _fail(message: str, code: int) -> typer.Exit:
    print(f"dcblab: {message}", file=sys.stderr)
    return typer.Exit(code)


def _need(target: Target) -> None:
    try:
        network.require_root()
        if target is Target.BMV2:
            network.require_bmv2()
    except NetworkError as error:
        raise _fail(str(error), 2) from None


@app.command("list")
def list_scenarios() -> None:
    """List the scenarios."""
    for name, module in scenarios().items():
        where = [*real_targets(module), *(["virtual"] if is_virtual(module) else [])]
        print(f"{name}: {module.SUMMARY} [{', '.join(where)}]")


@app.command()
def run(
    scenario: Annotated[str, typer.Argument(help="a name that `dcblab list` shows")],
    duration: Annotated[int, typer.Option(min=5, max=600, help="seconds of traffic in each run")] = 15,
    out: Annotated[Path | None, typer.Option(help="folder for results [results/SCENARIO/TIME]")] = None,
    lab: LabName = "lab",
    target: TargetName = Target.EMBEDDED,
    virtual: Annotated[bool, typer.Option("--virtual", help="in virtual time: no root, 100 Gb/s, repeatable")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="of a run in virtual time")] = 1,
    settings: virtual_cli.Settings = None,
    pcap: Annotated[bool, typer.Option("--pcap", help="in virtual time: a pcap of every link and direction")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="in virtual time: check the invariants at every event")
    ] = False,
) -> None:
    """Run a scenario and say what it proves."""
    known = scenarios()
    if scenario not in known:
        raise _fail(f"scenario {scenario!r}: not one of {', '.join(known)}", 2)
    if virtual:
        virtual_cli.run(scenario, seed, settings or [], out, pcap, debug)
    if str(target) not in real_targets(known[scenario]):
        where = ", ".join(real_targets(known[scenario])) or "none"
        raise _fail(f"--target {target}: {scenario} runs in real time on: {where}; in virtual time: --virtual", 2)
    if settings or pcap or debug:
        raise _fail("--set, --pcap, --debug: are of runs in virtual time (--virtual)", 2)
    _need(target)
    setting = storage_and_business.SETTINGS[target]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    folder = out or results_dir(scenario) / time.strftime("%Y%m%d-%H%M%S")
    try:
        report.make_folder(folder)  # now, and not after minutes of traffic
    except OSError as error:
        raise _fail(f"results folder {folder}: {error.strerror}", 1) from None
    if scenario == dcbx_bring_up.NAME:
        _run_dcbx(console, duration, lab, target, folder)
    if scenario == nic_storm.NAME:
        _run_nic_storm(console, duration, lab, folder)
    try:
        runs = asyncio.run(_run_scenario(console, duration, lab, target))
    except (NetworkError, ConfigError, TimeoutError, OSError) as error:
        raise _fail(str(error), 1) from None
    checks = storage_and_business.verdict(runs, setting.share_tolerance)
    console.print()
    console.print(report.class_table(runs))
    console.print(report.drop_table(runs))
    console.print(report.pfc_table(runs))
    console.print("What this proves:")
    report.print_checks(console, checks)
    facts = {"scenario": scenario, "target": str(target), "duration_s": duration, "rate_bps": setting.rate_bps}
    for path in report.save(folder, runs, checks, facts):
        console.print(f"  {path}")
    raise typer.Exit(0 if all(check.passed for check in checks) else 1)


def _run_dcbx(console: Console, duration: int, lab: str, target: Target, folder: Path) -> NoReturn:
    from topologies import dcbx_lab

    console.print(f"{dcbx_bring_up.NAME}: {dcbx_bring_up.SUMMARY}")
    try:
        outcome = asyncio.run(dcbx_lab.run(duration, lab, console.print, target))
    except (NetworkError, ConfigError, TimeoutError, OSError) as error:
        raise _fail(str(error), 1) from None
    checks = dcbx_bring_up.verdict(outcome)
    console.print("What this proves:")
    report.print_checks(console, checks)
    rate_bps = dcbx_bring_up.SETTINGS[target].rate_bps
    facts = {"scenario": dcbx_bring_up.NAME, "target": str(target), "duration_s": duration, "rate_bps": rate_bps}
    for path in report.save(folder, [], checks, facts | {"outcome": asdict(outcome)}):
        console.print(f"  {path}")
    raise typer.Exit(0 if all(check.passed for check in checks) else 1)


def _run_nic_storm(console: Console, duration: int, lab: str, folder: Path) -> NoReturn:
    from topologies import html_report, nic_storm_lab

    console.print(f"{nic_storm.NAME}: {nic_storm.SUMMARY}")
    try:
        seen = asyncio.run(
            nic_storm_lab.run(
                duration / len(nic_storm_lab.PHASES),
                lab,
                lambda text: console.print(text, markup=False),
            )
        )
    except (NetworkError, ConfigError, TimeoutError, OSError) as error:
        raise _fail(str(error), 1) from None
    outcome = nic_storm_lab.outcome(seen)
    console.print("What this proves:")
    report.print_checks(console, outcome.checks)
    facts: dict[str, Value] = {
        "scenario": nic_storm.NAME,
        "target": str(Target.EMBEDDED),
        "duration_s": duration,
        "rate_bps": nic_storm_lab.RATE_BPS,
    }
    paths = report.save(folder, [], outcome.checks, facts | {"figures": dict(outcome.figures)})
    html_report.write(
        folder / "report.html",
        title=nic_storm.NAME,
        summary=nic_storm.SUMMARY,
        checks=outcome.checks,
        notes=outcome.notes,
        tables=outcome.tables,
        links=outcome.maps,
        facts=facts,
    )
    for path in paths:
        console.print(f"  {path}")
    raise typer.Exit(0 if outcome.passed else 1)


async def _run_scenario(console: Console, duration: int, lab: str, target: Target) -> list[RunResult]:
    from topologies.lab import Progress, run_phases

    setting = storage_and_business.SETTINGS[target]
    topology = storage_and_business.topology(setting.rate_bps)
    phases = storage_and_business.phases(setting)
    console.print(f"{storage_and_business.NAME}: {storage_and_business.SUMMARY}")
    name = "" if target is Target.EMBEDDED else f"{target} "
    rate = f"{setting.rate_bps // 10**6} Mb/s"
    console.print(f"Bringing up {len(topology.switches)} {name}switches and {len(topology.hosts)} hosts at {rate} ...")
    runs: list[RunResult] = []
    with console.status("") as status:

        def show(progress: Progress) -> None:
            sample = progress.sample
            line = f"run {progress.number}/{progress.phases} {progress.phase}: "
            line += f"{progress.elapsed_s:4.1f}/{progress.duration_s:g} s"
            if sample is not None:
                rates = ", ".join(f"{name} {bps / 1e6:5.1f} Mb/s" for name, bps in sample.received_bps.items())
                line += f"  {rates}  XOFF {sample.pfc_xoff}  lost {sum(sample.lost.values())}"
            status.update(line)
            if not console.is_terminal and progress.elapsed_s % 3 < 0.5:
                console.print(line)

        async for result in run_phases(
            topology,
            phases,
            storage_and_business.flows(setting.rate_bps),
            duration_s=duration,
            lab=lab,
            target=target,
            progress=show,
        ):
            storage = result.traffic_class("storage")
            console.print(
                f"run {len(runs) + 1}/{len(phases)} {result.name}: done, {storage.lost:,} storage frames lost"
            )
            runs.append(result)
    return runs


@app.command()
def up(
    leaves: Annotated[int, typer.Option(help="1..99")] = 2,
    spines: Annotated[int, typer.Option(help="1..99")] = 2,
    hosts: Annotated[int, typer.Option(help="hosts per leaf, 1..200")] = 4,
    rate: Annotated[str | None, typer.Option(help="of every link [100M; 4M on bmv2]")] = None,
    pfc: Annotated[str, typer.Option(help="lossless priorities, such as 3 or 3,4; empty for none")] = "3",
    lab: LabName = "lab",
    script: Annotated[Path | None, typer.Option(help="run these Mininet commands instead of a prompt")] = None,
    target: TargetName = Target.EMBEDDED,
    dcbx: Annotated[bool, typer.Option("--dcbx", help="tell one port; switches and hosts learn it by DCBX")] = False,
) -> None:
    """Bring up a lossless leaf-spine and give the Mininet prompt; `dcbctl` works beside it."""
    topology, configuration = _describe(leaves, spines, hosts, rate or RATES[target], pfc, lab, target, dcbx)
    if script is not None and not script.is_file():
        raise _fail(f"script {script}: no such file", 2)
    _need(target)
    try:
        with FabricNetwork(topology, lab=lab, target=target) as net, contextlib.ExitStack() as stack:
            path = run_dir(lab) / "config.yaml"
            path.write_text(yaml.safe_dump(configuration, sort_keys=False))
            controller = _start_controller(path, lab, target)
            try:
                if target is Target.BMV2:
                    from topologies.bmv2 import Emulation

                    stack.enter_context(Emulation(net))
                if dcbx:
                    start_host_agents(net, lab)
                _prompt(net, script)
            finally:
                controller.terminate()
                controller.wait()
    except (NetworkError, OSError) as error:
        raise _fail(str(error), 1) from None


def _describe(
    leaves: int,
    spines: int,
    hosts: int,
    rate: str,
    pfc: str,
    lab: str,
    target: Target = Target.EMBEDDED,
    dcbx: bool = False,
) -> tuple[Topology, dict[str, Any]]:
    try:
        rate_bps = parse_rate(rate)
    except ValueError as error:
        raise _fail(f"--rate {rate!r}: {error}", 2) from None
    try:
        topology = leaf_spine(leaves, spines, hosts, rate_bps, name=lab)
    except ValueError as error:
        raise _fail(str(error), 2) from None
    priorities = [p.strip() for p in pfc.split(",") if p.strip()]
    if any(p not in "01234567" or len(p) != 1 for p in priorities):
        raise _fail(f"--pfc {pfc!r}: priorities are 0..7 with commas between them", 2)
    ecn = {STORAGE_PRIORITY: Ecn(20_000, 80_000, 0.2), 0: Ecn(30_000, 90_000, 0.5)}
    dcb = Dcb(pfc=tuple(sorted({int(p) for p in priorities})), ecn=ecn)
    dcb = replace(dcb, **storage_and_business.SETTINGS[target].buffers)
    return topology, one_source(topology, dcb, lab=lab) if dcbx else controller_config(topology, dcb, lab=lab)


def _start_controller(config: Path, lab: str, target: Target) -> subprocess.Popen[str]:
    """`dcbctl run` beside the prompt; returns when every switch holds its configuration."""
    log = run_dir(lab) / "controller.log"
    program = ["--p4", str(DEFAULT_DIRECTORY / "dcb_bmv2.json")] if target is Target.BMV2 else []
    with log.open("w") as sink:
        process = subprocess.Popen(
            [
                *(*network.DIE_WITH_PARENT, sys.executable, "-m", "controller.cli"),
                *("run", str(config), "--lab", lab, *program),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    if select.select([process.stdout], [], [], SYNC_TIMEOUT_S)[0] and "synced" in process.stdout.readline():
        return process
    process.kill()
    raise NetworkError(f"controller: no switch configuration after {SYNC_TIMEOUT_S:g} s: {log.read_text()[-2000:]}")


def _prompt(net: FabricNetwork, script: Path | None) -> None:
    from mininet.cli import CLI
    from mininet.log import setLogLevel

    setLogLevel("info")  # the prompt prints through Mininet's logger
    tools = Path(sys.executable).parent
    for node in net.mininet.values():
        node.cmd(f"export PATH={tools}:$PATH")
    hosts = net.topology.hosts
    if script is None:
        print(f"{len(net.topology.switches)} switches, {len(hosts)} hosts. Try: h1 ping -c 3 {hosts[-1].name}")
        print("Beside it, in another terminal: dcbctl show pfc   (exit or Ctrl-D ends the lab)")
    CLI(net.mininet, script=str(script) if script else None)


@app.command()
def config(
    leaves: int = 2,
    spines: int = 2,
    hosts: int = 4,
    rate: str = "100M",
    pfc: str = "3",
    lab: LabName = "lab",
) -> None:
    """Print the controller configuration of a leaf-spine, as a start for one's own."""
    print(yaml.safe_dump(_describe(leaves, spines, hosts, rate, pfc, lab)[1], sort_keys=False), end="")


@app.command()
def clean(lab: LabName = "lab") -> None:
    """Remove what a crashed lab left behind; a lab that is running is ended."""
    _need(Target.EMBEDDED)
    killed = network.clean(lab)
    print(f"lab {lab}: {len(killed)} processes ended")


def main() -> None:
    """Entry point of `dcblab`."""
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    app()


if __name__ == "__main__":
    main()
