"""The fuzzer's cases on BMv2: simple_switch beside our switch core, frames compared port by port and in order.

BMv2 is a process on veth pairs in a network namespace that ends with this one; tables are filled over Thrift. It cannot
be asked whether it is done, so tables come first, then the packets, a moment apart, and a difference counts when it
shows a second time. Left out is what BMv2 does by its own clock or has no rule for: meters, waiting, entries of the
same priority, members of unequal weight, ports that are not there, frames that veth does not carry. What our switch
refuses (a profile that is full; BMv2 knows no size) is not asked of BMv2.
"""

from __future__ import annotations

import os
import random
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from switch.api import ActionCall, EntryAction, KeyMatch, MatchKind, MemberRef
from switch.loader import load
from switch.model import Program
from tests.stf.binding import tables
from tests.stf.engines import Copies, NativeEngine
from tests.stf.grammar import Replication, StfError, parse
from tests.stf.runner import Difference, Runner
from topologies.thrift import I32, I64, LIST, STRING, STRUCT, Argument, Client, ThriftError

from . import generate, shrink
from .programs import Subject

EXCLUDED = {
    "dcb": "needs our traffic manager",
    "state": "registers of times, random numbers",
    "stf/checks": "BMv2 ends itself when an assert fails",
    "stf/meters": "colours by the time of day",
}
PACKETS = 60
PORTS = range(8)
MIN_FRAME, MAX_FRAME = 14, 1400  # veth
WHOLE = {"expressions": 32}
"""Bytes of a frame with all headers, for programs that read headers without asking whether they are there. Where they
are not, BMv2 reads what an earlier packet left (docs/conformance.md)."""
THRIFT_PORT = 29190
GAP_S, QUIET_S, PATIENCE_S = 0.004, 0.25, 10.0
QUEUE = 10_000  # frames; BMv2's own is 64
PRIORITIES = 100_000
IN_NAMESPACE = "DCB_FUZZ_IN_NAMESPACE"
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 3, 263, 8, 1 << 4


def missing() -> str | None:
    """Why there is no BMv2 here."""
    if shutil.which("simple_switch") is None:
        return "simple_switch is not on the PATH"
    return None if os.geteuid() == 0 else "network namespaces need root"


def enter_namespace(arguments: list[str]) -> None:
    """Starts this Python again in a network namespace, where it makes the veth pairs; returns there."""
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *arguments])
    for scope in ("all", "default"):  # or the kernel would talk
        Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
    commands = ["link set lo up"]
    for port in PORTS:
        commands.append(f"link add in{port} mtu 9000 type veth peer name out{port} mtu 9000")
        commands += [f"link set {end}{port} up" for end in ("in", "out")]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def _bytes(value: int, bits: int) -> Argument:
    return STRING, value.to_bytes((bits + 7) // 8, "big")


class _Control:
    """Of PipelineControl what cases without meters need, over Thrift."""

    def __init__(self, program: Program, client: Client) -> None:
        self.program = program
        self.client = client
        self.handles: dict[tuple[str, str, int], int] = {}  # (kind, profile, id)

    def _call(self, method: str, *arguments: Argument) -> Any:
        try:
            return self.client.call("standard", method, (I32, 0), *arguments)
        except ThriftError as error:
            raise Difference(f"BMv2: {error}") from error

    def _action(self, call: ActionCall) -> tuple[Argument, Argument]:
        (action, *_) = [action for action in self.program.actions.values() if action.name == call.name]
        data = [_bytes(value, param.bits)[1] for value, param in zip(call.params, action.params, strict=True)]
        return (STRING, call.name), (LIST, (STRING, data))

    def _match(self, bits: int, match: KeyMatch) -> dict[int, Argument]:
        value = _bytes(match.value, bits)
        match match.kind:
            case MatchKind.EXACT:
                return {1: (I32, 0), 2: (STRUCT, {1: value})}
            case MatchKind.LPM:
                return {1: (I32, 1), 3: (STRUCT, {1: value, 2: (I32, match.prefix_len)})}
            case MatchKind.RANGE:
                return {1: (I32, 4), 6: (STRUCT, {1: value, 2: _bytes(match.high, bits)})}
            case _:
                return {1: (I32, 2), 4: (STRUCT, {1: value, 2: _bytes(match.mask, bits)})}

    def table_insert(self, name: str, keys: Sequence[KeyMatch], priority: int, action: EntryAction) -> int:
        table = tables(self.program)[name]
        params = [self._match(key.bits, match) for key, match in zip(table.keys, keys, strict=False)]
        options: Argument = (STRUCT, {1: (I32, PRIORITIES - priority)} if priority else {})  # BMv2: smaller wins
        start: tuple[Argument, ...] = ((STRING, name), (LIST, (STRUCT, list(params))))
        if isinstance(action, ActionCall):
            return int(self._call("bm_mt_add_entry", *start, *self._action(action), options))
        profile = table.implementation or ""
        if isinstance(action, MemberRef):
            handle = self.handles["member", profile, action.member_id]
            return int(self._call("bm_mt_indirect_add_entry", *start, (I32, handle), options))
        handle = self.handles["group", profile, action.group_id]
        return int(self._call("bm_mt_indirect_ws_add_entry", *start, (I32, handle), options))

    def table_set_default(self, name: str, action: ActionCall) -> None:
        self._call("bm_mt_set_default_action", (STRING, name), *self._action(action))

    def member_set(self, profile: str, member_id: int, action: ActionCall) -> None:
        handle = self._call("bm_mt_act_prof_add_member", (STRING, profile), *self._action(action))
        self.handles["member", profile, member_id] = handle

    def group_set(self, profile: str, group_id: int, members: Sequence[tuple[int, int]]) -> None:
        group = self._call("bm_mt_act_prof_create_group", (STRING, profile))
        self.handles["group", profile, group_id] = group
        for member_id, _ in members:
            member = self.handles["member", profile, member_id]
            self._call("bm_mt_act_prof_add_member_to_group", (STRING, profile), (I32, member), (I32, group))

    def register_write(self, name: str, index: int, value: int) -> None:
        signed = value - (1 << 64) if value >> 63 else value
        self._call("bm_register_write", (STRING, name), (I32, index), (I64, signed))

    def value_set_write(self, name: str, members: Sequence[tuple[int, int]]) -> None:
        for value, _ in members:
            self._call("bm_parse_vset_add", (STRING, name), _bytes(value, self.program.value_sets[name].bits))


class Bmv2Engine:
    """simple_switch with a program; what it sends is in `out`, by port."""

    failed_asserts = 0

    def __init__(self, program: Program, json: Path) -> None:
        ports = [f"-i{port}@in{port}" for port in PORTS]
        command = ["simple_switch", "--log-level", "off", "--thrift-port", str(THRIFT_PORT), *ports, str(json)]
        self.process = subprocess.Popen(
            [*command, "--", "--drop-port", "511"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.client = self._connect()
        self.control: Any = _Control(program, self.client)
        self.out: dict[int, list[str]] = {}
        self.wires: dict[socket.socket, int] = {}
        for port in PORTS:
            wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)  # deaf until it is bound
            wire.bind((f"out{port}", ETH_P_ALL))
            wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            self.wires[wire] = port

    def _connect(self) -> Client:
        """A client, once BMv2 is ready: it listens before it has registered the service of simple_switch."""
        end = time.monotonic() + PATIENCE_S
        while True:
            client = None
            try:
                client = Client(socket.create_connection(("127.0.0.1", THRIFT_PORT), PATIENCE_S))
                client.call("simple_switch", "set_all_egress_queue_depths", (I32, QUEUE))
                return client
            except (OSError, ThriftError):
                if client is not None:
                    client.close()
                if self.process.poll() is not None or time.monotonic() > end:
                    self.process.kill()
                    self.process.wait()
                    raise
                time.sleep(0.02)

    def _collect(self, seconds: float) -> bool:
        """Takes what comes for so long; whether there was anything."""
        some, end = False, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for wire in select.select(list(self.wires), [], [], left)[0]:
                frame, ancillary, _, address = wire.recvmsg(65536, 256)
                if address[2] == socket.PACKET_OUTGOING:
                    continue
                for level, kind, data in ancillary:
                    if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):  # the kernel takes a tag out
                        status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", data[:20])
                        if status & TP_STATUS_VLAN_VALID:
                            frame = frame[:12] + struct.pack(">HH", tpid, tci) + frame[12:]
                self.out.setdefault(self.wires[wire], []).append(frame.hex())
                some = True
        return some

    def wait(self) -> None:
        """Until it is quiet."""
        while self._collect(QUIET_S):
            pass

    def receive(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        next(wire for wire, number in self.wires.items() if number == port).send(frame)
        self._collect(GAP_S)
        return []

    def take_digests(self) -> list[tuple[int, bytes]]:
        return []

    def set_multicast_group(self, group: int, copies: Copies) -> None:
        pre, context = "simple_pre_lag", (I32, 0)
        handle = self.client.call(pre, "bm_mc_mgrp_create", context, (I32, group))
        for port, rid in copies:
            ports = (STRING, "1" + "0" * port)
            node = self.client.call(pre, "bm_mc_node_create", context, (I32, rid), ports, (STRING, ""))
            self.client.call(pre, "bm_mc_node_associate", context, (I32, handle), (I32, node))

    def set_clone_session(self, session: int, copies: Copies) -> None:
        ((port, _),) = copies
        self.client.call("simple_switch", "mirroring_session_add", (I32, session), (STRUCT, {1: (I32, port)}))

    def pass_us(self, microseconds: int) -> None:
        pass

    def close(self) -> None:
        for wire in self.wires:
            wire.close()
        self.client.close()
        self.process.kill()
        self.process.wait()


def _blind(entry: str) -> str:
    """An entry for packets without a header does not look at the header: in BMv2 it may hold an earlier packet's."""
    for header in re.findall(r'"([^"]+)\.\$valid\$":0\b', entry):
        entry = re.sub(rf'("{re.escape(header)}\.\w+"):\d+&&&\d+', r"\g<1>:0&&&0", entry)
    return entry


def playable(lines: Sequence[str], min_frame: int = MIN_FRAME) -> list[str]:
    """What BMv2 can be asked, tables first; entries get priorities of their own, members weight 1.

    A group's members are in the order of their ids, in which BMv2 keeps them.
    """
    control, packets = [], []
    for line in lines:
        word = line.split()[0]
        if word == "packet":
            if min_frame <= len(line.split()[2]) // 2 <= MAX_FRAME:
                packets.append(line)
        elif word == "group":
            head, members = line.split()[:3], re.findall(r"(\d+):\d+", line)
            if members:  # BMv2 takes no entry with an empty group
                control.append(" ".join([*head, *(f"{member}:1" for member in sorted(members, key=int))]))
        elif word == "add":
            control.append(_blind(re.sub(r'^(add "[^"]+" )\d+ ', rf"\g<1>{len(control) + 1} ", line)))
        elif word not in ("wait", "meter_set_rates"):
            control.append(line)
    return control + packets


def difference(json: Path, lines: Sequence[str]) -> str | None:
    """The first port on which BMv2 sends something else than our switch."""
    text = json.read_text()
    program = load(text)
    native, bmv2 = NativeEngine(text, ()), Bmv2Engine(program, json)
    ours, theirs = Runner(program, native), Runner(program, bmv2)
    grouped = False
    try:
        for statement in parse("\n".join(lines)):
            try:
                ours.step(statement)
            except Difference:
                continue
            if isinstance(statement.body, Replication) and statement.body.word != "mirroring_add":
                continue
            if not grouped and not isinstance(statement.body, Replication):  # groups are whole now
                for group, nodes in ours.groups.items():
                    bmv2.set_multicast_group(group, [(p, ours.nodes[n][0]) for n in nodes for p in ours.nodes[n][1]])
                grouped = True
            try:
                theirs.step(statement)
            except (Difference, OSError) as error:
                return f"line {statement.line}: {error}"
        bmv2.wait()
        if code := bmv2.process.poll():  # as for an index behind the end of a stack, which P4 leaves open
            print(f"tests.fuzz: {json.stem}: BMv2 ended by itself ({code}), nothing to compare", file=sys.stderr)
            return None
    finally:
        native.close()
        bmv2.close()
    for port in PORTS:
        sent = [frame.hex() for _, to, frame in ours.sent if to == port and len(frame) >= MIN_FRAME]
        if sent != (got := bmv2.out.get(port, [])):
            at = next((i for i, (a, b) in enumerate(zip(sent, got, strict=False)) if a != b), min(len(sent), len(got)))
            return (
                f"port {port}: {len(sent)} frames, BMv2 {len(got)}; frame {at}: {sent[at : at + 1]}, {got[at : at + 1]}"
            )
    return None


def one(subject: Subject, seed: int) -> str | None:
    """A case; the report of a difference that shows twice."""
    frames = [frame.ljust(MIN_FRAME + 10, b"\0") for frame in subject.frames]
    made = generate.Generator(load(subject.json.read_text()), frames, random.Random(seed)).case(PACKETS)
    lines = playable(made, WHOLE.get(subject.name, MIN_FRAME))

    def fails(candidate: Sequence[str]) -> bool:
        try:
            return difference(subject.json, candidate) is not None
        except StfError:  # what a line builds on was taken away
            return False

    if not fails(lines) or not fails(lines):
        return None
    small = shrink.fewer_lines(lines, fails)
    return "\n".join([f"# {subject.json}, seed {seed}", f"# {difference(subject.json, small)}", *small])
