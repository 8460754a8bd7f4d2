"""Watches for deadlock while the controller runs: rings of paused queues in which nothing moves, each told once.

One task of a `Controller`. Each interval it asks the switches which priorities are paused; only while there are some
does it look at the whole wait-for graph (`controller.waitfor`), against the view of the interval before. A ring that is
found is an event of kind `deadlock`, and so is its end; a switch that does not answer is in no ring. Without the key
`deadlock_detection` the task sleeps.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from controller.deadlock_config import DeadlockDetection
from controller.events import EventHub
from controller.waitfor import FabricView, Queue, WaitGraph, describe_ring
from controller.waiting import event_or_time

if TYPE_CHECKING:
    from controller.config import Config
    from controller.control import Controller

LOGGER = logging.getLogger("dcblab.controller")


class DeadlockService:
    """See the module. `rings`: those that stand now."""

    def __init__(self, controller: Controller, hub: EventHub) -> None:
        self._controller, self._hub = controller, hub
        self._settings: DeadlockDetection | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._before: FabricView | None = None
        self.rings: tuple[tuple[Queue, ...], ...] = ()

    def configure(self, running: Config) -> None:
        """Take the running config."""
        if running.deadlock_detection != self._settings:
            self._settings = running.deadlock_detection
            self._wake.set()

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run(), name="deadlock detection")

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            settings = self._settings
            if await event_or_time(self._wake, None if settings is None else settings.interval_ms / 1000):
                self._before = None  # of other settings
            else:
                await self.look()

    async def look(self) -> None:
        """One look; against the one before."""
        from controller import why

        before, self._before = self._before, None
        if not await why.anything_paused(self._controller):
            self._tell(())
            return
        now = await why.view(self._controller)
        self._before = now
        if before is not None:
            self._tell(tuple(WaitGraph(self._controller.running, before, now).cycles()))

    def _tell(self, rings: tuple[tuple[Queue, ...], ...]) -> None:
        for ring in rings:
            if ring not in self.rings:
                LOGGER.error("deadlock: %s", describe_ring(ring))
                self._emit("found", ring)
        for ring in self.rings:
            if ring not in rings:
                self._emit("ended", ring)
        self.rings = rings

    def _emit(self, what: str, ring: tuple[Queue, ...]) -> None:
        queues = [str(queue) for queue in ring]
        text = f"deadlock {what}: {describe_ring(ring)}"
        self._hub.emit("deadlock", text, switch=ring[0].switch, event=what, queues=queues)
