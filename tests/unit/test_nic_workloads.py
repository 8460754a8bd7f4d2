"""Workloads: sizes and arrivals against their distributions, shapes, files; a ring all-reduce that runs."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from nic_pair import DELAY_PS, GBPS, US

from dcb.units import PS_PER_MS
from hosts import workloads
from hosts.nic import FlowState, Nic, NicError
from hosts.nic_config import Dcqcn, NicConfig, RdmaConfig
from hosts.workloads import HADOOP, WEB_SEARCH, Defaults, Flow, Protocol, SizeDistribution, WorkloadError

HOSTS = ("h1", "h2", "h3", "h4")


def run(nics: dict[str, Nic]) -> int:
    """A wire that knows every MAC: each NIC's frames arrive at the one they name. The time of the last event."""
    by_mac = {bytes.fromhex(nic.config.mac.replace(":", "")): nic for nic in nics.values()}
    flying: list[tuple[int, int, bytes]] = []
    count = 0

    def output(frame: bytes, _: int, end_ps: int) -> None:
        nonlocal count
        count += 1
        heapq.heappush(flying, (end_ps + DELAY_PS, count, frame))

    for nic in nics.values():
        nic.set_output(output)
    last = 0
    while True:
        times = [t for nic in nics.values() if (t := nic.next_deadline()) is not None]
        times += [flying[0][0]] if flying else []
        if not times:
            return last
        last = min(times)
        while flying and flying[0][0] == last:
            frame = heapq.heappop(flying)[2]
            by_mac[frame[:6]].receive(frame, last)
        for nic in nics.values():
            nic.advance(last)


def make_nics(names: tuple[str, ...] = HOSTS) -> dict[str, Nic]:
    return {n: Nic(NicConfig(f"02:00:00:00:01:{i:02x}", f"10.1.0.{i}", 100 * GBPS)) for i, n in enumerate(names, 1)}


def test_minus_ln_is_the_logarithm() -> None:
    for ratio in (
        Fraction(1),
        Fraction(1, 2),
        Fraction(1, 3),
        Fraction(7, 9),
        Fraction(1, 1 << 53),
        Fraction(999, 1000),
    ):
        ours = workloads.minus_ln(ratio.numerator, ratio.denominator)
        assert float(ours) == pytest.approx(-math.log(ratio), abs=2e-12)
    with pytest.raises(ValueError, match="must be more than 0"):
        workloads.minus_ln(0, 1)


def test_sizes_are_linear_between_the_points() -> None:
    assert WEB_SEARCH.at(15, 100) == 10_000
    assert WEB_SEARCH.at(175, 1000) == 15_000
    assert WEB_SEARCH.at(1, 1) == 30_000_000
    assert HADOOP.at(1, 1 << 53) == 1
    # by hand: sum of (a + b) / 2 * p
    web = (5 * 150 + 15 * 50 + 25 * 100 + 40 * 100 + 65 * 130 + 140 * 70) + (
        600 * 100 + 1500 * 100 + 3500 * 100 + 7500 * 70 + 20_000 * 30
    )
    assert WEB_SEARCH.mean_bytes == web
    assert web == 1_711_250


def test_poisson_keeps_its_load_its_sizes_and_its_seed() -> None:
    small = SizeDistribution("small", ((0, 0), (2000, 1)), whole=1)  # mean 1000
    flows = workloads.poisson(HOSTS, small, load=Fraction(1, 2), rate_bps=8 * GBPS, until_ps=PS_PER_MS * 2, seed=7)
    # 1000 bytes per 2 us and host: 1000 flows each
    per_host = Counter(flow.source for flow in flows)
    assert all(abs(n - 1000) < 4 * math.sqrt(1000) for n in per_host.values())
    assert abs(sum(f.bytes for f in flows) / len(flows) - 1000) < 4 * 2000 / math.sqrt(12 * len(flows))
    assert [f.start_ps for f in flows] == sorted(f.start_ps for f in flows)
    gaps = [b - a for a, b in pairwise(f.start_ps for f in flows if f.source == "h1")]
    beyond = sum(gap > 2 * US for gap in gaps) / len(gaps)  # e^-1 of exponential gaps exceed their mean
    assert abs(beyond - math.exp(-1)) < 4 * math.sqrt(0.23 / len(gaps))
    again = workloads.poisson(HOSTS, small, load=Fraction(1, 2), rate_bps=8 * GBPS, until_ps=PS_PER_MS * 2, seed=7)
    assert again == flows
    other = workloads.poisson(HOSTS, small, load=Fraction(1, 2), rate_bps=8 * GBPS, until_ps=PS_PER_MS * 2, seed=8)
    assert other != flows
    assert Counter(f.target for f in flows).keys() == set(HOSTS)


def test_a_seed_gives_these_very_flows_everywhere() -> None:
    flows = workloads.poisson(
        HOSTS, WEB_SEARCH, load=Fraction(3, 10), rate_bps=100 * GBPS, until_ps=2 * PS_PER_MS, seed=1
    )
    assert [(f.source, f.target, f.bytes, f.start_ps) for f in flows[:3]] == GOLDEN


GOLDEN = [("h3", "h2", 7922400, 57050831), ("h4", "h2", 70698, 79589467), ("h1", "h2", 7861, 257151376)]


def test_incast_and_all_to_all_name_every_pair_once() -> None:
    assert [(f.source, f.target) for f in workloads.incast(HOSTS[1:], "h1", 10)] == [(h, "h1") for h in HOSTS[1:]]
    flows = workloads.all_to_all(HOSTS, 10)
    assert Counter((f.source, f.target) for f in flows) == {(a, b): 1 for a in HOSTS for b in HOSTS if a != b}
    for wave in range(3):  # in each wave every host receives once
        assert {f.target for f in flows[4 * wave : 4 * wave + 4]} == set(HOSTS)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_ring_all_reduce_moves_2_n_minus_1_chunks_and_a_step_waits_for_the_one_before(n: int) -> None:
    nics = make_nics(HOSTS[:n])
    flows = workloads.ring_all_reduce(HOSTS[:n], 40_000)
    started = workloads.start(flows, nics, defaults=Defaults(rdma=RdmaConfig(ack_every=4)))
    last = run(nics)
    chunk, steps = -(-40_000 // n), 2 * (n - 1)
    for this in started:
        sender = nics[this.flow.source].flow(this.connection.sender)
        receiver = nics[this.flow.target].flow(this.connection.receiver)
        assert sender.state is FlowState.FINISHED
        assert (receiver.rx_messages, receiver.rx_bytes) == (steps, steps * chunk)
    # a step takes a chunk on the wire and the way to the next host, and ACKs (86 bytes each) that go between
    packets = [1024] * (chunk // 1024) + ([chunk % 1024] if chunk % 1024 else [])
    step_ps = sum((14 + 20 + 8 + 12 + p + -p % 4 + 4 + 24) * 80 for p in packets) + 16 * 80 + DELAY_PS
    acks_ps = (len(packets) // 4 + 1) * 86 * 80
    ended = nics["h1"].flow(started[-1].connection.receiver).rx_last_ps
    assert ended is not None
    assert steps * step_ps <= ended <= steps * (step_ps + acks_ps)
    assert last > ended


def test_flows_run_with_the_settings_of_their_protocol_and_dscp() -> None:
    nics = make_nics(HOSTS[:2])
    flows = [
        Flow("h1", "h2", 5000, protocol=Protocol.TCP),
        Flow("h1", "h2", 5000, dscp=48),
        Flow("h2", "h1", 5000, start_ps=3 * US),
    ]
    started = workloads.start(flows, nics, defaults=Defaults(rdma=RdmaConfig(dcqcn=Dcqcn.paper())))
    run(nics)
    assert [nics[s.flow.source].flow(s.connection.sender).bytes_acked for s in started] == [5000] * 3
    assert nics["h1"].stats().tx_frames_prio[6] == 5  # DSCP 48
    assert nics["h1"].stats().tx_frames_prio[0] == 4
    assert nics["h2"].flow(started[2].connection.sender).first_ps == 3 * US


def test_files_round_trip_and_say_which_line_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "flows.csv"
    flows = [Flow("h1", "h2", 10, 5), Flow("h2", "h3", 20, 6, Protocol.TCP, 0)]
    workloads.write_csv(path, flows)
    assert workloads.read_csv(path) == flows
    path.write_text("source,target,bytes,start_ps\nh1,h2,10,0\nh1,h1,10,0\n")
    with pytest.raises(WorkloadError, match=r"flows\.csv:3: target: h1 is the source"):
        workloads.read_csv(path)
    path.write_text("source,target,size\n")
    with pytest.raises(WorkloadError, match="columns: \\['size'\\] are not known"):
        workloads.read_csv(path)
    with pytest.raises(WorkloadError, match="depends on another"):
        workloads.write_csv(path, workloads.ring_all_reduce(HOSTS, 10))


def test_hpcc_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "flow.txt"
    path.write_text("2\n0 1 3 100 200000000 2\n3 0 0 101 1000 2.000000125\n")
    assert workloads.read_hpcc(path, HOSTS) == [
        Flow("h1", "h2", 200_000_000, 2 * 10**12, dscp=26),
        Flow("h4", "h1", 1000, 2 * 10**12 + 125_000, dscp=0),
    ]
    path.write_text("3\n0 1 3 100 200000000 2\n")
    with pytest.raises(WorkloadError, match="3 flows are promised, the file has 1"):
        workloads.read_hpcc(path, HOSTS)
    path.write_text("1\n0 9 3 100 200000000 2\n")
    with pytest.raises(WorkloadError, match=r"flow\.txt:2: .*host 9 is out of range, must be 0\.\.3"):
        workloads.read_hpcc(path, HOSTS)


def test_what_breaks_a_rule_is_refused() -> None:
    with pytest.raises(WorkloadError, match="must divide bytes"):
        Flow("a", "b", 10, messages=3)
    with pytest.raises(WorkloadError, match="parts go from 0 to 2, must be from 0 to 1"):
        SizeDistribution("x", ((0, 0), (1, 2)), whole=1)
    with pytest.raises(WorkloadError, match="each once"):
        workloads.all_to_all(["h1", "h1"], 1)
    with pytest.raises(WorkloadError, match="host h9: has no NIC"):
        workloads.start([Flow("h1", "h9", 1)], make_nics())
    nics = make_nics()
    workloads.start(workloads.ring_all_reduce(HOSTS, 100), nics)
    with pytest.raises(NicError, match="waits for flow"):
        nics["h1"].wait_flow(0, 1)
