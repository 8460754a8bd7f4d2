"""The folder that a run in virtual time leaves, and what is read back from it.

    results.json      options, seed, versions, claims, tables, figures, notes
    metrics.jsonl     one value a line: run, virtual time, name, labels, value
    NAME.png          a plot each
    RUN.yaml          the controller's configuration of each run, as resolved
    RUN/*.pcap        per link and direction, on request (`topologies.virtual` writes them)
    report.html       all of it on one page that needs nothing else

Nothing in results.json depends on the clock but `made`; the same seed and versions give the same figures.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from topologies.paths import PIPELINE_JSON, ROOT
from topologies.report import give_to_user, make_folder
from topologies.scenario import Metric, Outcome, Panel, Plot, Value

_COLOURS = ("#1b6ca8", "#d98324", "#3a7d44", "#a4303f", "#6a4c93", "#5c6b73", "#c2a878", "#2f4858")


class ResultsError(ValueError):
    """A folder that holds no readable results; the message names it."""


def versions() -> dict[str, str]:
    """What the figures depend on beside options and seed."""
    manifest = json.loads((PIPELINE_JSON.parent / "manifest.json").read_text())
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "dcblab": metadata.version("dcblab"),
        "commit": commit.stdout.strip() or "unknown",
        "p4c": str(manifest.get("p4c", "unknown")),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def save(
    folder: Path,
    *,
    scenario: str,
    summary: str,
    seed: int,
    options: Mapping[str, Value],
    outcome: Outcome,
    configs: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[Metric],
) -> list[Path]:
    """Write the folder; returns what was written. Under sudo it belongs to the user."""
    from topologies import html_report

    make_folder(folder)
    written = [folder / "results.json"]
    made_by = versions()
    data = {
        "scenario": scenario,
        "summary": summary,
        "target": "virtual",
        "seed": seed,
        "options": dict(options),
        "versions": made_by,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "checks": [{"claim": c.claim, "passed": c.passed, "evidence": c.evidence} for c in outcome.checks],
        "figures": dict(outcome.figures),
        "notes": list(outcome.notes),
        "tables": [
            {"title": t.title, "columns": list(t.columns), "rows": [list(r) for r in t.rows]} for t in outcome.tables
        ],
    }
    for name, config in configs.items():
        written.append(folder / f"{_file_name(name)}.yaml")
        written[-1].write_text(yaml.safe_dump(dict(config), sort_keys=False))
    if metrics:
        written.append(folder / "metrics.jsonl")
        with written[-1].open("w") as sink:
            for m in metrics:
                row = {"run": m.run, "time_ps": m.time_ps, "name": m.name, **m.labels, "value": m.value}
                sink.write(json.dumps(row) + "\n")
    pictures = [draw(plot, folder / f"{plot.name}.png") for plot in outcome.plots]
    written += pictures
    written.append(folder / "report.html")
    html_report.write(
        written[-1],
        title=scenario,
        summary=summary,
        checks=outcome.checks,
        notes=outcome.notes,
        tables=outcome.tables,
        pictures=pictures,
        links=outcome.maps,
        facts={"seed": seed, **options, **made_by},
    )
    written[0].write_text(json.dumps(data, indent=1) + "\n")  # last: a folder with it is complete
    give_to_user(written)
    return written


def _file_name(run: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in run).strip("-") or "run"


def load(folder: Path) -> dict[str, Any]:
    """results.json of a folder. Raises ResultsError."""
    path = folder / "results.json" if folder.is_dir() else folder
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ResultsError(f"{folder}: no results there: {error}") from None
    if not isinstance(data, dict) or "checks" not in data:
        raise ResultsError(f"{path}: not the results of a run")
    return data


def draw(plot: Plot, path: Path) -> Path:
    """The plot as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = plot.panels
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(8.2, 1.1 + 2.5 * len(panels)), sharex=True, squeeze=False, layout="constrained"
    )
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        _draw_panel(axis, panel)
    if plot.x_log:
        axes[0][0].set_xscale("log")
    axes[-1][0].set_xlabel(plot.x_label)
    figure.suptitle(plot.title, fontsize=11)
    figure.savefig(path, dpi=110, metadata={"Software": "dcblab"})
    plt.close(figure)
    return path


def _draw_panel(axis: Any, panel: Panel) -> None:
    for number, line in enumerate(panel.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        if line.style == "dots":
            axis.plot(line.x, line.y, "o", ms=4, label=line.label, color=colour)
        elif line.style == "step":
            axis.step(line.x, line.y, where="post", label=line.label, color=colour, lw=1.3)
        elif line.style == "points":
            axis.plot(line.x, line.y, "o-", ms=4, label=line.label, color=colour, lw=1)
        else:
            dashed = "--" if line.style == "dashed" else "-"
            axis.plot(line.x, line.y, dashed, label=line.label, color=colour, lw=1.3)
    for x, word in panel.marks:
        axis.axvline(x, color="#555555", lw=0.8, ls=":")
        axis.annotate(word, (x, 1), xycoords=("data", "axes fraction"), fontsize=7, rotation=90, va="top", ha="right")
    for y, word in panel.levels:
        axis.axhline(y, color="#555555", lw=0.8, ls="--")
        axis.annotate(word, (1, y), xycoords=("axes fraction", "data"), fontsize=7, va="bottom", ha="right")
    if panel.y_log:
        axis.set_yscale("symlog" if any(v <= 0 for line in panel.lines for v in line.y) else "log")
    elif all(v >= 0 for line in panel.lines for v in line.y):
        axis.set_ylim(bottom=0)
    axis.set_ylabel(panel.y_label, fontsize=9)
    if panel.title:
        axis.set_title(panel.title, fontsize=9)
    if len(panel.lines) > 1 or panel.lines[0].label:
        axis.legend(fontsize=7, loc="best", ncols=2 if len(panel.lines) > 4 else 1)
    axis.grid(alpha=0.3)
