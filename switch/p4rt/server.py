"""The P4Runtime service over grpc.aio: a thin shell around `service.Service`.

The event loop's thread makes every call into the service, one at a time, so Writes are serial and Reads see none half
done. Building a target runs in a worker thread. What the data plane reports wakes the loop through the target's event
file descriptor; timers follow the service's next deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NoReturn

import grpc
import grpc.aio
from finsy.proto import p4r, p4r_grpc, rpc_status

from switch.p4rt.control import TargetControl, TargetFactory
from switch.p4rt.errors import Code, P4RuntimeError
from switch.p4rt.service import BatchError, Outgoing, Service

DEFAULT_ADDRESS = "127.0.0.1:9559"
MAX_RECEIVE_BYTES = 256 << 20
OUTBOX_MESSAGES = 4096  # of one client; packet-ins, digests and idle time-outs beyond it are dropped and counted
POLL_INTERVAL_NS = 50_000_000  # for a target without an event file descriptor

log = logging.getLogger("dcbswitch.p4rt")

_STATUS = {status.value[0]: status for status in grpc.StatusCode}


class _Client:
    """One open stream: what waits to be sent on it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.outbox: deque[p4r.StreamMessageResponse] = deque()
        self.wake = asyncio.Event()
        self.dropped = 0
        self.closed = False  # nothing more comes from the client
        self.failure: P4RuntimeError | None = None

    def post(self, outgoing: Outgoing) -> None:
        if not outgoing.important and len(self.outbox) >= OUTBOX_MESSAGES:
            self.dropped += 1
            return
        self.outbox.append(outgoing.message)
        self.wake.set()


class P4RuntimeServer(p4r_grpc.P4RuntimeServicer):
    """Serve one device. `cpu_port` is the target's; the server only reports it."""

    def __init__(
        self, device_id: int, cpu_port: int | None, target_factory: TargetFactory, target: TargetControl | None = None
    ) -> None:
        self.device_id = device_id
        self.cpu_port = cpu_port
        self.service = Service(device_id, target_factory, target)
        self.dropped_messages = 0
        self._server: grpc.aio.Server | None = None
        self._changing = asyncio.Lock()  # one SetForwardingPipelineConfig at a time
        self._state = asyncio.Lock()  # no Write between the pieces of a Read
        self._watched_fd: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- life ---

    async def start(self, address: str = DEFAULT_ADDRESS, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on host:port or unix:path; returns the port number (1 for a unix socket). OSError when that fails."""
        _check_free(address)
        options = [
            ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
        server = grpc.aio.server(options=options)
        p4r_grpc.add_P4RuntimeServicer_to_server(self, server)
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"--grpc-server-addr {address}: cannot listen there") from error
        if port == 0:
            raise OSError(f"--grpc-server-addr {address}: cannot listen there")
        await server.start()
        self._server = server
        self._watch_target()
        return port

    async def stop(self, grace_s: float = 0.2) -> None:
        """Close all streams, stop forwarding, free the target."""
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch_target()
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None
        self.service.close()

    async def wait(self) -> None:
        """Wait until the server has been stopped."""
        if self._server is not None:
            await self._server.wait_for_termination()

    # --- data plane events ---

    def _watch_target(self) -> None:
        self._unwatch_target()
        target = self.service.target
        fd = target.event_fd() if target is not None else None
        if fd is not None:
            asyncio.get_running_loop().add_reader(fd, self.poll)
            self._watched_fd = fd
        self.poll()

    def _unwatch_target(self) -> None:
        if self._watched_fd is not None:
            asyncio.get_running_loop().remove_reader(self._watched_fd)
            self._watched_fd = None

    def poll(self) -> None:
        """Deliver what the data plane has reported and what is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ns = time.monotonic_ns()
        try:
            self._deliver(self.service.poll(now_ns, time.time_ns()))
        except Exception:
            log.exception("events of the data plane")  # and go on: the next ones may be fine
        deadline = self.service.next_deadline_ns(now_ns)
        if self.service.target is not None and self._watched_fd is None:
            deadline = min(deadline or now_ns + POLL_INTERVAL_NS, now_ns + POLL_INTERVAL_NS)
        if deadline is not None:
            delay_s = max(0, deadline - now_ns) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.poll)

    def _deliver(self, messages: Iterable[Outgoing]) -> None:
        for outgoing in messages:
            client = outgoing.client
            assert isinstance(client, _Client)
            before = client.dropped
            client.post(outgoing)
            self.dropped_messages += client.dropped - before

    # --- RPCs (the names are gRPC's) ---

    async def Capabilities(self, request: p4r.CapabilitiesRequest, context: Any) -> p4r.CapabilitiesResponse:
        """What this server implements."""
        return self.service.capabilities()

    async def Write(self, request: p4r.WriteRequest, context: Any) -> p4r.WriteResponse:
        """A batch of updates."""
        try:
            async with self._state:
                self.service.write(request)
        except P4RuntimeError as error:
            await _abort(context, error)
        except Exception as error:
            await _internal(context, "Write", error)
        finally:
            self.poll()  # an idle timeout or a digest configuration may have come in
        return p4r.WriteResponse()

    async def Read(self, request: p4r.ReadRequest, context: Any) -> AsyncIterator[p4r.ReadResponse]:
        """Entities that match the queries of the request."""
        responses: list[p4r.ReadResponse] = []
        failure: P4RuntimeError | None = None
        try:
            # Collected before anything is sent: a client that reads slowly keeps no Write waiting.
            async with self._state:
                for response in self.service.read(request):
                    responses.append(response)
                    await asyncio.sleep(0)  # a whole counter array takes a while: let streams go on
        except P4RuntimeError as error:
            failure = error
        except Exception as error:
            await _internal(context, "Read", error)
        for response in responses:
            yield response
        if failure is not None:
            await _abort(context, failure)

    async def SetForwardingPipelineConfig(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a program."""
        async with self._changing:
            try:
                change = self.service.prepare(request)
                await asyncio.to_thread(change.build)
                async with self._state:
                    self._unwatch_target()
                    try:
                        self.service.finish(change)
                    finally:
                        self._watch_target()
            except P4RuntimeError as error:
                await _abort(context, error)
            except Exception as error:
                await _internal(context, "SetForwardingPipelineConfig", error)
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Any
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """The program that Read and Write refer to."""
        try:
            return self.service.get_config(request)
        except P4RuntimeError as error:
            await _abort(context, error)

    async def StreamChannel(
        self, request_iterator: AsyncIterator[p4r.StreamMessageRequest], context: Any
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Arbitration, packet I/O, digests, idle time-outs."""
        client = _Client(context.peer())
        receiver = asyncio.create_task(self._receive(client, request_iterator))
        try:
            while not client.closed or client.outbox:
                while client.outbox:
                    yield client.outbox.popleft()
                client.wake.clear()
                if not client.closed:
                    await client.wake.wait()
        finally:
            receiver.cancel()
            self._deliver(self.service.disconnect(client))
        if client.failure is not None:
            log.info("stream of %s ended: %s: %s", client.peer, client.failure.code.name, client.failure.message)
            await _abort(context, client.failure)

    async def _receive(self, client: _Client, requests: AsyncIterator[p4r.StreamMessageRequest]) -> None:
        try:
            async for request in requests:
                self._deliver(self.service.stream_message(client, request))
        except P4RuntimeError as error:
            client.failure = error
        except Exception as error:
            log.exception("stream of %s failed", client.peer)
            client.failure = P4RuntimeError(Code.INTERNAL, f"StreamChannel: {type(error).__name__}: {error}")
        finally:
            client.closed = True
            client.wake.set()


def _check_free(address: str) -> None:
    """gRPC says only that it failed, and takes a unix socket away from whoever serves on it: find out first.

    OSError with the reason.
    """
    where = f"--grpc-server-addr {address}"
    try:
        if address.startswith("unix:"):
            path = address.removeprefix("unix:").removeprefix("//")
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                probe.connect(path)
                raise OSError("another process serves on it")
            if not Path(path).parent.is_dir():
                raise OSError(f"there is no directory {Path(path).parent}")
            return
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise OSError("must be host:port or unix:PATH")
        family, kind, protocol, _, where_to = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where_to)
    except OSError as error:
        raise OSError(f"{where}: {error}") from error


async def _abort(context: Any, error: P4RuntimeError) -> NoReturn:
    metadata: tuple[tuple[str, bytes], ...] = ()
    if isinstance(error, BatchError):
        status: rpc_status.Status = error.status()
        metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(_STATUS[int(error.code)], error.message, metadata)
    raise AssertionError("abort() always raises")


async def _internal(context: Any, what: str, error: Exception) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    log.exception("%s failed", what)
    await _abort(context, P4RuntimeError(Code.INTERNAL, f"{what}: {type(error).__name__}: {error}"))
