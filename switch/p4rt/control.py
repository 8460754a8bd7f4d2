"""What the P4Runtime service asks of a target: a pipeline, a replication engine, packet I/O and events.

`switch.target.Target` implements it over a `SwitchCore`; tests implement it in memory. The service calls it from one
thread. A call that the target refuses raises `switch.api.PipelineError`; a canonical code may ride on it as the
attribute `code`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from finsy.proto import p4i

from switch.api import ActionCall, KeyMatch, PipelineControl


@dataclass(frozen=True, slots=True)
class InitialEntry:
    """An entry that the program brings along. `priority` as in P4Runtime (larger wins, 0 without); `handle` in the
    pipeline."""

    keys: tuple[KeyMatch, ...]
    priority: int
    action: ActionCall
    handle: int


@dataclass(frozen=True, slots=True)
class PacketInEvent:
    """A frame for the controller as it left the CPU port: packet-in header first."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """One message of the digest with this P4Info name: a value for each leaf of its type."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PortEvent:
    """A port came up or went down."""

    port: int
    up: bool


Event = PacketInEvent | DigestEvent | PortEvent


class TargetControl(PipelineControl, Protocol):
    """A running (or not yet started) program. Every call takes effect before it returns."""

    def lock(self) -> AbstractContextManager[object]: ...  # no packet is processed while it is held; re-entrant
    def initial_entries(self, table: str) -> Sequence[InitialEntry]: ...
    def initial_default(self, table: str) -> ActionCall | None: ...  # None: the program has none (no-op)

    # packet replication engine; replicas are (egress port, instance)
    def set_multicast_group(self, group_id: int, replicas: Sequence[tuple[int, int]]) -> None: ...
    def delete_multicast_group(self, group_id: int) -> None: ...
    def set_clone_session(
        self, session_id: int, replicas: Sequence[tuple[int, int]], class_of_service: int, packet_length_bytes: int
    ) -> None: ...
    def delete_clone_session(self, session_id: int) -> None: ...

    def port_exists(self, port: int) -> bool: ...
    def port_is_up(self, port: int) -> bool: ...

    # packets and events
    def packet_out(self, frame: bytes) -> None: ...  # frame with the packet-out header in front
    def events(self) -> list[Event]: ...  # what happened since the last call
    def event_fd(self) -> int | None: ...  # readable when events() has something

    def start(self) -> None: ...  # take over the ports
    def stop(self) -> None: ...  # let go of the ports; may start again
    def close(self) -> None: ...  # stop and free


class TargetFactory(Protocol):
    """Makes a target that is not started. Slow (it compiles): called in a thread.

    Raises ValueError (UnsupportedProgram, SchemaError) whose `problems`, where present, lists everything that is wrong.
    """

    def __call__(self, device_config: bytes, p4info: p4i.P4Info) -> TargetControl: ...
