"""What the PFC and PAUSE frames of a capture file did: `dcbtraffic explain`.

File in, lines out. Pauses are followed per (sender, priority) to the end of the capture, so that the usual questions
about a stuck priority have an answer: who sends the pause, is it still being refreshed, did a resume come.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcb.pfc import PRIORITIES, PfcError, PfcFrame, explain, is_mac_control, parse, quanta_to_ps
from dcb.units import format_time_ps

_ETHERNET_LINK_TYPE = 1


class CaptureError(RuntimeError):
    """A capture file that cannot be read."""


@dataclass(slots=True)
class _Pause:
    xoff: int = 0
    xon: int = 0
    last_ps: int = 0
    last_quanta: int = 0


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


def explain_capture(path: Path, rate_bps: int | None, as_json: bool) -> Iterator[str]:
    """Lines about every MAC control frame, then a summary. Times are from the first frame of the file."""
    pauses: dict[tuple[str, int], _Pause] = {}
    total = control = invalid = 0
    start_ps = end_ps = 0
    for time_ps, data in read_capture(path):
        start_ps = time_ps if total == 0 else start_ps
        end_ps = max(end_ps, time_ps)
        total += 1
        if not is_mac_control(data):
            continue
        control += 1
        text = explain(data, rate_bps)
        since_ps = time_ps - start_ps
        try:
            frame = parse(data)
        except PfcError as error:
            invalid += 1
            record: dict[str, object] = {"source": data[6:12].hex(":"), "invalid": str(error)}
        else:
            source = frame.source.hex(":")
            whole = dict.fromkeys(range(PRIORITIES), 0 if isinstance(frame, PfcFrame) else frame.quanta)
            requests = frame.requests if isinstance(frame, PfcFrame) else whole
            record = {"source": source, "quanta": {str(n): q for n, q in requests.items()}}
            record["kind"] = "pfc" if isinstance(frame, PfcFrame) else "pause"
            for priority, quanta in requests.items():
                state = pauses.setdefault((source, priority), _Pause())
                state.xoff += quanta > 0
                state.xon += quanta == 0
                state.last_ps, state.last_quanta = time_ps, quanta
        if as_json:
            yield json.dumps({"event": "frame", "number": total, "time_ps": since_ps, **record})
        else:
            head, *rest = text.split("\n")
            yield f"#{total} {format_time_ps(since_ps)}  {head}"
            yield from rest
    if as_json:
        yield json.dumps({"event": "summary", "frames": total, "mac_control": control, "invalid": invalid})
    else:
        yield f"{total} frames, {control} MAC control, {invalid} of them invalid"
    for (source, priority), state in sorted(pauses.items()):
        yield _verdict(source, priority, state, end_ps, rate_bps, as_json)


def _verdict(source: str, priority: int, state: _Pause, end_ps: int, rate_bps: int | None, as_json: bool) -> str:
    left_ps = None
    if state.last_quanta and rate_bps is not None:
        left_ps = state.last_ps + quanta_to_ps(state.last_quanta, rate_bps) - end_ps
    if as_json:
        record = {
            "event": "priority",
            "source": source,
            "priority": priority,
            "xoff": state.xoff,
            "xon": state.xon,
            "resumed": state.last_quanta == 0,
            "pause_left_ps": None if left_ps is None else max(0, left_ps),
        }
        return json.dumps(record)
    if state.last_quanta == 0:
        end = "resumed"
    elif left_ps is None:
        end = f"not resumed (last XOFF {format_time_ps(end_ps - state.last_ps)} before the end of the capture)"
    elif left_ps > 0:
        end = f"still paused at the end of the capture, for another {format_time_ps(left_ps)}"
    else:
        end = f"never resumed, ran out {format_time_ps(-left_ps)} before the end of the capture"
    return f"  {source} priority {priority}: {state.xoff} XOFF, {state.xon} XON, {end}"
