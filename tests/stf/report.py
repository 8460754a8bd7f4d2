"""The results of a suite as part of a Markdown page, between two markers; the rest of the page is written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from . import suite
from .suite import Result

BEGIN, END = "<!-- tests.stf: begin -->", "<!-- tests.stf: end -->"
REASON_CHARACTERS = 300


def totals(results: Sequence[Result]) -> str:
    """One line, such as `189 passed, 2 failed`."""
    counts = Counter(result.status for result in results)
    return ", ".join(f"{counts[status]} {status}" for status in suite.STATUSES if counts[status]) or "no programs"


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return flat if len(flat) <= REASON_CHARACTERS else flat[:REASON_CHARACTERS] + "…"


def page(results: Sequence[Result], engine_names: Sequence[str], version: str) -> str:
    """The generated part."""
    tried = [result for result in results if result.status != suite.OTHER_MODEL]
    others = len(results) - len(tried)
    left = [result for result in tried if result.status != suite.PASSED]
    passed = [result.name for result in tried if result.status == suite.PASSED]
    lines = [
        f"p4c {version}; engines: {' and '.join(engine_names)}.",
        "",
        f"**{totals(tried)}**, of {len(tried)} v1model programs with an STF file"
        + (f" ({others} more programs are for other architectures)." if others else "."),
        "",
    ]
    if left:
        lines += ["| Program | Result | Reason |", "|---|---|---|"]
        lines += [f"| {result.name} | {result.status} | {_cell(result.reason)} |" for result in left]
        lines.append("")
    lines += ["Passed: " + ", ".join(passed) + "."] if passed else []
    return "\n".join(lines)


def write(path: Path, results: Sequence[Result], engine_names: Sequence[str], version: str) -> None:
    """Replace what is between the markers of `path`. Raises ValueError where it has none."""
    text = path.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path}: the markers {BEGIN} and {END} are missing")
    path.write_text(f"{head}{BEGIN}\n{page(results, engine_names, version)}\n{END}{tail}")
