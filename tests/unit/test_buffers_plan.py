"""The buffer planner and `dcbctl plan`: sums, refusals with their numbers, a config written and read back."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from controller_fakes import CONFIG
from typer.testing import CliRunner

from controller.cli import app
from controller.config import load, parse_text, warnings
from controller.plan import Options, compare, plan_switches, written
from dcb.buffers import PlanError, PortSpec, Thresholds, plan_buffers
from dcb.buffers.alpha import threshold
from dcb.buffers.plan import HeldGroup, check
from dcb.headroom import Budget

G = 10**9


def headroom(_port: PortSpec) -> Budget:
    return Budget("fixed", G, (), 10_000)


def ports(count: int, *groups: int) -> list[PortSpec]:
    return [PortSpec(str(n), 100 * G, Fraction(40), groups) for n in range(count)]


def test_own_headroom() -> None:
    plan = plan_buffers(
        ports(4, 3, 4), headroom, buffer_bytes=200_000, thresholds=Thresholds(alpha=-1, reserved_bytes=1000)
    )
    # 8 groups: 8000 reserved, 80,000 headroom; 112,000 are left, half for each pool
    assert dict(plan.parts) == {
        "reserved of lossless groups": 8000,
        "headroom of lossless groups": 80_000,
        "shared pool of lossless groups": 56_000,
        "shared pool of lossy groups": 56_000,
    }
    assert (plan.pools, plan.headroom_pools) == ({0: 56_000, 1: 56_000}, {})
    assert plan.groups[0].profile_data() == {
        "reserved": 1000, "headroom": 10_000, "pool": 1, "alpha": -1, "xon_offset": 3000,
    }  # fmt: skip
    # alone: 56000 / 2 / 1.5 = 18666; all eight: 28000 / 5 = 5600
    assert plan.notes == ("a lossless group is XOFF at 19666 bytes when it is alone, at 6600 when all 8 are congested",)


def test_a_headroom_pool_holds_the_largest_at_least() -> None:
    plan = plan_buffers(ports(4, 3), headroom, buffer_bytes=100_000, over_subscription=3)
    assert plan.headroom_pools == {0: 13_334}
    assert plan.groups[0].profile_data()["headroom_pool"] == 0
    assert "groups may need 40000 bytes together, the pool has 13334" in plan.notes[1]
    assert plan_buffers(ports(4, 3), headroom, buffer_bytes=100_000, over_subscription=9).headroom_pools == {0: 10_000}
    whole = plan_buffers(ports(4, 3), headroom, buffer_bytes=100_000, over_subscription=1)
    assert whole.headroom_pools == {0: 40_000}
    assert len(whole.notes) == 1
    assert sum(size for _, size in whole.parts) == 100_000


def test_static_thresholds_fit_their_pool() -> None:
    thresholds = Thresholds(None, 20_000, 5_000, 2_000)
    plan = plan_buffers(ports(4, 3), headroom, buffer_bytes=121_000, thresholds=thresholds)
    # 8000 + 40,000 + 4 * 18,000 = 120,000: more than half of what is left, so lossy gets the rest
    assert plan.pools == {0: 1000, 1: 72_000}
    assert plan.groups[0].profile_data() == {
        "reserved": 2000,
        "headroom": 10_000,
        "pool": 1,
        "xoff": 20_000,
        "xon": 15_000,
    }
    with pytest.raises(
        PlanError,
        match=r"4 lossless groups of 4 ports need 8000 reserved \+ 40000 headroom \+ 72000 up to XOFF = 120000: 1 ",
    ):
        plan_buffers(ports(4, 3), headroom, buffer_bytes=119_999, thresholds=thresholds)


def test_a_buffer_that_is_too_small_is_refused_with_the_numbers() -> None:
    with pytest.raises(PlanError) as error:
        plan_buffers(ports(10, 3), headroom, buffer_bytes=70_000, lossy_bytes=20_000, margin_bytes=1000)
    assert str(error.value).splitlines() == [
        "buffer: 70000 bytes: 10 lossless groups of 10 ports need 0 reserved + 110000 headroom + 20000 lossy = 130000: "
        "60000 bytes short",
        "over_subscription: 3: would make the headroom fit in 49999 bytes",
    ]
    fits = plan_buffers(
        ports(10, 3), headroom, buffer_bytes=70_000, lossy_bytes=20_000, margin_bytes=1000, over_subscription=3
    )
    assert fits.headroom_pools == {0: 36_667}
    with pytest.raises(
        PlanError, match=r"alpha: -8: with 4 lossless groups congested each holds 115 of the pool's 30000 bytes"
    ):
        plan_buffers(ports(4, 3), headroom, buffer_bytes=100_000, thresholds=Thresholds(-8), min_threshold_bytes=1518)
    with pytest.raises(PlanError, match=r"alpha: 8: -8\.\.7"):
        plan_buffers(ports(4, 3), headroom, buffer_bytes=100_000, thresholds=Thresholds(8))
    with pytest.raises(PlanError, match="over_subscription: 1/2: at least 1"):
        plan_buffers(ports(4, 3), headroom, buffer_bytes=100_000, over_subscription="1/2")


def test_without_lossless_groups_everything_is_lossy() -> None:
    plan = plan_buffers(ports(2), headroom, buffer_bytes=5000)
    assert (plan.pools, plan.groups) == ({0: 5000}, ())


def test_threshold_of_congested_groups() -> None:
    # n groups at T = 2^a (P - n T): T = 2^a P / (1 + n 2^a)
    assert threshold(90_000, 0, 2) == 30_000
    assert threshold(90_000, 3, 1) == 80_000
    assert threshold(90_000, -3, 1) == 10_000


def test_check_of_a_held_buffer() -> None:
    groups = [HeldGroup(str(n), 100, 1000, 1, 0, 600) for n in range(3)]
    assert check(groups, {1: 1500}, {0: 3000}, 4800) == []
    assert [line.partition(":")[0] for line in check(groups, {1: 1499}, {0: 2999}, 4797)] == [
        "pools.1", "headroom_pools.0", "buffer",
    ]  # fmt: skip


# ---- of a config ------------------------------------------------------------------------------------------------


def test_needed_against_configured() -> None:
    config = parse_text(CONFIG.replace("peer: h1", "peer: h1, length_m: 100, pfc_quanta: 200"))
    (row,) = compare(config, Options(mtu_bytes=1514))
    # 100 Mb/s: 80,000 ps a byte; window (1538 + 60) bytes - 1 ps + 1 us = 1610.5 bytes: 1610 before the last frame: two
    # frames, 1610 - 48 = 1562; + 1514; the crossing frame, static: 1513
    assert (row.needed_bytes, row.configured_bytes) == (1513 + 1562 + 1514, 500_000)
    assert (row.quanta, row.needed_quanta) == (200, 49)  # 2 * 1538 * 8 / 512 = 48.06
    assert row.enough
    assert not compare(config, Options(mtu_bytes=9000))[0].enough  # 2 * 9024 * 8 / 512 = 282 quanta


def test_a_plan_is_written_and_carries_itself() -> None:
    config = parse_text(CONFIG)
    options = Options(mtu_bytes=1514)
    new = written(config, plan_switches(config, options, Thresholds(), over_subscription=Fraction(1), margin_bytes=500))
    leaf = new.switches["leaf1"]
    assert set(new.buffer_profiles) == {"lossless-100M-5m"}
    profile = new.buffers_of(leaf.ports[1])[3]
    # static is 1 byte less: 1514 + 1 + ..; cable of 5 m: 50 ns = 0.6 bytes: 1598.6 -> 1598 - 48 = 1550, 1514, 500
    assert (profile.headroom, profile.headroom_pool, profile.pool) == (1514 + 1550 + 1514 + 500, 0, 1)
    assert profile.xon_offset == 1514
    # what the config spent: 16 MiB + 500,000 + 3000
    assert sum(leaf.pools.values()) + sum(leaf.headroom_pools.values()) == 2**24 + 503_000
    assert warnings(new) == []
    assert all(row.enough for row in compare(new, options))


def cli(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", *words])
    return result.exit_code, result.stdout, result.stderr


def test_cli_of_one_link() -> None:
    code, out, _ = cli("--rate", "10G", "--length", "100", "-m", "delay", "-j", "--set", "response_quanta.10G=67")
    assert code == 0
    budget = json.loads(out)["budget"]
    assert budget["headroom_bytes"] == 25694 + 7 * 64
    assert budget["lines"][4] == {
        "name": "peer's response",
        "bits": 67 * 512,
        "bytes": 67 * 64,
        "ns": 3430.4,
        "counted": True,
        "source": budget["lines"][4]["source"],
    }
    code, out, _ = cli("--rate", "100G", "--length", "300", "-m", "sonic", "--asic", "spectrum-2")
    assert code == 0
    assert [line.split()[:3] for line in out.splitlines() if line.split()[:1] in (["headroom"], ["xon"], ["size"])] == [
        ["headroom", "753,664.0", "94,208.0"],
        ["xon", "155,648.0", "19,456.0"],
        ["size", "909,312.0", "113,664.0"],
    ]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--rate", "1G", "-m", "delay"), 2, "interface_bits: 1G: no value is known"),
        (("--rate", "1G", "-m", "guess"), 2, "method: 'guess': one of exact, delay, sonic is wanted"),
        ((), 2, "rate: missing"),
        (("--rate", "fast"), 2, "a rate is an integer"),
        (("--rate", "1G", "--set", "x"), 2, "set: 'x': NAME=VALUE is wanted"),
        (("--rate", "1G", "--alpha", "1", "--xoff", "1"), 2, "alpha, xoff"),
        (("--rate", "1G", "--alpha", "half"), 2, "an exponent -8..7"),
        (("--rate", "1G", "--ports", "3"), 2, "buffer: missing"),
        (("--rate", "100G", "--ports", "64", "--buffer", "1MiB"), 1, "buffer: 1048576 bytes: 64 lossless groups"),
        (("/nowhere.yaml",), 2, "cannot be read"),
    ],
)
def test_cli_refusals(words: tuple[str, ...], code: int, text: str) -> None:
    got, _, error = cli(*words)
    assert got == code
    assert error.startswith("dcbctl: plan: ")
    assert text in error


def test_cli_of_a_config(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(CONFIG.replace("headroom: 500000", "headroom: 4000"))
    code, out, error = cli(str(path), "--mtu", "1514", "-j")
    assert code == 1
    assert error == "dcbctl: plan: leaf1-eth1 pg 3: headroom 4000: 4577 are needed, 577 more\n"
    assert json.loads(out)["groups"][0]["needed_bytes"] == 1513 + 1550 + 1514
    code, out, _ = cli(str(path), "--mtu", "1514", "--write", "--xoff", "60000")
    assert code == 0
    profile = load(path).buffer_profiles["lossless-100M-5m"]
    assert (profile.xoff, profile.xon, profile.headroom) == (60_000, 60_000 - 1514, 4577)
    code, out, error = cli(str(path), "--mtu", "1514")
    assert (code, error) == (0, "")
    assert "enough" in out


def test_cli_lists_every_constant_with_its_source() -> None:
    code, out, _ = cli("--constants", "-j")
    assert code == 0
    constants = {item["name"]: item for item in json.loads(out)["constants"]}
    assert constants["response_quanta"]["value"]["10G"] == "60"
    assert constants["sonic_pause_quanta"]["value"]["10G"] == "67"
    assert all(item["source"] for item in constants.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rate", "abc"], "rate: 'abc': a rate is an integer of bit/s"),
        (["--rate", "10G", "--response", "5x"], "response: '5x': a time is"),
        (["--rate", "10G", "--margin", "q"], "margin: 'q': bytes such as"),
        (["--rate", "10G", "--buffer", "3Z"], "buffer: '3Z': bytes such as"),
    ],
)
def test_an_option_that_is_refused_is_named(options: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["plan", *options])
    assert done.exit_code == 2
    assert f"dcbctl: plan: {said}" in done.stderr
