"""Two NICs joined back to back by a loop that knows only times: for the tests of `hosts.nic`."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hosts.nic import Nic
from hosts.nic_config import NicConfig

MAC = ("02:00:00:00:01:01", "02:00:00:00:02:01")
IP = ("10.1.0.1", "10.2.0.1")
GBPS = 10**9
US = 10**6
DELAY_PS = 500_000  # 100 m


def config(end: int, rate_bps: int = 100 * GBPS, **more: Any) -> NicConfig:
    return NicConfig(MAC[end], IP[end], rate_bps, **more)


def wire_ps(frame_bytes: int, rate_bps: int = 100 * GBPS) -> int:
    """Wire time of a frame of so many bytes without FCS, gap included; the rates of the tests divide it."""
    bits = (max(frame_bytes, 60) + 24) * 8
    assert bits * 10**12 % rate_bps == 0
    return bits * 10**12 // rate_bps


@dataclass(frozen=True, slots=True)
class Sent:
    frame: bytes
    start_ps: int
    end_ps: int


class Pair:
    """NICs 0 and 1. `change(end, number, frame)`: what becomes of the number-th frame that `end` sends; None: lost."""

    def __init__(
        self,
        a: NicConfig | None = None,
        b: NicConfig | None = None,
        *,
        change: Callable[[int, int, bytes], bytes | None] | None = None,
        delay_ps: int = DELAY_PS,
    ) -> None:
        self.nics = (Nic(a or config(0)), Nic(b or config(1)))
        self.sent: tuple[list[Sent], list[Sent]] = ([], [])
        self.now_ps = 0
        self._flying: list[tuple[int, int, int, bytes]] = []
        self._change = change
        self._delay_ps = delay_ps
        for end, nic in enumerate(self.nics):
            nic.set_output(self._output(end))

    def _output(self, end: int) -> Callable[[bytes, int, int], None]:
        def output(frame: bytes, start_ps: int, end_ps: int) -> None:
            number = len(self.sent[end])
            self.sent[end].append(Sent(frame, start_ps, end_ps))
            arrives = frame if self._change is None else self._change(end, number, frame)
            if arrives is not None:
                self.put(1 - end, arrives, end_ps - self.gap_ps(end) + self._delay_ps)

        return output

    def gap_ps(self, end: int) -> int:
        """Wire time of the inter-frame gap: a frame is there before the wire is free again."""
        return 96 * 10**12 // self.nics[end].config.rate_bps

    def put(self, end: int, frame: bytes, at_ps: int) -> None:
        """`frame` will arrive at NIC `end`."""
        heapq.heappush(self._flying, (at_ps, len(self.sent[0]) + len(self.sent[1]), end, frame))

    def run(self, until_ps: int = 10**15) -> Pair:
        """Until nothing is to happen, or nothing any more before `until_ps`, and that time itself."""
        while True:
            times = [t for nic in self.nics if (t := nic.next_deadline()) is not None]
            times += [self._flying[0][0]] if self._flying else []
            now = min(times, default=until_ps + 1)
            if now > until_ps:
                break
            assert now >= self.now_ps
            self.now_ps = now
            while self._flying and self._flying[0][0] == now:
                _, _, end, frame = heapq.heappop(self._flying)
                self.nics[end].receive(frame, now)
            for nic in self.nics:
                nic.advance(now)
        if until_ps < 10**15:
            self.now_ps = until_ps
            for nic in self.nics:
                nic.advance(until_ps)
        return self
