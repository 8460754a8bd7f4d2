"""The NIC of `dcbnic.c` alone, driven by iproute2's `dcb`, which knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from links import End, Link
from lldpad import Nic

pytestmark = [pytest.mark.mininet, pytest.mark.needs_lldpad]

STRICT = ["strict"] * 8


@pytest.fixture
def adapter(link: Link, nic: Callable[[End], Nic]) -> Nic:
    """At the left end."""
    return nic(link.left)


def test_comes_up_with_eight_classes_unused(adapter: Nic) -> None:
    ets = adapter.show("ets")
    assert (ets["ets_cap"], ets["willing"]) == (8, False)
    assert (ets["prio_tc"], ets["tc_bw"], ets["tc_tsa"]) == ([0] * 8, [0] * 8, STRICT)
    assert adapter.show("pfc")["prio_pfc"] == [False] * 8
    assert adapter.show("pfc")["pfc_cap"] == 8
    assert adapter.show("dcbx") == {"host": True, "ieee": True}
    assert adapter.record() == []


def test_keeps_and_records_what_is_set(adapter: Nic) -> None:
    name = adapter.end.name
    ets = ("prio-tc", "all:0", "3:1", "6:2", "tc-tsa", "0:ets", "1:ets", "2:strict", "tc-bw", "0:40", "1:60")
    for command in (
        ("ets", "set", "dev", name, "willing", "on", *ets),
        ("pfc", "set", "dev", name, "prio-pfc", "3:on", "delay", "4096"),
        ("app", "add", "dev", name, "dgram-port-prio", "4791:3"),
        ("maxrate", "set", "dev", name, "tc-maxrate", "1:25Gbit"),
    ):
        done = adapter.dcb(*command)
        assert done.returncode == 0, done.stderr

    shown = adapter.show("ets")
    assert shown["willing"] is True
    assert shown["prio_tc"] == [0, 0, 0, 1, 0, 0, 2, 0]
    assert shown["tc_bw"] == [40, 60, 0, 0, 0, 0, 0, 0]
    assert shown["tc_tsa"] == ["ets", "ets", *STRICT[2:]]
    assert shown["ets_cap"] == 8
    assert adapter.show("pfc")["prio_pfc"] == [False, False, False, True, False, False, False, False]
    assert adapter.show("pfc")["delay"] == 4096
    assert adapter.show("app") == {"dgram_port_prio": [[4791, 3]]}

    first, second, third, fourth = adapter.record()
    assert first["cmd"] == "IEEE_SET"
    assert first["ets"]["prio_tc"] == [0, 0, 0, 1, 0, 0, 2, 0]
    assert first["ets"]["tc_tx_bw"] == [40, 60, 0, 0, 0, 0, 0, 0]
    assert first["ets"]["tc_tsa"] == [2, 2, 0, 0, 0, 0, 0, 0]
    assert second["pfc"] == {"pfc_cap": 8, "pfc_en": 0b1000, "mbc": 0, "delay": 4096}
    assert third["app"] == [{"selector": 3, "protocol": 4791, "priority": 3}]
    assert fourth["maxrate_kbps"] == [0, 25 * 10**9 // 8, 0, 0, 0, 0, 0, 0]  # bytes/s, which is what `dcb` sends
    assert [line["result"] for line in adapter.record()] == [0, 0, 0, 0]


def test_refuses_an_application_twice_and_one_that_is_not_there(adapter: Nic) -> None:
    entry = ("dev", adapter.end.name, "dgram-port-prio", "4791:3")
    assert adapter.dcb("app", "add", *entry).returncode == 0
    assert "File exists" in adapter.dcb("app", "add", *entry).stderr
    assert adapter.dcb("app", "del", *entry).returncode == 0
    assert "No such file" in adapter.dcb("app", "del", *entry).stderr
    assert [(line["cmd"], line["result"]) for line in adapter.record()] == [
        ("IEEE_SET", 0),
        ("IEEE_SET", -17),
        ("IEEE_DEL", 0),
        ("IEEE_DEL", -2),
    ]


def test_speaks_one_dialect_and_leaves_dcbx_to_the_host(adapter: Nic) -> None:
    name = adapter.end.name
    assert adapter.dcb("dcbx", "set", "dev", name, "lld-managed", "ieee").returncode != 0
    assert adapter.dcb("dcbx", "set", "dev", name, "host", "ieee", "cee").returncode != 0
    assert adapter.show("dcbx") == {"host": True, "ieee": True}
    assert adapter.dcb("dcbx", "set", "dev", name, "host", "cee").returncode == 0
    assert adapter.show("dcbx") == {"cee": True, "host": True}
    # `dcb pfc set` of iproute2 6.1 takes its query's acknowledgement for that of the setting; the record knows better.
    adapter.dcb("pfc", "set", "dev", name, "prio-pfc", "3:on")
    assert [line["result"] for line in adapter.record("IEEE_SET")] == [-22]
    assert adapter.show("pfc")["prio_pfc"] == [False] * 8


def test_leaves_other_interfaces_to_the_kernel(adapter: Nic) -> None:
    assert "Operation not supported" in adapter.dcb("ets", "show", "dev", "lo").stderr
    preload = ("env", f"LD_PRELOAD={adapter.library}", "DCBNIC_IFS=left")
    shown = adapter.end.run(*preload, "ip", "-o", "link", "show", "dev", "left")
    assert adapter.end.mac in shown.stdout
    # And without the library, the interface is what it was.
    assert "Operation not supported" in adapter.end.run("dcb", "ets", "show", "dev", adapter.end.name).stderr
