"""The packet-socket driver over veth pairs in its own namespaces: order, content, tags, loss, lost interfaces."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from l2_core import LOSSLESS, frame, library, pfc, read_pfc, tag_of
from scapy.utils import RawPcapReader

from switch.core import StaticGroup, StaticLimit, SwitchCore, SwitchCoreError

pytestmark = pytest.mark.mininet

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_AUXDATA = 263, 23, 8
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class Wire:
    """The far end of a port: a raw socket in the namespace of the hosts."""

    def __init__(self, interface: str) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.socket.bind((interface, ETH_P_ALL))

    def send(self, data: bytes) -> None:
        while True:
            try:
                self.socket.send(data)
                return
            except (BlockingIOError, OSError) as error:
                if error.errno not in (11, 105):  # EAGAIN, ENOBUFS
                    raise
                select.select([], [self.socket], [], 0.01)

    def receive(self, count: int, timeout: float = 5.0) -> list[bytes]:
        """So many test or MAC control frames, tags put back; fewer when time runs out."""
        frames: list[bytes] = []
        deadline = time.monotonic() + timeout
        while len(frames) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                break
            data, auxiliary, _, _ = self.socket.recvmsg(20_000, 256)
            for level, kind, value in auxiliary:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                    status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", value)
                    if status & 0x10:
                        data = data[:12] + struct.pack(">HH", tpid, tci) + data[12:]
            if data[12:14] in (b"\x88\xb5", b"\x88\x08", b"\x81\x00", b"\x88\xa8"):
                frames.append(data)
        return frames


class Lab:
    """One switch namespace, one host namespace, veth pairs s1-h1 .. sN-hN between them."""

    def __init__(self, ports: int, mtu: int = 1500) -> None:
        self.names = [f"dcbdrv-s-{os.getpid()}", f"dcbdrv-h-{os.getpid()}"]
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.spaces: list[int] = []
        self.ports = ports
        self.mtu = mtu

    def __enter__(self) -> Lab:
        for name in self.names:
            run("ip", "netns", "add", name)
            self.spaces.append(os.open(f"/run/netns/{name}", os.O_RDONLY))
            run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        for port in range(1, self.ports + 1):
            self.link(port)
        return self

    def link(self, port: int) -> None:
        switch, hosts = self.names
        run(
            "ip", "link", "add", f"s{port}", "netns", switch, "mtu", str(self.mtu),
            "type", "veth", "peer", f"h{port}", "netns", hosts, "mtu", str(self.mtu),
        )  # fmt: skip
        run("ip", "-n", switch, "link", "set", f"s{port}", "up")
        run("ip", "-n", hosts, "link", "set", f"h{port}", "up")

    @contextlib.contextmanager
    def inside(self, which: int) -> Iterator[None]:
        """This thread in the switch's (0) or the hosts' (1) namespace."""
        if _libc.setns(self.spaces[which], CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            _libc.setns(self.home, CLONE_NEWNET)

    def wire(self, port: int) -> Wire:
        with self.inside(1):
            return Wire(f"h{port}")

    def __exit__(self, *exc: object) -> None:
        for fd in (*self.spaces, self.home):
            os.close(fd)
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@contextlib.contextmanager
def running(lab: Lab, *, debug: bool = True, pcap_dir: Path | None = None) -> Iterator[SwitchCore]:
    core = SwitchCore.from_library(library(debug=debug))
    try:
        with lab.inside(0):
            core.start_driver({port: f"s{port}" for port in range(1, lab.ports + 1)}, pcap_dir)
        yield core
    finally:
        core.close()


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(3) as made:
        yield made


def wait_for(what: object, timeout: float = 5.0) -> None:
    """Until `what()` is true; what it asks about has no event to wait for."""
    deadline = time.monotonic() + timeout
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline, "timeout"
        select.select([], [], [], 0.005)


def test_frames_arrive_in_order_and_unchanged(lab: Lab) -> None:
    with running(lab) as core:
        one, two = lab.wire(1), lab.wire(2)
        sent = [frame(60 + n % 1455, to=2, tag=n, priority=n & 7 if n < 100 else 0) for n in range(3_000)]
        got: list[bytes] = []
        for start in range(0, len(sent), 100):
            for data in sent[start : start + 100]:
                one.send(data)
            got += two.receive(100)
        assert len(got) == 3_000
        assert sorted(got[:100], key=tag_of) == sent[:100]
        assert got[100:] == sent[100:]
        assert core.stats()["received"] == core.stats()["transmitted"] == 3_000
        assert core.tm.read_counter("drop_rx", 8).packets == 0


@pytest.mark.parametrize(("tpid", "tci"), [(0x8100, 0x6064), (0x8100, 0x0000), (0x8100, 0xFFFF), (0x88A8, 0x2001)])
def test_vlan_tags_stay_where_they_were(lab: Lab, tpid: int, tci: int) -> None:
    """The kernel takes a tag out of a received frame; the driver puts it back, tag control information and all."""
    with running(lab) as core:
        one, two = lab.wire(1), lab.wire(2)
        for tag in range(3):
            plain = frame(100 + tag, to=2, tag=tag)
            tagged = plain[:12] + struct.pack(">HH", tpid, tci) + plain[12:]
            one.send(tagged)
            assert two.receive(1) == [tagged]
        assert core.tm.read_counter("enqueued", 16).bytes == 104 + 105 + 106


def test_pcap_files_hold_what_came_and_went(lab: Lab, tmp_path: Path) -> None:
    tagged = frame(100, to=2)[:12] + struct.pack(">HH", 0x8100, 0x6064) + frame(100, to=2)[12:]
    sent = [tagged, frame(64, to=2, tag=7)]
    with running(lab, pcap_dir=tmp_path):
        one, two = lab.wire(1), lab.wire(2)
        for data in sent:
            one.send(data)
        assert two.receive(2) == sent
    assert [data for data, _ in RawPcapReader(str(tmp_path / "s1_in.pcap"))] == sent
    assert [data for data, _ in RawPcapReader(str(tmp_path / "s2_out.pcap"))] == sent
    assert list(RawPcapReader(str(tmp_path / "s3_out.pcap"))) == []


def test_no_loss_between_three_ports_at_a_moderate_rate(lab: Lab) -> None:
    with running(lab, debug=False) as core:
        wires = {port: lab.wire(port) for port in (1, 2, 3)}
        count, got = 20_000, {2: 0, 3: 0}
        for start in range(0, count, 200):
            for n in range(start, start + 200):
                wires[1].send(frame(200, to=2 + n % 2, tag=n))
            for port in (2, 3):
                frames = wires[port].receive(100)
                assert [tag_of(data) for data in frames] == list(range(start + port - 2, start + 200, 2))
                got[port] += len(frames)
        assert got == {2: count // 2, 3: count // 2}
        assert core.tm.read_counter("drop_rx", 8).packets == 0
        assert core.packets_held == 0


def test_port_rate_holds_in_real_time(lab: Lab) -> None:
    """100 frames of 1,226 bytes take 1 ms each at 10 Mb/s: 99 ms from the first start to the last."""
    with running(lab) as core:
        core.tm.set_port(2, 10_000_000)
        one, two = lab.wire(1), lab.wire(2)
        start = time.monotonic()
        for n in range(100):
            one.send(frame(1226, to=2, tag=n))
        got = two.receive(100)
        took = time.monotonic() - start
        assert [tag_of(data) for data in got] == list(range(100))
        assert 0.099 <= took < 0.5


def test_behind_a_shaped_link_frames_wait_in_the_traffic_manager(lab: Lab) -> None:
    """tc lets 5 ms pass for each frame. The kernel takes what SO_SNDBUF holds, fewer than 110 frames; the program must
    see the rest as queue depth (that is how p4lang's ECN exercise marks)."""
    space = lab.names[0]
    shaper = ("tc", "-n", space, "qdisc", "add", "dev", "s2", "root", "tbf", "rate", "2mbit", "burst", "3000")
    if subprocess.run([*shaper, "limit", "10000000"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this kernel has no tbf qdisc")
    with running(lab) as core:
        one, two = lab.wire(1), lab.wire(2)
        for n in range(150):
            one.send(frame(1226, to=2, tag=n))
        wait_for(lambda: core.tm.read_counter("enqueued", 2 * 8).packets == 150)
        assert [tag_of(data) for data in two.receive(150)] == list(range(150))
        assert core.tm.read_state("queue_watermark", 2 * 8) > 20 * 1226


def test_pause_and_pfc_on_the_wire(lab: Lab) -> None:
    with running(lab) as core:
        core.tm.set_port(2, 10_000_000)  # a quantum is 51.2 us
        core.tm.set_port(1, 10_000_000)  # so that nothing is refreshed before 1.5 s
        core.tm.set_priority_group(1, 3, StaticGroup(0, 1_000, 500, 10_000, 1 << 3))
        core.tm.set_pfc(1, tx_enable=1 << 3, quanta=60_000)
        one, two = lab.wire(1), lab.wire(2)
        start = time.monotonic()
        two.send(pfc({3: 10_000}))  # 512 ms
        wait_for(lambda: core.tm.read_state("pause_count", 2 * 8 + 3) == 1)
        for n in range(5):
            one.send(frame(400, to=2, priority=3, pg=3, flags=LOSSLESS, tag=n))
        one.send(frame(400, to=2, priority=0, tag=99))
        assert [tag_of(data) for data in two.receive(1)] == [99]
        assert [read_pfc(data) for data in one.receive(1)] == [{3: 60_000}]
        assert [tag_of(data) for data in two.receive(5)] == list(range(5))
        assert time.monotonic() - start >= 0.512
        assert [read_pfc(data) for data in one.receive(1)] == [{3: 0}]
        assert core.tm.read_state("paused_ns", 2 * 8 + 3) == 512_000_000


def test_frames_longer_than_the_link_are_counted(lab: Lab) -> None:
    switch, hosts = lab.names
    run("ip", "-n", hosts, "link", "set", "h1", "mtu", "9000")
    run("ip", "-n", switch, "link", "set", "s1", "mtu", "9000")
    with running(lab) as core:
        one, two = lab.wire(1), lab.wire(2)
        one.send(frame(9014, to=2))  # s2 has MTU 1500: it cannot leave
        one.send(frame(1514, to=2, tag=1))
        assert [tag_of(data) for data in two.receive(1)] == [1]
        assert core.tm.read_counter("drop_port", 2 * 8).packets == 1
        assert core.packets_held == 0


def test_frames_longer_than_the_ring_slot_are_counted_on_reception(lab: Lab) -> None:
    switch, hosts = lab.names
    with running(lab) as core:  # opened with MTU 1500
        run("ip", "-n", hosts, "link", "set", "h1", "mtu", "9000")
        run("ip", "-n", switch, "link", "set", "s1", "mtu", "9000")
        one, two = lab.wire(1), lab.wire(2)
        one.send(frame(9014, to=2))
        one.send(frame(100, to=2, tag=1))
        assert [tag_of(data) for data in two.receive(1)] == [1]
        assert core.tm.read_counter("drop_rx", 1 * 8 + 1).packets == 1
        assert core.tm.read_counter("drop_rx", 1 * 8 + 1).bytes == 9014


def test_jumbo_frames() -> None:
    with Lab(2, mtu=9216) as lab, running(lab):
        one, two = lab.wire(1), lab.wire(2)
        sent = [frame(length, to=2, tag=length) for length in (9230, 60, 9000, 4096, 2048, 9230)]
        for data in sent:
            one.send(data)
        assert two.receive(6) == sent


def test_an_interface_that_goes_down_or_vanishes_is_a_port_that_is_not_there(lab: Lab) -> None:
    switch, _ = lab.names
    with running(lab) as core:
        one, two = lab.wire(1), lab.wire(2)
        assert core.port_up(2)
        core.tm.block_port(2, True)
        for _ in range(10):
            one.send(frame(100, to=2, priority=4))
        wait_for(lambda: core.tm.read_state("queue_packets", 2 * 8 + 4) == 10)
        run("ip", "-n", switch, "link", "set", "s2", "down")
        wait_for(lambda: not core.port_up(2))
        assert core.tm.read_counter("drop_port", 2 * 8 + 4).packets == 10
        assert core.packets_held == 0
        one.send(frame(100, to=2, priority=4))
        wait_for(lambda: core.tm.read_counter("drop_port", 2 * 8 + 4).packets == 11)
        run("ip", "-n", switch, "link", "set", "s2", "up")
        wait_for(lambda: core.port_up(2))
        one.send(frame(100, to=2, tag=5))
        assert [tag_of(data) for data in two.receive(1)] == [5]
        run("ip", "-n", switch, "link", "delete", "s2")
        wait_for(lambda: not core.port_up(2))
        one.send(frame(100, to=3, tag=6))  # the others go on
        assert [tag_of(data) for data in lab_receive(lab, 3, one)] == [6]


def lab_receive(lab: Lab, port: int, one: Wire) -> list[bytes]:
    """One frame at a port whose socket is made only now: it is sent once more."""
    wire = lab.wire(port)
    one.send(frame(100, to=port, tag=6))
    return wire.receive(1)


def test_ports_added_and_removed_while_running(lab: Lab) -> None:
    with running(lab) as core:
        core.remove_interface(3)
        with pytest.raises(SwitchCoreError, match="port 3 has no interface"):
            core.remove_interface(3)
        with lab.inside(0):
            core.add_interface(200, "s3")
            with pytest.raises(SwitchCoreError, match=r"port 1@s1: the port is in use"):
                core.add_interface(1, "s1")
            with pytest.raises(SwitchCoreError, match=r"port 9@nothing: no such interface: No such device"):
                core.add_interface(9, "nothing")
        one, three = lab.wire(1), lab.wire(3)
        one.send(frame(100, to=200, tag=3))
        assert [tag_of(data) for data in three.receive(1)] == [3]
        core.stop_driver()
        core.stop_driver()
        assert not core.port_up(1)
        with lab.inside(0):
            core.start_driver({1: "s1", 2: "s2"})
        two = lab.wire(2)
        one.send(frame(100, to=2, tag=4))
        assert [tag_of(data) for data in two.receive(1)] == [4]


def test_packet_in_wakes_and_packet_out_leaves(lab: Lab) -> None:
    with running(lab) as core:
        one, two = lab.wire(1), lab.wire(2)
        one.send(frame(100, to=510, tag=8))
        assert select.select([core.event_fd], [], [], 5)[0]
        (event,) = core.events()
        assert tag_of(event.frame) == 8  # type: ignore[union-attr]
        core.receive(510, frame(100, to=2, tag=9))
        assert [tag_of(data) for data in two.receive(1)] == [9]


def test_control_calls_get_through_beside_full_load(lab: Lab) -> None:
    with running(lab, debug=False) as core:
        one = lab.wire(1)
        slowest = 0.0
        for n in range(2_000):
            one.send(frame(100, to=2))
            if n % 20 == 0:
                start = time.monotonic()
                core.tm.read_state("queue_depth", 16)
                slowest = max(slowest, time.monotonic() - start)
        assert slowest < 0.5


def test_an_idle_driver_sleeps(lab: Lab) -> None:
    with running(lab) as core:
        one, two = lab.wire(1), lab.wire(2)
        one.send(frame(100, to=2))
        two.receive(1)
        core.tm.set_port(2, 10**9)
        task = next(
            task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text().strip() == "dcbswitch-io"
        )

        def wakeups() -> int:
            lines = (task / "status").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

        wait_for(lambda: _quiet(wakeups))
        before = wakeups()
        select.select([], [], [], 0.3)
        assert wakeups() - before <= 2


def _quiet(wakeups: object) -> bool:
    before = wakeups()  # type: ignore[operator]
    select.select([], [], [], 0.1)
    return bool(wakeups() == before)  # type: ignore[operator]


def test_frames_count_from_their_arrival_not_from_when_they_are_read(lab: Lab) -> None:
    """A driver that was kept from the processor must not drop what a punctual one had sent meanwhile.

    A frame of 976 bytes takes 8 us of a 1 Gb/s wire ((976 + 24) * 8 bits); two fit into the queue, and they come
    a millisecond apart while the driver is held. Handed in together, most of the 30 would overflow the queue.
    """
    with running(lab) as core:
        core.tm.set_port(2, 1_000_000_000)
        core.tm.set_queue(2, 0, StaticLimit(2_000))
        one, two = lab.wire(1), lab.wire(2)
        with core.lock():
            for tag in range(30):
                one.send(frame(976, to=2, tag=tag))
                select.select([], [], [], 0.001)
        assert [tag_of(data) for data in two.receive(30)] == list(range(30))
        assert core.tm.read_counter("drop_queue_limit", 16).packets == 0
