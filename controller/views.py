"""What `dcbctl show` shows, as plain JSON data: config and read-back state of the selected ports, put side by side.

`collect(controller, what, target)` reads from the switches what one view needs, in few RPCs, and returns a dict;
`render` makes tables of it. Bytes without FCS, times in ns, `port` = number, `name` = interface.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from controller.alarms import STORM_CONTROL
from controller.buffer_config import pools_of
from controller.config import CbsSlope, Config, EtsWeight
from controller.control import Controller
from controller.edit import select
from controller.entries import Action, Group, GroupRef, Lpm, Member, MemberRef, TableEntry
from controller.pfc_config import names as pfc_dialect_names
from controller.qcn_config import cpid
from controller.reasons import DROPS, DROPS_BY_GROUP, DROPS_BY_PRIORITY, DROPS_BY_QUEUE, PFC_INVALID
from controller.state import Cell, CounterValue

Json = dict[str, Any]
Counters = dict[str, dict[Cell, CounterValue]]
Registers = dict[str, dict[Cell, int]]


def port_head(config: Config, switch: str, number: int) -> Json:
    """The fields that name a port in every view."""
    port = config.switches[switch].ports[number]
    return {"switch": switch, "port": number, "name": port.name or f"{switch}:{number}", "peer": port.peer}


def _packets(counters: Counters, name: str, port: int) -> list[int]:
    return [counters[name].get((port, n), CounterValue()).packets for n in range(8)]


def _bytes(counters: Counters, name: str, port: int) -> list[int]:
    return [counters[name].get((port, n), CounterValue()).bytes for n in range(8)]


def _values(registers: Registers, name: str, port: int) -> list[int | None]:
    """Cells of a port; None (null in JSON) where the target serves no registers."""
    cells = registers[name]
    return [cells.get((port, n), 0) if cells else None for n in range(8)]


async def _gather(
    controller: Controller,
    target: str | None,
    counters: tuple[str, ...],
    registers: tuple[str, ...],
    row: Callable[[str, int, Counters, Registers], Json],
) -> list[Json]:
    async def one(switch: str, ports: list[int]) -> list[Json]:
        read_counters = await controller.read_counters(switch, counters, ports)
        read_registers = await controller.read_registers(switch, registers, ports)
        return [
            port_head(controller.running, switch, port) | row(switch, port, read_counters, read_registers)
            for port in ports
        ]

    chosen = select(controller.running, target)
    return [item for items in await asyncio.gather(*(one(*pair) for pair in chosen)) for item in items]


async def pfc(controller: Controller, target: str | None) -> Json:
    """PFC per port and priority: frames both ways, pause time, what is enabled."""

    def row(switch: str, port: int, c: Counters, r: Registers) -> Json:
        invalid = _packets(c, "ingress.pfc_rx_invalid", port)
        return {
            "enabled": sorted(set(controller.running.switches[switch].ports[port].pfc)),
            "rx_xoff": _packets(c, "ingress.pfc_rx_xoff", port),
            "rx_xon": _packets(c, "ingress.pfc_rx_xon", port),
            "tx_xoff": _packets(c, "egress.pfc_tx_xoff", port),
            "tx_xon": _packets(c, "egress.pfc_tx_xon", port),
            "rx_frames": _packets(c, "ingress.pfc_rx_frames", port)[0],
            "tx_frames": _packets(c, "egress.pfc_tx_frames", port)[0],
            "pause_rx_frames": _packets(c, "ingress.pause_rx_frames", port)[0],
            "rx_invalid": {name: count for name, count in zip(PFC_INVALID, invalid, strict=True) if name},
            "paused_ns": _values(r, "egress.tm_paused_ns", port),
            "pause_count": _values(r, "egress.tm_pause_count", port),
            "pause_left_quanta": _values(r, "egress.tm_pause_left", port),
        }

    counters = ("pfc_rx_xoff", "pfc_rx_xon", "pfc_rx_frames", "pfc_rx_invalid", "pause_rx_frames")
    names = (*(f"ingress.{name}" for name in counters), *(f"egress.pfc_tx_{n}" for n in ("xoff", "xon", "frames")))
    return {
        "ports": await _gather(
            controller, target, names, ("egress.tm_paused_ns", "egress.tm_pause_count", "egress.tm_pause_left"), row
        )
    }


async def pfc_priority(controller: Controller, target: str | None) -> Json:
    """Priorities with PFC, and the lossless ones, of each port. From the config alone."""
    config = controller.running
    rows = []
    for switch, ports in select(config, target):
        for number in ports:
            port = config.switches[switch].ports[number]
            rows.append(
                port_head(config, switch, number)
                | {
                    "pfc": sorted(set(port.pfc)),
                    "lossless": sorted(set(config.qos_of(port).lossless)),
                    "quanta": port.pfc_quanta,
                    "pause_rx": port.pause_rx,
                }
            )
    return {"ports": rows}


async def pfc_storm_control(controller: Controller, target: str | None) -> Json:
    """Storm control and dialect of each port, and the PFC frames beyond the limit. Counts: None on a target without."""
    names = tuple(name for name in ("ingress.pfc_rx_storm",) if name in controller.program.counters)

    def row(switch: str, port: int, c: Counters, _r: Registers) -> Json:
        settings = controller.running.switches[switch].ports[port]
        storm, (rx, tx) = settings.pfc_storm_control, pfc_dialect_names(settings.pfc_dialect)
        beyond = _packets(c, "ingress.pfc_rx_storm", port) if names else None
        standing = [a for a in controller.telemetry.snapshot.alarms if a.rule.metric == STORM_CONTROL]
        place = settings.name or f"{switch}:{port}"
        return {
            "storm_control": None if storm is None else storm.model_dump(),
            "ignored_frames": None if beyond is None else beyond[0],
            "counted_frames": None if beyond is None else beyond[1],
            "alarm": any(alarm.reading.labels["port"] == place for alarm in standing),
            "dialect_rx": rx,
            "dialect_tx": tx,
            "asymmetric": settings.pfc_asymmetric,
        }

    return {"ports": await _gather(controller, target, names, (), row)}


async def ets(controller: Controller, target: str | None) -> Json:
    """Scheduler of each queue with the priorities that it carries. share_percent: among the configured ETS queues."""
    config = controller.running
    rows = []
    for switch, ports in select(config, target):
        for number in ports:
            port = config.switches[switch].ports[number]
            qos, profile = config.qos_of(port), config.ets_of(port)
            total = sum(item.ets for item in profile.values() if isinstance(item, EtsWeight))
            queues = []
            for queue in range(8):
                scheduler = profile.get(queue)
                entry: Json = {
                    "queue": queue,
                    "priorities": [p for p in range(8) if qos.queue_of(p) == queue],
                    "configured": scheduler is not None,
                }
                if scheduler == "strict":
                    entry["tsa"] = "strict"
                elif isinstance(scheduler, CbsSlope):
                    entry |= {"tsa": "cb-shaper", "idle_slope_bps": scheduler.cbs}
                elif isinstance(scheduler, EtsWeight):
                    entry |= {
                        "tsa": "ets",
                        "weight": scheduler.ets,
                        "share_percent": round(100 * scheduler.ets / total, 1),
                    }
                else:
                    entry |= {"tsa": "ets", "weight": 1}
                queues.append(entry)
            rows.append(
                port_head(config, switch, number)
                | {"profile": port.ets if isinstance(port.ets, str) else None, "rate_bps": port.rate, "queues": queues}
            )
    return {"ports": rows}


async def ecn(controller: Controller, target: str | None) -> Json:
    """ECN profiles, and per queue its profile and what was marked or dropped."""
    config = controller.running

    def row(switch: str, port: int, c: Counters, _r: Registers) -> Json:
        settings = config.switches[switch].ports[port]
        qos, profiles = config.qos_of(settings), config.ecn_of(settings)
        marked, marked_bytes = _packets(c, "egress.ce_marked", port), _bytes(c, "egress.ce_marked", port)
        dropped, dropped_bytes = _packets(c, "egress.ecn_dropped", port), _bytes(c, "egress.ecn_dropped", port)
        queues = []
        for queue in range(8):
            members = [p for p in range(8) if qos.queue_of(p) == queue]  # the counters go by priority
            ref, profile = settings.ecn.get(queue), profiles.get(queue)
            queues.append(
                {
                    "queue": queue,
                    "profile": ref if isinstance(ref, str) else ("in place" if ref else None),
                    "thresholds": profile.model_dump() if profile else None,
                    "marked_packets": sum(marked[p] for p in members),
                    "marked_bytes": sum(marked_bytes[p] for p in members),
                    "dropped_packets": sum(dropped[p] for p in members),
                    "dropped_bytes": sum(dropped_bytes[p] for p in members),
                }
            )
        return {"queues": queues}

    return {
        "profiles": {name: profile.model_dump() for name, profile in config.ecn_profiles.items()},
        "ports": await _gather(controller, target, ("egress.ce_marked", "egress.ecn_dropped"), (), row),
    }


async def qcn(controller: Controller, target: str | None) -> Json:
    """Congestion points: settings, queue now, samples and messages; per port, messages sent and received."""
    wanted = ("egress.tm_qcn_samples", "egress.tm_qcn_cnms", "egress.cnm_tx", "ingress.cnm_rx")
    names = wanted if all(name in controller.program.counters for name in wanted) else ()

    def row(switch: str, port: int, c: Counters, r: Registers) -> Json:
        settings = controller.running.switches[switch].ports[port]
        mac = int(settings.mac.replace(":", ""), 16)
        depth = _values(r, "egress.tm_queue_depth", port)
        found = {name: _packets(c, name, port) for name in names}
        points = [
            {
                "queue": queue,
                **point.model_dump(),
                "cpid": f"{cpid(mac, queue):016x}",
                "depth_bytes": depth[queue],
                "samples": found["egress.tm_qcn_samples"][queue] if names else None,
                "messages": found["egress.tm_qcn_cnms"][queue] if names else None,
            }
            for queue, point in sorted(settings.qcn.items())
        ]
        return {
            "points": points,
            "cnm_tx": sum(found["egress.cnm_tx"]) if names else None,
            "cnm_rx": sum(found["ingress.cnm_rx"]) if names else None,
        }

    return {"ports": await _gather(controller, target, names, ("egress.tm_queue_depth",), row)}


async def counters(controller: Controller, target: str | None) -> Json:
    """Packets and bytes per port and priority."""

    def row(_switch: str, port: int, c: Counters, _r: Registers) -> Json:
        return {
            "rx_packets": _packets(c, "ingress.rx", port),
            "rx_bytes": _bytes(c, "ingress.rx", port),
            "tx_packets": _packets(c, "egress.tx", port),
            "tx_bytes": _bytes(c, "egress.tx", port),
        }

    return {"ports": await _gather(controller, target, ("ingress.rx", "egress.tx"), (), row)}


async def queue(controller: Controller, target: str | None) -> Json:
    """Depth, watermark, what went through and what was dropped, per queue."""

    def row(_switch: str, port: int, c: Counters, r: Registers) -> Json:
        return {
            "depth_bytes": _values(r, "egress.tm_queue_depth", port),
            "watermark_bytes": _values(r, "egress.tm_queue_watermark", port),
            "enqueued_packets": _packets(c, "egress.tm_enqueued", port),
            "enqueued_bytes": _bytes(c, "egress.tm_enqueued", port),
            "dequeued_packets": _packets(c, "egress.tm_dequeued", port),
            "dequeued_bytes": _bytes(c, "egress.tm_dequeued", port),
            "dropped_packets": {reason: _packets(c, name, port) for name, reason in DROPS_BY_QUEUE.items()},
        }

    names = ("egress.tm_enqueued", "egress.tm_dequeued", *DROPS_BY_QUEUE)
    registers = ("egress.tm_queue_depth", "egress.tm_queue_watermark")
    return {"ports": await _gather(controller, target, names, registers, row)}


async def buffer(controller: Controller, target: str | None) -> Json:
    """Ingress priority groups: occupancy, headroom, watermarks, XOFF state, drops; and the pool of each switch."""
    config = controller.running
    registers = (
        "egress.tm_pg_depth",
        "egress.tm_pg_headroom",
        "egress.tm_pg_watermark",
        "egress.tm_pg_headroom_watermark",
        "egress.tm_pg_xoff",
    )

    def row(switch: str, port: int, c: Counters, r: Registers) -> Json:
        settings = config.switches[switch].ports[port]
        profiles = config.buffers_of(settings)
        xoff = _values(r, "egress.tm_pg_xoff", port)
        groups = []
        for pg in range(8):
            ref, profile = settings.buffers.get(pg), profiles.get(pg)
            groups.append(
                {
                    "pg": pg,
                    "profile": ref if isinstance(ref, str) else ("in place" if ref else None),
                    "limits": profile.model_dump(exclude_none=True) if profile else None,
                    "depth_bytes": _values(r, "egress.tm_pg_depth", port)[pg],
                    "headroom_bytes": _values(r, "egress.tm_pg_headroom", port)[pg],
                    "watermark_bytes": _values(r, "egress.tm_pg_watermark", port)[pg],
                    "headroom_watermark_bytes": _values(r, "egress.tm_pg_headroom_watermark", port)[pg],
                    "xoff": None if xoff[pg] is None else bool(xoff[pg]),
                    "dropped_packets": {reason: _packets(c, name, port)[pg] for name, reason in DROPS_BY_GROUP.items()},
                }
            )
        return {"groups": groups}

    rows = await _gather(controller, target, tuple(DROPS_BY_GROUP), registers, row)
    pools, headroom_pools = {}, {}
    for switch, _ports in select(config, target):
        settings = config.switches[switch]
        sizes: dict[int, int | None] = {0: None, **pools_of(settings)}
        pools[switch] = await _pools(controller, switch, "pool", sizes)
        headroom_pools[switch] = await _pools(controller, switch, "headroom_pool", settings.headroom_pools)
    return {"ports": rows, "pools": pools, "headroom_pools": headroom_pools}


async def _pools(controller: Controller, switch: str, kind: str, sizes: Mapping[int, int | None]) -> list[Json]:
    """Pools that the config names or that were ever used; size None: the target's default."""
    names = [f"egress.tm_{kind}_used", f"egress.tm_{kind}_watermark"]
    known = [name for name in names if name in controller.program.registers]
    read = await controller.read_registers(switch, known, [0])  # cells 0..7 are those of the pools
    used, watermark = ((_values(read, name, 0) if name in read else [None] * 8) for name in names)
    return [
        {"pool": pool, "size_bytes": sizes.get(pool), "used_bytes": used[pool], "watermark_bytes": watermark[pool]}
        for pool in range(8)
        if pool in sizes or used[pool] or watermark[pool]
    ]


async def drops(controller: Controller, target: str | None) -> Json:
    """Every counter of dropped packets, by reason; only what is not 0."""

    def row(_switch: str, port: int, c: Counters, _r: Registers) -> Json:
        found = []
        for name, reasons in DROPS.items():
            for n, reason in enumerate(reasons):
                found.append((reason, "", c[name].get((port, n), CounterValue())))
        for index, group in (("queue", DROPS_BY_QUEUE), ("pg", DROPS_BY_GROUP), ("priority", DROPS_BY_PRIORITY)):
            for name, reason in group.items():
                if name not in c:
                    continue
                found += [(reason, f"{index} {n}", c[name].get((port, n), CounterValue())) for n in range(8)]
        return {
            "drops": [
                {"reason": reason, "where": where, "packets": value.packets, "bytes": value.bytes}
                for reason, where, value in found
                if value.packets
            ]
        }

    known = (*DROPS, *DROPS_BY_QUEUE, *DROPS_BY_GROUP, *DROPS_BY_PRIORITY)
    names = tuple(name for name in known if name in controller.program.counters)
    return {"ports": await _gather(controller, target, names, (), row)}


async def route(controller: Controller, target: str | None) -> Json:
    """Routes as the switches hold them, with their next hops resolved."""
    rows = []
    for switch, _ports in select(controller.running, target):
        entities = await controller.session(switch).read_entities()
        members = {e.member_id: e.action for e in entities if isinstance(e, Member)}
        groups = {e.group_id: e.members for e in entities if isinstance(e, Group)}
        hops: dict[int, list[Json]] = {}
        for entity in entities:
            if isinstance(entity, TableEntry) and entity.table == "ingress.nexthop":
                number = dict(entity.match)["nexthop"]
                assert isinstance(number, int)
                hops[number] = _resolve(entity, members, groups)
        for entity in entities:
            if isinstance(entity, TableEntry) and entity.table in ("ingress.ipv4_lpm", "ingress.ipv6_lpm"):
                rows.append({"switch": switch} | _route(entity, hops))
    rows.sort(key=lambda item: (item["switch"], ":" in item["prefix"], int(item.pop("sort"))))
    return {"routes": rows}


def _resolve(
    entry: TableEntry, members: dict[int, Action], groups: dict[int, tuple[tuple[int, int], ...]]
) -> list[Json]:
    if isinstance(entry.action, MemberRef):
        listed: tuple[tuple[int, int], ...] = ((entry.action.member_id, 1),)
    elif isinstance(entry.action, GroupRef):
        listed = groups.get(entry.action.group_id, ())
    else:
        listed = ()
    found = []
    for member_id, weight in listed:
        action = members.get(member_id)
        if action is not None and action.name == "ingress.forward":
            mac = action["dst_mac"].to_bytes(6, "big").hex(":")
            found.append({"port": action["port"], "mac": mac, "weight": weight})
    return sorted(found, key=lambda hop: (hop["port"], hop["mac"]))


def _route(entry: TableEntry, hops: dict[int, list[Json]]) -> Json:
    match = dict(entry.match).get("dst", Lpm(0, 0))
    assert isinstance(match, Lpm)
    address: ipaddress.IPv4Address | ipaddress.IPv6Address = (
        ipaddress.IPv4Address(match.value) if entry.table == "ingress.ipv4_lpm" else ipaddress.IPv6Address(match.value)
    )
    row: Json = {"prefix": f"{address}/{match.prefix_len}", "sort": int(address)}
    action = entry.action
    if isinstance(action, Action) and action.name == "ingress.route":
        return row | {"action": "route", "nexthop": action["nexthop"], "via": hops.get(action["nexthop"], [])}
    name = action.name.rpartition(".")[2] if isinstance(action, Action) else str(action)
    return row | {"action": {"drop_route": "drop"}.get(name, name), "via": []}


async def thresholds(controller: Controller, target: str | None) -> Json:
    """Groups that a threshold policy moves: what is in force, its bounds, what was predicted, and what went wrong."""
    rows = []
    for switch, ports in select(controller.running, target):
        for (port, pg), group in sorted(controller.thresholds.groups.get(switch, {}).items()):
            if port in ports:
                policy, bounds = group.policy, group.bounds
                rows.append(
                    port_head(controller.running, switch, port)
                    | {
                        "pg": pg,
                        "predictor": group.policy_config.predictor,
                        "baseline_bytes": group.profile.xoff,
                        "predicted_bytes": policy.predicted_bytes,
                        "xoff_bytes": policy.setting.xoff_bytes,
                        "xon_bytes": policy.setting.xon_bytes,
                        "headroom_bytes": policy.setting.headroom_bytes,
                        "min_xoff_bytes": bounds.min_xoff_bytes,
                        "max_xoff_bytes": bounds.max_xoff_bytes,
                        "planned_headroom_bytes": bounds.headroom_bytes,
                        "changes": group.written,
                        "predictor_faults": policy.faults.raised + policy.faults.no_number,
                        "out_of_bounds": policy.faults.out_of_bounds,
                        "reason": policy.setting.reason,
                    }
                )
    return {"groups": rows, "faults": dict(controller.thresholds.faults)}


VIEWS: dict[str, Callable[[Controller, str | None], Awaitable[Json]]] = {
    "pfc": pfc,
    "pfc_priority": pfc_priority,
    "pfc_storm-control": pfc_storm_control,
    "ets": ets,
    "ecn": ecn,
    "qcn": qcn,
    "counters": counters,
    "queue": queue,
    "buffer": buffer,
    "drops": drops,
    "route": route,
    "thresholds": thresholds,
}


async def collect(controller: Controller, what: str, target: str | None) -> Json:
    """One view. KeyError on an unknown one; SelectionError, NotConnectedError, finsy.P4ClientError from below."""
    return await VIEWS[what](controller, target)
