"""The smallest BMv2 JSON around an ingress control of one's own: metadata headers, an empty parser, nothing emitted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

STANDARD = [["ingress_port", 9], ["packet_length", 32], ["instance_type", 32], ["egress_spec", 9], ["egress_port", 9]]


def program_json(
    metadata: Mapping[str, Sequence[Sequence[Any]]],
    actions: Sequence[Json],
    *,
    init: str,
    top: Mapping[str, Any] | None = None,
    **ingress: Any,
) -> str:
    """JSON text. `metadata`: fields by instance; `ingress`: members of the pipeline (tables, action_calls, ...); `top`:
    members of the whole (meter_arrays, ...)."""
    types = {"standard_metadata": [*STANDARD, ["_padding", 5]], **metadata}
    empty: Json = {"tables": [], "conditionals": [], "action_calls": [], "action_profiles": []}
    accept = {"type": "default", "value": None, "mask": None, "next_state": None}
    start = {"name": "start", "id": 0, "parser_ops": [], "transition_key": [], "transitions": [accept]}
    return json.dumps(
        {
            "__meta__": {"version": [2, 23]},
            "header_types": [
                {"name": f"{name}_t", "id": index, "fields": [list(item) for item in fields]}
                for index, (name, fields) in enumerate(types.items())
            ],
            "headers": [
                {"name": name, "id": index, "header_type": f"{name}_t", "metadata": True}
                for index, name in enumerate(types)
            ],
            "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [start]}],
            "deparsers": [{"name": "deparser", "id": 0, "order": []}],
            "actions": list(actions),
            "pipelines": [
                {**empty, "name": "ingress", "id": 0, "init_table": init, **ingress},
                {**empty, "name": "egress", "id": 1, "init_table": None},
            ],
            **(top or {}),
        }
    )
