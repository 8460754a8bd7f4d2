"""Runs dcbx-bring-up: the network, the controller in this process, `dcb-host` in the hosts, storage as they say.

What is awaited are states (of the controller's agents and the hosts' state files), never times.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller import Controller, P4Program
from controller import config as configuration
from controller.daemon import ControlServer, control_socket
from dcb.dcbx.report import link_report
from hosts import roce
from topologies.bmv2 import PROGRAM, Emulation
from topologies.dcbx import HostAgents, dcbx_config, source_dcbx, source_port
from topologies.network import FabricNetwork, NetworkError, Target
from topologies.processes import HostProcess
from topologies.scenarios import dcbx_bring_up as scenario
from topologies.settings import Dcb

TIMEOUT_S = 60.0
START_DELAY_NS = 2_000_000_000  # for Python to start in every sender's host
STUBBORN = [sys.executable, "-m", "hosts.roce"]  # DSCP 26, priority 3, whatever DCBX says


async def run(
    duration_s: float,
    lab: str,
    say: Callable[[str], None] = lambda _: None,
    target: Target = Target.EMBEDDED,
) -> scenario.Outcome:
    """The whole scenario. Raises NetworkError, TimeoutError, ConfigError."""
    setting = scenario.SETTINGS[target]
    topology = scenario.topology(setting.rate_bps)
    source = source_dcbx([scenario.BEFORE], scenario.SHARES[scenario.BEFORE])
    config = configuration.parse(dcbx_config(topology, replace(Dcb(), **setting.buffers), source, lab=lab))
    program = P4Program.load(name=PROGRAM if target is Target.BMV2 else "dcb")
    async with contextlib.AsyncExitStack() as stack:
        net = stack.enter_context(FabricNetwork(topology, lab=lab, target=target))
        controller = await stack.enter_async_context(Controller(config, p4=program))
        await stack.enter_async_context(ControlServer(controller, control_socket(lab), None))
        await controller.wait_synced(TIMEOUT_S)
        emulation = stack.enter_context(Emulation(net)) if target is Target.BMV2 else None
        runner = _Runner(net, controller, emulation, setting, duration_s)
        say("switches are up; no host speaks DCBX")
        without = await runner.load("no DCBX on hosts", scenario.BEFORE, dict.fromkeys(scenario.SENDERS, STUBBORN))
        say(f"lost {sum(without.lost.values()):,} storage frames; starting dcb-host in every host")
        refuse = ["--willing", "none", "--pfc", str(scenario.REFUSES_PRIORITY)]
        agents = await stack.enter_async_context(HostAgents(net, lab, {scenario.REFUSES: refuse}))
        first = await runner.agreement(agents, scenario.BEFORE)
        say(f"PFC {first.priority} agreed on after {first.seconds:.1f} s")
        as_agreed = {host: agents.sender(host) for host in scenario.SENDERS}
        lossless = await runner.load(f"PFC {scenario.BEFORE}", scenario.BEFORE, as_agreed)
        say(f"lost {sum(lossless.lost.values())} storage frames, {lossless.xoff} XOFF")
        mixed = {scenario.SENDERS[0]: as_agreed[scenario.SENDERS[0]], scenario.REFUSES: STUBBORN}
        refusal = await runner.load(f"{scenario.REFUSES} refuses", scenario.BEFORE, mixed)
        mismatches = runner.mismatches()
        say(f"moving PFC to priority {scenario.AFTER} at {':'.join(map(str, source_port(topology)))}")
        await runner.tell_source(source_dcbx([scenario.AFTER], scenario.SHARES[scenario.AFTER]))
        second = await runner.agreement(agents, scenario.AFTER)
        moved = await runner.load(f"PFC {scenario.AFTER}", scenario.AFTER, as_agreed)
        say(f"lost {sum(moved.lost.values())} storage frames, {moved.xoff} XOFF")
        net.check_switches()
    return scenario.Outcome(without, first, lossless, refusal, mismatches, second, moved)


class _Runner:
    def __init__(
        self,
        net: FabricNetwork,
        controller: Controller,
        emulation: Emulation | None,
        setting: scenario.Setting,
        duration_s: float,
    ) -> None:
        self._net, self._controller, self._emulation = net, controller, emulation
        self._setting, self._duration_s = setting, duration_s
        self._topology = net.topology

    def ports(self) -> dict[str, dict[int, list[int]]]:
        """PFC priorities by switch and port."""
        switches = self._controller.running.switches
        return {name: {n: list(p.pfc) for n, p in switch.ports.items()} for name, switch in switches.items()}

    def mismatches(self) -> list[str]:
        """Interfaces of switches whose links do not agree."""
        return [
            name
            for agent in self._controller.dcbx.agents.values()
            for number, name in agent.names.items()
            if not link_report(agent.port(number)).agrees
        ]

    async def tell_source(self, dcbx: Mapping[str, Any]) -> None:
        """Another configuration of the source."""
        data = configuration.to_data(self._controller.config)
        switch, port = source_port(self._topology)
        data["switches"][switch]["ports"][port]["dcbx"] = dict(dcbx)
        await self._controller.apply(configuration.parse(data))

    async def agreement(self, agents: HostAgents, priority: int) -> scenario.Agreement:
        """Wait until nobody but the refusing host lacks `priority`; then what is run."""
        start, refuses = time.monotonic(), self._topology.host(scenario.REFUSES)

        def states() -> dict[str, dict[str, Any]]:
            return {host.name: agents.state(host.name)["operational"] for host in self._topology.hosts}

        def agreed() -> bool:
            ports = self.ports()
            ports[refuses.leaf].pop(refuses.number)
            try:
                hosts = [oper["pfc"]["lossless"] for name, oper in states().items() if name != refuses.name]
            except NetworkError:
                return False
            return all(pfc == [priority] for pfc in (*hosts, *(p for of in ports.values() for p in of.values())))

        while not agreed():
            if time.monotonic() - start > TIMEOUT_S:
                raise NetworkError(f"PFC {priority}: not agreed on within {TIMEOUT_S:g} s: {self.ports()}")
            await asyncio.sleep(0.05)
        await self._controller.wait_synced(TIMEOUT_S)
        seconds, seen = time.monotonic() - start, states()
        lossless = {name: oper["pfc"]["lossless"] for name, oper in seen.items()}
        bandwidth = {name: oper["ets"]["bandwidth_percent"] for name, oper in seen.items()}
        return scenario.Agreement(priority, seconds, self.ports(), lossless, bandwidth)

    async def load(self, name: str, priority: int, senders: Mapping[str, Sequence[str]]) -> scenario.Load:
        """Storage from each sender at once, to the end and drained."""
        target, before = self._topology.host(scenario.RECEIVER), await self._xoff(priority)
        async with contextlib.AsyncExitStack() as stack:
            command = [str(roce.binary()), "recv", "--interface", target.interface]
            receiver = await stack.enter_async_context(HostProcess(self._net, target.name, command))
            await receiver.line(lambda text: "ready" in text, TIMEOUT_S)
            running, start_ns = {}, time.monotonic_ns() + START_DELAY_NS
            for number, (host, sender) in enumerate(senders.items(), 1):
                options = ["send", "--dst", target.ip4, "--start-at", str(start_ns), "--dest-qp", str(number)]
                options += ["--rate", str(self._setting.flow_bps), "--link-rate", str(self._setting.rate_bps)]
                options += ["--udp-source-port", str(50000 + number), "--duration", f"{self._duration_s:g}"]
                process = HostProcess(self._net, host, [*sender, *options])
                running[host] = await stack.enter_async_context(process)
            limit_s = TIMEOUT_S + 2 * self._duration_s
            sent = {host: roce.result(await process.output(limit_s))["sent"] for host, process in running.items()}
            await self._drained()
            receiver.terminate()
            result = roce.result(await receiver.output(TIMEOUT_S))
        if result["kernel_drops"]:
            raise NetworkError(f"receiver: kernel dropped {result['kernel_drops']} frames: no verdict possible")
        got = {flow["dest_qp"]: flow["received"] for flow in result["flows"]}
        lost = {host: sent[host] - got.get(number, 0) for number, host in enumerate(senders, 1)}
        return scenario.Load(name, priority, sent, lost, await self._xoff(priority) - before)

    async def _xoff(self, priority: int) -> int:
        total = 0
        for switch in self._topology.switches:
            read = await self._controller.read_counters(switch.name, ["egress.pfc_tx_xoff"], switch.ports)
            total += sum(read["egress.pfc_tx_xoff"][port, priority].packets for port in switch.ports)
        return total

    async def _drained(self) -> None:
        end = time.monotonic() + TIMEOUT_S
        for switch in self._topology.switches:
            while await self._buffered_bytes(switch.name):
                if time.monotonic() > end:
                    raise NetworkError(f"switch {switch.name}: does not drain")
                await asyncio.sleep(0.05)

    async def _buffered_bytes(self, switch: str) -> int:
        if self._emulation is not None:  # BMv2's P4Runtime server reads no registers
            state = await asyncio.to_thread(self._emulation.state, switch)
            return sum(state["tm_queue_depth"].values())
        read = await self._controller.read_registers(switch, ["egress.tm_pool_used"], [0])
        return read["egress.tm_pool_used"][0, 0]
