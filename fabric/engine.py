"""`Fabric`: switches, NICs and testers joined by links, in virtual time.

Shape: the engine in C (`fabric/native`) owns the wires and the event queue and calls the parts' own C; Python builds
the fabric, lets time run with `run`, and is called at times it asked for (`at`), never for a frame. Parts belong to
the caller, who closes them after the fabric. Time is integer picoseconds and begins at 0. The same seed and the same
calls give the same frames at the same times, which `trace_hash` shows. docs/fabric.md has the rules of order and of
arrival times.
"""

from __future__ import annotations

import ctypes
import heapq
import os
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Protocol, cast

from fabric.library import (
    MAX_PORTS,
    NEVER_PS,
    STOP_BROKEN,
    STOP_EVENT,
    STOP_SLICE,
    Closed,
    Ops,
    Source,
    address,
    load,
)
from fabric.links import MAX_RATE_BPS, PS_PER_METRE, Direction, FabricError, Link, Probability, _check_time, _Wire
from switch.core import SwitchCore
from switch.tm_settings import STATE_KINDS

__all__ = ["Direction", "Fabric", "FabricError", "InvariantError", "Link", "NativePart", "Reason", "Series", "Stop"]

_SLICE_HOPS: Final = 1_000_000  # then Python looks for signals


class InvariantError(AssertionError):
    """The engine or a part broke one of its own rules; says when, where and which."""


class NativePart(Protocol):
    """A part of a library of its own: `native` is the library and the handle in it (None once closed)."""

    @property
    def native(self) -> tuple[ctypes.CDLL, int | None]: ...


class Reason(Enum):
    """Why `run` returned."""

    TIME = "time"  # until_ps is reached
    EVENT = "event"  # a node has something for its controller: packet-in, digest, NIC event
    BREAK = "break"  # a breakpoint (`at` without a callable)
    IDLE = "idle"  # nothing will ever happen by itself


@dataclass(frozen=True, slots=True)
class Stop:
    """Where `run` stopped. `nodes`: those that have something new for their controller."""

    reason: Reason
    now_ps: int
    nodes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Node:
    name: str
    part: int  # its number in the engine
    object: NativePart | None  # None: a switch that has no core
    pfc_response_ps: int
    is_switch: bool


class SwitchSource(Source):
    """A source that follows a switch from core to core; without one it gives zeros."""

    node: str

    def of(self, core: SwitchCore) -> SwitchSource:
        """The same of this core."""
        lib, handle = core.native
        made = SwitchSource(address(lib, "tm_read_state"), lib.sw_tm(handle), self.kind, self.index)
        made.node = self.node
        return made


class Series:
    """Samples at an interval, taken in C. A row is the time and one value for each of `labels`."""

    def __init__(self, fabric: Fabric, number: int, labels: tuple[str, ...]) -> None:
        self._fabric = fabric
        self._number = number
        self.labels = labels

    def __len__(self) -> int:
        """Rows that wait to be taken."""
        return int(self._fabric._lib.fab_sample_rows(self._fabric._engine, self._number))

    def take(self) -> array[int]:
        """All rows since the last call, flat: time_ps and the values, row after row, 64 bits each."""
        width, rows = len(self.labels) + 1, len(self)
        out = array("Q", bytes(8 * width * rows))
        if rows:
            start, _ = out.buffer_info()
            self._fabric._lib.fab_take_samples(self._fabric._engine, self._number, start, rows)
        return out

    def rows(self) -> list[tuple[int, ...]]:
        """All rows since the last call."""
        flat, width = self.take(), len(self.labels) + 1
        return [tuple(flat[i : i + width]) for i in range(0, len(flat), width)]


class Fabric:
    """A fabric in virtual time. `seed`: of every link's errors and jitter (parts have seeds of their own).

    `lookahead_ps`: the engine runs nodes one after the other through windows of virtual time in which none can hear of
    another, and stops where a window ends: at most this much (None: as much as the shortest link allows; 1: events are
    done one time after another) after what it stops for. The frames and their times are the same for each value.
    `trace`: keep the running hash of every frame. `debug`: check invariants after every event (None: where $DCB_DEBUG
    is set and not 0); what is broken raises `InvariantError`. `sanitize` None: as $DCB_TEST_SANITIZE says.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        trace: bool = True,
        debug: bool | None = None,
        lookahead_ps: int | None = None,
        sanitize: bool | None = None,
    ) -> None:
        self._engine: int | None = None
        if not 0 <= seed < 1 << 64:
            raise FabricError(f"seed {seed}: must be 0..2^64-1")
        if lookahead_ps is not None and lookahead_ps < 1:
            raise FabricError(f"lookahead_ps {lookahead_ps}: must be at least 1")
        most = NEVER_PS if lookahead_ps is None else lookahead_ps
        self._lib = load(sanitize)
        self.debug = os.environ.get("DCB_DEBUG", "0") not in ("", "0") if debug is None else debug
        self._engine = self._lib.fab_create(seed, most, trace, self.debug)
        if not self._engine:
            raise MemoryError("no memory for a fabric")
        self.seed = seed
        self._nodes: dict[str, _Node] = {}
        self._links: dict[tuple[str, int], Link] = {}
        self._switch_sources: dict[str, list[tuple[int, int, SwitchSource]]] = {}
        self._calls: list[tuple[int, int, Callable[[], object] | None]] = []
        self._n_calls = 0

    # --- life

    def close(self) -> None:
        """Give back the frames in flight, close captures, let go of the parts. Close parts after the fabric."""
        if getattr(self, "_engine", None) is None:
            return
        for node in self._nodes.values():
            if node.object is None:
                continue
            lib, handle = node.object.native
            if handle is None:
                self._lib.fab_forget_part(self._engine, node.part)
            else:
                for name in ("sw_set_output", "nic_set_output", "tester_set_output"):
                    if address(lib, name):
                        _call_set_output(lib, name, handle, None, None)
        self._lib.fab_destroy(self._engine)
        self._engine = None
        self._lib = cast(ctypes.CDLL, Closed(FabricError("the fabric is closed")))

    def __enter__(self) -> Fabric:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    # --- building

    def add_switch(self, name: str, core: SwitchCore | None, *, pfc_response_ps: int = 0) -> None:
        """A switch core as a node. It must have no running driver. `pfc_response_ps`: from the arrival of a PFC frame
        at one of its ports until the pause begins (802.1Q Annex O: higher-layer delay); links may say otherwise.
        None: the place of one (`replace_switch`); until then frames that arrive are lost (`lost_down`)."""
        self._add(name, core, self._switch_ops(core), pfc_response_ps, "sw_set_output", "fab_output_packet")

    def replace_switch(self, name: str, core: SwitchCore | None) -> None:
        """Another core takes the place of the one before, which must still be open; None: the switch is dead. Frames
        on wires go on. The new core gets the ports of the links that are up; rates are the caller's."""
        node = self._node(name)
        old = node.object
        if old is not None and not isinstance(old, SwitchCore):
            raise FabricError(f"node {name!r}: is not a switch")
        ops = self._switch_ops(core)
        handle = None if core is None else core.native[1]
        if self._lib.fab_replace_part(self._engine, node.part, None if ops is None else ctypes.byref(ops), handle) < 0:
            raise MemoryError(f"no memory for the frames of {name}")
        if old is not None and old.native[1] is not None:
            _call_set_output(old.native[0], "sw_set_output", old.native[1], None, None)
        node.object = core
        for number, index, source in self._switch_sources.get(name, ()):
            pointed = Source() if core is None else source.of(core)
            self._lib.fab_point_source(self._engine, number, index, ctypes.byref(pointed))
        if core is None:
            return
        assert handle is not None
        owner = self._lib.fab_get_part(self._engine, node.part)
        _call_set_output(core.native[0], "sw_set_output", handle, address(self._lib, "fab_output_packet"), owner)
        for (where, port), link in self._links.items():
            if where == name and link.is_up:
                _ensure_port(core, port)
            elif where == name:
                core.tm.remove_port(port)

    def _switch_ops(self, core: SwitchCore | None) -> Ops | None:
        if core is None:
            return None
        lib, handle = core.native
        ops = Ops(
            receive=address(lib, "sw_receive"),
            next_deadline=address(lib, "sw_next_deadline"),
            advance=address(lib, "sw_advance"),
            events=address(lib, "sw_events_put"),
            wait=address(lib, "sw_wait"),
            release=address(lib, "sw_pkt_free"),
        )
        if self.debug:
            ops.check = address(lib, "tm_check")
            ops.check_arg = lib.sw_tm(handle)
            ops.read_stats = address(lib, "sw_read_stats")
            ops.live = address(lib, "sw_packets_live")
        return ops

    def add_nic(self, name: str, nic: NativePart, *, pfc_response_ps: int = 0) -> None:
        """A NIC of `hosts.nic`, or a `fabric.tester.Tester`, as a node."""
        lib = nic.native[0]
        prefix = "tester" if address(lib, "tester_receive") else "nic"
        ops = Ops(
            receive=address(lib, f"{prefix}_receive"),
            next_deadline=address(lib, f"{prefix}_next_deadline"),
            advance=address(lib, f"{prefix}_advance"),
            events=address(lib, f"{prefix}_events_put"),
            wait=address(lib, f"{prefix}_wait"),
        )
        self._add(name, nic, ops, pfc_response_ps, f"{prefix}_set_output", "fab_output_bytes")

    def connect(
        self,
        a: str,
        a_port: int,
        b: str,
        b_port: int,
        *,
        rate_bps: int,
        length_m: int = 0,
        delay_ps: int | None = None,
        jitter_ps: int = 0,
        loss: Probability = 0,
        pfc_loss: Probability = 0,
        bit_error_rate: Probability = 0,
        pfc_response_ps: int | None = None,
        set_rate: bool = True,
    ) -> Link:
        """Join two ports by a full-duplex link of `rate_bps` (1..800 Gb/s) each way.

        Propagation is `length_m` at 5 ns/m, or `delay_ps`. Errors as in `Direction.set_errors`, jitter as in
        `set_delay`; both directions alike, each direction can be set apart. `pfc_response_ps`: at both ends; None: as
        each node says. A switch gets the port if it has none of that number, and (`set_rate`) this rate for it.
        """
        if not 1 <= rate_bps <= MAX_RATE_BPS:
            raise FabricError(f"rate_bps {rate_bps}: must be 1..{MAX_RATE_BPS}")
        if not isinstance(length_m, int) or length_m < 0:
            raise FabricError(f"length_m {length_m}: must be a whole number of metres, 0 or more")
        delay = length_m * PS_PER_METRE if delay_ps is None else delay_ps
        _check_time("delay_ps", delay)
        _check_time("jitter_ps", jitter_ps)
        ends = ((a, a_port), (b, b_port))
        if ends[0] == ends[1]:
            raise FabricError(f"{a} port {a_port}: a link joins two ports")
        for node, port in ends:
            self._node(node)
            if not 0 <= port < MAX_PORTS:
                raise FabricError(f"{node} port {port}: must be 0..{MAX_PORTS - 1}")
            if (node, port) in self._links:
                raise FabricError(f"{node} port {port}: is connected already, by {self._links[node, port]!r}")
        parts = [self._node(node).part for node, _ in ends]
        number = int(self._lib.fab_connect(self._engine, parts[0], a_port, parts[1], b_port, rate_bps, delay))
        if number < 0:
            raise MemoryError(f"no memory for a link from {a} to {b}")
        made = []
        for i, (source, target) in enumerate((ends, ends[::-1])):
            response = self._node(target[0]).pfc_response_ps if pfc_response_ps is None else pfc_response_ps
            _check_time("pfc_response_ps", response)
            wire = _Wire(rate_bps, delay, jitter_ps, response)
            made.append(Direction(self, 2 * number + i, source, target, wire))
            if self._node(source[0]).is_switch:
                self._lib.fab_set_paired(self._engine, 2 * number + i, True)
        link = Link(self, number, made[0], made[1])
        link.set_errors(loss=loss, pfc_loss=pfc_loss, bit_error_rate=bit_error_rate)
        for node, port in ends:
            self._links[node, port] = link
            core = self._node(node).object
            if isinstance(core, SwitchCore):
                _ensure_port(core, port)
                if set_rate:
                    core.tm.set_port(port, rate_bps)
        return link

    @property
    def links(self) -> tuple[Link, ...]:
        """In the order in which they were made."""
        return tuple({link.number: link for link in self._links.values()}.values())

    def link(self, node: str, port: int = 0) -> Link:
        """The link at a port."""
        try:
            return self._links[node, port]
        except KeyError:
            raise FabricError(f"{node} port {port}: no link is there") from None

    def node(self, name: str) -> NativePart:
        """The switch core, NIC or tester of that name."""
        found = self._node(name).object
        if found is None:
            raise FabricError(f"node {name!r}: has no core now")
        return found

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    # --- time

    @property
    def now_ps(self) -> int:
        return int(self._lib.fab_now(self._engine))

    @property
    def next_ps(self) -> int | None:
        """When something happens next: a frame, a deadline, a sample, a call. None: never by itself."""
        times = [int(self._lib.fab_next(self._engine)), *(time for time, *_ in self._calls[:1])]
        return None if min(times) == NEVER_PS else min(times)

    def at(self, time_ps: int, call: Callable[[], object] | None = None) -> None:
        """Call something at a time (not in the past), before any frame of that time; None: make `run` return then.
        Calls of one time come in the order in which they were asked for."""
        if time_ps < self.now_ps:
            raise FabricError(f"time_ps {time_ps}: is before now, {self.now_ps}")
        self._n_calls += 1
        heapq.heappush(self._calls, (time_ps, self._n_calls, call))

    def run(self, until_ps: int | None = None, *, events: bool = True) -> Stop:
        """Let time run up to and through `until_ps` (None: until nothing happens by itself any more; `now_ps` is then
        the end of the last window).

        Returns sooner at a breakpoint, before anything of its time is done, and (`events`) when a node has something
        new for its controller, at the end of the window (`lookahead_ps`). When it returns, every core stands at
        `now_ps`: settings and packets that the caller makes take effect then.
        """
        if until_ps is not None and until_ps < self.now_ps:
            raise FabricError(f"until_ps {until_ps}: is before now, {self.now_ps}")
        while True:
            call_ps = self._calls[0][0] if self._calls else None
            if call_ps is not None and (until_ps is None or call_ps <= until_ps):
                stop = self._advance(call_ps - 1, events) if call_ps > self.now_ps else None
                if stop:
                    return stop
                self._lib.fab_wait(self._engine, call_ps)
                if self._run_calls(call_ps):
                    return Stop(Reason.BREAK, call_ps)
                continue
            stop = self._advance(NEVER_PS if until_ps is None else until_ps, events)
            if stop:
                return stop
            self._lib.fab_wait(self._engine, self.now_ps)
            return Stop(Reason.IDLE if until_ps is None else Reason.TIME, self.now_ps)

    def _advance(self, limit_ps: int, events: bool) -> Stop | None:
        while True:
            why = self._lib.fab_run(self._engine, limit_ps, _SLICE_HOPS)
            if why == STOP_BROKEN:
                raise InvariantError(self._explain(self._lib.fab_error(self._engine).decode()))
            if why == STOP_EVENT:
                nodes = self._take_events()
                if events:
                    self._lib.fab_wait(self._engine, self.now_ps)
                    return Stop(Reason.EVENT, self.now_ps, nodes)
            elif why != STOP_SLICE:
                return None

    def _run_calls(self, now_ps: int) -> bool:
        """Everything asked for at this time; True: a breakpoint was among it."""
        found = False
        while self._calls and self._calls[0][0] == now_ps:
            call = heapq.heappop(self._calls)[2]
            if call is None:
                found = True
            else:
                call()
        return found

    def _take_events(self) -> tuple[str, ...]:
        numbers = (ctypes.c_uint32 * len(self._nodes))()
        n = self._lib.fab_take_events(self._engine, numbers, len(numbers))
        names = list(self._nodes)
        return tuple(names[numbers[i]] for i in range(n))

    # --- watching

    def sample(self, interval_ps: int, sources: Mapping[str, Source], *, until_ps: int | None = None) -> Series:
        """Take samples of `sources` (`switch_state`, `Direction.source_of`, `Tester.source_of`) each `interval_ps` from
        now on, after all that happens at that time; up to `until_ps`, None: as long as time runs."""
        if interval_ps < 1 or not sources:
            raise FabricError(f"interval_ps {interval_ps}, {len(sources)} sources: must be at least 1")
        made = (Source * len(sources))(*sources.values())
        end = NEVER_PS if until_ps is None else until_ps
        number = self._lib.fab_add_sampler(self._engine, interval_ps, self.now_ps, end, made, len(sources))
        if number < 0:
            raise MemoryError("no memory for a series")
        for i, source in enumerate(sources.values()):
            if isinstance(source, SwitchSource):
                self._switch_sources.setdefault(source.node, []).append((int(number), i, source))
        return Series(self, int(number), tuple(sources))

    def switch_state(self, name: str, kind: str, port: int = 0, n: int = 0) -> Source:
        """A series of a traffic manager's state: `kind` as `SwitchCore.tm.read_state`, `n` the queue, group or
        priority."""
        core = self._node(name).object
        if core is not None and not isinstance(core, SwitchCore):
            raise FabricError(f"node {name!r}: is not a switch")
        kinds = [name for name in STATE_KINDS if not name.endswith("_histogram")]
        if kind not in kinds:
            raise FabricError(f"kind {kind!r}: must be one of {', '.join(kinds)}")
        wanted = SwitchSource(kind=STATE_KINDS.index(kind), index=port * 8 + n)
        wanted.node = name
        return wanted if core is None else wanted.of(core)

    @property
    def trace_hash(self) -> str:
        """128 bits over (start, arrival, length, bytes) of every frame sent so far, in order for each direction of each
        link: 32 digits."""
        _, _, a, b = self._totals()
        return f"{a:016x}{b:016x}"

    @property
    def hops(self) -> int:
        """Frames that arrived at a node."""
        return self._totals()[0]

    @property
    def windows(self) -> int:
        """Windows of virtual time that the engine went through."""
        return self._totals()[1]

    def check(self) -> None:
        """Raise `InvariantError` where an invariant does not hold (all of them only where `debug` is on)."""
        broken = self._lib.fab_check(self._engine)
        if broken:
            raise InvariantError(self._explain(broken.decode()))

    def _totals(self) -> tuple[int, int, int, int]:
        out = (ctypes.c_uint64 * 4)()
        self._lib.fab_totals(self._engine, out)
        return out[0], out[1], out[2], out[3]

    # --- inside

    def _node(self, name: str) -> _Node:
        try:
            return self._nodes[name]
        except KeyError:
            raise FabricError(f"node {name!r}: no such node") from None

    def _add(
        self, name: str, part: NativePart | None, ops: Ops | None, pfc_response_ps: int, set_output: str, output: str
    ) -> None:
        if name in self._nodes:
            raise FabricError(f"node {name!r}: exists already")
        _check_time("pfc_response_ps", pfc_response_ps)
        handle = None if part is None else part.native[1]
        if part is not None and handle is None:
            raise FabricError(f"node {name!r}: is closed")
        number = int(self._lib.fab_add_part(self._engine, None if ops is None else ctypes.byref(ops), handle))
        if number < 0:
            raise FabricError(f"node {name!r}: its library lacks receive, next_deadline or advance")
        self._nodes[name] = _Node(name, number, part, pfc_response_ps, set_output == "sw_set_output")
        if part is None or handle is None:
            return
        lib = part.native[0]
        owner = self._lib.fab_get_part(self._engine, number)
        _call_set_output(lib, set_output, handle, address(self._lib, output), owner)

    def _port_changed(self, node: str, port: int, up: bool) -> None:
        part = self._node(node).object
        if part is None:
            return
        self._lib.fab_wait(self._engine, self.now_ps)
        if isinstance(part, SwitchCore):
            if up:
                part.tm.add_port(port)
            else:
                part.tm.remove_port(port)
            return
        lib, handle = part.native
        if handle is not None and address(lib, "nic_set_link"):
            lib.nic_set_link.restype, lib.nic_set_link.argtypes = None, [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
            lib.nic_set_link(handle, up, self.now_ps)

    def _explain(self, text: str) -> str:
        """The engine's message with names in place of numbers."""
        words = text.split()
        for i, word in enumerate(words[:-1]):
            number = words[i + 1].rstrip(":")
            if word == "part" and number.isdigit():
                words[i : i + 2] = ["node", words[i + 1].replace(number, list(self._nodes)[int(number)])]
            elif word == "wire" and number.isdigit():
                link = self.links[int(number) // 2]
                words[i + 1] = words[i + 1].replace(number, link.directions[int(number) % 2].name)
        return " ".join(words)


def _call_set_output(lib: ctypes.CDLL, name: str, handle: int, output: int | None, owner: int | None) -> None:
    function = getattr(lib, name)
    function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    function(handle, output, owner)


def _ensure_port(core: SwitchCore, port: int) -> None:
    lib, handle = core.native
    if lib.sw_add_port(handle, port, core.now_ps) < 0 and port in (core.cpu_port, core.drop_port):
        raise FabricError(f"port {port}: is the CPU or the drop port of the switch")
