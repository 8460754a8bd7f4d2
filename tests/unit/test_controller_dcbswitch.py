"""The controller and `dcbctl` against `dcbswitch` itself, as a process with the native pipeline and no interfaces."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from controller_fakes import CONFIG
from typer.testing import CliRunner

from controller import Controller
from controller.cli import app
from controller.config import load
from controller.daemon import ControlServer, control_socket
from controller.views import VIEWS

TIMEOUT = 120.0  # the first run on a machine compiles the program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@asynccontextmanager
async def dcbswitch(socket: Path) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "switch.cli", "--no-p4", "--device-id", "1"),
        *("--", "--grpc-server-addr", f"unix:{socket}"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), TIMEOUT)
        assert json.loads(line)["ready"] is True
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), TIMEOUT)


async def dcbctl(*words: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, app, list(words))
    assert result.exit_code == 0, result.stderr
    return result.stdout


async def test_the_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCBLAB_RUN", str(tmp_path))
    path, socket = tmp_path / "lab.yaml", tmp_path / "leaf1.sock"
    path.write_text(CONFIG.replace("ADDRESS", str(socket)))
    async with (
        Controller(load(path)) as controller,
        ControlServer(controller, control_socket("lab"), path),
        dcbswitch(socket),
    ):
        await controller.wait_synced(TIMEOUT)
        [status] = controller.status()
        assert (status.updates_written, status.pipeline_pushes) == (status.entries, 1)
        controller.session("leaf1").resync()
        await controller.wait_synced(TIMEOUT)
        assert controller.status()[0].updates_written == status.entries

        for view in VIEWS:
            data = json.loads(await dcbctl("show", *view.split("_"), "-j"))
            if view == "thresholds":  # a list of groups that a policy moves: this config has none
                assert data["groups"] == []
            else:
                assert len(data.get("ports", data.get("routes"))) == 3
        assert await dcbctl("set", "rate", "leaf1:1", "50M") == "leaf1: 1 updates\n"
        assert await dcbctl("set", "ets", "leaf1:1", "0=30,3=cbs:1M,6=default") == "leaf1: 3 updates\n"
        ecn = ("set", "ecn", "leaf1:1", "3", "kmin=1000", "kmax=2000")
        assert await dcbctl(*ecn) == "leaf1: 1 updates\n"
        changed = controller.status()[0]
        await dcbctl("clear", "counters")
        await dcbctl("clear", "watermarks")

        # a controller that starts on what the first one left changes nothing
        async with Controller(controller.config, election_id=200) as second:
            await second.wait_synced(TIMEOUT)
            [fresh] = second.status()
            assert (fresh.updates_written, fresh.pipeline_pushes) == (0, 0)
        await controller.wait_synced(TIMEOUT)
        assert controller.status()[0].updates_written == changed.updates_written
