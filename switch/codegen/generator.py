"""One C file from a program: its description for the run time, and the functions of `pl_program_t`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from switch.api import KeyMatch, MatchKind
from switch.codegen.actions import Primitives, c_string
from switch.codegen.bits import Piece, store_pieces
from switch.codegen.calculations import function, header_pieces, put_pieces
from switch.codegen.expressions import Emitter, Expressions, Scope, u64
from switch.codegen.layout import CodegenError, Layout, cells_of, match_of, max_bytes
from switch.codegen.parsing import ParserWriter
from switch.codegen.tables import ControlWriter
from switch.model import CalcInput, Checksum, FieldRef, HeaderRef, Pipeline, Primitive, Program, Table

NO_ACTION = "PL_NO_ACTION"
PROGRAMS_BUSINESS = (
    "type-limits",
    "bool-operation",
    "bool-compare",
    "int-in-bool-context",
    "tautological-compare",
    "div-by-zero",
    "unused-label",
)


def generate(program: Program) -> str:
    """The C source of `pl_program()` for a program. Raises `CodegenError` for what has no translation."""
    return _Generator(program).source()


def _array(kind: str, name: str, items: Sequence[str]) -> list[str]:
    """A constant array, one item a line; an empty one has one zero element, since C has no empty arrays."""
    lines = [f"static const {kind} {name}[] = {{"]
    lines += [f"    {item}," for item in items] or ["    {0},"]
    return [*lines, "};", ""]


def _words(values: Iterable[int]) -> str:
    return "{" + ", ".join(u64(value) for value in values) + "}"


def pack_match(matches: Sequence[KeyMatch], layout: Layout, table: Table) -> tuple[list[int], list[int], list[int]]:
    """Key, mask and high words of an entry (see pl_table_insert)."""
    values, masks, highs = [], [], []
    for key, match in zip(table.keys, matches, strict=True):
        full = (1 << key.bits) - 1 if key.mask is None else key.mask
        if match.kind is MatchKind.RANGE:
            values.append(match.value)
            masks.append(0)
            highs.append(match.high)
            continue
        mask = full
        if match.kind in (MatchKind.TERNARY, MatchKind.OPTIONAL):
            mask = match.mask & full
        elif match.kind is MatchKind.LPM:
            mask = full & ~((1 << key.bits - match.prefix_len) - 1)
        values.append(match.value & mask)
        masks.append(mask)
        highs.append(match.value & mask)
    pack = layout.keys[table.name].pack
    return pack(values), pack(masks), pack(highs)


def prefix_length(matches: Sequence[KeyMatch]) -> int:
    """The prefix length of the entry's lpm key, 0 without one."""
    return next((match.prefix_len for match in matches if match.kind is MatchKind.LPM), 0)


class _Generator:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.layout = Layout(program)
        self.calculations = list(program.calculations)

    def source(self) -> str:
        lines = [
            "/* Generated from a BMv2 JSON by switch.codegen; do not edit.",
            f" * Program {self.program.sha256}",
            " */",
            '#include "pl_rt.h"',
            '#include "pl_tables.h"',
            "",
            "/* A program may compare, negate or divide constants as it likes; that is its own business. */",
            *(f'#pragma GCC diagnostic ignored "-W{warning}"' for warning in PROGRAMS_BUSINESS),
            "",
            *self.description(),
        ]
        for index, calculation in enumerate(self.program.calculations.values()):
            lines += function(self.layout, f"calc_{index}", calculation.algorithm, calculation.inputs)
        for index, profile in enumerate(self.layout.profiles.values()):
            if profile.selector is not None:
                inputs = [
                    CalcInput(item, self.layout.field(item).bits)
                    for item in profile.selector.inputs
                    if isinstance(item, FieldRef)
                ]
                lines += function(self.layout, f"select_{index}", profile.selector.algorithm, inputs)
        lines += self.digests()
        lines += self.parse()
        lines += self.control("ingress", self.program.ingress, self.verify_checksums())
        lines += self.control("egress", self.program.egress, self.before_egress())
        lines += self.deparse()
        lines += self.copy_fields()
        lines += self.life()
        return "\n".join(lines) + "\n"

    # --- description -----------------------------------------------------------------------------------------------

    def description(self) -> list[str]:
        layout, program = self.layout, self.program
        lines = _array("pl_field_t", "fields", [
            f"{{{c_string(name)}, {cell}, {bits}}}" for name, cell, bits in self.fields()
        ])  # fmt: skip
        tables: list[str] = []
        for index, table in enumerate(layout.tables.values()):
            tables.append(self.table(index, table, lines))
        lines += _array("pl_table_desc_t", "tables", tables)
        lines += _array("pl_profile_desc_t", "profiles", [
            f"{{{c_string(name)}, {profile.max_size}, {layout.data_cells(layout.profile_actions(name))}}}"
            for name, profile in layout.profiles.items()
        ])  # fmt: skip
        lines += _array("pl_counter_desc_t", "counters", [
            f"{{{c_string(item.name)}, {item.size}}}" for item in program.counters.values()
        ])  # fmt: skip
        lines += _array("pl_meter_desc_t", "meters", [
            f"{{{c_string(item.name)}, {item.size}, {int(item.bytes)}}}" for item in program.meters.values()
        ])  # fmt: skip
        lines += _array("pl_register_desc_t", "registers", [
            f"{{{c_string(item.name)}, {item.size}, {item.bits}}}" for item in program.registers.values()
        ])  # fmt: skip
        lines += _array("pl_vset_desc_t", "vsets", [
            f"{{{c_string(item.name)}, {item.bits}, {min(item.max_size, (1 << 32) - 1)}}}"
            for item in program.value_sets.values()
        ])  # fmt: skip
        counts = [len(layout.tables), len(layout.profiles), len(program.counters), len(program.meters)]
        numbers = ", ".join(map(str, [*counts, len(program.registers), len(program.value_sets)]))
        lines += [
            "static const pl_desc_t description = {",
            "    tables, profiles, counters, meters, registers, vsets,",
            f"    {numbers},",
            "};",
            "",
        ]
        return lines

    def fields(self) -> list[tuple[str, int, int]]:
        """Fields for the outside; metadata is always valid and has no validity bit."""
        metadata = {f"{name}.$valid$" for name, header in self.program.headers.items() if header.metadata}
        return [item for item in self.layout.all_fields() if item[0] not in metadata]

    def table(self, index: int, table: Table, lines: list[str]) -> str:
        layout = self.layout
        key = layout.keys[table.name]
        match = match_of(table)
        if key.words > 64:
            raise CodegenError(f"table {table.name!r} has a key of {key.bits} bits, at most 64 words of 64 bits fit")
        items = [
            f"{{{place.word}, {place.shift}, {place.bits}, {int(item.kind is MatchKind.RANGE)},"
            f" {int(item.kind is MatchKind.LPM)}}}"
            for item, place in zip(table.keys, key.places, strict=True)
        ]
        lines += _array("pl_key_field_t", f"key_{index}", items)
        default = "NULL"
        data: list[int] = []
        action = NO_ACTION
        if table.default is not None:
            action = str(table.default.action_id)
            data = layout.action_data[table.default.action_id].pack(table.default.action_data)
            if data:
                lines += [f"static const uint64_t default_{index}[] = {_words(data)};", ""]
                default = f"default_{index}"
        profile = -1 if table.implementation is None else layout.profile_index[table.implementation]
        meter = -1 if table.direct_meter is None else layout.meter_index[table.direct_meter]
        direct_bits = key.bits if match == "direct" else 0
        return (
            f"{{{c_string(table.name)}, PL_MATCH_{match.upper()}, {key.words}, {direct_bits}, {len(items)},"
            f" key_{index},"
            f" {layout.data_cells(table.action_ids)}, {table.max_size}, {profile}, {meter}, {action}, {default},"
            f" {len(data)}}}"
        )

    # --- functions -------------------------------------------------------------------------------------------------

    def digests(self) -> list[str]:
        """A function that sends one digest: each element padded to whole bytes."""
        lines = [
            "static inline void send_digest(pl_t *pl, pkt_t *p, uint32_t digest)",
            "{",
            "    const uint64_t *const P = p->phv;",
            "    (void)P;",
            "    if (!pl->digest_sink)",
            "        return;",
            "    switch (digest) {",
        ]
        for identifier, learn in self.program.learn_lists.items():
            emit = Emitter()
            emit.depth = 2
            exprs = Expressions(self.layout, emit)
            size = sum((bits + 7) // 8 for _, bits in learn.elements)
            emit(f"uint8_t bytes[{max(1, size)}];")
            at = 0
            for value, bits in learn.elements:
                cells = tuple(exprs.words(exprs.low_bits(value, bits, Scope()), cells_of(bits)))
                padding = -bits % 8
                pieces = [Piece(("0ull",), padding)] if padding else []
                at += store_pieces(emit, f"bytes + {at}", [*pieces, Piece(cells, bits)])
            emit(f"pl->digest_sink(pl->digest_arg, {identifier}, bytes, {size});")
            emit("break;")
            lines += [f"    case {identifier}: {{", *emit.lines, "    }"]
        return [*lines, "    default:", "        break;", "    }", "}", ""]

    def parse(self) -> list[str]:
        body = ParserWriter(self.layout).write()
        error = self.layout.find_field("standard_metadata.parser_error")
        lines = [
            "static void do_parse(pl_t *pl, pkt_t *p)",
            "{",
            "    uint64_t *const P = p->phv;",
            "    const uint8_t *cur = p->data;",
            "    const uint8_t *const end = p->data + p->len;",
            f"    int64_t err = {self.program.errors['NoError']};",
            "    (void)pl;",
            "    (void)P;",
            "    (void)end;",
            "    p->packet_length = p->len;",
            *body,
            *(["done:"] if body else []),
            "    p->payload_offset = (uint32_t)(cur - p->data);",
        ]
        if error is not None:
            place = self.layout.field(error)
            lines.append(f"    P[{place.cell}] = (uint64_t)err & {u64((1 << place.bits) - 1)};")
        else:
            lines.append("    (void)err;")
        return [*lines, "}", ""]

    def control(self, name: str, pipeline: Pipeline, before: Sequence[str]) -> list[str]:
        """The function of one pipeline."""
        body = ControlWriter(self.layout, pipeline).write()
        digests = any(
            primitive.op == "generate_digest"
            for action in self.program.actions.values()
            for primitive in action.primitives
        )
        lines = [
            f"static void do_{name}(pl_t *pl, pkt_t *p)",
            "{",
            "    uint64_t *const P = p->phv;",
            "    uint32_t digest = 0;",
            "    (void)pl;",
            "    (void)P;",
            "    (void)digest;",
            *before,
            *body,
            *(["done:;"] if body else []),
        ]
        if digests and name == "ingress":  # as in simple_switch, which learns after ingress alone
            lines += ["    if (PL_UNLIKELY(digest))", "        send_digest(pl, p, digest);"]
        else:
            lines.append("    (void)send_digest;")
        return [*lines, "}", ""]

    def before_egress(self) -> list[str]:
        ref = self.layout.find_field("standard_metadata.packet_length")
        if ref is None:
            return []
        place = self.layout.field(ref)
        return [f"    P[{place.cell}] = p->packet_length & {u64((1 << place.bits) - 1)};"]

    def verify_checksums(self) -> list[str]:
        """As simple_switch: a checksum whose target is invalid or whose condition fails counts as right."""
        ref = self.layout.find_field("standard_metadata.checksum_error")
        if ref is None:
            return []
        emit = Emitter()
        exprs = Expressions(self.layout, emit)
        emit("uint64_t wrong = 0;")
        for checksum in self.program.checksums:
            if checksum.verify:
                emit("{")
                emit.depth += 1
                header = exprs.named_header(checksum.target.header)
                conditions = [exprs.is_valid(header), *self.condition(exprs, checksum)]
                target = header.cell(header.layout.fields[checksum.target.field].cell)
                calculation = self.calculations.index(checksum.calculation)
                emit(f"if ({' && '.join(conditions)} && calc_{calculation}(p) != {target})")
                emit("    wrong = 1;")
                emit.depth -= 1
                emit("}")
        emit(f"P[{self.layout.field(ref).cell}] = wrong;")
        return ["    {", *emit.lines, "    }"]

    @staticmethod
    def condition(exprs: Expressions, checksum: Checksum) -> list[str]:
        return [] if checksum.condition is None else [exprs.boolean(checksum.condition, Scope())]

    def deparse(self) -> list[str]:
        """Checksums, then the headers in order, written right before the payload."""
        program, layout = self.program, self.layout
        emit = Emitter()
        exprs = Expressions(layout, emit)
        primitives = Primitives(exprs)
        for checksum in program.checksums:
            if checksum.update:
                emit("{")
                emit.depth += 1
                conditions = self.condition(exprs, checksum) or ["1"]
                emit(f"if ({conditions[0]}) {{")
                emit.depth += 1
                calculation = self.calculations.index(checksum.calculation)
                primitives.store_code(checksum.target, f"calc_{calculation}(p)", 64, Scope())
                emit.depth -= 1
                emit("}")
                emit.depth -= 1
                emit("}")
        for primitive in program.deparser.primitives:
            self.block(primitives, primitive)
        headers = [exprs.named_header(name) for name in program.deparser.order]
        emit("uint32_t size = 0;")
        for header in headers:
            emit(f"size += {exprs.is_valid(header)} ? {primitives.bytes_of(header)} : 0;")
        emit("pl_make_room(p, size);")
        emit("uint8_t *out = p->data;")
        for header in headers:
            emit(f"if ({exprs.is_valid(header)}) {{")
            emit.depth += 1
            pieces = header_pieces(header)
            fixed = [piece for piece in pieces if isinstance(piece, Piece)]
            if len(fixed) == len(pieces):
                store_pieces(emit, "out", fixed)
            else:
                emit("size_t at = 0;")
                put_pieces(emit, "out", "at", pieces)
            emit(f"out += {primitives.bytes_of(header)};")
            emit.depth -= 1
            emit("}")
        emit("(void)out;")
        return [
            "static void do_deparse(pl_t *pl, pkt_t *p)",
            "{",
            "    uint64_t *const P = p->phv;",
            "    (void)pl;",
            "    (void)P;",
            *emit.lines,
            "}",
            "",
        ]

    @staticmethod
    def block(primitives: Primitives, primitive: Primitive) -> None:
        primitives.emit("{")
        primitives.one(primitive, Scope(), {})
        primitives.emit("}")

    def copy_fields(self) -> list[str]:
        """Field lists that clones, resubmitted and recirculated packets keep."""
        lines = [
            "static void do_copy_fields(pl_t *pl, int32_t list, pkt_t *dst, const pkt_t *src)",
            "{",
            "    uint64_t *const P = dst->phv;",
            "    const uint64_t *const Q = src->phv;",
            "    (void)pl;",
            "    (void)P;",
            "    (void)Q;",
            "    switch (list) {",
        ]
        for identifier, field_list in self.program.field_lists.items():
            cells: dict[int, None] = {}
            for element in field_list.elements:
                match element:
                    case HeaderRef(name):
                        base = self.layout.header_base[name]
                        cells.update(dict.fromkeys(range(base + 1, base + self.layout.block(name).cells)))
                    case FieldRef(_, "$valid$"):
                        continue  # validity is the parser's
                    case FieldRef():
                        place = self.layout.field(element)
                        cells.update(dict.fromkeys(range(place.cell, place.cell + cells_of(place.bits))))
                        if place.length_cell is not None:
                            cells[place.length_cell] = None
                    case _:
                        raise CodegenError(f"field list {field_list.name!r} has {element}, which is not a field")
            lines.append(f"    case {identifier}:")
            lines += [f"        P[{cell}] = Q[{cell}];" for cell in cells]
            lines.append("        break;")
        return [*lines, "    default:", "        break;", "    }", "}", ""]

    def life(self) -> list[str]:
        """Create with the program's own entries, destroy, resets and `pl_program`."""
        layout, program = self.layout, self.program
        lines: list[str] = []
        inserts: list[str] = []
        for index, table in enumerate(layout.tables.values()):
            for number, entry in enumerate(table.const_entries):
                matches = [match for match in entry.keys if isinstance(match, KeyMatch)]
                key, mask, high = pack_match(matches, layout, table)
                data = layout.action_data[entry.action_id].pack(entry.action_data)
                name = f"entry_{index}_{number}"
                rows = ", ".join(_words(part) for part in (key, mask, high))
                lines.append(f"static const uint64_t {name}[][{len(key)}] = {{{rows}}};")
                code = "NULL"
                if data:
                    lines.append(f"static const uint64_t {name}_data[] = {_words(data)};")
                    code = f"{name}_data"
                inserts.append(
                    f"    if (pl_table_insert(pl, {index}, {name}[0], {name}[1], {name}[2], {prefix_length(matches)},"
                    f" {-entry.priority}, PL_KIND_ACTION, {entry.action_id}, {code}, {len(data)}) < 0)"
                )
                inserts.append("        goto fail;")
        headroom = sum(max_bytes(program.headers[name].type) for name in program.deparser.order)
        lines += [
            "",
            "static pl_t *do_create(uint64_t seed)",
            "{",
            "    pl_t *pl = pl_state_create(&description, seed);",
            "    if (!pl)",
            "        return NULL;",
            *inserts,
            "    return pl;",
            *(["fail:", "    pl_state_destroy(pl);", "    return NULL;"] if inserts else []),
            "}",
            "",
            "static void do_clock(pl_t *pl, uint64_t now_ps) { pl->now_ps = now_ps; }",
            "static void do_set_drop_port(pl_t *pl, uint32_t port) { pl->drop_port = port; }",
            "",
            "static void do_reset_phv(pkt_t *p)",
            "{",
            f"    pl_zero(p->phv, {8 * layout.phv_cells});",
            "    p->packet_length = p->len;",
            "}",
            "",
            f"static void do_reset_metadata(pkt_t *p) {{ pl_zero(p->phv, {8 * layout.metadata_cells}); }}",
            "",
            "static void do_set_digest_sink(pl_t *pl, void (*sink)(void *, uint32_t, const uint8_t *, uint32_t),",
            "                               void *arg)",
            "{",
            "    pl->digest_sink = sink;",
            "    pl->digest_arg = arg;",
            "}",
            "",
            "static void do_set_log_sink(pl_t *pl, void (*sink)(void *, const char *), void *arg)",
            "{",
            "    pl->log_sink = sink;",
            "    pl->log_arg = arg;",
            "}",
            "",
            "static const pl_program_t program = {",
            "    .abi_version = PL_ABI_VERSION,",
            f"    .phv_bytes = {8 * layout.phv_cells},",
            f"    .name = {c_string(program.sha256)},",
            "    .fields = fields,",
            f"    .n_fields = {len(self.fields())},",
            f"    .headroom_bytes = {headroom},",
            "    .create = do_create,",
            "    .destroy = pl_state_destroy,",
            *(
                f"    .{name} = do_{name},"
                for name in (
                    "clock", "set_drop_port", "reset_phv", "reset_metadata", "parse", "ingress", "egress", "deparse",
                    "copy_fields", "set_digest_sink", "set_log_sink",
                )
            ),
            "};",
            "",
            "const pl_program_t *pl_program(void) { return &program; }",
        ]  # fmt: skip
        return lines


__all__ = ["CodegenError", "generate", "pack_match", "prefix_length"]
