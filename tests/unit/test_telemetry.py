"""Telemetry without switches: histograms, alarms, figures of an interval, propagation, Prometheus text, events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from controller.alarms import HOPS, LATENCY, PFC_RATE, RECOVERY, STORM_CONTROL, Alarms, Reading
from controller.config import Config, ConfigError, parse, parse_text, to_data
from controller.events import EventHub
from controller.histogram import Histogram, bucket_of, lower_ns, upper_ns
from controller.prometheus import Endpoint, buckets
from controller.propagation import Pauses, Spread, Wiring, spread
from controller.state import CounterValue
from controller.telemetry import DELAY, XOFF, Collector, SwitchSample, ets_shares, queue_of_highest_priority
from controller.telemetry_cli import screen
from controller.telemetry_config import Hysteresis, Telemetry, Thresholds
from controller.telemetry_control import storm_text
from controller.telemetry_service import Snapshot
from topologies.description import leaf_spine
from topologies.settings import Dcb, controller_config

MS, S = 10**6, 10**9


def of(**counts: int) -> Histogram:
    """`of(b10=3)`: three durations in bucket 10."""
    return Histogram(tuple(counts.get(f"b{bucket}", 0) for bucket in range(32)))


# ---- histograms -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40))
def test_buckets_are_powers_of_two(duration_ns: int) -> None:
    bucket = bucket_of(duration_ns)
    assert lower_ns(bucket) <= duration_ns
    assert bucket == 31 or duration_ns <= upper_ns(bucket)


def test_bucket_edges() -> None:
    """docs/contract.md: 0 for 0 ns, else floor(log2(ns)) + 1, at most 31."""
    assert [bucket_of(ns) for ns in (0, 1, 2, 3, 4, 1023, 1024, 2**30 - 1, 2**30, 2**35)] == [
        *(0, 1, 2, 2, 3, 10, 11, 30, 31, 31)
    ]


def test_quantiles() -> None:
    """90 durations of 512..1023 ns, 10 of 32768..65535 ns: the 90th is the last of the first bucket, p99 is the 9th of
    10 in the second: 32768 + 32767 * 9 / 10."""
    histogram = of(b10=90, b16=10)
    assert histogram.total == 100
    assert histogram.quantile_ns(90) == 1023
    assert histogram.quantile_ns(99) == 32768 + 32767 * 9 // 10 == 62258
    assert histogram.bounds_ns(99) == (32768, 65535)
    assert histogram.quantile_ns(1) == 512 + 511 * 1 // 90
    assert Histogram().quantile_ns(99) is None
    assert of(b31=1).quantile_ns(99) == 2**30
    assert of(b0=1).quantile_ns(50) == 0
    with pytest.raises(ValueError, match="percent: 0"):
        histogram.quantile_ns(0)


def test_a_cleared_histogram_counts_from_zero() -> None:
    assert of(b3=5, b4=1).since(of(b3=2)) == of(b3=3, b4=1)
    assert of(b4=1).since(of(b3=2)) == of(b4=1)


# ---- alarms ---------------------------------------------------------------------------------------------------------


def readings(value: int | None, metric: str = PFC_RATE) -> list[Reading]:
    return [] if value is None else [Reading(metric, "p", value, {"port": "p"})]


def run(values: list[int | None], hysteresis: Hysteresis, metric: str = PFC_RATE) -> list[tuple[int, bool, int]]:
    """(index of the interval, raised or cleared, worst)."""
    alarms = Alarms()
    alarms.configure(Thresholds(), hysteresis)
    return [
        (index, change.raised, change.worst)
        for index, value in enumerate(values)
        for change in alarms.take(readings(value, metric), index)
    ]


def test_an_alarm_is_raised_at_its_threshold_and_cleared_below_80_per_cent_three_times() -> None:
    values: list[int | None] = [999, 1000, 5000, 799, 799, 800, 799, 799, None, 999, 1000]
    assert run(values, Hysteresis()) == [(1, True, 1000), (8, False, 5000), (10, True, 1000)]


def test_an_alarm_may_want_several_intervals_in_a_row() -> None:
    hysteresis = Hysteresis(raise_after=2, clear_after=1)
    assert run([1000, 0, 1000, 1000, 0], hysteresis) == [(3, True, 1000), (4, False, 1000)]


def test_hops_have_no_margin_and_two_are_good() -> None:
    assert run([2, 3, 2, 2, 2], Hysteresis(), HOPS) == [(1, True, 3), (4, False, 3)]


def test_what_stands_is_told_oldest_first_and_a_key_comes_once() -> None:
    alarms = Alarms()
    alarms.take([Reading(LATENCY, "b", 50_000, {})], 1)
    alarms.take([Reading(LATENCY, "b", 49_000, {}), Reading(RECOVERY, "a", 5_000, {})], 2)
    assert [(a.reading.where, a.since_ns, a.reading.value) for a in alarms.standing()] == [
        ("b", 1, 49_000),
        ("a", 2, 5_000),
    ]
    with pytest.raises(ValueError, match="given twice"):
        alarms.take([*readings(1), *readings(2)], 3)


# ---- an interval ----------------------------------------------------------------------------------------------------

ONE = """
qos_profiles: {default: {lossless: [3]}}
ets_profiles: {lab: {0: {ets: 40}, 3: {ets: 60}, 6: strict, 7: strict}, shaped: {1: {cbs: 10M}, 4: {cbs: 10M}}}
switches:
  leaf1:
    device_id: 1
    address: unix:/x
    ports:
      1: {name: leaf1-eth1, mac: "02:01:00:00:01:01", rate: 100M, peer: h1, pfc: [3], ets: lab}
      2: {mac: "02:01:00:00:01:02", rate: 100M, ets: shaped}
      3: {mac: "02:01:00:00:01:03", rate: 100M}
"""


def counters(**cells: Mapping[tuple[int, int], tuple[int, int]]) -> dict[str, dict[tuple[int, int], CounterValue]]:
    return {
        name.replace("__", "."): {cell: CounterValue(*value) for cell, value in values.items()}
        for name, values in cells.items()
    }


def take(before: SwitchSample, after: SwitchSample, config: Config) -> dict[tuple[str, str], Reading]:
    collector = Collector()
    assert collector.take({"leaf1": before}, config, Thresholds()).readings == ()
    return {r.key: r for r in collector.take({"leaf1": after}, config, Thresholds()).readings}


def test_the_readings_of_an_interval() -> None:
    config = parse_text(ONE)
    before = SwitchSample(
        0,
        counters(ingress__pfc_rx_xoff={(1, 3): (100, 0)}, egress__tm_dequeued={(1, 7): (5, 500), (1, 6): (0, 0)}),
        {},
        {DELAY: {(1, 6): of(b20=7)}, XOFF: {(1, 3): of(b8=1)}},
    )
    after = SwitchSample(
        500 * MS,
        counters(
            ingress__pfc_rx_xoff={(1, 3): (700, 0)},
            egress__pfc_tx_xoff={(1, 3): (10, 0)},
            egress__tm_dequeued={(1, 7): (5, 500), (1, 6): (100, 9000), (1, 0): (4, 400)},
            ingress__pfc_rx_storm={(1, 0): (17, 0)},
        ),
        {},
        {DELAY: {(1, 6): of(b20=7, b10=90, b16=10), (1, 0): of(b25=4)}, XOFF: {(1, 3): of(b8=1, b13=2)}},
    )
    found = take(before, after, config)
    assert {key: reading.value for key, reading in found.items()} == {
        (PFC_RATE, "leaf1-eth1 priority 3 rx"): 1200,  # 600 frames in half a second
        (PFC_RATE, "leaf1-eth1 priority 3 tx"): 20,
        (LATENCY, "leaf1-eth1 queue 6"): 62258,  # queue 7, stricter, sent nothing
        (RECOVERY, "leaf1-eth1 priority group 3"): 8191,
        (STORM_CONTROL, "leaf1-eth1 ignored"): 17,
        (HOPS, "priority 3"): 1,
    }
    assert found[LATENCY, "leaf1-eth1 queue 6"].detail == "p99 of 100 frames"
    assert found[HOPS, "priority 3"].detail == "leaf1 -> h1"


def test_an_xoff_that_does_not_end_grows() -> None:
    """It is not in the histogram yet: 2 s after it was first seen it has lasted 2 s; a new one starts again."""
    config, collector = parse_text(ONE), Collector()
    seen = []
    for time_s, xoff, count in ((0, 0, 4), (1, 1, 5), (2, 1, 5), (3, 1, 5), (4, 1, 6), (5, 0, 6)):
        registers = {"egress.tm_pg_xoff": {(1, 3): xoff}, "egress.tm_xoff_count": {(1, 3): count}}
        interval = collector.take({"leaf1": SwitchSample(time_s * S, {}, registers)}, config, Thresholds())
        seen.append([r.value for r in interval.readings if r.metric == RECOVERY])
    assert seen == [[], [], [1 * S], [2 * S], [], []]


def test_a_switch_that_started_again_counts_from_zero() -> None:
    before = SwitchSample(0, counters(ingress__pfc_rx_xoff={(1, 3): (5000, 0)}))
    after = SwitchSample(S, counters(ingress__pfc_rx_xoff={(1, 3): (3, 0)}))
    assert {r.value for r in take(before, after, parse_text(ONE)).values()} == {3}


@pytest.mark.parametrize(
    ("port", "sent", "queue"),
    [(1, {0, 3, 6, 7}, 7), (1, {0, 3, 6}, 6), (1, {0, 3}, None), (2, {1, 4, 7}, 4), (3, {0, 5}, 5), (3, set(), None)],
)
def test_the_queue_of_highest_priority(port: int, sent: set[int], queue: int | None) -> None:
    """Strict by index; without: shaped; without those: ETS. One that sent nothing does not count."""
    config = parse_text(ONE)
    found = queue_of_highest_priority(config, config.switches["leaf1"].ports[port], lambda q: int(q in sent))
    assert found == queue


def test_ets_shares() -> None:
    config = parse_text(ONE)
    sent = dict.fromkeys(range(8), 0) | {0: 500, 3: 1500, 6: 99}
    assert ets_shares(config, config.switches["leaf1"].ports[1], sent) == {0: (250, 400), 3: (750, 600)}
    assert ets_shares(config, config.switches["leaf1"].ports[1], dict.fromkeys(range(8), 0)) == {}


# ---- propagation ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fabric() -> Wiring:
    """Two leaves (ports 1, 2: hosts; 3, 4: spines), two spines (port i: leaf i); priority 3 lossless."""
    return Wiring(parse(controller_config(leaf_spine(2, 2, 2), Dcb(pfc=(3,)))))


@pytest.mark.parametrize(
    ("xoff", "paused", "chain"),
    [
        ({("leaf1", 2)}, set(), ("leaf1", "h2")),  # two hosts of a leaf: one pauses
        ({("leaf1", 3)}, set(), ("leaf1", "spine1")),
        ({("leaf1", 3), ("spine1", 2)}, set(), ("leaf1", "spine1", "leaf2")),
        ({("leaf1", 3), ("spine1", 2), ("leaf2", 1)}, set(), ("leaf1", "spine1", "leaf2", "h3")),
        # not a chain: spine 2 has nothing of leaf 1's port to spine 1
        ({("leaf1", 3), ("spine2", 2)}, set(), ("leaf1", "spine1")),
        # two incasts that face each other; data from spine 1 never turns back to spine 2 at a leaf
        ({("leaf1", 3), ("spine1", 2), ("leaf2", 4), ("spine2", 1)}, set(), ("leaf1", "spine1", "leaf2")),
        # a storm of h1: the leaf is paused, and passes it on
        (set(), {("leaf1", 1)}, ("h1", "leaf1")),
        ({("leaf1", 3), ("leaf1", 2)}, {("leaf1", 1)}, ("h1", "leaf1", "h2")),
        ({("leaf1", 3), ("spine1", 2), ("leaf2", 2)}, {("leaf1", 1)}, ("h1", "leaf1", "spine1", "leaf2", "h4")),
    ],
)
def test_how_far_a_pause_goes(
    fabric: Wiring, xoff: set[tuple[str, int]], paused: set[tuple[str, int]], chain: tuple[str, ...]
) -> None:
    seen = Pauses({(s, p, 3) for s, p in xoff}, {(s, p, 3) for s, p in paused})
    assert spread(fabric, seen) == {3: Spread(chain)}
    assert spread(fabric, seen)[3].hops == len(chain) - 1


def test_no_pause_no_hops(fabric: Wiring) -> None:
    assert spread(fabric, Pauses(set(), set())) == {}


# ---- Prometheus -----------------------------------------------------------------------------------------------------


def scrape(snapshot: Snapshot) -> dict[str, Any]:
    endpoint = Endpoint(lambda: snapshot)
    text = generate_latest(endpoint.registry).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def sample(families: Mapping[str, Any], family: str, name: str, **labels: str) -> float:
    [value] = [s.value for s in families[family].samples if s.name == name and s.labels == labels]
    return float(value)


def test_prometheus_text() -> None:
    config = parse_text(ONE)
    registers = {"egress.tm_paused_ns": {(1, 3): 1_500_000_000}, "egress.tm_queue_depth": {(1, 3): 4096}}
    at = {"switch": "leaf1", "port": "leaf1-eth1"}
    first = SwitchSample(0)
    last = SwitchSample(
        S,
        counters(
            ingress__pfc_rx_xoff={(1, 3): (1200, 0)},
            egress__tm_dequeued={(1, 0): (1, 250), (1, 3): (1, 750)},
            ingress__rx={(1, 3): (7, 7000)},
            ingress__drops={(1, 3): (9, 540)},
            egress__tm_drop_headroom={(1, 3): (2, 3000)},
        ),
        registers,
        {DELAY: {(1, 3): of(b0=1, b10=3, b31=1)}},
        {"egress.tm_pool_used": {0: 77, 1: 0}},
    )
    collector, alarms = Collector(), Alarms()
    collector.take({"leaf1": first}, config, Thresholds())
    interval = collector.take({"leaf1": last}, config, Thresholds())
    alarms.take(interval.readings, S)
    snapshot = Snapshot(config, 2, {"leaf1": last}, interval, tuple(alarms.standing()), alarms, ("leaf1", "leaf2"))
    found = scrape(snapshot)
    assert {family.type for family in found.values()} == {"counter", "gauge", "histogram"}
    assert all(name.startswith("dcblab_") for name in found)
    pfc = at | {"priority": "3", "direction": "rx", "kind": "xoff"}
    assert sample(found, "dcblab_pfc_frames", "dcblab_pfc_frames_total", **pfc) == 1200
    assert sample(found, "dcblab_received_bytes", "dcblab_received_bytes_total", **at, priority="3") == 7000
    paused = ("dcblab_pfc_paused_seconds", "dcblab_pfc_paused_seconds_total")
    assert sample(found, *paused, **at, priority="3") == 1.5
    assert sample(found, "dcblab_queue_depth_bytes", "dcblab_queue_depth_bytes", **at, queue="3") == 4096
    assert sample(found, "dcblab_pool_used_bytes", "dcblab_pool_used_bytes", switch="leaf1", pool="0") == 77
    drops = ("dcblab_dropped_packets", "dcblab_dropped_packets_total")
    assert sample(found, *drops, **at, reason="ACL", kind="", index="") == 9
    assert sample(found, *drops, **at, reason="headroom", kind="pg", index="3") == 2
    up = ("dcblab_switch_up", "dcblab_switch_up")
    assert (sample(found, *up, switch="leaf1"), sample(found, *up, switch="leaf2")) == (1, 0)
    share = ("dcblab_ets_share_ratio", "dcblab_ets_share_ratio")
    assert sample(found, *share, **at, queue="3", kind="observed") == 0.75
    assert sample(found, *share, **at, queue="3", kind="configured") == 0.6
    alarm = ("dcblab_alarm", "dcblab_alarm")
    assert sample(found, *alarm, metric="pfc_rate", where="leaf1-eth1 priority 3 rx") == 1
    limit = ("dcblab_alarm_threshold", "dcblab_alarm_threshold")
    assert sample(found, *limit, metric="latency") == 50e-6
    delay = [s for s in found["dcblab_queue_delay_seconds"].samples if s.labels["queue"] == "3"]
    assert {s.name for s in delay} == {"dcblab_queue_delay_seconds_bucket"}
    by_le = {float(s.labels["le"]): s.value for s in delay}
    assert len(by_le) == 32
    assert (by_le[0.0], by_le[511e-9], by_le[1023e-9], by_le[float("inf")]) == (1, 1, 4, 5)
    # what BMv2 does not serve is not there
    assert "dcblab_pg_xoff" not in found


def test_buckets_are_cumulative() -> None:
    found = buckets(of(b0=2, b1=1, b31=4))
    assert found[:2] == [("0.0", 2), ("1e-09", 3)]
    assert found[-1] == ("+Inf", 7)
    assert [value for _, value in found] == sorted(value for _, value in found)


def test_an_address_that_is_taken_is_no_end(caplog: pytest.LogCaptureFixture) -> None:
    first, second = (Endpoint(lambda: Snapshot(Config())) for _ in range(2))
    first.serve(("127.0.0.1", 0))
    try:
        assert first.port is not None
        second.serve(("127.0.0.1", first.port))
        assert second.port is None
        assert "telemetry.prometheus: 127.0.0.1 port" in caplog.text
    finally:
        first.serve(None)
    assert first.port is None
    assert isinstance(first.registry, CollectorRegistry)


# ---- config ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "endpoint"),
    [(9464, ("127.0.0.1", 9464)), ("127.0.0.2:1", ("127.0.0.2", 1)), ("[::1]:9464", ("::1", 9464))],
)
def test_where_prometheus_is(value: object, endpoint: tuple[str, int]) -> None:
    config = parse({"telemetry": {"prometheus": value}})
    assert config.telemetry is not None
    assert config.telemetry.endpoint == endpoint
    assert parse(to_data(config)) == config


@pytest.mark.parametrize(
    ("telemetry", "problem"),
    [
        (
            {"prometheus": "0.0.0.0:9464"},
            "prometheus: 0.0.0.0:9464 is not loopback; prometheus_remote: true allows it",
        ),
        ({"prometheus": "host:1"}, "'host' is not an IPv4 or IPv6 address"),
        ({"prometheus": 70000}, "'70000' is not a port 0..65535"),
        ({"interval_ms": 9}, "telemetry.interval_ms: 9: Input should be greater than or equal to 10"),
        ({"thresholds": {"hops": True}}, "telemetry.thresholds.hops: True: a number is wanted, not true or false"),
        ({"hysteresis": {"clear_percent": 101}}, "telemetry.hysteresis.clear_percent: 101"),
    ],
)
def test_telemetry_that_is_refused(telemetry: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse({"telemetry": telemetry})
    assert problem in str(error.value)


def test_defaults_are_those_of_the_article() -> None:
    thresholds = Telemetry().thresholds
    assert (thresholds.pfc_per_second, thresholds.latency_us, thresholds.recovery_us, thresholds.hops) == (
        1000,
        50,
        5,
        2,
    )


# ---- events ---------------------------------------------------------------------------------------------------------


async def test_events_are_numbered_kept_written_and_waited_for(tmp_path: Path) -> None:
    now = [5 * S]
    hub = EventHub(lambda: now[0], wall_offset_ns=100 * S)
    path = tmp_path / "events.jsonl"
    hub.write_to(str(path))
    hub.emit("session", "synced", switch="leaf1", state="synced")
    hub.emit("watchdog", "storm", switch="leaf1", port="leaf1-eth1", time_ns=4 * S, priority=3)
    hub.close()
    hub.emit("alarm", "not in the file")
    assert [event.number for event in hub.since(1)] == [2, 3]
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            **{"number": 1, "time": 105.0, "time_ns": 5 * S, "kind": "session", "switch": "leaf1", "port": ""},
            **{"text": "synced", "state": "synced"},
        },
        {
            **{"number": 2, "time": 104.0, "time_ns": 4 * S, "kind": "watchdog", "switch": "leaf1"},
            **{"port": "leaf1-eth1", "text": "storm", "priority": 3},
        },
    ]
    await hub.wait(2, timeout_s=60)  # there is one already


def test_a_file_that_cannot_be_opened_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hub = EventHub(lambda: 0)
    hub.write_to(str(tmp_path / "no" / "such"))
    hub.emit("alarm", "x")
    assert "telemetry.events" in caplog.text


@pytest.mark.parametrize(
    ("state", "text"),
    [(0, "operational"), (1, "mitigated by the switch"), (2, "mitigated"), (4, "alert"), (6, "mitigated, alert")],
)
def test_states_of_a_storm(state: int, text: str) -> None:
    assert storm_text(state) == text


# ---- the screen -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "leaf1-eth1 3*    - 1.38M 1,007    0 100.0% 172,038 1.073s     0 paused"),
        (130, "leaf1-eth1 h1 3* - 1.38M 60.0/40.0% 1,007 0 100.0% 172,038 7 1.073s 69 0 paused"),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns(width: int, line: str) -> None:
    row = {
        **{"priority": 3, "queue": 3, "pg": 3, "pfc": True, "rx_bps": 0, "tx_bps": 1_380_000, "xoff_rx": 1007},
        **{"xoff_tx": 0, "ce_marked": 69, "dropped": 0, "paused_permille": 1000, "paused": True, "xoff": False},
        **{"queue_bytes": 172_038, "pg_bytes": 7, "delay_p99_ns": 1_073_000_000, "storm": "operational"},
        **{"share_permille": 600, "weight_permille": 400},
    }
    port = {"name": "leaf1-eth1", "peer": "h1", "priorities": [row]}
    view = {"time": 0, "interval_ms": 500, "ports": [port], "silent": [], "alarms": [], "watchdog": []}
    console = Console(width=width)
    with console.capture() as capture:
        console.print(screen(view, width=width))
    [found] = [text for text in capture.get().splitlines() if text.startswith("leaf1-eth1")]
    assert (found.rstrip() if width == 80 else " ".join(found.split())) == line
    assert len(found) <= width
