"""Idle time-outs of table entries, sans-IO. Time is passed in, in nanoseconds.

The pipeline knows when an entry was hit last; this remembers when its idleness was reported last. A report restarts the
wait.
"""

from __future__ import annotations

from collections.abc import Callable

from switch.p4rt.store import Entry, Key, Store

MIN_SCAN_NS = 10_000_000  # the shortest time between two looks at an entry


class IdleTimeouts:
    """Finds idle entries. `age_ns(table id, entry)` is the time since the entry was inserted or last hit."""

    def __init__(self, store: Store, age_ns: Callable[[int, Entry], int]) -> None:
        self._store = store
        self._age_ns = age_ns
        self._reported: dict[tuple[int, Key], int] = {}
        self._next_scan_ns: int | None = None

    def advance(self, now_ns: int) -> list[tuple[int, Entry]]:
        """Entries (with their table's id) that have been idle for their time-out, each once until that passes again."""
        if not self._store.idle_entries:
            self._reported.clear()
            return []
        idle = []
        next_scan = None
        for gone in self._reported.keys() - self._store.idle_entries.keys():
            del self._reported[gone]
        for where in self._store.idle_entries:
            table_id, key = where
            entry = self._store.entries[table_id][key]
            since = max(now_ns - self._age_ns(table_id, entry), self._reported.get(where, now_ns - (1 << 62)))
            if now_ns - since >= entry.idle_timeout_ns:
                idle.append((table_id, entry))
                self._reported[where] = since = now_ns
            due = since + max(entry.idle_timeout_ns, MIN_SCAN_NS)
            next_scan = due if next_scan is None else min(next_scan, due)
        self._next_scan_ns = None if next_scan is None else max(next_scan, now_ns + MIN_SCAN_NS)
        return idle

    def next_deadline(self, now_ns: int) -> int | None:
        """When `advance` has to be called next. An entry written since may be due earlier: ask after every write."""
        if not self._store.idle_entries:
            return None
        soonest = min(self._store.entries[table][key].idle_timeout_ns for table, key in self._store.idle_entries)
        limit = now_ns + max(soonest, MIN_SCAN_NS)
        return limit if self._next_scan_ns is None else min(limit, self._next_scan_ns)
