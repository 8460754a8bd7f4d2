"""The traffic manager in P4 (dcb_bmv2): tickets, pauses, XOFF and XON, with the time and the queues in the test's hand.

`Emulated` is simple_switch's order of things over the interpreter; a lap is one egress pass of everything that is
queued and one ingress pass of what that recirculated. Figures come from docs/contract.md and docs/targets.md.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.mac_control import MACControlClassBasedFlowControl, MACControlPause
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from switch.api import ActionCall, KeyMatch, MatchKind, MemberRef
from switch.interp_state import PacketState
from switch.interp_switch import RECIRC, SimpleSwitch
from switch.interpreter import Interpreter
from switch.loader import load

JSON_TEXT = (Path(__file__).resolve().parents[2] / "p4src" / "build" / "dcb_bmv2.json").read_text()
PROGRAM = load(JSON_TEXT)
EXACT = MatchKind.EXACT
PFC_ADDRESS = "01:80:c2:00:00:01"
OUT, IN, OTHER_IN = 2, 1, 3
PRIORITY = 3
CELL = OUT * 8 + PRIORITY
NOTICE = 509
HOLD = 508
RATE_BPS = 8_000_000  # a quantum is 64 us
FRAME_BYTES = 1024
GIVE_UP_US = 1_000_000


def exact(*values: int) -> list[KeyMatch]:
    return [KeyMatch(EXACT, value) for value in values]


class Emulated(SimpleSwitch):
    """Ports 1 and 3 trust DSCP and have PFC on priority 3, everything is routed to port 2."""

    def __init__(self, *, xoff: int = 10, xon: int = 4, headroom: int = 10, lossless: int = 1) -> None:
        super().__init__(Interpreter(PROGRAM))
        self.set_clone_session(NOTICE, [(NOTICE, 1)])
        insert = self.pipeline.table_insert
        self.pipeline.member_set("ingress.ecmp", 1, ActionCall("ingress.forward", (OUT, 0x020000000109)))
        everything = [KeyMatch(MatchKind.LPM, 0, prefix_len=0)]
        insert("ingress.ipv4_lpm", everything, 0, ActionCall("ingress.route", (7,)))
        insert("ingress.nexthop", exact(7), 0, MemberRef(1))
        for priority, is_lossless in ((0, 0), (PRIORITY, lossless)):
            insert(
                "ingress.priority_map",
                exact(1, priority),
                0,
                ActionCall("ingress.set_class", (priority, priority, is_lossless)),
            )
        insert("ingress.dscp_to_priority", exact(1, 26), 0, ActionCall("ingress.set_priority", (PRIORITY,)))
        group = ActionCall("egress.tm_pg_static", (0, xoff * 1024, xon * 1024, headroom * 1024, 8))
        for port in (IN, OUT, OTHER_IN):
            insert("ingress.port_config", exact(port), 0, ActionCall("ingress.set_port", (2, 0, 1, 1 << PRIORITY, 1)))
            insert("egress.tm_port", exact(port), 0, ActionCall("egress.tm_set_port", (RATE_BPS,)))
            insert("egress.tm_pfc", exact(port), 0, ActionCall("egress.tm_set_pfc", (1 << PRIORITY, 1000, 0o76543210)))
            insert("egress.tm_priority_group", exact(port, PRIORITY), 0, group)
            insert("egress.port_mac", exact(port), 0, ActionCall("egress.set_src_mac", (0x020100000100 + port,)))
        insert("egress.tm_queue", exact(OUT, 0), 0, ActionCall("egress.tm_queue_static", (5 * 1024,)))
        self.out: list[tuple[int, bytes]] = []
        self.capacity: int | None = None  # of the target's queue: what finds it full is lost unseen

    # --- the target ------------------------------------------------------------------------------------------------

    def _enqueue(self, port: int, state: PacketState, truncate_bytes: int) -> None:
        waiting = sum(queued.port == port for queued in self._egress)
        if self.capacity is not None and port not in (HOLD, NOTICE) and waiting >= self.capacity:
            return
        super()._enqueue(port, state, truncate_bytes)

    def arrive(self, frame: bytes, port: int = IN) -> None:
        """A frame as far as its queue."""
        state = PacketState(self.pipeline)
        state.frame = frame
        for name, value in (
            ("standard_metadata.ingress_port", port),
            ("standard_metadata.packet_length", len(frame)),
            ("intrinsic_metadata.ingress_global_timestamp", self.pipeline.now_us),
        ):
            self.pipeline.set_standard(state, name, value)
        self.pipeline.run_parser(state)
        self._ingress(state)

    def lap(self, count: int = 10**9) -> None:
        """Egress of at most `count` queued packets, in order, then ingress of what went round."""
        for _ in range(min(count, len(self._egress))):
            sent = self._run_egress(self._egress.popleft())
            self.out += [(output.port, output.frame) for output in sent]
        for _ in range(len(self._again)):
            before, frame, kind = self._again.popleft()
            assert kind == RECIRC
            self._ingress(self._restart(before, frame, kind))

    def laps(self, count: int = 12) -> None:
        for _ in range(count):
            self.lap()

    @property
    def inside(self) -> int:
        return len(self._egress) + len(self._again)

    # --- what the tests look at ------------------------------------------------------------------------------------

    def data(self) -> list[int]:
        """Numbers of the data frames sent since the last call, in order."""
        frames = [struct.unpack(">I", frame[42:46])[0] for port, frame in self.out if frame[12:14] == b"\x08\x00"]
        self.out = [item for item in self.out if item[1][12:14] != b"\x08\x00"]
        return frames

    def pfc(self) -> list[tuple[int, int]]:
        """(port, time of priority 3) of the PFC frames sent since the last call; each is checked to be well-formed."""
        found = []
        for port, frame in self.out:
            if frame[12:14] == b"\x88\x08":
                mac = bytes([2, 1, 0, 0, 1, port])
                time = struct.unpack(">H", frame[18 + 2 * PRIORITY : 20 + 2 * PRIORITY])[0]
                assert frame == pfc_frame({PRIORITY: time}, mac.hex(":"))
                found.append((port, time))
        self.out = [item for item in self.out if item[1][12:14] != b"\x88\x08"]
        return found

    def register(self, name: str, index: int = CELL) -> int:
        return self.pipeline.register_read(name, index)

    def counted(self, name: str) -> dict[int, int]:
        return {i: cell.packets for i, cell in enumerate(self.pipeline.counters[name]) if cell.packets}


def pfc_frame(times: dict[int, int], source: str = "02:00:00:00:01:02") -> bytes:
    fields: dict[str, Any] = {f"c{n}_enabled": 1 for n in times} | {
        f"c{n}_pause_time": time for n, time in times.items()
    }
    return bytes(Ether(dst=PFC_ADDRESS, src=source, type=0x8808) / MACControlClassBasedFlowControl(**fields)).ljust(
        60, b"\0"
    )


def data_frame(number: int, dscp: int = 26, dst: str = "10.2.0.1") -> bytes:
    frame = Ether(dst="02:01:00:00:01:01", src="02:00:00:00:01:01") / IP(src="10.1.0.1", dst=dst, tos=dscp << 2 | 2)
    return bytes(frame / UDP(sport=5, dport=6) / Raw(struct.pack(">I", number).ljust(FRAME_BYTES - 42, b"\0")))


@pytest.fixture
def switch() -> Emulated:
    made = Emulated()
    made.pipeline.now_us = 1_000_000
    return made


def test_frames_pass_in_order_and_are_counted(switch: Emulated) -> None:
    for number in range(5):
        switch.arrive(data_frame(number))
    switch.laps(1)
    assert switch.data() == [0, 1, 2, 3, 4]
    assert switch.inside == 0
    assert switch.counted("egress.tm_enqueued") == switch.counted("egress.tm_dequeued") == {CELL: 5}
    assert switch.counted("ingress.rx") == {IN * 8 + PRIORITY: 5}
    assert switch.counted("egress.tx") == {CELL: 5}


def test_a_pause_holds_its_priority_alone_and_ends_by_itself(switch: Emulated) -> None:
    """1000 quanta at 8 Mb/s are 64,000 us: nothing leaves before, everything after, in order."""
    for number in range(3):
        switch.arrive(data_frame(number))
    switch.arrive(pfc_frame({PRIORITY: 1000}), OUT)
    for number in range(3, 6):
        switch.arrive(data_frame(number))
    for number in range(100, 103):
        switch.arrive(data_frame(number, dscp=0))
    switch.laps()
    assert switch.data() == [100, 101, 102]
    switch.pipeline.now_us = 1_063_999
    switch.laps()
    assert switch.data() == []
    switch.pipeline.now_us = 1_064_000
    switch.laps()
    assert switch.data() == [0, 1, 2, 3, 4, 5]
    assert switch.inside == 0
    assert switch.register("emu_paused") == 64_000
    assert switch.register("emu_pauses") == 1
    assert switch.counted("ingress.rx") == {IN * 8: 3, IN * 8 + PRIORITY: 6}
    assert switch.counted("egress.tm_dequeued") == {OUT * 8: 3, CELL: 6}


def test_frames_that_are_held_are_not_changed_twice(switch: Emulated) -> None:
    switch.arrive(pfc_frame({PRIORITY: 1000}), OUT)
    switch.arrive(data_frame(7))
    switch.laps()
    switch.pipeline.now_us += 64_000
    switch.laps()
    ((port, frame),) = switch.out
    expected = Ether(data_frame(7))
    expected.src, expected.dst = "02:01:00:00:01:02", "02:00:00:00:01:09"
    expected[IP].ttl -= 1
    del expected[IP].chksum
    assert (port, frame) == (OUT, bytes(expected))


def test_a_new_time_replaces_the_running_one_and_0_ends_it(switch: Emulated) -> None:
    switch.arrive(pfc_frame({PRIORITY: 1000}), OUT)
    switch.pipeline.now_us += 4_000
    switch.arrive(pfc_frame({PRIORITY: 100}), OUT)
    assert switch.register("emu_until") == 1_004_000 + 6_400
    assert switch.register("emu_paused") == 4_000 + 6_400
    switch.pipeline.now_us += 400
    switch.arrive(data_frame(1))
    switch.laps()
    assert switch.data() == []
    switch.arrive(pfc_frame({PRIORITY: 0}), OUT)
    switch.laps()
    assert switch.data() == [1]
    assert switch.register("emu_paused") == 4_400
    assert switch.register("emu_pauses") == 1


@pytest.mark.parametrize(
    ("rate_bps", "quanta", "microseconds"),
    [(1_000_000, 65535, 33_553_920), (8_000_000, 1, 64), (100_000_000, 65535, 335_540), (40_000_000_000, 65535, 839)],
)
def test_quanta_are_of_the_ports_rate(rate_bps: int, quanta: int, microseconds: int) -> None:
    """65535 * 512 bit times, rounded up to a microsecond, right to 0.3% where a quantum is a part of one."""
    made = Emulated()
    table = made.pipeline.tables["egress.tm_port"]
    for handle in list(table.entries):
        made.pipeline.table_delete("egress.tm_port", handle)
    made.pipeline.table_insert("egress.tm_port", exact(OUT), 0, ActionCall("egress.tm_set_port", (rate_bps,)))
    made.arrive(pfc_frame({PRIORITY: quanta}), OUT)
    assert made.register("emu_until") == pytest.approx(microseconds, rel=0.025 if rate_bps > 10**10 else 1e-4)


def test_pause_stops_every_priority(switch: Emulated) -> None:
    switch.arrive(bytes(Ether(dst=PFC_ADDRESS, type=0x8808) / MACControlPause(pause_time=9)).ljust(60, b"\0"), OUT)
    switch.arrive(data_frame(1, dscp=0))
    switch.arrive(data_frame(2))
    switch.laps()
    assert switch.data() == []
    switch.pipeline.now_us += 9 * 64
    switch.laps()
    assert sorted(switch.data()) == [1, 2]


@pytest.mark.parametrize("seed", range(6))
def test_order_is_kept_through_pauses_at_any_moment(switch: Emulated, seed: int) -> None:
    """Arrivals, partial laps and pauses in a mixed order: every frame leaves once, in order."""
    dice = random.Random(seed)
    number = 0
    sent: list[int] = []
    for _ in range(300):
        switch.pipeline.now_us += dice.randrange(2000)
        what = dice.random()
        if what < 0.5:
            if number - len(sent) < 19:
                switch.arrive(data_frame(number), dice.choice((IN, OTHER_IN)))
                number += 1
        elif what < 0.6:
            switch.arrive(pfc_frame({PRIORITY: dice.choice((0, 50, 200))}), OUT)
        else:
            switch.lap(dice.randrange(1, 12))
        sent += switch.data()
    switch.pipeline.now_us += 100_000
    switch.laps(40)
    sent += switch.data()
    assert sent == list(range(number))
    assert switch.inside == 0
    assert switch.register("emu_given_up") == 0


def test_tickets_wrap(switch: Emulated) -> None:
    for name in ("emu_ticket", "emu_turn", "emu_release"):
        switch.pipeline.register_write(name, CELL, 0xFFFFFFFE)
    switch.arrive(data_frame(0))
    switch.arrive(pfc_frame({PRIORITY: 100}), OUT)
    for number in range(1, 6):
        switch.arrive(data_frame(number))
    switch.laps()
    assert switch.data() == []
    switch.pipeline.now_us += 6_400
    switch.laps()
    assert switch.data() == [0, 1, 2, 3, 4, 5]
    assert switch.register("emu_turn") == 4


def test_a_lost_ticket_in_the_queue_stalls_for_a_second_and_no_longer(switch: Emulated) -> None:
    switch.capacity = 2
    for number in range(4):  # 2 and 3 find the target's queue full
        switch.arrive(data_frame(number))
    switch.capacity = None
    switch.arrive(data_frame(4))
    switch.arrive(data_frame(5))
    switch.laps()
    assert switch.data() == [0, 1]
    switch.pipeline.now_us += GIVE_UP_US
    switch.laps()
    assert switch.data() == []
    switch.pipeline.now_us += 1
    switch.laps()
    assert switch.data() == [4, 5]
    assert switch.register("emu_given_up") == 2
    assert switch.register("emu_ticket") == switch.register("emu_turn")
    switch.arrive(data_frame(6))
    switch.laps(1)
    assert switch.data() == [6]


def test_frames_lost_while_they_go_round_do_not_stall(switch: Emulated) -> None:
    """More held than the recirculation buffer takes: the first and one in the middle are gone."""
    switch.arrive(pfc_frame({PRIORITY: 100}), OUT)
    for number in range(6):
        switch.arrive(data_frame(number))
    del switch._egress[3]
    del switch._egress[0]
    switch.pipeline.now_us += 6_400
    switch.laps()
    assert switch.data() == []
    switch.pipeline.now_us += GIVE_UP_US + 1
    switch.laps()
    assert switch.data() == [1, 2]
    switch.pipeline.now_us += GIVE_UP_US + 1
    switch.laps()
    assert switch.data() == [4, 5]
    assert switch.register("emu_given_up") == 2
    assert switch.inside == 0


def test_the_priority_of_a_flow_may_change_while_it_is_paused(switch: Emulated) -> None:
    switch.arrive(pfc_frame({PRIORITY: 1000}), OUT)
    switch.arrive(data_frame(1))
    (handle,) = switch.pipeline.tables["ingress.dscp_to_priority"].entries
    switch.pipeline.table_delete("ingress.dscp_to_priority", handle)
    switch.arrive(data_frame(2))  # now of priority 0
    switch.laps()
    assert switch.data() == [2]
    switch.pipeline.now_us += 64_000
    switch.laps()
    assert switch.data() == [1]
    assert switch.inside == 0


def test_xoff_at_the_threshold_and_xon_below(switch: Emulated) -> None:
    for number in range(9):
        switch.arrive(data_frame(number))
    assert not any(queued.port == NOTICE for queued in switch._egress)
    switch.arrive(data_frame(9))  # the tenth
    notices = [queued for queued in switch._egress if queued.port == NOTICE]
    assert len(notices) == 1
    switch._egress.remove(notices[0])
    switch._egress.appendleft(notices[0])
    switch.lap(1)
    switch._egress.rotate(1)  # queue 7 goes before the others
    switch.lap(1)
    assert switch.pfc() == [(IN, 1000)]
    switch.lap(5)  # five left: above XON
    assert switch.pfc() == []
    switch.lap(1)  # four
    switch.laps(3)
    assert switch.pfc() == [(IN, 0)]
    assert switch.data() == list(range(10))
    assert switch.counted("egress.pfc_tx_xoff") == switch.counted("egress.pfc_tx_xon") == {IN * 8 + PRIORITY: 1}
    assert switch.inside == 0


def test_the_frame_that_raises_xoff_is_not_mirrored_and_the_others_are(switch: Emulated) -> None:
    """BMv2 makes one clone of a frame, and the pause goes before the mirror."""
    mirror, session = 4, 5
    switch.set_clone_session(session, [(mirror, 1)])
    any_key = KeyMatch(MatchKind.TERNARY, 0, mask=0)
    keys = [any_key] * 5 + [KeyMatch(MatchKind.RANGE, 0, high=0xFFFF), any_key]
    switch.pipeline.table_insert("ingress.acl", keys, 1, ActionCall("ingress.acl_mirror", (session,)))
    for number in range(10):  # the tenth raises XOFF
        switch.arrive(data_frame(number))
    switch.laps()
    copies = [struct.unpack(">I", frame[42:46])[0] for port, frame in switch.out if port == mirror]
    assert copies == list(range(9))
    assert [time for _, time in switch.pfc()].count(0) == 1
    switch.out = [item for item in switch.out if item[0] != mirror]
    assert switch.data() == list(range(10))


def test_an_xoff_that_an_xon_overtook_is_not_sent(switch: Emulated) -> None:
    """Else the port would stand still until its pause ends, with nobody to take it back."""
    for number in range(10):
        switch.arrive(data_frame(number))
    (xoff,) = (queued for queued in switch._egress if queued.port == NOTICE)
    switch._egress.remove(xoff)
    switch.laps()  # all is sent, and XON said
    assert switch.pfc() == [(IN, 0)]
    switch._egress.append(xoff)
    switch.laps()
    assert switch.pfc() == []
    assert switch.inside == 0
    assert switch.register("emu_told") == 0


@pytest.mark.parametrize("goes_round", [False, True])
def test_xoff_is_said_again_after_the_xon_of_another_cell(switch: Emulated, goes_round: bool) -> None:
    """Ports 2 and 3 are both over the threshold with frames of port 1; port 2 drains and says XON, port 3 objects."""
    other, prefix = "10.3.0.1", KeyMatch(MatchKind.LPM, 0x0A030000, prefix_len=16)
    switch.pipeline.member_set("ingress.ecmp", 2, ActionCall("ingress.forward", (OTHER_IN, 0x02000000010A)))
    switch.pipeline.table_insert("ingress.ipv4_lpm", [prefix], 0, ActionCall("ingress.route", (8,)))
    switch.pipeline.table_insert("ingress.nexthop", exact(8), 0, MemberRef(2))
    for number in range(10):
        switch.arrive(data_frame(number))
    for number in range(10, 20):
        switch.arrive(data_frame(number, dst=other))
    standing = [queued for queued in switch._egress if queued.port == OTHER_IN]
    for queued in standing:  # set aside while port 2 drains
        switch._egress.remove(queued)
    switch.laps()
    assert switch.data() == list(range(10))
    assert switch.pfc() == [(IN, 1000), (IN, 0)]  # one XOFF for both, and an XON that is wrong for one of them
    assert (len(standing), switch.inside) == (10, 0)
    if goes_round:  # by itself, as soon as the frames that wait pass ingress
        switch.arrive(pfc_frame({PRIORITY: 100}), OTHER_IN)
    else:  # by the next frame that arrives
        switch.arrive(data_frame(20, dst=other))
    switch._egress.extendleft(reversed(standing))
    switch.laps(4)
    assert switch.pfc()[0] == (IN, 1000)
    switch.pipeline.now_us += 6_400
    switch.laps()
    assert switch.data() == list(range(10, 20 if goes_round else 21))
    assert switch.counted("egress.pfc_tx_xoff") == switch.counted("egress.pfc_tx_xon") == {IN * 8 + PRIORITY: 2}
    assert switch.register("emu_told", OTHER_IN * 8 + PRIORITY) == 0
    assert switch.inside == 0


def test_every_port_that_was_told_xoff_is_told_xon(switch: Emulated) -> None:
    for number in range(9):
        switch.arrive(data_frame(number))
    switch.arrive(data_frame(9), OTHER_IN)
    switch.arrive(data_frame(10))
    switch.laps()
    assert sorted(switch.pfc()) == [(IN, 0), (IN, 1000), (OTHER_IN, 0), (OTHER_IN, 1000)]
    assert switch.register("emu_told") == 0
    assert switch.inside == 0


def test_xon_waits_until_nothing_goes_round(switch: Emulated) -> None:
    """Ten frames wait in the worst order, so that a round frees one or two: XON comes at the end, not at four."""
    switch.arrive(pfc_frame({PRIORITY: 100}), OUT)
    for number in range(10):
        switch.arrive(data_frame(number))
    switch.laps()
    assert switch.pfc() == [(IN, 1000)]
    waiting = [queued for queued in switch._egress if queued.port == HOLD]
    assert len(waiting) == switch.inside == 10
    switch._egress.clear()
    switch._egress.extend(reversed(waiting))
    switch.pipeline.now_us += 6_400
    below = 0
    while any(queued.port == HOLD for queued in switch._egress):
        switch.lap()
        below += switch.register("emu_ticket") - switch.register("emu_turn") <= 4
        held = sum(queued.port == HOLD for queued in switch._egress)
        assert held == 0 or switch.pfc() == []
    assert below >= 2
    switch.laps(4)
    assert switch.pfc() == [(IN, 0)]
    assert switch.data() == list(range(10))


def test_xoff_is_said_again_after_half_its_time(switch: Emulated) -> None:
    switch.arrive(pfc_frame({PRIORITY: 0xFFFF}), OUT)  # frames stay, and going round is the occasion
    for number in range(10):
        switch.arrive(data_frame(number))
    switch.laps()
    assert switch.pfc() == [(IN, 1000)]
    switch.pipeline.now_us += 32_001
    switch.laps()
    assert switch.pfc() == []
    switch.pipeline.now_us += 1
    switch.laps()
    assert switch.pfc() == [(IN, 1000)]


def test_the_headroom_is_the_end(switch: Emulated) -> None:
    """XOFF 10 and headroom 10 frames: the twenty-first is dropped and counted, at the port that it came in on."""
    for number in range(21):
        switch.arrive(data_frame(number))
    switch.laps()
    assert switch.data() == list(range(20))
    assert switch.counted("egress.tm_drop_headroom") == {IN * 8 + PRIORITY: 1}
    assert switch.counted("egress.tm_drop_queue") == {}


def test_a_lossy_queue_has_its_limit(switch: Emulated) -> None:
    for number in range(8):
        switch.arrive(data_frame(number, dscp=0))
    switch.laps()
    assert switch.data() == [0, 1, 2, 3, 4]
    assert switch.counted("egress.tm_drop_queue") == {OUT * 8: 3}
    assert switch.pfc() == []


def test_without_pfc_there_is_no_xoff() -> None:
    made = Emulated(lossless=0)
    for number in range(50):
        made.arrive(data_frame(number))
    made.laps()
    assert made.pfc() == []
    assert made.data() == list(range(50))
