"""A scenario's results on screen, as JSON and as a plot. Reads `topologies.results`; measures nothing itself."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from topologies.results import Check, RunResult


def class_table(runs: Sequence[RunResult]) -> Table:
    """Per run and class: frames offered, received, lost, reordered, CE-marked; rate, share, pause time."""
    table = Table(title="Traffic classes (frames)", title_justify="left", header_style="bold")
    table.add_column("run")
    table.add_column("class")
    for heading in ("prio", "offered", "received", "lost", "reordered", "CE-marked", "Mb/s", "ETS share", "paused"):
        table.add_column(heading, justify="right")
    for run in runs:
        for number, c in enumerate(run.classes):
            share = f"{100 * run.share.get(c.priority, 0.0):.1f}%"
            if run.configured_share is not None:
                share += f" of {100 * run.configured_share.get(c.priority, 0.0):.0f}%"
            table.add_row(
                run.name if number == 0 else "",
                c.name,
                str(c.priority),
                f"{c.offered:,}",
                f"{c.received:,}",
                f"[red]{c.lost:,}[/red]" if c.lost else "0",
                f"[red]{c.reordered:,}[/red]" if c.reordered else "0",
                f"{c.ce_marked:,}",
                f"{c.received_bps / 1e6:.1f}",
                share,
                f"{run.paused_ns.get(c.priority, 0) / 1e9:.3f} s",
                end_section=number == len(run.classes) - 1,
            )
    return table


def pfc_table(runs: Sequence[RunResult]) -> Table:
    """PFC frames per run and link direction."""
    table = Table(title="PFC frames per link", title_justify="left", header_style="bold")
    for heading in ("run", "from", "to", "priorities"):
        table.add_column(heading)
    for heading in ("XOFF sent", "XON sent", "both received"):
        table.add_column(heading, justify="right")
    for run in runs:
        if not run.pfc:
            table.add_row(run.name, "-", "-", "none", "0", "0", "0", end_section=True)
        for number, link in enumerate(run.pfc):
            table.add_row(
                run.name if number == 0 else "",
                link.sender,
                link.receiver,
                ",".join(map(str, link.priorities)),
                f"{link.xoff:,}",
                f"{link.xon:,}",
                "n/a" if link.received is None else f"{link.received:,}",
                end_section=number == len(run.pfc) - 1,
            )
    return table


def drop_table(runs: Sequence[RunResult]) -> Table:
    """Where frames were dropped, and why."""
    table = Table(title="Drops by switch and reason (frames)", title_justify="left", header_style="bold")
    for heading in ("run", "switch", "reason", "priority"):
        table.add_column(heading)
    table.add_column("frames", justify="right")
    for run in runs:
        if not run.drops:
            table.add_row(run.name, "-", "none", "-", "0", end_section=True)
        for number, d in enumerate(run.drops):
            priority = "-" if d.priority < 0 else str(d.priority)
            last = number == len(run.drops) - 1
            table.add_row("" if number else run.name, d.switch, d.reason, priority, f"{d.frames:,}", end_section=last)
    return table


def print_checks(console: Console, checks: Sequence[Check]) -> None:
    """The claims with their evidence, then one line of verdict."""
    for check in checks:
        mark = "[green]proved[/green]" if check.passed else "[bold red]FAILED[/bold red]"
        console.print(f"  {mark}  {check.claim}: {check.evidence}")
    failed = sum(not check.passed for check in checks)
    if failed:
        console.print(f"[bold red]{failed} of {len(checks)} claims failed[/bold red]")
    else:
        console.print(f"[bold green]All {len(checks)} claims proved[/bold green]")


def make_folder(folder: Path) -> None:
    """Make a folder for results, with its parents; under sudo what was made belongs to the user. Raises OSError."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    give_to_user(missing)


def save(folder: Path, runs: Sequence[RunResult], checks: Sequence[Check], facts: dict[str, Any]) -> list[Path]:
    """Write results.json and timeline.png into the folder; returns the paths. Under sudo they belong to the user."""
    make_folder(folder)
    data = {
        **facts,
        "runs": [run.as_dict() for run in runs],
        "checks": [{"claim": c.claim, "passed": c.passed, "evidence": c.evidence} for c in checks],
    }
    results = folder / "results.json"
    results.write_text(json.dumps(data, indent=1) + "\n")
    written = [results]
    if any(run.samples for run in runs):
        written.append(plot(folder / "timeline.png", runs))
    give_to_user(written)
    return written


def plot(path: Path, runs: Sequence[RunResult]) -> Path:
    """Throughput per class, bottleneck queue depth and losses over time, one column per run."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, len(runs), figsize=(4.6 * len(runs), 7.5), sharex=True, sharey="row", squeeze=False)
    colours = {"storage": "#1b6ca8", "business": "#d98324"}
    for column, run in enumerate(runs):
        time = [s.time_s for s in run.samples]
        for c in run.classes:
            colour = colours.get(c.name)
            label = f"{c.name} (priority {c.priority})"
            axes[0][column].plot(time, [s.received_bps[c.name] / 1e6 for s in run.samples], color=colour, label=label)
            axes[1][column].plot(time, [s.queue_bytes[c.name] / 1e3 for s in run.samples], color=colour, label=label)
            axes[2][column].plot(
                time, [s.lost[c.name] for s in run.samples], color=colour, label=f"{c.name} frames lost"
            )
        axes[2][column].plot(time, [s.pfc_xoff for s in run.samples], color="#777777", ls="--", label="PFC XOFF sent")
        if run.configured_share is not None:
            total = statistics.median(sum(s.received_bps.values()) for s in run.samples) / 1e6
            for c in run.classes:
                level = total * run.configured_share.get(c.priority, 0)
                axes[0][column].axhline(level, color=colours.get(c.name), lw=0.8, ls=":")
        axes[0][column].set_title(run.name)
        axes[2][column].set_xlabel("seconds")
        axes[2][column].set_yscale("symlog")
        for row in range(3):
            axes[row][column].grid(alpha=0.3)
    axes[0][0].set_ylim(bottom=0)
    axes[0][0].set_ylabel("received, Mb/s")
    axes[1][0].set_ylabel("bottleneck queue, kB")
    axes[2][0].set_ylabel("frames since start")
    lines = [*axes[0][0].get_lines()[: len(runs[0].classes)], axes[2][0].get_lines()[-1]]
    figure.legend(lines, [line.get_label() for line in lines], loc="lower center", ncols=len(lines), fontsize=8)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def give_to_user(paths: Sequence[Path]) -> None:
    """Under sudo, files that a run made become the user's."""
    # Under sudo results would be root's, and a later run without sudo could not write beside them.
    uid, gid = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if uid and gid and os.geteuid() == 0:
        for path in paths:
            if path.exists():
                os.chown(path, int(uid), int(gid))
