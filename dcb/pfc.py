"""PFC (IEEE 802.1Qbb; frame in 802.3 Annex 31D) and PAUSE (802.3 Annex 31B): frames to bytes and back, quanta to time.

Sans-IO: bytes in, records out; no socket, no clock. Frames are as captured, without the FCS: 60 bytes, 64 on the wire.
`parse_pfc` and `parse_pause` refuse with a `PfcError` whose `reason` is one of `Reason`; the rules are those of the
data plane (docs/contract.md, 2). `dcb.pfc_explain` tells every fault, and what a frame means, priority by priority.

    destination 01-80-C2-00-00-01 | source | 0x8808 | opcode 0x0101 | 0 | vector | time[0] .. time[7] | 26 bytes of 0
    destination 01-80-C2-00-00-01 | source | 0x8808 | opcode 0x0001 | time       | 42 bytes of 0
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag

from dcb.units import PS_PER_S, format_time_ps

DESTINATION = bytes.fromhex("0180c2000001")
ETHER_TYPE = 0x8808
OPCODE_PFC = 0x0101
OPCODE_PAUSE = 0x0001
FRAME_BYTES = 60
QUANTUM_BITS = 512
MAX_QUANTA = 0xFFFF
PRIORITIES = 8

TOP_BIT = 0x8000  # of a time: "until resumed" in dialect D1

_PFC_USED_BYTES = 34
_PAUSE_USED_BYTES = 18


class Dialect(IntFlag):
    """How a peer departs from 802.1Qbb; values as the data plane's tables take them (docs/contract.md, 2).

    CLEAR_BIT (D2): a cleared enable bit resumes its priority, so a frame of an empty vector resumes all.
    UNTIL_RESUMED (D1): the top bit of a time pauses until a resume; the other 15 bits count.
    """

    STANDARD = 0
    CLEAR_BIT = 1
    UNTIL_RESUMED = 2


DIALECTS = {
    "standard": Dialect.STANDARD,
    "clear-bit": Dialect.CLEAR_BIT,
    "until-resumed": Dialect.UNTIL_RESUMED,
    "both": Dialect.CLEAR_BIT | Dialect.UNTIL_RESUMED,
}


class Reason(Enum):
    """Why a MAC control frame is refused, with the index of the data plane's counter `pfc_rx_invalid`."""

    DESTINATION = 0
    LENGTH = 1
    PAD = 2
    OPCODE = 3
    ZERO_VECTOR = 4
    HIGH_BYTE = 5  # counted, and accepted unless the caller is strict


class PfcError(ValueError):
    """A frame that is not a valid PFC or PAUSE frame; `reason` is None where it is not a MAC control frame at all."""

    def __init__(self, reason: Reason | None, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PfcFrame:
    """One PFC frame.

    vector: bit n enables priority n. times: quanta of priority 0..7; a time whose bit is clear means nothing, though
    it is kept. high_byte: the reserved upper half of the 16-bit class-enable vector, 0 in a conformant frame.
    """

    source: bytes
    vector: int
    times: tuple[int, ...]
    high_byte: int = 0

    def __post_init__(self) -> None:
        _check_mac(self.source)
        _check("vector", self.vector, 0xFF)
        _check("high_byte", self.high_byte, 0xFF)
        if len(self.times) != PRIORITIES:
            raise ValueError(f"times: {len(self.times)} values, must be {PRIORITIES}")
        for priority, quanta in enumerate(self.times):
            _check(f"times[{priority}]", quanta, MAX_QUANTA)

    @property
    def requests(self) -> dict[int, int]:
        """Quanta by enabled priority; 0 resumes."""
        return {n: self.times[n] for n in range(PRIORITIES) if self.vector >> n & 1}

    @property
    def xoff(self) -> tuple[int, ...]:
        """Priorities that the frame pauses."""
        return tuple(n for n, quanta in self.requests.items() if quanta)

    @property
    def xon(self) -> tuple[int, ...]:
        """Priorities that the frame resumes."""
        return tuple(n for n, quanta in self.requests.items() if not quanta)


@dataclass(frozen=True, slots=True)
class PauseFrame:
    """One PAUSE frame: the whole link stops for `quanta`; 0 resumes."""

    source: bytes
    quanta: int

    def __post_init__(self) -> None:
        _check_mac(self.source)
        _check("quanta", self.quanta, MAX_QUANTA)


def _check(name: str, value: int, limit: int) -> None:
    if not 0 <= value <= limit:
        raise ValueError(f"{name}: {value} is out of range, must be 0..{limit}")


def _check_mac(source: bytes) -> None:
    if len(source) != 6:
        raise ValueError(f"source: {len(source)} bytes, a MAC address has 6")


def pfc_frame(
    source: bytes,
    requests: Mapping[int, int] | None = None,
    *,
    xoff: Sequence[int] = (),
    xon: Sequence[int] = (),
    quanta: int = MAX_QUANTA,
    dialect: Dialect = Dialect.STANDARD,
) -> PfcFrame:
    """A frame that pauses `xoff` for `quanta`, resumes `xon` and does as `requests` (priority -> quanta) says.

    dialect: of the sender. D1: a pause carries 0x8000, whatever its quanta; D2: a resumed priority has its bit cleared
    (and so has every priority that is not named: such a frame resumes those too).

    Raises ValueError where a priority is named twice or a value is out of range; nothing named makes a zero vector,
    which receivers ignore, and is refused too.
    """
    _check("quanta", quanta, MAX_QUANTA)
    named = [*(requests or {}).items(), *((n, quanta) for n in xoff), *((n, 0) for n in xon)]
    if not named:
        raise ValueError("no priority named: a PFC frame with a zero vector does nothing")
    times = [0] * PRIORITIES
    vector = cleared = 0
    for priority, time in named:
        _check("priority", priority, PRIORITIES - 1)
        if (vector | cleared) >> priority & 1:
            raise ValueError(f"priority {priority}: named twice")
        _check(f"quanta of priority {priority}", time, MAX_QUANTA)
        if time == 0 and Dialect.CLEAR_BIT in dialect:
            cleared |= 1 << priority
            continue
        vector |= 1 << priority
        times[priority] = TOP_BIT if time and Dialect.UNTIL_RESUMED in dialect else time
    return PfcFrame(source, vector, tuple(times))


def build_pfc(frame: PfcFrame) -> bytes:
    """The 60 bytes of a PFC frame, FCS left to the wire."""
    header = DESTINATION + frame.source + struct.pack("!HHBB", ETHER_TYPE, OPCODE_PFC, frame.high_byte, frame.vector)
    return (header + struct.pack("!8H", *frame.times)).ljust(FRAME_BYTES, b"\0")


def build_pause(frame: PauseFrame) -> bytes:
    """The 60 bytes of a PAUSE frame, FCS left to the wire."""
    header = DESTINATION + frame.source + struct.pack("!HHH", ETHER_TYPE, OPCODE_PAUSE, frame.quanta)
    return header.ljust(FRAME_BYTES, b"\0")


def is_mac_control(data: bytes) -> bool:
    """Whether a frame carries EtherType 0x8808."""
    return len(data) >= 14 and data[12:14] == b"\x88\x08"


def opcode(data: bytes) -> int | None:
    """The MAC control opcode, or None for a frame without one."""
    return int.from_bytes(data[14:16], "big") if is_mac_control(data) and len(data) >= 16 else None


def _check_frame(data: bytes, wanted: int, used_bytes: int) -> None:
    if not is_mac_control(data):
        raise PfcError(None, "not a MAC control frame (EtherType 0x8808)")
    if data[:6] != DESTINATION:
        raise PfcError(Reason.DESTINATION, f"destination: {data[:6].hex('-')}, must be {DESTINATION.hex('-')}")
    found = opcode(data)
    if found is None:
        raise PfcError(Reason.LENGTH, f"length: {len(data)} bytes, must be {FRAME_BYTES} (64 with FCS)")
    if found != wanted:
        raise PfcError(Reason.OPCODE, f"opcode: 0x{found:04x}, must be 0x{wanted:04x}")
    if len(data) != FRAME_BYTES:
        raise PfcError(Reason.LENGTH, f"length: {len(data)} bytes, must be {FRAME_BYTES} (64 with FCS)")
    if any(data[used_bytes:]):
        at = used_bytes + next(i for i, byte in enumerate(data[used_bytes:]) if byte)
        raise PfcError(Reason.PAD, f"pad: byte {at} is 0x{data[at]:02x}, must be 0")


def parse_pfc(data: bytes, *, strict: bool = False) -> PfcFrame:
    """A captured frame (no FCS) as a PFC frame. Raises `PfcError`.

    strict: also refuse a set bit in the reserved upper byte of the vector, which receivers ignore.
    """
    _check_frame(data, OPCODE_PFC, _PFC_USED_BYTES)
    if strict and data[16]:
        raise PfcError(Reason.HIGH_BYTE, f"vector: upper byte is 0x{data[16]:02x}, must be 0")
    if data[17] == 0:
        raise PfcError(Reason.ZERO_VECTOR, "vector: no priority enabled, the frame does nothing")
    return PfcFrame(data[6:12], data[17], struct.unpack("!8H", data[18:_PFC_USED_BYTES]), data[16])


def parse_pause(data: bytes) -> PauseFrame:
    """A captured frame (no FCS) as a PAUSE frame. Raises `PfcError`."""
    _check_frame(data, OPCODE_PAUSE, _PAUSE_USED_BYTES)
    return PauseFrame(data[6:12], int.from_bytes(data[16:18], "big"))


def parse(data: bytes) -> PfcFrame | PauseFrame:
    """A captured MAC control frame as what its opcode says. Raises `PfcError`."""
    return parse_pause(data) if opcode(data) == OPCODE_PAUSE else parse_pfc(data)


def quanta_to_ps(quanta: int, rate_bps: int) -> int:
    """How long `quanta` last on a link of `rate_bps`, in picoseconds, rounded up.

    A quantum is 512 bit times (802.3, 31B.2), so 65535 quanta at 40 Gb/s are 838_848_000 ps exactly. Up, since a sender
    may not resume before the time is over; at all rates that divide 512 * 10^12 it is exact.
    """
    _check("quanta", quanta, MAX_QUANTA)
    if rate_bps <= 0:
        raise ValueError(f"rate_bps: {rate_bps}, must be positive")
    return -(-quanta * QUANTUM_BITS * PS_PER_S // rate_bps)


def ps_to_quanta(time_ps: int, rate_bps: int) -> int:
    """The fewest quanta that last at least `time_ps`. Raises ValueError where 65535 of them are too short."""
    if rate_bps <= 0:
        raise ValueError(f"rate_bps: {rate_bps}, must be positive")
    if time_ps < 0:
        raise ValueError(f"time_ps: {time_ps}, must not be negative")
    quanta = -(-time_ps * rate_bps // (QUANTUM_BITS * PS_PER_S))
    if quanta > MAX_QUANTA:
        longest = format_time_ps(quanta_to_ps(MAX_QUANTA, rate_bps))
        raise ValueError(f"{format_time_ps(time_ps)} is more than {MAX_QUANTA} quanta at this rate last ({longest})")
    return quanta
