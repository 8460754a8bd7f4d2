"""Two-rate three-colour meters in integers, specified to the bit so that generated C colours alike.

A meter cell is either not configured (every packet green, nothing counted) or holds two token buckets, committed
(cir, cburst) and peak (pir, pburst), colour-blind as in RFC 2698 section 3. Tokens are bytes (or packets) scaled by
10^12, so that a rate in units a second times a time in picoseconds is a number of tokens with no division:

    configure:   committed = cburst * 10^12; peak = pburst * 10^12; last_ps = now_ps       (buckets start full)
    refill:      dt = now_ps - last_ps, 0 where time went backwards (last_ps is kept then); last_ps = now_ps
                 committed = min(committed + cir * dt, cburst * 10^12)
                 peak      = min(peak      + pir * dt, pburst * 10^12)
    need = size * 10^12           (size: bytes of the packet as it arrived at the parser of this pass, or 1 packet)
    peak < need:       RED    (2), nothing is taken
    committed < need:  YELLOW (1), need is taken from peak
    otherwise:         GREEN  (0), need is taken from both

Products fit 128 bits (unsigned __int128): cir < 2^63, dt < 2^63, burst < 2^63. Both buckets are refilled by every
packet that executes the meter. simple_switch differs in taking committed tokens before it looks at the peak bucket and
in microsecond time; the colours agree unless the peak bucket is empty while the committed one is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from switch.api import MeterConfig

GREEN, YELLOW, RED = 0, 1, 2
SCALE = 10**12


@dataclass(slots=True)
class MeterCell:
    """One cell of a meter array, or the meter of one table entry."""

    config: MeterConfig | None = None
    committed: int = 0
    peak: int = 0
    last_ps: int = 0

    def configure(self, config: MeterConfig | None, now_ps: int) -> None:
        """Set rates and bursts and fill both buckets; None removes the configuration (all packets green)."""
        self.config = config
        if config is not None:
            self.committed = config.cburst * SCALE
            self.peak = config.pburst * SCALE
            self.last_ps = now_ps

    def execute(self, size: int, now_ps: int) -> int:
        """Colour of a packet of `size` bytes (1 for a packet meter) at `now_ps`: 0 green, 1 yellow, 2 red."""
        config = self.config
        if config is None:
            return GREEN
        elapsed = max(0, now_ps - self.last_ps)
        self.last_ps += elapsed
        self.committed = min(self.committed + config.cir * elapsed, config.cburst * SCALE)
        self.peak = min(self.peak + config.pir * elapsed, config.pburst * SCALE)
        need = size * SCALE
        if self.peak < need:
            return RED
        self.peak -= need
        if self.committed < need:
            return YELLOW
        self.committed -= need
        return GREEN
