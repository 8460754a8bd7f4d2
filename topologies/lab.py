"""A lab in real time: the network, the controller in this process, and scenarios run on them.

    async with Lab(topology, configuration) as lab:
        await lab.apply(other_configuration)
        snapshot = await lab.snapshot()

`run_phases` runs the phases of storage-and-business and hands each `RunResult` out; figures come from
`topologies.measure`, the verdict from the scenario. Real time asserts order, loss and contents only (docs/design.md);
shares are of bytes, not of time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller import Controller, P4Program
from controller import config as controller_config_module
from hosts import roce
from topologies.bmv2 import PROGRAM, Emulation
from topologies.description import Host, Topology
from topologies.measure import COUNTERS, REGISTERS, Snapshot, drops, host_frames, pfc_links, shares
from topologies.network import FabricNetwork, NetworkError, Target
from topologies.processes import HostProcess
from topologies.results import ClassResult, RunResult, Sample
from topologies.scenarios.storage_and_business import Flow, Phase
from topologies.settings import BUSINESS_PRIORITY, STORAGE_DSCP, STORAGE_PRIORITY, controller_config

SYNC_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 15.0
DRAIN_TIMEOUT_S = 10.0
SAMPLE_PERIOD_S = 0.5
WARM_UP_S = 2.0  # TCP's slow start is not contention yet
IPERF_PORT = 5201
SLOW_LINK_BPS = 20_000_000
PAYLOAD_BYTES = 1024
CLASSES = {"storage": STORAGE_PRIORITY, "business": BUSINESS_PRIORITY}


class Lab:
    """The running network with its controller, in this process; use as an async context manager, as root."""

    def __init__(
        self,
        topology: Topology,
        configuration: Mapping[str, Any],
        *,
        lab: str = "lab",
        target: Target = Target.EMBEDDED,
    ) -> None:
        self.topology = topology
        self.network = FabricNetwork(topology, lab=lab, target=target)
        program = P4Program.load(name=PROGRAM if target is Target.BMV2 else "dcb")
        self._controller = Controller(controller_config_module.parse(configuration), p4=program)
        self._emulation: Emulation | None = None
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            self._exit.enter_context(self.network)
            await self._exit.enter_async_context(self._controller)
            await self._controller.wait_synced(timeout=SYNC_TIMEOUT_S)
            if self.network.target is Target.BMV2:
                self._emulation = self._exit.enter_context(Emulation(self.network))
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def apply(self, configuration: Mapping[str, Any]) -> None:
        """Write the difference to another configuration to the running switches."""
        await self._controller.apply(controller_config_module.parse(configuration))
        await self._controller.wait_synced(timeout=SYNC_TIMEOUT_S)

    async def snapshot(self) -> Snapshot:
        """Read the counters and registers of `topologies.measure` from every switch."""
        self.network.check_switches()
        now = time.monotonic()
        pairs = await asyncio.gather(*(self._read(s.name, s.ports) for s in self.topology.switches))
        names = [s.name for s in self.topology.switches]
        return Snapshot(
            now,
            {name: counters for name, (counters, _) in zip(names, pairs, strict=True)},
            {name: registers for name, (_, registers) in zip(names, pairs, strict=True)},
        )

    async def _read(self, switch: str, ports: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
        counters = await self._controller.read_counters(switch, COUNTERS, ports=ports)
        if self._emulation is None:
            registers = await self._controller.read_registers(switch, REGISTERS, ports=ports)
        else:  # BMv2's P4Runtime server reads no registers
            registers = await asyncio.to_thread(self._emulation.state, switch)
        plain = {
            name: {key: (cell.packets, cell.bytes) for key, cell in cells.items()} for name, cells in counters.items()
        }
        return plain, {name: dict(cells) for name, cells in registers.items()}

    async def drained(self) -> Snapshot:
        """The first snapshot in which no switch holds a byte, or the last one tried."""
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while (snapshot := await self.snapshot()).buffered_bytes() and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return snapshot


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, for the screen."""

    phase: str
    number: int
    phases: int
    elapsed_s: float
    duration_s: float
    sample: Sample | None


async def run_phases(
    topology: Topology,
    phases: list[Phase],
    flows: list[Flow],
    *,
    duration_s: float,
    lab: str = "lab",
    target: Target = Target.EMBEDDED,
    progress: Callable[[Progress], None] = lambda _: None,
) -> AsyncIterator[RunResult]:
    """Run the flows once per phase on one network; the controller moves it from one phase's settings to the next."""
    first = controller_config(topology, phases[0].dcb, lab=lab)
    async with Lab(topology, first, lab=lab, target=target) as running:
        for number, phase in enumerate(phases, 1):
            await running.apply(controller_config(topology, phase.dcb, lab=lab))

            def report(elapsed_s: float, sample: Sample | None, phase: Phase = phase, number: int = number) -> None:
                progress(Progress(phase.name, number, len(phases), elapsed_s, duration_s, sample))

            yield await _run_once(running, phase, flows, duration_s, report)


async def _run_once(
    lab: Lab,
    phase: Phase,
    flows: list[Flow],
    duration_s: float,
    report: Callable[[float, Sample | None], None],
) -> RunResult:
    topology = lab.topology
    storage = [f for f in flows if f.traffic_class == "storage"]
    business = [f for f in flows if f.traffic_class == "business"]
    (target,) = {f.destination for f in flows}
    receiver_host = topology.host(target)
    honour_pfc = STORAGE_PRIORITY in phase.dcb.pfc
    before = await lab.snapshot()
    reordered_before = sum(_tcp_reordering(lab, f.source) for f in business)
    async with contextlib.AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(
            HostProcess(lab.network, target, [*_roce(), "recv", "--interface", receiver_host.interface])
        )
        await receiver.line(lambda text: "ready" in text, READY_TIMEOUT_S)
        for n in range(len(business)):
            server = await stack.enter_async_context(
                HostProcess(lab.network, target, ["iperf3", "-s", "-1", "--forceflush", "-p", str(IPERF_PORT + n)])
            )
            await server.line(lambda text: "listening" in text.lower(), READY_TIMEOUT_S)
        start = time.monotonic()
        senders = [
            await stack.enter_async_context(
                HostProcess(lab.network, f.source, _send(topology, f, n + 1, duration_s, honour_pfc))
            )
            for n, f in enumerate(storage)
        ]
        clients = [
            await stack.enter_async_context(
                HostProcess(
                    lab.network,
                    f.source,
                    _iperf(
                        topology.host(f.destination),
                        n,
                        duration_s,
                        topology.rate_bps(receiver_host.leaf, receiver_host.number),
                    ),
                )
            )
            for n, f in enumerate(business)
        ]
        samples, contention = await _sample(lab, receiver_host, before, start, duration_s, report)
        sent = [roce.result(await p.output(DRAIN_TIMEOUT_S)) for p in senders]
        for client in clients:
            iperf = json.loads(await client.output(DRAIN_TIMEOUT_S))
            if "error" in iperf:
                raise NetworkError(f"{client.host}: iperf3: {iperf['error']}")
        after = await lab.drained()
        receiver.terminate()
        received = roce.result(await receiver.output(DRAIN_TIMEOUT_S))
    reordered = sum(_tcp_reordering(lab, f.source) for f in business) - reordered_before
    heard = {f.source: s["pfc_xoff_rx"] + s["pfc_xon_rx"] for f, s in zip(storage, sent, strict=True)}
    return RunResult(
        name=phase.name,
        duration_s=duration_s,
        classes=(
            _storage_result(sent, received, duration_s),
            _business_result(topology, before, after, reordered, duration_s),
        ),
        pfc=pfc_links(topology, before, after, heard),
        share=shares(*contention, receiver_host.leaf, receiver_host.number, CLASSES.values()),
        configured_share=phase.shares,
        paused_ns={n: after.paused_ns(n) - before.paused_ns(n) for n in range(8)}
        | {
            STORAGE_PRIORITY: after.paused_ns(STORAGE_PRIORITY)
            - before.paused_ns(STORAGE_PRIORITY)
            + sum(s["paused_ns"] for s in sent)
        },
        left_in_buffers_bytes=after.buffered_bytes(),
        drops=drops(before, after),
        samples=tuple(samples),
    )


async def _sample(
    lab: Lab,
    receiver: Host,
    before: Snapshot,
    start: float,
    duration_s: float,
    report: Callable[[float, Sample | None], None],
) -> tuple[list[Sample], tuple[Snapshot, Snapshot]]:
    """Sample until the traffic ends; also the snapshots between which both classes were surely at work."""
    samples: list[Sample] = []
    previous, first, last = before, None, before
    while (elapsed := time.monotonic() - start) < duration_s:
        await asyncio.sleep(min(SAMPLE_PERIOD_S, duration_s - elapsed))
        snapshot = await lab.snapshot()
        samples.append(_difference(receiver, before, previous, snapshot, start))
        report(time.monotonic() - start, samples[-1])
        previous = snapshot
        if snapshot.time_s - start <= duration_s - SAMPLE_PERIOD_S:
            last = snapshot
            if first is None and snapshot.time_s - start >= WARM_UP_S:
                first = snapshot
    return samples, (first or before, last)


def _difference(receiver: Host, before: Snapshot, previous: Snapshot, now: Snapshot, start: float) -> Sample:
    leaf, port = receiver.leaf, receiver.number
    seconds = now.time_s - previous.time_s
    return Sample(
        time_s=now.time_s - start,
        received_bps={
            name: 8
            * (now.counters[leaf]["tm_dequeued"][port, q][1] - (previous.counters[leaf]["tm_dequeued"][port, q][1]))
            / seconds
            for name, q in CLASSES.items()
        },
        queue_bytes={name: now.registers[leaf]["tm_queue_depth"][port, q] for name, q in CLASSES.items()},
        pfc_xoff=now.xoff_frames() - before.xoff_frames(),
        lost={name: now.lost(priority) - before.lost(priority) for name, priority in CLASSES.items()},
    )


def _storage_result(sent: list[dict[str, Any]], received: dict[str, Any], duration_s: float) -> ClassResult:
    """Storage is judged by its end points: what senders sent against what the receiver's sequence numbers say."""
    offered = sum(s["sent"] for s in sent)
    if received["kernel_drops"]:
        raise NetworkError(
            f"receiver: kernel dropped {received['kernel_drops']} frames of its ring: no verdict possible"
        )
    return ClassResult(
        name="storage",
        priority=STORAGE_PRIORITY,
        offered=offered,
        received=received["received"],
        lost=offered - received["received"],
        reordered=received["reordered"],
        ce_marked=received["ce_marked"],
        received_bps=int(8 * received["bytes"] / duration_s),
    )


def _business_result(
    topology: Topology, before: Snapshot, after: Snapshot, reordered: int, duration_s: float
) -> ClassResult:
    """Business TCP (data and acknowledgements) is counted at the ports that face hosts; reordering is TCP's view."""
    p = BUSINESS_PRIORITY
    received_bytes = sum(
        after.counters[h.leaf]["tm_dequeued"][h.number, p][1] - before.counters[h.leaf]["tm_dequeued"][h.number, p][1]
        for h in topology.hosts
    )
    return ClassResult(
        name="business",
        priority=p,
        offered=host_frames(topology, after, "rx", p) - host_frames(topology, before, "rx", p),
        received=host_frames(topology, after, "tx", p) - host_frames(topology, before, "tx", p),
        lost=after.lost(p) - before.lost(p),
        reordered=reordered,
        ce_marked=after.packets("ce_marked", p) - before.packets("ce_marked", p),
        received_bps=int(8 * received_bytes / duration_s),
    )


def _tcp_reordering(lab: Lab, host: str) -> int:
    """Reordering events that the kernel's TCP of a host has detected (Linux SNMP counters TcpExt:TCP*Reorder)."""
    lines = Path(f"/proc/{lab.network.pid(host)}/net/netstat").read_text().splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
    return sum(int(v) for n, v in zip(names, values, strict=True) if n.endswith("Reorder"))


def _roce() -> list[str]:
    return [str(roce.binary())]


def _send(topology: Topology, flow: Flow, queue_pair: int, duration_s: float, honour_pfc: bool) -> list[str]:
    source, destination = topology.host(flow.source), topology.host(flow.destination)
    gateway = topology.switch(source.leaf).port_mac(source.number)
    arguments = [*_roce(), "send", "--interface", source.interface, "--src-mac", source.mac, "--dst-mac", gateway]
    arguments += ["--src", source.ip4, "--dst", destination.ip4]
    # one UDP source port per queue pair: what ECMP spreads by
    arguments += ["--dest-qp", str(queue_pair), "--udp-source-port", str(49152 + queue_pair)]
    arguments += ["--dscp", str(STORAGE_DSCP), "--ecn", "2", "--priority", str(STORAGE_PRIORITY)]
    arguments += ["--payload", str(PAYLOAD_BYTES), "--rate", str(flow.rate_bps), "--duration", f"{duration_s:g}"]
    arguments += ["--link-rate", str(topology.rate_bps(source.leaf, source.number))]
    return arguments if honour_pfc else [*arguments, "--no-pfc"]


def _iperf(destination: Host, number: int, duration_s: float, rate_bps: int) -> list[str]:
    # What is in a sender's buffers when the time is over still has to go: not megabytes where that takes half a minute.
    window = ["-w", "64K"] if rate_bps < SLOW_LINK_BPS else []
    return [
        *("iperf3", "-c", destination.ip4, "-p", str(IPERF_PORT + number), "-J", "-P", "4"),
        *("-t", f"{duration_s:g}", "--connect-timeout", "5000", *window),
    ]
