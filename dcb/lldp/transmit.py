"""LLDP transmission (IEEE 802.1AB-2016, 9.2.8 to 9.2.10): when a PDU goes out, told in nanoseconds that are passed in.

`Transmitter` is both the transmit state machine and its timer machine. It builds no PDU: `take` says what is due, one
of `Due`. Variables carry the standard's names. Rules that it keeps:

- every msgTxInterval a PDU; a local change sends one at once, and starts the interval anew;
- a new neighbour sends one at once and then one every msgFastTx until txFastInit have gone (fast start);
- every PDU costs a credit; txCreditMax to begin with, one more each second: what has none waits for it;
- switched off, a shutdown PDU (TTL 0) goes out, and for reinitDelay nothing else.

Late calls are forgiven: an interval starts at the deadline that it follows, unless that would be in the past.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NS_PER_S = 1_000_000_000


class Due(Enum):
    """What to send."""

    INFO = "info"
    SHUTDOWN = "shutdown"


class TransmitState(Enum):
    """States of the transmit state machine (figure 9-2)."""

    LLDP_INITIALIZE = "TX_LLDP_INITIALIZE"
    IDLE = "TX_IDLE"
    SHUTDOWN_FRAME = "TX_SHUTDOWN_FRAME"


@dataclass(frozen=True, slots=True)
class LldpTimers:
    """Timing (9.2.5.6 and 9.2.5.7), the standard's defaults. Seconds, but for the two counts and msg_tx_hold.

    Raises ValueError where a value is outside the range of the standard's MIB.
    """

    msg_tx_interval_s: int = 30
    msg_tx_hold: int = 4
    msg_fast_tx_s: int = 1
    tx_fast_init: int = 4
    tx_credit_max: int = 5
    reinit_delay_s: int = 2

    def __post_init__(self) -> None:
        for name, low, high in (
            ("msg_tx_interval_s", 1, 3600),
            ("msg_tx_hold", 1, 100),
            ("msg_fast_tx_s", 1, 3600),
            ("tx_fast_init", 1, 8),
            ("tx_credit_max", 1, 10),
            ("reinit_delay_s", 1, 10),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name}: {value} is out of range, must be {low}..{high}")

    @property
    def tx_ttl_s(self) -> int:
        """txTTL: msgTxInterval x msgTxHold + 1, at most 65535."""
        return min(0xFFFF, self.msg_tx_interval_s * self.msg_tx_hold + 1)


class Transmitter:
    """One port's transmit and transmit-timer machines. Starts in LLDP_INITIALIZE; `set_enabled` starts it."""

    def __init__(self, timers: LldpTimers) -> None:
        self.timers = timers
        self.state = TransmitState.LLDP_INITIALIZE
        self.tx_fast = 0
        self.tx_credit = timers.tx_credit_max
        self._wanted = False
        self._port_enabled = False
        self._tx_now = False
        self._shutdown_due = False
        self._ttr_ns: int | None = None
        self._credit_ns = 0
        self._shutdown_until_ns: int | None = None

    def set_enabled(self, wanted: bool, port_enabled: bool, now_ns: int) -> None:
        """adminStatus allows transmission (`wanted`), and the port is up. Off while the port is up: shutdown."""
        was_running = self.state is TransmitState.IDLE
        self._wanted, self._port_enabled = wanted, port_enabled
        if not port_enabled:
            self.state = TransmitState.LLDP_INITIALIZE
            self._stop()
            self._shutdown_until_ns = None
        elif was_running and not wanted:
            self.state = TransmitState.SHUTDOWN_FRAME
            self._stop()
            self._shutdown_due = True
            self._shutdown_until_ns = now_ns + self.timers.reinit_delay_s * NS_PER_S
        self._start(now_ns)

    def _stop(self) -> None:
        self._tx_now = self._shutdown_due = False
        self._ttr_ns = None

    def _start(self, now_ns: int) -> None:
        """TX_LLDP_INITIALIZE to TX_IDLE with TX_TIMER_INITIALIZE: txTTR is 0, so the first PDU is due."""
        if self.state is TransmitState.LLDP_INITIALIZE and self._wanted and self._port_enabled:
            self.state = TransmitState.IDLE
            self.tx_fast = 0
            self.tx_credit = self.timers.tx_credit_max
            self._credit_ns = now_ns
            self._ttr_ns = now_ns

    def local_change(self, now_ns: int) -> None:
        """localChange: what the port says has changed."""
        if self.state is TransmitState.IDLE:
            self._signal(now_ns, now_ns)

    def new_neighbor(self, now_ns: int) -> None:
        """newNeighbor: TX_FAST_START, TX_TIMER_EXPIRES, SIGNAL_TX."""
        if self.state is TransmitState.IDLE:
            if self.tx_fast == 0:
                self.tx_fast = self.timers.tx_fast_init
            self.tx_fast -= 1
            self._signal(now_ns, now_ns)

    def _signal(self, at_ns: int, now_ns: int) -> None:
        self._tx_now = True
        interval_ns = (self.timers.msg_fast_tx_s if self.tx_fast else self.timers.msg_tx_interval_s) * NS_PER_S
        self._ttr_ns = at_ns + interval_ns if at_ns + interval_ns > now_ns else now_ns + interval_ns

    def _tick(self, now_ns: int) -> None:
        """txTick: a credit each second since the start, up to the maximum."""
        ticks, _ = divmod(now_ns - self._credit_ns, NS_PER_S)
        if ticks > 0:
            self.tx_credit = min(self.timers.tx_credit_max, self.tx_credit + ticks)
            self._credit_ns += ticks * NS_PER_S

    def handle_timer(self, now_ns: int) -> None:
        """What time brings. Call at `next_deadline_ns`, or whenever."""
        until_ns = self._shutdown_until_ns
        if until_ns is not None and now_ns >= until_ns and not self._shutdown_due:
            self._shutdown_until_ns = None
            self.state = TransmitState.LLDP_INITIALIZE
            self._start(now_ns)
        if self.state is TransmitState.IDLE:
            self._tick(now_ns)
            if self._ttr_ns is not None and now_ns >= self._ttr_ns:
                if self.tx_fast:
                    self.tx_fast -= 1
                self._signal(self._ttr_ns, now_ns)

    def take(self, now_ns: int) -> Due | None:
        """What is to be sent now, once; None when nothing is. An INFO costs a credit."""
        self.handle_timer(now_ns)
        if self._shutdown_due:
            self._shutdown_due = False
            return Due.SHUTDOWN
        if self.state is TransmitState.IDLE and self._tx_now and self.tx_credit > 0:
            self._tx_now = False
            self.tx_credit -= 1
            return Due.INFO
        return None

    def next_deadline_ns(self) -> int | None:
        """When `take` may next have something, None for never."""
        if self.state is TransmitState.SHUTDOWN_FRAME:
            return self._shutdown_until_ns
        if self.state is not TransmitState.IDLE:
            return None
        if self._tx_now:
            return self._credit_ns + (NS_PER_S if self.tx_credit == 0 else 0)
        return self._ttr_ns
