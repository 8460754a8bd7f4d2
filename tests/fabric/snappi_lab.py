"""A device under test between four traffic generators in virtual time, as the snappi tests of sonic-mgmt have it.

`SnappiLab` owns one switch with the real controller, a tester at each port and the loop that all of it runs in. Tests
of a module share one: `reset` brings configuration and traffic back, and checks that no frame was left or lost unseen.
Ports 1..3 run at 100 Gb/s, port 4 at 400 Gb/s; cables are 300 m; every end takes 394 quanta (802.1Q at 100G) to obey.
Priorities 3 and 4 are lossless. 10.1.0.<n> is behind port n, DSCP 8 * p + 2 is priority p. Frames are 1000 bytes long.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from controller import Controller, P4Program
from controller.config import parse
from dcb.headroom import exact_headroom
from dcb.headroom.exact import wire_ps
from dcb.pfc import build_pfc, pfc_frame
from dcb.units import PS_PER_MS, PS_PER_US
from fabric.control import ControlPlane, FabricCores
from fabric.engine import Fabric
from fabric.loop import VirtualLoop
from fabric.tester import UNPAUSED, Arrival, Tester
from switch.core import SwitchCore

T = TypeVar("T")
G = 10**9
RATES = {1: 100 * G, 2: 100 * G, 3: 100 * G, 4: 400 * G}
LOSSLESS = (3, 4)
LOSSY = (0, 1, 2, 5, 6, 7)
LENGTH_M = 300
QUANTUM_PS = 512 * 10**12 // (100 * G)  # 5.12 ns
RESPONSE_PS = 394 * QUANTUM_PS
FRAME = 1000
WIRE_PS = wire_ps(FRAME, 100 * G)  # 81.92 ns
XOFF, XON = 100_000, 80_000
QUEUE_LIMIT = 50_000
DSCP = {8 * p + 2: p for p in range(8)}
COUNTERS = (
    *("rx", "tx", "pfc_rx_frames", "pfc_rx_xoff", "pfc_rx_xon", "pfc_rx_invalid", "pause_rx_frames", "pfc_tx_frames"),
    *("pfc_tx_xoff", "pfc_tx_xon", "ce_marked", "tm_dequeued"),
)
DROPS = (
    *("drops", "tm_drop_queue", "tm_drop_pg", "tm_drop_headroom", "tm_drop_pool", "tm_drop_port", "tm_drop_rx"),
    *("tm_drop_storm_tx", "tm_drop_storm_rx"),
)
Cells = dict[tuple[int, int], int]


def host_mac(port: int) -> str:
    return f"02:00:00:00:01:{port:02x}"


def port_mac(port: int) -> str:
    return f"02:01:00:00:01:{port:02x}"


@cache
def data(source: int, to: int, priority: int, sport: int = 49152) -> bytes:
    head = Ether(dst=port_mac(source), src=host_mac(source))
    head = head / IP(src=f"10.1.0.{source}", dst=f"10.1.0.{to}", tos=(8 * priority + 2) << 2 | 2, id=1)
    return bytes(head / UDP(sport=sport, dport=4791, chksum=0) / bytes(FRAME - 42))


def xoff(port: int, priorities: Iterable[int], quanta: int = 65535) -> bytes:
    """A PFC frame of the host at a port. quanta 0: XON."""
    source = bytes.fromhex(host_mac(port).replace(":", ""))
    return build_pfc(pfc_frame(source, dict.fromkeys(sorted(priorities), quanta)))


def config(key: Mapping[int, Mapping[str, Any]] | None = None, **fabric: Any) -> dict[str, Any]:
    """The device's configuration. `key`: changes by port; `fabric`: other keys of the file."""
    ports = {}
    for port, rate_bps in RATES.items():
        headroom = exact_headroom(
            rate_bps, LENGTH_M, mtu_bytes=FRAME, min_frame_bytes=FRAME, response_ps=RESPONSE_PS
        ).headroom_bytes
        group = {"reserved": 0, "xoff": XOFF, "xon": XON, "headroom": headroom}
        ports[port] = {
            "name": f"leaf1-eth{port}",
            "mac": port_mac(port),
            "rate": rate_bps,
            "peer": f"h{port}",
            "pfc": list(LOSSLESS),
            "buffers": dict.fromkeys(LOSSLESS, group),
            "queue_limits": dict.fromkeys(range(8), QUEUE_LIMIT),
            **dict((key or {}).get(port, {})),
        }
    routes = [{"prefix": f"10.1.0.{n}/32", "via": [{"port": n, "mac": host_mac(n)}]} for n in RATES]
    leaf = {"device_id": 1, "address": "virtual:leaf1", "ports": ports, "routes": routes}
    qos = {"default": {"dscp_to_priority": DSCP, "lossless": list(LOSSLESS)}}
    return {"qos_profiles": qos, "switches": {"leaf1": leaf}, **fabric}


@dataclass(frozen=True, slots=True)
class Counts:
    """Packets that the switch counted between two looks, by counter and (port, n); cells of 0 are not there."""

    cells: Mapping[str, Cells]

    def __getitem__(self, counter: str) -> Cells:
        return self.cells[counter]

    def drops(self) -> dict[str, Cells]:
        """By reason, whatever was dropped."""
        return {name: self.cells[name] for name in DROPS if self.cells[name]}

    def dropped(self) -> int:
        return sum(sum(cells.values()) for cells in self.drops().values())


class SnappiLab:
    """See the module. `close` ends it."""

    def __init__(self, *, debug: bool = True) -> None:
        self.fabric = Fabric(1, trace=False, debug=debug)
        self._runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.fabric))
        loop = self._runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.plane = ControlPlane(loop, FabricCores(self.fabric), seed=1)
        self.fabric.add_switch("leaf1", None, pfc_response_ps=RESPONSE_PS)
        self.switch = self.plane.add("leaf1", 1, RATES, seed=1)
        self.testers: dict[int, Tester] = {}
        for port, rate_bps in RATES.items():
            self.testers[port] = Tester(rate_bps, pfc=sum(1 << p for p in LOSSLESS), record_bytes=256 << 20)
            self.fabric.add_nic(f"h{port}", self.testers[port], pfc_response_ps=RESPONSE_PS)
            self.fabric.connect("leaf1", port, f"h{port}", 0, rate_bps=rate_bps, length_m=LENGTH_M, set_rate=False)
        self._program = P4Program.load()
        self._controller: Controller | None = None
        self._flows: list[tuple[int, int]] = []
        self._before: dict[str, Cells] = {}
        self.control: dict[int, list[Arrival]] = {}
        self.base = config()
        self.held = self.base
        self.start_controller()
        self.counts()

    def close(self) -> None:
        try:
            self.stop_controller()
            self.plane.close()
            self._runner.close()
        finally:
            self.fabric.close()
            for tester in self.testers.values():
                tester.close()

    def reset(self) -> None:
        """After a test: no more traffic, pauses over, the base configuration; nothing may be left in the switch."""
        for port, flow in self._flows:
            self.testers[port].stop(flow)
        self._flows.clear()
        for port in RATES:
            self.send_frame(port, xoff(port, range(8), 0))
        self.advance(1 * PS_PER_MS)
        assert not any(tester.count("waiting") for tester in self.testers.values())
        assert (self.core.tm.read_state("pool_used", 0), self.core.packets_held) == (0, 0)
        self.fabric.check()
        if self.held is not self.base:
            self.apply(self.base)
        self.counts()
        self.received()

    # --- control plane

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the loop run until `work` is done."""
        return self._runner.run(work)

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    @property
    def core(self) -> SwitchCore:
        assert self.switch.core is not None
        return self.switch.core

    def start_controller(self) -> None:
        async def start() -> Controller:
            made = Controller(parse(self.held), p4=self._program, client=self.plane.client)
            await made.__aenter__()
            await made.wait_synced(60)
            return made

        self._controller = self.run(start())

    def stop_controller(self) -> None:
        """As a process that ends: the switch keeps what it holds."""
        controller, self._controller = self._controller, None
        if controller is not None:
            self.run(controller.__aexit__(None, None, None))

    def apply(self, configuration: dict[str, Any]) -> None:
        """Let the controller write the difference, and wait until the switch holds it."""

        async def write() -> None:
            await self.controller.apply(parse(configuration))
            await self.controller.wait_synced(60)

        self.held = configuration
        self.run(write())

    def wait(self, what: Awaitable[T]) -> T:
        async def work() -> T:
            return await what

        return self.run(work())

    # --- time and traffic

    @property
    def now_ps(self) -> int:
        return self.fabric.now_ps

    def advance(self, duration_ps: int) -> None:
        """Let virtual time pass."""
        self.advance_to(self.now_ps + duration_ps)

    def advance_to(self, time_ps: int) -> None:
        async def sleep() -> None:
            woken = asyncio.Event()
            self.loop.call_at_ps(time_ps, woken.set)
            await woken.wait()

        self.run(sleep())

    def send(
        self,
        source: int,
        to: int,
        priority: int,
        percent: float,
        *,
        start_ps: int | None = None,
        length_ps: int | None = None,
        sport: int = 49152,
    ) -> int:
        """A flow of `percent` of the source's line rate; its frames are held by pauses of their priority.

        Of `length_ps` (None: until `stop`). Returns the frames that it will send, 0 where that is not known.
        """
        gap_ps = round(wire_ps(FRAME, RATES[source]) * 100 / percent)
        count = None if length_ps is None else length_ps // gap_ps
        start = self.now_ps if start_ps is None else start_ps
        frame = data(source, to, priority, sport)
        held_by = priority if priority in LOSSLESS else UNPAUSED
        flow = self.testers[source].send(frame, count=count, start_ps=start, gap_ps=gap_ps, priority=held_by)
        self._flows.append((source, flow))
        return count or 0

    def send_frame(
        self, port: int, frame: bytes, *, count: int | None = 1, start_ps: int | None = None, gap_ps: int = 0
    ) -> None:
        """A frame as it is, whatever is paused; `count` of them, one each `gap_ps`."""
        start = self.now_ps if start_ps is None else start_ps
        self._flows.append((port, self.testers[port].send(frame, count=count, start_ps=start, gap_ps=gap_ps)))

    def storm(self, port: int, priorities: Iterable[int], length_ps: int, *, gap_ps: int = 200 * PS_PER_US) -> int:
        """XOFF of 65535 quanta (335 us at 100 Gb/s) each `gap_ps` from now on, then XON. Returns the XOFF frames."""
        chosen, count = sorted(priorities), -(-length_ps // gap_ps)
        self.send_frame(port, xoff(port, chosen), count=count, gap_ps=gap_ps)
        self.send_frame(port, xoff(port, chosen, 0), start_ps=self.now_ps + length_ps)
        return count

    def stop(self) -> None:
        """No new frame of any flow."""
        for port, flow in self._flows:
            self.testers[port].stop(flow)

    def drain(self) -> None:
        """Until every frame that is to be sent was, and nothing is in the switch or on a wire. AssertionError if not
        within 200 ms."""
        until_ps = self.now_ps + 200 * PS_PER_MS
        while (
            any(tester.count("waiting") for tester in self.testers.values())
            or self.core.packets_held
            or any(way.stats().in_flight for link in self.fabric.links for way in link.directions)
        ):
            assert self.now_ps < until_ps, "the fabric does not drain"
            self.advance(20 * PS_PER_US)

    # --- looking

    def counts(self) -> Counts:
        """What the controller reads at the switch, since the last call."""
        read = self.run(self.controller.read_counters("leaf1", [*COUNTERS, *DROPS]))
        now = {name: {cell: value.packets for cell, value in cells.items()} for name, cells in read.items()}
        before, self._before = self._before, now
        return Counts(
            {
                name: {cell: n for cell, count in cells.items() if (n := count - before.get(name, {}).get(cell, 0))}
                for name, cells in now.items()
            }
        )

    def received(self) -> Counter[tuple[int, int, int]]:
        """(source, port, priority) -> data frames that reached the tester at a port since the last call. PFC frames
        are put into `control`, by port."""
        found: Counter[tuple[int, int, int]] = Counter()
        for port, tester in self.testers.items():
            self.control[port] = []
            for arrival in tester.arrivals():
                frame = arrival.frame
                if frame[12:14] == b"\x88\x08":
                    self.control[port].append(arrival)
                else:
                    found[frame[29], port, DSCP[frame[15] >> 2]] += 1
            assert tester.count("records_lost") == 0
        return found

    def dequeued(self, port: int) -> dict[int, int]:
        """Bytes that each queue of a port has sent up to this moment."""
        return {q: self.core.tm.read_counter("dequeued", port * 8 + q).bytes for q in range(8)}
