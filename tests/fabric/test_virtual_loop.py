"""The event loop in virtual time: exact timers, order, refusal of everything real, dead ends that say who waits."""

from __future__ import annotations

import asyncio
import time

import pytest

from fabric.loop import PS_PER_S, Deadlock, OutOfTime, VirtualLoop, VirtualTimeError, run


class Clock:
    """A world in which something happens for the control plane at set times."""

    def __init__(self, *events_ps: int) -> None:
        self.now_ps, self.events_ps, self.asked = 0, sorted(events_ps), []

    def run(self, until_ps: int) -> None:
        self.asked.append(until_ps)
        if self.events_ps and self.events_ps[0] <= until_ps:
            self.now_ps = self.events_ps.pop(0)
        else:
            self.now_ps = until_ps


def loop() -> VirtualLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running


def test_a_sleep_takes_exactly_its_time_and_none_of_ours() -> None:
    async def main() -> list[int]:
        seen = []
        for seconds in (0.1, 0.2, 1e-9, 1e-12, 3000.0):
            await asyncio.sleep(seconds)
            seen.append(loop().now_ps)
        return seen

    before = time.perf_counter()
    assert run(Clock(), main()) == [
        100_000_000_000,
        300_000_000_000,
        300_000_001_000,
        300_000_001_001,
        3_000_300_000_001_001,
    ]
    assert time.perf_counter() - before < 5


def test_timers_that_are_due_together_run_as_they_were_set_and_before_later_ones() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        done = asyncio.Event()
        loop().call_at_ps(7, seen.append, "c")
        loop().call_at_ps(5, seen.append, "a")
        loop().call_at_ps(5, seen.append, "b")
        loop().call_at_ps(6, seen.append, "never").cancel()
        loop().call_at_ps(7, done.set)
        await done.wait()
        return seen

    assert run(Clock(), main()) == ["a", "b", "c"]


def test_a_control_event_wakes_before_the_next_timer() -> None:
    clock = Clock(40)

    async def main() -> int:
        woken = asyncio.Event()

        def watch() -> None:
            if clock.now_ps == 40:
                woken.set()

        loop().add_watcher(watch)
        loop().call_at_ps(1000, woken.set)
        await woken.wait()
        return loop().now_ps

    assert run(clock, main()) == 40
    assert clock.asked[0] == 1000


def test_time_stands_still_while_the_control_plane_is_busy() -> None:
    clock = Clock()

    async def main() -> None:
        loop().call_at_ps(10, lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert clock.now_ps == 0

    run(clock, main())


def test_a_timeout_and_wait_for_fire_to_the_picosecond() -> None:
    async def main() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.75)
        return loop().now_ps

    assert run(Clock(), main()) == PS_PER_S


def test_a_dead_end_is_an_error_that_names_the_tasks() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        asyncio.current_task().set_name("the main one")  # type: ignore[union-attr]
        await asyncio.create_task(stuck(), name="poor soul")

    with pytest.raises(
        Deadlock, match=r"nothing is scheduled.*poor soul at .*test_virtual_loop.py.*the main one"
    ) as seen:
        run(Clock(), main(), limit_ps=PS_PER_S)
    assert len(seen.value.waiting) == 2


def test_what_never_ends_is_given_up_at_the_limit() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0.3)

    with pytest.raises(OutOfTime, match=r"at 2\.000000 s: the time limit"):
        run(Clock(), main(), limit_ps=2 * PS_PER_S)


def test_an_event_that_nobody_takes_is_an_error_and_not_a_hang() -> None:
    class Stuck(Clock):
        def run(self, until_ps: int) -> None:
            pass

    async def main() -> None:
        await asyncio.sleep(1)

    with pytest.raises(VirtualTimeError, match="a control event that nobody takes"):
        run(Stuck(), main())


async def _thread() -> None:
    await asyncio.to_thread(time.sleep, 0)


async def _socket() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def _server() -> None:
    await asyncio.start_unix_server(lambda r, w: None, path="/nowhere")


async def _process() -> None:
    await asyncio.create_subprocess_exec("true")


async def _reader() -> None:
    loop().add_reader(0, print)


@pytest.mark.parametrize(
    ("real", "what"),
    [(_thread, "a thread"), (_socket, "a socket"), (_server, "a socket"), (_process, "a process"),
     (_reader, "a file descriptor")],
)  # fmt: skip
def test_nothing_real_can_be_waited_for(real, what: str) -> None:
    with pytest.raises(VirtualTimeError, match=f"in virtual time {what} cannot be waited for"):
        run(Clock(), real())


def test_many_cancelled_timers_are_swept() -> None:
    async def main() -> int:
        for _ in range(5000):
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
        return len(loop()._timers)

    assert run(Clock(), main()) < 400
