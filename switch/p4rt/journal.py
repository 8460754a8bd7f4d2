"""Undo log of one update or one batch: every step that was taken, with what takes it back."""

from __future__ import annotations

from collections.abc import Callable


class Journal:
    """Steps in order. `rollback` takes them back, last one first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def done(self, undo: Callable[[], object]) -> None:
        """A step has been taken; `undo` takes it back. It must look handles up: they change when entries return."""
        self._undo.append(undo)

    def extend(self, other: Journal) -> None:
        """The steps of `other` follow those of this journal."""
        self._undo += other._undo

    def rollback(self) -> None:
        """Take every step back."""
        while self._undo:
            self._undo.pop()()
