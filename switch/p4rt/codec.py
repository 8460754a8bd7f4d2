"""P4Runtime messages to and from the records of `switch.api`: match keys, actions, meters, controller headers.

Decoding validates against the schema and raises `P4RuntimeError`; encoding is canonical (shortest byte strings,
don't-care fields left out), so that a read gives back what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from finsy.proto import p4r

from switch.api import ActionCall, KeyMatch, MatchKind, MeterConfig
from switch.p4rt.bytestrings import decode_unsigned, encode_unsigned
from switch.p4rt.errors import Code, P4RuntimeError, invalid
from switch.p4rt.schema import Action, ControllerHeader, MatchField, Meter, Table

# --- match keys ----------------------------------------------------------------------------------------------------


def decode_match(owner: str, fields: Sequence[MatchField], matches: Iterable[p4r.FieldMatch]) -> tuple[KeyMatch, ...]:
    """The whole key in field order; fields that are left out match anything (an exact one may not be left out)."""
    by_id = {field.id: field for field in fields}
    given: dict[int, KeyMatch] = {}
    for match in matches:
        field = by_id.get(match.field_id)
        if field is None:
            raise invalid(f"{owner}: match field_id {match.field_id}: not a key of it (it has {_ids(fields)})")
        if field.id in given:
            raise invalid(f"{owner}: match field {field.name} ({field.id}) is given twice")
        given[field.id] = _decode_field(f"{owner}: match field {field.name}", field, match)
    return tuple(given[field.id] if field.id in given else _dont_care(owner, field) for field in fields)


def _ids(fields: Sequence[MatchField]) -> str:
    return ", ".join(f"{field.id} {field.name}" for field in fields) or "no key"


def _dont_care(owner: str, field: MatchField) -> KeyMatch:
    if field.kind is MatchKind.EXACT:
        raise invalid(f"{owner}: match field {field.name} ({field.id}) is missing; an exact field cannot be left out")
    if field.kind is MatchKind.RANGE:
        return KeyMatch(field.kind, value=0, high=(1 << field.bits) - 1)
    return KeyMatch(field.kind)


def _decode_field(what: str, field: MatchField, match: p4r.FieldMatch) -> KeyMatch:
    given = match.WhichOneof("field_match_type")
    if given != field.kind.value:
        raise invalid(f"{what}: it is {field.kind.value}, the request has {given or 'nothing'}")
    bits = field.bits
    full = (1 << bits) - 1
    if given == "exact":
        return KeyMatch(field.kind, _bits(match.exact.value, bits, f"{what} value"))
    if given == "optional":
        return KeyMatch(field.kind, _bits(match.optional.value, bits, f"{what} value"), mask=full)
    if given == "lpm":
        value, length = _bits(match.lpm.value, bits, f"{what} value"), match.lpm.prefix_len
        if not 0 < length <= bits:
            raise invalid(f"{what} prefix_len {length}: must be 1..{bits} (leave the field out to match anything)")
        if value & (full >> length):
            raise invalid(f"{what} value {value:#x}: bits after prefix_len {length} must be 0")
        return KeyMatch(field.kind, value, prefix_len=length)
    if given == "ternary":
        value, mask = _bits(match.ternary.value, bits, f"{what} value"), _bits(match.ternary.mask, bits, f"{what} mask")
        if mask == 0:
            raise invalid(f"{what} mask 0: leave the field out to match anything")
        if value & ~mask:
            raise invalid(f"{what} value {value:#x}: bits outside mask {mask:#x} must be 0")
        return KeyMatch(field.kind, value, mask=mask)
    low, high = _bits(match.range.low, bits, f"{what} low"), _bits(match.range.high, bits, f"{what} high")
    if low > high:
        raise invalid(f"{what} low {low:#x}: must not be above high {high:#x}")
    if low == 0 and high == full:
        raise invalid(f"{what} {low:#x}..{high:#x}: leave the field out to match anything")
    return KeyMatch(field.kind, low, high=high)


def _bits(data: bytes, bits: int, what: str) -> int:
    # The specification asks for INVALID_ARGUMENT, not OUT_OF_RANGE, in match keys and action parameters.
    return decode_unsigned(data, bits, what, Code.INVALID_ARGUMENT)


def encode_match(fields: Sequence[MatchField], keys: Sequence[KeyMatch]) -> list[p4r.FieldMatch]:
    """Field matches of a key, without those that match anything."""
    return [_encode_field(f, key) for f, key in zip(fields, keys, strict=True) if not is_dont_care(f, key)]


def is_dont_care(field: MatchField, key: KeyMatch) -> bool:
    """The field matches any value."""
    if field.kind is MatchKind.EXACT:
        return False
    if field.kind is MatchKind.LPM:
        return key.prefix_len == 0
    if field.kind is MatchKind.RANGE:
        return key.value == 0 and key.high == (1 << field.bits) - 1
    return key.mask == 0


def _encode_field(field: MatchField, key: KeyMatch) -> p4r.FieldMatch:
    match = p4r.FieldMatch(field_id=field.id)
    value = encode_unsigned(key.value)
    if field.kind is MatchKind.EXACT:
        match.exact.value = value
    elif field.kind is MatchKind.OPTIONAL:
        match.optional.value = value
    elif field.kind is MatchKind.LPM:
        match.lpm.value = value
        match.lpm.prefix_len = key.prefix_len
    elif field.kind is MatchKind.TERNARY:
        match.ternary.value = value
        match.ternary.mask = encode_unsigned(key.mask)
    else:
        match.range.low = value
        match.range.high = encode_unsigned(key.high)
    return match


def decode_key(table: Table, entry: p4r.TableEntry) -> tuple[tuple[KeyMatch, ...], int]:
    """The key of an entry: all its fields, and its priority (0 where the table has none)."""
    keys = decode_match(f"table {table.name}", table.fields, entry.match)
    if table.has_priority and entry.priority <= 0:
        raise invalid(
            f"table {table.name}: priority {entry.priority}: must be positive (a key is ternary, range or optional)"
        )
    if not table.has_priority and entry.priority != 0:
        raise invalid(
            f"table {table.name}: priority {entry.priority}: must be 0 (no key is ternary, range or optional)"
        )
    return keys, entry.priority


# --- actions -------------------------------------------------------------------------------------------------------


def table_action(table: Table, action_id: int, *, default: bool) -> Action:
    """The action of a table by id, allowed in entries or as the default."""
    ref = table.actions.get(action_id)
    if ref is None:
        names = ", ".join(f"{r.action.name} {i:#x}" for i, r in table.actions.items())
        raise invalid(f"table {table.name}: action_id {action_id:#x}: not an action of it (it has {names})")
    if default and not ref.as_default:
        raise P4RuntimeError(
            Code.PERMISSION_DENIED,
            f"table {table.name}: action {ref.action.name} is @tableonly: not allowed as the default",
        )
    if not default and not ref.in_entries:
        raise P4RuntimeError(
            Code.PERMISSION_DENIED,
            f"table {table.name}: action {ref.action.name} is @defaultonly: not allowed in an entry",
        )
    return ref.action


def decode_action(table: Table, action: p4r.Action, *, default: bool = False) -> ActionCall:
    """An action with all its parameters, each within its width."""
    found = table_action(table, action.action_id, default=default)
    by_id = {param.id: param for param in found.params}
    values: dict[int, int] = {}
    for given in action.params:
        param = by_id.get(given.param_id)
        if param is None:
            raise invalid(
                f"action {found.name}: param_id {given.param_id}: no such parameter (it has {_param_ids(found)})"
            )
        if param.id in values:
            raise invalid(f"action {found.name}: parameter {param.name} ({param.id}) is given twice")
        values[param.id] = _bits(given.value, param.bits, f"action {found.name}: parameter {param.name}")
    for param in found.params:
        if param.id not in values:
            raise invalid(f"action {found.name}: parameter {param.name} ({param.id}) is missing")
    return ActionCall(found.name, tuple(values[param.id] for param in found.params))


def _param_ids(action: Action) -> str:
    return ", ".join(f"{param.id} {param.name}" for param in action.params) or "none"


def encode_action(action: Action, call: ActionCall) -> p4r.Action:
    """The message of an action call."""
    return p4r.Action(
        action_id=action.id,
        params=[
            p4r.Action.Param(param_id=param.id, value=encode_unsigned(value))
            for param, value in zip(action.params, call.params, strict=True)
        ],
    )


# --- meters --------------------------------------------------------------------------------------------------------


def decode_meter(meter: Meter, config: p4r.MeterConfig) -> MeterConfig:
    """Rates and bursts, checked by the meter's type."""
    what = f"meter {meter.name}"
    for name in ("cir", "cburst", "pir", "pburst", "eburst"):
        if getattr(config, name) < 0:
            raise invalid(f"{what}: {name} {getattr(config, name)}: must not be negative")
    if config.eburst and not (meter.single_rate and not meter.two_color):
        raise invalid(f"{what}: eburst {config.eburst}: only a single-rate three-colour meter has an excess burst")
    if config.eburst:
        raise P4RuntimeError(
            Code.UNIMPLEMENTED, f"{what}: eburst {config.eburst}: excess bursts (RFC 2697) are not supported"
        )
    if meter.single_rate and (config.cir != config.pir or config.cburst != config.pburst):
        raise invalid(f"{what}: a single-rate meter needs cir = pir and cburst = pburst")
    if config.cir > config.pir:
        raise invalid(f"{what}: cir {config.cir}: must not exceed pir {config.pir}")
    return MeterConfig(config.cir, config.cburst, config.pir, config.pburst)


def encode_meter(config: MeterConfig) -> p4r.MeterConfig:
    """The message of a meter configuration."""
    return p4r.MeterConfig(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)


# --- packet I/O ----------------------------------------------------------------------------------------------------


def pack_header(header: ControllerHeader, metadata: Iterable[p4r.PacketMetadata]) -> bytes:
    """The bytes in front of a packet-out frame: fields in P4Info order, first one in the highest bits, zero pad at the
    end."""
    by_id = {field.id: field for field in header.fields}
    values: dict[int, int] = {}
    for given in metadata:
        field = by_id.get(given.metadata_id)
        if field is None:
            raise invalid(f"{header.name}: metadata_id {given.metadata_id}: not in P4Info")
        if field.id in values:
            raise invalid(f"{header.name}: metadata {field.name} ({field.id}) is given twice")
        values[field.id] = _bits(given.value, field.bits, f"{header.name}: metadata {field.name}")
    packed = bits = 0
    for field in header.fields:
        if field.id not in values and not is_padding(field.name):
            raise invalid(f"{header.name}: metadata {field.name} ({field.id}) is missing")
        packed = packed << field.bits | values.get(field.id, 0)
        bits += field.bits
    return (packed << (-bits % 8)).to_bytes(header.length_bytes, "big")


def is_padding(name: str) -> bool:
    """A field that only fills a byte; clients leave it out and programs name it so (`pad`, `_pad`, `padding`)."""
    return name.strip("_0123456789") in ("pad", "padding")


def unpack_header(header: ControllerHeader, frame: bytes) -> tuple[list[p4r.PacketMetadata], bytes]:
    """Metadata and payload of a frame that starts with the packet-in header. ValueError when it is too short."""
    length = header.length_bytes
    if len(frame) < length:
        raise ValueError(f"packet-in of {len(frame)} bytes is shorter than its header of {length}")
    left = length * 8
    packed = int.from_bytes(frame[:length], "big")
    metadata = []
    for field in header.fields:
        left -= field.bits
        value = packed >> left & ((1 << field.bits) - 1)
        metadata.append(p4r.PacketMetadata(metadata_id=field.id, value=encode_unsigned(value)))
    return metadata, frame[length:]


def check_index(what: str, index: int, size: int) -> int:
    """An index of an array of `size` cells."""
    if index < 0:
        raise invalid(f"{what}: index {index}: must not be negative")
    if index >= size:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{what}: index {index}: must be below its size {size}")
    return index


PORT_BITS = 9  # v1model


def decode_port(data: bytes, what: str) -> int:
    """A port given as bytes (Replica.port, watch_port)."""
    return _bits(data, PORT_BITS, what)
