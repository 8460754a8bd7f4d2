"""What a case of a small P4 program is made of, how it is run, and helpers to write it.

Each `Case` names a program (tests/programs/<program>.json, made by p4c from the .p4 beside it) and a list of steps.
Expectations are written from the P4_16 specification and from simple_switch's documented behaviour, never recorded from
an execution of ours. `run` drives a case through a `Target`; frames are compared port by port, in order on each port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from switch.api import (
    KeyMatch,
    MatchKind,
    PipelineControl,
    PipelineError,
)

DIRECTORY = Path(__file__).parent

Frames = tuple[tuple[int, bytes], ...]


# --- steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ref:
    """Stands for the handle that an earlier `Control(..., save=name)` returned."""

    name: str


@dataclass(frozen=True)
class Control:
    """Call a method of PipelineControl; `save` names its result."""

    method: str
    args: tuple[Any, ...]
    save: str = ""


@dataclass(frozen=True)
class Check:
    """Call a method of PipelineControl and compare its result."""

    method: str
    args: tuple[Any, ...]
    result: Any


@dataclass(frozen=True)
class Refused:
    """A call that must raise PipelineError."""

    method: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Multicast:
    group: int
    copies: tuple[tuple[int, int], ...]  # (port, egress_rid)


@dataclass(frozen=True)
class CloneTo:
    session: int
    copies: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class At:
    """Set the clock."""

    microseconds: int


@dataclass(frozen=True)
class Packet:
    """Send a frame; what must come out, and the digests (learn list id, bytes)."""

    port: int
    frame: bytes
    out: Frames
    digests: tuple[tuple[int, bytes], ...] = ()


Step = Control | Check | Refused | Multicast | CloneTo | At | Packet


@dataclass(frozen=True)
class Case:
    name: str
    program: str
    steps: tuple[Step, ...]

    @property
    def json(self) -> Path:
        return DIRECTORY / f"{self.program}.json"


class Target(Protocol):
    """What runs a case; the generator of random numbers is seeded with 0."""

    @property
    def control(self) -> PipelineControl: ...
    def receive(self, port: int, frame: bytes) -> Sequence[tuple[int, bytes]]: ...
    def take_digests(self) -> Sequence[tuple[int, bytes]]: ...
    def set_multicast_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None: ...
    def set_clone_session(self, session: int, copies: Sequence[tuple[int, int]]) -> None: ...
    def set_time_us(self, microseconds: int) -> None: ...


def by_port(frames: Sequence[tuple[int, bytes]]) -> dict[int, list[str]]:
    """Frames in hexadecimal by port, in order."""
    ports: dict[int, list[str]] = {}
    for port, frame in frames:
        ports.setdefault(port, []).append(frame.hex())
    return ports


def run(case: Case, target: Target) -> None:
    """Run all steps of a case, asserting every expectation."""
    saved: dict[str, Any] = {}

    def call(method: str, args: tuple[Any, ...]) -> Any:
        return getattr(target.control, method)(*(saved[arg.name] if isinstance(arg, Ref) else arg for arg in args))

    for number, step in enumerate(case.steps):
        where = f"{case.name} step {number}: {step}"
        match step:
            case Control(method, args, save):
                saved[save] = call(method, args)
            case Check(method, args, result):
                assert call(method, args) == result, where
            case Refused(method, args):
                try:
                    call(method, args)
                except PipelineError:
                    continue
                raise AssertionError(f"{where}: was not refused")
            case Multicast(group, copies):
                target.set_multicast_group(group, copies)
            case CloneTo(session, copies):
                target.set_clone_session(session, copies)
            case At(microseconds):
                target.set_time_us(microseconds)
            case Packet(port, frame, out, digests):
                assert by_port(target.receive(port, frame)) == by_port(out), where
                assert tuple(target.take_digests()) == digests, where


# --- helpers -------------------------------------------------------------------------------------------------------


def bits(*fields: tuple[int, int]) -> bytes:
    """(value, width) fields laid end to end; negative values in two's complement."""
    value = width = 0
    for field_value, field_width in fields:
        value = (value << field_width) | (field_value % (1 << field_width))
        width += field_width
    assert width % 8 == 0
    return value.to_bytes(width // 8, "big")


def h(text: str) -> bytes:
    return bytes.fromhex(text)


def exact(value: int) -> KeyMatch:
    return KeyMatch(MatchKind.EXACT, value)


def lpm(value: int, length: int) -> KeyMatch:
    return KeyMatch(MatchKind.LPM, value, prefix_len=length)


def ternary(value: int, mask: int) -> KeyMatch:
    return KeyMatch(MatchKind.TERNARY, value, mask)


def optional(value: int, mask: int) -> KeyMatch:
    return KeyMatch(MatchKind.OPTIONAL, value, mask)


def span(low: int, high: int) -> KeyMatch:
    return KeyMatch(MatchKind.RANGE, low, high=high)


def crc(data: bytes, width: int, polynomial: int, initial: int) -> int:
    """Bit by bit, reflected in and out, no final exclusive or."""
    remainder = initial
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (polynomial if remainder & 1 else 0)
    return remainder & ((1 << width) - 1)


def crc16(data: bytes) -> int:
    return crc(data, 16, 0xA001, 0)


def crc32(data: bytes) -> int:
    return crc(data, 32, 0xEDB88320, 0xFFFFFFFF) ^ 0xFFFFFFFF


def internet_checksum(data: bytes) -> int:
    total = sum(byte << (8 if at % 2 == 0 else 0) for at, byte in enumerate(data))
    return 0xFFFF - (total % 0xFFFF or (0xFFFF if total else 0))
