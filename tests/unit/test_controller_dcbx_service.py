"""DCBX through P4Runtime: LLDP in packet-ins and -outs of a server, `dcbctl dcbx`, and entries that follow."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from controller_fakes import FakeSwitch, serving
from dcbx_fabric import SOURCE, config, host, switch
from finsy.proto import p4r
from typer.testing import CliRunner

from controller import Controller, P4Program
from controller.cli import app
from controller.codec import decode_int, encode_int
from controller.config import Config
from controller.daemon import ControlServer, control_socket
from dcb.dcbx.port import DcbxPort
from dcb.dcbx.settings import DcbxSettings

TIMEOUT = 20.0
PROGRAM = P4Program.load()


class Wire:
    """A host at port 1 of the fake switch; what both say is carried on request."""

    def __init__(self, fake: FakeSwitch, port: DcbxPort) -> None:
        self.fake, self.port, self.taken, self.skipped_ns = fake, port, 0, 0
        self.heard: list[tuple[int, int, bytes]] = []  # egress port, queue, frame
        port.set_link(True, self.now_ns)

    @property
    def now_ns(self) -> int:
        return time.monotonic_ns() + self.skipped_ns

    async def carry(self) -> None:
        """What has been said, each way, once."""
        names = {field.id: field.name for field in PROGRAM.packet_out}
        while self.taken < len(self.fake.packets_out):
            packet = self.fake.packets_out[self.taken]
            self.taken += 1
            meta = {names[item.metadata_id]: decode_int(item.value) for item in packet.metadata}
            self.heard.append((meta["egress_port"], meta["queue"], packet.payload))
            if meta["egress_port"] == 1:
                self.port.receive(packet.payload, self.now_ns)
        self.port.handle_timer(self.now_ns)
        for frame in self.port.frames_to_send(self.now_ns):
            await self.punt(1, frame)

    async def punt(self, port: int, frame: bytes, reason: int = 0) -> None:
        """A packet-in to the primary."""
        values = {"ingress_port": port, "priority": 0, "reason": reason}
        metadata = [
            p4r.PacketMetadata(metadata_id=field.id, value=encode_int(values.get(field.name, 0)))
            for field in PROGRAM.packet_in
        ]
        message = p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=frame, metadata=metadata))
        await self.fake.streams[self.fake.highest].write(message)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not true():
                await self.carry()
                await asyncio.sleep(0.01)


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("DCBLAB_RUN", str(tmp_path))
    leaf = switch(1, {1: ("leaf1-eth1", {"role": "auto-downstream"}), 2: ("leaf1-eth2", SOURCE)})
    leaf["address"] = f"unix:{tmp_path / 'leaf1.sock'}"
    leaf["dcbx"]["management_address"] = "10.0.0.1"
    return config({"leaf1": leaf})


@pytest.fixture
async def fake(tmp_path: Path, conf: Config) -> AsyncIterator[FakeSwitch]:
    fake = FakeSwitch()
    async with serving(fake, tmp_path / "leaf1.sock"):
        yield fake


async def dcbctl(*words: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["dcbx", *words])
    return result.exit_code, result.stdout, result.stderr


async def ask(**params: object) -> dict[str, Any]:
    """One request on the control socket, beside others: CliRunner can run only one command at a time."""
    reader, writer = await asyncio.open_unix_connection(str(control_socket("lab")))
    writer.write(json.dumps({"method": "dcbx", "params": params}).encode() + b"\n")
    answer = json.loads(await asyncio.wait_for(reader.readline(), 2 * TIMEOUT))
    writer.close()
    assert answer["ok"], answer
    result: dict[str, Any] = answer["result"]
    return result


async def test_a_host_is_agreed_with_and_the_switch_follows(fake: FakeSwitch, conf: Config) -> None:
    wire = Wire(fake, host("h1-eth0", "02:00:00:00:00:01"))
    async with Controller(conf, p4=PROGRAM) as controller, ControlServer(controller, control_socket("lab"), None):
        await controller.wait_synced(TIMEOUT)
        await wire.until(lambda: controller.running.switches["leaf1"].ports[1].pfc == [3])
        await controller.wait_synced(TIMEOUT)
        assert wire.port.operational.pfc_agreed == 0b1000
        port, queue, frame = wire.heard[0]
        assert (port in (1, 2), queue) == (True, 7)
        assert frame[:6] == bytes.fromhex("0180c200000e")
        assert frame[6:12] == bytes.fromhex(f"0201000001{port:02x}")
        assert {port for port, _, _ in wire.heard} == {1, 2}

        code, out, err = await dcbctl("show", "leaf1:1")
        assert (code, err) == (0, "")
        assert out.startswith("leaf1-eth1 (leaf1:1)  02:01:00:00:01:01  link up  mode ieee (auto: ")
        assert (
            "role auto-downstream: runs what leaf1-eth2 runs; source of leaf1: leaf1-eth2 (configuration-source" in out
        )
        assert "neighbour 02:00:00:00:00:01 h1-eth0 (h1-eth0), 02:00:00:00:00:01, TTL 121 s" in out
        rows = [line.split() for line in out.splitlines()]
        assert ["PFC", "local", "no", "3"] in rows
        assert ["remote", "yes", "3"] in rows
        assert ["lossless", "3"] in rows

        view = json.loads((await dcbctl("show", "-j"))[1])
        assert view["sources"]["leaf1"]["source"] == "leaf1-eth2"
        first, second = view["ports"]
        assert first["operational"]["pfc"] == {
            "enabled": [3],
            "lossless": [3],
            "state": "Init",
            "why": "not willing",
        }
        assert first["data_plane"] == {"pfc": [3], "synced": True}
        assert second["neighbors"] == []

        _, out, _ = await dcbctl("show", "leaf1:1", "--format", "dcb")
        assert "prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off " in out.splitlines()
        _, out, _ = await dcbctl("show", "leaf1:1", "--format", "lldptool", "--local")
        assert "\tIPv4: 10.0.0.1" in out.splitlines()
        assert "\t PFC enabled: 3 " in out.splitlines() or "\t PFC enabled: 3" in out.splitlines()

        # nobody is at port 2: that link does not agree, and says why
        code, out, _ = await dcbctl("mismatch")
        assert code == 1
        assert out.splitlines()[0] == "leaf1-eth2: does not agree"
        assert "leaf1-eth1" not in out
        code, out, _ = await dcbctl("mismatch", "leaf1:1")
        assert (code, out) == (0, "1 links, all agree\n")

        # PFC moves at the source; the port and its host follow
        events = await ask(what="events", target="leaf1:1")
        watching = asyncio.create_task(ask(what="events", target="leaf1:1", seen=events["seen"], wait_s=TIMEOUT))
        code, _, err = await dcbctl("set", "pfc", "leaf1:2", "4")
        assert (code, err) == (0, "")
        await wire.until(lambda: controller.running.switches["leaf1"].ports[1].pfc == [4])
        assert "PFC 3 (lossless 3) -> 4" in next(event["text"] for event in (await watching)["events"])
        events = [
            json.loads(line) for line in (await dcbctl("watch", "--history", "--duration", "0", "-j"))[1].splitlines()
        ]
        told = [event["text"] for event in events if event["port"] == "leaf1-eth1" and event["kind"] == "operational"]
        assert told[-2:] == [
            "PFC 3 (lossless 3) -> 4 (lossless none): not willing",
            "PFC 4 (lossless none) -> 4 (lossless 4): not willing",
        ]
        code, out, err = await dcbctl("show", "leaf2")
        assert (code, "switch 'leaf2': not in the config" in err) == (2, True)
        code, _, err = await dcbctl("set", "pfc", "leaf1:2", "9")
        assert (code, "pfc.0: 9: Input should be less than or equal to 7" in err) == (2, True)
        code, _, err = await dcbctl("show", "--format", "xml")
        assert (code, err) == (2, "dcbctl: format: 'xml': one of table, lldptool, dcb is wanted\n")
        said = len(fake.packets_out)
    # the clean end: TTL 0 on both ports
    goodbyes = [packet.payload for packet in fake.packets_out[said:]]
    assert len(goodbyes) == 2
    for frame in goodbyes:
        wire.port.receive(frame, wire.now_ns)
    assert wire.port.lldp.neighbors == ()
    assert wire.port.operational.pfc_enable == 0


async def test_frames_that_are_not_lldps_business_are_left_alone(fake: FakeSwitch, conf: Config) -> None:
    seen = []
    wire = Wire(fake, host("h1-eth0", "02:00:00:00:00:01"))
    async with Controller(conf, p4=PROGRAM, packet_handler=lambda name, packet: seen.append(packet)) as controller:
        await controller.wait_synced(TIMEOUT)
        [frame] = wire.port.frames_to_send(wire.now_ns)
        await wire.punt(1, frame, reason=2)  # an ACL's
        await wire.punt(77, frame)  # a port that is not configured
        await wire.punt(1, b"\x01\x80\xc2\x00\x00\x0e" + b"\xff" * 60)
        await wire.punt(1, frame[:30])
        async with asyncio.timeout(TIMEOUT):
            while len(seen) < 4:
                await asyncio.sleep(0.01)
        port = controller.dcbx.agents["leaf1"].port(1)
        assert port.lldp.neighbors == ()
        assert port.lldp.counters.stats_frames_discarded_total == 1
        await wire.punt(1, frame)
        await wire.until(lambda: len(port.lldp.neighbors) == 1)
        assert len(seen) >= 5  # the handler of the controller's owner sees them too


async def test_a_controller_that_starts_again_writes_nothing(fake: FakeSwitch, conf: Config) -> None:
    wire = Wire(fake, host("h1-eth0", "02:00:00:00:00:01"))
    async with Controller(conf, p4=PROGRAM) as controller:
        await controller.wait_synced(TIMEOUT)
        await wire.until(lambda: controller.running.switches["leaf1"].ports[1].pfc == [3])
        await controller.wait_synced(TIMEOUT)
        for agent in controller.dcbx.agents.values():
            agent.active = False  # it dies: no goodbye
    fake.writes.clear()
    changes = wire.port.counters.state_changes
    async with Controller(conf, p4=PROGRAM, election_id=101) as controller:
        await controller.wait_synced(TIMEOUT)
        agent = controller.dcbx.agents["leaf1"]
        assert agent.holding
        assert controller.running.switches["leaf1"].ports[1].pfc == [3]
        wire.skipped_ns = 31_000_000_000
        await wire.until(lambda: bool(agent.port(1).remotes))
        await controller.wait_synced(TIMEOUT)
        assert controller.running.switches["leaf1"].ports[1].pfc == [3]
        assert fake.writes == []
        assert wire.port.counters.state_changes == changes


async def test_who_refuses_stays_lossy(fake: FakeSwitch, conf: Config) -> None:
    wire = Wire(fake, host("h1-eth0", "02:00:00:00:00:01", DcbxSettings(pfc_enable=1 << 5)))
    async with Controller(conf, p4=PROGRAM) as controller, ControlServer(controller, control_socket("lab"), None):
        await controller.wait_synced(TIMEOUT)
        await wire.until(lambda: bool(controller.dcbx.agents["leaf1"].port(1).remotes))
        assert controller.running.switches["leaf1"].ports[1].pfc == []
        code, out, _ = await dcbctl("mismatch", "leaf1:1")
        assert code == 1
        assert "mismatch: pfc: here 3, there 5: neither end is willing" in out


async def test_a_switch_that_gets_dcbx_by_a_change_of_the_config_speaks_it(fake: FakeSwitch, conf: Config) -> None:
    leaf = conf.switches["leaf1"]
    ports = {n: port.model_copy(update={"dcbx": None}) for n, port in leaf.ports.items()}
    without = conf.model_copy(update={"switches": {"leaf1": leaf.model_copy(update={"dcbx": None, "ports": ports})}})
    wire = Wire(fake, host("h1-eth0", "02:00:00:00:00:01"))
    async with Controller(without, p4=PROGRAM) as controller:
        await controller.wait_synced(TIMEOUT)
        assert controller.dcbx.agents == {}
        await controller.apply(conf)
        await wire.until(lambda: controller.running.switches["leaf1"].ports[1].pfc == [3])
