"""A P4Runtime server that only remembers: enough of the protocol to test the controller's side of it.

Entities are kept as serialised protobuf by their P4Runtime key; the store can be told to refuse updates and counts
WriteRequests. No P4 semantics: the real server is tested in its own room and in test_controller_dcbswitch.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf import any_pb2

CONFIG = """
qos_profiles:
  default: {trust: dscp, dscp_to_priority: {26: 3, 48: 6}, lossless: [3]}
ecn_profiles:
  storage: {kmin_bytes: 20000, kmax_bytes: 80000, pmax: 0.1}
ets_profiles:
  lab: {0: {ets: 40}, 3: {ets: 60}, 6: strict}
buffer_profiles:
  lossless: {reserved: 3000, xoff: 60000, xon: 40000, headroom: 500000}
switches:
  leaf1:
    device_id: 1
    address: unix:ADDRESS
    ports:
      1: {name: leaf1-eth1, mac: "02:01:00:00:01:01", rate: 100M, peer: h1, pfc: [3], ets: lab,
          ecn: {3: storage}, buffers: {3: lossless}}
      2: {name: leaf1-eth2, mac: "02:01:00:00:01:02", rate: 100M, peer: spine1}
      3: {name: leaf1-eth3, mac: "02:01:00:00:01:03", rate: 100M, peer: spine2}
    routes:
      - {prefix: 10.1.0.1/32, via: [{port: 1, mac: "02:00:00:00:01:01"}]}
      - {prefix: 10.2.0.0/16, via: [{port: 2, mac: "02:02:00:00:01:01"}, {port: 3, mac: "02:02:00:00:02:01"}]}
      - {prefix: "fd00:2::/32", via: [{port: 3, mac: "02:02:00:00:02:01"}, {port: 2, mac: "02:02:00:00:01:01"}]}
"""


def entity_key(entity: p4r.Entity) -> tuple[Any, ...]:
    """P4Runtime's identity of an entity."""
    kind = entity.WhichOneof("entity")
    if kind == "table_entry":
        entry = entity.table_entry
        fields = tuple(sorted(item.SerializeToString() for item in entry.match))
        return (kind, entry.table_id, fields, entry.priority)
    if kind == "action_profile_member":
        return (kind, entity.action_profile_member.action_profile_id, entity.action_profile_member.member_id)
    if kind == "action_profile_group":
        return (kind, entity.action_profile_group.action_profile_id, entity.action_profile_group.group_id)
    if kind == "counter_entry":
        return (kind, entity.counter_entry.counter_id, entity.counter_entry.index.index)
    if kind == "register_entry":
        return (kind, entity.register_entry.register_id, entity.register_entry.index.index)
    return (str(kind), entity.packet_replication_engine_entry.clone_session_entry.session_id)


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    """The store and the streams. `refuse(update)` returns a message for an update that shall fail, else None."""

    def __init__(self) -> None:
        self.entities: dict[tuple[Any, ...], p4r.Entity] = {}
        self.cookie: int | None = None
        self.pushes = 0
        self.writes: list[p4r.WriteRequest] = []
        self.reads: list[p4r.ReadRequest] = []
        self.packets_out: list[p4r.PacketOut] = []
        self.refuse: Callable[[p4r.Update], str | None] = lambda update: None
        self.streams: dict[int, Any] = {}  # election id -> context
        self.highest = 0
        self._sending = asyncio.Lock()  # gRPC takes one message of a stream at a time

    def updates(self) -> list[p4r.Update]:
        return [update for request in self.writes for update in request.updates]

    async def _send(self, context: Any, message: p4r.StreamMessageResponse) -> None:
        async with self._sending:
            await context.write(message)

    async def _announce(self) -> None:
        primary = self.highest if self.highest in self.streams else None
        for election_id, context in list(self.streams.items()):
            if election_id == primary:
                code = rpc_code.OK
            else:
                code = rpc_code.NOT_FOUND if primary is None else rpc_code.ALREADY_EXISTS
            message = p4r.MasterArbitrationUpdate(
                device_id=1, election_id=U128.encode(self.highest), status=rpc_status.Status(code=code)
            )
            await self._send(context, p4r.StreamMessageResponse(arbitration=message))

    async def StreamChannel(self, request_iterator: Any, context: Any) -> None:
        mine = None
        try:
            async for request in request_iterator:
                if request.WhichOneof("update") == "packet":
                    self.packets_out.append(request.packet)
                    continue
                wanted = U128.decode(request.arbitration.election_id)
                if self.streams.get(wanted, context) is not context:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
                if mine is not None:
                    del self.streams[mine]
                mine = wanted
                self.streams[mine] = context
                self.highest = max(self.highest, mine)
                await self._announce()
        finally:
            if mine is not None and self.streams.get(mine) is context:
                del self.streams[mine]
                with contextlib.suppress(Exception):
                    await self._announce()

    async def packet_in(self, payload: bytes, metadata: dict[int, int]) -> None:
        items = [p4r.PacketMetadata(metadata_id=key, value=bytes([value])) for key, value in metadata.items()]
        packet = p4r.PacketIn(payload=payload, metadata=items)
        await self._send(self.streams[self.highest], p4r.StreamMessageResponse(packet=packet))

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        if self.cookie is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set")
        cookie = p4r.ForwardingPipelineConfig.Cookie(cookie=self.cookie)
        return p4r.GetForwardingPipelineConfigResponse(config=p4r.ForwardingPipelineConfig(cookie=cookie))

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        self.cookie = request.config.cookie.cookie
        self.entities.clear()
        self.pushes += 1
        return p4r.SetForwardingPipelineConfigResponse()

    async def Write(self, request: Any, context: Any) -> Any:
        if U128.decode(request.election_id) != self.highest:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not primary")
        self.writes.append(request)
        errors = [self._apply(update) for update in request.updates]
        if any(code != rpc_code.OK for code, _ in errors):
            status = rpc_status.Status(code=rpc_code.UNKNOWN, message="some updates failed")
            for code, text in errors:
                detail = any_pb2.Any()
                detail.Pack(p4r.Error(canonical_code=code, message=text))
                status.details.append(detail)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNKNOWN, "some updates failed")
        return p4r.WriteResponse()

    def _apply(self, update: p4r.Update) -> tuple[int, str]:
        refusal = self.refuse(update)
        if refusal is not None:
            return rpc_code.INVALID_ARGUMENT, refusal
        key, held = entity_key(update.entity), entity_key(update.entity) in self.entities
        array = update.entity.WhichOneof("entity") in ("counter_entry", "register_entry")
        if update.type == p4r.Update.INSERT and held:
            return rpc_code.ALREADY_EXISTS, "exists"
        if update.type != p4r.Update.INSERT and not held and not array:
            return rpc_code.NOT_FOUND, "no such entity"
        if update.type == p4r.Update.DELETE:
            del self.entities[key]
        else:
            self.entities[key] = update.entity
        return rpc_code.OK, ""

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.reads.append(request)
        found = [entity for wanted in request.entities for entity in self._matching(wanted)]
        for first in range(0, len(found), 100):  # several responses, as a real server may send
            yield p4r.ReadResponse(entities=found[first : first + 100])

    def _matching(self, wanted: p4r.Entity) -> list[p4r.Entity]:
        kind = wanted.WhichOneof("entity")
        if kind in ("counter_entry", "register_entry"):
            held = self.entities.get(entity_key(wanted))
            if held is not None:
                return [held]
            zero = p4r.Entity()
            zero.CopyFrom(wanted)
            if kind == "register_entry":
                zero.register_entry.data.bitstring = b"\0"
            else:
                zero.counter_entry.data.SetInParent()
            return [zero]
        result = [entity for entity in self.entities.values() if entity.WhichOneof("entity") == kind]
        if kind == "table_entry":
            result = [e for e in result if e.table_entry.table_id == wanted.table_entry.table_id]
        return result


@contextlib.asynccontextmanager
async def serving(switch: FakeSwitch, path: Path) -> AsyncIterator[None]:
    """The server on a unix socket."""
    server = grpc.aio.server()
    p4r_grpc.add_P4RuntimeServicer_to_server(switch, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
        await asyncio.sleep(0)
        path.unlink(missing_ok=True)
