"""Buffers that a fabric in virtual time needs, by the `exact` method (docs/headroom.md)."""

from __future__ import annotations

from dataclasses import replace

from dcb.headroom import exact_headroom
from topologies.description import Topology
from topologies.settings import Dcb

MTU_BYTES = 1100  # RoCEv2 with 1024 bytes of payload: 1082 without FCS
MARGIN_FRAMES = 2  # between XOFF and XON


def planned(
    topology: Topology,
    dcb: Dcb,
    *,
    length_m: int,
    mtu_bytes: int = MTU_BYTES,
    response_ps: int = 0,
    xoff_bytes: int | None = None,
) -> Dcb:
    """`dcb` with headroom that loses nothing on links of this length, and XOFF worth a round trip (at least 20 frames).

    XON is two frames below XOFF. The pool is what all static thresholds together may take.
    """
    rate_bps = max(link.rate_bps for link in topology.links)
    headroom = exact_headroom(rate_bps, length_m, mtu_bytes=mtu_bytes, response_ps=response_ps).headroom_bytes
    xoff = xoff_bytes if xoff_bytes is not None else max(20 * mtu_bytes, 2 * headroom)
    groups = sum(len(switch.ports) for switch in topology.switches) * max(1, len(dcb.pfc))
    return replace(
        dcb,
        reserved_bytes=min(3_000, xoff),
        xoff_bytes=xoff,
        xon_bytes=max(1, xoff - MARGIN_FRAMES * mtu_bytes),
        headroom_bytes=headroom,
        pool_bytes=max(dcb.pool_bytes, min(groups * xoff, 2**32 - 1)),
    )
