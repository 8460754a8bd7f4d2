"""`Tester`: a traffic generator and sink at one end of a link, for tests and benches.

Sends frames from templates at exact times, honours PFC, records what arrives. It knows no transport: hosts are
`hosts.nic`. One `tester_t` of the engine's library lies under it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fabric.library import NEVER_PS, P, Source, address, load
from fabric.links import FabricError

_COUNTS: Final = ("tx_frames", "tx_bytes", "rx_frames", "rx_bytes", "rx_control", "pauses", "waiting", "records_lost")
_HEAD: Final = struct.Struct("<QI")
_CHUNK_BYTES: Final = 1 << 20
UNPAUSED: Final = 8  # priority of frames that no pause holds


@dataclass(frozen=True, slots=True)
class Arrival:
    """A frame whose last bit came at `time_ps`."""

    time_ps: int
    frame: bytes


class Tester:
    """One port. `rate_bps` of its link; `pfc`: mask of the priorities whose pause it honours (0: it ignores PFC);
    `record_bytes`: memory for arrivals (0: they are only counted)."""

    __test__ = False  # not one of pytest's

    def __init__(self, rate_bps: int, *, port: int = 0, pfc: int = 0xFF, record_bytes: int = 64 << 20) -> None:
        if not 0 <= pfc <= 0xFF:
            raise FabricError(f"pfc {pfc}: must be 0..255")
        self._lib = load()
        self._tester: int | None = self._lib.tester_create(rate_bps, port, pfc)
        if not self._tester:
            raise FabricError(f"rate_bps {rate_bps}: must be more than 0")
        self.rate_bps = rate_bps
        self._lib.tester_set_record(self._tester, record_bytes)

    @property
    def native(self) -> tuple[ctypes.CDLL, int | None]:
        """The library and the `tester_t` in it (None once closed)."""
        return self._lib, self._tester

    def close(self) -> None:
        if getattr(self, "_tester", None):
            self._lib.tester_destroy(self._tester)
            self._tester = None

    def __del__(self) -> None:
        self.close()

    def send(
        self,
        frames: bytes | Sequence[bytes],
        *,
        count: int | None = 1,
        start_ps: int = 0,
        gap_ps: int = 0,
        priority: int = UNPAUSED,
        stamp_at: int = 0,
    ) -> int:
        """Send `frames` (no FCS) in turn, `count` in all (None: for ever), one each `gap_ps` from `start_ps` on.

        gap_ps 0: as fast as the wire takes them. `priority` 0..7: which pause holds them; what a pause held is sent
        after it. `stamp_at` > 0: the eight bytes there count the flow's frames, big-endian. Several flows take turns.
        `start_ps` must not be before the fabric's now. Returns the number of the flow.
        """
        templates = [frames] if isinstance(frames, bytes) else list(frames)
        n = len(templates)
        data = (ctypes.c_char_p * n)(*templates)
        lens = (ctypes.c_uint32 * n)(*map(len, templates))
        total = NEVER_PS if count is None else count
        flow = self._lib.tester_add_flow(self._tester, data, lens, n, priority, start_ps, gap_ps, total, stamp_at)
        if flow < 0:
            raise FabricError(
                f"frames of {[len(t) for t in templates[:8]]} bytes, priority {priority}, stamp_at {stamp_at}: "
                f"frames must have 1..16384 bytes and room for the stamp, priority must be 0..8"
            )
        return int(flow)

    def stop(self, flow: int) -> None:
        """Send no more of a flow."""
        if self._lib.tester_stop_flow(self._tester, flow) < 0:
            raise FabricError(f"flow {flow}: no such flow")

    def arrivals(self) -> list[Arrival]:
        """Frames that arrived since the last call, in order. MAC control frames are among them, at the time that they
        act."""
        buffer = ctypes.create_string_buffer(_CHUNK_BYTES)
        found = []
        while n := self._lib.tester_take(self._tester, buffer, _CHUNK_BYTES):
            data, at = buffer.raw[:n], 0
            while at < n:
                time_ps, length = _HEAD.unpack_from(data, at)
                found.append(Arrival(time_ps, data[at + _HEAD.size : at + _HEAD.size + length]))
                at += (_HEAD.size + length + 7) & ~7
        return found

    def count(self, kind: str) -> int:
        """tx_frames, tx_bytes, rx_frames, rx_bytes, rx_control, pauses, waiting (frames not sent yet), records_lost."""
        return int(self._lib.tester_read(self._tester, _COUNTS.index(kind), 0, 0))

    def source_of(self, kind: str) -> Source:
        """A series of one of the counts for `Fabric.sample`."""
        return Source(address(self._lib, "tester_read"), P(self._tester), _COUNTS.index(kind), 0)
