"""`dcbctl` and the control socket: what users type, what is printed, exit codes, reload of good and bad files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from controller_fakes import CONFIG, FakeSwitch, serving
from finsy.proto import p4r
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from controller import Controller, P4Program, render
from controller.cli import app
from controller.config import ConfigError, load, parse_text
from controller.daemon import ControlServer, control_socket
from controller.edit import SelectionError, select, set_ecn, set_ets, set_pfc, set_rate, set_trust
from controller.qcn_config import CongestionPoint

TIMEOUT = 20.0
PROGRAM = P4Program.load()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab directory with its config file; $DCBLAB_RUN points there."""
    monkeypatch.setenv("DCBLAB_RUN", str(tmp_path))
    path = tmp_path / "lab.yaml"
    path.write_text(CONFIG.replace("ADDRESS", str(tmp_path / "leaf1.sock")))
    return path


@pytest.fixture(scope="module")
def program() -> P4Program:
    return P4Program.load()


@pytest.fixture
async def fabric(lab: Path, program: P4Program) -> AsyncIterator[tuple[Controller, FakeSwitch]]:
    """A synced controller with its control socket, and the switch behind it."""
    switch = FakeSwitch()
    async with (
        serving(switch, lab.parent / "leaf1.sock"),
        Controller(load(lab), p4=program) as controller,
        ControlServer(controller, control_socket("lab"), lab),
    ):
        await controller.wait_synced(TIMEOUT)
        switch.writes.clear()
        yield controller, switch


async def dcbctl(*words: str) -> tuple[int, str, str]:
    """Run the command line in a thread: (exit code, stdout, stderr)."""
    result = await asyncio.to_thread(CliRunner().invoke, app, list(words))
    return result.exit_code, result.stdout, result.stderr


async def ask(method: str, **params: Any) -> dict[str, Any]:
    """One request on the control socket -> the answer."""
    reader, writer = await asyncio.open_unix_connection(str(control_socket("lab")))
    writer.write(json.dumps({"method": method, "params": params}).encode() + b"\n")
    answer = json.loads(await asyncio.wait_for(reader.readline(), TIMEOUT))
    writer.close()
    await writer.wait_closed()
    assert isinstance(answer, dict)
    return answer


def put_counter(switch: FakeSwitch, program: P4Program, name: str, index: int, packets: int, octets: int = 0) -> None:
    data = p4r.CounterData(packet_count=packets, byte_count=octets)
    entry = p4r.CounterEntry(counter_id=program.counter(name).id, index=p4r.Index(index=index), data=data)
    switch._apply(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=entry)))


def put_register(switch: FakeSwitch, program: P4Program, name: str, index: int, value: int) -> None:
    entry = p4r.RegisterEntry(register_id=program.register(name).id, index=p4r.Index(index=index))
    entry.data.bitstring = value.to_bytes(8, "big")
    switch._apply(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(register_entry=entry)))


def lines(text: str) -> list[list[str]]:
    """Words of each line that has some."""
    return [line.split() for line in text.splitlines() if line.strip()]


# ---- show -----------------------------------------------------------------------------------------------------------


async def test_show_pfc(fabric: tuple[Controller, FakeSwitch], program: P4Program) -> None:
    _, switch = fabric
    put_counter(switch, program, "ingress.pfc_rx_xoff", 1 * 8 + 3, 1234)
    put_counter(switch, program, "ingress.pfc_rx_xon", 1 * 8 + 3, 1)
    put_counter(switch, program, "egress.pfc_tx_xoff", 2 * 8 + 4, 7)
    put_counter(switch, program, "ingress.pfc_rx_invalid", 1 * 8 + 1, 2)
    put_register(switch, program, "egress.tm_paused_ns", 1 * 8 + 3, 1_234_567_890)
    code, out, err = await dcbctl("show", "pfc")
    assert (code, err) == (0, "")
    rows = lines(out)
    names = [f"PFC{n}" for n in range(8)]
    assert ["Port", "Rx", *names] in rows
    assert ["Port", "Tx", *names] in rows
    assert ["leaf1-eth1", "0", "0", "0", "1,235", "0", "0", "0", "0"] in rows
    assert ["leaf1-eth2", "0", "0", "0", "0", "7", "0", "0", "0"] in rows
    zero = "0.000"
    assert ["leaf1-eth1", zero, zero, zero, "1,234.567", zero, zero, zero, zero] in rows
    assert ["leaf1-eth1", "length", "2"] in rows

    code, out, _ = await dcbctl("show", "pfc", "leaf1:1", "-j")
    [port] = json.loads(out)["ports"]
    assert code == 0
    assert (port["rx_xoff"][3], port["rx_xon"][3], port["paused_ns"][3]) == (1234, 1, 1_234_567_890)
    assert port["enabled"] == [3]

    code, out, _ = await dcbctl("show", "pfc", "leaf1-eth1", "--format", "dcb")
    assert out.splitlines() == [
        "dev leaf1-eth1",
        "pfc-cap 8 macsec-bypass off delay 0",
        "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off",
        "requests 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0",
        "indications 0:0 1:0 2:0 3:1234 4:0 5:0 6:0 7:0",
    ]


async def test_show_pfc_priority(fabric: tuple[Controller, FakeSwitch]) -> None:
    code, out, _ = await dcbctl("show", "pfc", "priority")
    rows = lines(out)
    assert code == 0
    assert rows[0][:3] == ["Interface", "Lossless", "priorities"]
    assert ["leaf1-eth1", "3", "3", "65,535", "off"] in rows
    assert ["leaf1-eth2", "N/A", "3", "65,535", "off"] in rows


async def test_show_ets(fabric: tuple[Controller, FakeSwitch]) -> None:
    _, out, _ = await dcbctl("show", "ets", "leaf1:1")
    rows = lines(out)
    assert ["leaf1-eth1", "100M", "0", "ets", "40", "40.0", "-", "0"] in rows
    assert ["3", "ets", "60", "60.0", "-", "3"] in rows
    assert ["6", "strict", "-", "-", "-", "6"] in rows
    assert ["7", "ets", "1", "-", "-", "7"] in rows
    _, out, _ = await dcbctl("show", "ets", "leaf1:1", "--format", "dcb")
    assert out.splitlines() == [
        "dev leaf1-eth1",
        "prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7",
        "tc-tsa 0:ets 1:ets 2:ets 3:ets 4:ets 5:ets 6:strict 7:ets",
        "tc-bw 0:40 1:0 2:0 3:60 4:0 5:0 6:0 7:0",
    ]


async def test_show_ecn(fabric: tuple[Controller, FakeSwitch], program: P4Program) -> None:
    _, switch = fabric
    put_counter(switch, program, "egress.ce_marked", 1 * 8 + 3, 5000, 5_000_000)
    _, out, _ = await dcbctl("show", "ecn", "leaf1:1")
    rows = lines(out)
    assert ["Profile:", "storage"] in rows
    assert ["kmin_bytes", "20000"] in rows
    assert ["drop_non_ect", "off"] in rows
    assert ["Port", "TxQ", "Profile", "WredDrp/pkts", "WredDrp/bytes", "EcnMarked/pkts", "EcnMarked/bytes"] in rows
    assert ["UC3", "storage", "0", "0", "5,000", "5,000,000"] in rows


async def test_show_qcn(fabric: tuple[Controller, FakeSwitch], program: P4Program) -> None:
    controller, switch = fabric
    put_counter(switch, program, "egress.cnm_tx", 2 * 8 + 3, 4, 5000)
    put_counter(switch, program, "ingress.cnm_rx", 2 * 8 + 0, 1, 102)
    _, out, _ = await dcbctl("show", "qcn", "leaf1")
    assert "no congestion points" in out
    assert ["leaf1-eth2", "4", "1"] in lines(out)
    points = {3: CongestionPoint(qeq=34_000, weight=-2)}
    port = controller.running.switches["leaf1"].ports[1].model_copy(update={"qcn": points})
    leaf = controller.running.switches["leaf1"]
    leaf = leaf.model_copy(update={"ports": dict(leaf.ports) | {1: port}})
    await controller.apply(controller.config.model_copy(update={"switches": {"leaf1": leaf}}))
    await controller.wait_synced(10)
    put_counter(switch, program, "egress.tm_qcn_samples", 1 * 8 + 3, 2000, 1)
    put_counter(switch, program, "egress.tm_qcn_cnms", 1 * 8 + 3, 40, 1)
    put_register(switch, program, "egress.tm_queue_depth", 1 * 8 + 3, 33_100)
    _, out, _ = await dcbctl("show", "qcn", "leaf1:1")
    row = ["leaf1-eth1", "3", "0201000001010003", "34,000", "1/4", "150,000", "15%", "6", "33,100", "2,000", "40"]
    assert row in lines(out)


async def test_show_counters_queue_buffer_drops(fabric: tuple[Controller, FakeSwitch], program: P4Program) -> None:
    _, switch = fabric
    put_counter(switch, program, "ingress.rx", 1 * 8 + 3, 10, 15000)
    put_counter(switch, program, "egress.tx", 1 * 8 + 0, 1, 60)
    put_counter(switch, program, "egress.tm_drop_queue", 1 * 8 + 0, 42, 4200)
    put_counter(switch, program, "egress.tm_drop_headroom", 1 * 8 + 3, 1, 1500)
    put_counter(switch, program, "ingress.drops", 2 * 8 + 2, 9, 540)
    put_register(switch, program, "egress.tm_queue_depth", 1 * 8 + 3, 3000)
    put_register(switch, program, "egress.tm_queue_watermark", 1 * 8 + 3, 61500)
    put_register(switch, program, "egress.tm_pg_depth", 1 * 8 + 3, 60001)
    put_register(switch, program, "egress.tm_pg_xoff", 1 * 8 + 3, 1)
    put_register(switch, program, "egress.tm_pool_used", 0, 57001)
    _, out, _ = await dcbctl("show", "counters", "leaf1:1")
    assert lines(out)[-3:] == [
        ["leaf1-eth1", "0", "0", "0", "1", "60"],
        ["leaf1-eth1", "3", "10", "15,000", "0", "0"],
        ["leaf1-eth1", "all", "10", "15,000", "1", "60"],
    ]
    _, out, _ = await dcbctl("show", "queue", "leaf1:1")
    assert ["3", "3,000", "61,500", "0", "0", "0", "0"] in lines(out)
    assert ["leaf1-eth1", "0", "0", "0", "0", "0", "42", "0"] in lines(out)
    _, out, _ = await dcbctl("show", "buffer", "leaf1:1")
    assert ["leaf1-eth1", "3", "lossless", "60,001", "0", "0", "0", "yes", "0", "1", "0"] in lines(out)
    assert ["leaf1", "shared", "0", "57,001"] in [row[:4] for row in lines(out)]
    _, out, _ = await dcbctl("show", "drops")
    assert lines(out)[-3:] == [
        ["leaf1-eth1", "queue", "limit", "queue", "0", "42", "4,200"],
        ["leaf1-eth1", "headroom", "pg", "3", "1", "1,500"],
        ["leaf1-eth2", "not", "forwardable", "9", "540"],
    ]
    code, _, _ = await dcbctl("clear", "counters", "leaf1:1")
    assert code == 0
    _, out, _ = await dcbctl("show", "drops")
    assert lines(out)[-1] == ["leaf1-eth2", "not", "forwardable", "9", "540"]
    assert "leaf1-eth1" not in out


async def test_show_route(fabric: tuple[Controller, FakeSwitch]) -> None:
    _, out, _ = await dcbctl("show", "route", "-j")
    routes = json.loads(out)["routes"]
    assert [(r["switch"], r["prefix"], r["action"]) for r in routes] == [
        ("leaf1", "10.1.0.1/32", "route"),
        ("leaf1", "10.2.0.0/16", "route"),
        ("leaf1", "fd00:2::/32", "route"),
    ]
    assert routes[0]["via"] == [{"port": 1, "mac": "02:00:00:00:01:01", "weight": 1}]
    both = [
        {"port": 2, "mac": "02:02:00:00:01:01", "weight": 1},
        {"port": 3, "mac": "02:02:00:00:02:01", "weight": 1},
    ]
    assert routes[1]["via"] == both
    assert routes[2]["via"] == both
    assert routes[1]["nexthop"] == routes[2]["nexthop"] != routes[0]["nexthop"]
    _, out, _ = await dcbctl("show", "route")
    assert ["3", "02:02:00:00:02:01", "1"] in lines(out)


async def test_status_and_config(fabric: tuple[Controller, FakeSwitch], lab: Path) -> None:
    controller, _ = fabric
    code, out, _ = await dcbctl("status")
    assert code == 0
    assert lines(out)[-1][:2] == ["leaf1", "synced"]
    _, out, _ = await dcbctl("config")
    assert parse_text(out) == controller.config
    _, out, _ = await dcbctl("shell", "leaf1")
    assert f"--grpc-addr unix:{lab.parent / 'leaf1.sock'} --device-id 1" in out


# ---- set and reload -------------------------------------------------------------------------------------------------


async def test_set_writes_the_difference_and_saves(
    fabric: tuple[Controller, FakeSwitch], lab: Path, program: P4Program
) -> None:
    controller, switch = fabric
    code, out, err = await dcbctl("set", "pfc", "leaf1:2", "on", "3")
    assert (code, out) == (0, "leaf1: 2 updates\n")
    assert err == (
        "dcbctl: warning: switches.leaf1.ports.2.buffers.3: priority 3 has PFC but its group has no headroom\n"
    )
    assert controller.config.switches["leaf1"].ports[2].pfc == [3]
    assert load(lab).switches["leaf1"].ports[2].pfc == []
    code, out, _ = await dcbctl("set", "ets", "leaf1:1", "0=50,3=50", "--save")
    assert (code, out) == (0, "leaf1: 2 updates\n")
    assert load(lab) == controller.config
    tables = [program.table_by_id[u.entity.table_entry.table_id].name for u in switch.updates()]
    assert sorted(tables) == [
        "egress.tm_pfc",
        "egress.tm_scheduler",
        "egress.tm_scheduler",
        "ingress.port_config",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "pfc", "leaf1:9", "on", "3"), "port '9': not a port of leaf1 (known: 1, 2, 3)"),
        (("set", "pfc", "leaf7", "on", "3"), "switch 'leaf7': not in the config (known: leaf1)"),
        (("set", "pfc", "leaf1:1", "on", "9"), "set pfc: priorities: '9': a priority is 0..7"),
        (("set", "rate", "leaf1:1", "fast"), "set leaf1:1: switches.leaf1.ports.1.rate: 'fast': a rate is an integer"),
        (
            ("set", "trust", "leaf1:1", "mac"),
            "set leaf1:1: switches.leaf1.ports.1.trust: 'mac': Input should be",
        ),
        (
            ("set", "ets", "leaf1:1", "0=101"),
            "set leaf1:1: switches.leaf1.ports.1.ets.0.ets: 101: Input",
        ),
        (
            ("set", "ecn", "leaf1:1", "3", "gold"),
            "set leaf1:1: switches.leaf1.ports.1.ecn.3: 'gold': not in",
        ),
        (("show", "ets", "--format", "xml"), "--format: 'xml': table or dcb is wanted"),
        (("show", "queue", "leaf1:7"), "port '7': not a port of leaf1 (known: 1, 2, 3)"),
        (("clear", "everything"), "what: 'everything': watermarks or counters is wanted"),
    ],
)
async def test_wrong_use_is_exit_2_and_changes_nothing(
    fabric: tuple[Controller, FakeSwitch], words: tuple[str, ...], message: str
) -> None:
    controller, switch = fabric
    before = controller.config
    code, out, err = await dcbctl(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"dcbctl: {message}")
    assert controller.config == before
    assert switch.writes == []


async def test_a_switch_that_refuses_is_exit_1(fabric: tuple[Controller, FakeSwitch], program: P4Program) -> None:
    _, switch = fabric
    switch.refuse = lambda update: "not today"
    code, _, err = await dcbctl("set", "rate", "leaf1:3", "10M")
    assert code == 1
    assert "leaf1: modify egress.tm_port[port=3]: INVALID_ARGUMENT: not today" in err


async def test_no_controller_is_exit_1(lab: Path) -> None:
    code, out, err = await dcbctl("status")
    assert (code, out) == (1, "")
    assert err.startswith(
        f"dcbctl: no controller answers at {lab.parent}/lab/controller.sock: start one with `dcbctl run"
    )


async def test_reload(fabric: tuple[Controller, FakeSwitch], lab: Path) -> None:
    controller, switch = fabric
    before = controller.config
    text = lab.read_text()
    lab.write_text(text.replace("{ets: 40}", "{ets: 400}"))
    code, _, err = await dcbctl("reload")
    assert code == 2
    assert err == f"dcbctl: {lab}: ets_profiles.lab.0.ets: 400: Input should be less than or equal to 100\n"
    assert controller.config == before
    assert switch.writes == []
    lab.write_text(text.replace("{ets: 40}", "{ets: 39}"))
    code, out, _ = await dcbctl("reload")
    assert (code, out) == (0, "leaf1: 1 updates\n")
    code, out, _ = await dcbctl("reload")
    assert (code, out) == (0, "leaf1: 0 updates\n")


async def test_requests_that_make_no_sense(fabric: tuple[Controller, FakeSwitch]) -> None:
    assert await ask("dance") == {
        "ok": False,
        "error": "method: 'dance': one of status, show, set, reload, config, clear, dcbx, telemetry, "
        "why, deadlock, pfcwd is wanted",
        "code": 2,
    }
    assert (await ask("show", what="sky"))["error"].startswith("what: 'sky': one of pfc, pfc_priority,")
    assert (await ask("show"))["error"] == "what: None: a string is wanted"
    reader, writer = await asyncio.open_unix_connection(str(control_socket("lab")))
    for line in (b"not json\n", b"[]\n", b'{"method": "status", "params": 5}\n', b"\xff\n"):
        writer.write(line)
        answer = json.loads(await asyncio.wait_for(reader.readline(), TIMEOUT))
        assert answer["ok"] is False
        assert answer["code"] == 2
    writer.write(b'{"method": "status"}\n')  # and the connection still serves
    assert json.loads(await asyncio.wait_for(reader.readline(), TIMEOUT))["ok"] is True
    writer.close()
    await writer.wait_closed()


words = st.sampled_from(
    ["pfc", "ets", "ecn", "rate", "trust", "queue", "leaf1:1", "all", "on", "3", "0=1", "100M", "strict"]
)
values = st.none() | st.integers() | st.text(max_size=5) | words | st.dictionaries(words, words, max_size=2)
names = st.sampled_from(["what", "target", "state", "priorities", "spec", "queue", "values", "value", "save"])


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["status", "show", "set", "clear", "config", "reload", "nonsense"]),
    st.dictionaries(names, values) | values,
)
@example("show", {"what": "pfc"})  # a switch of the config that has no session yet
@example("show", {"what": "pfc", "target": 0})
@example("clear", {"target": {}})
def test_any_request_gets_an_answer(method: str, params: object) -> None:
    async def one() -> dict[str, Any]:
        controller = Controller(parse_text(CONFIG), p4=PROGRAM)  # never entered: no switch is connected
        server = ControlServer(controller, "/nonexistent/socket", None)
        return await server.answer(json.dumps({"method": method, "params": params}).encode())

    answer = asyncio.run(one())
    assert answer["ok"] or answer["code"] in (1, 2)
    assert not answer.get("error", "").startswith("internal error")


async def test_run_with_signals(lab: Path, program: P4Program) -> None:
    """The daemon as a process: up, SIGHUP with a bad and a good file, a second one refused, SIGTERM."""
    switch, socket_path = FakeSwitch(), control_socket("lab")
    async with serving(switch, lab.parent / "leaf1.sock"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "controller.cli", "run", str(lab)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None

        async def log(text: str) -> str:
            assert process.stderr is not None
            while line := (await asyncio.wait_for(process.stderr.readline(), TIMEOUT)).decode():
                if text in line:
                    return line
            raise AssertionError(f"the daemon ended without saying {text!r}")

        try:
            await log("updates written")
            assert (
                await asyncio.wait_for(process.stdout.readline(), TIMEOUT)
                == f"synced: 1 switches hold {lab}\n".encode()
            )
            with pytest.raises(OSError, match="another controller answers there"):
                async with Controller(parse_text("{}"), p4=program) as idle, ControlServer(idle, socket_path, None):
                    pass
            text = lab.read_text()
            lab.write_text(text.replace("rate: 100M, peer: h1", "rate: none"))
            process.send_signal(signal.SIGHUP)
            assert "switches.leaf1.ports.1.rate: 'none': a rate is" in await log("ERROR")
            await log("refused: the config in force stays")
            switch.writes.clear()
            lab.write_text(text.replace("rate: 100M, peer: h1", "rate: 50M"))
            process.send_signal(signal.SIGHUP)
            await log("reloaded")
            assert len(switch.updates()) == 1
        finally:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0
    assert not socket_path.exists()


async def test_run_refuses_a_bad_config_with_exit_2(lab: Path) -> None:
    lab.write_text("switches: 5\n")
    code, _, err = await dcbctl("run", str(lab))
    assert (code, err) == (2, f"dcbctl: {lab}: switches: 5: Input should be a valid dictionary\n")
    code, _, err = await dcbctl("check", str(lab))
    assert code == 2
    code, _, err = await dcbctl("frobnicate")
    assert code == 2


async def test_a_socket_left_over_from_a_killed_controller_is_replaced(lab: Path, program: P4Program) -> None:
    path = control_socket("lab")
    path.parent.mkdir()
    import socket as sockets

    with sockets.socket(sockets.AF_UNIX) as left:
        left.bind(str(path))
    async with Controller(parse_text("{}"), p4=program) as controller, ControlServer(controller, path, None):
        assert (await ask("status"))["result"]["switches"] == []
        assert (await ask("reload"))["error"] == "reload: the controller was not started from a file"
        assert oct(os.stat(path).st_mode)[-3:] == "660"  # noqa: PTH116


# ---- edits ----------------------------------------------------------------------------------------------------------


def test_select() -> None:
    config = parse_text(CONFIG)
    assert select(config, None) == select(config, "all") == select(config, "leaf1") == [("leaf1", [1, 2, 3])]
    assert select(config, "leaf1:2") == select(config, "leaf1:leaf1-eth2") == select(config, "leaf1-eth2")
    with pytest.raises(SelectionError, match="switch 'leaf1-eth9'"):
        select(config, "leaf1-eth9")


def test_set_pfc_and_trust_and_rate() -> None:
    config = set_pfc(parse_text(CONFIG), "leaf1", "on", "4,3")
    assert [port.pfc for port in config.switches["leaf1"].ports.values()] == [[3, 4]] * 3
    config = set_pfc(config, "leaf1:1", "off", "3")
    assert config.switches["leaf1"].ports[1].pfc == [4]
    port = set_rate(set_trust(config, "leaf1:1", "pcp"), "leaf1:1", "25G").switches["leaf1"].ports[1]
    assert (port.trust, port.rate) == ("pcp", 25 * 10**9)
    with pytest.raises(ConfigError, match="state: 'maybe': on or off is wanted"):
        set_pfc(config, "leaf1", "maybe", "3")


def test_set_ets_keeps_queues_that_are_not_named() -> None:
    config = parse_text(CONFIG)
    changed = set_ets(config, "leaf1:1", "0=50,5=cbs:10M,6=default")
    port = changed.switches["leaf1"].ports[1]
    assert {q: getattr(s, "ets", None) or getattr(s, "cbs", s) for q, s in changed.ets_of(port).items()} == {
        0: 50,
        3: 60,
        5: 10_000_000,
    }
    assert changed.ets_profiles == config.ets_profiles  # the shared profile is not touched
    back = set_ets(changed, "leaf1:1", "0=40,5=default,6=strict")
    assert back == config  # equal to the named profile again, so it is named again


def test_set_ecn() -> None:
    config = parse_text(CONFIG)
    changed = set_ecn(config, "leaf1:1", 3, {"kmin": "10K", "pmax": "0.5"})
    profile = changed.ecn_of(changed.switches["leaf1"].ports[1])[3]
    assert (profile.kmin_bytes, profile.kmax_bytes, profile.pmax) == (10_000, 80_000, 0.5)
    assert set_ecn(changed, "leaf1:1", 3, {"profile": "storage"}) == config
    assert set_ecn(config, "leaf1:1", 3, {"off": ""}).switches["leaf1"].ports[1].ecn == {}
    with pytest.raises(ConfigError, match=r"switches\.leaf1\.ports\.1\.ecn\.0\.kmax_bytes: missing"):
        set_ecn(config, "leaf1:1", 0, {"kmin": "1000"})
    with pytest.raises(ConfigError, match="kmix: '1': unknown key"):
        set_ecn(config, "leaf1:1", 0, {"kmix": "1"})


def test_percentages_sum_to_100() -> None:
    assert render.percentages([1, 1, 1]) == [34, 33, 33]
    assert render.percentages([40, 60, 0]) == [40, 60, 0]
    assert render.percentages([1, 2, 4]) == [14, 29, 57]
    assert render.percentages([0, 0]) == [0, 0]


async def test_watch_events_and_telemetry(fabric: tuple[Controller, FakeSwitch], lab: Path) -> None:
    """Two samples of a switch that counts nothing; then XOFF frames in between, and an alarm for them."""
    controller, switch = fabric
    code, out, err = await dcbctl("watch", "leaf1:1", "--once", "-n", "0.01")
    assert (code, err) == (0, "")
    head = "Port Peer Prio rx tx share XOFF rx/s XOFF tx/s paused queue B group B p99 delay CE/s drops state"
    assert [" ".join(line.split()) for line in out.splitlines()[1:]] == [
        *(head, "leaf1-eth1 h1 idle", "no alarm, no storm")
    ]
    code, out, _ = await dcbctl("show", "telemetry")
    assert code == 0
    assert out.splitlines()[-1] == "telemetry is off: key telemetry of the config (docs/telemetry.md)"

    array = controller.program.counter("pfc_rx_xoff")
    frames = 0

    def counter() -> None:
        entry = p4r.CounterEntry(counter_id=array.id, index=p4r.Index(index=1 * 8 + 3))
        entry.data.packet_count = frames
        entity = p4r.Entity(counter_entry=entry)
        switch.entities[("counter_entry", array.id, 11)] = entity

    counter()
    text = lab.read_text() + "telemetry: {interval_ms: 20, thresholds: {pfc_per_second: 100}}\n"
    lab.write_text(text)
    code, out, _ = await dcbctl("reload")
    assert (code, out) == (0, "leaf1: 0 updates\n")
    service = controller.telemetry
    await asyncio.wait_for(service.wait_round(service.snapshot.rounds), TIMEOUT)
    frames = 1000
    counter()
    while not service.snapshot.alarms:
        await asyncio.wait_for(service.wait_round(service.snapshot.rounds), TIMEOUT)
    while service.snapshot.alarms:
        await asyncio.wait_for(service.wait_round(service.snapshot.rounds), TIMEOUT)
    code, out, _ = await dcbctl("events", "--kind", "alarm")
    events = [json.loads(line) for line in out.splitlines()]
    told = [(e["metric"], e["where"], e["raised"], e["port"], e["threshold"]) for e in events if e["metric"] != "hops"]
    assert told == [("pfc_rate", "leaf1-eth1 priority 3 rx", raised, "leaf1-eth1", 100) for raised in (True, False)]
    code, out, _ = await dcbctl("show", "telemetry", "-j")
    state = json.loads(out)
    assert (state["on"], state["answered"], state["alarms"]) == (True, ["leaf1"], [])
    assert [row["metric"] for row in state["metrics"]] == ["pfc_rate", "latency", "recovery", "hops", "storm_control"]
    code, out, _ = await dcbctl("watch", "leaf1:1", "--once", "-j", "-n", "0.01")
    assert json.loads(out)["ports"][0]["priorities"][3]["pfc"] is True
    code, _, err = await dcbctl("events", "--kind", "dance")
    assert (code, err) == (
        2,
        "dcbctl: kinds: 'dance': one of alarm, watchdog, deadlock, dcbx, session is wanted\n",
    )
