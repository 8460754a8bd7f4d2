"""A task that waits for an event or a time ends when it is cancelled, also in the very moment of the event."""

from __future__ import annotations

import asyncio

import pytest

from controller.waiting import event_or_time


async def test_it_says_which_came_first() -> None:
    event = asyncio.Event()
    assert not await event_or_time(event, 0.01)
    event.set()
    assert await event_or_time(event, 0.01)
    assert await event_or_time(event, None)


@pytest.mark.parametrize("rounds", range(4))
async def test_a_cancellation_together_with_the_event_is_not_lost(rounds: int) -> None:
    """Some rounds of the loop after the event: either the wait was over by then, or the cancellation is heard."""
    event = asyncio.Event()
    task = asyncio.create_task(event_or_time(event, 10))
    await asyncio.sleep(0)
    event.set()
    for _ in range(rounds):
        await asyncio.sleep(0)
    if task.cancel():
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert task.result()
    assert task.cancelled() == (rounds == 0)
