"""`dcbctl why` and `dcbctl deadlock`: reads the switches twice, a moment apart, and says who keeps whom waiting.

`look` makes the two views of `controller.waitfor` over P4Runtime; `why` answers the four questions of a stuck priority
(is the peer still sending PFC, did a resume arrive, is the time infinite, did PFC go to the wrong port) and follows the
pause hop by hop to where it comes from; `deadlock` joins the static check of the config with the rings found now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from finsy import P4ClientError

from controller.config import Config
from controller.control import Controller
from controller.deadlock import cycles
from controller.edit import SelectionError, select
from controller.links import PortRef
from controller.reasons import PFC_INVALID
from controller.switches import NotConnectedError
from controller.views import port_head
from controller.waitfor import Cause, Chain, FabricView, Queue, SwitchView, WaitGraph, delta, describe_ring, sources

Json = dict[str, Any]
T = TypeVar("T")

DEFAULT_INTERVAL_S = 0.2
LONGEST_INTERVAL_S = 10.0
FULL_QUANTA = 65535
QUANTUM_BITS = 512
_COUNTERS = ("pfc_rx_xoff", "pfc_rx_xon", "pfc_tx_xoff", "pfc_tx_xon", "pfc_rx_invalid", "tm_dequeued")
_REGISTERS = ("tm_pause_left", "tm_queue_depth", "tm_pg_xoff", "tm_queue_sources")
_ADVICE = {
    Cause.HOST: "look at that host: a slow or broken receiver; a watchdog or storm control on the port contains it",
    Cause.CONGESTION: "more is sent to that port than it carries: ECN thresholds below XOFF slow the senders",
    Cause.DEADLOCK: "break the ring: a watchdog drops one of its queues; routes without a valley prevent it",
    Cause.LOOP: "the buffers depend on each other in a ring: see `dcbctl deadlock`",
    Cause.DRAINED: "nothing to do, unless it comes back",
}


async def view(controller: Controller) -> FabricView:
    """What all switches show now; one that does not answer is missing."""
    found = await _answers(controller, lambda name: _switch(controller, name))
    return FabricView(round(asyncio.get_running_loop().time() * 1e9), found)


async def _answers(controller: Controller, ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """What each switch answers, by name, without those that do not."""

    async def one(name: str) -> T | None:
        try:
            return await ask(name)
        except (NotConnectedError, P4ClientError):
            return None

    names = list(controller.running.switches)
    answers = await asyncio.gather(*(one(name) for name in names))
    return {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}


async def _switch(controller: Controller, name: str) -> SwitchView:
    read = await controller.read_counters(name, _COUNTERS)
    packets = {counter: {cell: v.packets for cell, v in cells.items()} for counter, cells in read.items()}
    registers = await controller.read_registers(name, _REGISTERS)
    return SwitchView(
        pause_left=registers["tm_pause_left"],
        depth=registers["tm_queue_depth"],
        packets=packets["tm_dequeued"],
        sources={cell: sources(mask) for cell, mask in registers["tm_queue_sources"].items()},
        xoff=frozenset(cell for cell, state in registers["tm_pg_xoff"].items() if state),
        rx_xoff=packets["pfc_rx_xoff"],
        rx_xon=packets["pfc_rx_xon"],
        rx_invalid=packets["pfc_rx_invalid"],
        tx_xoff=packets["pfc_tx_xoff"],
        tx_xon=packets["pfc_tx_xon"],
    )


async def anything_paused(controller: Controller) -> bool:
    """Whether any priority of any port is paused now: one register of each switch that answers."""
    reads = await _answers(controller, lambda name: controller.read_registers(name, ("tm_pause_left",)))
    return any(any(cells["tm_pause_left"].values()) for cells in reads.values())


async def look(controller: Controller, interval_s: float = DEFAULT_INTERVAL_S) -> WaitGraph:
    """Two views of the fabric, `interval_s` apart."""
    before = await view(controller)
    await asyncio.sleep(interval_s)
    return WaitGraph(controller.running, before, await view(controller))


def one_port(config: Config, target: str) -> PortRef:
    """The one port that a target names. Raises SelectionError."""
    chosen = [PortRef(switch, port) for switch, ports in select(config, target) for port in ports]
    if len(chosen) != 1:
        raise SelectionError(f"{target!r}: one port is wanted (leaf1:3 or leaf1-eth3), not {len(chosen)}")
    return chosen[0]


async def why(controller: Controller, target: str, priority: int, interval_s: float = DEFAULT_INTERVAL_S) -> Json:
    """Why a priority of a port does not send. Raises SelectionError, NotConnectedError (that switch is away)."""
    port = one_port(controller.running, target)
    graph = await look(controller, interval_s)
    if port.switch not in graph.before.switches or port.switch not in graph.now.switches:
        raise NotConnectedError(f"switch {port.switch}: does not answer")
    return explain(graph, port, priority)


def explain(graph: WaitGraph, port: PortRef, priority: int) -> Json:
    """The answer of `why`, from two views."""
    queue = Queue(port.switch, port.port, priority)
    now = graph.now.switches[port.switch]
    left = now.pause_left.get((port.port, priority), 0)
    depth = graph.depth(queue)
    chains = graph.chains(queue) if left else []
    return port_head(graph.config, port.switch, port.port) | {
        "neighbour": graph.links.neighbour(port),
        "priority": priority,
        "paused": left > 0,
        "pause_left_quanta": left,
        "queue_bytes": depth,
        "sent_frames": graph.sent(queue),
        "interval_s": (graph.now.time_ns - graph.before.time_ns) / 1e9,
        "questions": _questions(graph, port, priority),
        "chains": [_chain(chain) for chain in chains],
        "summary": _summary(queue, left, depth, chains),
    }


def _summary(queue: Queue, left: int, depth: int, chains: list[Chain]) -> str:
    if chains:
        return f"{chains[0].text}; {_ADVICE[chains[0].cause]}"
    if depth:
        return f"{queue} is not paused and holds {depth} bytes: it waits for its turn on the link"
    return f"{queue} is not paused and holds nothing"


def _chain(chain: Chain) -> Json:
    return {
        "cause": chain.cause.value,
        "text": chain.text,
        "propagation_hops": chain.propagation_hops,
        "hops": [
            {
                "queue": str(hop.queue),
                "bytes": hop.depth_bytes,
                "pause_left_quanta": hop.pause_left_quanta,
                "waits_for": None if hop.waits_for is None else str(hop.waits_for),
            }
            for hop in chain.hops
        ],
    }


def _questions(graph: WaitGraph, port: PortRef, priority: int) -> list[Json]:
    """The four questions of a stuck priority, each with yes or no and the figures."""
    cell = port.port, priority
    before, now = graph.before.switches[port.switch], graph.now.switches[port.switch]
    xoff, xon = delta(before.rx_xoff, now.rx_xoff, cell), delta(before.rx_xon, now.rx_xon, cell)
    left_before, left = before.pause_left.get(cell, 0), now.pause_left.get(cell, 0)
    wrong, why_wrong = _wrong_port(graph, port, priority, xoff)
    return [
        {
            "question": "is the peer still sending XOFF?",
            "yes": xoff > 0,
            "evidence": f"{xoff} XOFF frames for priority {priority} came in on {port} meanwhile"
            + ("" if xoff or not left else _too_short(graph, port)),
        },
        {
            "question": "did a resume arrive?",
            "yes": xon > 0,
            "evidence": f"{xon} XON frames meanwhile, {now.rx_xon.get(cell, 0)} since the switch started",
        },
        {
            "question": "is the time infinite?",
            "yes": left > FULL_QUANTA or bool(left and left >= left_before and not xoff),
            "evidence": _infinite(left_before, left, xoff),
        },
        {"question": "did PFC go to the wrong port?", "yes": wrong, "evidence": why_wrong},
    ]


def _too_short(graph: WaitGraph, port: PortRef) -> str:
    """A hint where the peer need not have refreshed its XOFF between the two looks."""
    rate_bps = graph.config.switches[port.switch].ports[port.port].rate
    refresh_s = FULL_QUANTA * QUANTUM_BITS / 2 / rate_bps
    if (graph.now.time_ns - graph.before.time_ns) / 1e9 >= refresh_s:
        return ""
    return f"; a peer may take {refresh_s:.3g} s to say it again at this rate: ask with --interval {2 * refresh_s:.1g}"


def _infinite(before: int, left: int, xoff: int) -> str:
    if not left:
        return "no pause is running"
    if left > FULL_QUANTA or (left >= before and not xoff):
        return "the pause does not count down and nothing renews it: until resumed (dialect D1)"
    renewed = f"renewed by {xoff} frames meanwhile" if xoff else "not renewed"
    return f"{left} quanta left ({before} before), {renewed}; 802.1Qbb has no infinite pause"


def _wrong_port(graph: WaitGraph, port: PortRef, priority: int, received: int) -> tuple[bool, str]:
    """PFC is for the neighbour alone; after a MAC move, or through a bridge, it may come out somewhere else."""
    before, now = graph.before.switches[port.switch], graph.now.switches[port.switch]
    misdirected = delta(before.rx_invalid, now.rx_invalid, (port.port, PFC_INVALID.index("destination")))
    if misdirected:
        return True, f"{misdirected} frames came in on {port} with a destination that is not 01-80-C2-00-00-01"
    far = graph.links.peer(port)
    if far is None:
        return False, f"{graph.links.neighbour(port)} is no switch of this fabric: what it sent is not known"
    cell = far.port, priority
    nobody = SwitchView()
    peer_before, peer_now = graph.before.switches.get(far.switch, nobody), graph.now.switches.get(far.switch, nobody)
    if peer_now is nobody:
        return False, f"{far.switch} does not answer: what it sent is not known"
    sent = delta(peer_before.tx_xoff, peer_now.tx_xoff, cell)
    total_sent, total = peer_now.tx_xoff.get(cell, 0), now.rx_xoff.get((port.port, priority), 0)
    text = f"{far} sent {sent} XOFF meanwhile ({total_sent} in all), {port} received {received} ({total} in all)"
    return total > total_sent and received > sent, text


async def deadlock(controller: Controller, interval_s: float = DEFAULT_INTERVAL_S) -> Json:
    """Rings that stand still now, and rings that the config's routes make possible."""
    graph = await look(controller, interval_s)
    rings = graph.cycles()
    return {
        "now": [{"text": describe_ring(ring), "queues": [str(queue) for queue in ring]} for ring in rings],
        "possible": possible(controller.running),
        "paused_queues": len(graph.paused()),
    }


def possible(config: Config) -> list[Json]:
    """The static check, as data."""
    return [
        {"text": str(cycle), "dependencies": [str(dependency) for dependency in cycle.dependencies]}
        for cycle in cycles(config)
    ]
