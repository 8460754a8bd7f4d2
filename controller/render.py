"""The views of `views` as tables for people, in the shapes that users of SONiC and of iproute2's `dcb` know.

Sans-IO: each function takes the JSON of a view and returns rich renderables or lines of text.
"""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dcb.units import format_rate

Json = dict[str, Any]


def _table(title: str, *columns: str, left: int = 1) -> Table:
    """A table with `left` left-aligned columns, the others right-aligned numbers."""
    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right", no_wrap=True)
    return table


def number(value: int | None) -> str:
    """Thousands separators, N/A where there is no value."""
    return "N/A" if value is None else f"{value:,}"


def milliseconds(value_ns: int | None) -> str:
    """Nanoseconds as milliseconds with three digits, exact integer arithmetic; N/A where there is no value."""
    return "N/A" if value_ns is None else f"{value_ns // 10**6:,}.{value_ns % 10**6 // 10**3:03d}"


def rate(value_bps: int) -> str:
    """A rate as in the config."""
    return format_rate(value_bps)


def pfc(view: Json) -> RenderableType:
    """`show pfc counters` of SONiC (frames that name the priority, XOFF and XON together), and the pause time."""
    names = [f"PFC{n}" for n in range(8)]
    rx, tx = _table("", "Port Rx", *names), _table("", "Port Tx", *names)
    paused, count = _table("", "Paused ms", *names), _table("", "Pauses", *names)
    for port in view["ports"]:
        rx.add_row(port["name"], *(number(a + b) for a, b in zip(port["rx_xoff"], port["rx_xon"], strict=True)))
        tx.add_row(port["name"], *(number(a + b) for a, b in zip(port["tx_xoff"], port["tx_xon"], strict=True)))
        paused.add_row(port["name"], *(milliseconds(value) for value in port["paused_ns"]))
        count.add_row(port["name"], *(number(value) for value in port["pause_count"]))
    parts: list[RenderableType] = [rx, tx, paused, count]
    bad = [
        (port["name"], reason, value) for port in view["ports"] for reason, value in port["rx_invalid"].items() if value
    ]
    if bad:
        table = _table("PFC frames at fault", "Port", "Reason", "Frames", left=2)
        for name, reason, value in bad:
            table.add_row(name, reason, number(value))
        parts.append(table)
    return Group(*parts)


def pfc_storm_control(view: Json) -> RenderableType:
    """Limit, action and count of storm control; dialect and asymmetry of PFC."""
    table = _table(
        "", "Port", "Action", "Rate/s", "Burst", "Ignored", "Counted", "Alarm", "Dialect rx", "tx", "Asym", left=2
    )
    for port in view["ports"]:
        storm = port["storm_control"] or {}
        table.add_row(
            port["name"],
            storm.get("action", "off"),
            number(storm["rate"]) if storm else "-",
            number(storm["burst"]) if storm else "-",
            number(port["ignored_frames"]),
            number(port["counted_frames"]),
            "ALARM" if port["alarm"] else "-",
            port["dialect_rx"],
            port["dialect_tx"],
            "on" if port["asymmetric"] else "off",
        )
    return table


def _listed(priorities: list[int]) -> str:
    return ",".join(str(priority) for priority in priorities) or "N/A"


def pfc_priority(view: Json) -> RenderableType:
    """`pfc show priority` of SONiC: the priorities with PFC of each port; lossless ones without PFC stand beside."""
    table = _table("", "Interface", "Lossless priorities", "Lossless class", "Quanta", "PAUSE", left=3)
    for port in view["ports"]:
        table.add_row(
            port["name"],
            _listed(port["pfc"]),
            _listed(port["lossless"]),
            number(port["quanta"]),
            "on" if port["pause_rx"] else "off",
        )
    return table


def ets(view: Json) -> RenderableType:
    """Scheduler of each queue."""
    table = _table("", "Port", "Rate", "Queue", "TSA", "Weight", "Share %", "Slope", "Priorities")
    for port in view["ports"]:
        for index, queue in enumerate(port["queues"]):
            table.add_row(
                port["name"] if index == 0 else "",
                rate(port["rate_bps"]) if index == 0 else "",
                str(queue["queue"]),
                queue["tsa"],
                str(queue["weight"]) if "weight" in queue else "-",
                f"{queue['share_percent']:.1f}" if "share_percent" in queue else "-",
                rate(queue["idle_slope_bps"]) if "idle_slope_bps" in queue else "-",
                _listed(queue["priorities"]).replace("N/A", "-"),
                end_section=index == 7,
            )
    return table


def percentages(weights: list[int]) -> list[int]:
    """Weights -> whole percentages that sum to 100 (largest remainder first, then lower index); no weights: all 0."""
    total = sum(weights)
    if total == 0:
        return [0] * len(weights)
    result = [100 * weight // total for weight in weights]
    order = sorted(range(len(weights)), key=lambda n: (-(100 * weights[n] % total), n))
    for n in order[: 100 - sum(result)]:
        result[n] += 1
    return result


def ets_dcb(view: Json) -> str:
    """`dcb ets show dev ... prio-tc tc-tsa tc-bw` of iproute2; bandwidth of the configured ETS queues in percent."""
    lines = []
    for port in view["ports"]:
        queues = port["queues"]
        queue_of = {priority: queue["queue"] for queue in queues for priority in queue["priorities"]}
        bandwidth = percentages([queue.get("weight", 0) if queue["configured"] else 0 for queue in queues])
        lines += [
            f"dev {port['name']}",
            "prio-tc " + " ".join(f"{priority}:{queue_of[priority]}" for priority in range(8)),
            "tc-tsa " + " ".join(f"{queue['queue']}:{queue['tsa'].replace('cb-shaper', 'cbs')}" for queue in queues),
            "tc-bw " + " ".join(f"{n}:{value}" for n, value in enumerate(bandwidth)),
        ]
    return "\n".join(lines)


def pfc_dcb(view: Json) -> str:
    """`dcb -s pfc show dev ...` of iproute2: requests are XOFF frames sent, indications XOFF frames received."""
    lines = []
    for port in view["ports"]:
        lines += [
            f"dev {port['name']}",
            "pfc-cap 8 macsec-bypass off delay 0",
            "prio-pfc " + " ".join(f"{n}:{'on' if n in port['enabled'] else 'off'}" for n in range(8)),
            "requests " + " ".join(f"{n}:{value}" for n, value in enumerate(port["tx_xoff"])),
            "indications " + " ".join(f"{n}:{value}" for n, value in enumerate(port["rx_xoff"])),
        ]
    return "\n".join(lines)


def ecn(view: Json) -> RenderableType:
    """The profiles as `ecnconfig -l`, then `show queue wredcounters`."""
    parts: list[RenderableType] = []
    for name, profile in view["profiles"].items():
        table = _table(f"Profile: {name}", "", "", left=1)
        table.show_header = False
        for key, value in profile.items():
            shown = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
            table.add_row(key, shown)
        parts.append(table)
    columns = ("WredDrp/pkts", "WredDrp/bytes", "EcnMarked/pkts", "EcnMarked/bytes")
    counters = _table("", "Port", "TxQ", "Profile", *columns, left=3)
    for port in view["ports"]:
        for index, queue in enumerate(port["queues"]):
            counters.add_row(
                port["name"] if index == 0 else "",
                f"UC{queue['queue']}",
                queue["profile"] or "-",
                number(queue["dropped_packets"]),
                number(queue["dropped_bytes"]),
                number(queue["marked_packets"]),
                number(queue["marked_bytes"]),
                end_section=index == 7,
            )
    return Group(*parts, counters)


def qcn(view: Json) -> RenderableType:
    """Congestion points of 802.1Qau, then the messages of each port."""
    columns = ("Queue", "CPID", "Qeq", "w", "Sample", "Jitter", "CNM prio", "Depth", "Samples", "CNMs")
    points = _table("Congestion points (bytes)", "Port", *columns, left=3)
    frames = _table("Congestion notification messages", "Port", "Sent", "Received and dropped", left=1)
    for port in view["ports"]:
        for point in port["points"]:
            w = f"{2 ** point['weight']}" if point["weight"] >= 0 else f"1/{2 ** -point['weight']}"
            points.add_row(
                *(port["name"], str(point["queue"]), point["cpid"], number(point["qeq"]), w, number(point["sample"])),
                *(f"{point['jitter']}%", str(point["priority"]), number(point["depth_bytes"])),
                *(number(point["samples"]), number(point["messages"])),
            )
        frames.add_row(port["name"], number(port["cnm_tx"]), number(port["cnm_rx"]))
    return Group(points, frames) if points.row_count else Group("no congestion points: `qcn` of a port", frames)


def counters(view: Json) -> RenderableType:
    """Packets and bytes per port and priority; priorities without traffic are left out."""
    table = _table("", "Port", "Priority", "RX packets", "RX bytes", "TX packets", "TX bytes", left=2)
    columns = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
    for port in view["ports"]:
        rows = [(n, [port[name][n] for name in columns]) for n in range(8)]
        rows = [(n, values) for n, values in rows if any(values)]
        for n, values in rows:
            table.add_row(port["name"], str(n), *(number(value) for value in values))
        table.add_row(port["name"], "all", *(number(sum(port[name])) for name in columns), end_section=True)
    return table


def queue(view: Json) -> RenderableType:
    """Depth and watermark in bytes, packets through, drops by reason."""
    reasons = list(view["ports"][0]["dropped_packets"]) if view["ports"] else []
    table = _table(
        "", "Port", "Queue", "Depth", "Watermark", "Enqueued", "Dequeued", *(f"Drop: {r}" for r in reasons), left=2
    )
    for port in view["ports"]:
        for n in range(8):
            table.add_row(
                port["name"] if n == 0 else "",
                str(n),
                number(port["depth_bytes"][n]),
                number(port["watermark_bytes"][n]),
                number(port["enqueued_packets"][n]),
                number(port["dequeued_packets"][n]),
                *(number(port["dropped_packets"][reason][n]) for reason in reasons),
                end_section=n == 7,
            )
    return table


def buffer(view: Json) -> RenderableType:
    """Ingress priority groups that have a profile or were ever used, and the pools."""
    columns = ("Depth", "Watermark", "Headroom", "Headroom wm", "XOFF", "Drop: pg", "Drop: headroom", "Drop: pool")
    table = _table("", "Port", "PG", "Profile", *columns, left=3)
    for port in view["ports"]:
        used = [g for g in port["groups"] if g["profile"] or g["watermark_bytes"] or any(g["dropped_packets"].values())]
        for index, group in enumerate(used):
            table.add_row(
                port["name"] if index == 0 else "",
                str(group["pg"]),
                group["profile"] or "-",
                number(group["depth_bytes"]),
                number(group["watermark_bytes"]),
                number(group["headroom_bytes"]),
                number(group["headroom_watermark_bytes"]),
                {None: "N/A", True: "yes", False: "no"}[group["xoff"]],
                *(number(value) for value in group["dropped_packets"].values()),
                end_section=index == len(used) - 1,
            )
    pools = _table("", "Switch", "Pool", "Used", "Watermark", "Size", left=2)
    for kind, title in (("pools", "shared"), ("headroom_pools", "headroom")):
        for name, listed in view[kind].items():
            for pool in listed:
                size = number(pool["size_bytes"]) if pool["size_bytes"] else "default"
                row = (number(pool["used_bytes"]), number(pool["watermark_bytes"]), size)
                pools.add_row(name, f"{title} {pool['pool']}", *row)
    return Group(table, pools)


def drops(view: Json) -> RenderableType:
    """Dropped packets by reason; a line for each counter that is not 0."""
    table = _table("", "Port", "Reason", "Where", "Packets", "Bytes", left=3)
    for port in view["ports"]:
        for item in port["drops"]:
            table.add_row(port["name"], item["reason"], item["where"], number(item["packets"]), number(item["bytes"]))
    if table.row_count == 0:
        table.add_row("-", "no packet was dropped", "", "0", "0")
    return table


def thresholds(view: Json) -> RenderableType:
    """Groups with a threshold policy."""
    columns = ("Baseline", "Predicted", "XOFF", "XON", "Headroom", "Lowest", "Highest", "Changes", "Faults")
    table = _table("", "Port", "PG", "Predictor", *columns, left=3)
    names = ("baseline", "predicted", "xoff", "xon", "headroom", "min_xoff", "max_xoff")
    for row in view["groups"]:
        sizes = (number(row[f"{name}_bytes"]) for name in names)
        faults = number(row["predictor_faults"])
        table.add_row(row["name"], str(row["pg"]), row["predictor"], *sizes, number(row["changes"]), faults)
    if table.row_count == 0:
        table.add_row("-", "", "no group has a policy", *[""] * len(columns))
    return Group(table, *(Text(f"{name}: {fault}") for name, fault in view["faults"].items()))


def route(view: Json) -> RenderableType:
    """Prefix and next hops as the switch holds them."""
    table = _table("", "Switch", "Prefix", "Action", "Nexthop", "Port", "MAC", "Weight", left=4)
    for item in view["routes"]:
        hops = item["via"] or [{"port": "-", "mac": "-", "weight": "-"}]
        for index, hop in enumerate(hops):
            head = (item["switch"], item["prefix"], item["action"], str(item.get("nexthop", "-")))
            table.add_row(
                *(head if index == 0 else ("", "", "", "")), str(hop["port"]), str(hop["mac"]), str(hop["weight"])
            )
    return table


def status(view: Json) -> RenderableType:
    """One line per switch, then last errors and warnings about the config."""
    columns = ("Entries", "Updates", "Pipeline pushes", "Connects", "Packet-ins")
    table = _table("", "Switch", "State", "Address", *columns, left=3)
    notes = [f"{item['name']}: {item['last_error']}" for item in view["switches"] if item["last_error"]]
    notes += [f"warning: {warning}" for warning in view["warnings"]]
    for item in view["switches"]:
        table.add_row(
            item["name"],
            item["state"],
            item["address"],
            number(item["entries"]),
            number(item["updates_written"]),
            number(item["pipeline_pushes"]),
            number(item["connects"]),
            number(item["packets_in"]),
        )
    return Group(table, *(Text(note) for note in notes))


TABLES = {
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
    "status": status,
}
