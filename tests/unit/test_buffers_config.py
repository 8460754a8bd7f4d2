"""Pools, headroom pools, cable lengths and alphas in the config file: entries, refusals, warnings. Numbers by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from controller_fakes import CONFIG

from controller.buffer_config import length_m
from controller.config import ConfigError, dump, parse_text, warnings
from controller.desired import OWNED_TABLES, build
from controller.entries import Action, TableEntry

LOSSLESS = "lossless: {reserved: 3000, xoff: 60000, xon: 40000, headroom: 500000"


def with_profile(extra: str) -> str:
    return CONFIG.replace(LOSSLESS, f"{LOSSLESS}, {extra}")


def with_switch(extra: str) -> str:
    return CONFIG.replace("    device_id: 1\n", f"    device_id: 1\n    {extra}\n")


def entries(text: str, table: str) -> dict[object, object]:
    found = [e for e in build(parse_text(text), "leaf1") if isinstance(e, TableEntry) and e.table == table]
    return {entry.match: entry.action for entry in found}


def test_pools_become_entries() -> None:
    text = with_switch("pools: {0: 1000000, 3: 500}\n    headroom_pools: {2: 777}")
    assert entries(text, "egress.tm_pool") == {
        (("pool", 0),): Action.of("egress.tm_set_pool", size=1000000),
        (("pool", 3),): Action.of("egress.tm_set_pool", size=500),
    }
    assert entries(text, "egress.tm_headroom_pool") == {
        (("pool", 2),): Action.of("egress.tm_set_headroom_pool", size=777)
    }
    assert {"egress.tm_pool", "egress.tm_headroom_pool", "egress.tm_pg_pool"} <= set(OWNED_TABLES)


def test_pool_is_pool_0() -> None:
    assert entries(with_switch("pool: 99"), "egress.tm_pool") == {
        (("pool", 0),): Action.of("egress.tm_set_pool", size=99)
    }
    assert len(entries(with_switch("pool: 99\n    pools: {0: 99, 1: 5}"), "egress.tm_pool")) == 2
    with pytest.raises(ConfigError, match=r"switches\.leaf1\.pools\.0: 98: pool says 99 for the same pool"):
        parse_text(with_switch("pool: 99\n    pools: {0: 98}"))


def test_the_pools_of_a_group() -> None:
    assert entries(CONFIG, "egress.tm_pg_pool") == {}
    key = (("pg", 3), ("port", 1))
    assert entries(with_profile("pool: 1"), "egress.tm_pg_pool") == {
        key: Action.of("egress.tm_set_pg_pool", pool=1, headroom_pool=255)
    }
    assert entries(with_profile("headroom_pool: 0"), "egress.tm_pg_pool") == {
        key: Action.of("egress.tm_set_pg_pool", pool=0, headroom_pool=0)
    }


@pytest.mark.parametrize(
    ("text", "exponent"),
    [
        ("-2", -2),
        ('"1/4"', -2),
        ("1/128", -7),
        ("8/1", 3),
        ("1/1", 0),
        ("sonic:-8", -8),
        ("huawei:0", -7),
        ("huawei:7", 0),
    ],
)
def test_alpha_by_name(text: str, exponent: int) -> None:
    config = CONFIG.replace("reserved: 3000, xoff: 60000, xon: 40000", f"alpha: {text}")
    assert parse_text(config).buffer_profiles["lossless"].alpha == exponent
    assert parse_text(dump(parse_text(config))) == parse_text(config)
    action = entries(config, "egress.tm_priority_group")[("pg", 3), ("port", 1)]
    assert isinstance(action, Action)
    assert action["alpha"] == exponent & 0xFF


@pytest.mark.parametrize("text", ["1/3", "huawei:8", "sonic:8", "quarter", "1/0", "0/4", "true", "17"])
def test_alpha_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"buffer_profiles\.lossless\.alpha"):
        parse_text(CONFIG.replace("reserved: 3000, xoff: 60000, xon: 40000", f"alpha: {text}"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (with_switch("pools: {8: 100}"), "switches.leaf1.pools.8"),
        (with_switch("pools: {1: 0}"), "switches.leaf1.pools.1"),
        (with_switch("headroom_pools: {0: -1}"), "switches.leaf1.headroom_pools.0"),
        (with_switch("buffer: 0"), "switches.leaf1.buffer"),
        (with_profile("pool: 8"), "buffer_profiles.lossless.pool"),
        (CONFIG.replace("peer: h1", "peer: h1, length_m: -1"), "ports.1.length_m"),
        (CONFIG.replace("peer: h1", "peer: h1, length_m: .nan"), "ports.1.length_m"),
        (with_profile("threshold_policy: {predictor: oracle}"), "threshold_policy.predictor"),
        (with_profile("threshold_policy: {min_xoff: 2, max_xoff: 1}"), "min_xoff 2 must not be above max_xoff 1"),
        (CONFIG.replace("xoff: 60000, xon: 40000", "alpha: 0, threshold_policy: {}"), "moves the xoff of a static"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_text(text)
    assert problem in str(error.value)


def test_cable_lengths() -> None:
    text = CONFIG.replace("peer: spine1", "peer: spine1, length_m: 12.5")
    text += """
  spine2: {device_id: 102, address: "unix:b"}
"""
    config = parse_text(text)
    leaf = config.switches["leaf1"]
    assert [length_m(config, leaf, port) for port in (1, 2, 3)] == [5, Fraction(25, 2), 40]


def test_a_good_config_has_no_warning() -> None:
    assert warnings(parse_text(CONFIG)) == []
    whole = with_switch("buffer: 17280216")  # 16777216 - 0 + 500000 + 3000
    assert warnings(parse_text(whole.replace("buffer:", "pool: 16777216\n    buffer:"))) == []


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            with_switch("pool: 56999"),
            "switches.leaf1.pools.0: 56999 bytes: 1 groups may take 57000 bytes of it before they are XOFF: one that "
            "finds it empty is XOFF before its threshold",
        ),
        (
            with_profile("pool: 1"),
            "switches.leaf1.ports.1.buffers.3: pool 1 has no size: it holds nothing",
        ),
        (
            with_profile("headroom_pool: 4"),
            "switches.leaf1.ports.1.buffers.3: headroom pool 4 has no size: there is no headroom",
        ),
        (
            with_profile("headroom_pool: 0").replace(
                "    device_id: 1\n", "    device_id: 1\n    headroom_pools: {0: 9}\n"
            ),
            "switches.leaf1.headroom_pools.0: 9 bytes: below the headroom of a single group, 500000",
        ),
        (
            with_profile("headroom_pool: 0")
            .replace("    device_id: 1\n", "    device_id: 1\n    headroom_pools: {0: 600000}\n")
            .replace("peer: spine1", "peer: spine1, buffers: {3: lossless}"),
            "switches.leaf1.headroom_pools.0: 600000 bytes: its 2 groups may need 1000000 together",
        ),
        (
            with_switch("buffer: 17280215"),
            "switches.leaf1.buffer: 17280215 bytes: 3000 reserved + 500000 headroom + 0 headroom pools + "
            "16777216 pools = 17280216",
        ),
        (
            CONFIG.replace("headroom: 500000", "headroom: 0"),
            "switches.leaf1.ports.1.buffers.3: priority 3 has PFC but its group has no headroom",
        ),
    ],
)
def test_unsafe_buffers_are_warned_about(text: str, warning: str) -> None:
    assert warnings(parse_text(text)) == [warning]


def test_a_policy_wants_a_pool_without_lossy_groups() -> None:
    text = with_profile("threshold_policy: {}")
    assert warnings(parse_text(text)) == [
        "switches.leaf1.ports.1.buffers.3: threshold_policy: pool 0 is also that of lossy groups, which can take "
        "what a higher XOFF counts on; a pool of its own is wanted"
    ]
    own = with_profile("pool: 1, threshold_policy: {}").replace(
        "    device_id: 1\n", "    device_id: 1\n    pools: {1: 57000}\n"
    )
    assert warnings(parse_text(own)) == []


def test_dcbx_that_makes_priorities_lossless_without_headroom_is_warned_about() -> None:
    where = "switches.leaf1.ports.2.dcbx.lossless_buffers"
    dcbx = CONFIG.replace("peer: spine1", "peer: spine1, dcbx: {pfc: [3, 4]}")
    assert warnings(parse_text(dcbx)) == [
        f"{where}: not given: DCBX may make priority {n} lossless, and its group {n} has no headroom" for n in (3, 4)
    ]
    willing = CONFIG.replace("peer: spine1", "peer: spine1, dcbx: {willing: [pfc]}")
    assert warnings(parse_text(willing)) == [
        f"{where}: not given: the peer may make priorities 0,1,2,3,4,5,6,7 lossless, and their groups have no headroom"
    ]
    named = CONFIG.replace("peer: spine1", "peer: spine1, dcbx: {willing: [pfc], lossless_buffers: lossless}")
    assert warnings(parse_text(named)) == []
    bare = named.replace("headroom: 500000", "headroom: 0")
    assert f"{where}: profile lossless has no headroom" in warnings(parse_text(bare))
