"""`dcb-host`: the DCBX agent of an end station, on a packet socket in the network namespace that it is started in.

Shape: options -> `DcbxSettings` -> `hosts.dcbx_agent.HostAgent` <-> `_LldpSocket`, and out comes a state file (JSON,
replaced whole, so that a reader never sees half of it) and a line for each thing that happens. `dcb-host show` prints
the file; `dcb-host roce send ...` starts the RoCE sender as it says. SIGTERM and SIGINT say goodbye (TTL 0).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from dcb.dcbx.machines import TieBreak
from dcb.dcbx.settings import DcbxSettings, ModeSetting
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector, Tsa
from dcb.lldp.pdu import ETHER_TYPE, NEAREST_BRIDGE
from dcb.lldp.tlv import TlvError
from dcb.lldp.transmit import NS_PER_S, LldpTimers
from hosts.dcbx_agent import HostAgent, roce_arguments
from hosts.net import NetError, default_device, device_mac

app = typer.Typer(invoke_without_command=True, add_completion=False, pretty_exceptions_enable=False)

Dev = Annotated[str | None, typer.Option("--dev", "-i", help="Interface (default: the only one that is up)")]
AsJson = Annotated[bool, typer.Option("--json", "-j", help="JSON (lines) instead of text")]
State = Annotated[Path | None, typer.Option(help="State file [$DCBLAB_RUN/LAB/dcbx/INTERFACE.json]")]
Lab = Annotated[str, typer.Option("--lab", "-l", help="Name of the lab, for the state file")]
Format = Annotated[str, typer.Option("--format", help="table, lldptool (what the peer says) or dcb (what is run)")]

_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_MULTICAST = 263, 1, 0
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40
_CARRIER_POLL_NS = NS_PER_S
_QUIET_NS = 3 * NS_PER_S // 2  # of --once: longer than a fast start's interval


class _LldpSocket:
    """LLDP frames of one interface. Needs CAP_NET_RAW. Raises NetError."""

    def __init__(self, device: str) -> None:
        self.device = device
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError:
            raise NetError("a packet socket needs root (CAP_NET_RAW)") from None
        try:
            group = struct.pack("=iHH8s", socket.if_nametoindex(device), _PACKET_MR_MULTICAST, 6, NEAREST_BRIDGE)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, group)
            self._socket.bind((device, ETHER_TYPE))
        except OSError as error:
            self._socket.close()
            raise NetError(f"interface {device}: {error.strerror}") from None
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def carrier(self) -> bool:
        """Whether the link is up. NetError where the interface is gone."""
        request = struct.pack("16sH14x", self.device.encode(), 0)
        try:
            (flags,) = struct.unpack_from("H", fcntl.ioctl(self._socket, _SIOCGIFFLAGS, request), 16)
        except OSError as error:
            raise NetError(f"interface {self.device}: {error.strerror}") from None
        return bool(flags & _IFF_RUNNING)

    def frames(self) -> Iterator[bytes]:
        """What has come in."""
        with contextlib.suppress(BlockingIOError, OSError):  # ENETDOWN: `carrier` tells
            while True:
                yield self._socket.recv(65536)

    def send(self, frame: bytes) -> None:
        """Send; what the link does not take is lost, and LLDP says it again."""
        with contextlib.suppress(OSError):
            self._socket.send(frame)


def default_state(device: str, lab: str) -> Path:
    """Where the agent of an interface keeps its state."""
    return Path(os.environ.get("DCBLAB_RUN") or "/run/dcblab") / lab / "dcbx" / f"{device}.json"


def read_state(path: Path) -> dict[str, Any]:
    """What an agent wrote. Raises NetError."""
    try:
        state = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise NetError(f"state file {path}: {error}: is dcb-host running on that interface?") from None
    if not isinstance(state, dict) or "marks" not in state:
        raise NetError(f"state file {path}: was not written by dcb-host")
    return state


def _write(path: Path, state: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(state, indent=1))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class _Runner:
    """The loop: socket, clock, carrier, signals, state file."""

    def __init__(self, agent: HostAgent, link: _LldpSocket, state: Path, as_json: bool, quiet: bool) -> None:
        self.agent, self._link, self._state_path = agent, link, state
        self._as_json, self._quiet = as_json, quiet
        self._stopped = False
        self._next_carrier_ns = 0
        self._shown: dict[str, Any] = {}

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Of a signal."""
        self._stopped = True

    def run(self, deadline_ns: int | None, once: bool) -> bool:
        """Until a signal, the deadline, or with `once` until all is settled. True: settled, or ended by a signal."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        try:
            while not self._stopped:
                now_ns = time.monotonic_ns()
                self._step(now_ns)
                if once and self.agent.settled and now_ns - self.agent.changed_ns >= _QUIET_NS:
                    return True
                if deadline_ns is not None and now_ns >= deadline_ns:
                    return not once
                due = [self._next_carrier_ns, self.agent.next_deadline_ns(), deadline_ns]
                wait_ns = min(time_ns for time_ns in due if time_ns is not None) - time.monotonic_ns()
                if wake_read in select.select([self._link.fileno(), wake_read], [], [], max(0, wait_ns) / NS_PER_S)[0]:
                    os.read(wake_read, 64)
            return True
        finally:
            signal.set_wakeup_fd(-1)
            os.close(wake_read)
            os.close(wake_write)

    def _step(self, now_ns: int) -> None:
        lines: list[str] = []
        if now_ns >= self._next_carrier_ns:
            lines += self.agent.set_link(self._link.carrier(), now_ns)
            self._next_carrier_ns = now_ns + _CARRIER_POLL_NS
        for frame in self._link.frames():
            lines += self.agent.receive(frame, now_ns)
        lines += self.agent.handle_timer(now_ns)
        for frame in self.agent.frames_to_send(now_ns):
            self._link.send(frame)
        self._publish(lines, now_ns)

    def _publish(self, lines: list[str], now_ns: int) -> None:
        state = self.agent.state(now_ns)
        if lines or state["counters"] != self._shown.get("counters"):
            _write(self._state_path, state)
        self._shown = state
        if self._quiet:
            return
        for line in lines:
            if self._as_json:
                event = {"time": time.time(), "interface": self.agent.interface, "event": line}
                print(json.dumps(event | {"marks": state["marks"], "operational": state["operational"]}), flush=True)
            else:
                print(f"{time.strftime('%H:%M:%S')} {self.agent.interface} {line}", flush=True)

    def farewell(self) -> None:
        """TTL 0 to the peer; the state file goes."""
        for frame in self.agent.shut_down(time.monotonic_ns()):
            self._link.send(frame)
        self._state_path.unlink(missing_ok=True)


# ---- options --------------------------------------------------------------------------------------------------------


def _wrong(option: str, error: object) -> typer.BadParameter:
    return typer.BadParameter(str(error), param_hint=option)


def _pairs(option: str, text: str) -> Iterator[tuple[int, str]]:
    for item in text.split(","):
        left, equals, right = item.partition("=")
        if not equals or not left.isdigit() or int(left) > 7:
            raise _wrong(option, f"'{item}': NUMBER=VALUE with a number 0..7 is wanted")
        yield int(left), right


def _ets(spec: str, mapping: str) -> EtsTable:
    to_tc, bandwidth, tsa = [0] * 8, [0] * 8, [int(Tsa.STRICT)] * 8
    for tc, value in _pairs("--ets", spec):
        if value != "strict":
            if not value.isdigit():
                raise _wrong("--ets", f"'{tc}={value}': per cent or strict is wanted")
            bandwidth[tc], tsa[tc] = int(value), int(Tsa.ETS)
    for priority, value in _pairs("--map", mapping) if mapping else ():
        if not value.isdigit():
            raise _wrong("--map", f"'{priority}={value}': PRIORITY=CLASS is wanted")
        to_tc[priority] = int(value)
    try:
        return EtsTable.build(to_tc, bandwidth, tsa)
    except TlvError as error:
        raise _wrong("--ets", f"{error.field}: {error.value}, {error.rule}") from None


def _app(text: str) -> tuple[AppEntry, ...]:
    kinds = {
        "ethertype": Selector.ETHER_TYPE,
        "tcp": Selector.TCP,
        "udp": Selector.UDP,
        "port": Selector.ANY_PORT,
        "dscp": Selector.DSCP,
    }
    entries = []
    for item in text.split(",") if text else ():
        left, _, priority = item.partition("=")
        kind, _, number = left.partition(":")
        try:
            selector, protocol = (Selector.ETHER_TYPE, 0) if left == "default" else (kinds[kind], int(number, 0))
            entries.append(AppEntry(selector, protocol, int(priority)))
        except (KeyError, ValueError) as error:
            why = f" ({error})" if isinstance(error, TlvError) else ""
            raise _wrong("--app", f"'{item}': udp:4791=3, tcp:, port:, dscp:, ethertype:, default=0{why}") from None
    return tuple(entries)


def _settings(willing: str, pfc: str, ets: EtsTable | None, own_app: str, mode: str, tie_break: str) -> DcbxSettings:
    attributes = {"all": {"ets", "pfc", "app"}, "none": set[str]()}.get(willing, set(willing.split(",")))
    if unknown := attributes - {"ets", "pfc", "app"}:
        raise _wrong("--willing", f"'{sorted(unknown)[0]}': all, none, or some of ets,pfc,app")
    if any(one not in "01234567" or len(one) != 1 for one in pfc.split(",") if pfc):
        raise _wrong("--pfc", f"'{pfc}': priorities are 0..7 with commas between them")
    enable = sum(1 << int(priority) for priority in set(pfc.split(",")) if pfc)
    for option, value, kind in (("--mode", mode, ModeSetting), ("--tie-break", tie_break, TieBreak)):
        if value not in [one.value for one in kind]:
            raise _wrong(option, f"'{value}': one of {', '.join(one.value for one in kind)}")
    base = DcbxSettings.host(ets, enable)
    return replace(
        base,
        ets_willing="ets" in attributes,
        recommendation=None,
        pfc_willing="pfc" in attributes,
        app=_app(own_app),
        app_accept="app" in attributes,
        app_willing="app" in attributes,
        mode=ModeSetting(mode),
        tie_break=TieBreak(tie_break),
    )


@contextlib.contextmanager
def _runs() -> Iterator[None]:
    try:
        yield
    except (NetError, OSError) as error:
        print(f"dcb-host: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


@app.callback()
def run(
    context: typer.Context,
    dev: Dev = None,
    name: Annotated[
        str | None, typer.Option(help="System name (default: what stands before the interface's '-')")
    ] = None,
    state: State = None,
    lab: Lab = "lab",
    once: Annotated[bool, typer.Option("--once", help="End when agreed with the peer, and print what is run")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="A line for each thing that happens (the default)")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but faults")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds; with --once the default is 30")] = None,
    as_json: AsJson = False,
    style: Format = "table",
    willing: Annotated[str, typer.Option(help="all, none, or some of ets,pfc,app")] = "all",
    pfc: Annotated[str, typer.Option(help="Own PFC priorities, such as 3,4")] = "",
    ets: Annotated[str, typer.Option(help="Own ETS table: 0=40,1=60,2=strict")] = "",
    mapping: Annotated[str, typer.Option("--map", help="Of --ets: priorities to classes, 3=1,6=2; others 0")] = "",
    own_app: Annotated[str, typer.Option("--app", help="Own applications: udp:4791=3,dscp:26=3")] = "",
    mode: Annotated[str, typer.Option(help="auto, ieee or cee")] = "auto",
    tie_break: Annotated[str, typer.Option(help="lower-mac or higher-mac")] = "lower-mac",
    tx_interval: Annotated[int, typer.Option(min=1, max=3600, help="Seconds between LLDP frames")] = 30,
    tx_hold: Annotated[int, typer.Option(min=1, max=100, help="TTL in intervals")] = 4,
) -> None:
    """DCBX agent of an end station: willing by default, runs what its switch says, tells senders (state file)."""
    if context.invoked_subcommand is not None:
        return
    if watch and once:
        raise _wrong("--watch", "not with --once")
    table = _ets(ets, mapping) if ets else None
    settings = _settings(willing, pfc, table, own_app, mode, tie_break)
    _check_format(style)
    with _runs():
        device = dev or default_device()
        path = state or default_state(device, lab)
        path.parent.mkdir(parents=True, exist_ok=True)
        mac = bytes.fromhex(device_mac(device).replace(":", ""))
        timers = LldpTimers(msg_tx_interval_s=tx_interval, msg_tx_hold=tx_hold)
        agent = HostAgent(mac, device, name or device.partition("-")[0], settings, timers)
        with contextlib.closing(_LldpSocket(device)) as link:
            runner = _Runner(agent, link, path, as_json, quiet or once)
            seconds = timeout if timeout is not None else 30.0 if once else None
            deadline_ns = None if seconds is None else time.monotonic_ns() + int(seconds * NS_PER_S)
            try:
                good = runner.run(deadline_ns, once)
                if once:
                    _print_state(agent.state(time.monotonic_ns()), as_json, style, local=False)
            finally:
                runner.farewell()
        if not good:
            print(f"dcb-host: {device}: not agreed with a peer within {seconds:g} s", file=sys.stderr)
            raise typer.Exit(1)


def _check_format(style: str) -> None:
    if style not in ("table", "lldptool", "dcb"):
        raise _wrong("--format", f"'{style}': table, lldptool or dcb")


def _print_state(state: dict[str, Any], as_json: bool, style: str, local: bool) -> None:
    if as_json:
        print(json.dumps({key: value for key, value in state.items() if key != "text"}, indent=2))
    else:
        print(state["text"]["lldptool_local" if style == "lldptool" and local else style].rstrip("\n"))


@app.command()
def show(
    dev: Dev = None,
    state: State = None,
    lab: Lab = "lab",
    as_json: AsJson = False,
    style: Format = "table",
    local: Annotated[bool, typer.Option("--local", help="With lldptool: what this host says")] = False,
) -> None:
    """Print what a running agent runs, as of the last thing that happened."""
    _check_format(style)
    with _runs():
        path = state or default_state(dev or default_device(), lab)
        _print_state(read_state(path), as_json, style, local)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def roce(context: typer.Context, dev: Dev = None, state: State = None, lab: Lab = "lab") -> None:
    """`dcb-host roce send ...`: the RoCE sender (python -m hosts.roce) with priority, DSCP and PFC as agreed."""
    from hosts.build import BuildError
    from hosts.roce import binary, complete

    with _runs():
        device = dev or default_device()
        agreed = roce_arguments(read_state(state or default_state(device, lab)))
        arguments = list(context.args)
        if arguments[:1] == ["send"]:
            arguments += [*agreed, "--interface", device]
        try:
            path, arguments = binary(), complete(arguments)
        except BuildError as error:
            raise NetError(str(error)) from None
        os.execv(path, ["roce", *arguments])


def main() -> None:
    """Entry point of `dcb-host`."""
    app()


if __name__ == "__main__":
    main()
