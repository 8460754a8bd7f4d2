"""A host with a broken NIC freezes a ToR in real time; the PFC watchdog thaws it. Real frames, real processes.

h3 sends to h1, whose NIC storms, and h4 to h2, which is well; both cross the spine and share the lossless priority.
What h1 does not take fills leaf1, which pauses the spine: then nothing comes for h2 either.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from controller import Controller
from controller import config as configuration
from controller.daemon import ControlServer, control_socket
from hosts import roce
from topologies.description import Topology, leaf_spine
from topologies.network import FabricNetwork
from topologies.processes import HostProcess
from topologies.settings import Dcb, controller_config

pytestmark = pytest.mark.mininet

LAB = "pfcwdtest"
RATE_BPS = 20_000_000
FLOW_BPS = 6_000_000
PRIORITY = 3
WINDOW_S = 1.0
TIMEOUT_S = 20.0
BROKEN, WELL = ("leaf1", 1), ("leaf1", 2)


async def dcbctl(*words: str, code: int = 0) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controller.cli", "pfcwd", *words, "--lab", LAB),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == code, (out + err).decode()
    return out.decode()


class Tor:
    """What leaves leaf1 towards its hosts."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def sent(self, end: tuple[str, int]) -> int:
        switch, port = end
        read = await self._controller.read_counters(switch, ["tm_dequeued"], [port])
        return read["tm_dequeued"][port, PRIORITY].packets

    async def sent_in(self, end: tuple[str, int], seconds: float = WINDOW_S) -> int:
        before = await self.sent(end)
        await asyncio.sleep(seconds)
        return await self.sent(end) - before

    async def until(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        limit = time.monotonic() + TIMEOUT_S
        while not await true():
            assert time.monotonic() < limit, f"not within {TIMEOUT_S:g} s: {what}"


def send(topology: Topology, source: str, destination: str) -> list[str]:
    a, b = topology.host(source), topology.host(destination)
    gateway = topology.switch(a.leaf).port_mac(a.number)
    return [
        *(str(roce.binary()), "send", "--interface", a.interface, "--src-mac", a.mac, "--dst-mac", gateway),
        *("--src", a.ip4, "--dst", b.ip4, "--dscp", "26", "--priority", str(PRIORITY)),
        *("--rate", str(FLOW_BPS), "--link-rate", str(RATE_BPS)),
    ]


async def test_a_broken_nic_freezes_a_tor_without_the_watchdog_and_not_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCBLAB_RUN", str(tmp_path / "run"))
    topology = leaf_spine(2, 1, 2, RATE_BPS)
    dcb = Dcb(xoff_bytes=60_000, xon_bytes=40_000).with_pfc(PRIORITY)
    config = configuration.parse(controller_config(topology, dcb, lab=LAB))
    with FabricNetwork(topology, lab=LAB) as net:
        async with (
            Controller(config) as controller,
            ControlServer(controller, control_socket(LAB), None),
            HostProcess(net, "h3", send(topology, "h3", "h1")) as first,
            HostProcess(net, "h4", send(topology, "h4", "h2")) as second,
        ):
            await first.line(lambda text: "ready" in text, TIMEOUT_S)
            await second.line(lambda text: "ready" in text, TIMEOUT_S)
            await controller.wait_synced(60)
            tor = Tor(controller)

            async def flows(end: tuple[str, int]) -> bool:
                return await tor.sent_in(end, 0.2) > 0

            async def frozen() -> bool:
                return await tor.sent_in(WELL, 0.5) == 0

            await tor.until("traffic", lambda: flows(WELL))
            storm = [sys.executable, "-m", "hosts.cli", "storm", "--dev", "h1-eth0", "--xoff", str(PRIORITY)]
            async with HostProcess(net, "h1", [*storm, "--link-rate", str(RATE_BPS)]) as nic:
                await nic.line(lambda text: "ready" in text, TIMEOUT_S)
                await tor.until("leaf1 is frozen: h2 gets nothing because h1 takes nothing", frozen)
                assert await tor.sent_in(WELL) == 0
                assert await tor.sent_in(BROKEN, 0.1) == 0

                await dcbctl("start", "-a", "drop", "-r", "400", "leaf1:1", "200")
                await tor.until("the watchdog thaws leaf1", lambda: flows(WELL))
                sent = await tor.sent_in(WELL)
                assert sent > FLOW_BPS / 8 / 1200 * WINDOW_S / 4  # about 690 a second on an idle machine
                assert await tor.sent_in(BROKEN, 0.1) == 0  # its storm goes on, and what is for it is dropped
                out = await dcbctl("show", "stats", "--check-storm", "-j", code=1)
                [row] = json.loads(out)["queues"]
                assert (row["name"], row["priority"], row["status"]) == ("leaf1-eth1", PRIORITY, "stormed")
                assert row["tx_last_drop"] > 0
                assert row["tx_last_ok"] == 0
            # the NIC is well again
            await tor.until("h1 gets its frames again", lambda: flows(BROKEN))
            out = await dcbctl("show", "stats", "-j")
            [row] = json.loads(out)["queues"]
            assert (row["status"], row["detected"], row["restored"]) == ("operational", 1, 1)
            assert await dcbctl("show", "stats", "--check-storm")
        net.check_switches()
