"""BMv2's traffic manager, as far as it has one: queue depths, rates and the state of the emulation, over Thrift.

One `Emulation` for a network with `target="bmv2"`, beside the controller. It sets every switch up once the program
dcb_bmv2 is there, then divides the rate of each port among its queues, again and again by demand (ETS as rates that
follow), from the tm_port and tm_scheduler entries that the switch holds: it reads them over P4Runtime, writes none, and
so follows whatever the controller writes. It also reads the registers that P4Runtime cannot (docs/targets.md).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
from finsy.proto import p4r, p4r_grpc

from controller.codec import Codec
from controller.entries import Action, TableEntry
from controller.program import P4Program
from topologies.network import THRIFT_PORT, FabricNetwork, NetworkError
from topologies.paths import switch_socket
from topologies.shares import Queue, limits
from topologies.thrift import I32, I64, STRING, STRUCT, Client, ThriftError, connect_in_namespace

PROGRAM = "dcb_bmv2"
NOMINAL_BYTES = 1024  # what a frame counts as, NOMINAL_SHIFT in p4src/tm_emulation.p4
HOLD_PORT, NOTICE_PORT = 508, 509  # as there; the clone session has the number of its port
# Frames that wait go round so often, per priority. Each round is served before new frames are, so a rate far above a
# link's starves them; one far below it delays what follows a pause.
HOLD_RATE_PPS = 2000
QUEUE_DEPTH_FRAMES = 16_384  # the program drops before that, and counts it
WIRE_OVERHEAD_BYTES = 24  # FCS, preamble, gap
PERIOD_S = 0.2
CONFIGURATION_PERIOD_S = 1.0
TIMEOUT_S = 10.0
BACKLOG_FRAMES = 3  # in a queue: it wants more than it gets
CELLS = 4096
DEFAULT_FRAME_BYTES = 1024

Cells = dict[tuple[int, int], int]


@dataclass
class _Port:
    """A port as the entries of the switch describe it, and what was set and seen last. Queue = priority."""

    rate_bps: int = 0
    weights: dict[int, int | None] = field(default_factory=lambda: dict.fromkeys(range(8), 1))
    set_pps: dict[int, int] = field(default_factory=dict)
    frame_bytes: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(8), DEFAULT_FRAME_BYTES))
    turn: dict[int, int] = field(default_factory=dict)


class Bmv2Switch:
    """One switch: its Thrift connection and its P4Runtime reads. For one thread at a time."""

    def __init__(
        self, name: str, device_id: int, ports: tuple[int, ...], program: P4Program, lab: str, pid: int
    ) -> None:
        self.name = name
        self._device_id = device_id
        self._codec = Codec(program)
        self._program = program
        self._ports = {port: _Port() for port in ports}
        self._channel = grpc.insecure_channel(f"unix:{switch_socket(lab, name)}")
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        try:
            self._thrift = Client(connect_in_namespace(pid, THRIFT_PORT, TIMEOUT_S))
        except OSError as error:
            raise NetworkError(f"switch {name}: no Thrift on port {THRIFT_PORT} of its namespace: {error}") from None
        self._measured_at = 0.0
        self._last_counter: dict[int, tuple[int, int]] = {}  # cell -> packets, bytes

    def close(self) -> None:
        self._thrift.close()
        self._channel.close()

    def set_up(self) -> None:
        """Queue depths, the rate at which held frames go round, and the clone session of PFC notices."""
        self._target("set_all_egress_queue_depths", (I32, QUEUE_DEPTH_FRAMES))
        for priority in range(8):
            self._target("set_egress_priority_queue_rate", (I32, HOLD_PORT), (I32, priority), (I64, HOLD_RATE_PPS))
        self._target("mirroring_session_add", (I32, NOTICE_PORT), (STRUCT, {1: (I32, NOTICE_PORT)}))
        self.read_configuration()

    def _target(self, method: str, *arguments: Any) -> Any:
        return self._thrift.call("simple_switch", method, *arguments)

    def register(self, name: str) -> list[int]:
        """Every cell of a register of the emulation."""
        cells: list[int] = self._thrift.call("standard", "bm_register_read_all", (I32, 0), (STRING, name))
        return cells

    def _turns_and_tickets(self) -> tuple[list[int], list[int]]:
        # In this order: a ticket is given before it is used, so the difference is never below 0.
        turns = self.register("emu_turn")
        return turns, self.register("emu_ticket")

    def _counter(self, name: str, index: int) -> tuple[int, int]:
        value = self._thrift.call("standard", "bm_counter_read", (I32, 0), (STRING, name), (I32, index))
        return value[2], value[1]  # packets, bytes

    # --- rates -----------------------------------------------------------------------------------------------------

    def read_configuration(self) -> None:
        """Rates and schedulers of all ports, from the entries that the switch holds."""
        entities = [
            p4r.Entity(table_entry=p4r.TableEntry(table_id=self._program.table(name).id))
            for name in ("egress.tm_port", "egress.tm_scheduler")
        ]
        request = p4r.ReadRequest(device_id=self._device_id, entities=entities)
        for port in self._ports.values():
            port.rate_bps, port.weights = 0, dict.fromkeys(range(8), 1)
        for reply in self._stub.Read(request, timeout=TIMEOUT_S):
            for message in reply.entities:
                entry = self._codec.decode(message)
                if isinstance(entry, TableEntry) and isinstance(entry.action, Action):
                    self._take(dict(entry.match), entry.action)

    def _take(self, key: dict[str, Any], action: Action) -> None:
        port = self._ports.get(key["port"])
        if port is None:
            return
        if action.name == "egress.tm_set_port":
            port.rate_bps = action["rate_bps"]
        elif action.name == "egress.tm_ets":
            port.weights[key["tc"]] = action["weight"]
        elif action.name == "egress.tm_strict":
            port.weights[key["tc"]] = None
        # a credit-based shaper is no rate that follows demand: its queue stays ETS of weight 1

    def balance(self, now_s: float) -> None:
        """Measure what each queue wants and set rates anew where they differ by more than 2%."""
        turns, tickets = self._turns_and_tickets()
        elapsed_s, self._measured_at = now_s - self._measured_at, now_s
        for number, port in self._ports.items():
            if port.rate_bps == 0:
                continue
            queues = {}
            for queue in range(8):
                cell = number * 8 + queue
                depth = (tickets[cell] - turns[cell]) & 0xFFFFFFFF
                queues[queue] = Queue(
                    port.weights[queue], self._demand(port, cell, queue, turns[cell], depth, elapsed_s)
                )
            for queue, limit_bps in limits(port.rate_bps, queues).items():
                self._set_rate(number, port, queue, limit_bps)

    def _demand(self, port: _Port, cell: int, queue: int, turn: int, depth: int, elapsed_s: float) -> int | None:
        """Bits per second on the wire, None where the queue is backlogged."""
        frames = (turn - port.turn.get(queue, turn)) & 0xFFFFFFFF
        port.turn[queue] = turn
        if depth >= BACKLOG_FRAMES:
            self._measure_frame(port, cell, queue)
            return None
        if frames == 0 or elapsed_s <= 0:
            return 0
        self._measure_frame(port, cell, queue)
        bits = frames * (port.frame_bytes[queue] + WIRE_OVERHEAD_BYTES) * 8
        return int(bits / elapsed_s * 1.25)

    def _measure_frame(self, port: _Port, cell: int, queue: int) -> None:
        """Mean size of the frames sent lately, half of it from the past."""
        packets, total_bytes = self._counter("egress.tm_dequeued", cell)
        then_packets, then_bytes = self._last_counter.get(cell, (0, 0))
        self._last_counter[cell] = (packets, total_bytes)
        if packets - then_packets >= BACKLOG_FRAMES:
            mean = (total_bytes - then_bytes) // (packets - then_packets)
            port.frame_bytes[queue] = (port.frame_bytes[queue] + mean) // 2

    def _set_rate(self, number: int, port: _Port, queue: int, limit_bps: int) -> None:
        frame_bits = (port.frame_bytes[queue] + WIRE_OVERHEAD_BYTES) * 8
        pps = max(1, limit_bps // frame_bits)
        if abs(pps - port.set_pps.get(queue, 0)) * 50 > pps:
            self._target("set_egress_priority_queue_rate", (I32, number), (I32, queue), (I64, pps))
            port.set_pps[queue] = pps

    # --- state that P4Runtime cannot read ---------------------------------------------------------------------------

    def state(self) -> dict[str, Cells]:
        """tm_queue_depth and tm_pg_depth (bytes, nominal: by egress port and priority both), tm_paused_ns."""
        turns, tickets = self._turns_and_tickets()
        until, paused = self.register("emu_until"), self.register("emu_paused")
        now_us = self._target("get_time_elapsed_us")
        cells = [(port, n) for port in self._ports for n in range(8)]
        depth = {(p, n): ((tickets[8 * p + n] - turns[8 * p + n]) & 0xFFFFFFFF) * NOMINAL_BYTES for p, n in cells}
        ended_us = {(p, n): paused[8 * p + n] - max(0, until[8 * p + n] - now_us) for p, n in cells}
        return {
            "tm_queue_depth": depth,
            "tm_pg_depth": depth,
            "tm_paused_ns": {cell: 1000 * value for cell, value in ended_us.items()},
        }


class Emulation:
    """All switches of a network: `with Emulation(network) as emulation:`, once the controller has synced them."""

    def __init__(self, network: FabricNetwork) -> None:
        self._network = network
        self._switches: dict[str, Bmv2Switch] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bmv2 rates", daemon=True)
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        program = P4Program.load(name=PROGRAM)
        try:
            for switch in self._network.topology.switches:
                pid = self._network.pid(switch.name)
                made = Bmv2Switch(switch.name, switch.device_id, switch.ports, program, self._network.lab, pid)
                self._switches[switch.name] = made
                self._locks[switch.name] = threading.Lock()
                made.set_up()
        except BaseException as error:
            self._close()
            if isinstance(error, ThriftError | grpc.RpcError):
                raise NetworkError(f"BMv2: {error}") from None
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for switch in self._switches.values():
            switch.close()
        self._switches.clear()

    def _run(self) -> None:
        read_at = time.monotonic()
        try:
            while not self._stop.wait(PERIOD_S):
                now_s = time.monotonic()
                again = now_s - read_at >= CONFIGURATION_PERIOD_S
                if again:
                    read_at = now_s
                for name, switch in self._switches.items():
                    with self._locks[name]:
                        if again:
                            switch.read_configuration()
                        switch.balance(time.monotonic())
        except (OSError, grpc.RpcError) as error:  # a switch that died is the network's to report
            self.error = error

    def state(self, switch: str) -> dict[str, Cells]:
        """`Bmv2Switch.state` of a switch. NetworkError where it cannot be read, or where rates are no longer set."""
        if self.error is not None:
            raise NetworkError(f"BMv2: rates can no longer be set: {self.error}")
        with self._locks[switch]:
            try:
                return self._switches[switch].state()
            except OSError as error:
                raise NetworkError(f"switch {switch}: {error}") from None
