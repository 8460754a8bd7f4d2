"""Scenario dcqcn-convergence (issue 5): flows join and leave one link, and DCQCN shares it out. In virtual time.

One switch, one receiver; a flow more at every step, then one less at every step. Four parameter sets: that of
SIGCOMM'15 at the 40 Gb/s it was made for, the same at 100 Gb/s, the same with thresholds and increments in proportion
to the rate, and the vendor's form with the thresholds that HPCC runs it with. Judged in the second half of each step,
where it ought to have settled: how equal (Jain's index), how much of the link, how long the queue. PFC is on and has
nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dcb.units import PS_PER_MS, PS_PER_US
from hosts.nic_config import Dcqcn
from topologies.description import Topology, leaf_spine
from topologies.results import Check
from topologies.scenario import Line, Metric, Option, Outcome, Panel, Plot, Table
from topologies.settings import STORAGE_PRIORITY as LOSSLESS
from topologies.settings import Dcb, Ecn, controller_config
from topologies.virtual.tuning import PAPER_ECN, PAPER_RATE_BPS, dcqcn_of, ecn_of

if TYPE_CHECKING:
    from topologies.virtual import Bench, VirtualLab

NAME = "dcqcn-convergence"
SUMMARY = "flows join and leave one link: fair shares, time to converge, queue and use of the link, by parameter set"
OPTIONS = {
    "rate_gbps": Option(100, "rate of every link (the first run: 40)", low=25, high=400),
    "flows": Option(3, "that join one after the other and leave again", low=2, high=16),
    "step_ms": Option(40.0, "between two joins or leaves; the first flow is alone for an eighth", low=2, high=500),
    "xoff_kb": Option(2000, "of the lossless buffer: above any queue that ECN allows", low=100, high=16_000),
}
LENGTH_M = 10
WINDOW_MS = 1.0  # over which rates are taken
SAMPLE_PS, QUEUE_US = 100 * PS_PER_US, 20
FAIR, USED = 0.95, 0.99
AUTHORS_QUEUE_BYTES = 100_000  # bobzhuyb/ns3-rdma #9: ~99% of the link, queue mostly ~100 KB or less
AT_40, AT_RATE, SCALED, VENDOR = "paper, 40G", "paper as printed", "paper, scaled", "cx4"


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: rate of the links, ECN of the switch, DCQCN of the NICs."""

    name: str
    rate_bps: int
    ecn: Ecn
    dcqcn: Dcqcn


@dataclass(frozen=True, slots=True)
class Epoch:
    """A step: flows that ran, and what its second half was like. Times in ms since traffic began."""

    start_ms: float
    end_ms: float
    flows: int
    jain: float
    used: float
    queue_mean: float
    queue_median: int
    queue_p99: int
    converged_ms: float | None  # after its start; None: not before its end
    filled_ms: float | None  # until the link was used as it should be


@dataclass(frozen=True, slots=True)
class Seen:
    """What one run showed."""

    setting: Setting
    epochs: list[Epoch]
    rates: list[Line]
    queue: Line  # the most of each millisecond
    queue_max: int
    xoff_frames: int
    lost: int
    marked: int


def settings(rate_bps: int) -> list[Setting]:
    """The four parameter sets."""
    paper = Dcqcn.paper()
    return [
        Setting(AT_40, PAPER_RATE_BPS, PAPER_ECN, paper),
        Setting(AT_RATE, rate_bps, PAPER_ECN, paper),
        Setting(SCALED, rate_bps, ecn_of("paper", rate_bps), dcqcn_of("paper", rate_bps)),
        Setting(VENDOR, rate_bps, ecn_of("cx4", rate_bps), dcqcn_of("cx4", rate_bps)),
    ]


def boundaries(start_ps: int, step_ps: int, count: int) -> list[int]:
    """Times at which flow 0, 1, ... joins, then flow 0, 1, ... leaves but the last, and the end."""
    return [start_ps, *(start_ps + step_ps // 8 + n * step_ps for n in range(2 * count - 1))]


def topology(rate_bps: int, flows: int) -> Topology:
    return leaf_spine(1, 1, flows + 1, rate_bps)


def run(bench: Bench) -> Outcome:
    """The same joins and leaves with each parameter set."""
    runs = [_run(bench, setting) for setting in settings(bench.number("rate_gbps") * 10**9)]
    return Outcome(
        verdict(runs),
        [_table(runs)],
        [_plot(runs)],
        _figures(runs),
        [
            "DCQCN's author of his packet simulation (bobzhuyb/ns3-rdma #9): ~99% of the link, queue mostly ~100 KB",
            *(
                f"{s.setting.name}: {100 * _worst_use(s):.1f}% of the link at least, queue {_queue(s) / 1e3:.0f} KB in "
                f"the median, {s.queue_max / 1e3:.0f} KB at most"
                for s in runs
            ),
            "HPCC's authors (High-Precision-Congestion-Control #21): K should be proportional to the bandwidth",
        ],
    )


def _run(bench: Bench, setting: Setting) -> Seen:
    from topologies.virtual import LabSettings, planned

    count, step_ps = bench.number("flows"), round(float(bench.options["step_ms"]) * PS_PER_MS)
    fabric = topology(setting.rate_bps, count)
    dcb = Dcb(pfc=(LOSSLESS,), ecn={LOSSLESS: setting.ecn})
    dcb = planned(fabric, dcb, length_m=LENGTH_M, xoff_bytes=bench.number("xoff_kb") * 1000)

    async def body(lab: VirtualLab) -> Seen:
        start = lab.now_ps
        times = boundaries(start, step_ps, count)
        end = times[-1]
        wire = lab.link("leaf1", "h1").from_("leaf1").source_of("wire_bits")
        series = lab.series(QUEUE_US, queues={"queue": ("leaf1", 1, LOSSLESS)}, wire=wire)
        hosts = [f"h{n + 2}" for n in range(count)]
        flows = [lab.rdma(host, "h1", dcqcn=setting.dcqcn, start_ps=times[n]) for n, host in enumerate(hosts)]
        for host in hosts:
            lab.nics[host].set_sampling(SAMPLE_PS, end)
        for n, flow in enumerate(flows):
            await lab.sleep_until(times[count + n])
            lab.stop([flow])
        rows = series.rows()
        sent = [[(s.time_ps, s.bytes_sent) for s in lab.nics[host].samples()] for host in hosts]
        await lab.finished(flows)
        await lab.drained()
        after = await lab.snapshot()
        _record(bench, setting.name, rows, hosts, sent)
        epochs = [_epoch(k, times, rows, sent, setting.rate_bps) for k in range(2 * count - 1)]
        rates = [
            Line(
                f"{host}, from {(times[n] - start) / PS_PER_MS:g} ms on",
                *_rate_curve(sent[n], start, times[n], times[count + n]),
            )
            for n, host in enumerate(hosts)
        ]
        return Seen(
            setting,
            epochs,
            rates,
            _peaks(setting.name, rows, start),
            max(r[1] for r in rows),
            after.xoff_frames(),
            after.lost(LOSSLESS),
            after.packets("ce_marked", LOSSLESS),
        )

    return bench.run(setting.name, fabric, controller_config(fabric, dcb), body, LabSettings(length_m=LENGTH_M))


def _record(
    bench: Bench,
    name: str,
    rows: Sequence[tuple[int, ...]],
    hosts: Sequence[str],
    sent: Sequence[Sequence[tuple[int, int]]],
) -> None:
    every = SAMPLE_PS // (QUEUE_US * PS_PER_US)
    bench.metrics += [Metric(name, row[0], "queue bytes", row[1]) for row in rows[::every]]
    bench.metrics += [Metric(name, row[0], "wire bits", row[2]) for row in rows[::every]]
    for host, samples in zip(hosts, sent, strict=True):
        bench.metrics += [Metric(name, time_ps, "bytes sent", value, {"host": host}) for time_ps, value in samples]


# --- from samples to figures: pure -----------------------------------------------------------------------------------


def _bytes_at(samples: Sequence[tuple[int, int]], time_ps: int) -> int:
    """What a flow had sent by the last sample at or before a time."""
    from bisect import bisect_right

    n = bisect_right(samples, (time_ps, 1 << 62))
    return samples[n - 1][1] if n else 0


def _rate_curve(
    samples: Sequence[tuple[int, int]], zero_ps: int, from_ps: int, to_ps: int
) -> tuple[list[float], list[float]]:
    """Milliseconds and Gb/s of payload, over windows."""
    step = round(WINDOW_MS * PS_PER_MS)
    times = range(from_ps + step, to_ps + 1, step)
    rates = [(_bytes_at(samples, t) - _bytes_at(samples, t - step)) * 8e3 / step for t in times]
    return [(t - zero_ps) / PS_PER_MS for t in times], rates


def _peaks(name: str, rows: Sequence[tuple[int, ...]], zero_ps: int) -> Line:
    """The longest queue of each window, in KB."""
    size = round(WINDOW_MS * 1000 / QUEUE_US)
    parts = [rows[n : n + size] for n in range(0, len(rows), size)]
    times = [(part[-1][0] - zero_ps) / PS_PER_MS for part in parts]
    return Line(name, times, [max(row[1] for row in part) / 1e3 for part in parts])


def _epoch(
    k: int,
    times: Sequence[int],
    rows: Sequence[tuple[int, ...]],
    sent: Sequence[Sequence[tuple[int, int]]],
    rate_bps: int,
) -> Epoch:
    from topologies.virtual.bench import jain

    count = len(sent)
    running = range(max(0, k - count + 1), min(k, count - 1) + 1)
    begin, end = times[k], times[k + 1]
    half = (begin + end) // 2

    def fairness(a: int, b: int) -> float:
        return jain([_bytes_at(sent[n], b) - _bytes_at(sent[n], a) for n in running])

    late = [row for row in rows if half <= row[0] <= end]
    used = (late[-1][2] - late[0][2]) / (rate_bps * (late[-1][0] - late[0][0]) / 1e12)
    queue = sorted(row[1] for row in late)
    window = round(WINDOW_MS * PS_PER_MS)
    first = next((t for t in range(begin + window, end + 1, SAMPLE_PS) if fairness(t - window, t) >= FAIR), None)
    size = round(WINDOW_MS * 1000 / QUEUE_US)
    whole = [row for row in rows if begin <= row[0] <= end]
    full = next(
        (
            b
            for a, b in zip(whole, whole[size:], strict=False)
            if (b[2] - a[2]) * 1e12 >= USED * rate_bps * (b[0] - a[0])
        ),
        None,
    )
    return Epoch(
        (begin - times[0]) / PS_PER_MS,
        (end - times[0]) / PS_PER_MS,
        len(running),
        fairness(half, end),
        used,
        sum(queue) / len(queue),
        queue[len(queue) // 2],
        queue[len(queue) * 99 // 100],
        None if first is None else (first - begin) / PS_PER_MS,
        None if full is None else (full[0] - begin) / PS_PER_MS,
    )


def _shared(seen: Seen) -> list[Epoch]:
    return [e for e in seen.epochs if e.flows > 1]


def _worst_use(seen: Seen) -> float:
    return min(e.used for e in _shared(seen))


def _mean_use(seen: Seen) -> float:
    return sum(e.used for e in _shared(seen)) / len(_shared(seen))


def _worst_jain(seen: Seen) -> float:
    return min(e.jain for e in _shared(seen))


def _queue(seen: Seen) -> int:
    """The worst median of a step."""
    return max(e.queue_median for e in _shared(seen))


def verdict(runs: Sequence[Seen]) -> list[Check]:
    """Pure."""
    checks = []
    by_name = {seen.setting.name: seen for seen in runs}
    for seen in runs:
        name = seen.setting.name
        checks.append(
            Check(
                f"{name}: nothing is lost, PFC has nothing to do",
                seen.lost == 0 and seen.xoff_frames == 0 and seen.marked > 0,
                f"{seen.lost} lost, {seen.xoff_frames} XOFF, {seen.marked:,} frames marked",
            )
        )
    for name in (AT_40, SCALED, VENDOR):
        seen = by_name[name]
        checks += [
            Check(
                f"{name}: every step ends in equal shares (Jain's index {FAIR} or more)",
                _worst_jain(seen) >= FAIR,
                "by step: " + ", ".join(f"{e.jain:.3f}" for e in _shared(seen)),
            ),
            Check(
                f"{name}: {100 * USED:.0f}% of the link or more while it is shared",
                _worst_use(seen) >= USED,
                "by step: " + ", ".join(f"{100 * e.used:.2f}%" for e in _shared(seen)),
            ),
        ]
    first = by_name[AT_40]
    checks.append(
        Check(
            f"{AT_40}: the queue is mostly {AUTHORS_QUEUE_BYTES // 1000} KB or less, as the authors say",
            _queue(first) <= AUTHORS_QUEUE_BYTES,
            "median by step: " + ", ".join(f"{e.queue_median / 1e3:.0f} KB" for e in _shared(first)),
        )
    )
    for seen in runs:
        kmax = seen.setting.ecn.kmax_bytes
        worst = max(e.queue_p99 for e in _shared(seen))
        checks.append(
            Check(
                f"{seen.setting.name}: the queue is bounded: settled, 99% of the time below Kmax",
                worst <= kmax,
                f"{worst / 1e3:.0f} KB of {kmax / 1e3:.0f}; joining flows made it {seen.queue_max / 1e3:.0f} at most",
            )
        )
    printed, wide = by_name[AT_RATE], by_name[SCALED]
    if printed.setting.rate_bps > PAPER_RATE_BPS:
        checks.append(
            Check(
                "faster than it was made for: less equal as printed than with thresholds and increments in proportion",
                _worst_jain(wide) > _worst_jain(printed),
                f"least Jain's index {_worst_jain(printed):.3f} as printed, {_worst_jain(wide):.3f} scaled; "
                f"{100 * _mean_use(printed):.2f}% and {100 * _mean_use(wide):.2f}% of the link",
            )
        )
    return checks


def _after(ms: float | None) -> str:
    return "not" if ms is None else f"{ms:.1f}"


def _table(runs: Sequence[Seen]) -> Table:
    rows = [
        [
            seen.setting.name,
            f"{e.start_ms:g}..{e.end_ms:g}",
            str(e.flows),
            f"{e.jain:.3f}",
            "-" if e.flows == 1 else _after(e.converged_ms),
            _after(e.filled_ms),
            f"{100 * e.used:.2f}",
            f"{e.queue_mean / 1e3:.0f}",
            f"{e.queue_median / 1e3:.0f}",
            f"{e.queue_p99 / 1e3:.0f}",
        ]
        for seen in runs
        for e in seen.epochs
    ]
    heads = (
        "run",
        "ms",
        "flows",
        "Jain",
        f"{FAIR} after ms",
        "99% after ms",
        "link %",
        "queue mean KB",
        "median",
        "99%",
    )
    return Table("Second half of each step", heads, rows)


def _figures(runs: Sequence[Seen]) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for seen in runs:
        name = seen.setting.name
        slowest = [e.converged_ms for e in _shared(seen)]
        found[f"{name}: least Jain"] = round(_worst_jain(seen), 4)
        found[f"{name}: least % of the link"] = round(100 * _worst_use(seen), 3)
        found[f"{name}: mean % of the link"] = round(100 * _mean_use(seen), 3)
        found[f"{name}: slowest convergence ms"] = max((-1.0 if ms is None else ms for ms in slowest), default=-1.0)
        left = seen.epochs[-1].filled_ms
        found[f"{name}: last flow has the link after ms"] = -1.0 if left is None else round(left, 3)
        found[f"{name}: not converged"] = sum(ms is None for ms in slowest)
        found[f"{name}: queue median bytes"] = _queue(seen)
        found[f"{name}: queue max bytes"] = seen.queue_max
        found[f"{name}: XOFF"] = seen.xoff_frames
    return found


def _title(setting: Setting) -> str:
    ecn = setting.ecn
    rate, kmin, kmax = setting.rate_bps // 10**9, ecn.kmin_bytes / 1e3, ecn.kmax_bytes / 1e3
    return f"{setting.name}: {rate} Gb/s, Kmin {kmin:g} KB, Kmax {kmax:g} KB, Pmax {ecn.pmax:g}"


def _plot(runs: Sequence[Seen]) -> Plot:
    panels = [
        Panel(
            "Gb/s of payload",
            seen.rates,
            title=_title(seen.setting),
        )
        for seen in runs
    ]
    panels.append(Panel("KB", [seen.queue for seen in runs], title="queue: the most of each millisecond"))
    return Plot(NAME, "DCQCN: flows join and leave one link", "ms", panels)
