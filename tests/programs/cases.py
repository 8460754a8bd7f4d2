"""All cases of small P4 programs (tests/programs/*.p4); what a case is stands in `programs.steps`."""

from __future__ import annotations

from programs.externs import ADDED, CHECKSUMS, COUNTERS, HASHES, METERS, RANDOM, REDIRECT, REGISTERS
from programs.language import EXPRESSIONS, PARSING, STACKS, UNIONS
from programs.lookups import CONST, EXACT, LPM, RANGE, SELECTOR, TERNARY, VALID
from programs.steps import Case

CASES: tuple[Case, ...] = (
    EXPRESSIONS, STACKS, UNIONS, PARSING, EXACT, LPM, TERNARY, RANGE, CONST, VALID, SELECTOR, REGISTERS, COUNTERS,
    METERS, RANDOM, HASHES, REDIRECT, ADDED, CHECKSUMS,
)  # fmt: skip
