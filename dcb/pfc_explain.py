"""What a MAC control frame says, and every fault of it: for people, and for `dcbtraffic explain`.

Sans-IO: `diagnose(bytes, dialect)` -> `Diagnosis` (faults, hints, requests) -> `lines(rate)`. `dcb.pfc.parse_pfc` stops
at the first fault, as a receiver does; this goes on, so that a frame that is short, misdirected and padded with rubbish
is told all three. A frame without its pad, or with the FCS still on, is told apart from one of a wrong length.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import Enum

from dcb.pfc import (
    DESTINATION,
    FRAME_BYTES,
    MAX_QUANTA,
    OPCODE_PAUSE,
    OPCODE_PFC,
    PRIORITIES,
    TOP_BIT,
    Dialect,
    PfcError,
    Reason,
    is_mac_control,
    quanta_to_ps,
)
from dcb.units import format_rate, format_time_ps

_HEADER_BYTES = 14
_TAG_TYPES = (b"\x81\x00", b"\x88\xa8")
_VECTOR_AT, _TIMES_AT = 16, 18
_USED_BYTES = {OPCODE_PFC: 34, OPCODE_PAUSE: 18}
_KINDS = {OPCODE_PFC: "pfc", OPCODE_PAUSE: "pause"}


class Says(Enum):
    """What a frame wants of one priority."""

    XOFF = "xoff"
    XON = "xon"
    XOFF_FOREVER = "xoff-until-resumed"  # dialect D1
    XON_CLEARED = "xon-by-cleared-bit"  # dialect D2


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that a frame breaks. `reason` None: the data plane has no counter of its own for it.

    accepted: a receiver obeys the frame all the same (reserved bits are ignored).
    """

    reason: Reason | None
    text: str
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What a frame says about one priority; quanta as they stand in the frame (0 for a cleared bit)."""

    priority: int
    says: Says
    quanta: int

    def text(self, rate_bps: int | None = None) -> str:
        """`XOFF 65535 quanta (838.848us at 40G)`, `XON`, ..."""
        if self.says is Says.XON:
            return "XON"
        if self.says is Says.XON_CLEARED:
            return "XON (bit cleared, dialect D2)"
        if self.says is Says.XOFF_FOREVER:
            return f"XOFF until resumed (time 0x{self.quanta:04x}, dialect D1)"
        time = ""
        if rate_bps is not None:
            time = f" ({format_time_ps(quanta_to_ps(self.quanta, rate_bps))} at {format_rate(rate_bps)})"
        return f"XOFF {self.quanta} quanta{time}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One MAC control frame. `kind`: pfc, pause or unknown. `requests` are told of a frame that is ignored too."""

    source: str
    kind: str
    length_bytes: int
    vector: int | None
    faults: tuple[Fault, ...]
    hints: tuple[str, ...]
    requests: tuple[Request, ...]

    @property
    def valid(self) -> bool:
        """Whether a receiver obeys it."""
        return all(fault.accepted for fault in self.faults)

    def head(self) -> str:
        """The first line: what it is, from whom, and why it is ignored."""
        if not self.valid:
            refused = [fault.text for fault in self.faults if not fault.accepted]
            return f"invalid MAC control frame from {self.source}, ignored: {'; '.join(refused)}"
        if self.kind == "pause":
            return f"PAUSE from {self.source}: all priorities"
        return f"PFC from {self.source}: vector 0x{self.vector:02x}"

    def lines(self, rate_bps: int | None = None) -> list[str]:
        """The head line, then faults that do no harm, one line for each priority named, and hints."""
        result = [self.head()]
        result += [f"  {fault.text}" for fault in self.faults if fault.accepted]
        ignored = "" if self.valid else "would be "
        if self.kind == "pause" and self.requests:
            text = self.requests[0].text(rate_bps)
            if self.valid:
                result[0] += f" {text}"
            else:
                result.append(f"  all priorities: would be {text}")
        else:
            shown = [r for r in self.requests if r.says is not Says.XON_CLEARED]
            result += [f"  priority {r.priority}: {ignored}{r.text(rate_bps)}" for r in shown]
            cleared = [str(r.priority) for r in self.requests if r.says is Says.XON_CLEARED]
            if cleared:
                result.append(f"  priority {','.join(cleared)}: {ignored}XON (bit cleared, dialect D2)")
        return result + [f"  hint: {hint}" for hint in self.hints]


def carries_mac_control(data: bytes) -> bool:
    """Whether a frame is a MAC control frame, or one behind VLAN tags (which no receiver takes for one)."""
    return is_mac_control(_untagged(data))


def _untagged(data: bytes) -> bytes:
    while data[12:14] in _TAG_TYPES and len(data) >= _HEADER_BYTES + 4:
        data = data[:12] + data[16:]
    return data


def diagnose(data: bytes, dialect: Dialect = Dialect.STANDARD) -> Diagnosis:
    """A captured frame, with or without FCS, as a receiver of that dialect sees it.

    Raises PfcError (reason None) where it is not a MAC control frame at all.
    """
    if not carries_mac_control(data):
        raise PfcError(None, "not a MAC control frame (EtherType 0x8808)")
    faults: list[Fault] = []
    hints: list[str] = []
    if data[:6] != DESTINATION:
        faults.append(Fault(Reason.DESTINATION, f"destination: {data[:6].hex('-')}, must be {DESTINATION.hex('-')}"))
    length_bytes = len(data)
    plain = _untagged(data)
    if plain is not data:
        faults.append(Fault(None, "tag: a MAC control frame carries no VLAN tag"))
    if len(plain) == FRAME_BYTES + 4 and zlib.crc32(plain[:FRAME_BYTES]).to_bytes(4, "little") == plain[FRAME_BYTES:]:
        hints.append("the capture holds the FCS (last 4 bytes, correct): left out here")
        plain = plain[:FRAME_BYTES]
    opcode = int.from_bytes(plain[14:16], "big") if len(plain) >= 16 else None
    kind = _KINDS.get(opcode or 0, "unknown")
    used = _USED_BYTES.get(opcode or 0, 0)
    if opcode is not None and not used:
        faults.append(Fault(Reason.OPCODE, f"opcode: 0x{opcode:04x}, must be 0x{OPCODE_PFC:04x} or 0x0001"))
    if len(plain) != FRAME_BYTES:
        faults.append(Fault(Reason.LENGTH, f"length: {len(plain)} bytes, must be {FRAME_BYTES} (64 with FCS)"))
        if used <= len(plain) < FRAME_BYTES and used:
            hints.append("the pad is missing: captured where it was sent, before a MAC padded it, or not padded at all")
    if used and any(plain[used:FRAME_BYTES]):
        at = used + next(i for i, byte in enumerate(plain[used:]) if byte)
        faults.append(Fault(Reason.PAD, f"pad: byte {at} is 0x{plain[at]:02x}, must be 0"))
    if plain[6:12] == bytes(6):
        hints.append("source 00:00:00:00:00:00: obeyed, but no port has this address")
    elif plain[6:7] and plain[6] & 1:
        hints.append("the source is a group address: obeyed, but no port has such an address")
    vector: int | None = None
    requests: tuple[Request, ...] = ()
    if kind == "pause" and len(plain) >= _TIMES_AT:
        quanta = int.from_bytes(plain[16:18], "big")
        requests = tuple(Request(n, Says.XOFF if quanta else Says.XON, quanta) for n in range(PRIORITIES))
    elif kind == "pfc" and len(plain) >= used:
        vector = plain[_VECTOR_AT + 1]
        times = struct.unpack("!8H", plain[_TIMES_AT:used])
        requests = _requests(vector, times, dialect)
        faults += _vector_faults(plain[_VECTOR_AT], vector, dialect)
        hints += _hints(vector, times, dialect)
    return Diagnosis(plain[6:12].hex(":"), kind, length_bytes, vector, tuple(faults), tuple(hints), requests)


def _requests(vector: int, times: tuple[int, ...], dialect: Dialect) -> tuple[Request, ...]:
    found = []
    for priority, quanta in enumerate(times):
        if not vector >> priority & 1:
            if Dialect.CLEAR_BIT in dialect:
                found.append(Request(priority, Says.XON_CLEARED, 0))
        elif Dialect.UNTIL_RESUMED in dialect and quanta & TOP_BIT:
            found.append(Request(priority, Says.XOFF_FOREVER, quanta))
        else:
            found.append(Request(priority, Says.XOFF if quanta else Says.XON, quanta))
    return tuple(found)


def _vector_faults(high_byte: int, vector: int, dialect: Dialect) -> list[Fault]:
    faults = []
    if vector == 0 and Dialect.CLEAR_BIT not in dialect:
        faults.append(Fault(Reason.ZERO_VECTOR, "vector: no priority enabled, the frame does nothing"))
    if high_byte:
        faults.append(Fault(Reason.HIGH_BYTE, f"vector upper byte 0x{high_byte:02x}: reserved, ignored", accepted=True))
    return faults


def _hints(vector: int, times: tuple[int, ...], dialect: Dialect) -> list[str]:
    hints = []
    if vector == 0 and Dialect.CLEAR_BIT not in dialect:
        hints.append("XON is an enabled bit with time 0; to a peer of dialect D2 (clear-bit) this frame resumes all")
    if Dialect.UNTIL_RESUMED not in dialect:
        # 65535 is what every sender uses for as long as possible; other values in the upper half are rare
        marked = [n for n in range(PRIORITIES) if vector >> n & 1 and times[n] & TOP_BIT and times[n] != MAX_QUANTA]
        hints += [
            f"priority {n}: top bit of time 0x{times[n]:04x} set: a peer of dialect D1 (until resumed)?" for n in marked
        ]
    stray = [n for n in range(PRIORITIES) if times[n] and not vector >> n & 1]
    if Dialect.CLEAR_BIT in dialect:
        return hints
    return hints + [f"priority {n}: time {times[n]} without its enable bit: no effect" for n in stray]


def explain(data: bytes, rate_bps: int | None = None, dialect: Dialect = Dialect.STANDARD) -> str:
    """What a MAC control frame does, in lines: a head line, then one for each priority that it names, then hints.

    rate_bps: of the link, to turn quanta into time.
    """
    try:
        return "\n".join(diagnose(data, dialect).lines(rate_bps))
    except PfcError as error:
        return f"{error}"
