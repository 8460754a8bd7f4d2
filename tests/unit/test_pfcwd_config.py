"""The keys of the PFC watchdog and what they become; rejects as in sonic-mgmt's tests/pfcwd/test_pfc_config.py."""

from __future__ import annotations

from typing import Any

import pytest

from controller import watchdog_control
from controller.config import Config, ConfigError, dump, parse, parse_text, warnings
from controller.desired import OWNED_TABLES, build
from controller.entries import Action as TableAction
from controller.entries import TableEntry
from controller.watchdog_config import lossless_pairs, port_settings, watched
from dcb.watchdog import MS, Action, Settings

WHERE = "config: switches.leaf1.ports.1.pfc_watchdog"


def config(port: Any = None, fabric: Any = None, **more: Any) -> Config:
    """leaf1 with PFC on priorities 3 and 4 of port 1, which has the key `port`; and none on port 2."""
    first: dict[str, Any] = {"name": "leaf1-eth1", "mac": "02:01:00:00:01:01", "rate": "10G", "pfc": [3, 4], **more}
    if port is not None:
        first["pfc_watchdog"] = port
    second = {"name": "leaf1-eth2", "mac": "02:01:00:00:01:02", "rate": "10G"}
    data: dict[str, Any] = {
        "qos_profiles": {"default": {"lossless": [3, 4], "priority_to_queue": {4: 5}}},
        "switches": {"leaf1": {"device_id": 1, "address": "unix:/x", "ports": {1: first, 2: second}}},
    }
    if fabric is not None:
        data["pfc_watchdog"] = fabric
    return parse(data)


def refusal(port: Any = None, fabric: Any = None) -> str:
    with pytest.raises(ConfigError) as caught:
        config(port, fabric)
    return str(caught.value)


# ---- test_pfc_config ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"action": "bounce"}, f"{WHERE}.action: 'bounce': Input should be 'drop', 'forward' or 'alert'"),
        ({"detection_time_ms": "soon"}, f"{WHERE}.detection_time_ms: 'soon': Input should be a valid integer"),
        ({"detection_time_ms": 40}, f"{WHERE}.detection_time_ms: 40: with mode poll 100..5000 ms"),
        ({"detection_time_ms": 4_000_000}, f"{WHERE}.detection_time_ms: 4000000: Input should be less than or equal"),
        ({"restoration_time_ms": "late"}, f"{WHERE}.restoration_time_ms: 'late': Input should be a valid integer"),
        ({"restoration_time_ms": 50}, f"{WHERE}.restoration_time_ms: 50: with mode poll 100..60000 ms, or never"),
        ({"restoration_time_ms": 50_000_000}, f"{WHERE}.restoration_time_ms: 50000000: Input should be less than"),
        ({"detection_time_ms": True}, f"{WHERE}.detection_time_ms: True: a number is wanted, not true or false"),
        ({"priorities": [8]}, f"{WHERE}.priorities.0: 8: Input should be less than or equal to 7"),
        ({"priorities": []}, "priorities: [] watches nothing: name at least one, or leave pfc_watchdog out"),
        ({"mode": "hardware"}, f"{WHERE}.mode: 'hardware': Input should be 'poll' or 'switch'"),
        ({"mode": "switch", "detection_time_ms": 0}, f"{WHERE}.detection_time_ms: 0: Input should be greater than"),
        ({"detection": 400}, f"{WHERE}.detection: 400: unknown key"),
    ],
)
def test_pfc_config_rejects(key: dict[str, Any], message: str) -> None:
    assert message in refusal(key)


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ({"poll_interval_ms": 99}, "config: pfc_watchdog.poll_interval_ms: 99: Input should be greater than or equal"),
        ({"poll_interval_ms": 1001}, "config: pfc_watchdog.poll_interval_ms: 1001: Input should be less than or equal"),
        (
            {"poll_interval_ms": 300},
            "pfc_watchdog.defaults.detection_time_ms: 200: must not be below pfc_watchdog.poll_interval_ms, 300",
        ),
        ({"big_red_switch": "perhaps"}, "config: pfc_watchdog.big_red_switch: 'perhaps': Input should be a valid bool"),
    ],
)
def test_pfc_config_rejects_of_the_fabric(fabric: dict[str, Any], message: str) -> None:
    assert message in refusal(None, fabric)


def test_times_must_not_be_below_the_poll_interval() -> None:
    fabric = {"poll_interval_ms": 400, "defaults": {"detection_time_ms": 400, "restoration_time_ms": 400}}
    assert refusal({"detection_time_ms": 300, "restoration_time_ms": 399}, fabric).splitlines() == [
        f"{WHERE}.detection_time_ms: 300: must not be below pfc_watchdog.poll_interval_ms, 400",
        f"{WHERE}.restoration_time_ms: 399: must not be below pfc_watchdog.poll_interval_ms, 400",
    ]
    # the switch's own timer knows no polls
    assert config({"detection_time_ms": 2, "restoration_time_ms": 5, "mode": "switch"}, fabric)


def test_default_config_after_load() -> None:
    loaded = config({})
    assert loaded.pfc_watchdog.poll_interval_ms == 200
    settings = Settings(Action.DROP, 200 * MS, 200 * MS, False)
    pairs = [(of.port, of.priority, of.queue, of.mode, of.settings) for of in watched(loaded, "leaf1")]
    assert pairs == [(1, 3, 3, "poll", settings), (1, 4, 5, "poll", settings)]
    assert watched(config(), "leaf1") == []


@pytest.mark.parametrize("action", ["drop", "forward", "alert"])
def test_a_port_overrides_the_defaults(action: str) -> None:
    defaults = {"action": "alert", "detection_time_ms": 400, "restoration_time_ms": "never"}
    loaded = config({"action": action, "priorities": [4]}, {"defaults": defaults})
    [of] = watched(loaded, "leaf1")
    assert (of.priority, of.settings) == (4, Settings(Action(action), 400 * MS, None, False))


def test_what_is_dumped_is_what_was_loaded() -> None:
    fabric = {"poll_interval_ms": 100, "defaults": {"restoration_time_ms": 0, "empty_queue": True}}
    loaded = config({"action": "forward", "restoration_time_ms": "never"}, fabric)
    text = dump(loaded)
    assert text.count("restoration_time_ms: never") == 2
    assert parse_text(text) == loaded


def test_priorities_without_pfc_are_not_watched_and_are_warned_about() -> None:
    loaded = config({"priorities": [3, 5]})
    assert [of.priority for of in watched(loaded, "leaf1")] == [3]
    where = "switches.leaf1.ports.1.pfc_watchdog"
    assert f"{where}.priorities: 5 not watched: no PFC on the port" in warnings(loaded)
    assert f"{where}: nothing is watched: PFC is not enabled on the port" in warnings(config({}, pfc=[]))


def test_every_priority_of_an_asymmetric_port_may_be_watched() -> None:
    loaded = config({"priorities": [0, 3]}, pfc_asymmetric=True)
    assert [of.priority for of in watched(loaded, "leaf1")] == [0, 3]


def test_the_big_red_switch_watches_nothing() -> None:
    loaded = config({}, {"big_red_switch": True})
    assert watched(loaded, "leaf1") == []
    assert lossless_pairs(loaded, "leaf1") == [(1, 3), (1, 4)]


# ---- what the switch is told ----------------------------------------------------------------------------------------


def test_the_switchs_own_timer_is_desired_state_and_mitigation_is_not() -> None:
    key = {
        "mode": "switch",
        "detection_time_ms": 2,
        "restoration_time_ms": "never",
        "priorities": [4],
        "action": "forward",
    }
    entries = [e for e in build(config(key | {"empty_queue": True}), "leaf1") if isinstance(e, TableEntry)]
    [entry] = [e for e in entries if e.table == "egress.tm_watchdog"]
    assert dict(entry.match) == {"port": 1, "priority": 4}
    action = TableAction.of("egress.tm_set_watchdog", detect_us=2000, restore_us=0, action=1, empty_queue=1)
    assert entry.action == action
    assert "egress.tm_watchdog" in OWNED_TABLES
    assert "egress.tm_storm" not in OWNED_TABLES
    assert not [e for e in build(config({}), "leaf1") if isinstance(e, TableEntry) and "watchdog" in e.table]


# ---- dcbctl pfcwd start, stop, interval, start-default -------------------------------------------------------------


def edit(before: Config, **params: Any) -> tuple[Config, list[str]]:
    return watchdog_control.edit(before, before, params)


def test_start_without_a_restoration_time_takes_twice_the_detection_time() -> None:
    after, notes = edit(config(), what="start", target=["leaf1"], detection_time_ms=300, action="forward")
    assert notes == ["SKIPPED: PFC is not enabled on port: leaf1-eth2"]
    held = port_settings(after, "leaf1", 1)
    assert held is not None
    assert (held.detection_time_ms, held.restoration_time_ms, held.action) == (300, 600, "forward")
    assert port_settings(after, "leaf1", 2) is None
    assert edit(after, what="stop", target=None)[0] == config()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"action": "reset"}, "pfcwd start: action: 'reset': one of drop, forward, alert is wanted"),
        ({"detection_time_ms": "x"}, "pfcwd start: detection_time_ms: 'x': a number of milliseconds is wanted"),
        ({"restoration_time_ms": "x"}, "pfcwd start: restoration_time_ms: 'x': milliseconds or never is wanted"),
        ({"detection_time_ms": 5001}, "pfcwd start: switches.leaf1.ports.1.pfc_watchdog.detection_time_ms: 5001: "),
        ({"target": ["leaf1:2"]}, "pfcwd start: SKIPPED: PFC is not enabled on port: leaf1-eth2"),
    ],
)
def test_start_rejects(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edit(config(), **({"what": "start", "target": ["leaf1"], "detection_time_ms": 400} | params))
    assert message in str(caught.value)


def test_interval() -> None:
    after, _ = edit(config({"detection_time_ms": 400, "restoration_time_ms": 400}), what="interval", interval_ms=200)
    assert after.pfc_watchdog.poll_interval_ms == 200
    with pytest.raises(ConfigError) as caught:
        edit(after, what="interval", interval_ms=600)
    assert str(caught.value).splitlines()[0] == (
        "pfcwd interval: unable to use polling interval = 600ms, value is bigger than one of the configured times"
    )


def test_start_default() -> None:
    after, notes = edit(config({"action": "alert"}), what="start-default")
    held = port_settings(after, "leaf1", 1)
    assert held is not None
    assert (held.action, held.detection_time_ms, held.restoration_time_ms) == ("drop", 200, 200)
    assert after.pfc_watchdog.poll_interval_ms == 200
    assert notes == ["SKIPPED: PFC is not enabled on port: leaf1-eth2"]
