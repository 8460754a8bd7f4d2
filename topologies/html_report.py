"""A report of a run as one HTML file that needs nothing else: no link, no script, pictures inside; opens from file://.

    html_report.write(path, title="incast", checks=checks, tables=[Table(...)], plots=[Plot(...)], links=[LinkMap(...)])
    text = html_report.report("incast", checks, tables, plots, links)

Records are those of `topologies.scenario` (Table, Plot) and `topologies.results` (Check); a `LinkMap` is a fabric
drawn in tiers with what went over each link and which way, to see how far a pause has spread. The same input gives the
same bytes.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from topologies.results import Check
from topologies.scenario import Plot, Table, Value

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2730; background: #fff; max-width: 1060px; margin: 2rem auto;
       padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p.summary { color: #4a5763; margin: .2rem 0 1rem; }
.verdict { padding: .6rem .9rem; border-radius: 6px; font-weight: 600; }
.good { background: #e5f3ea; color: #14532d; } .bad { background: #fbe7e7; color: #7f1d1d; }
ul.checks { list-style: none; padding: 0; } ul.checks li { padding: .35rem 0; border-bottom: 1px solid #e6eaee; }
.mark { display: inline-block; min-width: 4.6rem; font-weight: 600; }
.proved { color: #17683a; } .failed { color: #b02525; }
.evidence { color: #4a5763; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid #e6eaee; text-align: left; white-space: nowrap; }
th { border-bottom: 2px solid #b9c3cc; } td.number, th.number { text-align: right; }
img { max-width: 100%; height: auto; border: 1px solid #e6eaee; border-radius: 4px; margin: .4rem 0; }
svg { max-width: 100%; height: auto; } dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dt { color: #4a5763; } dd { margin: 0; } figure { margin: 0 0 1rem; } figcaption { color: #4a5763; font-size: .88rem; }
"""


@dataclass(frozen=True, slots=True)
class LinkFlow:
    """What one end of a link sent to the other: the label stands beside the arrow, `value` makes it strong or weak."""

    sender: str
    receiver: str
    value: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class LinkMap:
    """A fabric in tiers, the first one at the top; `links`: pairs of neighbours, drawn also where nothing flowed."""

    title: str
    tiers: Sequence[Sequence[str]]
    links: Sequence[tuple[str, str]]
    flows: Sequence[LinkFlow]
    note: str = ""


def write(
    path: Path,
    *,
    title: str,
    checks: Sequence[Check],
    summary: str = "",
    notes: Sequence[str] = (),
    tables: Sequence[Table] = (),
    plots: Sequence[Plot] = (),
    pictures: Sequence[Path] = (),
    links: Sequence[LinkMap] = (),
    facts: Mapping[str, Value] | None = None,
) -> Path:
    """Write the page. `pictures`: PNG files to put in; `plots` are drawn for the page alone. Raises OSError."""
    images = [(picture.stem, picture.read_bytes()) for picture in pictures]
    images += [(plot.title, _drawn(plot)) for plot in plots]
    path.write_text(_page(title, summary, checks, notes, tables, images, links, facts or {}), encoding="utf-8")
    return path


def report(
    title: str,
    verdicts: Sequence[Check],
    tables: Sequence[Table] = (),
    series: Sequence[Plot] = (),
    links: Sequence[LinkMap] = (),
) -> str:
    """The page as text."""
    return _page(title, "", verdicts, (), tables, [(plot.title, _drawn(plot)) for plot in series], links, {})


def _drawn(plot: Plot) -> bytes:
    from topologies.artifacts import draw  # which writes reports, and so knows this module

    with tempfile.TemporaryDirectory() as folder:
        return draw(plot, Path(folder) / "plot.png").read_bytes()


def _page(
    title: str,
    summary: str,
    checks: Sequence[Check],
    notes: Sequence[str],
    tables: Sequence[Table],
    images: Sequence[tuple[str, bytes]],
    links: Sequence[LinkMap],
    facts: Mapping[str, Value],
) -> str:
    parts = [f"<h1>{escape(title)}</h1>"]
    if summary:
        parts.append(f'<p class="summary">{escape(summary)}</p>')
    parts += _verdict(checks)
    parts += [f"<p>{escape(note)}</p>" for note in notes]
    if links:
        parts += ["<h2>Links</h2>", *(_link_map(number, link_map) for number, link_map in enumerate(links))]
    if images:
        parts.append("<h2>Plots</h2>")
        for name, data in images:
            encoded = base64.b64encode(data).decode("ascii")
            parts.append(f'<img alt="{escape(name)}" src="data:image/png;base64,{encoded}">')
    for table in tables:
        parts.append(f"<h2>{escape(table.title)}</h2>")
        parts.append(_table(table))
    if facts:
        listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items())
        parts.append(f"<h2>Run</h2><dl>{listed}</dl>")
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _verdict(checks: Sequence[Check]) -> list[str]:
    if not checks:
        return []
    failed = sum(not check.passed for check in checks)
    text = f"{failed} of {len(checks)} claims failed" if failed else f"All {len(checks)} claims proved"
    rows = []
    for check in checks:
        name, word = ("proved", "proved") if check.passed else ("failed", "FAILED")
        mark = f'<span class="mark {name}">{word}</span>'
        rows.append(f'<li>{mark}{escape(check.claim)}: <span class="evidence">{escape(check.evidence)}</span></li>')
    box = f'<p class="verdict {"bad" if failed else "good"}">{text}</p>'
    return [box, '<ul class="checks">', *rows, "</ul>"]


def _numeric(cell: str) -> bool:
    text = cell.strip().rstrip("%").replace(",", "")
    return text in ("", "-", "n/a", "N/A") or text.split(" ")[0].lstrip("-").replace(".", "", 1).isdigit()


def _table(table: Table) -> str:
    """Columns whose cells are all numbers (with a unit, or missing) stand to the right."""
    right = [
        bool(table.rows) and any(row[n].strip() for row in table.rows) and all(_numeric(row[n]) for row in table.rows)
        for n in range(len(table.columns))
    ]
    kinds = [' class="number"' if is_number else "" for is_number in right]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.columns, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'


# ---- the map of links -----------------------------------------------------------------------------------------------

_WIDTH, _TIER_HEIGHT, _BOX_HEIGHT, _MARGIN = 1000, 150, 30, 26


def _link_map(number: int, link_map: LinkMap) -> str:
    places: dict[str, tuple[float, float]] = {}
    for tier, names in enumerate(link_map.tiers):
        for index, name in enumerate(names):
            places[name] = (_WIDTH * (index + 0.5) / len(names), _MARGIN + _BOX_HEIGHT / 2 + tier * _TIER_HEIGHT)
    height = 2 * _MARGIN + _BOX_HEIGHT + (len(link_map.tiers) - 1) * _TIER_HEIGHT
    most = max((flow.value for flow in link_map.flows), default=0) or 1
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(link_map.title)}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<defs><marker id="arrow{number}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#a4303f"/></marker></defs>',
    ]
    for one, other in link_map.links:
        (x1, y1), (x2, y2) = places[one], places[other]
        parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d3dae0"/>')
    for flow in sorted(link_map.flows, key=lambda flow: flow.value):
        parts.append(_arrow(number, places[flow.sender], places[flow.receiver], flow, flow.value / most))
    widest = max((len(name) for name in places), default=4) * 7.5 + 14
    for name, (x, y) in places.items():
        parts.append(
            f'<rect x="{x - widest / 2:.1f}" y="{y - _BOX_HEIGHT / 2:.1f}" width="{widest:.1f}" '
            f'height="{_BOX_HEIGHT}" rx="5" fill="#fff" stroke="#5c6b73"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{escape(name)}</text>'
        )
    parts.append("</svg>")
    caption = f"{link_map.title}. {link_map.note}" if link_map.note else link_map.title
    return f"<figure>{''.join(parts)}<figcaption>{escape(caption)}</figcaption></figure>"


def _arrow(number: int, start: tuple[float, float], end: tuple[float, float], flow: LinkFlow, strength: float) -> str:
    (x1, y1), (x2, y2) = start, end
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    along, across = ((x2 - x1) / length, (y2 - y1) / length), (-(y2 - y1) / length, (x2 - x1) / length)
    shift = 4  # the two directions of a link stand side by side
    gap = _BOX_HEIGHT / 2 / max(abs(along[1]), 0.2) + 4
    ax, ay = x1 + along[0] * gap + across[0] * shift, y1 + along[1] * gap + across[1] * shift
    bx, by = x2 - along[0] * gap + across[0] * shift, y2 - along[1] * gap + across[1] * shift
    # near its sender, so that labels of links that cross do not meet
    tx, ty = ax + (bx - ax) * 0.3 + across[0] * 6, ay + (by - ay) * 0.3 + across[1] * 6 + 4
    anchor = "start" if across[0] >= 0 else "end"
    width, opacity = 1 + 3 * strength, 0.45 + 0.55 * strength
    return (
        f'<line x1="{ax:.1f}" y1="{ay:.1f}" x2="{bx:.1f}" y2="{by:.1f}" stroke="#a4303f" stroke-width="{width:.1f}" '
        f'stroke-opacity="{opacity:.2f}" marker-end="url(#arrow{number})"/>'
        f'<text x="{tx:.1f}" y="{ty:.1f}" text-anchor="{anchor}" fill="#7f1d1d" '
        f'stroke="#fff" stroke-width="3" paint-order="stroke">{escape(flow.label)}</text>'
    )
