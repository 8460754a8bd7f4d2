"""`dcbtraffic rdma send|recv`: reliable RDMA (RoCEv2) with DCQCN between hosts of a lab, on the NIC of virtual time.

The receiver knows its senders (`--from`): flow i is that of the i-th address, and the sender says which it is
(`--flow`). Prints JSON lines: ready, at the end result.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import FrameType
from typing import Annotated, Any

import typer

from dcb.units import PS_PER_MS, parse_rate, parse_time_ps
from hosts.build import BuildError
from hosts.net import NetError, Way, find_way
from hosts.nic import FlowState, Nic, NicError
from hosts.nic_config import ENDLESS, Dcqcn, EventKind, NicConfig, RdmaConfig
from hosts.nic_veth import NicDriver

app = typer.Typer(no_args_is_help=True, help="RDMA (RoCEv2, RC) with DCQCN: the NIC core of virtual time, in real time")

RTO_PS = 200 * PS_PER_MS  # a process of a busy machine waits longer than the 4 ms of a NIC
DRAIN_PS = 2_000 * PS_PER_MS

Dev = Annotated[str | None, typer.Option("--dev", "-i", help="Interface (default: by route)")]
LinkRate = Annotated[
    str, typer.Option(help="Of the interface: 100M; frames leave no faster, pauses count its bit times")
]
Profile = Annotated[str, typer.Option(help="off, paper (SIGCOMM'15) or cx4; the same at both ends")]
Pfc = Annotated[str, typer.Option(help="Priorities whose pauses are obeyed: 3 or 3,4; empty for none")]


def _rate(option: str, text: str) -> int:
    try:
        return parse_rate(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _time(option: str, text: str) -> int:
    try:
        return parse_time_ps(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _priorities(text: str) -> frozenset[int]:
    names = [name for name in text.split(",") if name]
    if any(name not in "01234567" or len(name) != 1 for name in names):
        raise typer.BadParameter(f"'{text}': priorities are 0..7 with commas between them", param_hint="--pfc")
    return frozenset(int(name) for name in names)


def _config(way: Way, rate_bps: int, priorities: frozenset[int]) -> NicConfig:
    events = frozenset({EventKind.CNP, EventKind.FINISHED, EventKind.FAILED})
    return NicConfig(way.src_mac, way.src_ip, rate_bps, pfc_rx=priorities, pfc_tx=frozenset(), events=events)


def _dcqcn(name: str, rate_bps: int) -> Dcqcn:
    try:
        return Dcqcn.named(name, rate_bps)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--dcqcn") from None


def _result(nic: Nic, driver: NicDriver) -> dict[str, Any]:
    stats = nic.stats()
    flows = [asdict(flow) | {"kind": flow.kind.name.lower(), "state": flow.state.name.lower()} for flow in nic.flows()]
    port = {
        n: getattr(stats, n) for n in ("tx_frames", "rx_frames", "rx_pfc", "rx_ce", "tx_cnp", "rx_cnp", "paused_ps")
    }
    cnps = [(event.time_ps, event.value) for event in nic.events() if event.kind is EventKind.CNP]
    return {"event": "result", "flows": flows, **port, "kernel_drops": driver.drops(), "rate_after_cnp": cnps}


@contextmanager
def _runs() -> Iterator[None]:
    """Faults of a run end it with status 1."""
    try:
        yield
    except (NetError, NicError, BuildError) as error:
        print(f"dcbtraffic: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


@contextmanager
def _until_signal() -> Iterator[list[int]]:
    """A list that a SIGTERM or SIGINT puts its number into."""
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        caught.append(number)

    old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@app.command()
def send(
    dst: Annotated[str, typer.Option(help="IPv4 address of the receiver")],
    dev: Dev = None,
    link_rate: LinkRate = "100M",
    size: Annotated[int, typer.Option("--bytes", min=0, help="To send; 0: until --duration is over")] = 0,
    duration: Annotated[str, typer.Option(help="Longest time: 5s, 200ms")] = "5s",
    flow: Annotated[int, typer.Option(min=0, max=255, help="Which of the receiver's --from this is")] = 0,
    dcqcn: Profile = "off",
    rate: Annotated[str | None, typer.Option(help="Pace; default: the link's")] = None,
    priority: Annotated[int, typer.Option(min=0, max=7)] = 3,
    dscp: Annotated[int, typer.Option(min=0, max=63)] = 26,
    ecn: Annotated[int, typer.Option(min=0, max=3, help="ECN field: 2 is ECT(0), 3 arrives as marked")] = 2,
    window: Annotated[int, typer.Option(min=0, help="Bytes in flight; 0: no limit")] = 200_000,
    pfc: Pfc = "3",
) -> None:
    """Write to a receiver; ends when everything is acknowledged. Exit status 1 where it is not."""
    link_bps, obeyed = _rate("--link-rate", link_rate), _priorities(pfc)
    profile = _dcqcn(dcqcn, link_bps)
    pace_bps = 0 if rate is None else _rate("--rate", rate)
    until_ps = _time("--duration", duration)
    with _runs():
        way = find_way(dst, device=dev)
    config = _config(way, link_bps, obeyed)
    rdma = RdmaConfig(
        bytes=size or ENDLESS, dscp=dscp, priority=priority, ecn=ecn, window_bytes=window, rate_bps=pace_bps,
        rto_ps=RTO_PS, dcqcn=profile,
    )  # fmt: skip
    with _runs(), Nic(config) as nic, NicDriver(nic, way.device) as driver, _until_signal() as caught:
        print(json.dumps({"event": "ready"}), flush=True)
        start_ps = driver.now_ps
        rdma = replace(rdma, start_ps=start_ps)
        number = nic.add_rdma_flow(rdma, remote_mac=way.dst_mac, remote_ip=dst, remote_flow=flow)

        def done() -> bool:
            return nic.flow(number).state in (FlowState.FINISHED, FlowState.FAILED)

        if not driver.run(lambda: done() or bool(caught), start_ps + until_ps) or caught:
            nic.stop_flow(number, driver.now_ps)
            driver.run(done, driver.now_ps + DRAIN_PS)
        print(json.dumps(_result(nic, driver)), flush=True)
        good = nic.flow(number).state is FlowState.FINISHED
        if size and nic.flow(number).bytes_acked < size:
            good = False
    raise typer.Exit(0 if good else 1)


@app.command()
def recv(
    senders: Annotated[str, typer.Option("--from", help="IPv4 addresses of the senders, with commas: flow 0, 1, ...")],
    dev: Dev = None,
    link_rate: LinkRate = "100M",
    dcqcn: Profile = "off",
    priority: Annotated[int, typer.Option(min=0, max=7, help="Of ACKs")] = 3,
    dscp: Annotated[int, typer.Option(min=0, max=63, help="Of ACKs")] = 26,
    duration: Annotated[str | None, typer.Option(help="Default: until SIGTERM or SIGINT")] = None,
    pfc: Pfc = "3",
) -> None:
    """Acknowledge what senders write, and send them CNPs for what arrives marked (with --dcqcn)."""
    link_bps, obeyed = _rate("--link-rate", link_rate), _priorities(pfc)
    base = RdmaConfig(dscp=dscp, priority=priority, dcqcn=_dcqcn(dcqcn, link_bps))
    limit_ps = None if duration is None else _time("--duration", duration)
    with _runs():
        ways = [find_way(address, device=dev) for address in senders.split(",")]
    config = _config(ways[0], link_bps, obeyed)
    with _runs(), Nic(config) as nic, NicDriver(nic, ways[0].device) as driver, _until_signal() as caught:
        for way, address in zip(ways, senders.split(","), strict=True):
            nic.add_rdma_flow(base, remote_mac=way.dst_mac, remote_ip=address, remote_flow=0)
        print(json.dumps({"event": "ready"}), flush=True)
        until = None if limit_ps is None else driver.now_ps + limit_ps
        step_ps = 100 * PS_PER_MS  # a signal ends a wait, Python goes on with it: look at least this often
        while not caught and (until is None or driver.now_ps < until):
            end_ps = driver.now_ps + step_ps
            driver.run(lambda: bool(caught), end_ps if until is None else min(end_ps, until))
        print(json.dumps(_result(nic, driver)), flush=True)
