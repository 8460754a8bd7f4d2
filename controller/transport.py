"""What a `SwitchSession` talks P4Runtime through: a client for one switch, made anew for each connection.

`FinsyClient` (gRPC, real time) is the default. `Controller` takes another factory, such as that of the fabric's
in-process channel in virtual time (fabric.channel). Whatever fails, a client raises finsy's P4ClientError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import grpc
from finsy import P4Client, P4ClientError
from finsy.proto import p4r, p4r_grpc


class P4RuntimeClient(Protocol):
    """The part of finsy's P4Client that a session uses, and `push_pipeline`. All of it raises P4ClientError."""

    async def open(self, *, complete_request: Callable[[Any], None] | None = None) -> None:
        """Once, first. `complete_request` is called with each request before it is sent."""

    async def close(self) -> None:
        """Once, last; what was sent on the stream and not read by the switch may be lost."""

    async def send(self, msg: p4r.StreamMessageRequest) -> None:
        """A message on the stream, which the first one opens. TimeoutError where it is not taken."""

    async def receive(self) -> p4r.StreamMessageResponse:
        """The next message of the stream; RuntimeError when the switch has ended it in order."""

    async def request(self, msg: Any) -> Any:
        """Write, GetForwardingPipelineConfig, Capabilities: request in, response out, within 10 s."""

    def request_iter(self, msg: p4r.ReadRequest) -> AsyncIterator[p4r.ReadResponse]:
        """Read: the responses, within 10 s."""

    async def push_pipeline(self, msg: p4r.SetForwardingPipelineConfigRequest, timeout_s: float) -> None:
        """SetForwardingPipelineConfig, for which the target may have to compile the program."""


ClientFactory = Callable[[str, str], P4RuntimeClient]
"""(name of the switch, its address) -> a client that is not open."""


_SEND_SECONDS = 5.0


class FinsyClient(P4Client):
    """Over gRPC."""

    async def send(self, msg: p4r.StreamMessageRequest) -> None:
        """TimeoutError where the stream takes nothing for 5 s: a server that accepts none holds a write for ever."""
        async with asyncio.timeout(_SEND_SECONDS):
            await super().send(msg)

    async def push_pipeline(self, msg: p4r.SetForwardingPipelineConfigRequest, timeout_s: float) -> None:
        """`request` has a time-out of 10 s, too short for a target that compiles."""
        assert self.channel is not None
        if self._complete_request is not None:
            self._complete_request(msg)
        try:
            await p4r_grpc.P4RuntimeStub(self.channel).SetForwardingPipelineConfig(msg, timeout=timeout_s)
        except grpc.RpcError as error:
            raise P4ClientError(error, "SetForwardingPipelineConfig") from None


def finsy_client(switch: str, address: str) -> P4RuntimeClient:
    """The default factory."""
    return FinsyClient(address, wait_for_ready=False)
