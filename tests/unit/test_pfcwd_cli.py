"""`dcbctl pfcwd` and the watchdog's service over gRPC, on a switch that only remembers (test_pfcwd_cli of sonic-mgmt).

`StormySwitch` plays port 1 of a switch: a peer that pauses a priority while a packet waits. What real queues do is
tested in tests/fabric.
"""
# ruff: noqa: E501 (tables as they are printed)

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from controller_fakes import CONFIG, FakeSwitch, serving
from finsy.proto import p4r
from typer.testing import CliRunner

from controller import Controller, P4Program
from controller.cli import app
from controller.codec import Codec, encode_int
from controller.config import load
from controller.daemon import ControlServer, control_socket
from controller.entries import Action, TableEntry
from dcb.watchdog import Traffic

TIMEOUT = 20.0
PROGRAM = P4Program.load()
CODEC = Codec(PROGRAM)
Pair = tuple[int, int]


class StormySwitch(FakeSwitch):
    """Counters and registers of (port, priority): while one is stormed, its peer sends XOFF and a packet waits."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict[tuple[str, int], int] = {}
        self.stormed: dict[Pair, float] = {}  # its pause time is counted up to here

    def storm(self, pair: Pair) -> None:
        self.stormed[pair] = time.monotonic()
        self._add("tm_pause_count", pair, 1)

    def calm(self, pair: Pair) -> None:
        del self.stormed[pair]

    def _add(self, name: str, pair: Pair, value: int) -> None:
        index = pair[0] * 8 + pair[1]
        self.cells[name, index] = self.cells.get((name, index), 0) + value

    def storms(self) -> dict[Pair, str]:
        """The tm_storm entries."""
        found = {}
        for message in self.entities.values():
            if message.WhichOneof("entity") == "table_entry":
                entry = CODEC.decode(message)
                if isinstance(entry, TableEntry) and entry.table == "egress.tm_storm":
                    assert isinstance(entry.action, Action)
                    fields = dict(entry.match)
                    found[fields["port"], fields["priority"]] = entry.action.name.rpartition(".")[2]
        return found

    def _value(self, name: str, index: int) -> int:
        pair, held = divmod(index, 8), self.storms()
        if name == "tm_storm_state":
            return 2 * int(pair in held)
        paused = pair in self.stormed and pair not in held
        if name == "pfc_rx_xoff" and pair in self.stormed:
            self._add(name, pair, 1)  # one came since the last look
        if name == "tm_paused_ns" and paused:
            since, self.stormed[pair] = self.stormed[pair], time.monotonic()
            self._add(name, pair, int((self.stormed[pair] - since) * 1e9))
        if name in ("tm_pause_left", "tm_queue_depth") and paused:
            return 1
        return self.cells.get((name, index), 0)

    def _matching(self, wanted: p4r.Entity) -> list[p4r.Entity]:
        answer = p4r.Entity()
        answer.CopyFrom(wanted)
        if wanted.WhichOneof("entity") == "counter_entry":
            [name] = [c.name for c in PROGRAM.counters.values() if c.id == wanted.counter_entry.counter_id]
            value = self._value(name.rpartition(".")[2], wanted.counter_entry.index.index)
            answer.counter_entry.data.packet_count = value
            return [answer]
        if wanted.WhichOneof("entity") == "register_entry":
            [name] = [r.name for r in PROGRAM.registers.values() if r.id == wanted.register_entry.register_id]
            value = self._value(name.rpartition(".")[2], wanted.register_entry.index.index)
            answer.register_entry.data.bitstring = encode_int(value)
            return [answer]
        return super()._matching(wanted)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DCBLAB_RUN", str(tmp_path))
    path = tmp_path / "lab.yaml"
    path.write_text(CONFIG.replace("ADDRESS", str(tmp_path / "leaf1.sock")))
    return path


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[StormySwitch]:
    fake = StormySwitch()
    async with serving(fake, tmp_path / "leaf1.sock"):
        yield fake


async def dcbctl(*words: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["pfcwd", *words])
    return result.exit_code, result.stdout, result.stderr


async def good(*words: str) -> str:
    code, out, err = await dcbctl(*words)
    assert (code, err) == (0, ""), err
    return out


async def event(controller: Controller, kind: str) -> str:
    """Wait for one, and return its text."""
    service = controller.watchdog
    async with asyncio.timeout(TIMEOUT):
        while True:
            for found in service.switches["leaf1"].agent.log:
                if found.kind == kind:
                    await service.wait_applied(TIMEOUT)
                    return found.text
            await service.wait_news({"leaf1": service.switches["leaf1"].agent.logged}, TIMEOUT)


async def counted(controller: Controller, last: Traffic) -> None:
    """Wait until the newest storm of priority 3 of port 1 has these packets."""
    machine = controller.watchdog.switches["leaf1"].agent.watches[1, 3].machine
    async with asyncio.timeout(TIMEOUT):
        while machine.stats.last != last:
            await asyncio.sleep(0.02)


async def test_pfcwd_show_and_clear_of_a_storm(fake: StormySwitch, path: Path) -> None:
    async with Controller(load(path), p4=PROGRAM) as controller, ControlServer(controller, control_socket("lab"), path):
        await controller.wait_synced(TIMEOUT)
        await good("interval", "100")
        out = await good("start", "-a", "drop", "-r", "300", "leaf1", "100", "--save")
        skipped = [f"SKIPPED: PFC is not enabled on port: leaf1-eth{n}" for n in (2, 3)]
        assert out.splitlines() == [*skipped, "leaf1: 0 updates"]
        saved = load(path)
        assert saved.pfc_watchdog.poll_interval_ms == 100
        assert saved.switches["leaf1"].ports[1].pfc_watchdog is not None
        code, _, err = await dcbctl("interval", "200")
        assert (code, err.splitlines()[0]) == (
            2,
            "dcbctl: pfcwd interval: unable to use polling interval = 200ms, value is bigger than one "
            "of the configured times",
        )
        assert await good("show", "config") == (
            "Changed polling interval to 100ms\n"
            "      PORT    ACTION    DETECTION TIME    RESTORATION TIME    HISTORY    PRIORITIES    MODE    EMPTY QUEUE\n"
            "----------  --------  ----------------  ------------------  ---------  ------------  ------  -------------\n"
            "leaf1-eth1      drop               100                 300     enable             3    poll        disable\n"
        )
        assert len((await good("show", "stats")).splitlines()) == 2
        assert (await good("show", "stats", "-e")).splitlines()[2].split()[:3] == ["leaf1-eth1:3", "operational", "0/0"]

        fake.cells["tx", 11] = 1000
        fake.storm((1, 3))
        assert await event(controller, "storm") == (
            "PFC Watchdog detected PFC storm on port leaf1-eth1, queue index 3, priority 3, action drop"
        )
        assert fake.storms() == {(1, 3): "tm_storm_drop"}
        fake.cells["tm_drop_storm_tx", 11] = 200
        fake.cells["rx", 11], fake.cells["tm_drop_storm_rx", 11] = 70, 70
        await counted(controller, Traffic(tx_drop=200, rx_drop=70))
        code, out, err = await dcbctl("show", "stats", "--check-storm")
        assert (code, err) == (1, "")
        assert out == (
            "       QUEUE    STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP    TX LAST OK/DROP    RX LAST OK/DROP\n"
            "------------  --------  -------------------------  ------------  ------------  -----------------  -----------------\n"
            "leaf1-eth1:3   stormed                        1/0         0/200          0/70              0/200               0/70\n"
        )
        code, _, err = await dcbctl("clear")
        assert (code, err) == (
            1,
            "dcbctl: pfcwd clear: leaf1-eth1:3: stormed now; nothing is cleared until it is restored\n",
        )

        fake.calm((1, 3))
        assert (await event(controller, "restored")).startswith("PFC Watchdog storm restored on port leaf1-eth1, ")
        assert fake.storms() == {}
        assert (await dcbctl("show", "stats", "--check-storm"))[0] == 0
        assert (await good("watch", "--history", "--duration", "0", "-j")).count('"kind"') == 2
        await good("clear", "leaf1")
        [cleared] = json.loads(await good("show", "stats", "leaf1:1", "-e", "-j"))["queues"]
        assert (cleared["detected"], cleared["restored"], cleared["tx_drop"]) == (0, 0, 0)
        history = (await good("history")).splitlines()
        assert history[0].split("  ")[-1].strip() == "RECENT RX PAUSE TIMESTAMP"
        assert history[2].split()[:3] == ["leaf1-eth1", "3", "1"]


async def test_stop_while_stormed_takes_its_mitigation_back(fake: StormySwitch, path: Path) -> None:
    """sonic-swss #4667: what is left after `pfcwd stop` blackholes after the next restart."""
    async with Controller(load(path), p4=PROGRAM) as controller, ControlServer(controller, control_socket("lab"), path):
        await controller.wait_synced(TIMEOUT)
        await good("interval", "100")
        await good("start", "-a", "forward", "leaf1:1", "100")
        fake.storm((1, 3))
        await event(controller, "storm")
        assert fake.storms() == {(1, 3): "tm_storm_forward"}
        await good("stop")
        assert fake.storms() == {}
        assert (await event(controller, "stopped")).startswith(
            "PFC Watchdog stopped, mitigation ends on port leaf1-eth1"
        )
        await good("big-red-switch", "enable")
        assert fake.storms() == {(1, 3): "tm_storm_drop"}
        assert "BIG_RED_SWITCH: enable" in await good("show", "config")
        await good("big-red-switch", "disable")
        assert fake.storms() == {}


async def test_a_controller_that_starts_in_a_storm_takes_it_over(fake: StormySwitch, path: Path) -> None:
    """test_pfcwd_warm_reboot: storm over a restart. Not detected again; restored when it ends; others' entries go."""
    text = path.read_text() + "pfc_watchdog: {poll_interval_ms: 100, defaults: {detection_time_ms: 100}}\n"
    path.write_text(text.replace("pfc: [3]", "pfc: [3], pfc_watchdog: {}"))
    async with Controller(load(path), p4=PROGRAM) as first:
        await first.wait_synced(TIMEOUT)
        fake.storm((1, 3))
        await event(first, "storm")
        async with Controller(load(path), p4=PROGRAM, election_id=50) as backup:
            await asyncio.wait_for(backup.session("leaf1").wait_settled(), TIMEOUT)
            assert not backup.watchdog.switches["leaf1"].primary
    assert fake.storms() == {(1, 3): "tm_storm_drop"}  # a controller that ends leaves it
    writes = len(fake.updates())
    async with Controller(load(path), p4=PROGRAM, election_id=101) as second:
        assert (await event(second, "taken over")).startswith("PFC Watchdog took over a PFC storm on port leaf1-eth1")
        machine = second.watchdog.switches["leaf1"].agent.watches[1, 3].machine
        assert (machine.stormed, machine.stats.detected) == (True, 1)
        await second.wait_synced(TIMEOUT)
        assert len(fake.updates()) == writes
        fake.calm((1, 3))
        await event(second, "restored")
        assert (fake.storms(), machine.stats.detected) == ({}, 1)

    # what a controller left that watches no more is taken away
    fake.storm((1, 3))
    async with Controller(load(path), p4=PROGRAM, election_id=102) as third:
        await event(third, "storm")
    path.write_text(text)
    async with Controller(load(path), p4=PROGRAM, election_id=103) as fourth:
        await fourth.wait_synced(TIMEOUT)
        await fourth.watchdog.wait_applied(TIMEOUT)
        assert fake.storms() == {}


async def test_a_switch_that_refuses_is_asked_again(fake: StormySwitch, path: Path) -> None:
    text = path.read_text() + "pfc_watchdog: {poll_interval_ms: 100, defaults: {detection_time_ms: 100}}\n"
    path.write_text(text.replace("pfc: [3]", "pfc: [3], pfc_watchdog: {}"))
    storm_table = PROGRAM.table("egress.tm_storm").id
    refused: list[p4r.Update] = []

    def refuse(update: p4r.Update) -> str | None:
        if update.entity.table_entry.table_id == storm_table and len(refused) < 2:
            refused.append(update)
            return "not now"
        return None

    fake.refuse = refuse
    async with Controller(load(path), p4=PROGRAM) as controller:
        await controller.wait_synced(TIMEOUT)
        fake.storm((1, 3))
        await event(controller, "storm")
        async with asyncio.timeout(TIMEOUT):
            while fake.storms() != {(1, 3): "tm_storm_drop"}:
                await asyncio.sleep(0.02)
        assert controller.watchdog.switches["leaf1"].agent.watches[1, 3].machine.stats.detected == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["start", "400"], "dcbctl: pfcwd start: SWITCH[:PORT] and DETECTION_TIME are wanted"),
        (["start", "leaf1", "soon"], "dcbctl: detection_time_ms: 'soon': a number of milliseconds is wanted"),
        (["interval", "soon"], "Invalid value for 'POLL_INTERVAL'"),
        (["big-red-switch"], "Missing argument"),
    ],
)
async def test_wrong_use(words: list[str], message: str) -> None:
    code, _, err = await dcbctl(*words)
    assert (code, message in err) == (2, True), err
