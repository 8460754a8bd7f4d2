"""`make bench`: every figure in one run on one machine, as ratios. Numbers for people, no pass or fail."""

from __future__ import annotations

import os
import platform

from rich.console import Console
from rich.table import Table

from tests.bench import fabric, injection, veth


def main() -> None:
    console = Console(highlight=False)
    rates = []
    for rate in injection.run():
        console.print(f"{rate.name}: {rate.packets_per_s:,.0f} packets/s")
        rates.append(rate)
    if os.geteuid() == 0:
        for rate in veth.run():
            console.print(f"{rate.name}: {rate.packets_per_s:,.0f} packets/s")
            rates.append(rate)
    else:
        console.print("veth not measured: network namespaces need root (sudo make bench)")
    base = next((r for r in rates if r.name.startswith("bare forwarder")), None)
    table = Table(
        title=f"Packets/s, 128-byte frames, {platform.machine()}, {os.cpu_count()} cores", header_style="bold"
    )
    table.add_column("what")
    table.add_column("packets/s", justify="right")
    table.add_column("of the bare forwarder", justify="right")
    table.add_column("note")
    for rate in rates:
        ratio = f"{rate.packets_per_s / base.packets_per_s:.2f}" if base else "-"
        table.add_row(rate.name, f"{rate.packets_per_s:,.0f}", ratio, rate.note)
    console.print(table)
    hops = list(fabric.run())
    ns3 = next((rate.hops_per_s for rate in hops if rate.name.startswith("ns-3")), None)
    table = Table(title="Packet-hops/s in virtual time, one core", header_style="bold")
    for name in ("what", "packet-hops/s", "of ns-3", "note"):
        table.add_column(name, justify="left" if name in ("what", "note") else "right")
    for hop in hops:
        table.add_row(hop.name, f"{hop.hops_per_s:,.0f}", f"{hop.hops_per_s / ns3:.1f}" if ns3 else "-", hop.note)
    console.print(table)
    console.print(fabric.memory_text())


if __name__ == "__main__":
    main()
