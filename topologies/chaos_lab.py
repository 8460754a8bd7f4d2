"""Chaos on Mininet: the steps of `topologies.chaos` that a lab in real time can do, one after the other.

Around each step RDMA frames go both ways between the racks: while it is broken, and again once it is mended. A step has
healed when of the second all arrive, in order; when every switch holds the controller's configuration; and when no
switch holds a frame. Of a step that calls itself lossless the first ones all have to arrive too. Frames here are not
sent again when they are lost: what is missing was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from controller import Controller
from controller import config as controller_config_module
from hosts import roce
from topologies.chaos import STEPS, Action
from topologies.description import Topology, leaf_spine
from topologies.network import FabricNetwork, NetworkError
from topologies.processes import HostProcess
from topologies.results import Check
from topologies.settings import STORAGE_DSCP, STORAGE_PRIORITY, Dcb, controller_config, host_ports, watchdog

RATE_BPS, FLOW_BPS, PAYLOAD_BYTES = 100_000_000, 5_000_000, 1024
PAIRS = (("h1", "h4"), ("h3", "h2"))
SYNC_TIMEOUT_S, READY_TIMEOUT_S, DRAIN_TIMEOUT_S = 60.0, 20.0, 20.0
PROBE_S, MARGIN_S = 1.0, 0.5
WATCHDOG_MS = 200
QUANTA, STORM_INTERVAL = 65535, "100ms"  # a pause of 335 ms
SLOWER = 1000  # a virtual millisecond is a real second
DCBTRAFFIC = ("-m", "hosts.cli")


def topology() -> Topology:
    return leaf_spine(2, 2, 2, RATE_BPS)


def configuration(fabric: Topology, lab: str) -> dict[str, Any]:
    """The labs' own, and the switch's watchdog on ports to hosts."""
    made = deepcopy(controller_config(fabric, Dcb(pfc=(STORAGE_PRIORITY,)), lab=lab))
    for port in host_ports(fabric, made):
        port["pfc_watchdog"] = watchdog(WATCHDOG_MS, mode="switch")
    return made


@dataclass(frozen=True, slots=True)
class Traffic:
    """Frames of all pairs: sent, received, and of these out of order."""

    sent: int
    received: int
    reordered: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One step."""

    action: Action
    during: Traffic
    after: Traffic
    out_of_step: list[str]
    left_bytes: int
    sync: str


class ChaosLab:
    """The running network with its controller, which can be killed; use as an async context manager, as root."""

    def __init__(self, lab: str) -> None:
        self.topology = topology()
        self.network = FabricNetwork(self.topology, lab=lab)
        self._config = controller_config_module.parse(configuration(self.topology, lab))
        self._exit = contextlib.AsyncExitStack()
        self._controller: Controller | None = None

    async def __aenter__(self) -> ChaosLab:
        try:
            self._exit.enter_context(self.network)
            await self.start_controller()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_controller()
        await self._exit.aclose()

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    async def start_controller(self) -> None:
        """Start it and wait until every switch holds the configuration."""
        controller = Controller(self._config)
        await controller.__aenter__()
        self._controller = controller
        await controller.wait_synced(timeout=SYNC_TIMEOUT_S)

    async def stop_controller(self) -> None:
        controller, self._controller = self._controller, None
        if controller is not None:
            await controller.__aexit__(None, None, None)

    async def left_bytes(self) -> int:
        """What the lossless groups of all switches hold, once they have had time to drain."""
        left = 0
        for _ in range(round(DRAIN_TIMEOUT_S / 0.2)):
            left = 0
            for switch in self.topology.switches:
                read = await self.controller.read_registers(switch.name, ["tm_pg_depth"], switch.ports)
                left += sum(read["tm_pg_depth"].values())
            if not left:
                break
            await asyncio.sleep(0.2)
        return left

    async def traffic(self, seconds: float, meanwhile: Callable[[], Any] | None = None) -> Traffic:
        """Frames of every pair for so long; `meanwhile` is awaited beside it."""
        async with contextlib.AsyncExitStack() as stack:
            receivers = [await stack.enter_async_context(self._receiver(target)) for _, target in PAIRS]
            for receiver in receivers:
                await receiver.line(lambda text: "ready" in text, READY_TIMEOUT_S)
            senders = [
                await stack.enter_async_context(HostProcess(self.network, a, self._send(a, b, n + 1, seconds)))
                for n, (a, b) in enumerate(PAIRS)
            ]
            if meanwhile is not None:
                await meanwhile()
            sent = [roce.result(await p.output(seconds + DRAIN_TIMEOUT_S)) for p in senders]
            await asyncio.sleep(MARGIN_S)
            for receiver in receivers:
                receiver.terminate()
            received = [roce.result(await p.output(DRAIN_TIMEOUT_S)) for p in receivers]
        if any(r["kernel_drops"] for r in received):
            raise NetworkError("a receiver's kernel dropped frames of its ring: no verdict possible")
        return Traffic(
            sum(s["sent"] for s in sent), sum(r["received"] for r in received), sum(r["reordered"] for r in received)
        )

    def _receiver(self, host: str) -> HostProcess:
        arguments = [str(roce.binary()), "recv", "--interface", self.topology.host(host).interface]
        return HostProcess(self.network, host, arguments)

    def _send(self, a: str, b: str, queue_pair: int, seconds: float) -> list[str]:
        source, target = self.topology.host(a), self.topology.host(b)
        gateway = self.topology.switch(source.leaf).port_mac(source.number)
        return [
            *(str(roce.binary()), "send", "--interface", source.interface, "--src-mac", source.mac),
            *("--dst-mac", gateway, "--src", source.ip4, "--dst", target.ip4, "--dest-qp", str(queue_pair)),
            *("--udp-source-port", str(49152 + queue_pair), "--dscp", str(STORAGE_DSCP), "--ecn", "2"),
            *("--priority", str(STORAGE_PRIORITY), "--payload", str(PAYLOAD_BYTES), "--rate", str(FLOW_BPS)),
            *("--duration", f"{seconds:g}", "--link-rate", str(RATE_BPS)),
        ]


def seconds(action: Action) -> float:
    """How long the fault lasts here."""
    return action.duration_us * SLOWER / 1e6


async def run(actions: Sequence[Action], lab: str, say: Callable[[str], None]) -> list[Seen]:
    """Carry the plan out. NetworkError, TimeoutError where the lab itself fails; ValueError for a step of others."""
    for action in actions:
        if not STEPS[action.step].real:
            raise ValueError(f"steps: {action.step!r}: virtual labs alone can do it")
    seen = []
    async with ChaosLab(lab) as running:
        for number, action in enumerate(actions, 1):
            say(f"step {number} of {len(actions)}: {action} (a thousand times as long)")
            seen.append(await _step(running, action))
    return seen


async def _step(lab: ChaosLab, action: Action) -> Seen:
    statuses = {status.name: status for status in lab.controller.status()}
    during = await lab.traffic(seconds(action) + MARGIN_S, lambda: _do(lab, action))
    await lab.controller.wait_synced(timeout=SYNC_TIMEOUT_S)
    if action.step == "nic-storm":
        await asyncio.sleep(QUANTA * 512 / RATE_BPS + 2 * WATCHDOG_MS / 1e3)  # the last pause, and the restoration
    after = await lab.traffic(PROBE_S)
    left = await lab.left_bytes()
    now = {status.name: status for status in lab.controller.status()}
    fresh = action.step == "controller-restart"
    pushes = sum(s.pipeline_pushes - (0 if fresh else statuses[n].pipeline_pushes) for n, s in now.items())
    written = sum(s.updates_written - (0 if fresh else statuses[n].updates_written) for n, s in now.items())
    return Seen(
        action,
        during,
        after,
        [name for name, status in now.items() if status.state.value != "synced"],
        left,
        f"the controller pushed {pushes} programs and wrote {written} entries",
    )


async def _do(lab: ChaosLab, action: Action) -> None:
    """The fault, for its time; mended when this returns."""
    target, time_s = action.target, seconds(action)
    if action.step == "nic-storm":
        await _storm(lab, target[0], time_s)
    elif action.step == "link-flap":
        a, b = target
        port = next(p for p in lab.topology.switch(a).ports if lab.topology.peer(a, p).node == b)
        for _ in range(action.times):
            for state in ("down", "up"):
                await asyncio.to_thread(lab.network.shell, a, f"ip link set {a}-eth{port} {state}")
                await asyncio.sleep(time_s / action.times / 2)
    elif action.step == "controller-restart":
        await lab.stop_controller()
        await asyncio.sleep(time_s)
        await lab.start_controller()
    elif action.step == "switch-restart":
        lab.network.kill_switch(target[0])
        await asyncio.sleep(time_s)
        await asyncio.to_thread(lab.network.start_switch, target[0])


async def _storm(lab: ChaosLab, host: str, time_s: float) -> None:

    arguments = [sys.executable, *DCBTRAFFIC, "storm", "--xoff", str(STORAGE_PRIORITY), "--quanta", str(QUANTA)]
    arguments += ["--interval", STORM_INTERVAL, "--duration", f"{time_s:g}s"]
    arguments += ["--dev", lab.topology.host(host).interface]
    async with HostProcess(lab.network, host, arguments) as storm:
        await storm.output(time_s + DRAIN_TIMEOUT_S)


def verdict(seen: Sequence[Seen]) -> list[Check]:
    """Pure. Claims of each step."""
    checks = []
    for number, one in enumerate(seen, 1):
        name = f"{number} {one.action.step}"
        healed = one.after.sent > 0 and one.after.received == one.after.sent and not one.after.reordered
        checks += [
            Check(
                f"{name}: comes back: all frames arrive, in order",
                healed,
                f"{one.after.received:,} of {one.after.sent:,}; while it was broken {one.during.received:,} of "
                f"{one.during.sent:,}",
            ),
            Check(
                f"{name}: every switch holds the configuration, and no frame",
                not one.out_of_step and not one.left_bytes,
                f"{one.sync}, {one.left_bytes} bytes left" + "".join(f", {s} is out of step" for s in one.out_of_step),
            ),
        ]
        if STEPS[one.action.step].lossless:
            checks.append(
                Check(
                    f"{name}: nothing is lost meanwhile",
                    one.during.sent > 0 and one.during.received == one.during.sent,
                    f"{one.during.received:,} of {one.during.sent:,}",
                )
            )
    return checks
