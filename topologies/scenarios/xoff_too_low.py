"""Scenario xoff-too-low (requirement R20.2): PFC is on, nothing is lost, and throughput is down by 40%.

h1 and h2 write to h3, together somewhat more than its link carries. The leaf says XOFF at a threshold that is too low
for the time until the pause acts and data is back: when it says XON it has less left than the link takes meanwhile, and
the link idles, once in every cycle of XOFF and XON. Throughput is measured over the threshold at several loads, with a
round trip of 2 us, for which the article computes its thresholds, and with peers that take 47 us to heed a pause, which
the article measured at a switch; beside a model of the cycle and beside the article's rule. In virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from dcb.headroom import articles
from dcb.units import PS_PER_S, PS_PER_US
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table, Value
from topologies.settings import STORAGE_PRIORITY, Dcb, controller_config

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "xoff-too-low"
SUMMARY = "throughput as a function of XOFF: where 40% is lost though no frame is, beside the article's rule"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link", low=25, high=400),
    "length_m": Option(200, "of every cable: 200 m are a round trip of 2 us", low=20, high=2000),
    "load_percent": Option(0, "offered to h3's link, 101 or more; 0: 105, 120 and 200 (late: 120)", low=0, high=200),
    "response_us": Option(47.0, "of the late peers", low=0, high=500),
    "xoff": Option(0, "threshold in bytes; 0: from a frame to 1.3 round trips", low=0, high=10_000_000),
    "xon": Option("article", "XON: 1 us x rate below XOFF, or a frame below", choices=("article", "close")),
    "window_us": Option(400, "over which throughput is measured", low=50, high=10_000),
}
LOSSLESS = STORAGE_PRIORITY
Style = Literal["line", "points", "dashed"]
LOADS, LATE_LOADS = (105, 120, 200), (120,)
PAYLOAD_BYTES = 1024
FRAME_BYTES = PAYLOAD_BYTES + 58  # of a full RDMA packet, without FCS
SHARES = (0.01, 0.02, 0.035, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.3)  # of rtt x rate
SENDERS = ("h1", "h2")
LOST_SHARE = 0.4
CYCLES = 8
GRAIN = 4 * FRAME_BYTES  # below it the grain of whole frames shows, which the model does not have
LOST = ("tm_drop_headroom", "tm_drop_pg", "tm_drop_pool", "tm_drop_queue")


@dataclass(frozen=True, slots=True)
class Setting:
    """One threshold. Times in picoseconds; bytes of frames without FCS."""

    rate_bps: int
    length_m: int
    response_ps: int
    load_percent: int
    xoff: int
    xon: int

    @property
    def name(self) -> str:
        """Of the curve that it is a point of."""
        late = f", heeded after {self.response_ps / PS_PER_US:g} us" if self.response_ps else ""
        return f"load {self.load_percent}%{late}"

    @property
    def rtt_ps(self) -> int:
        """From a threshold until what it does to the sender is seen: the cable there and back, and the response."""
        return 2 * self.length_m * 5000 + self.response_ps

    @property
    def article(self) -> float:
        """Share of the link by the article's rule: min(1, xoff / (rtt x rate))."""
        return float(articles.tradeoff(self.rate_bps, self.rtt_ps, self.xoff, 0, 0).throughput)

    @property
    def model(self) -> float:
        """Share of the link by the cycle of one group, which gets half of the link.

        XON at `xon`; data is back a round trip later, or the link idles; the group fills up to `xoff`; for another
        round trip it goes on filling; then it drains to `xon`.
        """
        idle, cycle = self._cycle
        return 1 - idle / cycle

    @property
    def cycle_ps(self) -> int:
        """How long the cycle of the model takes."""
        return round(self._cycle[1])

    @property
    def idles(self) -> bool:
        """Whether the model has the link idle once in a cycle."""
        return self._cycle[0] > 0

    @property
    def fill_ps(self) -> int:
        """From empty to XOFF."""
        more_bps = self.rate_bps * (self.load_percent - 100) // 100 // len(SENDERS)
        return self.xoff * 8 * PS_PER_S // more_bps

    @property
    def _cycle(self) -> tuple[float, float]:
        useful = FRAME_BYTES / (FRAME_BYTES + 24) / (8 * PS_PER_S) / len(SENDERS)
        out = self.rate_bps * useful
        more = out * (self.load_percent / 100 - 1)
        rtt = self.rtt_ps + 72 * 8 * PS_PER_S / self.rate_bps  # the PFC frame to the end of its FCS
        idle = max(0.0, rtt - self.xon / out)
        left = max(0.0, self.xon - out * rtt)
        fill = (self.xoff - left) / more
        drain = (self.xoff + more * rtt - self.xon) / out
        return idle, rtt + fill + rtt + drain


@dataclass(frozen=True, slots=True)
class Seen:
    """What a threshold did: share of h3's link, XOFF frames a second, frames lost."""

    share: float
    xoff_per_s: float
    lost: int


def topology(rate_bps: int) -> Topology:
    return leaf_spine(1, 1, 3, rate_bps)


def settings(options: Mapping[str, Value], load_percent: int, response_ps: int) -> list[Setting]:
    """The thresholds that are tried at one load and response."""
    rate_bps, length_m, xoff = int(options["rate_gbps"]) * 10**9, int(options["length_m"]), int(options["xoff"])
    rtt_ps = 2 * length_m * 5000
    bdp = articles.xoff_bytes(rate_bps, rtt_ps + response_ps, margin=0)
    ruled = articles.xoff_bytes(rate_bps, rtt_ps)  # the article's, for a peer that heeds at once
    sizes = {FRAME_BYTES, ruled, *(round(bdp * share) for share in SHARES if bdp * share > FRAME_BYTES)}
    below = rate_bps * PS_PER_US // (8 * PS_PER_S) if options["xon"] == "article" else FRAME_BYTES
    chosen = [xoff] if xoff else sorted(sizes)
    return [Setting(rate_bps, length_m, response_ps, load_percent, size, max(0, size - below)) for size in chosen]


def run(bench: Bench) -> Outcome:
    """A fabric for each load and response; thresholds are changed under it."""
    from topologies.virtual.lab import LabError

    if 0 < bench.number("load_percent") < 101:
        raise LabError(f"load_percent {bench.number('load_percent')}: 0, or 101 and more, is wanted")
    chosen, late_ps = bench.number("load_percent"), round(float(bench.options["response_us"]) * PS_PER_US)
    curves = [(load, 0) for load in ((chosen,) if chosen else LOADS)]
    curves += [(load, late_ps) for load in ((chosen,) if chosen else LATE_LOADS) if late_ps]
    seen: dict[Setting, Seen] = {}
    for load, response_ps in curves:
        seen.update(_run(bench, settings(bench.options, load, response_ps)))
    return Outcome(
        verdict(seen),
        [_table(seen)],
        [_plot(seen, late) for late in (False, True) if len(_curve(seen, late)) > len(curves)],
        _figures(seen),
        [
            *(f"{name}: {_where(points)}" for name, points in _curves(seen).items() if len(points) > 2),
            "the article's rule is too dark: it does not count what is in flight after XOFF, which feeds the link too",
        ],
    )


def _run(bench: Bench, tried: Sequence[Setting]) -> dict[Setting, Seen]:
    from topologies.virtual import LabSettings, planned

    first = tried[0]
    fabric, window_us = topology(first.rate_bps), bench.number("window_us")

    def config(setting: Setting) -> dict[str, object]:
        dcb = planned(
            fabric,
            Dcb(pfc=(LOSSLESS,)),
            length_m=setting.length_m,
            response_ps=setting.response_ps,
            xoff_bytes=setting.xoff,
        )
        return controller_config(fabric, replace(dcb, xon_bytes=setting.xon))

    async def body(lab: VirtualLab) -> dict[Setting, Seen]:
        found = {}
        for setting in tried:
            await lab.apply(config(setting))
            found[setting] = shot = await _measure(lab, setting, window_us)
            labels = {"xoff": str(setting.xoff)}
            bench.metrics.append(Metric(setting.name, lab.now_ps, "share of the link", shot.share, labels))
            bench.metrics.append(Metric(setting.name, lab.now_ps, "XOFF per s", shot.xoff_per_s, labels))
        return found

    settings = LabSettings(length_m=first.length_m, pfc_response_ps=first.response_ps)
    return bench.run(first.name, fabric, config(first), body, settings)


async def _measure(lab: VirtualLab, setting: Setting, window_us: int) -> Seen:
    def received() -> int:
        return sum(flow.received.rx_bytes for flow in flows)

    async def count() -> tuple[int, int]:
        now = await lab.snapshot((*LOST, "pfc_tx_xoff"), ())
        return sum(now.packets(name, LOSSLESS) for name in LOST), now.packets("pfc_tx_xoff", LOSSLESS)

    lost, _ = await count()
    pace = setting.rate_bps * setting.load_percent // 100 // len(SENDERS)
    flows = [lab.rdma(host, "h3", reliable=False, rate_bps=pace, priority=LOSSLESS) for host in SENDERS]
    await lab.sleep(ps=100 * PS_PER_US + 5 * setting.rtt_ps + setting.fill_ps)  # past the start
    start, (_, xoffs) = received(), await count()
    window_ps = window_us * PS_PER_US
    cycle_ps = setting.cycle_ps
    if setting.idles:  # whole cycles, and enough of them
        window_ps = max(-(-window_ps // cycle_ps), CYCLES) * cycle_ps
    window_ps = max(window_ps, cycle_ps)
    await lab.sleep(ps=window_ps)
    carried, (_, more_xoffs) = received() - start, await count()
    lab.stop(flows)
    await lab.drained()
    possible = setting.rate_bps * window_ps / (8 * PS_PER_S) * PAYLOAD_BYTES / (FRAME_BYTES + 24)
    return Seen(carried / possible, (more_xoffs - xoffs) * PS_PER_S / window_ps, (await count())[0] - lost)


# --- what it proves ---------------------------------------------------------------------------------------------------


def crossing(points: Sequence[tuple[int, float]], share: float) -> float | None:
    """The highest threshold at which a curve of (xoff, share) goes through `share`, by straight lines; or None."""
    ordered = sorted(points, reverse=True)
    for (x1, y1), (x0, y0) in pairwise(ordered):
        if y0 <= share <= y1 and y1 > y0:
            return x0 + (x1 - x0) * (share - y0) / (y1 - y0)
    return None


def verdict(seen: Mapping[Setting, Seen]) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    coarse = [s for s in seen if s.xoff >= GRAIN] or list(seen)
    worst = max(coarse, key=lambda s: abs(seen[s].share - s.model))
    lost = sum(shot.lost for shot in seen.values())
    below = [
        f"{s.name} XOFF {s.xoff:,}: {seen[s].share:.3f} < {s.article:.3f}"
        for s in seen
        if seen[s].share < s.article - 0.01
    ]
    checks = [
        Check("nothing is lost, however low XOFF is", lost == 0, f"{lost} frames lost at {len(seen)} thresholds"),
        Check(
            f"from {GRAIN:,} bytes on, the cycle of XOFF and XON explains the throughput within 3 points",
            abs(seen[worst].share - worst.model) <= 0.03,
            f"at worst {100 * seen[worst].share:.1f}%, model {100 * worst.model:.1f}%: {worst.name}, XOFF {worst.xoff}",
        ),
        Check(
            "the article's rule, xoff / (rtt x rate), is a lower bound",
            not below,
            "; ".join(below) or f"at {len(seen)} thresholds",
        ),
    ]
    enough = {s: shot.share for s, shot in seen.items() if _is_enough(s)}
    if enough:
        least = min(enough.values())
        checks.append(
            Check(
                "the cure: an XOFF that leaves a round trip's worth at XON costs nothing",
                least > 0.995,
                f"{100 * least:.1f}% of the link at worst, {len(enough)} thresholds",
            )
        )
    late = {s: shot.share for s, shot in seen.items() if s.response_ps}
    points = [(s.xoff, share) for s, share in late.items() if s.load_percent == LATE_LOADS[0]]
    if len(points) < 3:
        return checks
    ruled = next(s for s in late if s.xoff == articles.xoff_bytes(s.rate_bps, 2 * s.length_m * 5000))
    at_once = next(
        (
            seen[s].share
            for s in seen
            if s.xoff == ruled.xoff and s.load_percent == ruled.load_percent and not s.response_ps
        ),
        0.0,
    )
    checks.append(
        Check(
            f"the article's thresholds, {ruled.xoff:,} and {ruled.xon:,} bytes, cost nothing where peers heed at once, "
            "and more than 30% where they are late",
            at_once > 0.995 and late[ruled] < 0.7,
            f"{100 * at_once:.1f}% of the link, and {100 * late[ruled]:.1f}%",
        )
    )
    found, modelled = (crossing(curve, 1 - LOST_SHARE) for curve in (points, [(s.xoff, s.model) for s in late]))
    checks.append(
        Check(
            "late peers: 40% is lost, at an XOFF that the model finds too",
            found is not None and modelled is not None and abs(found - modelled) < 0.1 * ruled.xoff,
            f"at {found or -1:,.0f} bytes, by the model at {modelled or -1:,.0f}; the article's rule has 40% lost at "
            f"{(1 - LOST_SHARE) * _bdp(ruled):,.0f}",
        )
    )
    return checks


def _is_enough(setting: Setting) -> bool:
    """At XON it has what its share of the link takes in a round trip, and two frames."""
    return setting.xon >= _bdp(setting) / len(SENDERS) + 2 * FRAME_BYTES


def _bdp(setting: Setting) -> int:
    return articles.xoff_bytes(setting.rate_bps, setting.rtt_ps, margin=0)


def _curves(seen: Mapping[Setting, Seen]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for setting, shot in seen.items():
        found.setdefault(setting.name, []).append((setting.xoff, shot.share))
    return found


def _curve(seen: Mapping[Setting, Seen], late: bool) -> list[Setting]:
    return [s for s in seen if bool(s.response_ps) is late]


def _where(points: Sequence[tuple[int, float]]) -> str:
    at = crossing(points, 1 - LOST_SHARE)
    least = f"at most {100 * (1 - min(share for _, share in points)):.0f}% is lost"
    return least if at is None else f"{least}; 40% at XOFF {at:,.0f} bytes"


def _figures(seen: Mapping[Setting, Seen]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, points in _curves(seen).items():
        one = len(points) == 1  # a sweep of xoff wants the same names at each point
        for setting, shot in seen.items():
            if setting.name == name:
                label = name if one else f"{name}, XOFF {setting.xoff}"
                found[f"{label}: share of the link"] = round(shot.share, 4)
                found[f"{label}: XOFF per s"] = round(shot.xoff_per_s)
        if not one:
            at = crossing(points, 1 - LOST_SHARE)
            found[f"{name}: XOFF at which 40% is lost"] = -1 if at is None else round(at)
    return found


def _table(seen: Mapping[Setting, Seen]) -> Table:
    rows = [
        [
            s.name,
            f"{s.xoff:,}",
            f"{s.xon:,}",
            f"{100 * shot.share:.1f}%",
            f"{100 * s.model:.1f}%",
            f"{100 * s.article:.1f}%",
            f"{shot.xoff_per_s:,.0f}",
            str(shot.lost),
        ]
        for s, shot in seen.items()
    ]
    heads = ("offered", "XOFF", "XON", "of the link", "model", "article's rule", "XOFF/s", "lost")
    return Table("Throughput over XOFF", heads, rows)


def _plot(seen: Mapping[Setting, Seen], late: bool) -> Plot:
    chosen = _curve(seen, late)
    names = list(dict.fromkeys(s.name for s in chosen))

    def line(label: str, value: Callable[[Setting], float], style: Style, name: str = names[0]) -> Line:
        points = [s for s in chosen if s.name == name]
        return Line(label, [s.xoff / 1e3 for s in points], [value(s) for s in points], style)

    lines = [line(name, lambda s: 100 * seen[s].share, "points", name) for name in names]
    lines += [line(f"model, {name}", lambda s: 100 * s.model, "dashed", name) for name in names]
    lines.append(line("article: xoff / (rtt x rate)", lambda s: 100 * s.article, "line"))
    marks = [(_bdp(chosen[0]) / 1e3, "rtt x rate")]
    if late:
        marks.append(
            (articles.xoff_bytes(chosen[0].rate_bps, 2 * chosen[0].length_m * 5000) / 1e3, "XOFF for the cable")
        )
    top = Panel("% of the link", lines, marks=marks, levels=[(60, "40% lost")])
    pauses = [line(name, lambda s: seen[s].xoff_per_s, "points", name) for name in names]
    bottom = Panel("XOFF frames/s", pauses, y_log=True, levels=[(1000, "the article's alarm")])
    title = "Throughput and pauses over the threshold" + (", peers heed late" if late else "")
    return Plot(NAME + ("-late" if late else ""), title, "XOFF, kB", [top, bottom])
