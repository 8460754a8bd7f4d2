"""`dcblab compare`: two results folders side by side: options, claims and figures that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """A row: what, its value in A and in B, and how far B is from A (percent of A, or words)."""

    what: str
    a: str
    b: str
    change: str


def compare(a: dict[str, Any], b: dict[str, Any]) -> list[Difference]:
    """Options, versions, claims and figures of two results (topologies.artifacts.load), those that differ first of all.

    A value that only one of them has is shown as "-".
    """
    rows = []
    for kind in ("scenario", "target", "seed"):
        if a.get(kind) != b.get(kind):
            rows.append(Difference(kind, str(a.get(kind, "-")), str(b.get(kind, "-")), "differs"))
    for kind in ("options", "versions"):
        left, right = a.get(kind, {}), b.get(kind, {})
        for name in dict.fromkeys([*left, *right]):
            if left.get(name) != right.get(name):
                rows.append(Difference(f"{kind[:-1]} {name}", _show(left, name), _show(right, name), "differs"))
    claims_a = {c["claim"]: c["passed"] for c in a["checks"]}
    claims_b = {c["claim"]: c["passed"] for c in b["checks"]}
    for claim in dict.fromkeys([*claims_a, *claims_b]):
        left_text, right_text = _verdict(claims_a.get(claim)), _verdict(claims_b.get(claim))
        if left_text != right_text:
            rows.append(Difference(claim, left_text, right_text, "differs"))
    figures_a, figures_b = a.get("figures", {}), b.get("figures", {})
    for name in dict.fromkeys([*figures_a, *figures_b]):
        rows.append(
            Difference(name, _show(figures_a, name), _show(figures_b, name), _change(figures_a, figures_b, name))
        )
    return rows


def _verdict(passed: bool | None) -> str:
    return "-" if passed is None else "proved" if passed else "FAILED"


def _show(values: dict[str, Any], name: str) -> str:
    value = values.get(name, "-")
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _change(a: dict[str, Any], b: dict[str, Any], name: str) -> str:
    left, right = a.get(name), b.get(name)
    if left == right:
        return "="
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (left, right))
    if not numbers or left is None or right is None:
        return "differs"
    return f"{100 * (right - left) / abs(left):+.1f}%" if left else f"{right - left:+,.6g}"
