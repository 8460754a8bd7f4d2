"""BMv2 JSON (format 2.x) to `switch.model.Program`.

The text goes through `loader_json` (JSON with paths), `loader_headers` (storage), `loader_externs`, `loader_actions`,
`loader_parser` and `loader_pipelines`, which all resolve names in one `loader_scope.Scope`. Loading never stops at the
first problem: whatever this target cannot run exactly is collected, and `UnsupportedProgram` carries the whole list.
A program that loads has no dangling reference, no wrong arity and no kind mismatch left.

Sources: behavioral-model docs/JSON_format.md 2.24, and what p4c's bmv2 back end writes for v1model.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import TypeVar

from switch.loader_actions import load_actions, load_deparser
from switch.loader_exprs import Expressions
from switch.loader_externs import load_arrays, load_calculations, load_checksums, load_lists
from switch.loader_headers import load_aliases, load_enums, load_errors, load_headers
from switch.loader_json import Node, UnsupportedProgram, parse_json
from switch.loader_parser import load_parser, load_value_sets
from switch.loader_pipelines import load_pipeline, load_profiles
from switch.loader_scope import Scope
from switch.model import Program

__all__ = ["UnsupportedProgram", "load"]

T = TypeVar("T")


def load(text: str | bytes) -> Program:
    """The program of a BMv2 JSON text.

    Raises `UnsupportedProgram` with every problem found: malformed JSON, missing or ill-typed members, dangling
    references, and features that this target does not have. The last few programs are kept: they are immutable, and
    building, checking and running one each ask for it.
    """
    return _load(text)


@lru_cache(maxsize=4)
def _load(text: str | bytes) -> Program:
    root = Node(parse_json(text), "", [])
    if not isinstance(root.value, dict):
        raise UnsupportedProgram(["JSON: must be an object"])
    scope = Scope(root.problems)
    version = (0, 0)
    with scope.each():
        version = _version(root)
    for section in (load_headers, load_value_sets, load_arrays, load_lists, load_calculations):
        with scope.each():
            section(root, scope)
    exprs = Expressions(scope)
    errors = enums = aliases = None
    with scope.each():
        errors = load_errors(root, scope)
    with scope.each():
        enums = load_enums(root, scope)
    with scope.each():
        aliases = load_aliases(root, scope)
    with scope.each():
        load_actions(root, scope, exprs)
    parser = deparser = profiles = ingress = egress = None
    checksums = None
    with scope.each():
        parser = load_parser(root, scope, exprs)
    with scope.each():
        deparser = load_deparser(root, scope, exprs)
    with scope.each():
        checksums = load_checksums(root, scope, exprs)
    with scope.each():
        profiles = load_profiles(root, scope)
    with scope.each():
        ingress = load_pipeline(root, "ingress", scope, exprs, profiles or {})
    with scope.each():
        egress = load_pipeline(root, "egress", scope, exprs, profiles or {})
    if ingress is not None and egress is not None:
        _check_bindings(scope, {*ingress.tables, *egress.tables}, set(ingress.tables) & set(egress.tables))
    if root.problems:
        raise UnsupportedProgram(root.problems)
    return Program(
        sha256=hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest(),
        version=version,
        headers=scope.headers,
        stacks=scope.stacks,
        unions=scope.unions,
        union_stacks=scope.union_stacks,
        errors=_loaded(errors),
        parser=_loaded(parser),
        deparser=_loaded(deparser),
        value_sets=scope.value_sets,
        actions=scope.actions,
        ingress=_loaded(ingress),
        egress=_loaded(egress),
        counters=scope.counters,
        meters=scope.meters,
        registers=scope.registers,
        calculations=scope.calculations,
        checksums=_loaded(checksums),
        field_lists=scope.field_lists,
        learn_lists=scope.learn_lists,
        field_aliases=_loaded(aliases),
        enums=_loaded(enums),
    )


def _loaded(part: T | None) -> T:
    """A part that is missing has left a problem behind, and then nobody comes here."""
    assert part is not None
    return part


def _version(root: Node) -> tuple[int, int]:
    node = root.get("__meta__").get("version")
    major, minor = (item.integer() for item in node.items(2))
    if major != 2:
        raise node.bad(f"is {json.dumps(node.value)}, this target reads format 2.x")
    return major, minor


def _check_bindings(scope: Scope, tables: set[str], twice: set[str]) -> None:
    for name in sorted(twice):
        scope.problems.append(f"pipelines: table {name!r} is declared in ingress and in egress")
    for kind, arrays in (("counter_arrays", scope.counters), ("meter_arrays", scope.meters)):
        for array in arrays.values():
            if array.direct_table is not None and array.direct_table not in tables:
                scope.problems.append(
                    f"{kind}({array.name}).binding: refers to table {array.direct_table!r}, which is not declared"
                )
