"""Test programs and a bare P4Runtime client for tests of the server: gRPC stubs, no finsy logic in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from finsy.proto import p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format
from p4rt_fakes import FakeTargetFactory

from switch.p4rt.server import P4RuntimeServer

DATA = Path(__file__).parent / "p4rt_data"
EVERYTHING_JSON = DATA / "everything.json"
EVERYTHING_P4INFO = DATA / "everything.p4info.txtpb"
REPOSITORY = Path(__file__).parents[2]
DCB_JSON = REPOSITORY / "p4src/build/dcb.json"
DCB_P4INFO = REPOSITORY / "p4src/build/dcb.p4info.txtpb"
DEVICE_ID = 7


@lru_cache(maxsize=4)
def _parsed(path: Path) -> p4i.P4Info:
    return text_format.Parse(path.read_text(), p4i.P4Info())


def p4info(path: Path = EVERYTHING_P4INFO) -> p4i.P4Info:
    """A copy of its own, to change at will."""
    message = p4i.P4Info()
    message.CopyFrom(_parsed(path))
    return message


def config(json_path: Path = EVERYTHING_JSON, info_path: Path = EVERYTHING_P4INFO, cookie: int | None = 5) -> Any:
    message = p4r.ForwardingPipelineConfig(p4info=p4info(info_path), p4_device_config=json_path.read_bytes())
    if cookie is not None:
        message.cookie.cookie = cookie
    return message


class Names:
    """Ids of a P4Info by name."""

    def __init__(self, info: p4i.P4Info) -> None:
        self._ids: dict[str, int] = {}
        for objects in (
            info.tables, info.actions, info.action_profiles, info.counters, info.direct_counters, info.meters,
            info.direct_meters, info.registers, info.digests, info.value_sets,
        ):  # fmt: skip
            for item in objects:
                self._ids[item.preamble.name] = item.preamble.id

    def __getitem__(self, name: str) -> int:
        return self._ids[name] if name in self._ids else self._ids[f"IngressImpl.{name}"]


class Failure(Exception):
    """A failed RPC: status, and the p4.v1.Error of each update."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")
        self.code = error.code()
        self.message = error.details() or ""
        self.status = rpc_status.Status()
        self.errors: list[p4r.Error] = []
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                self.status.ParseFromString(value)
        for detail in self.status.details:
            item = p4r.Error()
            assert detail.Unpack(item)
            self.errors.append(item)


class Client:
    """One controller: a channel, maybe a stream."""

    def __init__(self, address: str, election_id: int | None = 1, role: str = "", device_id: int = DEVICE_ID) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.max_metadata_size", 1 << 20)])
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.election_id = election_id
        self.role = role
        self.device_id = device_id
        self.stream: Any = None

    async def close(self) -> None:
        if self.stream is not None:
            self.stream.cancel()
        await self.channel.close()

    def _identify(self, request: Any) -> Any:
        request.device_id = self.device_id
        request.role = self.role
        if self.election_id is not None:
            request.election_id.high = self.election_id >> 64
            request.election_id.low = self.election_id & ((1 << 64) - 1)
        return request

    async def send(self, message: p4r.StreamMessageRequest) -> None:
        if self.stream is None:
            self.stream = self.stub.StreamChannel()
        await self.stream.write(message)

    async def arbitrate(self, election_id: int | None = -1) -> None:
        if election_id != -1:
            self.election_id = election_id
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id)
        if self.role:
            update.role.name = self.role
        if self.election_id is not None:
            update.election_id.high = self.election_id >> 64
            update.election_id.low = self.election_id & ((1 << 64) - 1)
        await self.send(p4r.StreamMessageRequest(arbitration=update))

    async def receive(self, timeout_s: float = 5) -> p4r.StreamMessageResponse:
        """The next stream message; Failure when the stream has ended with an error."""
        try:
            message = await asyncio.wait_for(self.stream.read(), timeout_s)
        except grpc.aio.AioRpcError as error:
            raise Failure(error) from error
        if message == grpc.aio.EOF:
            raise EOFError(f"{await self.stream.code()}: {await self.stream.details()}")
        return message

    async def become_primary(self) -> None:
        await self.arbitrate()
        answer = await self.receive()
        assert answer.arbitration.status.code == 0, answer

    async def call(self, method: str, request: Any) -> Any:
        try:
            return await getattr(self.stub, method)(request)
        except grpc.aio.AioRpcError as error:
            raise Failure(error) from error

    async def set_config(self, message: Any, action: str = "VERIFY_AND_COMMIT") -> None:
        kind = p4r.SetForwardingPipelineConfigRequest.Action.Value(action)
        request = p4r.SetForwardingPipelineConfigRequest(action=kind, config=message)
        await self.call("SetForwardingPipelineConfig", self._identify(request))

    async def get_config(self, kind: str = "ALL") -> Any:
        value = p4r.GetForwardingPipelineConfigRequest.ResponseType.Value(kind)
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self.device_id, response_type=value)
        return (await self.call("GetForwardingPipelineConfig", request)).config

    async def write(self, *updates: p4r.Update, atomicity: str = "CONTINUE_ON_ERROR") -> None:
        kind = p4r.WriteRequest.Atomicity.Value(atomicity)
        await self.call("Write", self._identify(p4r.WriteRequest(updates=updates, atomicity=kind)))

    async def insert(self, *entities: p4r.Entity) -> None:
        await self.write(*(p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in entities))

    async def modify(self, *entities: p4r.Entity) -> None:
        await self.write(*(p4r.Update(type=p4r.Update.MODIFY, entity=entity) for entity in entities))

    async def delete(self, *entities: p4r.Entity) -> None:
        await self.write(*(p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in entities))

    async def read(self, *entities: p4r.Entity, role: str = "") -> list[p4r.Entity]:
        found: list[p4r.Entity] = []
        request = p4r.ReadRequest(device_id=self.device_id, entities=entities, role=role)
        try:
            async for response in self.stub.Read(request):
                found.extend(response.entities)
        except grpc.aio.AioRpcError as error:
            failure = Failure(error)
            failure.found = found  # type: ignore[attr-defined]
            raise failure from error
        return found


class Lab:
    """A served switch and the clients that a test opens."""

    def __init__(self, server: P4RuntimeServer, factory: FakeTargetFactory, address: str) -> None:
        self.server = server
        self.factory = factory
        self.address = address
        self.names = Names(p4info())
        self.clients: list[Client] = []

    def client(self, election_id: int | None = 1, role: str = "", device_id: int = DEVICE_ID) -> Client:
        made = Client(self.address, election_id, role, device_id)
        self.clients.append(made)
        return made

    async def primary(self, message: Any = None) -> Client:
        """A primary that has committed the test program."""
        made = self.client()
        await made.become_primary()
        await made.set_config(config() if message is None else message)
        return made


@asynccontextmanager
async def serve(directory: Path, factory: FakeTargetFactory | None = None) -> AsyncIterator[Lab]:
    factory = factory or FakeTargetFactory()
    server = P4RuntimeServer(DEVICE_ID, 510, factory)
    address = f"unix:{directory}/p4rt.sock"
    await server.start(address)
    lab = Lab(server, factory, address)
    try:
        yield lab
    finally:
        for made in lab.clients:
            await made.close()
        await server.stop()
