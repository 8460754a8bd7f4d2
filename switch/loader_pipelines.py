"""Pipelines of a BMv2 JSON to the model: action profiles, tables with their entries, conditionals, action calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from switch.api import KeyMatch, MatchKind
from switch.loader_actions import named
from switch.loader_exprs import Expressions, Place
from switch.loader_externs import MAX_CELLS, algorithm_of
from switch.loader_json import Bad, Node
from switch.loader_scope import VALID, Scope
from switch.model import (
    Action,
    ActionCallNode,
    ActionProfile,
    Conditional,
    ConstEntry,
    DefaultEntry,
    FieldRef,
    Pipeline,
    Selector,
    Table,
    TableKey,
)

# JSON spelling -> kind; "valid" is an exact match on the validity bit. p4c writes optional keys as ternary.
_KEY_KINDS = {kind.value: kind for kind in MatchKind if kind is not MatchKind.SELECTOR} | {"valid": MatchKind.EXACT}
_TABLE_KINDS = {
    "exact": {MatchKind.EXACT},
    "lpm": {MatchKind.EXACT, MatchKind.LPM},
    "ternary": {MatchKind.EXACT, MatchKind.LPM, MatchKind.TERNARY, MatchKind.OPTIONAL},
    "range": {MatchKind.EXACT, MatchKind.LPM, MatchKind.TERNARY, MatchKind.OPTIONAL, MatchKind.RANGE},
}
_DEFAULT_TABLE_SIZE = 1024


def load_profiles(root: Node, scope: Scope) -> dict[str, dict[str, ActionProfile]]:
    """Action profiles of both pipelines into the scope; a table may use one that the other pipeline declares."""
    profiles: dict[str, dict[str, ActionProfile]] = {}
    for pipeline in root.get("pipelines").items():
        own = profiles.setdefault(str(pipeline.value.get("name")) if isinstance(pipeline.value, dict) else "", {})
        for node in pipeline.list_of("action_profiles"):
            with scope.each("action profile", node):
                name = node.get("name").string()
                selector_node, size = node.opt("selector"), node.opt("max_size")
                selector: Selector | None = None
                if selector_node is not None:
                    inputs = []
                    for item in selector_node.get("input").items():
                        if item.get("type").string() != "field":
                            raise item.get("type").bad(f"is {item.value['type']!r}, a selector hashes fields")
                        inputs.append(scope.fixed_field(item.get("value"))[0])
                    selector = Selector(algorithm_of(selector_node), tuple(inputs))
                limit = 0 if size is None else size.integer(0, MAX_CELLS)
                profile = ActionProfile(name, limit or _DEFAULT_TABLE_SIZE, selector)
                scope.declare("action profile", scope.profiles, name, profile, node)
                own[name] = profile
    return profiles


def load_pipeline(
    root: Node, name: str, scope: Scope, exprs: Expressions, profiles: Mapping[str, dict[str, ActionProfile]]
) -> Pipeline:
    """The pipeline of that name."""
    node = named(root, "pipelines", name)
    loader = _Loader(scope, exprs, node)
    tables: dict[str, Table] = {}
    conditionals: dict[str, Conditional] = {}
    calls: dict[str, ActionCallNode] = {}
    for item in node.list_of("tables"):
        with scope.each():
            table = loader.table(item)
            scope.declare("table", tables, table.name, table, item)
    for item in node.list_of("conditionals"):
        with scope.each():
            conditional = loader.conditional(item)
            scope.declare("conditional", conditionals, conditional.name, conditional, item)
    for item in node.list_of("action_calls"):
        with scope.each():
            call = loader.action_call(item)
            scope.declare("action call", calls, call.name, call, item)
    init = loader.node_name(node.opt("init_table"))
    pipeline = Pipeline(name, init, tables, conditionals, calls, profiles.get(name, {}))
    if len(tables) + len(conditionals) + len(calls) == len(loader.nodes):
        _check_acyclic(pipeline, node)
    return pipeline


def _check_acyclic(pipeline: Pipeline, node: Node) -> None:
    """A control that can run in a circle would hold the switch for ever."""
    done: set[str] = set()
    active: dict[str, None] = {}

    def successors(name: str) -> list[str]:
        if name in pipeline.tables:
            table = pipeline.tables[name]
            following = [*table.next_by_action.values(), table.next_hit, table.next_miss, table.base_default_next]
        elif name in pipeline.conditionals:
            following = [pipeline.conditionals[name].true_next, pipeline.conditionals[name].false_next]
        else:
            following = [pipeline.action_calls[name].next_node]
        return list(dict.fromkeys(successor for successor in following if successor is not None))

    # depth first with an explicit stack: generated controls can be long chains
    for root in (*pipeline.tables, *pipeline.conditionals, *pipeline.action_calls):
        if root in done:
            continue
        active[root] = None
        stack = [(root, iter(successors(root)))]
        while stack:
            name, rest = stack[-1]
            for successor in rest:
                if successor in active:
                    raise node.bad(f"control flow runs in a circle through {successor!r}")
                if successor not in done:
                    active[successor] = None
                    stack.append((successor, iter(successors(successor))))
                    break
            else:
                stack.pop()
                del active[name]
                done.add(name)


class _Loader:
    def __init__(self, scope: Scope, exprs: Expressions, pipeline: Node) -> None:
        self.scope = scope
        self.exprs = exprs
        self.nodes: set[str] = set()
        for key in ("tables", "conditionals", "action_calls"):
            for item in pipeline.list_of(key):
                if item.has("name") and isinstance(item.value["name"], str):
                    self.nodes.add(item.value["name"])

    def node_name(self, node: Node | None) -> str | None:
        """A reference to the next node; None ends the control."""
        if node is None or node.is_null():
            return None
        name = node.string()
        if name not in self.nodes:
            raise node.bad(f"refers to {name!r}, which is no table, conditional or action call of this pipeline")
        return name

    def conditional(self, node: Node) -> Conditional:
        if not node.has("true_next") and not node.has("false_next"):
            raise node.bad("has neither true_next nor false_next")
        return Conditional(
            node.get("name").string(),
            self.exprs.of_kind(node.get("expression"), Place(), "bool"),
            self.node_name(node.opt("true_next")),
            self.node_name(node.opt("false_next")),
        )

    def action_call(self, node: Node) -> ActionCallNode:
        action = self._action(node.get("action_id"))
        if action.params:
            raise node.bad(f"calls action {action.name!r}, which has parameters")
        return ActionCallNode(node.get("name").string(), action.id, self.node_name(node.opt("next_node")))

    def _action(self, node: Node) -> Action:
        identifier = node.integer()
        if ("action", identifier) in self.scope.broken:
            raise Bad
        return self.scope.resolve("action id", self.scope.actions, identifier, node)

    def table(self, node: Node) -> Table:
        name, kind = node.get("name").string(), node.get("match_type").string()
        if kind not in _TABLE_KINDS:
            raise node.get("match_type").bad(f"is {kind!r}, must be one of {' '.join(_TABLE_KINDS)}")
        keys = self._keys(node, kind)
        actions = self._actions(node)
        implementation, selector = self._implementation(node)
        next_by_action, next_hit, next_miss, hit_miss = self._next(node, actions)
        meter_node = node.opt("direct_meters")
        meter: str | None = None
        if meter_node is not None:
            meter = self.scope.resolve("meter array", self.scope.meters, meter_node.string(), meter_node).name
            if self.scope.meters[meter].direct_table != name:
                raise meter_node.bad(f"is {meter!r}, which is not a direct meter of table {name!r}")
        ids = tuple(action.id for action in actions)
        has_entries = node.has("entries") and not node.get("entries").is_null()
        if has_entries and implementation is not None:
            raise node.get("entries").bad("only a table of type simple can have entries")
        entries = tuple(self._entries(node, keys, ids)) if has_entries else ()
        return Table(
            name=name,
            kind=MatchKind(kind),
            keys=keys,
            action_ids=ids,
            max_size=self._size(node, has_entries),
            implementation=implementation,
            selector=selector,
            with_counters=self._flag(node, "with_counters"),
            direct_meter=meter,
            support_timeout=self._flag(node, "support_timeout"),
            next_by_action=next_by_action,
            next_hit=next_hit,
            next_miss=next_miss,
            hit_miss=hit_miss,
            base_default_next=self.node_name(node.opt("base_default_next")),
            default=self._default(node, ids, implementation),
            const_entries=entries,
            has_const_entries=has_entries,
        )

    def _flag(self, node: Node, key: str) -> bool:
        flag = node.opt(key)
        return flag is not None and flag.boolean()

    def _size(self, node: Node, has_entries: bool) -> int:
        if has_entries:  # cannot change at run time
            return len(node.get("entries").items())
        return node.get("max_size").integer(0, MAX_CELLS)

    def _keys(self, node: Node, table_kind: str) -> tuple[TableKey, ...]:
        keys: list[TableKey] = []
        for item in node.get("key").items():
            kind = item.get("match_type").string()
            if kind not in _KEY_KINDS:
                raise item.get("match_type").bad(f"is {kind!r}, must be one of {' '.join(_KEY_KINDS)}")
            if _KEY_KINDS[kind] not in _TABLE_KINDS[table_kind]:
                raise item.get("match_type").bad(f"is {kind!r}, which a table of match_type {table_kind!r} cannot have")
            target = item.get("target")
            if kind == "valid":
                ref, bits = FieldRef(self.scope.header(target.string(), target).name, VALID), 1
            else:
                ref, bits = self.scope.fixed_field(target)
            mask_node, name_node = item.opt("mask"), item.opt("name")
            mask: int | None = None
            if mask_node is not None:
                mask = mask_node.hexstr()
                if not 0 <= mask < 1 << bits:
                    raise mask_node.wrong(f"a mask of {bits} bits")
            name = f"{ref.header}.{ref.field}" if name_node is None else name_node.string()
            keys.append(TableKey(name, _KEY_KINDS[kind], ref, bits, mask))
        if sum(key.kind is MatchKind.LPM for key in keys) > 1:
            raise node.get("key").bad("has more than one lpm key")
        return tuple(keys)

    def _actions(self, node: Node) -> list[Action]:
        if node.has("action_ids"):
            actions = [self._action(item) for item in node.get("action_ids").items()]
        else:  # older JSON: by name, which must then be unique
            actions = []
            for item in node.get("actions").items():
                named_so = [action for action in self.scope.actions.values() if action.name == item.string()]
                if len(named_so) != 1:
                    raise item.bad(f"names action {item.value!r}, of which there are {len(named_so)}")
                actions.append(named_so[0])
        if len({action.id for action in actions}) != len(actions):
            raise node.bad("lists an action twice")
        return actions

    def _implementation(self, node: Node) -> tuple[str | None, bool]:
        kind = node.get("type").string()
        if kind == "simple":
            return None, False
        if kind not in ("indirect", "indirect_ws"):
            raise node.get("type").bad(f"is {kind!r}, must be simple, indirect or indirect_ws")
        reference = node.get("action_profile")
        profile = self.scope.resolve("action profile", self.scope.profiles, reference.string(), reference)
        if kind == "indirect_ws" and profile.selector is None:
            raise reference.bad(f"is {profile.name!r}, which has no selector")
        return profile.name, kind == "indirect_ws"

    def _next(
        self, node: Node, actions: Sequence[Action]
    ) -> tuple[dict[int, str | None], str | None, str | None, bool]:
        next_tables = node.get("next_tables")
        names = {key for key, _ in next_tables.members()}
        if names & {"__HIT__", "__MISS__"}:
            if names != {"__HIT__", "__MISS__"}:
                raise next_tables.bad("must have __HIT__ and __MISS__ and nothing else, or one member for each action")
            hit, miss = (self.node_name(next_tables.get(key)) for key in ("__HIT__", "__MISS__"))
            return {}, hit, miss, True
        expected = {action.name for action in actions}
        if names != expected:
            off = ", ".join(sorted(names ^ expected))
            raise next_tables.bad(f"must have one member for each action of the table; missing or surplus: {off}")
        return {action.id: self.node_name(next_tables.get(action.name)) for action in actions}, None, None, False

    def _arguments(self, node: Node, action: Action) -> tuple[int, ...]:
        items = node.get("action_data").items()
        if len(items) != len(action.params):
            raise node.get("action_data").bad(
                f"has {len(items)} values, action {action.name!r} has {len(action.params)} parameters"
            )
        values = []
        for item, param in zip(items, action.params, strict=True):
            value = item.hexstr()
            if not -(1 << (param.bits - 1)) <= value < 1 << param.bits:
                raise item.wrong(f"a value of {param.bits} bits")
            values.append(value % (1 << param.bits))  # a negative int<W> becomes its bit pattern, as at run time
        return tuple(values)

    def _table_action(self, node: Node, ids: Sequence[int]) -> Action:
        action = self._action(node.get("action_id"))
        if action.id not in ids:
            raise node.get("action_id").bad(f"is action {action.name!r}, which the table does not list")
        return action

    def _default(self, node: Node, ids: Sequence[int], implementation: str | None) -> DefaultEntry | None:
        entry = node.opt("default_entry")
        if entry is None:
            return None
        action = self._table_action(entry, ids)
        action_const, entry_const = self._flag(entry, "action_const"), self._flag(entry, "action_entry_const")
        if action_const and implementation is not None:
            raise entry.get("action_const").bad("is true, only a table of type simple can have a constant default")
        return DefaultEntry(action.id, self._arguments(entry, action), action_const, entry_const)

    def _entries(self, node: Node, keys: Sequence[TableKey], ids: Sequence[int]) -> list[ConstEntry]:
        entries: list[ConstEntry] = []
        seen: set[object] = set()
        for index, item in enumerate(node.get("entries").items()):
            with self.scope.each():
                match = item.get("match_key").items(len(keys))
                matches = tuple(self._match(part, key) for part, key in zip(match, keys, strict=True))
                action_node = item.get("action_entry")
                action = self._table_action(action_node, ids)
                priority_node = item.opt("priority")
                priority = index + 1 if priority_node is None else priority_node.integer(0, (1 << 31) - 1)
                identity = (matches, priority if node.value["match_type"] in ("ternary", "range") else 0)
                if identity in seen:
                    raise item.bad("repeats the key of an earlier entry")
                seen.add(identity)
                entries.append(ConstEntry(matches, action.id, self._arguments(action_node, action), priority))
        return entries

    def _match(self, node: Node, key: TableKey) -> KeyMatch:
        kind = node.get("match_type").string()
        if kind not in _KEY_KINDS or _KEY_KINDS[kind] is not key.kind:
            raise node.get("match_type").bad(f"is {kind!r}, the key {key.name!r} is {key.kind.value}")
        if kind == "valid":
            return KeyMatch(MatchKind.EXACT, int(node.get("key").boolean()))
        if key.kind is MatchKind.RANGE:
            low, high = self._value(node.get("start"), key.bits), self._value(node.get("end"), key.bits)
            if low > high:
                raise node.bad(f"is the empty range {low}..{high}")
            return KeyMatch(MatchKind.RANGE, low, high=high)
        value = self._value(node.get("key"), key.bits)
        if key.kind is MatchKind.LPM:
            length = node.get("prefix_length").integer(0, key.bits)
            mask = ((1 << length) - 1) << (key.bits - length)
            return KeyMatch(MatchKind.LPM, value & mask, prefix_len=length)
        if key.kind in (MatchKind.TERNARY, MatchKind.OPTIONAL):
            mask = self._value(node.get("mask"), key.bits)
            return KeyMatch(key.kind, value & mask, mask)
        return KeyMatch(MatchKind.EXACT, value)

    def _value(self, node: Node, bits: int) -> int:
        value = node.hexstr()
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise node.wrong(f"a value of {bits} bits")
        return value % (1 << bits)
