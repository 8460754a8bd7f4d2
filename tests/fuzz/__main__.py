"""`python -m tests.fuzz`: random tables and packets through interpreter and generated C, for a bounded time.

0: no difference; 1: one was found, and is printed as an STF file; 2: wrong use. The same seed makes the same cases.
With --bmv2 through generated C and BMv2's simple_switch (root): see tests/fuzz/bmv2.py.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time

from tests.fuzz.programs import Subject, subjects  # isort: skip  (makes the next ones importable)

from codegen_fuzz import fuzz

from switch.loader import load

from . import bmv2, compare, generate, shrink

PACKETS = 150


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="where the cases start (default: 0)")
    parser.add_argument("--program", action="append", metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--bmv2", action="store_true", help="compare with simple_switch from the PATH, on veth (root)")
    return parser.parse_args()


def _one(subject: Subject, seed: int) -> str | None:
    """A case; the report of a difference."""
    text = subject.json.read_text()
    if not subject.whole:
        try:
            fuzz(text, subject.frames, seed, 1, PACKETS * 4)
        except AssertionError as error:
            return f"# {subject.name}, pipelines alone, seed {seed}: {error}"
        return None
    lines = generate.Generator(load(text), subject.frames, random.Random(seed)).case(PACKETS)
    found = compare.difference(text, lines)
    if found is None:
        return None
    # fewer lines may make no sense (a node of a group that is gone): that is an error of the case, not a difference
    kind = found.split()[0]
    small = shrink.shrink(lines, lambda candidate: (compare.difference(text, candidate) or "").startswith(kind))
    return "\n".join([f"# {subject.json}, seed {seed}", f"# {compare.difference(text, small)}", *small])


def main() -> int:
    arguments = _arguments()
    known = subjects()
    names: list[str] = arguments.program or sorted(known)
    if unknown := [name for name in names if name not in known]:
        print(f"tests.fuzz: no program {', '.join(unknown)}; known: {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    if arguments.seconds < 1:
        print(f"tests.fuzz: --seconds {arguments.seconds}: must be at least 1", file=sys.stderr)
        return 2
    logging.disable()  # log_msg and asserts of the programs
    one = _one
    if arguments.bmv2:
        if reason := bmv2.missing():
            print(f"tests.fuzz: --bmv2: {reason}", file=sys.stderr)
            return 2
        bmv2.enter_namespace(["-m", "tests.fuzz", *sys.argv[1:]])
        if not arguments.program:
            names = [name for name in names if name not in bmv2.EXCLUDED]
        one = bmv2.one
    end, number = time.monotonic() + arguments.seconds, 0
    while time.monotonic() < end:
        subject = known[names[number % len(names)]]
        seed = arguments.seed + number
        number += 1
        if report := one(subject, seed):
            print(report)
            return 1
    print(f"{number} cases of {len(names)} programs from seed {arguments.seed}: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
