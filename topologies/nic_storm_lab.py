"""Runs nic-storm in real time, on Mininet, as an operator would live through it: with `dcbctl` over the control socket.

Two racks and a spine. h1's NIC breaks (`dcbtraffic storm`); h3 sends to it, h4 to h2 beside it, h3 also priority 0 to
h2. The ToR freezes; `dcbctl why` and `dcbctl deadlock` say of what; then storm control alone thaws it, is taken back
(it freezes again), and the PFC watchdog thaws it, until the NIC is well. Real time asserts order and who flows, not
rates.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from controller import Controller
from controller import config as configuration
from controller.daemon import ControlServer, control_socket
from hosts import roce
from topologies.description import Tier, Topology, leaf_spine
from topologies.html_report import LinkFlow, LinkMap
from topologies.network import FabricNetwork, NetworkError
from topologies.paths import run_dir
from topologies.processes import HostProcess
from topologies.results import Check
from topologies.run_report import spread_hops
from topologies.scenario import Outcome, Table
from topologies.scenarios.nic_storm import BROKEN
from topologies.settings import BUSINESS_PRIORITY, STORAGE_PRIORITY, Dcb, controller_config

RATE_BPS = 20_000_000
FLOW_BPS = 6_000_000
CONTROL_BPS = 1_000_000
QUANTA, INTERVAL = 16000, "20ms"  # a pause of 410 ms, refreshed 20 times as often: a busy machine does not end it
CONTROL_RATE = 1  # PFC frames a second that storm control lets through: two fifths of the time paused
TIMEOUT_S = 20.0
TO_BROKEN, TO_WELL, OTHER = "to the broken host", "into its rack", "priority 0, into its rack"
FLOWS = {
    TO_BROKEN: ("h3", BROKEN, STORAGE_PRIORITY, 26, FLOW_BPS),
    TO_WELL: ("h4", "h2", STORAGE_PRIORITY, 26, FLOW_BPS),
    OTHER: ("h3", "h2", BUSINESS_PRIORITY, 0, CONTROL_BPS),
}
ASKED_AT = "leaf2:3"  # two links from the storm
PHASES = (
    *("before", "storm, no cure", "storm, storm control", "storm, storm control taken back"),
    *("storm, watchdog", "after the storm"),
)


@dataclass(slots=True)
class Seen:
    """What the run showed. `frames`: phase -> flow -> frames that reached the hosts' ports in the window."""

    window_s: float
    frames: dict[str, dict[str, int]] = field(default_factory=dict)
    xoff: dict[tuple[str, str], int] = field(default_factory=dict)  # (sender, receiver), until the first cure
    why: str = ""  # what `dcbctl why` printed
    deadlock: dict[str, Any] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)  # the row of `pfcwd stats` in the storm
    stats_after: dict[str, Any] = field(default_factory=dict)
    ignored: int = 0
    commands: list[str] = field(default_factory=list)


def topology() -> Topology:
    return leaf_spine(2, 1, 2, RATE_BPS)


def with_storm_control(config: Mapping[str, Any]) -> dict[str, Any]:
    """The limit on every port that faces a host."""
    made = deepcopy(dict(config))
    for switch in made["switches"].values():
        for port in switch["ports"].values():
            if str(port["peer"]).startswith("h"):
                port["pfc_storm_control"] = {"rate": CONTROL_RATE, "burst": 1}
    return made


class StormLab:
    """The running lab: network, controller with its control socket, flows. Made by `running`."""

    def __init__(self, net: FabricNetwork, controller: Controller, lab: str, say: Callable[[str], None]) -> None:
        self.net, self.controller, self.lab, self.say = net, controller, lab, say
        self.commands: list[str] = []

    async def dcbctl(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run the command; what it prints. NetworkError where its exit code is another one."""
        self.commands.append(" ".join(("dcbctl", *words)))
        self.say(f"$ {self.commands[-1]}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "controller.cli", *words, "--lab", self.lab),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode not in codes:
            raise NetworkError(f"{self.commands[-1]}: exit code {process.returncode}: {(err or out).decode().strip()}")
        return out.decode()

    async def sent(self) -> dict[str, int]:
        """Frames that have left towards the hosts, by flow."""
        read = await self.controller.read_counters("leaf1", ["tm_dequeued"], [1, 2])
        cells = read["tm_dequeued"]
        hosts = {name: (self.net.topology.host(to).number, priority) for name, (_, to, priority, *_) in FLOWS.items()}
        return {name: cells[cell].packets for name, cell in hosts.items()}

    async def sent_in(self, seconds: float) -> dict[str, int]:
        before = await self.sent()
        await asyncio.sleep(seconds)
        return {name: count - before[name] for name, count in (await self.sent()).items()}

    async def until(self, what: str, flows: Mapping[str, bool]) -> None:
        """Until each of these flows does (True) or does not (False) get frames through in half a second."""
        limit = time.monotonic() + TIMEOUT_S
        while True:
            seen = await self.sent_in(0.5)
            if all((seen[name] > 0) is wanted for name, wanted in flows.items()):
                return
            if time.monotonic() > limit:
                raise NetworkError(f"{what}: not within {TIMEOUT_S:g} s; frames in half a second: {seen}")

    async def xoff(self) -> dict[tuple[str, str], int]:
        """XOFF frames of the lossless priority by link and direction: what switches sent, and hosts sent to them."""
        found, fabric = {}, self.net.topology
        for switch in fabric.switches:
            read = await self.controller.read_counters(switch.name, ["pfc_tx_xoff", "pfc_rx_xoff"], switch.ports)
            for port in switch.ports:
                peer = fabric.peer(switch.name, port)
                found[switch.name, peer.node] = read["pfc_tx_xoff"][port, STORAGE_PRIORITY].packets
                if not peer.port:
                    found[peer.node, switch.name] = read["pfc_rx_xoff"][port, STORAGE_PRIORITY].packets
        return {pair: count for pair, count in found.items() if count}

    async def ignored(self) -> int:
        """PFC frames of the broken NIC that storm control ignored."""
        read = await self.controller.read_counters("leaf1", ["pfc_rx_storm"], [1])
        return read["pfc_rx_storm"][1, 0].packets


@contextlib.asynccontextmanager
async def running(lab: str, say: Callable[[str], None]) -> AsyncIterator[tuple[StormLab, Path, dict[str, Any]]]:
    """The lab with its flows; the controller's config file, and what is in it."""
    fabric = topology()
    dcb = Dcb(xoff_bytes=60_000, xon_bytes=40_000).with_pfc(STORAGE_PRIORITY)
    data = controller_config(fabric, dcb, lab=lab)
    async with contextlib.AsyncExitStack() as stack:
        net = stack.enter_context(FabricNetwork(fabric, lab=lab))
        path = run_dir(lab) / "nic-storm.yaml"
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        controller = await stack.enter_async_context(Controller(configuration.parse(data)))
        await stack.enter_async_context(ControlServer(controller, control_socket(lab), path))
        await controller.wait_synced(60)
        for number, (source, to, priority, dscp, rate_bps) in enumerate(FLOWS.values(), 1):
            a, b = fabric.host(source), fabric.host(to)
            command = [
                *(str(roce.binary()), "send", "--interface", a.interface, "--src-mac", a.mac),
                *("--dst-mac", fabric.switch(a.leaf).port_mac(a.number), "--src", a.ip4, "--dst", b.ip4),
                *("--dscp", str(dscp), "--priority", str(priority), "--dest-qp", str(number)),
                *("--rate", str(rate_bps), "--link-rate", str(RATE_BPS)),
            ]
            sender = await stack.enter_async_context(HostProcess(net, source, command))
            await sender.line(lambda text: "ready" in text, TIMEOUT_S)
        yield StormLab(net, controller, lab, say), path, data


async def run(window_s: float = 3.0, lab: str = "lab", say: Callable[[str], None] = lambda _: None) -> Seen:
    """The whole story. Raises NetworkError, TimeoutError, ConfigError, OSError."""
    seen = Seen(window_s)
    async with running(lab, say) as (storm_lab, path, data):
        flowing, frozen = dict.fromkeys(FLOWS, True), {TO_BROKEN: False, TO_WELL: False}

        async def measure(phase: str) -> None:
            seen.frames[phase] = await storm_lab.sent_in(window_s)
            say(f"{phase}: " + ", ".join(f"{name} {n:,} frames" for name, n in seen.frames[phase].items()))

        await storm_lab.until("traffic flows", flowing)
        await measure(PHASES[0])
        before = await storm_lab.xoff()
        async with _storm(storm_lab) as nic:
            await nic.line(lambda text: "ready" in text, TIMEOUT_S)
            await storm_lab.until("the ToR freezes", frozen)
            await measure(PHASES[1])
            seen.why = await storm_lab.dcbctl("why", ASKED_AT, str(STORAGE_PRIORITY), "--interval", "1")
            say(seen.why.rstrip())
            seen.deadlock = json.loads(await storm_lab.dcbctl("deadlock", "-j"))
            now = await storm_lab.xoff()
            seen.xoff = {pair: n for pair, count in now.items() if (n := count - before.get(pair, 0))}
            path.write_text(yaml.safe_dump(with_storm_control(data), sort_keys=False))
            await storm_lab.dcbctl("reload")
            await storm_lab.until("storm control thaws the ToR", flowing)
            await measure(PHASES[2])
            seen.ignored = await storm_lab.ignored()
            path.write_text(yaml.safe_dump(data, sort_keys=False))
            await storm_lab.dcbctl("reload")
            await storm_lab.until("without storm control it freezes again", frozen)
            await measure(PHASES[3])
            await storm_lab.dcbctl("pfcwd", "start", "-a", "drop", "-r", "400", "leaf1:1", "200")
            await storm_lab.until("the watchdog thaws the ToR", {TO_BROKEN: False, TO_WELL: True})
            await measure(PHASES[4])
            stormed = await storm_lab.dcbctl("pfcwd", "stats", "--check-storm", "-j", codes=(1,))
            (seen.stats,) = json.loads(stormed)["queues"]
        await storm_lab.until("the NIC is well and the watchdog lets it have its frames", flowing)
        await measure(PHASES[5])
        (seen.stats_after,) = json.loads(await storm_lab.dcbctl("pfcwd", "stats", "-j"))["queues"]
        seen.commands = storm_lab.commands
        storm_lab.net.check_switches()
    return seen


def _storm(lab: StormLab) -> HostProcess:
    storm = [sys.executable, "-m", "hosts.cli", "storm", "--dev", f"{BROKEN}-eth0", "--xoff", str(STORAGE_PRIORITY)]
    lab.say(f"{BROKEN}$ dcbtraffic storm --xoff {STORAGE_PRIORITY} --quanta {QUANTA} --interval {INTERVAL}")
    return HostProcess(lab.net, BROKEN, [*storm, "--quanta", str(QUANTA), "--interval", INTERVAL])


# --- what it proves ---------------------------------------------------------------------------------------------------


def verdict(seen: Seen) -> list[Check]:
    """Pure. Each claim with the figures that decide it."""
    frames, hops = seen.frames, spread_hops(seen.xoff)
    before, free, limited, unlimited, watched, after = (frames[phase] for phase in PHASES)
    quarter = before[TO_WELL] // 4  # real time: who flows, not how fast
    row, later = seen.stats, seen.stats_after
    ends = seen.why.splitlines()[-1].strip() if seen.why else ""
    return [
        Check(
            "no cure: the host beside the broken one gets no lossless frame any more",
            before[TO_WELL] > 0 and free[TO_WELL] == 0 and free[TO_BROKEN] == 0,
            f"{free[TO_WELL]} frames in {seen.window_s:g} s, {before[TO_WELL]:,} before",
        ),
        Check(
            "no cure: priority 0 on the same links goes on",
            free[OTHER] > before[OTHER] // 4,
            f"{free[OTHER]:,} frames, {before[OTHER]:,} before",
        ),
        Check(
            "the pause goes over 4 links: NIC, ToR, spine, other ToR, its hosts",
            hops == 4 and {(BROKEN, "leaf1"), ("leaf1", "spine1"), ("spine1", "leaf2")} <= set(seen.xoff),
            ", ".join(f"{a} -> {b}" for a, b in seen.xoff),
        ),
        Check(
            f"`dcbctl why`, asked at {ASKED_AT}, names the broken host",
            f"is paused by {BROKEN}, which is no switch of this fabric" in ends,
            ends,
        ),
        Check(
            "`dcbctl deadlock` finds no ring: it is a storm",
            seen.deadlock.get("now") == [] and seen.deadlock.get("possible") == [],
            f"{len(seen.deadlock.get('now', []))} rings of {seen.deadlock.get('paused_queues')} paused queues",
        ),
        Check(
            "storm control alone: all flow while the storm goes on",
            limited[TO_WELL] > quarter and limited[TO_BROKEN] > 0 and seen.ignored > 0,
            f"{limited[TO_WELL]:,} frames, to the broken host {limited[TO_BROKEN]:,}; {seen.ignored:,} XOFF ignored",
        ),
        Check(
            "storm control taken back: it freezes again",
            unlimited[TO_WELL] == 0,
            f"{unlimited[TO_WELL]} frames",
        ),
        Check(
            "watchdog: the rack flows while the storm goes on, what is for the broken host is dropped",
            watched[TO_WELL] > quarter
            and watched[TO_BROKEN] == row.get("tx_last_ok") == 0
            and row.get("status") == "stormed"
            and row.get("tx_last_drop", 0) > 0,
            f"{watched[TO_WELL]:,} frames; {row.get('name')}:{row.get('priority')} {row.get('status')}, "
            f"{row.get('tx_last_drop', 0):,} dropped",
        ),
        Check(
            "after the storm all flow: the watchdog has let go by itself",
            after[TO_WELL] > quarter
            and after[TO_BROKEN] > quarter
            and (later.get("status"), later.get("detected"), later.get("restored")) == ("operational", 1, 1),
            ", ".join(f"{name} {n:,}" for name, n in after.items()) + f"; {later.get('status')}",
        ),
    ]


def link_map(seen: Seen) -> LinkMap:
    """XOFF over the links from the first XOFF of the storm until the first cure."""
    fabric = topology()
    tiers = [[s.name for s in fabric.switches if s.tier is tier] for tier in (Tier.SPINE, Tier.LEAF)]
    tiers.append([host.name for host in fabric.hosts])
    pairs = [(link.a.node, link.b.node) for link in fabric.links]
    flows = [LinkFlow(a, b, float(count), f"{count} XOFF") for (a, b), count in seen.xoff.items()]
    note = f"An arrow: XOFF frames that its tail sent to its head; the longest way is {spread_hops(seen.xoff)} hops"
    return LinkMap("nic-storm: the pause before the first cure", tiers, pairs, flows, note)


def outcome(seen: Seen) -> Outcome:
    """For the screen and the report."""
    rows = [[phase, *(f"{frames[name]:,}" for name in FLOWS)] for phase, frames in seen.frames.items()]
    figures = {f"{phase}: {name}": n for phase, frames in seen.frames.items() for name, n in frames.items()}
    return Outcome(
        verdict(seen),
        [Table(f"Frames to the hosts in {seen.window_s:g} s", ("phase", *FLOWS), rows)],
        [],
        {**figures, "hops": spread_hops(seen.xoff), "XOFF ignored": seen.ignored},
        [*(f"$ {command}" for command in seen.commands), *seen.why.splitlines()],
        [link_map(seen)],
    )
