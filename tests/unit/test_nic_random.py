"""Random flows, losses, marks, pauses and buffers: everything arrives, and in the same way each time."""

from __future__ import annotations

import hashlib
import random

import pytest
from nic_pair import GBPS, MAC, US, Pair, config, wire_ps

from dcb.pfc import build_pfc, pfc_frame
from hosts.nic import FlowState, NicStats, connect_rdma, connect_tcp
from hosts.nic_config import Dcqcn, RdmaConfig, ReceiveBuffer, Recovery, TcpAlgorithm, TcpConfig

PEER = bytes.fromhex(MAC[1].replace(":", ""))


def scene(seed: int) -> Pair:
    """Flows both ways over a wire that loses 1 in 100 and marks 1 in 10, into buffers that pause."""
    choose = random.Random(seed)
    rate_bps = choose.choice((10, 25, 100, 400)) * GBPS

    def change(end: int, number: int, frame: bytes) -> bytes | None:
        if frame[12:14] == b"\x88\x08":
            return frame
        if choose.random() < 0.01:
            return None
        marked = frame[15] & 3 and choose.random() < 0.1
        return frame[:15] + bytes([frame[15] | 3]) + frame[16:] if marked else frame

    slow = ReceiveBuffer(drain_bps=rate_bps // 2, bytes=200_000, xoff_bytes=60_000, xon_bytes=30_000)
    ends = [
        config(end, rate_bps, buffer=slow if choose.random() < 0.5 else ReceiveBuffer(), pfc_rx=frozenset({0, 3}),
               pfc_tx=frozenset({0, 3}), weights=choose.choice(({}, {0: 1, 3: 2})))
        for end in (0, 1)
    ]  # fmt: skip
    pair = Pair(*ends, change=change)
    for _ in range(6):
        sender, receiver = choose.sample(pair.nics, 2)
        start_ps, size = choose.randrange(20 * US), choose.randrange(1, 200_000)
        if choose.random() < 0.6:
            rdma = RdmaConfig(
                bytes=size, start_ps=start_ps, mtu_bytes=choose.choice((256, 1024, 4096)), rto_ps=100 * US,
                message_bytes=choose.choice((0, 1000, 50_000)), window_bytes=choose.choice((0, 20_000)),
                ack_every=choose.choice((1, 4, 16)),
                dcqcn=Dcqcn.named(choose.choice(("off", "paper", "cx4")), rate_bps),
                recovery=Recovery.GO_BACK_N, initial_psn=choose.choice((0, (1 << 24) - 5)),
            )  # fmt: skip
            connect_rdma(sender, receiver, rdma)
        else:
            dctcp = choose.random() < 0.5
            tcp = TcpConfig(
                bytes=size, start_ps=start_ps, algorithm=TcpAlgorithm.DCTCP if dctcp else TcpAlgorithm.RENO,
                ecn=dctcp or choose.random() < 0.5, rto_min_ps=200 * US, rto_initial_ps=300 * US,
                delayed_ack_ps=50 * US,
            )  # fmt: skip
            connect_tcp(sender, receiver, tcp)
    for _ in range(5):
        at = choose.randrange(100 * US)
        pair.put(choose.randrange(2), build_pfc(pfc_frame(PEER, {choose.choice((0, 3)): choose.randrange(2000)})), at)
    return pair.run()


def digest(pair: Pair) -> str:
    state = hashlib.sha256()
    for end in pair.sent:
        for sent in end:
            state.update(b"%d %d " % (sent.start_ps, sent.end_ps) + sent.frame)
    return state.hexdigest()


def check_wire(pair: Pair, end: int) -> None:
    """No two frames at once, each as long as its bits."""
    before, rate_bps = 0, pair.nics[end].config.rate_bps
    for sent in pair.sent[end]:
        assert sent.start_ps >= before
        assert sent.end_ps - sent.start_ps == wire_ps(len(sent.frame), rate_bps)
        before = sent.end_ps


@pytest.mark.parametrize("seed", range(12))
def test_everything_arrives_and_the_wire_is_never_used_twice(seed: int) -> None:
    pair = scene(seed)
    for end, nic in enumerate(pair.nics):
        check_wire(pair, end)
        stats: NicStats = nic.stats()
        assert (stats.rx_malformed, stats.rx_unknown_flow, stats.rx_not_ours, stats.pfc_invalid) == (0, 0, 0, (0,) * 5)
        assert (stats.rx_drop, stats.rx_used_bytes) == (0, 0)
        assert stats.tx_frames == len(pair.sent[end])
        assert stats.tx_bytes == sum(len(s.frame) for s in pair.sent[end])
        for flow in nic.flows():
            assert flow.state in (FlowState.FINISHED, FlowState.RESPONDER)
            other = pair.nics[1 - end].flow(flow.flow)
            assert flow.bytes_acked == flow.bytes == (other.rx_bytes if flow.bytes else 0)


def test_the_same_seed_gives_the_same_frames_at_the_same_times() -> None:
    assert digest(scene(3)) == digest(scene(3))
    assert digest(scene(3)) != digest(scene(4))


def test_garbage_is_counted_and_harms_nothing() -> None:
    choose = random.Random(5)
    pair = scene(0)
    whole = [s.frame for s in pair.sent[0][:40]]
    at = pair.now_ps
    for _ in range(3000):
        frame = bytearray(choose.choice(whole))
        for _ in range(choose.randrange(1, 6)):
            frame[choose.randrange(12, min(len(frame), 80))] = choose.randrange(256)
        at += 1000
        pair.put(1, bytes(frame[: choose.choice((len(frame), choose.randrange(len(frame) + 1)))]), at)
    pair.put(1, bytes(20_000), at + 1)
    pair.run(at + 1000 * US)
    stats = pair.nics[1].stats()
    assert stats.rx_malformed > 0
    assert stats.rx_frames >= 3001
