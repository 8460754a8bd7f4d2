"""A cursor over parsed JSON that knows its path, and the list of problems that a load collects.

Every accessor either returns a value of the wanted type or records one problem that names the path, the value and the
rule, and raises `Bad`. Loops over objects catch `Bad` with `Scope.each`, so one load reports every problem at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

_HEX = re.compile(r"-?(0[xX])?[0-9a-fA-F]+\Z")


class UnsupportedProgram(ValueError):
    """A BMv2 JSON that this target refuses. `problems` is the full list; each names the object, value and rule."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"BMv2 JSON refused, {count}:\n" + "\n".join(f"  {p}" for p in problems))


class Bad(Exception):
    """The current object cannot be used; the reason is already in the list of problems."""


def _show(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else text[:57] + "..."


class Node:
    """One JSON value, where it is, and the list that problems go to."""

    __slots__ = ("path", "problems", "value")

    def __init__(self, value: Any, path: str, problems: list[str]) -> None:
        self.value = value
        self.path = path
        self.problems = problems

    def bad(self, rule: str) -> Bad:
        """Record a problem of this value; the caller raises the result to give up on the object it belongs to."""
        self.problems.append(f"{self.path or 'JSON'}: {rule}")
        return Bad()

    def wrong(self, expected: str) -> Bad:
        """As `bad`, for a value of the wrong type or out of range."""
        return self.bad(f"is {_show(self.value)}, must be {expected}")

    def get(self, key: str) -> Node:
        """Member `key` of an object; it must be there."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        if key not in self.value:
            raise self.bad(f"has no member {key!r}")
        return Node(self.value[key], f"{self.path}.{key}" if self.path else key, self.problems)

    def opt(self, key: str) -> Node | None:
        """Member `key` of an object, None where it is absent or null."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return None if self.value.get(key) is None else self.get(key)

    def has(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def is_null(self) -> bool:
        return self.value is None

    def items(self, size: int | None = None) -> list[Node]:
        """The elements of an array (of exactly `size` elements). Named elements show their name in their path."""
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        if size is not None and len(self.value) != size:
            raise self.wrong(f"an array of {size} elements")
        nodes = []
        for index, item in enumerate(self.value):
            name = item.get("name") if isinstance(item, dict) else None
            label = f"[{index}]" + (f"({name})" if isinstance(name, str) else "")
            nodes.append(Node(item, self.path + label, self.problems))
        return nodes

    def members(self) -> Iterator[tuple[str, Node]]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        for key in self.value:
            yield key, self.get(key)

    def list_of(self, key: str) -> list[Node]:
        """Elements of the array `key`; an absent array is empty, as in BMv2."""
        node = self.opt(key)
        return [] if node is None else node.items()

    def string(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def string_or_null(self) -> str | None:
        return None if self.value is None else self.string()

    def integer(self, low: int = 0, high: int = (1 << 63) - 1) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.wrong("an integer")
        if not low <= self.value <= high:
            raise self.wrong(f"in {low}..{high}")
        return self.value

    def boolean(self) -> bool:
        # p4c writes the sign flag of some fields as 0 and 1
        if isinstance(self.value, bool) or self.value in (0, 1):
            return bool(self.value)
        raise self.wrong("a boolean")

    def hexstr(self) -> int:
        """A hexadecimal string, "-" in front for negative values."""
        if not isinstance(self.value, str) or not _HEX.match(self.value):
            raise self.wrong("a hexadecimal string")
        return int(self.value, 16)

    def hex_bytes(self) -> int:
        """Bytes that a hexadecimal string spells."""
        self.hexstr()
        digits = self.value.lstrip("-").lower().removeprefix("0x")
        return (len(digits) + 1) // 2


def parse_json(text: str | bytes) -> Any:
    """The JSON value of a text; refuses malformed JSON, duplicate members of an object and values that are not JSON."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in pairs:
            if key in members:
                raise UnsupportedProgram([f"JSON: an object has member {key!r} twice"])
            members[key] = value
        return members

    def constant(name: str) -> NoReturn:
        raise UnsupportedProgram([f"JSON: {name} is not a JSON value"])

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except UnsupportedProgram:
        raise
    except UnicodeDecodeError as error:
        raise UnsupportedProgram([f"JSON: not UTF-8: {error}"]) from None
    except json.JSONDecodeError as error:
        raise UnsupportedProgram([f"JSON: line {error.lineno} column {error.colno}: {error.msg}"]) from None
    except (RecursionError, ValueError) as error:
        raise UnsupportedProgram([f"JSON: {error}"]) from None
