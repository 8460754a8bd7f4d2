"""What the PFC and PAUSE frames of a capture file did: `dcbtraffic explain`.

File in, lines out. Pauses are followed per (sender, priority) to the end of the capture, so that the usual questions
about a stuck priority have an answer: who sends the pause, is it still being refreshed, did a resume come.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcb.pfc import Dialect, quanta_to_ps
from dcb.pfc_explain import Diagnosis, Request, Says, carries_mac_control, diagnose
from dcb.units import format_time_ps

_ETHERNET_LINK_TYPE = 1


class CaptureError(RuntimeError):
    """A capture file that cannot be read."""


@dataclass(slots=True)
class _Pause:
    """What one sender has asked of one priority so far. Times in ps of the capture."""

    xoff: int = 0
    xon: int = 0
    pauses: int = 0
    asked: bool = False  # the last word was XOFF
    forever: bool = False
    start_ps: int = 0  # of the pause that runs, or ran last
    last_ps: int = 0
    until_ps: int | None = None  # None: not paused, for ever, or the rate is not known
    total_ps: int = 0  # of pauses that are over

    def take(self, request: Request, time_ps: int, rate_bps: int | None) -> str:
        """One request; returns what it changes, in words."""
        over_ps = None if self.until_ps is None or not self.asked else time_ps - self.until_ps
        ran_out = over_ps is not None and over_ps >= 0
        running = self.asked and not ran_out
        if request.says in (Says.XON, Says.XON_CLEARED):
            return self._resume(request, time_ps, rate_bps, running=running, ran_out=ran_out)
        text = ""
        if running and over_ps is not None:
            text = f"refreshed {format_time_ps(-over_ps)} before it ran out"
        elif running:
            text = f"paused again after {format_time_ps(time_ps - self.last_ps)}"
        elif ran_out:
            assert over_ps is not None
            text = f"paused again, {format_time_ps(over_ps)} after the pause ran out"
        if not running:
            self.total_ps += self._length_ps() if ran_out else 0
            self.pauses += 1
            self.start_ps = time_ps
        self.xoff += 1
        self.asked, self.last_ps = True, time_ps
        self.forever = request.says is Says.XOFF_FOREVER
        timed = rate_bps is not None and not self.forever
        self.until_ps = time_ps + quanta_to_ps(request.quanta, rate_bps) if timed and rate_bps else None
        return text

    def _resume(self, request: Request, time_ps: int, rate_bps: int | None, *, running: bool, ran_out: bool) -> str:
        # in dialect D2 every priority that is not named is resumed: worth counting where it was paused
        self.xon += request.says is Says.XON or self.asked
        text = ""
        if running:
            text = f"resumed after {format_time_ps(time_ps - self.start_ps)}"
            self.total_ps += time_ps - self.start_ps
        elif ran_out:
            assert self.until_ps is not None
            text = f"resumed, but the pause had run out {format_time_ps(time_ps - self.until_ps)} before"
            self.total_ps += self._length_ps()
        self.asked, self.forever, self.until_ps = False, False, None
        return text

    def _length_ps(self) -> int:
        return 0 if self.until_ps is None else self.until_ps - self.start_ps

    def paused_until(self, end_ps: int) -> int:
        """Time paused up to the end of the capture."""
        if not self.asked:
            return self.total_ps
        return self.total_ps + (end_ps if self.until_ps is None else min(end_ps, self.until_ps)) - self.start_ps


class CaptureWriter:
    """A pcap file in nanoseconds, for Wireshark and `dcbtraffic explain`; takes CLOCK_MONOTONIC, keeps wall time."""

    def __init__(self, path: Path) -> None:
        from scapy.utils import RawPcapWriter

        self._offset_ns = time.time_ns() - time.monotonic_ns()
        try:
            self._writer = RawPcapWriter(str(path), linktype=_ETHERNET_LINK_TYPE, nano=True, sync=True)
        except OSError as error:
            raise CaptureError(f"{path}: cannot be written: {error.strerror or error}") from None
        self._writer.write_header(None)

    def write(self, frame: bytes, time_ns: int) -> None:
        seconds, nanoseconds = divmod(time_ns + self._offset_ns, 1_000_000_000)
        self._writer.write_packet(frame, sec=seconds, usec=nanoseconds)

    def close(self) -> None:
        self._writer.close()


def read_capture(path: Path) -> Iterator[tuple[int, bytes]]:
    """(time in ps since the epoch, frame) of every frame of a pcap or pcapng file. Raises `CaptureError`."""
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapNgReader, RawPcapReader

    try:
        reader = RawPcapReader(str(path))
    except (OSError, Scapy_Exception, EOFError) as error:
        raise CaptureError(f"{path}: {getattr(error, 'strerror', None) or error or 'not a pcap file'}") from None
    with reader:
        try:
            meta: Any  # scapy's types do not tell the two readers apart
            for data, meta in reader:
                if isinstance(reader, RawPcapNgReader):
                    link_type = meta.linktype
                    units = (meta.tshigh << 32 | meta.tslow) if meta.tshigh is not None else 0
                    time_ps = units * 10**12 // int(meta.tsresol)
                else:
                    link_type = reader.linktype
                    time_ps = meta.sec * 10**12 + meta.usec * (1000 if reader.nano else 1_000_000)
                if link_type != _ETHERNET_LINK_TYPE:
                    raise CaptureError(f"{path}: link type {link_type}, must be 1 (Ethernet)")
                yield time_ps, data
        except (Scapy_Exception, EOFError) as error:
            raise CaptureError(f"{path}: {error or 'cut short'}") from None


def explain_capture(
    path: Path, rate_bps: int | None, as_json: bool, dialect: Dialect = Dialect.STANDARD
) -> Iterator[str]:
    """Lines about every MAC control frame, then a summary. Times are from the first frame of the file."""
    pauses: dict[tuple[str, int], _Pause] = {}
    faults: Counter[str] = Counter()
    total = control = invalid = 0
    start_ps = end_ps = 0
    for time_ps, data in read_capture(path):
        start_ps = time_ps if total == 0 else start_ps
        end_ps = max(end_ps, time_ps)
        total += 1
        if not carries_mac_control(data):
            continue
        control += 1
        found = diagnose(data, dialect)
        invalid += not found.valid
        faults.update(fault.text.partition(":")[0] if not fault.accepted else "high byte" for fault in found.faults)
        changes: dict[int, str] = {}
        if found.valid:
            for request in found.requests:
                state = pauses.setdefault((found.source, request.priority), _Pause())
                if text := state.take(request, time_ps, rate_bps):
                    changes[request.priority] = text
        if as_json:
            yield json.dumps(
                {"event": "frame", "number": total, "at_ps": time_ps - start_ps, **_record(found, rate_bps, changes)}
            )
        else:
            head, *rest = found.lines(rate_bps)
            yield f"#{total} {format_time_ps(time_ps - start_ps)}  {head}"
            yield from rest
            yield from (f"  -> {text}" for text in _together(changes))
    pauses = {key: state for key, state in pauses.items() if state.xoff or state.xon}
    if as_json:
        record = {"event": "summary", "frames": total, "mac_control": control, "invalid": invalid}
        yield json.dumps(record | {"faults": dict(sorted(faults.items()))})
    else:
        yield f"{total} frames, {control} MAC control, {invalid} of them invalid"
        if faults:
            yield "  faults: " + ", ".join(f"{count} {name}" for name, count in sorted(faults.items()))
    for (source, priority), state in sorted(pauses.items()):
        yield _verdict(source, priority, state, end_ps, rate_bps, as_json)


def _record(found: Diagnosis, rate_bps: int | None, changes: dict[int, str]) -> dict[str, object]:
    named = [r for r in found.requests if r.says is not Says.XON_CLEARED]
    cleared = [r.priority for r in found.requests if r.says is Says.XON_CLEARED]
    record: dict[str, object] = {
        "source": found.source,
        "kind": found.kind,
        "length": found.length_bytes,
        "valid": found.valid,
        "faults": [
            {"reason": None if f.reason is None else f.reason.name.lower(), "text": f.text, "accepted": f.accepted}
            for f in found.faults
        ],
        "hints": list(found.hints),
        "vector": found.vector,
        "quanta": {str(r.priority): r.quanta for r in named},
        "says": {str(r.priority): r.says.value for r in named},
        "cleared": cleared,
        "changes": {str(n): text for n, text in changes.items()},
    }
    if rate_bps is not None:
        record["time_ps"] = {str(r.priority): quanta_to_ps(r.quanta, rate_bps) for r in named if r.says is Says.XOFF}
    return record


def _together(changes: dict[int, str]) -> Iterator[str]:
    """Priorities that fare alike, in one line."""
    alike: dict[str, list[int]] = {}
    for priority, text in changes.items():
        alike.setdefault(text, []).append(priority)
    for text, priorities in alike.items():
        yield f"priority {','.join(map(str, priorities))} {text}"


def _verdict(source: str, priority: int, state: _Pause, end_ps: int, rate_bps: int | None, as_json: bool) -> str:
    left_ps = None
    if state.until_ps is not None:
        left_ps = state.until_ps - end_ps
    if as_json:
        record = {
            "event": "priority",
            "source": source,
            "priority": priority,
            "xoff": state.xoff,
            "xon": state.xon,
            "pauses": state.pauses,
            "paused_ps": state.paused_until(end_ps) if rate_bps is not None else None,
            "resumed": not state.asked,
            "until_resumed": state.forever,
            "pause_left_ps": None if left_ps is None else max(0, left_ps),
        }
        return json.dumps(record)
    if not state.asked:
        end = "resumed"
    elif state.forever:
        end = f"not resumed, and its last XOFF has no end (dialect D1), {format_time_ps(end_ps - state.last_ps)} ago"
    elif left_ps is None:
        end = f"not resumed (last XOFF {format_time_ps(end_ps - state.last_ps)} before the end of the capture)"
    elif left_ps > 0:
        end = f"still paused at the end of the capture, for another {format_time_ps(left_ps)}"
    else:
        end = f"never resumed, ran out {format_time_ps(-left_ps)} before the end of the capture"
    spent = f", paused {format_time_ps(state.paused_until(end_ps))} in {state.pauses} pauses" if rate_bps else ""
    return f"  {source} priority {priority}: {state.xoff} XOFF, {state.xon} XON{spent}, {end}"
