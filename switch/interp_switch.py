"""simple_switch without queues: a packet in, frames out, over the interpreter (or any pipeline with its interface).

Used for differential tests and for goldens. The order and the details are simple_switch's:

after ingress: clone (the original bytes are parsed again, only the field list is kept), digest, resubmit (original
bytes, field list), multicast (mcast_grp != 0), drop (egress_spec == drop port), unicast;
after egress: clone (headers as they are, metadata only by field list; starts at egress), drop, recirculate (the
deparsed frame, field list), transmit.

Metadata that no field list keeps is 0 in clones, resubmitted and recirculated packets, ingress_port and timestamps
included. egress_spec is 0 when egress starts. packet_length in egress counts what add_header and remove_header did.
truncate() in a control cuts the frame that this packet is transmitted as; copies made by clone, multicast, resubmit
and recirculate are whole. A packet runs to its end before those that it recirculates or resubmits start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from switch.interp_state import NO_TRUNCATION, PacketState
from switch.interpreter import Interpreter

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRC, REPLICATION, RESUBMIT = 0, 1, 2, 4, 5, 6
MAX_PASSES = 1000


@dataclass(frozen=True, slots=True)
class Output:
    """A frame that left through a port."""

    port: int
    frame: bytes


@dataclass(slots=True)
class _Queued:
    """A packet on its way to egress."""

    port: int
    state: PacketState
    truncate_bytes: int = NO_TRUNCATION


@dataclass(frozen=True, slots=True)
class CloneSession:
    """Copies (port, egress_rid), each cut to `length_bytes` when it leaves (0: whole)."""

    copies: tuple[tuple[int, int], ...]
    length_bytes: int = 0


@dataclass(slots=True)
class SimpleSwitch:
    """The target around one interpreter. `digests` collects (learn list id, bytes) in order."""

    pipeline: Interpreter
    digests: list[tuple[int, bytes]] = field(default_factory=list)
    groups: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    sessions: dict[int, CloneSession] = field(default_factory=dict)
    _egress: deque[_Queued] = field(default_factory=deque)
    _again: deque[tuple[PacketState, bytes, int]] = field(default_factory=deque)  # packet, frame, instance_type

    def set_multicast_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None:
        """Copies (port, egress_rid) of a group; none removes it."""
        self.groups[group] = tuple(copies)

    def set_clone_session(self, session: int, copies: Sequence[tuple[int, int]], length_bytes: int = 0) -> None:
        """Copies of a clone session (0..32767)."""
        self.sessions[session] = CloneSession(tuple(copies), length_bytes)

    def receive(self, port: int, frame: bytes) -> list[Output]:
        """All frames that come of one received frame, in the order in which they are transmitted."""
        state = PacketState(self.pipeline)
        state.frame = bytes(frame)
        for name, value in (
            ("standard_metadata.ingress_port", port),
            ("standard_metadata.packet_length", len(frame)),
            ("intrinsic_metadata.ingress_global_timestamp", self.pipeline.now_us),
        ):
            self.pipeline.set_standard(state, name, value)
        self.pipeline.run_parser(state)
        outputs: list[Output] = []
        self._ingress(state)
        for _ in range(MAX_PASSES):
            while self._egress:
                outputs += self._run_egress(self._egress.popleft())
            if not self._again:
                return outputs
            before, again, instance_type = self._again.popleft()
            self._ingress(self._restart(before, again, instance_type))
        raise RuntimeError(f"a packet was resubmitted or recirculated {MAX_PASSES} times")

    def _restart(self, before: PacketState, frame: bytes, instance_type: int) -> PacketState:
        """A packet at the parser again: metadata is 0 but for the field list (which a parser may read)."""
        requests = before.requests
        kept = requests.resubmit_field_list if instance_type == RESUBMIT else requests.recirculate_field_list
        state = PacketState(self.pipeline)
        state.frame = frame
        self.pipeline.copy_fields(kept, state, before)
        self.pipeline.set_standard(state, "standard_metadata.instance_type", instance_type)
        self.pipeline.set_standard(state, "standard_metadata.packet_length", len(frame))
        self.pipeline.run_parser(state)
        return state

    def _ingress(self, state: PacketState) -> None:
        pipeline = self.pipeline
        pipeline.run_ingress(state)
        requests = state.requests
        if requests.clone and requests.clone_session in self.sessions:
            self._clone(self._ingress_clone(state), requests.clone_session)
        self.digests += state.digests
        state.digests = []
        if requests.resubmit:
            self._again.append((state, state.frame, RESUBMIT))
            return
        group = pipeline.get_standard(state, "intrinsic_metadata.mcast_grp")
        if group:
            pipeline.set_standard(state, "standard_metadata.instance_type", REPLICATION)
            self._multicast(state, self.groups.get(group, ()), NO_TRUNCATION)
            return
        port = pipeline.get_standard(state, "standard_metadata.egress_spec")
        if port == pipeline.drop_port:
            return
        pipeline.set_standard(state, "standard_metadata.instance_type", NORMAL)
        self._enqueue(port, state, requests.truncate_bytes)

    def _ingress_clone(self, state: PacketState) -> PacketState:
        copy = PacketState(self.pipeline)
        copy.frame = state.frame
        port = self.pipeline.get_standard(state, "standard_metadata.ingress_port")
        self.pipeline.set_standard(copy, "standard_metadata.ingress_port", port)
        self.pipeline.run_parser(copy)
        self._keep_fields(copy, state, state.requests.clone_field_list)
        self.pipeline.set_standard(copy, "standard_metadata.instance_type", INGRESS_CLONE)
        return copy

    def _keep_fields(self, copy: PacketState, origin: PacketState, field_list: int) -> None:
        for name in self.pipeline.layout.metadata:
            copy.zero(name)
        self.pipeline.copy_fields(field_list, copy, origin)

    def _clone(self, copy: PacketState, session: int) -> None:
        config = self.sessions[session]
        self._multicast(copy, config.copies, config.length_bytes or NO_TRUNCATION)

    def _multicast(self, state: PacketState, copies: Sequence[tuple[int, int]], truncate_bytes: int) -> None:
        for port, rid in copies:
            copy = state.clone()
            self.pipeline.set_standard(copy, "intrinsic_metadata.egress_rid", rid)
            self._enqueue(port, copy, truncate_bytes)

    def _enqueue(self, port: int, state: PacketState, truncate_bytes: int) -> None:
        self.pipeline.set_standard(state, "queueing_metadata.enq_timestamp", self.pipeline.now_us)
        self.pipeline.set_standard(state, "queueing_metadata.enq_qdepth", 0)
        self._egress.append(_Queued(port, state, truncate_bytes))

    def _run_egress(self, queued: _Queued) -> list[Output]:
        pipeline, state = self.pipeline, queued.state
        for name, value in (
            ("intrinsic_metadata.egress_global_timestamp", pipeline.now_us),
            ("queueing_metadata.deq_timedelta", 0),
            ("queueing_metadata.deq_qdepth", 0),
            ("standard_metadata.egress_port", queued.port),
            ("standard_metadata.egress_spec", pipeline.drop_port + 1),
            ("standard_metadata.packet_length", len(state.frame) + state.added_bytes),
        ):
            pipeline.set_standard(state, name, value)
        pipeline.run_egress(state)
        requests = state.requests
        if requests.clone and requests.clone_session in self.sessions:
            copy = state.clone()
            self._keep_fields(copy, state, requests.clone_field_list)
            pipeline.set_standard(copy, "standard_metadata.instance_type", EGRESS_CLONE)
            self._clone(copy, requests.clone_session)
        if pipeline.get_standard(state, "standard_metadata.egress_spec") == pipeline.drop_port:
            return []
        truncate_bytes = min(requests.truncate_bytes, queued.truncate_bytes)
        requests.truncate_bytes = NO_TRUNCATION
        frame = pipeline.deparse(state)
        if requests.recirculate:
            self._again.append((state, frame, RECIRC))
            return []
        return [Output(queued.port, frame[:truncate_bytes])]
