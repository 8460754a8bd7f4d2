"""One leaf with four hosts at 1 Gb/s in virtual time: the real controller, the real switch, broken NICs.

10.1.0.<n> is behind port n; DSCP 8 * p + 2 is priority p; priorities with PFC are lossless. Frames are 1000 bytes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any

from bare_world import BareWorld
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from controller import Controller, P4Program
from controller.config import Config, parse
from controller.watchdog import WatchdogAgent, WatchdogEvent
from dcb.pfc import build_pfc, parse_pfc, pfc_frame
from dcb.watchdog import Stats
from fabric.channel import Delays
from fabric.control import ControlPlane, VirtualSwitch
from fabric.loop import PS_PER_S, VirtualLoop, run

PROGRAM = P4Program.load()
RATE_BPS = 10**9
MS = 10**9  # in ps
PORTS = range(1, 5)
REFRESH_PS = 20 * MS  # a pause of 65535 quanta lasts 33.6 ms at 1 Gb/s
XOFF_BYTES, XON_BYTES = 20_000, 10_000
FRAME_BYTES = 1000
DSCP = {8 * p + 2: p for p in range(8)}
BUFFER = {"xoff": XOFF_BYTES, "xon": XON_BYTES, "headroom": 50_000}


def config(
    key: dict[str, Any] | None = None,
    fabric: dict[str, Any] | None = None,
    pfc: Iterable[int] = (3, 4),
    watched: Iterable[int] = PORTS,
) -> Config:
    """`key`: pfc_watchdog of the ports in `watched`; None: nothing is watched."""
    lossless = sorted(pfc)
    ports: dict[int, Any] = {}
    for n in PORTS:
        ports[n] = {
            "name": f"leaf1-eth{n}",
            "mac": f"02:01:00:00:01:{n:02x}",
            "rate": RATE_BPS,
            "pfc": lossless,
            "buffers": dict.fromkeys(sorted({*lossless, 3, 4}), BUFFER),
        }
        if key is not None and n in watched:
            ports[n]["pfc_watchdog"] = key
    routes = [{"prefix": f"10.1.0.{n}/32", "via": [{"port": n, "mac": f"02:00:00:00:01:{n:02x}"}]} for n in PORTS]
    data: dict[str, Any] = {
        "qos_profiles": {"default": {"dscp_to_priority": DSCP, "lossless": [*range(8)]}},
        "switches": {"leaf1": {"device_id": 1, "address": "virtual:leaf1", "ports": ports, "routes": routes}},
    }
    if fabric is not None:
        data["pfc_watchdog"] = fabric
    return parse(data)


@cache
def data(source: int, to: int, priority: int) -> bytes:
    head = Ether(dst=f"02:01:00:00:01:{source:02x}", src=f"02:00:00:00:01:{source:02x}")
    head = head / IP(src=f"10.1.0.{source}", dst=f"10.1.0.{to}", tos=(8 * priority + 2) << 2, id=7)
    return bytes(head / UDP(sport=1000, dport=9, chksum=0) / bytes(FRAME_BYTES - 42))


class PfcwdWorld:
    """See the module; in a VirtualLoop. Times that are given are from now, in ps."""

    def __init__(self, world: BareWorld, delays: Delays | None = None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop, self.world = loop, world
        self.plane = ControlPlane(loop, world, delays=delays)
        self.leaf = self.plane.add("leaf1", 1, PORTS)

    @property
    def switch(self) -> VirtualSwitch:
        return self.leaf

    def controller(self, of: Config, election_id: int = 100) -> Controller:
        return Controller(of, p4=PROGRAM, client=self.plane.client, election_id=election_id)

    # ---- hosts ------------------------------------------------------------------------------------------------------

    def send(
        self, source: int, to: int, priority: int, count: int, *, after_ps: int = 0, spacing_ps: int = 20_000_000
    ) -> None:
        """Frames from the host at a port; by default 20 us apart (wire time is 8.2 us)."""
        for n in range(count):
            self.world.inject(
                self.loop.now_ps + after_ps + n * spacing_ps, ("leaf1", source), data(source, to, priority)
            )

    def storm(
        self, port: int, priorities: Iterable[int], length_ps: int, *, after_ps: int = 0, xon: bool = True
    ) -> tuple[int, int]:
        """XOFF every 20 ms, at the end XON. Returns the times of the first and the last XOFF."""
        start_ps, source = self.loop.now_ps + after_ps, bytes.fromhex(f"0200000001{port:02x}")
        wanted, last_ps = sorted(priorities), start_ps
        frame = build_pfc(pfc_frame(source, xoff=wanted))
        for last_ps in range(start_ps, start_ps + length_ps, REFRESH_PS):
            self.world.inject(last_ps, ("leaf1", port), frame)
        if xon:
            self.world.inject(start_ps + length_ps, ("leaf1", port), build_pfc(pfc_frame(source, xon=wanted)))
        return start_ps, last_ps

    def left(self, since_ps: int = 0) -> Counter[tuple[int, int]]:
        """(port, priority) -> data frames that left."""
        found: Counter[tuple[int, int]] = Counter()
        for when, _, port, frame in self.world.trace:
            if when >= since_ps and frame[12:14] == b"\x08\x00":
                found[port, frame[15] >> 5] += 1
        return found

    def pfc_sent(self, port: int, since_ps: int = 0) -> list[tuple[int, dict[int, int]]]:
        """(when, priority -> quanta) of the PFC frames that left a port."""
        found = []
        for when, _, at, frame in self.world.trace:
            if at == port and when >= since_ps and frame[12:14] == b"\x88\x08":
                parsed = parse_pfc(frame)
                found.append((when, {p: parsed.times[p] for p in range(8) if parsed.vector >> p & 1}))
        return found

    # ---- what the controller says -----------------------------------------------------------------------------------

    async def sleep_ps(self, time_ps: int) -> None:
        await asyncio.sleep(time_ps / PS_PER_S)

    def storms(self) -> dict[tuple[int, int], int]:
        """(port, priority) -> storm_state of the switch, where it is not 0."""
        core = self.leaf.core
        assert core is not None
        found = {(port, p): core.tm.read_state("storm_state", port * 8 + p) for port in PORTS for p in range(8)}
        return {pair: state for pair, state in found.items() if state}


def agent(controller: Controller) -> WatchdogAgent:
    return controller.watchdog.switches["leaf1"].agent


def stats(controller: Controller, port: int, priority: int) -> Stats:
    return agent(controller).watches[port, priority].machine.stats


def events(controller: Controller) -> list[tuple[int, int, str]]:
    """(port, priority, kind), in order."""
    return [(event.port, event.priority, event.kind) for event in agent(controller).log]


async def wait_event(
    controller: Controller, kind: str, *, port: int = 2, priority: int = 3, count: int = 1
) -> WatchdogEvent:
    """The count-th of a kind, once it is there and the switch holds what follows from it."""
    service = controller.watchdog
    async with asyncio.timeout(30):
        while True:
            found = [e for e in agent(controller).log if (e.port, e.priority, e.kind) == (port, priority, kind)]
            if len(found) >= count:
                await service.wait_applied(5)
                return found[count - 1]
            await service.wait_news({"leaf1": agent(controller).logged}, 30)


def in_world(work: Callable[[PfcwdWorld], Awaitable[None]], delays: Delays | None = None) -> None:
    world = BareWorld()

    async def main() -> None:
        made = PfcwdWorld(world, delays)
        try:
            await work(made)
        finally:
            made.plane.close()

    run(world, main(), limit_ps=600 * PS_PER_S)
