"""Where two engines differ on a case, found in a process of its own: one that crashes is a difference too."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection

from switch.loader import load
from switch.model import Program
from tests.stf.engines import EngineError, InterpreterEngine, NativeEngine
from tests.stf.grammar import Statement, parse
from tests.stf.runner import Difference, Runner

TIMEOUT_S = 120
CELLS = 64
"""Cells of an array that are compared at the end."""


class _Pair:
    """The interpreter and the switch core in step, at the same time of day."""

    def __init__(self, program: Program, json_text: str) -> None:
        self.program = program
        self.endless = False
        self.reference = InterpreterEngine(program)
        self.native = NativeEngine(json_text, ())
        self.runners = Runner(program, self.reference), Runner(program, self.native)

    def step(self, statement: Statement) -> str | None:
        """What differs after one statement."""
        self.reference.control.now_ps = self.native.now_ps
        seen = []
        for runner in self.runners:
            runner.sent.clear()
            runner.digests.clear()
            ended = ""
            try:
                runner.step(statement)
            except Difference:
                ended = "refused"
            except EngineError:
                ended = "endless"
            by_port: dict[int, list[str]] = {}
            for _, port, frame in runner.sent:
                if frame:  # a frame of no bytes cannot leave the core
                    by_port.setdefault(port, []).append(frame.hex())
            seen.append((ended, dict(sorted(by_port.items())), runner.digests))
        if seen[0][0] == "endless":
            # What was sent on the way depends on when each gave up; copies that go round and multiply end in C, where
            # memory does.
            self.endless = True
            return None
        return None if seen[0] == seen[1] else f"line {statement.line}: interpreter {seen[0]}, C {seen[1]}"

    def state(self) -> str | None:
        """What differs in counters and registers."""
        one, two = self.reference.control, self.native.control
        for name, counter in self.program.counters.items():
            for index in range(min(counter.size, CELLS) if counter.direct_table is None else 0):
                if (a := one.counter_read(name, index)) != (b := two.counter_read(name, index)):
                    return f"counter {name}({index}): interpreter {a}, C {b}"
        for name, register in self.program.registers.items():
            for index in range(min(register.size, CELLS)):
                if (c := one.register_read(name, index)) != (d := two.register_read(name, index)):
                    return f"register {name}[{index}]: interpreter {c:#x}, C {d:#x}"
        if self.reference.failed_asserts != self.native.failed_asserts:
            return f"failed asserts: interpreter {self.reference.failed_asserts}, C {self.native.failed_asserts}"
        return None


def difference_here(json_text: str, lines: Sequence[str]) -> str | None:
    """The first difference, in this process."""
    pair = _Pair(load(json_text), json_text)
    for statement in parse("\n".join(lines)):
        if found := pair.step(statement):
            return found
        if pair.endless:
            return None
    return pair.state()


def _child(json_text: str, lines: Sequence[str], back: Connection) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)  # log_msg and asserts of the program
    try:
        back.send(difference_here(json_text, lines))
    except Exception as error:
        back.send(f"{type(error).__name__}: {error}")


def difference(json_text: str, lines: Sequence[str]) -> str | None:
    """The first difference, or how the process ended that looked for it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(json_text, lines, theirs))
    process.start()
    theirs.close()
    found: str | None = f"does not end within {TIMEOUT_S} s"
    if ours.poll(TIMEOUT_S):
        found = "the process ended without an answer"
        with contextlib.suppress(EOFError):
            found = ours.recv()
    else:
        process.kill()
    process.join()
    code = process.exitcode or 0
    return f"the process was ended by signal {-code}" if code < 0 else found
