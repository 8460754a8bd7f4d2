"""One task per switch: connect over P4Runtime, become primary, make the switch hold its desired entries, keep it so.

A session owns a P4Runtime client (`controller.transport`) and the loop around it. Entries flow in through
`set_desired`, packets out of the switch through `on_packet`, everything else through `status`. Start, restart and
reconnect are one path: push the pipeline if its cookie differs, read back, write the difference, read back again to
check. Two controllers may be configured for a switch; the one with the larger election id is primary, the other waits
as backup and takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from finsy import GRPCStatusCode, P4ClientError
from finsy.proto import U128, p4r, rpc_code

from controller.codec import Codec, decode_int, encode_int
from controller.desired import OWNED_METERS, OWNED_TABLES
from controller.diff import Kind, Update, plan
from controller.entries import Entity
from controller.program import P4Program, ProgramError
from controller.transport import ClientFactory, P4RuntimeClient, finsy_client
from controller.waiting import event_or_time

LOGGER = logging.getLogger("dcblab.controller")

_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.1, 2.0
_RESYNC_AFTER_FAILURE_SECONDS = 5.0
_ASK_AGAIN_SECONDS = 5.0
_FLUSH_SECONDS = 1.0
_PIPELINE_TIMEOUT_SECONDS = 300.0  # the target may have to compile the program
_UPDATES_PER_WRITE = 500
_PACKET_QUEUE_LENGTH = 1024


class SwitchState(Enum):
    """Where a session stands."""

    DISCONNECTED = "disconnected"
    BACKUP = "backup"  # connected, another controller is primary
    SYNCING = "syncing"
    SYNCED = "synced"  # the switch was read back and holds exactly the desired entries
    FAILED = "failed"  # connected, but the desired entries could not be written; tried again


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """A snapshot of a session, for people and tests. Numbers count since the controller started."""

    name: str
    address: str
    device_id: int
    state: SwitchState = SwitchState.DISCONNECTED
    election_id: int = 0
    connects: int = 0
    pipeline_pushes: int = 0
    updates_written: int = 0
    last_sync_updates: int = 0
    entries: int = 0
    packets_in: int = 0
    packets_dropped: int = 0  # packet-ins that came while the handler's queue was full
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that the switch sent to the CPU. Reason: 0 LLDP, 1 route, 2 ACL, 3 TTL expired (contract, section 2)."""

    payload: bytes
    ingress_port: int
    priority: int
    reason: int


PacketHandler = Callable[[str, PacketIn], Awaitable[None] | None]


class RoleObserver(Protocol):
    """Told when a session's role changes. `on_primary`: before the first write, with what the switch holds."""

    def on_primary(self, switch: str, held: Sequence[Entity]) -> None: ...

    def on_backup(self, switch: str) -> None: ...


class SyncError(RuntimeError):
    """The switch did not take updates, or does not hold what was written; one line for each entity."""


class NotConnectedError(RuntimeError):
    """An RPC was asked for while the switch is not connected."""


def describe(error: BaseException) -> str:
    """One line for an error, naming the RPC and the status code of a gRPC one."""
    if isinstance(error, P4ClientError):
        if error.code is GRPCStatusCode.UNAVAILABLE and "failed to connect" in error.message:
            return f"cannot connect: {error.message.rpartition('error: ')[2]}"  # gRPC repeats the address thrice
        return f"{error._operation}: {error.code.name}: {error.message}"
    return str(error) or type(error).__name__


class SwitchSession:
    """The connection to one switch. Use: `task = create_task(session.run())`, `set_desired(...)`, `wait_synced()`."""

    def __init__(
        self,
        name: str,
        address: str,
        device_id: int,
        program: P4Program,
        *,
        election_id: int = 100,
        on_packet: PacketHandler | None = None,
        observer: RoleObserver | None = None,
        client: ClientFactory = finsy_client,
        on_status: Callable[[SwitchStatus, SwitchStatus], None] = lambda before, after: None,
    ) -> None:
        self.codec = Codec(program)
        self.program = program
        self.status = SwitchStatus(name, address, device_id, election_id=election_id)
        self._first_election_id = election_id
        self._election_id = election_id
        self._on_packet = on_packet
        self._observer = observer
        self._make_client = client
        self._on_status = on_status
        self._announce_primary = False
        self._desired: tuple[Entity, ...] = ()
        self._generation = 0  # of the desired entries
        self._synced_generation = -1
        self._failed_generation = -1
        self._client: P4RuntimeClient | None = None
        self._primary = False
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()
        self._changed = asyncio.Condition()
        self._packets: asyncio.Queue[PacketIn] = asyncio.Queue(_PACKET_QUEUE_LENGTH)

    @property
    def name(self) -> str:
        """Name of the switch in the config."""
        return self.status.name

    def set_desired(self, entities: Iterable[Entity]) -> None:
        """Replace the desired entries; they are written as soon as the switch is connected and we are primary."""
        self._desired = tuple(entities)
        self._generation += 1
        self._wake.set()

    def resync(self) -> None:
        """Compare with the switch again, as after a reconnect."""
        self._generation += 1
        self._wake.set()

    @property
    def synced(self) -> bool:
        """True when the switch was seen to hold the newest desired entries and is still connected."""
        return self.status.state is SwitchState.SYNCED and self._synced_generation == self._generation

    async def wait_synced(self) -> None:
        """Wait until `synced`; no time-out of its own."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.synced)

    async def wait_settled(self) -> None:
        """Wait until the newest desired entries are written, were refused, or cannot be written now."""

        def settled() -> bool:
            state = self.status.state
            refused = state is SwitchState.FAILED and self._failed_generation == self._generation
            return self.synced or refused or state in (SwitchState.DISCONNECTED, SwitchState.BACKUP)

        async with self._changed:
            await self._changed.wait_for(settled)

    async def wait_state(self, *states: SwitchState) -> None:
        """Wait until the session is in one of `states`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.status.state in states)

    async def _set(self, **changes: object) -> None:
        async with self._changed:
            before, self.status = self.status, replace(self.status, **changes)  # type: ignore[arg-type]
            self._changed.notify_all()
        self._on_status(before, self.status)

    # ---- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, serve, reconnect, until cancelled. Never raises otherwise."""
        packets = asyncio.create_task(self._deliver_packets(), name=f"packets {self.name}")
        delay = _FIRST_RETRY_SECONDS
        try:
            while True:
                connects = self.status.connects
                reason = await self._connection()
                quiet = reason == self.status.last_error and self.status.connects == connects
                LOGGER.log(
                    logging.DEBUG if quiet else logging.WARNING,
                    "%s: %s (%s); reconnecting",
                    self.name,
                    reason,
                    self.status.address,
                )
                await self._set(state=SwitchState.DISCONNECTED, last_error=reason)
                delay = _FIRST_RETRY_SECONDS if self.status.connects > connects else min(2 * delay, _LAST_RETRY_SECONDS)
                await asyncio.sleep(delay)
        finally:
            packets.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await packets
            self.status = replace(self.status, state=SwitchState.DISCONNECTED)

    async def _connection(self) -> str:
        """One connection from open to loss; returns why it ended."""
        client = self._make_client(self.name, self.status.address)
        tasks: list[asyncio.Task[None]] = []
        self._primary = False
        try:
            await client.open(complete_request=self._complete)
            self._client = client
            await self._arbitrate(client)
            tasks = [
                asyncio.create_task(self._receive(client), name=f"stream {self.name}"),
                asyncio.create_task(self._keep_synced(client), name=f"sync {self.name}"),
                asyncio.create_task(self._ask_again(client), name=f"arbitration {self.name}"),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:  # in this order: `done` has none
                if task in done:
                    task.result()
            return "stream closed"
        except P4ClientError as error:
            if error.is_election_id_used and self._election_id > 1:
                self._election_id -= 1  # somebody else has it: bid just below and be backup
            return describe(error)
        except (OSError, RuntimeError) as error:
            return describe(error)
        except Exception as error:  # a bug must not end the task of a switch in silence
            LOGGER.exception("%s: unexpected error", self.name)
            return describe(error)
        finally:
            self._client = None
            self._primary = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

    def _complete(self, message: object) -> None:
        if isinstance(message, p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest):
            message.election_id.CopyFrom(U128.encode(self._election_id))

    async def _arbitrate(self, client: P4RuntimeClient) -> None:
        await client.send(
            p4r.StreamMessageRequest(
                arbitration=p4r.MasterArbitrationUpdate(
                    device_id=self.status.device_id, election_id=U128.encode(self._election_id)
                )
            )
        )

    async def _ask_again(self, client: P4RuntimeClient) -> None:
        """A backup asks now and then whether it is primary: a server may not tell that the primary has gone (PI)."""
        while True:
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
            if self.status.state is SwitchState.BACKUP:
                await self._arbitrate(client)

    async def _receive(self, client: P4RuntimeClient) -> None:
        while True:
            message = await client.receive()
            kind = message.WhichOneof("update")
            if kind == "arbitration":
                await self._on_arbitration(client, message.arbitration)
                self._answered.set()
            elif kind == "packet":
                self._queue_packet(message.packet)
            elif kind == "error":
                error = message.error
                LOGGER.error("%s: stream error: %s: %s", self.name, error.canonical_code, error.message)
                await self._set(last_error=f"stream error: {error.message}")
            else:
                LOGGER.info("%s: %s message ignored", self.name, kind)

    async def _on_arbitration(self, client: P4RuntimeClient, update: p4r.MasterArbitrationUpdate) -> None:
        code, highest = update.status.code, U128.decode(update.election_id)
        first = self.status.state is SwitchState.DISCONNECTED
        if first:
            await self._set(connects=self.status.connects + 1)
        if code == rpc_code.OK:
            if not self._primary:
                LOGGER.info("%s: primary, election id %d", self.name, self._election_id)
                self._primary = True
                self._announce_primary = True
                self._synced_generation = -1
                await self._set(state=SwitchState.SYNCING, election_id=self._election_id)
                self._wake.set()
            return
        if self._primary or first:
            LOGGER.warning("%s: backup: election id %d is primary or highest", self.name, highest)
        self._primary = False
        if self.status.state is not SwitchState.BACKUP and self._observer is not None:
            self._observer.on_backup(self.name)
        await self._set(state=SwitchState.BACKUP, election_id=self._election_id)
        if code == rpc_code.NOT_FOUND:  # no primary, and our id is below one seen before: take over with that one
            self._election_id = max(highest, self._election_id)
            await self._arbitrate(client)

    # ---- making the switch hold the desired entries ---------------------------------------------------------------

    async def _keep_synced(self, client: P4RuntimeClient) -> None:
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._primary:
                continue
            generation = self._generation
            try:
                await self._sync(client)
            except (SyncError, ProgramError, P4ClientError) as error:
                if isinstance(error, P4ClientError) and error.code is GRPCStatusCode.UNAVAILABLE:
                    raise
                for line in describe(error).splitlines():
                    LOGGER.error("%s: %s", self.name, line)
                if self._primary:
                    self._failed_generation = generation
                    await self._set(state=SwitchState.FAILED, last_error=describe(error))
                    asyncio.get_running_loop().call_later(_RESYNC_AFTER_FAILURE_SECONDS, self._wake.set)
                continue
            if self._primary:
                self._synced_generation = generation
                await self._set(state=SwitchState.SYNCED, last_error="")

    async def _sync(self, client: P4RuntimeClient) -> None:
        if self.status.state is not SwitchState.SYNCED:
            await self._set(state=SwitchState.SYNCING)
        await self._push_pipeline_if_different(client)
        held = await self._read_entities(client)
        if self._announce_primary and self._observer is not None:
            self._announce_primary = False
            self._observer.on_primary(self.name, held)
        desired = self._desired
        stages = plan(desired, held)
        written = 0
        for stage in stages:
            for first in range(0, len(stage), _UPDATES_PER_WRITE):
                batch = stage[first : first + _UPDATES_PER_WRITE]
                await self._write(client, batch)
                written += len(batch)
        if written:
            rest = [update for stage in plan(desired, await self._read_entities(client)) for update in stage]
            if rest:
                raise SyncError(
                    "\n".join(f"{update.entity}: read back differs after it was written ({update})" for update in rest)
                )
            LOGGER.info("%s: %d updates written", self.name, written)
        await self._set(
            last_sync_updates=written,
            updates_written=self.status.updates_written + written,
            entries=len(desired),
        )

    async def _push_pipeline_if_different(self, client: P4RuntimeClient) -> None:
        try:
            reply = await client.request(
                p4r.GetForwardingPipelineConfigRequest(
                    device_id=self.status.device_id,
                    response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
                )
            )
            if reply.config.HasField("cookie") and reply.config.cookie.cookie == self.program.cookie:
                return
        except P4ClientError as error:
            if error.code not in (GRPCStatusCode.FAILED_PRECONDITION, GRPCStatusCode.NOT_FOUND):
                raise
        LOGGER.info("%s: pushing the pipeline, cookie %#x", self.name, self.program.cookie)
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.status.device_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=p4r.ForwardingPipelineConfig(
                p4info=self.program.p4info,
                p4_device_config=self.program.device_config,
                cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=self.program.cookie),
            ),
        )
        await client.push_pipeline(request, _PIPELINE_TIMEOUT_SECONDS)
        await self._set(pipeline_pushes=self.status.pipeline_pushes + 1)

    async def _read_entities(self, client: P4RuntimeClient) -> list[Entity]:
        wanted = [
            p4r.Entity(table_entry=p4r.TableEntry(table_id=self.program.tables[name].id))
            for name in OWNED_TABLES
            if name in self.program.tables
        ]
        for profile_id in self.program.profiles.values():
            wanted.append(p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=profile_id)))
            wanted.append(p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=profile_id)))
        wanted += [
            p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=self.program.meters[name].id))
            for name in OWNED_METERS
            if name in self.program.meters
        ]
        messages = await self._read(client, wanted)
        sessions = p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry())
        try:
            messages += await self._read(client, [p4r.Entity(packet_replication_engine_entry=sessions)])
        except P4ClientError as error:
            if error.code is not GRPCStatusCode.UNIMPLEMENTED:  # BMv2's server cannot read clone sessions back
                raise
        entities = (self.codec.decode(message) for message in messages)
        return [entity for entity in entities if entity is not None]

    async def _read(self, client: P4RuntimeClient, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self.status.device_id, entities=entities)
        return [entity async for reply in client.request_iter(request) for entity in reply.entities]

    async def _write(self, client: P4RuntimeClient, updates: Sequence[Update]) -> None:
        request = p4r.WriteRequest(
            device_id=self.status.device_id, updates=[self.codec.update(update) for update in updates]
        )
        try:
            await client.request(request)
        except P4ClientError as error:
            if not error.details:
                raise
            lines = [
                f"{updates[index]}: {detail.canonical_code.name}: {detail.message}"
                for index, detail in sorted(error.details.items())
            ]
            raise SyncError("\n".join(lines)) from None

    # ---- everything else that goes to the switch ------------------------------------------------------------------

    def _connected(self) -> P4RuntimeClient:
        if self._client is None or self.status.state is SwitchState.DISCONNECTED:
            why = f" ({self.status.last_error})" if self.status.last_error else ""
            raise NotConnectedError(f"switch {self.name}: not connected to {self.status.address}{why}")
        return self._client

    async def read_entities(self) -> list[Entity]:
        """What the switch holds in the tables that the controller owns, now."""
        return await self._read_entities(self._connected())

    async def read(self, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        """One ReadRequest. Raises NotConnectedError, P4ClientError."""
        return await self._read(self._connected(), entities)

    async def modify(self, entities: Sequence[Entity]) -> None:
        """Replace desired entries of the same keys and write them at once, without reading everything back.

        Raises NotConnectedError, P4ClientError; the switch is then compared with what is desired again.
        """
        new = {entity.key: entity for entity in entities}
        self._desired = tuple(new.get(entity.key, entity) for entity in self._desired)
        if not self.synced:
            self.resync()  # a comparison that is under way has the old ones
            return
        try:
            await self.write_raw([self.codec.update(Update(Kind.MODIFY, entity)) for entity in entities])
        except (NotConnectedError, P4ClientError):
            self.resync()
            raise

    async def write_raw(self, updates: Sequence[p4r.Update]) -> None:
        """One WriteRequest of updates that are no part of the desired state (clearing counters)."""
        await self._connected().request(p4r.WriteRequest(device_id=self.status.device_id, updates=updates))

    async def packet_out(self, port: int, payload: bytes, queue: int = 0) -> None:
        """Send a frame out of a port (0..509) through queue 0..7, unchanged."""
        values = {"egress_port": port, "queue": queue}
        metadata = [
            p4r.PacketMetadata(metadata_id=field.id, value=encode_int(values.get(field.name, 0)))
            for field in self.program.packet_out
        ]
        await self._connected().send(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=payload, metadata=metadata)))

    async def flush(self) -> None:
        """Return when the switch has taken all packet-outs so far, or has not said so within a second.

        A stream that is closed takes with it what its switch has not read yet. Messages are handled in order, so the
        answer to one more bid with the same election id says that those before it are through.
        """
        if not self._primary:
            return  # a backup sends nothing, and a bid of its could be heard as more than a question
        with contextlib.suppress(NotConnectedError, P4ClientError, OSError):
            self._answered.clear()
            await self._arbitrate(self._connected())
            await event_or_time(self._answered, _FLUSH_SECONDS)

    def _queue_packet(self, message: p4r.PacketIn) -> None:
        names = {field.id: field.name for field in self.program.packet_in}
        values = {names.get(item.metadata_id, ""): decode_int(item.value) for item in message.metadata}
        packet = PacketIn(
            message.payload, values.get("ingress_port", 0), values.get("priority", 0), values.get("reason", 0)
        )
        if self._packets.full():
            self.status = replace(self.status, packets_dropped=self.status.packets_dropped + 1)
            return
        self._packets.put_nowait(packet)
        self.status = replace(self.status, packets_in=self.status.packets_in + 1)

    async def _deliver_packets(self) -> None:
        while True:
            packet = await self._packets.get()
            if self._on_packet is None:
                continue
            try:
                result = self._on_packet(self.name, packet)
                if inspect.isawaitable(result):
                    await result
            except Exception:  # a fault in a handler is the handler's, not the connection's
                LOGGER.exception("%s: packet handler failed on a frame from port %d", self.name, packet.ingress_port)
