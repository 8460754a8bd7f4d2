"""P4Runtime in process and in virtual time: the client that a controller's session uses, over the sans-IO service.

    VirtualClient --messages, each way with a delay--> Connection --> Server (fabric.control.VirtualSwitch) --> Service

A `Connection` is what TCP would be: each direction keeps its order, may stall (messages wait) and may break (the client
sees UNAVAILABLE, the switch that the stream has ended). `Delays` says how long each message takes to the switch, until
it is handled, and back. What is sent is copied, so neither end sees the other's objects. Errors are finsy's
P4ClientError with the codes and details that gRPC would carry; time-outs are finsy's.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
from finsy import P4ClientError
from finsy.proto import p4r

from fabric.loop import PS_PER_S, VirtualLoop
from switch.p4rt.errors import P4RuntimeError
from switch.p4rt.service import BatchError

M = TypeVar("M")
ONE_WAY_PS = 100_000_000  # 100 us
CONNECT_TIMEOUT_PS = 20 * PS_PER_S  # gRPC's
REQUEST_TIMEOUT_PS = 10 * PS_PER_S  # finsy's
_STATUS = {status.value[0]: status for status in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class Delays:
    """Of every message, in picoseconds: on the way (each way), and at the switch until it is handled.

    The jitters are upper bounds of what is added, uniformly, by the generator of the switch.
    """

    one_way_ps: int = ONE_WAY_PS
    one_way_jitter_ps: int = 0
    handling_ps: int = 0
    handling_jitter_ps: int = 0

    def __post_init__(self) -> None:
        for name in ("one_way_ps", "one_way_jitter_ps", "handling_ps", "handling_jitter_ps"):
            if getattr(self, name) < 0:
                raise ValueError(f"Delays: {name}: {getattr(self, name)}: must not be negative")

    def way_ps(self, generator: random.Random) -> int:
        """Of one message on its way."""
        return self.one_way_ps + (generator.randint(0, self.one_way_jitter_ps) if self.one_way_jitter_ps else 0)

    def handle_ps(self, generator: random.Random) -> int:
        """Of one request or stream message at the switch."""
        return self.handling_ps + (generator.randint(0, self.handling_jitter_ps) if self.handling_jitter_ps else 0)


class Server(Protocol):
    """One life of a switch process, as a connection sees it; all of it happens now."""

    alive: bool

    def connected(self, connection: Connection) -> None:
        """A connection is made."""

    def stream_message(self, connection: Connection, message: p4r.StreamMessageRequest) -> None:
        """A message on the connection's stream. P4RuntimeError ends the stream."""

    def stream_ended(self, connection: Connection) -> None:
        """The stream of the connection is over."""

    def call(self, request: Any) -> list[Any]:
        """A request: its responses. P4RuntimeError, whose `responses` are those before it where there are some."""


class Host(Protocol):
    """A switch, which may be up or not."""

    name: str
    delays: Delays
    generator: random.Random
    reachable: bool  # connections can be made and are not cut
    stalled: bool  # nothing arrives for now

    @property
    def server(self) -> Server | None:
        """The process, where one runs."""

    @property
    def connections(self) -> list[Connection]:
        """Those that are open. The connection adds and removes itself."""


class _Direction:
    """Messages one way: in order, delayed, held while the switch is stalled."""

    def __init__(self, loop: VirtualLoop, host: Host) -> None:
        self._loop, self._host = loop, host
        self._last_ps = 0
        self._parked: deque[Callable[[], None]] = deque()
        self.open = True

    def post(self, deliver: Callable[[], None], extra_ps: int = 0) -> None:
        delay_ps = self._host.delays.way_ps(self._host.generator) + extra_ps
        self._last_ps = max(self._last_ps, self._loop.now_ps + delay_ps)
        self._loop.call_at_ps(self._last_ps, self._arrive, deliver)

    def _arrive(self, deliver: Callable[[], None]) -> None:
        if not self.open:
            return
        if self._host.stalled or self._parked:
            self._parked.append(deliver)
        else:
            deliver()

    def resume(self) -> None:
        """Deliver, in order, what was held."""
        while self._parked and self.open and not self._host.stalled:
            self._parked.popleft()()


class Connection:
    """Between one client and one life of a switch."""

    def __init__(self, loop: VirtualLoop, host: Host, server: Server) -> None:
        self._loop, self._host, self.server = loop, host, server
        self.to_switch, self.to_client = _Direction(loop, host), _Direction(loop, host)
        self.failure: Exception | None = None  # as the client sees it
        self.streaming = self._refused = False  # at the switch
        self.stream_failure: Exception | None = None  # at the client
        self.inbox: deque[p4r.StreamMessageResponse] = deque()
        self._changed = asyncio.Event()
        self._pending: set[_Call] = set()
        host.connections.append(self)
        server.connected(self)

    # ---- at the client ----------------------------------------------------------------------------------------------

    def send(self, message: p4r.StreamMessageRequest) -> None:
        """A stream message on its way."""
        copy = p4r.StreamMessageRequest()
        copy.CopyFrom(message)
        self.to_switch.post(lambda: self._handle_message(copy), self._host.delays.handle_ps(self._host.generator))

    async def receive(self) -> p4r.StreamMessageResponse:
        """The next stream message, or what became of the stream."""
        while not self.inbox:
            if self.failure is not None:
                raise self.failure
            if self.stream_failure is not None:
                raise self.stream_failure
            self._changed.clear()
            await self._changed.wait()
        return self.inbox.popleft()

    def start(self, request: Any, timeout_ps: int) -> _Call:
        """A request on its way."""
        copy = type(request)()
        copy.CopyFrom(request)
        call = _Call(self._loop.now_ps + timeout_ps)
        self._pending.add(call)
        call.timer = self._loop.call_at_ps(call.deadline_ps, call.fail, _timed_out())
        call.done = lambda: self._pending.discard(call)
        self.to_switch.post(lambda: self._handle_request(copy, call))
        return call

    def close(self) -> None:
        """The client goes; the switch hears of it."""
        if self.failure is None:
            self.failure = _error(grpc.StatusCode.CANCELLED, "Channel closed!")
            self.to_client.open = False
            self._fail_pending(self.failure)
            self.to_switch.post(self._gone)

    def break_off(self, reason: str) -> None:
        """The switch has died, or the way is cut: what was on its way is lost, and the client hears a message later."""
        self.to_switch.open = self.to_client.open = False
        self._gone()
        if self.failure is None:
            when_ps = self._loop.now_ps + self._host.delays.way_ps(self._host.generator)
            self._loop.call_at_ps(when_ps, self._lost, _error(grpc.StatusCode.UNAVAILABLE, reason))

    def _lost(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            self._fail_pending(error)
            self._changed.set()

    def _fail_pending(self, error: Exception) -> None:
        for call in sorted(self._pending, key=lambda one: one.number):
            call.fail(error)

    # ---- at the switch ----------------------------------------------------------------------------------------------

    def respond(self, message: p4r.StreamMessageResponse) -> None:
        """A stream message for the client."""
        copy = p4r.StreamMessageResponse()
        copy.CopyFrom(message)
        self.to_client.post(lambda: self._take(copy))

    def _gone(self) -> None:
        if self in self._host.connections:
            self._host.connections.remove(self)
            self._end_stream()

    def _end_stream(self) -> None:
        if self.streaming:
            self.streaming = False
            if self.server.alive:
                self.server.stream_ended(self)

    def _handle_message(self, message: p4r.StreamMessageRequest) -> None:
        if not self.server.alive or self._refused:
            return
        self.streaming = True
        try:
            self.server.stream_message(self, message)
        except P4RuntimeError as error:
            self._refused = True
            self._end_stream()
            failure = _error(_STATUS[int(error.code)], error.message)
            self.to_client.post(lambda: self._stream_is_over(failure))

    def _handle_request(self, request: Any, call: _Call) -> None:
        """It waits for its turn at the switch beside others: their order is not kept."""
        delay_ps = self._host.delays.handle_ps(self._host.generator)
        if delay_ps:
            self._loop.call_at_ps(self._loop.now_ps + delay_ps, self._handle, request, call)
        else:
            self._handle(request, call)

    def _handle(self, request: Any, call: _Call) -> None:
        if not self.server.alive or not self.to_switch.open or self._loop.now_ps >= call.deadline_ps:
            return
        error: Exception | None = None
        responses: list[Any] = []
        try:
            responses = self.server.call(request)
        except P4RuntimeError as refusal:
            responses, error = getattr(refusal, "responses", []), _rpc_error(refusal)
        for response in responses:
            self.to_client.post(lambda response=response: call.add(response))  # type: ignore[misc]
        self.to_client.post(lambda: call.end(error))

    # ---- back at the client -----------------------------------------------------------------------------------------

    def _take(self, message: p4r.StreamMessageResponse) -> None:
        self.inbox.append(message)
        self._changed.set()

    def _stream_is_over(self, failure: Exception) -> None:
        self.stream_failure = failure
        self._changed.set()


class _Call:
    """A request that is not answered yet, at the client."""

    _count = 0

    def __init__(self, deadline_ps: int) -> None:
        self.deadline_ps = deadline_ps
        self.responses: deque[Any] = deque()
        self.ended = False
        self.error: Exception | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.done: Callable[[], object] = lambda: None
        self._changed = asyncio.Event()
        _Call._count += 1
        self.number = _Call._count

    def add(self, response: Any) -> None:
        """A response has come."""
        if not self.ended:
            self.responses.append(response)
            self._changed.set()

    def end(self, error: Exception | None) -> None:
        """All have come, or the status says why not."""
        if not self.ended:
            self.ended, self.error = True, error
            if self.timer is not None:
                self.timer.cancel()
            self.done()
            self._changed.set()

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        self.end(error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            while self.responses:
                yield self.responses.popleft()
            if self.ended:
                if self.error is not None:
                    raise self.error
                return
            self._changed.clear()
            await self._changed.wait()


class VirtualClient:
    """controller.transport.P4RuntimeClient to a `Host`."""

    def __init__(self, host: Host, address: str) -> None:
        self._host, self._address = host, address
        self._complete: Callable[[Any], None] | None = None
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._stream: Connection | None = None  # that which carries the stream
        self._is_open = False

    async def open(self, *, schema: object = None, complete_request: Callable[[Any], None] | None = None) -> None:
        """See finsy."""
        assert not self._is_open, "the client is open"
        self._is_open, self._complete = True, complete_request

    async def close(self) -> None:
        """See finsy."""
        self._is_open = False
        if self._connection is not None:
            self._connection.close()
            self._connection = self._stream = None

    async def _connect(self) -> Connection:
        """The connection; making one takes a message there and back, and being refused one does too."""
        assert self._is_open, "the client is not open"
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise RuntimeError(f"{self._host.name}: the channel is virtual and needs a VirtualLoop")
        async with self._connecting:
            if self._connection is not None and self._connection.stream_failure is not None:
                self._connection.close()
            if self._connection is None or self._connection.failure is not None:
                delays, generator = self._host.delays, self._host.generator
                there = loop.now_ps + delays.way_ps(generator)
                await _until(loop, there)
                give_up_ps = loop.now_ps + CONNECT_TIMEOUT_PS
                while self._host.stalled and loop.now_ps < give_up_ps:
                    await _until(loop, loop.now_ps + PS_PER_S)  # TCP tries again after a second
                if self._host.stalled:
                    raise _error(grpc.StatusCode.UNAVAILABLE, f"failed to connect: error: {self._address}: timed out")
                server = self._host.server if self._host.reachable else None
                back = loop.now_ps + delays.way_ps(generator)
                await _until(loop, back)
                if server is None or not server.alive or not self._host.reachable:
                    text = f"failed to connect: error: {self._address}: connection refused"
                    raise _error(grpc.StatusCode.UNAVAILABLE, text)
                self._connection = Connection(loop, self._host, server)
            return self._connection

    async def send(self, msg: p4r.StreamMessageRequest) -> None:
        """See finsy: opens a stream where there is none."""
        try:
            connection = await self._connect()
        except grpc.RpcError as error:
            raise P4ClientError(error, "send") from None
        self._stream = connection
        connection.send(msg)

    async def receive(self) -> p4r.StreamMessageResponse:
        """See finsy."""
        assert self._stream is not None, "nothing has been sent"
        try:
            return await self._stream.receive()
        except grpc.RpcError as error:
            raise P4ClientError(error, "receive") from None

    async def request(self, msg: Any) -> Any:
        """See finsy."""
        (response,) = [one async for one in self._call(msg, REQUEST_TIMEOUT_PS)]
        return response

    async def request_iter(self, msg: p4r.ReadRequest) -> AsyncIterator[p4r.ReadResponse]:
        """See finsy."""
        async for response in self._call(msg, REQUEST_TIMEOUT_PS):
            yield response

    async def push_pipeline(self, msg: p4r.SetForwardingPipelineConfigRequest, timeout_s: float) -> None:
        """SetForwardingPipelineConfig."""
        async for _ in self._call(msg, round(timeout_s * PS_PER_S)):
            pass

    async def _call(self, msg: Any, timeout_ps: int) -> AsyncIterator[Any]:
        if self._complete is not None:
            self._complete(msg)
        operation = type(msg).__name__
        try:
            connection = await self._connect()
            async for response in connection.start(msg, timeout_ps):
                yield response
        except grpc.RpcError as error:
            raise P4ClientError(error, operation, msg=msg) from None


async def _until(loop: VirtualLoop, when_ps: int) -> None:
    reached = loop.create_future()
    timer = loop.call_at_ps(when_ps, lambda: None if reached.done() else reached.set_result(None))
    try:
        await reached
    finally:
        timer.cancel()


def _error(code: grpc.StatusCode, message: str, details: bytes = b"") -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*([("grpc-status-details-bin", details)] if details else []))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details=message, debug_error_string="")


def _rpc_error(error: P4RuntimeError) -> grpc.aio.AioRpcError:
    details = error.status().SerializeToString() if isinstance(error, BatchError) else b""
    return _error(_STATUS[int(error.code)], error.message, details)


def _timed_out() -> grpc.aio.AioRpcError:
    return _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
