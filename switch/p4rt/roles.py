"""Role configurations: what a role may write and receive.

The scheme is Stratum's `P4RoleConfig`, which finsy ships: lists of P4Info ids, packet-ins with an optional filter on
one metadata field, and the right to push a pipeline. A role without a configuration may do everything, as the
specification says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from finsy.proto import p4r, stratum
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError

from switch.p4rt.errors import invalid


@dataclass(frozen=True, slots=True)
class Role:
    """`ids` None: every object. `packet_in_filter` is (metadata id, value) or None."""

    ids: frozenset[int] | None = None
    packet_ins: bool = True
    packet_in_filter: tuple[int, int] | None = None
    can_push_pipeline: bool = True

    def may_write(self, object_id: int) -> bool:
        """The role covers the object (0: one without an id, such as a multicast group, is everybody's)."""
        return self.ids is None or object_id == 0 or object_id in self.ids

    def wants_packet(self, metadata: Iterable[p4r.PacketMetadata]) -> bool:
        """The role receives a packet-in with this metadata."""
        if not self.packet_ins or self.packet_in_filter is None:
            return self.packet_ins
        wanted_id, wanted = self.packet_in_filter
        return any(m.metadata_id == wanted_id and int.from_bytes(m.value, "big") == wanted for m in metadata)


FULL_ACCESS = Role()


def parse_role(config: bytes | None) -> Role:
    """A serialized `Any` from MasterArbitrationUpdate.role.config; None: full access."""
    if config is None:
        return FULL_ACCESS
    message = stratum.P4RoleConfig()
    packed = Any.FromString(config)
    try:
        known = packed.Unpack(message)
    except DecodeError:
        known = False
    if not known:
        raise invalid(f"role.config of type {packed.type_url!r}: only {message.DESCRIPTOR.full_name} is supported")
    packet_filter = None
    if message.HasField("packet_in_filter"):
        packet_filter = (message.packet_in_filter.metadata_id, int.from_bytes(message.packet_in_filter.value, "big"))
    return Role(
        ids=frozenset([*message.exclusive_p4_ids, *message.shared_p4_ids]),
        packet_ins=message.receives_packet_ins,
        packet_in_filter=packet_filter,
        can_push_pipeline=message.can_push_pipeline,
    )


def object_id(entity: p4r.Entity) -> int:
    """The P4Info id that an update is about; 0 where it has none."""
    name = entity.WhichOneof("entity")
    if name == "table_entry":
        return entity.table_entry.table_id
    if name == "direct_counter_entry":
        return entity.direct_counter_entry.table_entry.table_id
    if name == "direct_meter_entry":
        return entity.direct_meter_entry.table_entry.table_id
    if name in ("action_profile_member", "action_profile_group"):
        found: int = getattr(entity, name).action_profile_id
        return found
    fields = {
        "counter_entry": "counter_id",
        "meter_entry": "meter_id",
        "register_entry": "register_id",
        "digest_entry": "digest_id",
        "value_set_entry": "value_set_id",
    }
    return int(getattr(getattr(entity, name), fields[name])) if name in fields else 0
