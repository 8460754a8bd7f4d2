"""Links of a fabric under Python: `Link`, its two `Direction`s, and what they count.

Views on the engine's wires: they own nothing but names. Rates in bit/s, times in picoseconds, lengths in metres.
"""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fabric.library import PRIORITIES, Source, Stats, address

if TYPE_CHECKING:
    from fabric.engine import Fabric

PS_PER_METRE: Final = 5_000  # 5 ns/m: light in fibre and in copper, n = 1.5
MAX_RATE_BPS: Final = 800_000_000_000
Probability = int | float | Fraction
_ONE: Final = 1 << 64
_DIR_KINDS: Final = ("bytes", "frames", "in_flight", "paused", "paused_ps", "pfc_frames", "wire_bits")


class FabricError(ValueError):
    """A value that does not fit; names the field, the value and the rule."""


def probability(field: str, value: Probability) -> int:
    """A probability 0..1 as a threshold of 64 bits; exact, so that each machine draws alike."""
    try:
        exact = Fraction(value)
    except (ValueError, OverflowError) as error:
        raise FabricError(f"{field} {value}: must be 0..1") from error
    if not 0 <= exact <= 1:
        raise FabricError(f"{field} {value}: must be 0..1")
    return min(_ONE - 1, int(exact * _ONE))


@dataclass(frozen=True, slots=True)
class LinkStats:
    """What one direction of a link carried. Bytes are of frames without FCS. `lost_error`: bit errors and `loss`;
    `lost_pfc`: MAC control frames lost by `pfc_loss`; `lost_down`: sent into, or in flight on, a link that was down.
    Per priority, of PFC frames sent: `xoff`, `xon`; by those delivered: `pauses` begun and time paused `paused_ps`
    (of the receiver's transmission, by the times in the frames)."""

    sent_frames: int
    sent_bytes: int
    delivered_frames: int
    delivered_bytes: int
    lost_error: int
    lost_pfc: int
    lost_down: int
    lost_unknown: int
    in_flight: int
    late_frames: int
    wire_bits: int
    pfc_frames: int
    xoff: tuple[int, ...]
    xon: tuple[int, ...]
    pauses: tuple[int, ...]
    paused_ps: tuple[int, ...]

    @property
    def lost(self) -> int:
        """Frames lost for whatever reason."""
        return self.lost_error + self.lost_pfc + self.lost_down + self.lost_unknown


@dataclass(slots=True)
class _Wire:
    """Settings of one direction as last written."""

    rate_bps: int
    delay_ps: int
    jitter_ps: int
    response_ps: int


class Direction:
    """One direction of a link: the wire from `source` to `target`, each (node, port)."""

    def __init__(
        self, fabric: Fabric, number: int, source: tuple[str, int], target: tuple[str, int], wire: _Wire
    ) -> None:
        self._fabric = fabric
        self._wire = wire
        self.number = number
        self.source = source
        self.target = target
        self._write()

    def __repr__(self) -> str:
        return f"<Direction {self.name}>"

    @property
    def name(self) -> str:
        """As `h1-0_leaf1-3`: node and port of the sender, then of the receiver."""
        return f"{self.source[0]}-{self.source[1]}_{self.target[0]}-{self.target[1]}"

    def stats(self) -> LinkStats:
        """What it carried so far."""
        out = Stats()
        self._fabric._lib.fab_read_stats(self._fabric._engine, self.number, ctypes.byref(out))
        values: dict[str, Any] = {}
        for name, *_ in Stats._fields_:
            value = getattr(out, name)
            values[name] = value if isinstance(value, int) else tuple(value)
        return LinkStats(**values)

    def set_errors(self, *, loss: Probability = 0, pfc_loss: Probability = 0, bit_error_rate: Probability = 0) -> None:
        """From now on: `loss` of every frame, `pfc_loss` of MAC control frames beyond that, and `bit_error_rate` of
        each bit from the frame's first to its FCS's last. Probabilities 0..1."""
        good = (1 - Fraction(bit_error_rate)) ** 8 if probability("bit_error_rate", bit_error_rate) else Fraction(1)
        survival = 0 if good == 1 else max(1, min(_ONE - 1, int(good * _ONE)))
        self._fabric._lib.fab_set_errors(
            self._fabric._engine, self.number, probability("loss", loss), probability("pfc_loss", pfc_loss), survival
        )

    def set_delay(self, *, delay_ps: int | None = None, jitter_ps: int | None = None) -> None:
        """From the next frame on: propagation, and an extra delay drawn evenly from 0..jitter_ps for each frame.
        Frames stay in order and never overlap."""
        for field, value in (("delay_ps", delay_ps), ("jitter_ps", jitter_ps)):
            if value is not None:
                _check_time(field, value)
                setattr(self._wire, field, value)
        self._write()

    def set_pfc_response(self, response_ps: int) -> None:
        """From the next frame on: how long after its arrival a MAC control frame acts at the receiver."""
        _check_time("pfc_response_ps", response_ps)
        self._wire.response_ps = response_ps
        self._write()

    @property
    def delay_ps(self) -> int:
        """Propagation delay."""
        return self._wire.delay_ps

    @property
    def rate_bps(self) -> int:
        return self._wire.rate_bps

    def capture(self, path: Path | None) -> None:
        """Write every frame that is sent (those that get lost too) to a pcap with nanoseconds, stamped with the time at
        which its first bit leaves, rounded down. None ends the capture and closes the file."""
        name = None if path is None else os.fsencode(path)
        if self._fabric._lib.fab_capture(self._fabric._engine, self.number, name) < 0:
            code = ctypes.get_errno()
            raise OSError(code or errno.EIO, os.strerror(code or errno.EIO), str(path))

    def source_of(self, kind: str, priority: int = 0) -> Source:
        """A series of this direction for `Fabric.sample`: bytes, frames, in_flight, paused (0 or 1), paused_ps,
        pfc_frames, wire_bits."""
        if kind not in _DIR_KINDS:
            raise FabricError(f"kind {kind!r}: a direction has {', '.join(_DIR_KINDS)}")
        if not 0 <= priority < PRIORITIES:
            raise FabricError(f"priority {priority}: must be 0..7")
        lib = self._fabric._lib
        wire = lib.fab_get_dir(self._fabric._engine, self.number)
        return Source(address(lib, "fab_dir_read"), wire, _DIR_KINDS.index(kind), priority)

    def _write(self) -> None:
        w = self._wire
        self._fabric._lib.fab_set_wire(
            self._fabric._engine, self.number, w.rate_bps, w.delay_ps, w.jitter_ps, w.response_ps
        )


def _check_time(field: str, value: int) -> None:
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise FabricError(f"{field} {value}: must be a whole number of picoseconds, 0 or more")


class Link:
    """A full-duplex link. `there` leads from its first end to the second, `back` the other way."""

    def __init__(self, fabric: Fabric, number: int, there: Direction, back: Direction) -> None:
        self._fabric = fabric
        self.number = number
        self.there = there
        self.back = back
        self.is_up = True

    def __repr__(self) -> str:
        return f"<Link {self.there.name} {'up' if self.is_up else 'down'}>"

    @property
    def directions(self) -> tuple[Direction, Direction]:
        return self.there, self.back

    def from_(self, node: str) -> Direction:
        """The direction that leaves a node."""
        for direction in self.directions:
            if direction.source[0] == node:
                return direction
        raise FabricError(f"node {node!r}: the link {self.there.name} does not end there")

    def down(self) -> None:
        """Take the link down now: what is on it is lost and counted, switches lose the port with what it held."""
        self._set(False)

    def up(self) -> None:
        """Bring the link up again; switches get the port back."""
        self._set(True)

    def set_errors(self, *, loss: Probability = 0, pfc_loss: Probability = 0, bit_error_rate: Probability = 0) -> None:
        """Both directions; see `Direction.set_errors`."""
        for direction in self.directions:
            direction.set_errors(loss=loss, pfc_loss=pfc_loss, bit_error_rate=bit_error_rate)

    def capture(self, directory: Path | None) -> None:
        """Both directions, to `<direction name>.pcap` in a directory; None ends it. See `Direction.capture`."""
        for direction in self.directions:
            direction.capture(None if directory is None else directory / f"{direction.name}.pcap")

    def _set(self, up: bool) -> None:
        if up == self.is_up:
            return
        self.is_up = up
        self._fabric._lib.fab_set_up(self._fabric._engine, self.number, up)
        for node, port in (self.there.source, self.there.target):
            self._fabric._port_changed(node, port, up)
