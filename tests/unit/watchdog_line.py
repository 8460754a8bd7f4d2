"""A port with one priority, for tests of the PFC watchdog: traffic, a peer that storms, and the time, all exact.

Packets come for the priority at a fixed spacing and leave at once while it is not paused. The peer sends XOFF at a
fixed interval from the start of a storm to its end, when it sends XON. `Poller` looks as the controller's service does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dcb.watchdog import MS, Action, Change, Machine, Sample, Settings

XOFF, XON = "xoff", "xon"


class Line:
    """`storms`: (start, end) in ns. `spacing_ns`: of packets to send; 0: none."""

    def __init__(
        self,
        storms: Iterable[tuple[int, int]] = (),
        *,
        spacing_ns: int = MS,
        refresh_ns: int = 10 * MS,
        pause_ns: int | None = None,
        extra: Iterable[tuple[int, str]] = (),
    ) -> None:
        """pause_ns: how long one XOFF pauses (None: until XON). extra: single frames beside the storms."""
        self.now_ns = 0
        self.depth = self.dequeued = self.xoff_rx = self.paused_ns = self.pauses = self.drop_tx = self.tx = 0
        self.paused = False
        self.mitigation: Action | None = None
        self._spacing_ns, self._pause_ns = spacing_ns, pause_ns
        self._until_ns: int | None = None
        frames = [(at, XOFF) for start, end in storms for at in range(start, end, refresh_ns)]
        frames += [(end, XON) for _, end in storms] if pause_ns is None else []
        self._frames: Iterator[tuple[int, str]] = iter(sorted([*frames, *extra]))
        self._next = next(self._frames, None)

    def advance(self, to_ns: int) -> None:
        while self._next is not None and self._next[0] <= to_ns:
            at, kind = self._next
            self._pass(at)
            self._next = next(self._frames, None)
            self._hear(kind, at)
        self._pass(to_ns)

    def _hear(self, kind: str, at_ns: int) -> None:
        if kind == XOFF:
            self.xoff_rx += 1
        if self.mitigation in (Action.DROP, Action.FORWARD):
            return
        if kind == XON:
            self._resume()
            return
        if not self.paused:
            self.paused = True
            self.pauses += 1
        self._until_ns = None if self._pause_ns is None else at_ns + self._pause_ns

    def _resume(self) -> None:
        self.paused, self._until_ns = False, None
        self.dequeued += self.depth
        self.tx += self.depth
        self.depth = 0

    def _pass(self, to_ns: int) -> None:
        if self.paused and self._until_ns is not None and self._until_ns <= to_ns:
            end_ns = self._until_ns
            self._run(end_ns)
            self._resume()
        self._run(to_ns)

    def _run(self, to_ns: int) -> None:
        packets = to_ns // self._spacing_ns - self.now_ns // self._spacing_ns if self._spacing_ns else 0
        if self.mitigation is Action.DROP:
            self.drop_tx += packets
        elif self.paused:
            self.depth += packets
            self.paused_ns += to_ns - self.now_ns
        else:
            self.dequeued += packets
            self.tx += packets
        self.now_ns = to_ns

    def mitigate(self, action: Action | None) -> None:
        if action in (Action.DROP, Action.FORWARD) and self.mitigation is None:
            if action is Action.DROP:
                self.drop_tx += self.depth
                self.depth = 0
            self._resume()
        self.mitigation = action

    def sample(self) -> Sample:
        return Sample(
            self.now_ns,
            depth_bytes=self.depth * 1000,
            dequeued=self.dequeued,
            xoff_rx=self.xoff_rx,
            paused=self.paused,
            paused_ns=self.paused_ns,
            pauses=self.pauses,
            tx=self.tx,
            drop_tx=self.drop_tx,
        )


class Poller:
    """Polls a line at multiples of `poll_ns`, and when the machine says that it is due."""

    def __init__(self, line: Line, settings: Settings, poll_ns: int, *, early: bool = True) -> None:
        self.line, self.machine, self.poll_ns, self._early = line, Machine(settings), poll_ns, early
        self.changes: list[tuple[int, Change]] = []
        self._look()

    def _look(self) -> None:
        change = self.machine.sample(self.line.sample())
        if change is not None:
            self.changes.append((self.line.now_ns, change))
        self.apply()

    def apply(self) -> None:
        action = self.machine.settings.action
        self.line.mitigate(action if self.machine.stormed and action is not Action.ALERT else None)

    def run(self, until_ns: int) -> list[tuple[int, Change]]:
        while True:
            now_ns = self.line.now_ns
            at_ns = (now_ns // self.poll_ns + 1) * self.poll_ns
            due_ns = self.machine.due_ns()
            if self._early and due_ns is not None:
                at_ns = min(at_ns, max(due_ns, now_ns + MS))
            if at_ns > until_ns:
                self.line.advance(until_ns)
                return self.changes
            self.line.advance(at_ns)
            self._look()
