"""The P4Runtime server over gRPC on a unix socket, with raw stubs: configuration, streams, packets, digests,
time-outs."""

from __future__ import annotations

from pathlib import Path

import pytest
from finsy.proto import p4r
from p4rt_client import Lab, config, serve


@pytest.fixture
async def lab(tmp_path: Path):
    async with serve(tmp_path) as made:
        yield made


async def test_capabilities(lab: Lab) -> None:
    reply = await lab.client().call("Capabilities", p4r.CapabilitiesRequest())
    assert reply.p4runtime_api_version == "1.4.1"


async def test_commit_and_get(lab: Lab) -> None:
    client = await lab.primary()
    got = await client.get_config()
    assert got == config()
    cookie = await client.get_config("COOKIE_ONLY")
    assert cookie.cookie.cookie == 5
    assert not cookie.HasField("p4info")
    assert not cookie.p4_device_config
