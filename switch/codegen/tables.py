"""Ingress and egress as C: tables, conditionals and action calls are blocks, the edges of the graph are gotos."""

from __future__ import annotations

from collections.abc import Iterable

from switch.api import MatchKind
from switch.codegen.actions import Primitives, comment
from switch.codegen.expressions import Emitter, Expressions, Scope, u64
from switch.codegen.layout import Layout, cells_of, match_of
from switch.model import Action, FieldRef, Pipeline, Table

LOOKUPS = {"exact": "pl_find_exact", "lpm": "pl_find_lpm"}


class ControlWriter:
    """Emits the body of the function of one pipeline."""

    def __init__(self, layout: Layout, pipeline: Pipeline) -> None:
        self.layout = layout
        self.program = layout.program
        self.pipeline = pipeline
        self.emit = Emitter()
        self.exprs = Expressions(layout, self.emit)
        self.primitives = Primitives(self.exprs)
        self.names = (*pipeline.tables, *pipeline.conditionals, *pipeline.action_calls)
        self.labels = {name: f"N{index}" for index, name in enumerate(self.names)}

    def successors(self, name: str) -> Iterable[str | None]:
        pipeline = self.pipeline
        if name in pipeline.tables:
            table = pipeline.tables[name]
            return (*table.next_by_action.values(), table.next_hit, table.next_miss, table.base_default_next)
        if name in pipeline.conditionals:
            return (pipeline.conditionals[name].true_next, pipeline.conditionals[name].false_next)
        return (pipeline.action_calls[name].next_node,)

    def write(self) -> list[str]:
        """The lines of the body; the label `done` ends it."""
        if self.pipeline.init_node is None:
            return []
        order: dict[str, None] = {}
        stack = [self.pipeline.init_node]
        while stack:
            name = stack.pop()
            if name in order:
                continue
            order[name] = None
            stack += [node for node in reversed(list(self.successors(name))) if node is not None and node not in order]
        self.emit(f"goto {self.labels[self.pipeline.init_node]};")
        for name in order:
            self.emit.lines.append(f"{self.labels[name]}: {{ {comment(name)}")
            if name in self.pipeline.tables:
                self.table(self.pipeline.tables[name])
            elif name in self.pipeline.conditionals:
                node = self.pipeline.conditionals[name]
                self.emit(f"if ({self.exprs.boolean(node.expression, Scope())}) {self.go(node.true_next)}")
                self.emit(self.go(node.false_next))
            else:
                call = self.pipeline.action_calls[name]
                self.action(self.program.actions[call.action_id])
                self.emit(self.go(call.next_node))
            self.emit.lines.append("}")
        return self.emit.lines

    def go(self, node: str | None) -> str:
        return "goto done;" if node is None else f"goto {self.labels[node]};"

    def action(self, action: Action) -> None:
        """The body of an action; its data is at `d`."""
        data = self.layout.action_data[action.id]
        params = tuple((offset, param.bits) for offset, param in zip(data.offsets, action.params, strict=True))
        self.primitives.run(action.primitives, Scope(params=params))
        if any(primitive.op == "exit" for primitive in action.primitives):
            self.emit("if (p->req.exited)")
            self.emit("    goto done;")

    # --- tables ----------------------------------------------------------------------------------------------------

    def table(self, table: Table) -> None:
        default = table.default
        if not table.keys and default is not None and default.action_const and default.entry_const:
            self.constant(table)  # what p4c makes of statements between tables
            return
        emit = self.emit
        emit(f"pl_table_t *const t = &pl->tables[{self.layout.table_index[table.name]}];")
        if table.keys:
            self.lookup(table)
        else:
            emit("pl_entry_t *e = NULL;")
        emit("const int hit = e != NULL;")
        emit("if (hit) {")
        emit.depth += 1
        self.on_hit(table)
        emit.depth -= 1
        emit("} else {")
        emit("    e = t->miss;")
        emit("}")
        emit("uint32_t action = e->action;")
        emit("const uint64_t *d = e->cells;")
        if table.implementation is not None:
            self.choose(table)
        emit("(void)d;")
        emit("(void)hit;")
        emit("switch (action) {")
        for identifier in table.action_ids:
            emit(f"case {identifier}: {{ {comment(self.program.actions[identifier].name)}")
            emit.depth += 1
            self.action(self.program.actions[identifier])
            if not table.hit_miss:
                emit(self.go(table.next_by_action.get(identifier)))
            else:
                emit("break;")
            emit.depth -= 1
            emit("}")
        emit("default:")
        emit("    break;")
        emit("}")
        if table.hit_miss:
            emit(f"if (hit) {self.go(table.next_hit)}")
            emit(self.go(table.next_miss))
        else:
            emit(self.go(table.base_default_next))

    def constant(self, table: Table) -> None:
        """A table without a key whose default cannot change: its action, with its data as constants."""
        default = table.default
        assert default is not None
        action = self.program.actions[default.action_id]
        if action.params:
            cells = self.layout.action_data[action.id].pack(default.action_data)
            self.emit(f"static const uint64_t d[{len(cells)}] = {{{', '.join(u64(cell) for cell in cells)}}};")
            self.emit("(void)d;")
        self.action(action)
        self.emit(self.go(table.next_miss if table.hit_miss else table.next_by_action.get(action.id)))

    def lookup(self, table: Table) -> None:
        """Packs the key into words and finds the entry `e`, or NULL."""
        layout = self.layout.keys[table.name]
        words: list[list[str]] = [[] for _ in range(layout.words)]
        for key, place in zip(table.keys, layout.places, strict=True):
            for at, code in enumerate(self.key_cells(key.target, key.bits, key.mask)):
                words[place.word + at].append(f"{code} << {place.shift}" if place.shift else code)
        codes = [" | ".join(parts) if parts else "0" for parts in words]
        match = match_of(table)
        if match == "direct":
            self.emit(f"pl_entry_t *e = pl_find_direct(t, {codes[0]});")
            return
        self.emit(f"const uint64_t key[{layout.words}] = {{{', '.join(codes)}}};")
        if match == "ternary":
            with_range = int(any(key.kind is MatchKind.RANGE for key in table.keys))
            self.emit(f"pl_entry_t *e = pl_find_ternary(t, key, {layout.words}, {with_range});")
        else:
            self.emit(f"pl_entry_t *e = {LOOKUPS[match]}(t, key, {layout.words});")

    def key_cells(self, ref: FieldRef, bits: int, mask: int | None) -> list[str]:
        """Cells of a key; a field of an invalid header counts as 0."""
        header = self.exprs.named_header(ref.header)
        place = header.layout.fields[ref.field]
        if header.metadata and ref.field == "$valid$":
            return ["1"]
        codes = [header.cell(place.cell + at) for at in range(cells_of(bits))]
        if not header.metadata and ref.field != "$valid$":
            codes = [f"({header.cell(0)} ? {code} : 0)" for code in codes]
        if mask is not None and mask != (1 << bits) - 1:
            codes = [f"({code} & {u64(mask >> 64 * at)})" for at, code in enumerate(codes)]
        return codes

    def on_hit(self, table: Table) -> None:
        if table.with_counters:
            self.emit("pl_count(&e->count, p->len);")
        self.emit("e->last_hit_ps = pl->now_ps;")
        if table.direct_meter is None:
            return
        meter = self.program.meters[table.direct_meter]
        size = "p->len" if meter.bytes else "1"
        self.emit("pl_meter_t *const meter = t->cold[e->handle].meter;")
        if meter.result is not None:
            place = self.layout.field(meter.result)
            mask = f" & {u64((1 << place.bits) - 1)}" if place.bits < 2 else ""
            self.emit(f"P[{place.cell}] = (meter ? pl_meter_execute(meter, {size}, pl->now_ps) : 0){mask};")
            for at in range(1, cells_of(place.bits)):
                self.emit(f"P[{place.cell + at}] = 0;")

    def choose(self, table: Table) -> None:
        """The member of an action profile, through a group where the table has a selector."""
        assert table.implementation is not None
        profile = self.layout.profiles[table.implementation]
        number = self.layout.profile_index[profile.name]
        self.emit("if (e->kind != PL_KIND_ACTION) {")
        self.emit.depth += 1
        selector = f"select_{number}(p)" if profile.selector is not None else "0"
        self.emit(f"const uint64_t hash = e->kind == PL_KIND_GROUP ? {selector} : 0;")
        self.emit(f"const pl_member_t *const m = pl_choose(&pl->profiles[{number}], e, hash);")
        self.emit("action = m ? m->action : PL_NO_ACTION;")
        self.emit("d = m ? m->cells : NULL;")
        self.emit.depth -= 1
        self.emit("}")
