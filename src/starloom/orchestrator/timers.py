"""Named timers over the clock port; for the runner. A timer set again starts anew."""

import asyncio
from collections.abc import Callable, Hashable

from starloom.clock import Clock


class Timers:
    """Timers by key, each an asyncio task owned here until it rings, is dropped, or `close`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    def set(self, key: Hashable, after_s: float, ring: Callable[[], None]) -> None:
        """Call `ring` after that many seconds, unless dropped or set again before."""
        self.drop(key)
        self._tasks[key] = asyncio.create_task(self._wait(key, after_s, ring))

    def drop(self, key: Hashable) -> None:
        """Forget a timer; nothing happens when there is none."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def drop_all(self) -> list[asyncio.Task[None]]:
        """Cancel every timer and return their tasks, for the caller to wait for."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        return tasks

    async def _wait(self, key: Hashable, after_s: float, ring: Callable[[], None]) -> None:
        await self._clock.sleep(after_s)
        self._tasks.pop(key, None)
        ring()
