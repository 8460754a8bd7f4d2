"""The cliff: with the headroom that `dcb.headroom.exact` plans nothing is lost over a cable, with one byte less a frame
is.

h1 sends lossless frames without a gap into a leaf whose way to h2 is stuck; h2 sends long frames the other way, so that
the PFC frame has to wait, in the worst case for all but a picosecond of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from virtual_lab import LOSSLESS, G, lossless_buffers, virtual_lab

from dcb.headroom import exact_headroom
from dcb.headroom.exact import frames_in_window, link_ps, uniform_headroom, window_ps, wire_ps
from topologies.description import leaf_spine

XOFF, XON = 30_000, 20_000
INDEX = 1 * 8 + LOSSLESS


@dataclass
class Run:
    sent: int
    headroom_used: int
    dropped: int


def run(headroom: int, rate_bps: int, length_m: int, frame: int, response_ps: int, reverse: int, start_ps: int) -> Run:
    with virtual_lab(leaf_spine(1, 1, 2, rate_bps), length_m=length_m, pfc_response_ps=response_ps, trace=False) as lab:
        leaf = lab.cores["leaf1"]
        lossless_buffers(leaf, lab.topology.switch("leaf1"), XOFF, XON, headroom)
        leaf.tm.block_port(2, True)
        lab.testers["h1"].send(lab.frame("h1", "h2", frame), count=None, priority=LOSSLESS)
        if reverse:
            lab.testers["h2"].send(lab.frame("h2", "h1", reverse, priority=0), count=None, start_ps=start_ps)
        lab.fabric.run(
            wire_ps(frame, rate_bps) * 100 + 4 * link_ps(length_m) + response_ps + 20 * wire_ps(9216, rate_bps)
        )
        return Run(
            lab.testers["h1"].count("tx_frames"),
            leaf.tm.read_state("pg_headroom_watermark", INDEX),
            leaf.tm.read_counter("drop_headroom", INDEX).packets,
        )


@pytest.mark.parametrize(
    ("rate_bps", "length_m", "frame", "response_ps", "reverse"),
    [
        (100 * G, 0, 1000, 0, 0),
        (100 * G, 40, 1500, 0, 1500),
        (100 * G, 300, 1500, 700_000, 9216),
        (10 * G, 100, 9000, 0, 9216),
        (400 * G, 40, 4096, 1_000_000, 9216),
        (25 * G, 5, 200, 0, 1500),
    ],
)
def test_the_cliff(rate_bps: int, length_m: int, frame: int, response_ps: int, reverse: int) -> None:
    byte = 8 * 10**12 // rate_bps
    delay = link_ps(length_m)
    crossing = -(-XOFF // frame)
    crossing_ps = crossing * (frame + 24) * byte - 12 * byte + delay
    start_ps = 0
    if reverse:  # so that one of h2's frames starts out of the leaf 1 ps before the crossing frame has arrived
        first_ps = (reverse + 12) * byte + delay
        start_ps = (crossing_ps - 1 - first_ps) % ((reverse + 24) * byte)
        assert start_ps + first_ps <= crossing_ps - 1
    window = window_ps(rate_bps, delay, reverse_mtu_bytes=reverse, response_ps=response_ps)
    needed = uniform_headroom(window, rate_bps, frame, XOFF)
    sent = crossing + frames_in_window(window, rate_bps, frame)
    arguments = (rate_bps, length_m, frame, response_ps, reverse, start_ps)
    assert run(needed, *arguments) == Run(sent, needed, 0)
    short = run(needed - 1, *arguments)
    assert (short.sent, short.dropped) == (sent, 1)
    planned = exact_headroom(
        rate_bps, length_m, mtu_bytes=frame, reverse_mtu_bytes=reverse, response_ps=response_ps
    ).headroom_bytes
    assert needed <= planned < needed + 2 * frame
