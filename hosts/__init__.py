"""The end stations of a lab: RoCEv2 traffic that honours PFC (C, built on first use) and test traffic made with scapy.

Shape: `build` compiles `native/*.c`; `roce` is the sender and receiver; `cli` is `dcbtraffic`, on `packets` (builds
and reads frames), `wire` (packet sockets) and `net` (routes and neighbours of this namespace). Launchers run the
executables in the hosts' namespaces and read JSON lines; nothing here knows a switch or a topology.
"""

from __future__ import annotations

from pathlib import Path


def roce_binary() -> Path:
    """The executable of `hosts.roce`, built if need be. Raises `hosts.build.BuildError`."""
    from hosts.roce import binary

    return binary()
