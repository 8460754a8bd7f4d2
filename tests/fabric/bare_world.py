"""The smallest world for the control plane: cores driven in turn, wires between ports, taps at their ends.

Written in Python and for tests of the control plane alone; the fabric's engine is `fabric.engine`.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
from collections.abc import Callable

from fabric.control import VirtualSwitch
from switch.core import SwitchCore

End = tuple[str, int]
WIRE_PS = 5_000  # a metre


class BareWorld:
    """fabric.loop.World and fabric.control.CoreObserver."""

    def __init__(self) -> None:
        self._now_ps = 0
        self.cores: dict[str, SwitchCore] = {}
        self.peers: dict[End, End] = {}
        self.taps: dict[End, Callable[[bytes, int], None]] = {}  # (frame, when its last bit came)
        self.trace: list[tuple[int, str, int, bytes]] = []  # (last bit out, switch, port, frame)
        self._frames: list[tuple[int, int, End, bytes]] = []
        self._sequence = itertools.count()
        self._events: dict[str, int] = {}

    def wire(self, a: End, b: End) -> None:
        self.peers[a], self.peers[b] = b, a

    def inject(self, when_ps: int, to: End, frame: bytes) -> None:
        """A frame whose last bit comes in at `to` at `when_ps`."""
        heapq.heappush(self._frames, (when_ps, next(self._sequence), to, frame))

    # ---- World ------------------------------------------------------------------------------------------------------

    @property
    def now_ps(self) -> int:
        return self._now_ps

    def run(self, until_ps: int) -> str:
        while True:
            deadlines = [core.next_deadline() for core in self.cores.values()]
            times = [when for when in deadlines if when is not None]
            times += [self._frames[0][0]] if self._frames else []
            due_ps = min(times, default=until_ps + 1)
            if due_ps > until_ps:
                self._now_ps = until_ps
                return "time"
            self._now_ps = max(self._now_ps, due_ps)
            tapped = False
            while self._frames and self._frames[0][0] <= self._now_ps:
                _, _, (name, port), frame = heapq.heappop(self._frames)
                if (tap := self.taps.get((name, port))) is not None:
                    tap(frame, self._now_ps)
                    tapped = True
                elif name in self.cores:
                    self.cores[name].receive(port, frame, self._now_ps)
            for name, core in self.cores.items():
                core.advance(self._now_ps)
                self._take(name)
            if self._something_happened() or tapped:
                return "control"

    def _take(self, name: str) -> None:
        for output in self.cores[name].outputs():
            end = (name, output.port)
            self.trace.append((output.end_ps, name, output.port, output.frame))
            if (to := self.peers.get(end)) is not None:
                self.inject(output.end_ps + WIRE_PS, to, output.frame)

    def _something_happened(self) -> bool:
        before, self._events = self._events, {}
        for name, core in self.cores.items():
            lib, handle = core.native
            lib.sw_events_put.restype = ctypes.c_uint64
            lib.sw_events_put.argtypes = [ctypes.c_void_p]
            self._events[name] = lib.sw_events_put(handle)
        return any(count != before.get(name, 0) for name, count in self._events.items())

    # ---- CoreObserver -----------------------------------------------------------------------------------------------

    def on_core(self, switch: VirtualSwitch, core: SwitchCore | None) -> None:
        if core is None:
            self.cores.pop(switch.name, None)
        else:
            core.advance(self._now_ps)
            self.cores[switch.name] = core
        self._events.pop(switch.name, None)

    def settle(self, switch: VirtualSwitch) -> None:
        if switch.core is not None:
            switch.core.advance(self._now_ps)

    def touched(self, switch: VirtualSwitch) -> None:
        if switch.core is not None and switch.name in self.cores:
            switch.core.advance(self._now_ps)
            self._take(switch.name)
