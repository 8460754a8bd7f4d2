"""An asyncio event loop in virtual time: its clock is the fabric's, and waiting means running the fabric.

`VirtualLoop` owns the timers and the ready queue; the `World` (the fabric, or a test's) owns the clock. The barrier: as
long as any callback is ready, time stands still, so whatever the control plane does takes no time but what it asks for.
When all are idle the world runs to the next timer, or to the first control event before it (a frame for a CPU port, a
digest), and the watchers take what has happened.

    def make() -> asyncio.AbstractEventLoop: return VirtualLoop(world)
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())                         # or run(world, main())

Times are integer picoseconds inside; asyncio's are floats of seconds, exact to the picosecond up to 2251 s and to the
nanosecond for weeks. Timers that are due together run in the order in which they were set. Nothing real can be waited
for: sockets, files, child processes, threads, signals are refused.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

T = TypeVar("T")
PS_PER_S = 1_000_000_000_000
PS_PER_NS = 1_000
LIMIT_PS = 3600 * PS_PER_S
_CLEAN_UP_PS = 600 * PS_PER_S  # for what is cancelled after the end of time
_IDLE_RUNS = 10_000
_CANCELLED_TIMERS = 100


class World(Protocol):
    """What time is to be had from: `fabric.engine.Fabric`, or a test's."""

    @property
    def now_ps(self) -> int:
        """The time."""

    def run(self, until_ps: int) -> object:
        """Let everything happen up to and at `until_ps`, but stop at the first control event, which may be now.

        What it returns is not looked at: `now_ps` says how far it came, the watchers find out what there is.
        """


class VirtualTimeError(RuntimeError):
    """The control plane asked for what virtual time does not have."""


class Deadlock(VirtualTimeError):
    """Nothing is scheduled, nobody can be woken, and tasks wait: `waiting` says which, and where."""

    def __init__(self, now_ps: int, waiting: list[str]) -> None:
        self.waiting = waiting
        super().__init__(
            f"at {now_ps / PS_PER_S:.6f} s: nothing is scheduled and nothing will happen, but these tasks wait: "
            + ("; ".join(waiting) or "none")
        )


class OutOfTime(VirtualTimeError):
    """The loop's limit has been reached and something still runs."""


def to_ps(seconds: float) -> int:
    """Seconds as asyncio has them, in picoseconds."""
    return round(seconds * PS_PER_S)


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. `limit_ps`: the time at which a run is given up (default an hour)."""

    _ready: Any  # deque of handles, of BaseEventLoop
    _stopping: bool

    def __init__(self, world: World, *, limit_ps: int = LIMIT_PS) -> None:
        super().__init__()
        self.world = world
        self._limit_ps = limit_ps
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._cancelled = 0  # of the timers
        self._sequence = itertools.count()
        self._watchers: list[Callable[[], None]] = []
        self._owner = threading.get_ident()

    # ---- time -------------------------------------------------------------------------------------------------------

    @property
    def now_ps(self) -> int:
        """The time in picoseconds."""
        return self.world.now_ps

    def time(self) -> float:
        """The time in seconds."""
        return self.world.now_ps / PS_PER_S

    def call_at_ps(
        self, when_ps: int, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """`call_at` with an exact time; one that has passed means now."""
        self._check_closed()  # type: ignore[attr-defined]
        when_ps = max(when_ps, self.world.now_ps)
        timer = asyncio.TimerHandle(when_ps / PS_PER_S, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (when_ps, next(self._sequence), timer))
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_at_ps(to_ps(when), callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_at_ps(self.world.now_ps + to_ps(delay), callback, *args, context=context)

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        """`watcher` is called each time that the world has run: it takes what has happened there."""
        self._watchers.append(watcher)

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        """Take a watcher away again."""
        self._watchers.remove(watcher)

    # ---- one round --------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            self._let_time_pass()
        self._take_due()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _next_due(self) -> int | None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
            self._cancelled -= 1
        return self._timers[0][0] if self._timers else None

    def _take_due(self) -> None:
        now_ps = self.world.now_ps
        while (due := self._next_due()) is not None and due <= now_ps:
            timer = heapq.heappop(self._timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(timer)

    def _let_time_pass(self) -> None:
        idle = 0
        while not self._ready:
            now_ps, due = self.world.now_ps, self._next_due()
            if due is not None and due <= now_ps:
                return
            if now_ps >= self._limit_ps:
                self._give_up(due)
            until_ps = self._limit_ps if due is None else min(due, self._limit_ps)
            self.world.run(until_ps)
            for watcher in self._watchers:
                watcher()
            idle = idle + 1 if self.world.now_ps == now_ps else 0
            if idle > _IDLE_RUNS:
                raise VirtualTimeError(
                    f"at {now_ps} ps: the fabric stopped {idle} times for a control event that nobody takes"
                )

    def _give_up(self, due: int | None) -> NoReturn:
        now_ps, waiting = self.world.now_ps, self._waiting()
        self._limit_ps = now_ps + _CLEAN_UP_PS
        if due is None:
            raise Deadlock(now_ps, waiting)
        raise OutOfTime(f"at {now_ps / PS_PER_S:.6f} s: the time limit; these tasks run: " + "; ".join(waiting))

    def _waiting(self) -> list[str]:
        """`name at file:line` of every task that is not done."""
        found = []
        for task in asyncio.all_tasks(self):
            stack = task.get_stack(limit=1)
            where = f" at {stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else ""
            found.append(f"{task.get_name()}{where}")
        return sorted(found)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Of asyncio, before `handle` is marked. Timers that are cancelled go when they are due, or are too many."""
        if not handle._scheduled:  # type: ignore[attr-defined]
            return
        self._cancelled += 1
        if self._cancelled > _CANCELLED_TIMERS and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 1  # this one

    # ---- what there is not ------------------------------------------------------------------------------------------

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Only from the loop's own thread: in virtual time there is no other."""
        if threading.get_ident() != self._owner:
            raise VirtualTimeError("a call from another thread: in virtual time there is only the loop's own")
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, event_list: Any) -> None:
        """Of asyncio; there are none."""

    def _write_to_self(self) -> None:
        """Of asyncio; nobody is waiting to be woken."""


def _refusal(what: str) -> Callable[..., NoReturn]:
    def refuse(self: VirtualLoop, *args: object, **options: object) -> NoReturn:
        raise VirtualTimeError(f"in virtual time {what} cannot be waited for: it runs on another clock")

    return refuse


_REFUSED = {
    "a thread": ("run_in_executor",),
    "a name server": ("getaddrinfo", "getnameinfo"),
    "a file descriptor": ("add_reader", "remove_reader", "add_writer", "remove_writer", "sendfile"),
    "a signal": ("add_signal_handler", "remove_signal_handler"),
    "a process": ("subprocess_exec", "subprocess_shell"),
    "a pipe": ("connect_read_pipe", "connect_write_pipe"),
    "a socket": (
        "create_connection",
        "create_server",
        "create_unix_connection",
        "create_unix_server",
        "create_datagram_endpoint",
        "connect_accepted_socket",
        "start_tls",
        "sock_accept",
        "sock_connect",
        "sock_recv",
        "sock_recv_into",
        "sock_recvfrom",
        "sock_sendall",
        "sock_sendfile",
        "sock_sendto",
    ),
}
for _what, _names in _REFUSED.items():
    for _name in _names:
        setattr(VirtualLoop, _name, _refusal(_what))


def run(world: World, main: Coroutine[Any, Any, T], *, limit_ps: int = LIMIT_PS) -> T:
    """`asyncio.run` in the time of `world`."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(world, limit_ps=limit_ps)) as runner:
        return runner.run(main)
