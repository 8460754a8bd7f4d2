"""What the kernel of this network namespace knows: the way to an address, the next hop's MAC, interfaces.

Reads `ip -j` (iproute2), writes nothing. Faults are `NetError`, which name what was asked and what is missing.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from dataclasses import dataclass
from typing import Any


class NetError(RuntimeError):
    """A route, neighbour or interface that is not there."""


@dataclass(frozen=True, slots=True)
class Way:
    """How frames to an address leave: interface, source address, MAC addresses (colon form)."""

    device: str
    src_ip: str
    src_mac: str
    dst_mac: str


def _ip(*arguments: str) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(["ip", "-j", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NetError("the program 'ip' (iproute2) is not on the PATH") from None
    if done.returncode != 0:
        raise NetError(f"ip {' '.join(arguments)}: {done.stderr.strip() or done.returncode}")
    # iproute2 pads its lists with empty objects
    return [item for item in json.loads(done.stdout or "[]") if item]


def device_mac(device: str) -> str:
    """MAC address of an interface. NetError where there is no such interface or it has none."""
    links = _ip("link", "show", "dev", device)
    if not links or len(links[0].get("address", "")) != 17:
        raise NetError(f"interface {device}: has no MAC address")
    return str(links[0]["address"])


def default_device() -> str:
    """The one Ethernet interface that is up. NetError where there is none, or more than one to choose from."""
    names = [str(link["ifname"]) for link in _ip("link", "show", "up") if link.get("link_type") == "ether"]
    if len(names) != 1:
        found = f"several are: {', '.join(names)}" if names else "none is"
        raise NetError(f"--dev is required: not exactly one Ethernet interface is up, {found}")
    return names[0]


def find_way(dst_ip: str, *, device: str | None = None, src_ip: str | None = None, dst_mac: str | None = None) -> Way:
    """The way to `dst_ip`; what is given is taken, the rest looked up in routes and neighbours.

    A neighbour that the kernel does not know is an error and is not resolved: a lab's neighbours are static.
    """
    family = "-6" if ipaddress.ip_address(dst_ip).version == 6 else "-4"
    if device is None or src_ip is None or dst_mac is None:
        over = ["oif", device] if device else []
        route = (_ip(family, "route", "get", dst_ip, *over) or [{}])[0]
        device = device or route.get("dev")
        if not device:
            raise NetError(f"no route to {dst_ip}")
        src_ip = src_ip or route.get("prefsrc")
        if not src_ip:
            raise NetError(f"--src is required: interface {device} has no address to reach {dst_ip} from")
        if dst_mac is None:
            hop = str(route.get("gateway") or dst_ip)
            entries = _ip(family, "neigh", "show", "to", hop, "dev", device)
            known = [str(entry["lladdr"]) for entry in entries if "lladdr" in entry]
            if not known:
                raise NetError(f"--dst-mac is required: no neighbour entry for {hop} on {device}")
            dst_mac = known[0]
    return Way(device, src_ip, device_mac(device), dst_mac)
