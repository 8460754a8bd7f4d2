"""The pipeline's random generator, specified to the bit so that generated C draws the same numbers.

State: one 64-bit word. All arithmetic is modulo 2^64, shifts are logical.

    splitmix64(x):  z = x + 0x9E3779B97F4A7C15
                    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
                    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
                    return z ^ (z >> 31)
    seeding:        state = splitmix64(seed); if state == 0: state = 0x9E3779B97F4A7C15
    next (xorshift64*):
                    s ^= s >> 12;  s ^= s << 25;  s ^= s >> 27;  state = s
                    return s * 0x2545F4914F6CDD1D
    uniform(lo, hi) with lo <= hi, both 64-bit:
                    span = hi - lo + 1 (modulo 2^64; 0 stands for 2^64)
                    return lo + next() if span == 0 else lo + next() % span

`random(result, lo, hi)` of v1model draws exactly one number, also when lo == hi; with lo > hi it draws nothing and
leaves its result alone (as simple_switch does). lo and hi are taken modulo 2^64. One generator per pipeline instance
serves parser, ingress and egress in the order in which primitives run.

Sources: splitmix64 and xorshift64* as published by Vigna, "An experimental exploration of Marsaglia's xorshift
generators, scrambled" (2016), and Steele, Lea, Flood (2014). The slight bias of the modulo is accepted.
"""

from __future__ import annotations

MASK64 = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def splitmix64(x: int) -> int:
    """One step of splitmix64 from state `x` (any integer, taken modulo 2^64)."""
    z = (x + GOLDEN_GAMMA) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


class Generator:
    """xorshift64* seeded through splitmix64; see the module docstring."""

    def __init__(self, seed: int = 0) -> None:
        self.state = splitmix64(seed & MASK64) or GOLDEN_GAMMA

    def next(self) -> int:
        """The next 64-bit number."""
        s = self.state
        s ^= s >> 12
        s = (s ^ (s << 25)) & MASK64
        s ^= s >> 27
        self.state = s
        return (s * 0x2545F4914F6CDD1D) & MASK64

    def uniform(self, low: int, high: int) -> int:
        """A number in [low, high], both inclusive and below 2^64; low must not exceed high."""
        span = (high - low + 1) & MASK64
        drawn = self.next()
        return (low + (drawn % span if span else drawn)) & MASK64
