"""The compiled P4 program as the controller needs it: P4Info indexed by name, the JSON, and the cookie of both.

Built from p4src/build/dcb.p4info.txtpb and dcb.json (made by p4c). A table, counter or register is found by its full
name ("ingress.rx") or, where that is unique, by its last part ("rx"); a match field by its name or the last
part of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finsy.proto import p4d, p4i
from google.protobuf import text_format

DEFAULT_DIRECTORY = Path(__file__).resolve().parent.parent / "p4src" / "build"


class ProgramError(ValueError):
    """The P4 program cannot be read or lacks an object; the message names it."""


@dataclass(frozen=True, slots=True)
class Field:
    """A match field, an action parameter or a packet metadata field."""

    id: int
    name: str
    bits: int
    kind: str = ""  # exact, lpm, ternary, range, optional; empty for parameters


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of the program."""

    id: int
    name: str
    fields: tuple[Field, ...]
    is_const: bool
    profile: str | None  # name of the action profile or selector

    @property
    def has_priority(self) -> bool:
        """True when entries need a priority."""
        return any(field.kind in ("ternary", "range", "optional") for field in self.fields)


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action with its parameters in the order of their ids."""

    id: int
    name: str
    params: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A counter, register or meter: `size` cells of `bits` (0 for counters and meters)."""

    id: int
    name: str
    size: int
    bits: int = 0


_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}


class P4Program:
    """P4Info and device config of one program. `cookie` is a 64-bit hash of both, never 0."""

    def __init__(self, p4info: p4i.P4Info, device_config: bytes) -> None:
        self.p4info = p4info
        self.device_config = device_config
        digest = hashlib.sha256(device_config + b"\0" + p4info.SerializeToString(deterministic=True)).digest()
        self.cookie = int.from_bytes(digest[:8], "big") or 1
        self.actions = {
            a.preamble.name: ActionInfo(
                a.preamble.id, a.preamble.name, tuple(Field(p.id, p.name, p.bitwidth) for p in a.params)
            )
            for a in p4info.actions
        }
        self.action_by_id = {action.id: action for action in self.actions.values()}
        self.profiles = {p.preamble.name: p.preamble.id for p in p4info.action_profiles}
        self.max_group_sizes = {p.preamble.name: p.max_group_size for p in p4info.action_profiles}
        self.profile_by_id = {number: name for name, number in self.profiles.items()}
        self.tables = {t.preamble.name: self._table(t) for t in p4info.tables}
        self.table_by_id = {table.id: table for table in self.tables.values()}
        self.counters = {c.preamble.name: ArrayInfo(c.preamble.id, c.preamble.name, c.size) for c in p4info.counters}
        self.registers = {
            r.preamble.name: ArrayInfo(r.preamble.id, r.preamble.name, r.size, _register_bits(r.type_spec))
            for r in p4info.registers
        }
        self.meters = {m.preamble.name: ArrayInfo(m.preamble.id, m.preamble.name, m.size) for m in p4info.meters}
        self.packet_in = self._packet_fields("packet_in")
        self.packet_out = self._packet_fields("packet_out")

    def _table(self, table: Any) -> TableInfo:
        fields = []
        for match_field in table.match_fields:
            kind = _KINDS.get(match_field.match_type)
            if kind is None:
                raise ProgramError(f"table {table.preamble.name}: key {match_field.name}: unknown match type")
            fields.append(Field(match_field.id, match_field.name, match_field.bitwidth, kind))
        return TableInfo(
            table.preamble.id,
            table.preamble.name,
            tuple(fields),
            bool(table.is_const_table),
            self.profile_by_id.get(table.implementation_id),
        )

    def _packet_fields(self, name: str) -> tuple[Field, ...]:
        for header in self.p4info.controller_packet_metadata:
            if header.preamble.name == name:
                return tuple(Field(m.id, m.name, m.bitwidth) for m in header.metadata)
        return ()

    @classmethod
    def load(cls, directory: str | os.PathLike[str] | None = None, name: str = "dcb") -> P4Program:
        """Read NAME.p4info.txtpb and NAME.json; by default from $DCBLAB_P4, else p4src/build. Raises ProgramError.

        `directory` (or $DCBLAB_P4) may also be DIRECTORY/NAME.json.
        """
        base = Path(directory or os.environ.get("DCBLAB_P4") or DEFAULT_DIRECTORY)
        if base.suffix == ".json":
            base, name = base.parent, base.stem
        try:
            text = (base / f"{name}.p4info.txtpb").read_text(encoding="utf-8")
            device_config = (base / f"{name}.json").read_bytes()
            return cls(text_format.Parse(text, p4i.P4Info()), device_config)
        except OSError as error:
            raise ProgramError(f"P4 program {name} in {base}: cannot be read: {error}") from None
        except text_format.ParseError as error:
            raise ProgramError(f"P4 program {name} in {base}: P4Info: {error}") from None

    def table(self, name: str) -> TableInfo:
        """A table by full name. Raises ProgramError."""
        if name not in self.tables:
            raise ProgramError(f"table {name}: not in the P4 program")
        return self.tables[name]

    def action(self, name: str) -> ActionInfo:
        """An action by full name. Raises ProgramError."""
        if name not in self.actions:
            raise ProgramError(f"action {name}: not in the P4 program")
        return self.actions[name]

    def counter(self, name: str) -> ArrayInfo:
        """A counter by full name or unique last part. Raises ProgramError."""
        return self.counters[_resolve(name, self.counters, "counter")]

    def register(self, name: str) -> ArrayInfo:
        """A register by full name or unique last part. Raises ProgramError."""
        return self.registers[_resolve(name, self.registers, "register")]


def find_field(fields: Iterable[Field], name: str, owner: str) -> Field:
    """A field by name, or by the last part of its name where no name is equal. Raises ProgramError."""
    candidates = list(fields)
    for field in candidates:
        if field.name == name:
            return field
    short = [field for field in candidates if field.name.rpartition(".")[2] == name]
    if len(short) != 1:
        known = ", ".join(field.name for field in candidates)
        raise ProgramError(f"{owner}: field {name}: not in the P4 program (known: {known})")
    return short[0]


def _resolve(name: str, names: Mapping[str, object], kind: str) -> str:
    if name in names:
        return name
    short = [full for full in names if full.rpartition(".")[2] == name]
    if len(short) != 1:
        raise ProgramError(f"{kind} {name}: not in the P4 program" + (" (ambiguous)" if short else ""))
    return short[0]


def _register_bits(spec: Any) -> int:
    return int(spec.bitstring.bit.bitwidth)


def data_int(data: p4d.P4Data) -> int:
    """The integer in a P4Data bitstring."""
    return int.from_bytes(data.bitstring, "big")
