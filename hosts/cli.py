"""`dcbtraffic`: sends and shows test traffic in the network namespace that it is started in.

Shape: options -> a `FrameSpec` or PFC frame (`hosts.packets`, `dcb.pfc`) -> `hosts.wire.Port`; and back, frames ->
`FrameInfo` -> a line or a JSON object. Loads of packets with PFC honoured are `python -m hosts.roce`'s job, not this
one's. Exit status 2 is wrong use, 1 a failed run; errors go to stderr.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dcb import pfc as pfc_codec
from dcb.units import parse_rate, parse_time_ps
from hosts import packets, rdma_cli
from hosts.capture import CaptureError, CaptureWriter, explain_capture
from hosts.net import NetError, default_device, device_mac, find_way
from hosts.packets import FrameSpec, Kind
from hosts.wire import Captured, Port

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(rdma_cli.app, name="rdma")

Dev = Annotated[str | None, typer.Option("--dev", "-i", help="Interface (default: by route, or the only one up)")]
Json = Annotated[bool, typer.Option("--json", "-j", help="JSON lines instead of text")]
Count = Annotated[int, typer.Option(min=1, help="Frames to send")]
SrcMac = Annotated[str | None, typer.Option(help="Source MAC (default: the interface's)")]
Quanta = Annotated[int, typer.Option(min=0, max=pfc_codec.MAX_QUANTA, help="Pause time, in 512 bit times of the link")]
Interval = Annotated[str, typer.Option(help="Between frames: 1ms, 0.5s")]
Listen = Annotated[str | None, typer.Option(help="Afterwards show what comes back, for this long: 1s, 200ms")]
DialectName = Annotated[
    str, typer.Option(help="standard, clear-bit (XON is a cleared bit), until-resumed (XOFF is 0x8000), or both")
]
Xoff = Annotated[str, typer.Option(help="Priorities to pause: 3 or 3,4")]
Xon = Annotated[str, typer.Option(help="Priorities to resume: 3 or 3,4")]

_NS_PER_S = 1_000_000_000
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


def _wrong(option: str, error: object) -> typer.BadParameter:
    return typer.BadParameter(str(error), param_hint=option)


def _time_ns(option: str, text: str) -> int:
    try:
        return parse_time_ps(text) // 1000
    except ValueError as error:
        raise _wrong(option, error) from None


def _mac(option: str, text: str) -> str:
    if not _MAC.fullmatch(text):
        raise _wrong(option, f"'{text}' is not a MAC address (six pairs of hexadecimal digits)")
    return text.lower()


def _priorities(option: str, text: str) -> list[int]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in "01234567" or len(name) != 1:
            raise _wrong(option, f"'{name}' is not a priority, must be 0..7")
    return [int(name) for name in names]


def _address(option: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _wrong(option, f"'{text}' is not an IPv4 or IPv6 address") from None


def _dialect(text: str) -> pfc_codec.Dialect:
    if text not in pfc_codec.DIALECTS:
        raise _wrong("--dialect", f"'{text}' is not one of {', '.join(pfc_codec.DIALECTS)}")
    return pfc_codec.DIALECTS[text]


def _number(option: str, text: str, high: int) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise _wrong(option, f"'{text}' is not a number (decimal or 0x...)") from None
    if not 0 <= value <= high:
        raise _wrong(option, f"{text} is out of range, must be 0..{high}")
    return value


def _interval_ns(rate: str, frame_bytes: int) -> tuple[int, int]:
    """Spacing of frames as a fraction of nanoseconds, from "200pps" or a bit rate on the wire (frame + 24 bytes)."""
    pps = re.fullmatch(r"([0-9]+)\s*pps", rate.strip())
    if pps:
        if int(pps[1]) == 0:
            raise _wrong("--rate", "0pps sends nothing, must be at least 1pps")
        return _NS_PER_S, int(pps[1])
    try:
        return (frame_bytes + 24) * 8 * _NS_PER_S, parse_rate(rate)
    except ValueError as error:
        raise _wrong("--rate", f"'{rate}': {error}, or frames per second as 200pps") from None


def _wait_until(deadline_ns: int) -> None:
    while (left := deadline_ns - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


@app.callback()
def _about() -> None:
    """Send and show test traffic: classified frames, RoCEv2, PFC and PAUSE.

    Runs in the network namespace that it is started in, as root. Exit status 2: wrong use, 1: failed.
    """


@contextlib.contextmanager
def _runs() -> Iterator[None]:
    """Turns failures of a run into one line on stderr and exit status 1."""
    try:
        yield
    except (NetError, CaptureError) as error:
        print(f"dcbtraffic: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


class _Printer:
    """Prints frames as they come and counts them for the summary."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._start_ns = time.monotonic_ns()
        self._kinds: Counter[str] = Counter()
        self._bytes = 0
        self._ce = 0
        self._xoff: Counter[int] = Counter()
        self._xon: Counter[int] = Counter()

    def show(self, captured: Captured) -> None:
        info = packets.read(captured.data)
        self._kinds[info.kind] += 1
        self._bytes += info.length
        self._ce += info.ecn == 3
        if info.pfc is not None:
            self._xoff.update(info.pfc.xoff)
            self._xon.update(info.pfc.xon)
        since_ns = captured.time_ns - self._start_ns
        if self._json:
            print(json.dumps({"event": "frame", "time_ns": since_ns, **info.as_json()}), flush=True)
        else:
            print(f"{since_ns / 1e9:11.6f}  {info.text()}", flush=True)

    def summary(self, dropped: int) -> None:
        seconds = (time.monotonic_ns() - self._start_ns) / 1e9
        total = self._kinds.total()
        if self._json:
            record = {
                "event": "summary",
                "frames": total,
                "bytes": self._bytes,
                "by_kind": dict(sorted(self._kinds.items())),
                "ce_marked": self._ce,
                "pfc_xoff": {str(n): self._xoff[n] for n in sorted(self._xoff)},
                "pfc_xon": {str(n): self._xon[n] for n in sorted(self._xon)},
                "kernel_drops": dropped,
            }
            print(json.dumps(record), flush=True)
            return
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._kinds.items())) or "nothing"
        print(f"{total} frames, {self._bytes} bytes in {seconds:.3f} s: {kinds}; {self._ce} CE-marked")
        for priority in sorted({*self._xoff, *self._xon}):
            print(f"  PFC priority {priority}: {self._xoff[priority]} XOFF, {self._xon[priority]} XON")
        if dropped:
            print(f"  {dropped} frames dropped by the kernel: this program was too slow")


def _report(as_json: bool, **record: Any) -> None:
    if as_json:
        print(json.dumps(record), flush=True)
    else:
        words = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in record.items() if k != "event")
        print(f"{record['event']}: {words}", flush=True)


def _show_all(
    port: Port,
    printer: _Printer,
    deadline_ns: int | None,
    count: int | None,
    kinds: set[str],
    writer: CaptureWriter | None = None,
) -> None:
    shown = 0
    for captured in port.frames(deadline_ns):
        if kinds and packets.read(captured.data).kind not in kinds:
            continue
        printer.show(captured)
        if writer is not None:
            writer.write(captured.data, captured.time_ns)
        shown += 1
        if shown == count:
            return


def _send_paced(port: Port, frames: Iterator[bytes], numerator: int, denominator: int) -> tuple[int, int]:
    """Send frames `numerator / denominator` ns apart; the n-th is due by the clock, not by the one before it."""
    start_ns = time.monotonic_ns()
    sent = sent_bytes = 0
    for number, frame in enumerate(frames):
        _wait_until(start_ns + number * numerator // denominator)
        port.send(frame)
        sent += 1
        sent_bytes += len(frame)
    return sent, sent_bytes


def _send_and_listen(
    device: str, frames: Iterator[bytes], spacing: tuple[int, int], listen: str | None, as_json: bool
) -> None:
    listen_ns = None if listen is None else _time_ns("--listen", listen)
    with Port(device, receive=listen is not None) as port:
        printer = _Printer(as_json)
        sent, sent_bytes = _send_paced(port, frames, *spacing)
        _report(as_json, event="sent", frames=sent, bytes=sent_bytes, interface=device)
        if listen_ns is not None:
            with contextlib.suppress(KeyboardInterrupt):
                _show_all(port, printer, time.monotonic_ns() + listen_ns, None, set())
            printer.summary(port.drops())


@app.command()
def send(
    kind: Annotated[Kind, typer.Argument(help="What to send")] = Kind.UDP,
    dst: Annotated[str | None, typer.Option(help="IPv4 or IPv6 destination; not for raw")] = None,
    src: Annotated[str | None, typer.Option(help="Source address (default: by route)")] = None,
    dev: Dev = None,
    dst_mac: Annotated[str | None, typer.Option(help="Next hop (default: from the neighbour table)")] = None,
    src_mac: SrcMac = None,
    sport: Annotated[int, typer.Option(min=0, max=65535, help="Source port")] = 49152,
    dport: Annotated[int, typer.Option(min=0, max=65535, help="Destination port of udp and tcp")] = 9,
    dscp: Annotated[int | None, typer.Option(min=0, max=63, help="DSCP (default 0; roce 26, cnp 48)")] = None,
    ecn: Annotated[int | None, typer.Option(min=0, max=3, help="ECN: 0, 1 ECT(1), 2 ECT(0), 3 CE (roce: 2)")] = None,
    ttl: Annotated[int, typer.Option(min=1, max=255, help="TTL or hop limit")] = 64,
    vlan: Annotated[int | None, typer.Option(min=0, max=4094, help="Add an 802.1Q tag with this VLAN")] = None,
    pcp: Annotated[
        int | None, typer.Option(min=0, max=7, help="Priority in the tag (adds VLAN 0 without --vlan)")
    ] = None,
    dei: Annotated[bool, typer.Option("--dei", help="Set DEI in the tag")] = False,
    size: Annotated[int | None, typer.Option(help="Frame bytes, tag counted, FCS not")] = None,
    count: Count = 1,
    rate: Annotated[str, typer.Option(help="Pace: 200pps, or bit/s on the wire as 1M")] = "1000pps",
    qp: Annotated[str, typer.Option(help="RoCE: destination queue pair")] = "0x100",
    psn: Annotated[str, typer.Option(help="RoCE: first packet sequence number")] = "0",
    opcode: Annotated[str, typer.Option(help="RoCE: uc-send, rc-send, uc-write, rc-write, cnp or 0x..")] = "uc-send",
    ether_type: Annotated[str, typer.Option(help="raw: EtherType")] = "0x88b5",
    listen: Listen = None,
    as_json: Json = False,
) -> None:
    """Send classified frames: udp, tcp, roce, cnp or raw, over IPv4 or IPv6, with chosen PCP, VLAN, DSCP and ECN."""
    roce = kind is Kind.ROCE
    opcode_number = packets.OPCODES.get(opcode)
    if opcode_number is None:
        opcode_number = _number("--opcode", opcode, 255)
    with _runs():
        if kind is Kind.RAW:
            if dst_mac is None:
                raise _wrong("--dst-mac", "is required for raw frames")
            device = dev or default_device()
            link = {"src_mac": device_mac(device), "dst_mac": dst_mac}
        else:
            if dst is None:
                raise _wrong("--dst", f"is required for {kind.value} frames")
            to = _address("--dst", dst)
            of = None if src is None else _address("--src", src)
            if of is not None and (":" in of) != (":" in to):
                raise _wrong("--src", f"{of} and --dst {to}: one is IPv4, the other IPv6")
            way = find_way(to, device=dev, src_ip=of, dst_mac=dst_mac)
            device = way.device
            link = {"src_mac": way.src_mac, "dst_mac": way.dst_mac, "src_ip": way.src_ip, "dst_ip": to}
        spec = FrameSpec(
            kind=kind,
            src_mac=_mac("--src-mac", src_mac or link["src_mac"]),
            dst_mac=_mac("--dst-mac", link["dst_mac"]),
            src_ip=link.get("src_ip", ""),
            dst_ip=link.get("dst_ip", ""),
            src_port=sport,
            dst_port=dport,
            dscp=dscp if dscp is not None else {Kind.ROCE: 26, Kind.CNP: 48}.get(kind, 0),
            ecn=ecn if ecn is not None else 2 if roce else 0,
            ttl=ttl,
            vlan=vlan if vlan is not None else 0 if pcp is not None or dei else None,
            pcp=pcp or 0,
            dei=int(dei),
            size_bytes=size,
            queue_pair=_number("--qp", qp, 0xFFFFFF),
            psn=_number("--psn", psn, 0xFFFFFF),
            opcode=opcode_number,
            ether_type=_number("--ether-type", ether_type, 0xFFFF),
            run=os.getpid() & 0xFFFFFFFF,
        )
        try:
            first = packets.build(spec)
        except ValueError as error:
            raise _wrong("--size", error) from None
        frames = (packets.build(spec, number, time.monotonic_ns()) for number in range(count))
        _send_and_listen(device, frames, _interval_ns(rate, len(first)), listen, as_json)


def _requests(xoff: str, xon: str, times: list[str], quanta: int) -> dict[int, int]:
    requests: dict[int, int] = {}
    named = [("--xoff", n, quanta) for n in _priorities("--xoff", xoff)]
    named += [("--xon", n, 0) for n in _priorities("--xon", xon)]
    for text in times:
        priority, equals, value = text.partition("=")
        if not equals:
            raise _wrong("--time", f"'{text}' is not PRIORITY=QUANTA")
        named.append(("--time", _number("--time", priority, 7), _number("--time", value, pfc_codec.MAX_QUANTA)))
    for option, number, time_quanta in named:
        if number in requests:
            raise _wrong(option, f"priority {number} is named twice")
        requests[number] = time_quanta
    return requests


@app.command()
def pfc(
    dev: Dev = None,
    xoff: Xoff = "",
    xon: Xon = "",
    quanta: Quanta = pfc_codec.MAX_QUANTA,
    times: Annotated[
        list[str] | None, typer.Option("--time", help="PRIORITY=QUANTA, a time of its own; may be repeated")
    ] = None,
    count: Count = 1,
    interval: Interval = "1ms",
    src_mac: SrcMac = None,
    dst_mac: Annotated[str, typer.Option(help="Destination; another one than 01:80:c2:00:00:01 is invalid")] = (
        "01:80:c2:00:00:01"
    ),
    high_byte: Annotated[str, typer.Option(help="Reserved upper byte of the vector, 0 in a valid frame")] = "0",
    length: Annotated[int, typer.Option(min=18, max=1514, help="Bytes; another number than 60 is invalid")] = 60,
    dialect: DialectName = "standard",
    listen: Listen = None,
    as_json: Json = False,
) -> None:
    """Send PFC frames (802.1Qbb): XOFF with --xoff or --time, XON with --xon."""
    requests = _requests(xoff, xon, times or [], quanta)
    if not requests:
        raise _wrong("--xoff", "name a priority with --xoff, --xon or --time")
    spoken = _dialect(dialect)
    upper = _number("--high-byte", high_byte, 255)
    to = bytes.fromhex(_mac("--dst-mac", dst_mac).replace(":", ""))
    spacing = (_time_ns("--interval", interval), 1)
    with _runs():
        device = dev or default_device()
        source = bytes.fromhex(_mac("--src-mac", src_mac or device_mac(device)).replace(":", ""))
        made = pfc_codec.pfc_frame(source, requests, dialect=spoken)
        frame = pfc_codec.build_pfc(pfc_codec.PfcFrame(source, made.vector, made.times, upper))
        frame = (to + frame[6:])[:length].ljust(length, b"\0")
        _send_and_listen(device, iter([frame] * count), spacing, listen, as_json)


@app.command()
def pause(
    dev: Dev = None,
    quanta: Quanta = pfc_codec.MAX_QUANTA,
    count: Count = 1,
    interval: Interval = "1ms",
    src_mac: SrcMac = None,
    listen: Listen = None,
    as_json: Json = False,
) -> None:
    """Send PAUSE frames (802.3 Annex 31B), which stop the whole link; --quanta 0 resumes."""
    spacing = (_time_ns("--interval", interval), 1)
    with _runs():
        device = dev or default_device()
        source = bytes.fromhex(_mac("--src-mac", src_mac or device_mac(device)).replace(":", ""))
        frame = pfc_codec.build_pause(pfc_codec.PauseFrame(source, quanta))
        _send_and_listen(device, iter([frame] * count), spacing, listen, as_json)


@app.command()
def storm(
    duration: Annotated[
        str | None, typer.Option("--duration", "--seconds", help="How long: 2s, 500ms (default: until Ctrl-C)")
    ] = None,
    xoff: Xoff = "3",
    dev: Dev = None,
    quanta: Annotated[int, typer.Option(min=1, max=pfc_codec.MAX_QUANTA, help="Pause time in each frame")] = (
        pfc_codec.MAX_QUANTA
    ),
    interval: Annotated[
        str | None, typer.Option(help="Between frames (default: half of the pause, at most 100ms)")
    ] = None,
    link_rate: Annotated[str, typer.Option(help="Rate of the link, for the default interval")] = "100M",
    xon: Annotated[bool, typer.Option("--xon/--no-xon", help="Resume at the end, or let the pause run out")] = True,
    src_mac: SrcMac = None,
    as_json: Json = False,
) -> None:
    """Play a broken NIC: pause priorities without end, XOFF refreshed before it runs out."""
    priorities = _priorities("--xoff", xoff)
    if not priorities:
        raise _wrong("--xoff", "name at least one priority")
    duration_ns = None if duration is None else _time_ns("--duration", duration)
    try:
        half_ns = pfc_codec.quanta_to_ps(quanta, parse_rate(link_rate)) // 2000
    except ValueError as error:
        raise _wrong("--link-rate", error) from None
    interval_ns = min(max(half_ns, 1), 100_000_000) if interval is None else _time_ns("--interval", interval)
    if interval_ns == 0:
        raise _wrong("--interval", "must be more than 0")
    with _runs():
        device = dev or default_device()
        source = bytes.fromhex(_mac("--src-mac", src_mac or device_mac(device)).replace(":", ""))
        on = pfc_codec.build_pfc(pfc_codec.pfc_frame(source, xoff=priorities, quanta=quanta))
        off = pfc_codec.build_pfc(pfc_codec.pfc_frame(source, xon=priorities))
        sent = 0
        with Port(device, receive=False) as port:
            _report(as_json, event="ready", interface=device)  # from here on a signal ends it with XON and its result
            start_ns = time.monotonic_ns()
            try:
                while duration_ns is None or sent * interval_ns < duration_ns:
                    _wait_until(start_ns + sent * interval_ns)  # by the schedule: a late frame shifts none after it
                    port.send(on)
                    sent += 1
                _wait_until(start_ns + duration_ns)
            except KeyboardInterrupt:
                pass
            finally:
                if xon:
                    port.send(off)
        _report(as_json, event="storm", xoff_frames=sent, xon_frames=int(xon), interface=device)


def _recv(
    dev: Dev = None,
    duration: Annotated[str | None, typer.Option(help="Stop after this long (default: until Ctrl-C)")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many shown frames")] = None,
    only: Annotated[str, typer.Option(help="Show only these kinds: pfc,pause,roce,cnp,udp,tcp,icmp,arp,...")] = "",
    write: Annotated[Path | None, typer.Option(help="Also write what is shown to this pcap file")] = None,
    as_json: Json = False,
) -> None:
    """Show every frame that comes in, one a line, and a summary at the end; PFC and PAUSE decoded."""
    deadline_ns = None if duration is None else time.monotonic_ns() + _time_ns("--duration", duration)
    kinds = {kind.strip() for kind in only.split(",") if kind.strip()}
    unknown = kinds - set(packets.KINDS)
    if unknown:
        raise _wrong("--only", f"unknown kind {', '.join(sorted(unknown))}; known: {', '.join(packets.KINDS)}")
    with _runs():
        device = dev or default_device()
        with Port(device, receive=True) as port:
            printer = _Printer(as_json)
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.suppress(KeyboardInterrupt))
                writer = stack.enter_context(contextlib.closing(CaptureWriter(write))) if write else None
                _report(as_json, event="ready", interface=device)  # from here on a signal ends it with a summary
                _show_all(port, printer, deadline_ns, count, kinds, writer)
            printer.summary(port.drops())


app.command("recv")(_recv)
app.command("listen", help="The same as recv.")(_recv)


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="pcap or pcapng file of Ethernet frames")],
    link_rate: Annotated[
        str | None, typer.Option("--rate", "--link-rate", help="Rate of the link, to turn quanta into time")
    ] = None,
    dialect: DialectName = "standard",
    as_json: Json = False,
) -> None:
    """Explain the PFC and PAUSE frames of a capture: every fault, what each asks for, which pauses never ended."""
    rate_bps = None
    spoken = _dialect(dialect)
    if link_rate is not None:
        try:
            rate_bps = parse_rate(link_rate)
        except ValueError as error:
            raise _wrong("--rate", error) from None
    with _runs():
        for line in explain_capture(file, rate_bps, as_json, spoken):
            print(line)


def main() -> None:
    """Entry point of `dcbtraffic`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` too ends recv with its summary
    app()


if __name__ == "__main__":
    main()
