"""What the config admits the switch takes, and what the switch refuses the config refuses: at the edges of each range.

A config that is legal and still refused by the switch would be found by the first reconciliation only, without a line
of the file to point at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from controller_fakes import CONFIG
from dcb_switch import DcbSwitch

from controller.config import ConfigError, parse_text
from controller.desired import build
from controller.entries import Action, TableEntry

PROFILE = "lossless: {reserved: 3000, xoff: 60000, xon: 40000, headroom: 500000}"
PORT = "pfc: [3]"


@pytest.fixture(scope="module")
def switch() -> Iterator[DcbSwitch]:
    made = DcbSwitch()
    yield made
    made.service.close()


def edge(new: str, old: str = PROFILE) -> str:
    assert old in CONFIG
    return CONFIG.replace(old, new)


@pytest.mark.parametrize(
    "text",
    [
        edge("lossless: {reserved: 1, xoff: 1, xon: 0, headroom: 0}"),
        edge("lossless: {reserved: 0, xoff: 4294967295, xon: 4294967294, headroom: 4294967295}"),
        edge("lossless: {alpha: -8, xon_offset: 4294967295}"),
        edge("lossless: {alpha: 7}"),
        edge(f"{PORT}, queue_limits: {{0: {{alpha: -8}}, 1: {{alpha: 7}}, 2: 0, 3: 4294967295}}", PORT),
        edge(f"{PORT}, pfc_quanta: 1, ets: {{0: {{ets: 1}}, 1: {{ets: 100}}, 2: {{cbs: 1}}, 3: {{cbs: 800G}}}}", PORT)
        .replace("ets: lab,", "")
        .replace("rate: 100M", "rate: 800G", 1),
        edge("lossless: {alpha: 0, pool: 7, headroom_pool: 7}"),
    ],
)
def test_what_the_config_admits_the_switch_takes(switch: DcbSwitch, text: str) -> None:
    written = 0
    for entry in build(parse_text(text), "leaf1"):
        if not isinstance(entry, TableEntry) or not entry.table.startswith("egress.tm_"):
            continue
        assert isinstance(entry.action, Action)
        key, action = dict(entry.match), entry.action
        fields = [field.name for field in switch.tables[entry.table].match_fields]
        params = [param.name for param in switch.actions[action.name].params]
        switch.put(entry.table, [key[name] for name in fields], action.name, *(action[name] for name in params))
        written += 1
    assert written > 3


@pytest.mark.parametrize(
    ("text", "problem", "entry", "refusal"),
    [
        (
            edge("lossless: {xoff: 60000, xon: 60000}"),
            "buffer_profiles.lossless: {'xoff': 60000, 'xon': 60000}: xon 60000 must be below xoff 60000",
            ("egress.tm_priority_group", (1, 3), "egress.tm_pg_static", 0, 60000, 60000, 0, 8),
            "xon 60000: must be below xoff 60000",
        ),
        (
            edge("lossless: {xoff: 10, xon: 5, reserved: 11}"),
            "reserved 11 must not be above xoff 10",
            ("egress.tm_priority_group", (1, 3), "egress.tm_pg_static", 11, 10, 5, 0, 8),
            "reserved 11: must not exceed xoff 10",
        ),
        (
            edge("lossless: {alpha: 8}"),
            "buffer_profiles.lossless.alpha: 8: Input should be less than or equal to 7",
            ("egress.tm_priority_group", (1, 3), "egress.tm_pg_dynamic", 0, 8, 0, 0, 8),
            "alpha 8: must be -8..7",
        ),
        (
            edge("lossless: {alpha: 1/512}"),
            "buffer_profiles.lossless.alpha: '1/512': Input should be greater than or equal to -8",
            ("egress.tm_priority_group", (1, 3), "egress.tm_pg_dynamic", 0, 256 - 9, 0, 0, 8),
            "alpha -9: must be -8..7",
        ),
        (
            edge(f"{PORT}, queue_limits: {{0: {{alpha: -9}}}}", PORT),
            "queue_limits.0.alpha: -9: Input should be greater than or equal to -8",
            ("egress.tm_queue", (1, 0), "egress.tm_queue_dynamic", 256 - 9),
            "alpha -9: must be -8..7",
        ),
        (
            edge("rate: 800000000001", "rate: 100M"),
            "ports.1.rate: 800000000001: Input should be less than or equal to 800000000000",
            ("egress.tm_port", (1,), "egress.tm_set_port", 800_000_000_001),
            "rate_bps 800000000001: must be 0..800000000000",
        ),
        (
            edge("ets: {0: {cbs: 801G}}", "ets: lab"),
            "ets.0.cbs: '801G': Input should be less than or equal to 800000000000",
            ("egress.tm_scheduler", (1, 0), "egress.tm_cbs", 801 * 10**9),
            "idle_slope_bps 801000000000: must be 1..800000000000",
        ),
        (
            edge(f"{PORT}, pfc_quanta: 0", PORT),
            "ports.1.pfc_quanta: 0: Input should be greater than or equal to 1",
            ("egress.tm_pfc", (1,), "egress.tm_set_pfc", 8, 0, 0),
            "quanta 0: must be 1..65535 where tx_enable is not 0",
        ),
    ],
)
def test_what_the_switch_refuses_the_config_refuses(
    switch: DcbSwitch, text: str, problem: str, entry: tuple[Any, ...], refusal: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_text(text)
    assert problem in str(refused.value)
    table, key, action, *params = entry
    with pytest.raises(AssertionError) as failed:
        switch.put(table, key, action, *params)
    assert refusal in str(failed.value)
