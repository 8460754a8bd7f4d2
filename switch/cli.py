"""`dcbswitch`: the embedded switch with the flags of `simple_switch_grpc`.

Parses flags, sets up logging, makes the target factory (and the target, when a program is given), serves P4Runtime
until SIGTERM or SIGINT, and leaves nothing behind. One line of JSON on standard output says when it serves; logs go to
standard error and to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import grpc

DEFAULT_ADDRESS = "127.0.0.1:9559"
PORT_MAX = 511
_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}

log = logging.getLogger("dcbswitch")


class UsageError(ValueError):
    """Flags that make no sense; the message names flag, value and rule. Exit status 2."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says, checked."""

    interfaces: dict[int, str]
    device_id: int
    program: Path | None
    p4info: Path | None
    address: str
    cpu_port: int
    drop_port: int
    priority_queues: int
    seed: int
    pcap_dir: Path | None
    log_console: bool
    log_file: Path | None
    log_level: str
    ready_fd: int | None
    ready_file: Path | None
    notices: tuple[str, ...]
    tls_key: Path | None = None
    tls_certificate: Path | None = None
    tls_ca: Path | None = None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dcbswitch",
        usage="dcbswitch [flags] [--no-p4 | program.json] [-- target flags]",
        description="A P4 switch with a lossless-Ethernet traffic manager: loads BMv2 JSON, serves P4Runtime 1.4. "
        "Flags are those of simple_switch_grpc; target flags may stand on either side of `--`.",
    )
    parser.add_argument(
        "program", nargs="?", type=Path, metavar="program.json", help="BMv2 JSON to forward with at once"
    )
    parser.add_argument(
        "--no-p4", action="store_true", help="start without a program and wait for P4Runtime to set one"
    )
    parser.add_argument(
        "-i",
        "--interface",
        action="append",
        default=[],
        metavar="PORT@IFACE",
        help="attach a network interface to a port",
    )
    parser.add_argument("--device-id", type=int, default=0, metavar="N", help="P4Runtime device id (default 0)")
    parser.add_argument("--pcap", metavar="DIR", help="write IFACE_in.pcap and IFACE_out.pcap to DIR (default: here)")
    parser.add_argument(
        "--p4info", type=Path, metavar="FILE", help="P4Info (text or binary) of program.json: serve it at once"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the program's random numbers (default 0)"
    )
    parser.add_argument("--version", "-v", action="store_true", help="print the version and exit")

    logs = parser.add_argument_group("logging")
    logs.add_argument("--log-console", action="store_true", help="log to standard error")
    logs.add_argument("--log-file", type=Path, metavar="F", help="log to F.txt, as simple_switch_grpc does")
    logs.add_argument("--log-level", "-L", choices=tuple(_LEVELS), default="info", help="default: info")
    logs.add_argument("--log-flush", action="store_true", help=argparse.SUPPRESS)

    ready = parser.add_argument_group("readiness")
    ready.add_argument(
        "--ready-fd", type=int, metavar="N", help="write the ready line to this file descriptor and close it"
    )
    ready.add_argument(
        "--ready-file", type=Path, metavar="F", help="create F with the ready line once the switch serves"
    )

    target = parser.add_argument_group("target flags")
    target.add_argument(
        "--grpc-server-addr",
        default=DEFAULT_ADDRESS,
        metavar="ADDR",
        help=f"host:port or unix:PATH (default {DEFAULT_ADDRESS}: this machine only, unlike "
        f"simple_switch_grpc's 0.0.0.0)",
    )
    target.add_argument("--cpu-port", type=int, default=510, metavar="N", help="port of packet I/O (default 510)")
    target.add_argument("--drop-port", type=int, default=PORT_MAX, metavar="N", help="port that drops (default 511)")
    target.add_argument("--priority-queues", type=int, default=8, metavar="N", help="queues a port, 1..8 (default 8)")
    target.add_argument(
        "--grpc-server-ssl", action="store_true", help="serve over TLS; needs the key and the certificate"
    )
    target.add_argument("--grpc-server-key", type=Path, metavar="FILE", help="PEM private key")
    target.add_argument("--grpc-server-cert", type=Path, metavar="FILE", help="PEM certificate chain")
    target.add_argument("--grpc-server-cacert", type=Path, metavar="FILE", help="PEM root to check clients by")
    target.add_argument("--grpc-server-with-client-auth", action="store_true", help="require a client certificate")

    ignored = parser.add_argument_group("accepted and ignored")
    ignored.add_argument("--thrift-port", metavar="N", help="there is no Thrift server; everything is in P4Runtime")
    ignored.add_argument("--nanolog", metavar="ADDR", help="there are no nanomsg event logs")
    for flag in (
        "--debugger-addr",
        "--notifications-addr",
        "--dp-grpc-server-addr",
        "--use-files",
        "--dump-packet-data",
    ):
        ignored.add_argument(flag, metavar="X", help=argparse.SUPPRESS)
    for flag in ("--debugger", "--disable-swap", "--enable-swap"):
        ignored.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    return parser


_IGNORED = {
    "thrift_port": "--thrift-port: ignored, there is no Thrift server",
    "nanolog": "--nanolog: ignored, there are no nanomsg event logs",
    "debugger": "--debugger: ignored",
    "debugger_addr": "--debugger-addr: ignored",
    "notifications_addr": "--notifications-addr: ignored",
    "dp_grpc_server_addr": "--dp-grpc-server-addr: ignored",
    "use_files": "--use-files: ignored",
    "dump_packet_data": "--dump-packet-data: ignored",
}


def _normalise(arguments: Sequence[str]) -> list[str]:
    """Drop `--`, and give `--pcap` the value that it may leave out."""
    given = [argument for argument in arguments if argument != "--"]
    result: list[str] = []
    while given:
        argument = given.pop(0)
        if argument == "--pcap":
            # simple_switch_grpc's users write --pcap, --pcap=DIR and --pcap DIR.
            takes_next = bool(given) and not given[0].startswith("-") and not given[0].endswith(".json")
            argument = f"--pcap={given.pop(0) if takes_next else '.'}"
        result.append(argument)
    return result


def parse(arguments: Sequence[str]) -> Options:
    """Options of a command line. UsageError (and argparse's exit 2) when they make no sense."""
    parser = _parser()
    given = parser.parse_args(_normalise(arguments))
    if given.version:
        _print_version()
    if given.program is None and not given.no_p4:
        raise UsageError("program.json or --no-p4: one of them must be given")
    if given.program is not None and given.no_p4:
        raise UsageError(f"--no-p4 and {given.program}: only one of them can be given")
    if given.p4info is not None and given.program is None:
        raise UsageError(f"--p4info {given.p4info}: needs program.json")
    for flag, value in (("--cpu-port", given.cpu_port), ("--drop-port", given.drop_port)):
        if not 0 <= value <= PORT_MAX:
            raise UsageError(f"{flag} {value}: must be 0..{PORT_MAX}")
    if given.cpu_port == given.drop_port:
        raise UsageError(f"--cpu-port {given.cpu_port}: must differ from --drop-port")
    if not 1 <= given.priority_queues <= 8:
        raise UsageError(f"--priority-queues {given.priority_queues}: must be 1..8")
    if given.ready_fd is not None and given.ready_fd < 0:
        raise UsageError(f"--ready-fd {given.ready_fd}: must not be negative")
    if not 0 <= given.device_id < 1 << 64:
        raise UsageError(f"--device-id {given.device_id}: must be 0..2^64-1")
    if given.grpc_server_ssl and not (given.grpc_server_key and given.grpc_server_cert):
        raise UsageError("--grpc-server-ssl: needs --grpc-server-key and --grpc-server-cert")
    if given.grpc_server_with_client_auth and not given.grpc_server_cacert:
        raise UsageError("--grpc-server-with-client-auth: needs --grpc-server-cacert")
    return Options(
        interfaces=_interfaces(given.interface, given.cpu_port, given.drop_port),
        device_id=given.device_id,
        program=given.program,
        p4info=given.p4info,
        address=given.grpc_server_addr,
        cpu_port=given.cpu_port,
        drop_port=given.drop_port,
        priority_queues=given.priority_queues,
        seed=given.seed,
        pcap_dir=Path(given.pcap) if given.pcap else None,
        log_console=given.log_console,
        log_file=given.log_file,
        log_level=given.log_level,
        ready_fd=given.ready_fd,
        ready_file=given.ready_file,
        notices=tuple(notice for name, notice in _IGNORED.items() if getattr(given, name)),
        tls_key=given.grpc_server_key if given.grpc_server_ssl else None,
        tls_certificate=given.grpc_server_cert if given.grpc_server_ssl else None,
        tls_ca=given.grpc_server_cacert if given.grpc_server_with_client_auth else None,
    )


def _interfaces(given: Sequence[str], cpu_port: int, drop_port: int) -> dict[int, str]:
    interfaces: dict[int, str] = {}
    for item in given:
        number, at, name = item.partition("@")
        if not at or not name or not number.isdecimal():
            raise UsageError(f"-i {item}: must be PORT@IFACE, as in 1@veth0")
        port = int(number)
        if port > PORT_MAX or port in (cpu_port, drop_port):
            raise UsageError(
                f"-i {item}: port must be 0..{PORT_MAX}, not the CPU port {cpu_port} or the drop port {drop_port}"
            )
        if port in interfaces:
            raise UsageError(f"-i {item}: port {port} is given twice")
        if name in interfaces.values():
            raise UsageError(f"-i {item}: interface {name} is given twice")
        interfaces[port] = name
    return interfaces


def _print_version() -> NoReturn:
    from importlib.metadata import version

    print(f"dcbswitch {version('dcblab')}")
    raise SystemExit(0)


@contextmanager
def _named(flag: str, value: object) -> Iterator[None]:
    """Put flag and value in front of what the system says about a file."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{flag} {value}: {error.strerror or error}") from error


def _set_up_logging(options: Options) -> None:
    handlers: list[logging.Handler] = []
    if options.log_console:
        handlers.append(logging.StreamHandler(sys.stderr))
    if options.log_file is not None:
        with _named("--log-file", options.log_file):
            handlers.append(logging.FileHandler(f"{options.log_file}.txt"))
    if not handlers:
        # Errors and notices are always seen.
        stderr = logging.StreamHandler(sys.stderr)
        stderr.setLevel(logging.WARNING)
        handlers.append(stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=handlers, force=True)
    log.setLevel(_LEVELS[options.log_level])


async def serve(options: Options) -> None:
    """Serve until a signal. ValueError or OSError when it cannot start."""
    # Imported here: --help and wrong flags answer at once.
    from finsy.proto import p4i, p4r
    from google.protobuf.message import DecodeError
    from google.protobuf.text_format import Parse, ParseError

    from switch.p4rt.server import P4RuntimeServer
    from switch.target import TargetFactory

    factory = TargetFactory(
        interfaces=options.interfaces,
        cpu_port=options.cpu_port,
        drop_port=options.drop_port,
        priority_queues=options.priority_queues,
        seed=options.seed,
        pcap_dir=options.pcap_dir,
    )
    if options.pcap_dir is not None:
        with _named("--pcap", options.pcap_dir):
            options.pcap_dir.mkdir(parents=True, exist_ok=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = P4RuntimeServer(options.device_id, options.cpu_port, factory)
    try:
        if options.program is not None:
            p4info = p4i.P4Info()
            if options.p4info is not None:
                data = options.p4info.read_bytes()
                try:
                    Parse(data, p4info)
                except (ParseError, UnicodeDecodeError):
                    try:
                        p4info = p4i.P4Info.FromString(data)
                    except DecodeError:
                        raise ValueError(f"--p4info {options.p4info}: neither text nor binary P4Info") from None
            config = p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=options.program.read_bytes())
            await asyncio.to_thread(server.service.install, config, options.p4info is not None)
        await server.start(options.address, _credentials(options))
        _announce(options)
        log.info("device %d serves P4Runtime on %s", options.device_id, options.address)
        await stop.wait()
        log.info("stopping")
    finally:
        await server.stop()
        _clean_up(options)


def _credentials(options: Options) -> grpc.ServerCredentials | None:
    if options.tls_key is None or options.tls_certificate is None:
        return None
    import grpc

    return grpc.ssl_server_credentials(
        [(options.tls_key.read_bytes(), options.tls_certificate.read_bytes())],
        root_certificates=options.tls_ca.read_bytes() if options.tls_ca else None,
        require_client_auth=options.tls_ca is not None,
    )


def _announce(options: Options) -> None:
    ports = {str(port): name for port, name in sorted(options.interfaces.items())}
    line = json.dumps(
        {
            "ready": True,
            "device_id": options.device_id,
            "grpc": options.address,
            "ports": ports,
            "program": str(options.program) if options.program else None,
            "pid": os.getpid(),
        }
    )
    # The file first: whoever waits on the pipe or on standard output finds it.
    if options.ready_file is not None:
        with _named("--ready-file", options.ready_file):
            temporary = options.ready_file.with_name(f".{options.ready_file.name}.{os.getpid()}")
            temporary.write_text(line + "\n")
            temporary.replace(options.ready_file)  # appears whole or not at all
    print(line, flush=True)
    if options.ready_fd is not None:
        with _named("--ready-fd", options.ready_fd), os.fdopen(options.ready_fd, "w") as pipe:
            pipe.write(line + "\n")


def _clean_up(options: Options) -> None:
    if options.ready_file is not None:
        options.ready_file.unlink(missing_ok=True)
    if options.address.startswith("unix:"):
        Path(options.address.removeprefix("unix:").removeprefix("//")).unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point. Exit status 0 after a signal, 2 for wrong use, 1 when the switch cannot run."""
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
    except UsageError as error:
        print(f"dcbswitch: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        _set_up_logging(options)
        for notice in options.notices:
            log.warning("%s", notice)
        asyncio.run(serve(options))
    except (OSError, ValueError) as error:
        problems = getattr(error, "problems", None) or [str(error)]
        for problem in problems:
            print(f"dcbswitch: {problem}", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(0)


if __name__ == "__main__":
    main()
