#!/usr/bin/env python3
"""Plays the scenarios to BMv2's simple_switch_grpc and writes what came out as goldens.

For maintainers with BMv2 on the PATH and root: `python tests/bmv2/record.py [--output DIRECTORY] [scenario ...]`.
Everything runs in a network namespace that ends with the process: the switch with a veth pair for each port, and this
process, which sends a frame, then markers, and takes what comes out before the markers as the answer. BMv2 has one
thread for ingress and four for egress (port modulo four), each of which keeps order, so a marker through each of the
four and one to the controller, all of the lowest priority, close a packet without waiting for time to pass.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r, p4r_grpc
from google.protobuf import text_format

sys.path.insert(0, str(Path(__file__).resolve().parent))
from scenarios import CPU_PORT, SCENARIOS, Scenario, neighbour

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "p4src" / "build"
GOLDENS = Path(__file__).resolve().parent / "goldens"
SWITCH = "simple_switch_grpc"

PORTS = tuple(range(1, 9))
MARKER_IN = 64
MARKER_OUT = (65, 66, 67, 68)  # one for each egress thread
MARKER_TEXT = b"dcblab marker "
PATIENCE_S = 20.0
IN_NAMESPACE = "DCB_RECORD_IN_NAMESPACE"

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_AUXDATA = 8
TP_STATUS_VLAN_VALID = 1 << 4
PACKET_OUTGOING = 4


class RecordError(Exception):
    """BMv2 did not start, refused an entry, or did not answer."""


def bytes_of(value: int) -> bytes:
    """The shortest byte string, as P4Runtime asks."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


# --- P4Runtime ----------------------------------------------------------------------------------------------------


class Control:
    """A P4Runtime session of one switch: primary, one stream, packet-ins in a queue."""

    def __init__(self, address: str, p4info: Any, device_config: bytes) -> None:
        self.p4info = p4info
        self.tables = {table.preamble.name: table for table in p4info.tables}
        self.actions = {action.preamble.name: action for action in p4info.actions}
        self.channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self.channel).result(timeout=PATIENCE_S)
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.packet_ins: queue.Queue[bytes] = queue.Queue()
        self._requests: queue.Queue[Any] = queue.Queue()
        self._primary = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        self.election = p4r.Uint128(low=1)
        arbitration = p4r.MasterArbitrationUpdate(device_id=1, election_id=self.election)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        if not self._primary.wait(PATIENCE_S):
            raise RecordError("no answer to the arbitration")
        self.stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=1,
                election_id=self.election,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=device_config),
            )
        )

    def _listen(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for message in self.stub.StreamChannel(iter(self._requests.get, None)):
                if message.HasField("arbitration"):
                    self._primary.set()
                elif message.HasField("packet"):
                    self.packet_ins.put(self._with_header(message.packet))

    @staticmethod
    def _with_header(packet: Any) -> bytes:
        """The frame with the packet_in header in front that the program made: port 9 bits, priority 3, reason 4."""
        port, priority, reason = (int.from_bytes(m.value, "big") for m in packet.metadata[:3])
        return struct.pack(">H", port << 7 | priority << 4 | reason) + bytes(packet.payload)

    def packet_out(self, frame: bytes) -> None:
        """Sends a frame that starts with the packet_out header."""
        (header,) = struct.unpack(">H", frame[:2])
        packet = p4r.PacketOut(payload=frame[2:])
        for index, value in enumerate((header >> 7, header >> 4 & 7, header & 15)):
            packet.metadata.add(metadata_id=index + 1, value=bytes_of(value))
        self._requests.put(p4r.StreamMessageRequest(packet=packet))

    def close(self) -> None:
        self._requests.put(None)
        self.channel.close()

    def insert(self, *entities: Any) -> None:
        """Inserts, one request each so that an error names its entity."""
        for entity in entities:
            update = p4r.Update(type=p4r.Update.INSERT, entity=entity)
            request = p4r.WriteRequest(device_id=1, election_id=self.election, updates=[update])
            try:
                self.stub.Write(request)
            except grpc.RpcError as error:
                raise RecordError(f"{error}\n{text_format.MessageToString(entity)}") from error

    def read(self, entity: Any) -> Iterator[Any]:
        for response in self.stub.Read(p4r.ReadRequest(device_id=1, entities=[entity])):
            yield from response.entities

    def action(self, name: str, params: list[int]) -> Any:
        info = self.actions[name]
        action = p4r.Action(action_id=info.preamble.id)
        for param, value in zip(info.params, params, strict=True):
            action.params.add(param_id=param.id, value=bytes_of(value))
        return action

    def table_entry(self, entry: dict[str, Any]) -> Any:
        """A TableEntry of an entry as the goldens hold it."""
        table = self.tables[entry["table"]]
        result = p4r.TableEntry(table_id=table.preamble.id, priority=entry["priority"])
        kinds = p4i.MatchField.MatchType
        for field in table.match_fields:
            value = entry["match"][field.name]
            if field.match_type == kinds.EXACT:
                result.match.add(field_id=field.id).exact.value = bytes_of(value)
            elif field.match_type == kinds.LPM:
                lpm = result.match.add(field_id=field.id).lpm
                lpm.value, lpm.prefix_len = bytes_of(value[0]), value[1]
            elif field.match_type == kinds.TERNARY and value[1] != 0:
                ternary = result.match.add(field_id=field.id).ternary
                ternary.value, ternary.mask = bytes_of(value[0]), bytes_of(value[1])
            elif field.match_type == kinds.RANGE and value != [0, (1 << field.bitwidth) - 1]:
                between = result.match.add(field_id=field.id).range
                between.low, between.high = bytes_of(value[0]), bytes_of(value[1])
        if entry["member"] is not None:
            result.action.action_profile_member_id = entry["member"]
        elif entry["group"] is not None:
            result.action.action_profile_group_id = entry["group"]
        else:
            result.action.action.CopyFrom(self.action(entry["action"], entry["params"]))
        return result

    def load(self, scenario: Scenario) -> None:
        """Writes a scenario's members, groups, entries and clone sessions."""
        profile = self.p4info.action_profiles[0].preamble.id
        for member, params in scenario.members.items():
            action = self.action("ingress.forward", params)
            message = p4r.ActionProfileMember(action_profile_id=profile, member_id=member, action=action)
            self.insert(p4r.Entity(action_profile_member=message))
        for group, members in scenario.groups.items():
            grouping = p4r.ActionProfileGroup(action_profile_id=profile, group_id=group, max_size=16)
            for member in members:
                grouping.members.add(member_id=member, weight=1)
            self.insert(p4r.Entity(action_profile_group=grouping))
        for entry in scenario.entries:
            self.insert(p4r.Entity(table_entry=self.table_entry(asdict(entry))))
        for session, port in scenario.clone_sessions.items():
            clone = p4r.CloneSessionEntry(session_id=session)
            clone.replicas.add(egress_port=port, instance=1)
            replication = p4r.PacketReplicationEngineEntry(clone_session_entry=clone)
            self.insert(p4r.Entity(packet_replication_engine_entry=replication))


# --- ports --------------------------------------------------------------------------------------------------------


class Wire:
    """Our end of a port's veth pair."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # it hears nothing before it is bound
        self.socket.bind((f"out{port}", ETH_P_ALL))
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setblocking(False)

    def fileno(self) -> int:
        return self.socket.fileno()

    def received(self) -> bytes | None:
        """A frame from the switch, with the tag that the kernel took out put back; None where there was none."""
        try:
            frame, ancillary, _, address = self.socket.recvmsg(65536, 256)
        except BlockingIOError:
            return None
        if address[2] == PACKET_OUTGOING:
            return None
        for level, kind, data in ancillary:
            if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", data[:20])
                if status & TP_STATUS_VLAN_VALID:
                    frame = frame[:12] + struct.pack(">HH", tpid, tci) + frame[12:]
        return frame


def make_ports() -> None:
    """A veth pair for each port: in<port> for the switch, out<port> for us. IPv6 is off, or the kernel would talk."""
    for scope in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
    commands = ["link set lo up"]
    for port in (*PORTS, MARKER_IN, *MARKER_OUT):
        commands.append(f"link add in{port} type veth peer name out{port}")
        commands += [f"link set {name}{port} up" for name in ("in", "out")]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


# --- a scenario ---------------------------------------------------------------------------------------------------


def marker(address: int, number: int) -> bytes:
    """A routable frame that carries its number: IPv4 to 192.0.2.<address>, protocol 253 (for experiments)."""
    body = MARKER_TEXT + struct.pack(">I", number)
    destination = bytes((192, 0, 2, address))
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, 253, 0, bytes(4), destination)
    total = sum(struct.unpack(">10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack(">H", ~total & 0xFFFF) + header[12:]
    return bytes.fromhex("020000000001020000000002") + b"\x08\x00" + header + body


PUNTED = 100  # marker address that is punted


def load_markers(control: Control) -> None:
    profile = control.p4info.action_profiles[0].preamble.id
    for port in MARKER_OUT:
        member = p4r.ActionProfileMember(
            action_profile_id=profile,
            member_id=port,
            action=control.action("ingress.forward", [port, neighbour(port)]),
        )
        control.insert(p4r.Entity(action_profile_member=member))
    base: dict[str, Any] = {"priority": 0, "member": None, "group": None, "action": None, "params": []}
    prefix = 192 << 24 | 2 << 8
    for port in MARKER_OUT:
        hop = {**base, "table": "ingress.nexthop", "match": {"nexthop": 1000 + port}, "member": port}
        route = {**base, "table": "ingress.ipv4_lpm", "match": {"dst": [prefix | port, 32]}}
        route |= {"action": "ingress.route", "params": [1000 + port]}
        control.insert(*(p4r.Entity(table_entry=control.table_entry(entry)) for entry in (hop, route)))
    punt = {**base, "table": "ingress.ipv4_lpm", "match": {"dst": [prefix | PUNTED, 32]}, "action": "ingress.punt"}
    control.insert(p4r.Entity(table_entry=control.table_entry(punt)))


class Player:
    """Sends a packet and collects its answers; counts its markers so that they can be taken out of the counters."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.wires = {port: Wire(port) for port in (*PORTS, MARKER_IN, *MARKER_OUT)}
        self.number = 0
        self.marker_counts: Counter[tuple[str, int]] = Counter()
        self.marker_bytes: Counter[tuple[str, int]] = Counter()

    def close(self) -> None:
        for wire in self.wires.values():
            wire.socket.close()

    def play(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Port and frame of everything that left because of this frame, by port, in order within a port."""
        self.number += 1
        answers: list[tuple[int, bytes]] = []
        waiting = {*MARKER_OUT, CPU_PORT}
        if port == CPU_PORT:
            # Markers in the same stream, so behind the packet-out; the last one follows when it has passed.
            self.control.packet_out(frame)
            for out in MARKER_OUT:
                text = struct.pack(">H", out << 7) + marker(out, self.number)
                self.control.packet_out(text)
                self._note(("ingress.rx", CPU_PORT * 8), len(text))
            self._collect(waiting, answers, {CPU_PORT})
        else:
            self.wires[port].socket.send(frame)
            for out in MARKER_OUT:
                self.wires[MARKER_IN].socket.send(marker(out, self.number))
        punted = marker(PUNTED, self.number)
        self.wires[MARKER_IN].socket.send(punted)
        self._note(("egress.tx", CPU_PORT * 8), len(punted))
        self._collect(waiting, answers, set())
        return sorted(answers, key=lambda answer: answer[0])

    def _note(self, cell: tuple[str, int], length: int) -> None:
        self.marker_counts[cell] += 1
        self.marker_bytes[cell] += length

    def _collect(self, waiting: set[int], answers: list[tuple[int, bytes]], until: set[int]) -> None:
        """Takes frames until no marker but those of `until` is awaited and no frame is left."""
        deadline = time.monotonic() + PATIENCE_S
        idle = False
        while waiting - until or not idle:
            if time.monotonic() > deadline:
                raise RecordError(f"packet {self.number}: nothing came out of {sorted(waiting)}")
            got: list[tuple[int, bytes]] = []
            with contextlib.suppress(queue.Empty):
                while True:
                    got.append((CPU_PORT, self.control.packet_ins.get_nowait()))
            for wire in select.select(list(self.wires.values()), [], [], 0.001)[0]:
                if (frame := wire.received()) is not None:
                    got.append((wire.port, frame))
            idle = not got
            for out, frame in got:
                at = frame.find(MARKER_TEXT)
                if at < 0:
                    answers.append((out, frame))
                elif struct.unpack(">I", frame[at + len(MARKER_TEXT) :])[0] == self.number:
                    waiting.discard(out)


def counters(control: Control, player: Player) -> dict[str, dict[str, list[int]]]:
    """Cells of the program's counters that are not 0, less the markers: name -> index -> [packets, bytes]."""
    result: dict[str, dict[str, list[int]]] = {}
    for counter in control.p4info.counters:
        name = counter.preamble.name
        if name.startswith("egress.tm_"):
            continue
        cells = result.setdefault(name, {})
        for entity in control.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter.preamble.id))):
            index, data = entity.counter_entry.index.index, entity.counter_entry.data
            packets = data.packet_count - player.marker_counts[name, index]
            octets = data.byte_count - player.marker_bytes[name, index]
            markers_only = MARKER_IN * 8 <= index < CPU_PORT * 8
            if packets and not markers_only:
                cells[str(index)] = [packets, octets]
    return result


def acl_hits(control: Control, entries: list[dict[str, Any]]) -> list[list[int]]:
    """Packets and bytes of each ACL entry, in the order of the entries."""
    result = []
    for entry in entries:
        if entry["table"] == "ingress.acl":
            query = p4r.DirectCounterEntry(table_entry=control.table_entry(entry))
            (entity,) = control.read(p4r.Entity(direct_counter_entry=query))
            data = entity.direct_counter_entry.data
            result.append([data.packet_count, data.byte_count])
    return result


@contextlib.contextmanager
def running_switch(executable: str) -> Iterator[str]:
    """The switch on our ports; its gRPC address."""
    address = "127.0.0.1:9559"
    ports = [f"-i{port}@in{port}" for port in (*PORTS, MARKER_IN, *MARKER_OUT)]
    command = [executable, "--device-id", "1", "--no-p4", "--log-level", "warn", *ports, "--"]
    command += ["--grpc-server-addr", address, "--cpu-port", str(CPU_PORT)]
    command += ["--drop-port", "511", "--priority-queues", "8"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield address
        except Exception as error:
            log.seek(0)
            said = log.read().decode(errors="replace")[-4000:]
            raise RecordError(f"{error}\n{executable} said:\n{said}") from error
        finally:
            process.kill()
            process.wait()


def meaning_sha256(json_text: str) -> str:
    """As p4src/build.py computes it."""
    spec = importlib.util.spec_from_file_location("dcb_p4_build", REPOSITORY / "p4src" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.meaning_sha256(json_text))


def record(scenario: Scenario, executable: str) -> dict[str, Any]:
    """A golden: the scenario, what the switch answered to each packet, and its counters."""
    json_text = (BUILD / "dcb.json").read_text()
    p4info = text_format.Parse((BUILD / "dcb.p4info.txtpb").read_text(), p4i.P4Info())
    entries = [asdict(entry) for entry in scenario.entries]
    with running_switch(executable) as address:
        control = Control(address, p4info, json_text.encode())
        player = Player(control)
        try:
            control.load(scenario)
            load_markers(control)
            packets = []
            for packet in scenario.packets:
                answers = player.play(packet.port, packet.frame)
                packets.append(
                    {
                        "name": packet.name,
                        "port": packet.port,
                        "frame": packet.frame.hex(),
                        "answers": [{"port": port, "frame": frame.hex()} for port, frame in answers],
                    }
                )
            version = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout
            return {
                "recorded_from": f"{Path(executable).name} {version.strip()}",
                "program_sha256": meaning_sha256(json_text),
                "members": {str(member): params for member, params in scenario.members.items()},
                "groups": {str(group): members for group, members in scenario.groups.items()},
                "clone_sessions": {str(session): port for session, port in scenario.clone_sessions.items()},
                "entries": entries,
                "packets": packets,
                "counters": counters(control, player),
                "acl_hits": acl_hits(control, entries),
            }
        finally:
            player.close()
            control.close()


def dumped(golden: dict[str, Any]) -> str:
    """A golden as text: one line for each entry and packet."""
    lines = []
    for key, value in golden.items():
        if isinstance(value, list) and value:
            inner = ",\n".join("  " + json.dumps(item) for item in value)
            lines.append(f' "{key}": [\n{inner}\n ]')
        elif isinstance(value, dict) and key == "counters":
            inner = ",\n".join(f'  "{name}": {json.dumps(cells)}' for name, cells in value.items())
            lines.append(f' "{key}": {{\n{inner}\n }}')
        else:
            lines.append(f' "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Records the scenarios named, or all; exit code 1 where BMv2 fails, 2 where it is missing or we are not root."""
    parser = argparse.ArgumentParser(description="Record goldens from BMv2 (needs simple_switch_grpc and root).")
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"of {', '.join(SCENARIOS)} (default: all)")
    parser.add_argument("--output", type=Path, default=GOLDENS, help="directory (default: %(default)s)")
    parser.add_argument("--switch", default=SWITCH, help="another switch with its flags (default: %(default)s)")
    arguments = parser.parse_args()
    names = arguments.scenarios or list(SCENARIOS)
    if unknown := [name for name in names if name not in SCENARIOS]:
        parser.error(f"scenario {unknown[0]!r}: not one of {', '.join(SCENARIOS)}")
    if shutil.which(arguments.switch) is None:
        parser.error(f"{arguments.switch}: not on the PATH")
    if os.geteuid() != 0:
        parser.error("needs root, for a network namespace of its own")
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, __file__, *sys.argv[1:]])
    arguments.output.mkdir(parents=True, exist_ok=True)
    make_ports()
    for name in names:
        try:
            golden = record(SCENARIOS[name](), arguments.switch)
        except RecordError as error:
            print(f"record.py: {name}: {error}", file=sys.stderr)
            return 1
        (arguments.output / f"{name}.json").write_text(dumped(golden))
        answered = sum(1 for packet in golden["packets"] if packet["answers"])
        print(f"{name}: {len(golden['packets'])} packets, {answered} answered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
