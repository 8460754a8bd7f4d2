"""Waiting for an event or the end of a time, whichever comes first.

Not `asyncio.wait_for`: that of Python 3.11 swallows a cancellation that arrives together with the event, and a task
that is to end would go on.
"""

from __future__ import annotations

import asyncio


async def event_or_time(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until `event` is set (True) or `seconds` have passed (False); None: no limit."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
