"""The P4Runtime service of one device, sans-IO: requests in, replies and stream messages out; time is passed in.

`server` puts it behind grpc.aio; a test or a fabric in virtual time may call it directly. One thread calls it. The only
slow step, building a target, is split off: `prepare` checks a SetForwardingPipelineConfig request, `Change.build` may
run in another thread, `finish` puts the result in place.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from finsy.proto import p4r, rpc_status
from google.protobuf.any_pb2 import Any

from switch.api import PipelineError
from switch.p4rt import codec
from switch.p4rt.arbitration import Arbiter, Notification
from switch.p4rt.control import DigestEvent, PacketInEvent, PortEvent, TargetControl, TargetFactory
from switch.p4rt.device_config import program_of
from switch.p4rt.errors import Code, P4RuntimeError, invalid, not_found, unimplemented
from switch.p4rt.pipeline import Pipeline, take_over
from switch.p4rt.roles import FULL_ACCESS, Role, object_id, parse_role
from switch.p4rt.schema import Schema

API_VERSION = "1.4.1"
ERROR_SPACE = "dcbswitch-v1model-dcblab"
ENTITIES_PER_RESPONSE = 256
_ROLE_ID = "role_id "
# gRPC clients refuse a status of more than 8 KiB unless told otherwise, and then see none of it.
DETAILS_TEXT_BYTES = 3000  # beside 40 bytes for each update
MESSAGE_BYTES = 6000
PORT_POLL_NS = 100_000_000  # how soon a group notices that a port it watches went down

_Config = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest


class BatchError(P4RuntimeError):
    """Some requests of a Write or Read failed; `outcomes` has one entry each, None for those that did not."""

    def __init__(self, what: str, outcomes: Sequence[P4RuntimeError | None]) -> None:
        failed = [(number, error) for number, error in enumerate(outcomes) if error is not None]
        # Name the cause, not the updates that were taken back because of it.
        number, first = next(((n, e) for n, e in failed if e.code != Code.ABORTED), failed[0])
        super().__init__(
            Code.UNKNOWN,
            f"{len(failed)} of {len(outcomes)} {what} failed, first {what}[{number}]: "
            f"{first.code.name}: {first.message}",
        )
        self.outcomes = list(outcomes)

    def status(self) -> rpc_status.Status:
        """google.rpc.Status with a p4.v1.Error for each request, in order; messages only as far as clients can take."""
        left = DETAILS_TEXT_BYTES
        status = rpc_status.Status(code=self.code, message=self.message)
        for outcome in self.outcomes:
            error = p4r.Error()
            if outcome is not None:
                left -= len(outcome.message.encode()) + len(ERROR_SPACE)
                error.canonical_code = error.code = outcome.code
                if left >= 0:
                    error.message, error.space = outcome.message, ERROR_SPACE
            packed = Any()
            packed.Pack(error)
            status.details.append(packed)
        return status


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A stream message for a client. One that is not `important` may be dropped when the client does not keep up."""

    client: Hashable
    message: p4r.StreamMessageResponse
    important: bool = False


@dataclass(slots=True)
class Change:
    """A checked SetForwardingPipelineConfig request on its way; `build` is slow and touches nothing of the service."""

    request: p4r.SetForwardingPipelineConfigRequest
    factory: TargetFactory
    needs_target: bool
    schema: Schema | None = None
    target: TargetControl | None = None

    def build(self) -> None:
        """Verify the configuration and make a target of it. Raises P4RuntimeError with everything that is wrong."""
        if not self.needs_target:
            return
        config = self.request.config
        try:
            self.schema = Schema(config.p4info)
            self.target = self.factory(program_of(config.p4_device_config), config.p4info)
        except ValueError as error:
            problems = getattr(error, "problems", None) or [str(error)]
            raise invalid(_listed("config: refused: ", problems)) from error
        except OSError as error:  # nothing is wrong with the program: no compiler, no room for what it makes
            raise P4RuntimeError(Code.INTERNAL, f"config: cannot be built here: {error}") from error


class Service:
    """One device. `target` may be a running program without P4Info (given on the command line)."""

    def __init__(self, device_id: int, factory: TargetFactory, target: TargetControl | None = None) -> None:
        self.device_id = device_id
        self._factory = factory
        self._arbiter = Arbiter(device_id)
        self._running: Pipeline | None = None
        self._saved: Pipeline | None = None
        self._target = target  # the one that forwards
        self._role_cache: dict[bytes | None, Role] = {None: FULL_ACCESS}
        self.malformed_packet_ins = 0

    @property
    def target(self) -> TargetControl | None:
        """The target that forwards now."""
        return self._target

    def install(self, config: p4r.ForwardingPipelineConfig, known: bool = True) -> None:
        """Start with a program that no client has set. `known` False: there is no P4Info, so clients cannot use it yet.

        Before the server starts. ValueError, or OSError, with what is wrong.
        """
        target = self._factory(config.p4_device_config, config.p4info)
        try:
            target.start()
            if known:
                self._running = Pipeline(config, Schema(config.p4info), target)
        except BaseException:
            target.close()
            raise
        self._target = target

    def close(self) -> None:
        """Stop forwarding and free the targets."""
        if self._saved is not None:
            self._saved.target.close()
        if self._target is not None:
            self._target.close()
        self._saved = self._running = self._target = None

    # --- unary RPCs ---

    def capabilities(self) -> p4r.CapabilitiesResponse:
        """Capabilities."""
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def write(self, request: p4r.WriteRequest) -> None:
        """Write. Raises BatchError when updates failed, P4RuntimeError when the request as a whole is refused."""
        self._check_primary(request)
        pipeline = self._current()
        role = self._role(role_name(request.role, request.role_id))
        if role.ids is not None:
            for number, update in enumerate(request.updates):
                self._check_role(role, number, update, request.role)
        outcomes = pipeline.writer.write(request)
        if any(outcomes):
            raise BatchError("updates", outcomes)

    def _check_role(self, role: Role, number: int, update: p4r.Update, name: str) -> None:
        found = object_id(update.entity)
        if not role.may_write(found):
            raise P4RuntimeError(
                Code.PERMISSION_DENIED,
                f"updates[{number}]: object {found:#x} is outside the configuration of role {name!r}",
            )

    def read(self, request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        """Read. Raises BatchError after the entities of the queries that are good."""
        if request.device_id != self.device_id:
            raise not_found(f"device_id {request.device_id}: this switch is device {self.device_id}")
        pipeline = self._current()
        return self._read(pipeline, request)

    def _read(self, pipeline: Pipeline, request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        outcomes: list[P4RuntimeError | None] = []
        response = p4r.ReadResponse()
        for query in request.entities:
            try:
                for entity in pipeline.reader.read(query, request.role):
                    response.entities.append(entity)
                    if len(response.entities) >= ENTITIES_PER_RESPONSE:
                        yield response
                        response = p4r.ReadResponse()
                outcomes.append(None)
            except P4RuntimeError as error:
                outcomes.append(error)
        if response.entities:
            yield response
        if any(outcomes):
            raise BatchError("entities", outcomes)

    def get_config(self, request: p4r.GetForwardingPipelineConfigRequest) -> p4r.GetForwardingPipelineConfigResponse:
        """GetForwardingPipelineConfig; no config in the reply when none has been set."""
        if request.device_id != self.device_id:
            raise not_found(f"device_id {request.device_id}: this switch is device {self.device_id}")
        kind = request.response_type
        if kind not in _Get.ResponseType.values():
            raise invalid(f"response_type {kind}: no such type")
        response = p4r.GetForwardingPipelineConfigResponse()
        pipeline = self._saved or self._running
        if pipeline is None:
            return response
        config = response.config
        if pipeline.config.HasField("cookie"):
            config.cookie.CopyFrom(pipeline.config.cookie)
        if kind in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            config.p4info.CopyFrom(pipeline.config.p4info)
        if kind in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            config.p4_device_config = pipeline.config.p4_device_config
        config.SetInParent()
        return response

    # --- SetForwardingPipelineConfig ---

    def prepare(self, request: p4r.SetForwardingPipelineConfigRequest) -> Change:
        """Check what can be checked at once."""
        self._check_primary(request)
        if not self._role(role_name(request.role, request.role_id)).can_push_pipeline:
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"role {request.role!r} may not push a pipeline")
        action = request.action
        if action not in _Config.Action.values() or action == _Config.UNSPECIFIED:
            raise invalid(f"action {action}: must be one of VERIFY .. RECONCILE_AND_COMMIT")
        if action == _Config.COMMIT:
            if request.HasField("config"):
                raise invalid("config: must not be set with COMMIT")
            if self._saved is None:
                raise not_found("COMMIT: no config has been saved (VERIFY_AND_SAVE)")
            return Change(request, self._factory, needs_target=False)
        if not request.HasField("config"):
            raise invalid("config: must be set")
        if not request.config.p4_device_config:
            raise invalid("config: p4_device_config is empty; it takes the JSON that p4c makes for BMv2")
        unchanged = action == _Config.RECONCILE_AND_COMMIT and self._same_program(request.config)
        return Change(request, self._factory, needs_target=not unchanged)

    def _same_program(self, config: p4r.ForwardingPipelineConfig) -> bool:
        running = self._running
        return (
            running is not None
            and running.config.p4_device_config == config.p4_device_config
            and running.config.p4info == config.p4info
        )

    def finish(self, change: Change) -> None:
        """Put a built change in place. On any error the change's target is closed and nothing else changes."""
        request = change.request
        try:
            self._check_primary(request)  # it may have changed while the target was built
            self._finish(change)
        except BaseException:
            if change.target is not None:
                change.target.close()
            raise

    def _finish(self, change: Change) -> None:
        request = change.request
        action = request.action
        if action == _Config.COMMIT:
            if self._saved is None:
                raise not_found("COMMIT: no config has been saved (VERIFY_AND_SAVE)")
            self._commit(self._saved)
            self._saved = None
            return
        if change.schema is None or change.target is None:
            assert self._running is not None
            self._running.config.CopyFrom(request.config)
            self._drop_saved()
            return
        if action == _Config.VERIFY:
            change.target.close()
            return
        pipeline = Pipeline(request.config, change.schema, change.target)
        if action == _Config.VERIFY_AND_SAVE:
            self._drop_saved()
            self._saved = pipeline
            return
        if action == _Config.RECONCILE_AND_COMMIT and self._running is not None:
            take_over(self._running, pipeline)
        self._commit(pipeline)
        self._drop_saved()

    def _drop_saved(self) -> None:
        if self._saved is not None:
            self._saved.target.close()
            self._saved = None

    def _commit(self, pipeline: Pipeline) -> None:
        old = self._target
        if old is not None:
            old.stop()
        try:
            pipeline.target.start()
        except (OSError, RuntimeError, ValueError) as error:
            if old is not None:
                old.start()
            raise P4RuntimeError(Code.INTERNAL, f"the new pipeline could not take over the ports: {error}") from error
        if old is not None:
            old.close()
        self._target = pipeline.target
        self._running = pipeline

    # --- stream ---

    def stream_message(self, client: Hashable, request: p4r.StreamMessageRequest) -> list[Outgoing]:
        """A message of a client. Raises P4RuntimeError when the client's stream must end (arbitration only)."""
        which = request.WhichOneof("update")
        if which == "arbitration":
            return self._arbitration(client, request.arbitration)
        try:
            if not self._arbiter.is_primary(client):
                raise P4RuntimeError(Code.PERMISSION_DENIED, "only the primary of a role may send this")
            if which == "packet":
                self._packet_out(request.packet)
            elif which == "digest_ack":
                ack = request.digest_ack
                self._committed().digests.ack(ack.digest_id, ack.list_id)
            elif which == "other":
                raise unimplemented("other: no architecture-specific stream messages are defined")
            else:
                raise invalid("update: must be set")
        except P4RuntimeError as error:
            return [Outgoing(client, p4r.StreamMessageResponse(error=_stream_error(request, error)))]
        return []

    def _arbitration(self, client: Hashable, update: p4r.MasterArbitrationUpdate) -> list[Outgoing]:
        config = update.role.config.SerializeToString() if update.role.HasField("config") else None
        self._role_of_config(config)
        election_id = uint128(update.election_id) if update.HasField("election_id") else None
        name = role_name(update.role.name, update.role.id)
        before = set(self._arbiter.primaries())
        notices = self._arbiter.update(client, update.device_id, name, election_id, config)
        return self._announce(notices, before)

    def disconnect(self, client: Hashable) -> list[Outgoing]:
        """The client's stream has ended."""
        before = set(self._arbiter.primaries())
        return self._announce(self._arbiter.disconnect(client), before)

    def _announce(self, notices: Iterable[Notification], before: set[Hashable]) -> list[Outgoing]:
        if self._running is not None and set(self._arbiter.primaries()) - before:
            self._running.digests.new_primary()
        return [Outgoing(notice.client, self._encode_notice(notice), important=True) for notice in notices]

    def _encode_notice(self, notice: Notification) -> p4r.StreamMessageResponse:
        update = p4r.MasterArbitrationUpdate(
            device_id=self.device_id, status=rpc_status.Status(code=notice.code, message=notice.message)
        )
        if notice.role or notice.role_config is not None:
            if notice.role.startswith(_ROLE_ID):
                update.role.id = int(notice.role.removeprefix(_ROLE_ID))
            else:
                update.role.name = notice.role
            if notice.role_config is not None:
                update.role.config.MergeFromString(notice.role_config)
        if notice.election_id is not None:
            update.election_id.high = notice.election_id >> 64
            update.election_id.low = notice.election_id & ((1 << 64) - 1)
        return p4r.StreamMessageResponse(arbitration=update)

    def _packet_out(self, packet: p4r.PacketOut) -> None:
        pipeline = self._committed()
        header = codec.pack_header(pipeline.schema.packet_out, packet.metadata)
        if not packet.payload:
            raise invalid("packet: payload is empty")
        try:
            pipeline.target.packet_out(header + packet.payload)
        except PipelineError as error:
            raise invalid(f"packet: {error}") from error

    # --- what the data plane has to say ---

    def poll(self, now_ns: int, wall_ns: int) -> list[Outgoing]:
        """Packet-ins, digest lists and idle time-outs since the last call. `now_ns` is monotonic, `wall_ns` since the
        epoch."""
        if self._target is None:
            return []
        events = self._target.events()
        pipeline = self._running
        if pipeline is None:
            return []
        messages: list[Outgoing] = []
        for event in events:
            if isinstance(event, PacketInEvent):
                messages += self._packet_in(pipeline, event)
            elif isinstance(event, DigestEvent):
                digest_list = pipeline.digests.add(event.name, event.values, now_ns)
                if digest_list is not None:
                    messages += self._digest_list(digest_list, wall_ns)
            elif isinstance(event, PortEvent):
                pipeline.writer.profiles.port_changed(event.port)
        for digest_list in pipeline.digests.advance(now_ns):
            messages += self._digest_list(digest_list, wall_ns)
        messages += self._idle_timeouts(pipeline, now_ns, wall_ns)
        return messages

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """When `poll` should be called next, if nothing happens before."""
        if self._running is None:
            return None
        watching = self._running.store.watches_ports()
        deadlines = (
            self._running.digests.next_deadline(),
            self._running.idle.next_deadline(now_ns),
            now_ns + PORT_POLL_NS if watching else None,
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _packet_in(self, pipeline: Pipeline, event: PacketInEvent) -> Iterator[Outgoing]:
        try:
            metadata, payload = codec.unpack_header(pipeline.schema.packet_in, event.frame)
        except ValueError:
            self.malformed_packet_ins += 1
            return
        message = p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=payload, metadata=metadata))
        for client in self._arbiter.primaries():
            if self._role(self._arbiter.role_of(client) or "").wants_packet(metadata):
                yield Outgoing(client, message)

    def _digest_list(self, digest_list: p4r.DigestList, wall_ns: int) -> Iterator[Outgoing]:
        digest_list.timestamp = wall_ns
        message = p4r.StreamMessageResponse(digest=digest_list)
        for client in self._arbiter.primaries():
            if self._role(self._arbiter.role_of(client) or "").may_write(digest_list.digest_id):
                yield Outgoing(client, message)

    def _idle_timeouts(self, pipeline: Pipeline, now_ns: int, wall_ns: int) -> Iterator[Outgoing]:
        idle = pipeline.idle.advance(now_ns)
        for client in self._arbiter.primaries() if idle else ():
            role = self._role(self._arbiter.role_of(client) or "")
            entries = []
            for table_id, entry in idle:
                if role.may_write(table_id):
                    table = pipeline.schema.tables[table_id]
                    entries.append(
                        p4r.TableEntry(
                            table_id=table_id,
                            match=codec.encode_match(table.fields, entry.keys),
                            priority=entry.priority,
                            controller_metadata=entry.controller_metadata,
                            metadata=entry.metadata,
                            idle_timeout_ns=entry.idle_timeout_ns,
                        )
                    )
            if entries:
                notification = p4r.IdleTimeoutNotification(table_entry=entries, timestamp=wall_ns)
                yield Outgoing(client, p4r.StreamMessageResponse(idle_timeout_notification=notification))

    # --- helpers ---

    def _check_primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        election_id = uint128(request.election_id) if request.HasField("election_id") else None
        self._arbiter.check_primary(request.device_id, role_name(request.role, request.role_id), election_id)

    def _current(self) -> Pipeline:
        """What Read and Write refer to: a saved configuration, else the running one."""
        pipeline = self._saved or self._running
        if pipeline is None:
            raise _no_config()
        return pipeline

    def _committed(self) -> Pipeline:
        if self._running is None:
            raise _no_config()
        return self._running

    def _role(self, name: str) -> Role:
        return self._role_of_config(self._arbiter.config_of(name))

    def _role_of_config(self, config: bytes | None) -> Role:
        role = self._role_cache.get(config)
        if role is None:
            role = parse_role(config)
            self._role_cache[config] = role
        return role


def role_name(name: str, role_id: int) -> str:
    """The name of a role; clients from before 1.4 number their roles instead."""
    return name or (f"{_ROLE_ID}{role_id}" if role_id else "")


def _listed(head: str, problems: Sequence[str]) -> str:
    """All problems, as far as a status can carry them."""
    text = head
    for number, problem in enumerate(problems):
        more = ("; " if number else "") + problem
        if number and len(text.encode()) + len(more.encode()) > MESSAGE_BYTES:
            return f"{text}; and {len(problems) - number} more"
        text += more
    return text


def uint128(message: p4r.Uint128) -> int:
    """An election id as an integer."""
    return message.high << 64 | message.low


def _no_config() -> P4RuntimeError:
    return P4RuntimeError(Code.FAILED_PRECONDITION, "no forwarding pipeline config has been set for this device")


def _stream_error(request: p4r.StreamMessageRequest, error: P4RuntimeError) -> p4r.StreamError:
    message = p4r.StreamError(canonical_code=error.code, message=error.message, space=ERROR_SPACE, code=error.code)
    which = request.WhichOneof("update")
    if which == "packet":
        message.packet_out.packet_out.CopyFrom(request.packet)
    elif which == "digest_ack":
        message.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        message.other.other.CopyFrom(request.other)
    return message
