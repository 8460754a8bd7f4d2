"""What an STF file is played to: the switch core with generated C, or the interpreter. Every port exists.

Time stands still until `pass_us`; what takes a moment of its own (resubmitting, recirculating) is waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from switch.api import PipelineControl
from switch.core import MAX_PORTS, DigestData, SwitchCore
from switch.interp_switch import SimpleSwitch
from switch.interpreter import Interpreter
from switch.loader import load
from switch.model import Program

NAMES = ("native", "interpreter")
PS_PER_US = 10**6
CPU_PORTS = (510, 509, 508)
DROP_PORT = 511
MAX_ROUNDS = 100_000

Copies = Sequence[tuple[int, int]]
"""(port, egress_rid) of each copy."""


class EngineError(RuntimeError):
    """The engine does not come to rest."""


class Engine(Protocol):
    """One running switch; the generator of random numbers is seeded with 0."""

    @property
    def control(self) -> PipelineControl: ...
    @property
    def failed_asserts(self) -> int: ...
    def receive(self, port: int, frame: bytes) -> list[tuple[int, bytes]]: ...
    def take_digests(self) -> list[tuple[int, bytes]]: ...
    def set_multicast_group(self, group: int, copies: Copies) -> None: ...
    def set_clone_session(self, session: int, copies: Copies) -> None: ...
    def pass_us(self, microseconds: int) -> None: ...
    def close(self) -> None: ...


class NativeEngine:
    """Generated C in the switch core, behind the traffic manager; ports of no rate."""

    def __init__(self, json_text: str, ports: Collection[int], *, debug: bool = True) -> None:
        cpu_port = next(port for port in CPU_PORTS if port not in ports)
        self.core = SwitchCore(json_text, cpu_port=cpu_port, drop_port=DROP_PORT, seed=0, debug=debug)
        self.now_ps = 0
        for port in range(MAX_PORTS):
            if port not in (cpu_port, DROP_PORT):
                self.core.tm.add_port(port)

    @property
    def control(self) -> PipelineControl:
        return self.core.pipeline

    @property
    def failed_asserts(self) -> int:
        return self.core.pipeline.failed_asserts

    def receive(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        self.core.receive(port, frame, self.now_ps)
        for _ in range(MAX_ROUNDS):
            deadline = self.core.next_deadline()
            if deadline is None:
                return [(output.port, output.frame) for output in self.core.outputs()]
            self.now_ps = max(self.now_ps, deadline)
            self.core.advance(self.now_ps)
        raise EngineError("a packet goes round for ever")

    def take_digests(self) -> list[tuple[int, bytes]]:
        return [(event.list_id, event.data) for event in self.core.events() if isinstance(event, DigestData)]

    def set_multicast_group(self, group: int, copies: Copies) -> None:
        self.core.pre.set_multicast_group(group, list(copies))

    def set_clone_session(self, session: int, copies: Copies) -> None:
        self.core.pre.set_clone_session(session, list(copies))

    def pass_us(self, microseconds: int) -> None:
        self.now_ps += microseconds * PS_PER_US
        self.core.advance(self.now_ps)

    def close(self) -> None:
        self.core.close()


class InterpreterEngine:
    """The interpreter inside simple_switch's order of things."""

    def __init__(self, program: Program) -> None:
        self.control = Interpreter(program, seed=0, drop_port=DROP_PORT)
        self.switch = SimpleSwitch(self.control)

    @property
    def failed_asserts(self) -> int:
        return self.control.failed_asserts

    def receive(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        try:
            return [(output.port, output.frame) for output in self.switch.receive(port, frame)]
        except RuntimeError as error:  # resubmitted or recirculated too often
            raise EngineError(str(error)) from error

    def take_digests(self) -> list[tuple[int, bytes]]:
        taken = list(self.switch.digests)
        self.switch.digests.clear()
        return taken

    def set_multicast_group(self, group: int, copies: Copies) -> None:
        self.switch.set_multicast_group(group, copies)

    def set_clone_session(self, session: int, copies: Copies) -> None:
        self.switch.set_clone_session(session, copies)

    def pass_us(self, microseconds: int) -> None:
        self.control.now_ps += microseconds * PS_PER_US

    def close(self) -> None:
        pass


def open_engine(name: str, json_text: str, ports: Collection[int], *, debug: bool = True) -> Engine:
    """The engine of that name (`NAMES`); none of `ports` is its CPU port. `debug`: C that compiles sooner."""
    if name == "native":
        return NativeEngine(json_text, ports, debug=debug)
    if name == "interpreter":
        return InterpreterEngine(load(json_text))
    raise ValueError(f"engine {name!r} is not one of {', '.join(NAMES)}")
