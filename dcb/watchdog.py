"""PFC watchdog of one (port, priority): when a pause has become a storm, and when the storm is over. Sans-IO.

The caller samples cumulative counters of the switch, with the time, in whatever rhythm it has; `Machine.sample` gives
back what happened. All times are integer nanoseconds of one monotonic clock. Nothing is counted in polls: what is
compared with the configured times is the time that passed, so a late poll is a late poll and no shorter storm.

Rules, and where they depart from SONiC (sonic-swss `orchagent/pfc_detect_*.lua`, `pfc_restore.lua`):

- A storm is a priority whose peer goes on pausing it (new XOFF, or one pause that never ended), with packets waiting
  and none sent, for the detection time. `empty_queue`: whether or not packets wait.
- Between two looks at least as much time passed as from the answer to the first to the question of the second, or as
  the switch itself has counted of a pause. No look that was late or long on its way makes a storm, or a quiet, longer.
- The pause counts from when it began, which the switch's own pause time tells, not from the poll that saw it first:
  detection in [T, T + poll), neither earlier nor a whole poll later (sonic-buildimage #3964).
- Restored when no XOFF came for the restoration time. XON does not count as storm (sonic-swss #4581), and XOFF is
  counted whatever PFC does with it (sonic-buildimage #29203: with PFC off, the counter that restore relies on stops).
- action alert changes nothing in the data plane, and is restored by the first sample that shows no storm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

MS = 1_000_000
DETECTION_RANGE_MS = (100, 5000)
RESTORATION_RANGE_MS = (100, 60_000)
POLL_RANGE_MS = (100, 1000)
DEFAULT_MS = 200
_PORTS_PER_DEFAULT = 32


def default_times_ms(ports: int) -> tuple[int, int, int]:
    """(detection, restoration, poll) for a switch of that many ports: 200 ms, as often as 32 ports go into them.

    SONiC's `pfcwd start_default`: the poll interval stops at its greatest value, 1000 ms; the others do so at theirs.
    """
    times = max(1, (ports - 1) // _PORTS_PER_DEFAULT + 1)
    return (
        min(DEFAULT_MS * times, DETECTION_RANGE_MS[1]),
        min(DEFAULT_MS * times, RESTORATION_RANGE_MS[1]),
        min(DEFAULT_MS * times, POLL_RANGE_MS[1]),
    )


class Action(Enum):
    """What becomes of a stormed priority."""

    DROP = "drop"  # what is queued for it and what comes from it is dropped, pauses are ignored
    FORWARD = "forward"  # pauses are ignored
    ALERT = "alert"  # nothing


class Change(Enum):
    """What a sample showed."""

    DETECTED = "detected"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one (port, priority). restoration_ns None: a storm never ends by itself."""

    action: Action = Action.DROP
    detection_ns: int = DEFAULT_MS * MS
    restoration_ns: int | None = DEFAULT_MS * MS
    empty_queue: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """What a switch said between `time_ns`, when it was asked, and `answered_ns` (None: the same). Counts and times are
    cumulative; they start again from 0 with the switch.

    xoff_rx: frames received with a time other than 0 for the priority. paused_ns, pauses: total time and number of
    pauses by the peer, the running one included. dequeued, depth_bytes: of the priority's queue. tx, rx, drop_tx,
    drop_rx: packets of the priority, sent and received on the port, and dropped because of the storm.
    """

    time_ns: int
    depth_bytes: int = 0
    dequeued: int = 0
    xoff_rx: int = 0
    paused: bool = False
    paused_ns: int = 0
    pauses: int = 0
    tx: int = 0
    rx: int = 0
    drop_tx: int = 0
    drop_rx: int = 0
    answered_ns: int | None = None

    @property
    def by_ns(self) -> int:
        """When it was answered."""
        return self.time_ns if self.answered_ns is None else self.answered_ns

    def began_anew(self, before: Sample) -> bool:
        """True where a count went back: the switch was restarted, or its counters were cleared."""
        return any(
            getattr(self, name) < getattr(before, name)
            for name in ("dequeued", "xoff_rx", "paused_ns", "pauses", "tx", "rx", "drop_tx", "drop_rx")
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Packets of a priority while it was stormed."""

    tx_ok: int = 0
    tx_drop: int = 0
    rx_ok: int = 0
    rx_drop: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.tx_ok + other.tx_ok,
            self.tx_drop + other.tx_drop,
            self.rx_ok + other.rx_ok,
            self.rx_drop + other.rx_drop,
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """Of one (port, priority) since it is watched or was cleared. `last`: of the newest storm, running or over."""

    detected: int = 0
    restored: int = 0
    total: Traffic = Traffic()
    last: Traffic = Traffic()


@dataclass(frozen=True, slots=True)
class History:
    """Pauses by the peer. recent_ns: length of the newest one, so far; the mean where a sample saw several begin."""

    transitions: int = 0
    total_ns: int = 0
    recent_ns: int = 0
    recent_at_ns: int | None = None  # when the newest one was last seen


class Machine:
    """One (port, priority). Feed it `sample`; obey `stormed` and `settings.action`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stormed = False
        self.stats = Stats()
        self.history = History()
        self.since_ns: int | None = None  # when the running storm was detected
        self._last: Sample | None = None
        self._held_ns = 0  # how long the pause has lasted, with nothing sent
        self._armed = False  # the newest sample showed a pause that may become a storm
        self._quiet_since_ns = 0  # no XOFF has come since then

    # ---- what the caller tells ----------------------------------------------------------------------------------

    def configure(self, settings: Settings) -> None:
        """New settings hold at once, also in a storm: the times go on from where they are."""
        if self.stormed and settings.action is Action.ALERT and self.settings.action is not Action.ALERT:
            self.lost_sight()  # what was seen under mitigation does not tell whether the storm goes on
        self.settings = settings

    def sample(self, now: Sample) -> Change | None:
        """The next sample. Returns what it showed."""
        before, self._last = self._last, now
        if before is None or now.time_ns <= before.time_ns or now.began_anew(before):
            self._held_ns, self._quiet_since_ns = 0, now.by_ns
            self._armed = now.paused and self._occupied(now)
            return None
        self._count(before, now)
        self._measure_pause(before, now)
        if not self.stormed:
            if self._armed and self._held_ns >= self.settings.detection_ns:
                self._begin(now.time_ns)
                self._quiet_since_ns = now.by_ns
                return Change.DETECTED
            return None
        if self.settings.action is Action.ALERT:
            over = not self._armed
        else:
            if now.xoff_rx != before.xoff_rx:
                self._quiet_since_ns = now.by_ns
            restoration_ns = self.settings.restoration_ns
            over = restoration_ns is not None and now.time_ns - self._quiet_since_ns >= restoration_ns
        if over:
            self._end()
            return Change.RESTORED
        return None

    def observe(self, now: Sample) -> None:
        """The next sample, where the switch's own watchdog decides (`told`): it is counted, and judged by nobody."""
        before, self._last = self._last, now
        if before is not None and now.time_ns > before.time_ns and not now.began_anew(before):
            self._count(before, now)

    def told(self, stormed: bool, now_ns: int) -> Change | None:
        """The switch's own watchdog says so. None where it is known already."""
        if stormed == self.stormed:
            return None
        if stormed:
            self._begin(now_ns)
            return Change.DETECTED
        self._end()
        return Change.RESTORED

    def adopt(self, now_ns: int) -> None:
        """A storm that was found on the switch: of an earlier controller. It is open, and was not detected again."""
        if not self.stormed:
            self._begin(now_ns)

    def missed(self, storms: int) -> None:
        """Storms that began and ended unseen (of the switch's own watchdog)."""
        self.stats = replace(self.stats, detected=self.stats.detected + storms, restored=self.stats.restored + storms)

    def lost_sight(self) -> None:
        """The switch could not be asked: what comes next is compared with nothing before. A storm goes on."""
        self._last, self._held_ns, self._armed = None, 0, False

    def clear(self) -> None:
        """Start the statistics again. The caller refuses it while stormed."""
        self.stats = Stats(detected=int(self.stormed))

    # ---- what it answers ----------------------------------------------------------------------------------------

    @property
    def seen(self) -> Sample | None:
        """The newest sample."""
        return self._last

    def due_ns(self) -> int | None:
        """When a sample could show a storm begin or end, if all goes on as it does. None: no sooner than usual."""
        if self._last is None:
            return None
        if not self.stormed:
            left_ns = self.settings.detection_ns - self._held_ns
            return self._last.time_ns + max(left_ns, 0) if self._armed else None
        if self.settings.action is Action.ALERT or self.settings.restoration_ns is None:
            return None
        return max(self._quiet_since_ns + self.settings.restoration_ns, self._last.time_ns)

    # ---- the rules ----------------------------------------------------------------------------------------------

    def _begin(self, now_ns: int) -> None:
        self.stormed, self.since_ns = True, now_ns
        self._quiet_since_ns = now_ns
        self.stats = replace(self.stats, detected=self.stats.detected + 1, last=Traffic())

    def _end(self) -> None:
        self.stormed, self.since_ns = False, None
        self._held_ns, self._armed = 0, False
        self.stats = replace(self.stats, restored=self.stats.restored + 1)

    def _occupied(self, sample: Sample) -> bool:
        return self.settings.empty_queue or sample.depth_bytes > 0

    def _measure_pause(self, before: Sample, now: Sample) -> None:
        """How long nothing could be sent by now, at least. Never more than is certain: a storm is not called early."""
        paused_ns = now.paused_ns - before.paused_ns
        passed_ns = max(now.time_ns - before.by_ns, paused_ns)
        began = now.pauses - before.pauses
        whole = before.paused and now.paused and began == 0  # one pause, all the while
        only_one = not before.paused and now.paused and began == 1  # one pause, from its beginning
        stuck = now.dequeued == before.dequeued and paused_ns > 0
        if not self._occupied(now):
            self._armed, self._held_ns = False, 0
        elif only_one and not (stuck and self._armed):
            # what was sent in this time was sent before the pause began
            self._armed, self._held_ns = True, paused_ns
        elif stuck and (whole or now.xoff_rx > before.xoff_rx):
            # a pause with gaps in which nothing was sent is as bad as one without (sonic-mgmt #27589)
            if not self._occupied(before):
                self._held_ns = 0  # since when something waits is not known
            elif self._armed:
                self._held_ns += passed_ns
            else:
                self._held_ns = paused_ns
            self._armed = True
        else:
            self._armed, self._held_ns = now.paused, 0

    def _count(self, before: Sample, now: Sample) -> None:
        transitions, paused_ns = now.pauses - before.pauses, now.paused_ns - before.paused_ns
        if transitions or paused_ns:
            recent_ns = self.history.recent_ns + paused_ns if transitions == 0 else paused_ns // transitions
            self.history = History(
                self.history.transitions + transitions, self.history.total_ns + paused_ns, recent_ns, now.time_ns
            )
        dropped = Traffic(tx_drop=now.drop_tx - before.drop_tx, rx_drop=now.drop_rx - before.drop_rx)
        if self.stormed:
            received = max(0, now.rx - before.rx - dropped.rx_drop)
            dropped += Traffic(tx_ok=now.tx - before.tx, rx_ok=received)
        # without a storm: what was dropped between its last sample and the end of the action
        self.stats = replace(self.stats, total=self.stats.total + dropped, last=self.stats.last + dropped)
