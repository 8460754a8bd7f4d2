"""Digest lists, sans-IO: buffering, duplicates, acknowledgements and their time-outs. Time is passed in, in
nanoseconds.

Data comes in by `add`, lists go out from `add` and `advance`; `next_deadline` says when `advance` has something to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from finsy.proto import p4r

from switch.p4rt import p4data
from switch.p4rt.errors import Code, P4RuntimeError, invalid, not_found
from switch.p4rt.schema import Digest, Schema

UNLIMITED_LIST_SIZE = 1024  # what max_list_size 0 means here
_Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DigestConfig:
    """As written: 0 time-out sends at once, 0 list size leaves it to us, 0 ack time-out forgets at once."""

    max_timeout_ns: int
    max_list_size: int
    ack_timeout_ns: int


@dataclass(slots=True)
class _State:
    config: DigestConfig
    buffer: dict[_Values, None] = field(default_factory=dict)  # ordered set
    first_ns: int = 0
    unacknowledged: dict[int, tuple[int, tuple[_Values, ...]]] = field(default_factory=dict)  # list id -> (sent, data)
    suppressed: set[_Values] = field(default_factory=set)


class Digests:
    """All digests of a pipeline configuration. Data of a digest that is not configured is dropped."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._by_name = {digest.name: digest for digest in schema.digests.values()}
        self._states: dict[int, _State] = {}
        self._next_list_id = 1

    # --- configuration ---

    def config(self, digest_id: int) -> DigestConfig | None:
        """The configuration of an enabled digest."""
        state = self._states.get(digest_id)
        return state.config if state else None

    def configs(self) -> dict[int, DigestConfig]:
        """All enabled digests."""
        return {digest_id: state.config for digest_id, state in self._states.items()}

    def write(self, digest: Digest, entry: p4r.DigestEntry, kind: p4r.Update.Type.ValueType) -> None:
        """INSERT enables, MODIFY changes, DELETE disables."""
        enabled = digest.id in self._states
        if kind == p4r.Update.INSERT and enabled:
            raise P4RuntimeError(Code.ALREADY_EXISTS, f"digest {digest.name}: it is enabled")
        if kind != p4r.Update.INSERT and not enabled:
            raise not_found(f"digest {digest.name}: it is not enabled")
        if kind == p4r.Update.DELETE:
            del self._states[digest.id]
            return
        config = entry.config
        for name in ("max_timeout_ns", "max_list_size", "ack_timeout_ns"):
            if getattr(config, name) < 0:
                raise invalid(f"digest {digest.name}: {name} {getattr(config, name)}: must not be negative")
        self.restore(digest.id, DigestConfig(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns))

    def restore(self, digest_id: int, config: DigestConfig | None) -> None:
        """Set a configuration without checks; None disables. Buffered data stays when it was enabled."""
        if config is None:
            self._states.pop(digest_id, None)
        elif digest_id in self._states:
            self._states[digest_id].config = config
        else:
            self._states[digest_id] = _State(config)

    # --- data ---

    def add(self, name: str, values: _Values, now_ns: int) -> p4r.DigestList | None:
        """One digest message of the data plane; a list when that completes one."""
        digest = self._by_name.get(name)
        state = self._states.get(digest.id) if digest else None
        if digest is None or state is None:
            return None
        self._forget(state, now_ns)
        if values in state.buffer or values in state.suppressed:
            return None
        if not state.buffer:
            state.first_ns = now_ns
        state.buffer[values] = None
        limit = state.config.max_list_size or UNLIMITED_LIST_SIZE
        if state.config.max_timeout_ns == 0 or len(state.buffer) >= limit:
            return self._flush(digest, state, now_ns)
        return None

    def ack(self, digest_id: int, list_id: int) -> None:
        """A DigestListAck. An unknown list (expired, or acknowledged before) is ignored, an unknown digest refused."""
        if digest_id not in self._schema.digests:
            raise invalid(f"digest_ack: digest_id {digest_id:#x}: no such digest in P4Info")
        state = self._states.get(digest_id)
        if state is not None and list_id in state.unacknowledged:
            state.suppressed.difference_update(state.unacknowledged.pop(list_id)[1])

    def advance(self, now_ns: int) -> list[p4r.DigestList]:
        """Lists whose oldest message has waited long enough."""
        due = []
        for digest_id, state in self._states.items():
            self._forget(state, now_ns)
            if state.buffer and now_ns - state.first_ns >= state.config.max_timeout_ns:
                due.append(self._flush(self._schema.digests[digest_id], state, now_ns))
        return due

    def next_deadline(self) -> int | None:
        """When `advance` has to be called next, in nanoseconds."""
        waiting = [s.first_ns + s.config.max_timeout_ns for s in self._states.values() if s.buffer]
        return min(waiting, default=None)

    def new_primary(self) -> None:
        """Another client listens now: it shall see everything, also what the old one has not acknowledged."""
        for state in self._states.values():
            state.unacknowledged.clear()
            state.suppressed.clear()

    def _forget(self, state: _State, now_ns: int) -> None:
        expired = [i for i, (sent, _) in state.unacknowledged.items() if now_ns - sent >= state.config.ack_timeout_ns]
        for list_id in expired:
            state.suppressed.difference_update(state.unacknowledged.pop(list_id)[1])

    def _flush(self, digest: Digest, state: _State, now_ns: int) -> p4r.DigestList:
        list_id = self._next_list_id
        self._next_list_id += 1
        data = tuple(state.buffer)
        state.buffer.clear()
        if state.config.ack_timeout_ns > 0:
            state.unacknowledged[list_id] = (now_ns, data)
            state.suppressed.update(data)
        return p4r.DigestList(
            digest_id=digest.id, list_id=list_id, data=[p4data.encode(digest.type, values) for values in data]
        )
