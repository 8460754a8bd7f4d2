"""Prometheus: the newest telemetry snapshot as metric families, and the HTTP endpoint that serves them.

`families(snapshot)` is pure. Names and units as Prometheus asks: base units (seconds, bytes), `_total` for counters,
one label set per family. Histograms have the switch's own buckets, cumulative; their sum is not known to the
nanosecond, so there is none (the totals of pause and XOFF time are counters of their own). Without registers (BMv2)
the families that come from them are left out. The registry is ours: no process or interpreter metrics.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.histogram import BUCKETS, Histogram, upper_ns
from controller.reasons import DROPS, DROPS_BY_GROUP, DROPS_BY_PRIORITY, DROPS_BY_QUEUE, PFC_INVALID
from controller.telemetry import DELAY, PAUSE, STORM_COUNTER, XOFF, SwitchSample, ets_shares

if TYPE_CHECKING:
    from controller.telemetry_service import Snapshot

LOGGER = logging.getLogger("dcblab.controller")
_NS_PER_S = 10**9
CELLS = range(8)
# (family, help, counter, packets or bytes, fixed labels): one sample a port and priority
_BY_PRIORITY = (
    ("dcblab_received_packets", "Data packets received", "ingress.rx", "packets"),
    ("dcblab_received_bytes", "Data bytes received (frames without FCS)", "ingress.rx", "bytes"),
    ("dcblab_transmitted_packets", "Data packets sent", "egress.tx", "packets"),
    ("dcblab_transmitted_bytes", "Data bytes sent (frames without FCS)", "egress.tx", "bytes"),
    ("dcblab_ecn_marked_packets", "Packets marked CE", "egress.ce_marked", "packets"),
)
_PFC = (
    ("rx", "xoff", "ingress.pfc_rx_xoff"),
    ("rx", "xon", "ingress.pfc_rx_xon"),
    ("tx", "xoff", "egress.pfc_tx_xoff"),
    ("tx", "xon", "egress.pfc_tx_xon"),
)
# (family, help, register, label of n, counter or gauge, divisor)
_REGISTERS = (
    ("dcblab_pfc_paused_seconds", "Time paused by the peer", "egress.tm_paused_ns", "priority", "counter", _NS_PER_S),
    ("dcblab_pfc_pauses", "Pauses by the peer", "egress.tm_pause_count", "priority", "counter", 1),
    ("dcblab_pfc_xoff_seconds", "Time that a group was in XOFF", "egress.tm_xoff_ns", "pg", "counter", _NS_PER_S),
    ("dcblab_pfc_xoffs", "Transitions of a group to XOFF", "egress.tm_xoff_count", "pg", "counter", 1),
    ("dcblab_pfc_storms", "Storms detected by the switch itself", "egress.tm_storm_count", "priority", "counter", 1),
    ("dcblab_pfc_storm_state", "Bits: 1, 2 mitigated, 4 alert", "egress.tm_storm_state", "priority", "gauge", 1),
    ("dcblab_pg_xoff", "1 while a group is in XOFF", "egress.tm_pg_xoff", "pg", "gauge", 1),
    ("dcblab_pg_depth_bytes", "Bytes that a group holds", "egress.tm_pg_depth", "pg", "gauge", 1),
    ("dcblab_pg_headroom_bytes", "Headroom in use", "egress.tm_pg_headroom", "pg", "gauge", 1),
    ("dcblab_pg_watermark_bytes", "Most bytes that a group held", "egress.tm_pg_watermark", "pg", "gauge", 1),
    ("dcblab_pg_headroom_watermark_bytes", "Most headroom in use", "egress.tm_pg_headroom_watermark", "pg", "gauge", 1),
    ("dcblab_queue_depth_bytes", "Bytes in a queue", "egress.tm_queue_depth", "queue", "gauge", 1),
    ("dcblab_queue_watermark_bytes", "Most bytes in a queue", "egress.tm_queue_watermark", "queue", "gauge", 1),
)
_POOLS = (
    ("dcblab_pool_used_bytes", "Shared bytes in use", "egress.tm_pool_used"),
    ("dcblab_pool_watermark_bytes", "Most shared bytes in use", "egress.tm_pool_watermark"),
    ("dcblab_headroom_pool_used_bytes", "Bytes of a headroom pool in use", "egress.tm_headroom_pool_used"),
    (
        "dcblab_headroom_pool_watermark_bytes",
        "Most bytes of a headroom pool in use",
        "egress.tm_headroom_pool_watermark",
    ),
)
_HISTOGRAMS = (
    ("dcblab_queue_delay_seconds", "Time from enqueue to the start of transmission", DELAY, "queue"),
    ("dcblab_pfc_pause_duration_seconds", "Length of pauses by the peer that have ended", PAUSE, "priority"),
    ("dcblab_pfc_xoff_duration_seconds", "Length of XOFF states that have ended", XOFF, "pg"),
)


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """(le in seconds, durations up to it), the last one +Inf."""
    bounds = [repr(upper_ns(bucket) / _NS_PER_S) for bucket in range(BUCKETS - 1)] + ["+Inf"]
    return list(zip(bounds, map(float, histogram.cumulative()), strict=True))


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Every family of a snapshot."""
    up = GaugeMetricFamily("dcblab_switch_up", "1 if the switch answered the last poll", labels=["switch"])
    for switch in snapshot.switches:
        up.add_metric([switch], float(switch in snapshot.samples))
    yield up
    rounds = CounterMetricFamily("dcblab_telemetry_rounds", "Polls of the fabric")
    rounds.add_metric([], snapshot.rounds)
    yield rounds
    places = [
        (name, number, port.name or f"{name}:{number}", sample)
        for name, sample in snapshot.samples.items()
        if name in snapshot.config.switches
        for number, port in snapshot.config.switches[name].ports.items()
    ]
    yield from _counters(places)
    yield from _registers(places)
    yield from _histograms(places)
    for family, text, register in _POOLS:
        gauge = GaugeMetricFamily(family, text, labels=["switch", "pool"])
        for name, sample in snapshot.samples.items():
            for pool, value in sample.pools.get(register, {}).items():
                gauge.add_metric([name, str(pool)], value)
        if gauge.samples:
            yield gauge
    yield from _of_interval(snapshot)


_Places = list[tuple[str, int, str, SwitchSample]]


def _counters(places: _Places) -> Iterator[Metric]:
    for family, text, counter, unit in _BY_PRIORITY:
        found = CounterMetricFamily(family, text, labels=["switch", "port", "priority"])
        for switch, number, port, sample in places:
            for n in CELLS:
                value = sample.packets(counter, number, n) if unit == "packets" else sample.bytes(counter, number, n)
                found.add_metric([switch, port, str(n)], value)
        yield found
    pfc = CounterMetricFamily(
        "dcblab_pfc_frames",
        "PFC frames that named a priority",
        labels=["switch", "port", "priority", "direction", "kind"],
    )
    invalid = CounterMetricFamily(
        "dcblab_pfc_invalid_frames", "PFC frames at fault", labels=["switch", "port", "reason"]
    )
    pause = CounterMetricFamily("dcblab_pause_frames", "PAUSE frames received", labels=["switch", "port"])
    storm = CounterMetricFamily(
        "dcblab_pfc_storm_control_frames", "PFC frames beyond storm control", labels=["switch", "port", "action"]
    )
    dropped = CounterMetricFamily(
        "dcblab_dropped_packets", "Packets dropped", labels=["switch", "port", "reason", "kind", "index"]
    )
    for switch, number, port, sample in places:
        for direction, kind, counter in _PFC:
            for n in CELLS:
                pfc.add_metric([switch, port, str(n), direction, kind], sample.packets(counter, number, n))
        for n, reason in enumerate(PFC_INVALID):
            if reason:
                invalid.add_metric([switch, port, reason], sample.packets("ingress.pfc_rx_invalid", number, n))
        pause.add_metric([switch, port], sample.packets("ingress.pause_rx_frames", number, 0))
        if STORM_COUNTER in sample.counters:
            for n, action in enumerate(("ignored", "counted")):
                storm.add_metric([switch, port, action], sample.packets(STORM_COUNTER, number, n))
        for counter, reasons in DROPS.items():
            for n, reason in enumerate(reasons):
                if reason:
                    dropped.add_metric([switch, port, reason, "", ""], sample.packets(counter, number, n))
        for kind, group in (("queue", DROPS_BY_QUEUE), ("pg", DROPS_BY_GROUP), ("priority", DROPS_BY_PRIORITY)):
            for counter, reason in group.items():
                if counter in sample.counters:
                    for n in CELLS:
                        value = sample.packets(counter, number, n)
                        dropped.add_metric([switch, port, reason, kind, str(n)], value)
    yield from (pfc, invalid, pause, dropped)
    if storm.samples:
        yield storm


def _registers(places: _Places) -> Iterator[Metric]:
    for family, text, register, label, kind, divisor in _REGISTERS:
        labels = ["switch", "port", label]
        make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
        found: Any = make(family, text, labels=labels)
        for switch, number, port, sample in places:
            for n in CELLS:
                value = sample.register(register, number, n)
                if value is not None:
                    found.add_metric([switch, port, str(n)], value / divisor)
        if found.samples:
            yield found


def _histograms(places: _Places) -> Iterator[Metric]:
    for family, text, register, label in _HISTOGRAMS:
        found = HistogramMetricFamily(family, text, labels=["switch", "port", label])
        for switch, number, port, sample in places:
            for (of_port, n), histogram in sorted(sample.histograms.get(register, {}).items()):
                if of_port == number:
                    found.add_metric([switch, port, str(n)], buckets(histogram), None)
        if found.samples:
            yield found


def _of_interval(snapshot: Snapshot) -> Iterator[Metric]:
    """Shares, propagation and alarms: what is known of an interval only."""
    share = GaugeMetricFamily(
        "dcblab_ets_share_ratio",
        "Share of an ETS queue in what the ETS queues of its port sent in the last interval, and by its weight",
        labels=["switch", "port", "queue", "kind"],
    )
    hops = GaugeMetricFamily("dcblab_pfc_propagation_hops", "Links that a pause went over", labels=["priority"])
    if snapshot.interval is not None:
        for name, seen in snapshot.interval.switches.items():
            for number, port in snapshot.config.switches[name].ports.items():
                place = port.name or f"{name}:{number}"
                shares = ets_shares(snapshot.config, port, seen.sent_bytes(number))
                for queue, (observed, configured) in shares.items():
                    share.add_metric([name, place, str(queue), "observed"], observed / 1000)
                    share.add_metric([name, place, str(queue), "configured"], configured / 1000)
        for priority, found in snapshot.interval.spreads.items():
            hops.add_metric([str(priority)], found.hops)
    yield share
    yield hops
    alarms = GaugeMetricFamily("dcblab_alarm", "1 while an alarm stands", labels=["metric", "where"])
    for alarm in snapshot.alarms:
        alarms.add_metric([alarm.rule.metric, alarm.reading.where], 1)
    yield alarms
    limits = GaugeMetricFamily("dcblab_alarm_threshold", "Threshold of a metric, in its base unit", labels=["metric"])
    for metric, rule in snapshot.rules.rules.items():
        limits.add_metric([metric], rule.limit / _NS_PER_S if rule.unit == "ns" else rule.limit)
    yield limits


class _Collector(Collector):
    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return families(self._snapshot())

    def describe(self) -> list[Metric]:
        return []  # families depend on what was polled


class Endpoint:
    """`/metrics` on an address; `serve(None)` ends it. An address that is taken is logged, not raised."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Collector(snapshot))
        self._where: tuple[str, int] | None = None
        self._server: tuple[WSGIServer, threading.Thread] | None = None

    @property
    def port(self) -> int | None:
        """The port that is served (of a configured 0 the one that the system chose)."""
        return None if self._server is None else int(self._server[0].server_port)

    @property
    def url(self) -> str | None:
        """Where the metrics are."""
        if self._server is None or self._where is None:
            return None
        host = f"[{self._where[0]}]" if ":" in self._where[0] else self._where[0]
        return f"http://{host}:{self.port}/metrics"

    def serve(self, where: tuple[str, int] | None) -> None:
        """Serve there, and nowhere else."""
        if where == self._where and (where is None or self._server is not None):
            return
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None
        self._where = where
        if where is not None:
            host, port = where
            try:
                self._server = start_http_server(port, host, self.registry)
            except OSError as error:
                LOGGER.error("telemetry.prometheus: %s port %d: %s", host, port, error.strerror or error)
            else:
                LOGGER.info("Prometheus metrics at %s", self.url)
