"""dcb.p4: the interpreter and the generated C on random packets over random tables.

By default 20,000 packets; DCBLAB_FULL=1 makes it 100,000. DCBLAB_SEED repeats a run, and the seed of every pair is in
the message of a failure. The work is split over two processes, since the interpreter is slow.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from codegen_frames import dcb_frames
from codegen_fuzz import SANITIZE, fuzz

from switch.build import build_program

JSON_TEXT = (Path(__file__).resolve().parents[2] / "p4src" / "build" / "dcb.json").read_text()
ROUND = 2000
PROCESSES = 2


def packets() -> int:
    if SANITIZE:
        return 4000
    return 100_000 if os.environ.get("DCBLAB_FULL") == "1" else 20_000


def run(seed: int, rounds: int) -> int:
    return fuzz(JSON_TEXT, dcb_frames(), seed, rounds, ROUND)


def test_random_packets_over_random_tables() -> None:
    seed = int(os.environ.get("DCBLAB_SEED", "20261130"))
    rounds = packets() // ROUND // PROCESSES
    print(f"seed {seed}, {PROCESSES} processes with {rounds} rounds of {ROUND} packets")
    build_program(JSON_TEXT, sanitize=SANITIZE)  # once, before the processes ask for it
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        jobs = [pool.submit(run, seed + 1000 * number, rounds) for number in range(PROCESSES)]
        reached = sum(job.result() for job in jobs)
    assert reached > packets() // 10, "too few packets reach egress for the test to mean much"
