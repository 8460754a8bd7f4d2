"""The gRPC client's own limits: a stream that is never opened does not hold a sender for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from finsy.proto import p4r

from controller import transport


async def test_a_server_that_accepts_no_stream_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that is listened on, but where nobody speaks HTTP/2: the first write would wait for ever."""
    monkeypatch.setattr(transport, "_SEND_SECONDS", 0.2)
    silent: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda _, writer: silent.append(writer), path=str(tmp_path / "s.sock"))
    client = transport.FinsyClient(f"unix:{tmp_path / 's.sock'}", wait_for_ready=True)
    await client.open()
    try:
        with pytest.raises(TimeoutError):
            await client.send(p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(device_id=1)))
    finally:
        await client.close()
        for writer in silent:
            writer.close()
        server.close()
