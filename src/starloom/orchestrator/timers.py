"""Named timers over the clock port; for the runner. A timer set again starts anew, a timeout can stand still."""

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


class Timeout:
    """A timer that can stand still while a person is asked; the `patience.Deadline` of an attempt."""

    def __init__(self, timers: Timers, clock: Clock, key: Hashable, after_s: float, ring: Callable[[], None]) -> None:
        self._timers = timers
        self._clock = clock
        self._key = key
        self._ring = ring
        self._left_s = after_s
        self._holds = 0
        self._is_over = False
        self._start()

    def hold(self) -> None:
        """Stop the time."""
        self._holds += 1
        if self._holds == 1:
            self._timers.drop(self._key)
            self._left_s -= self._clock.monotonic() - self._since

    def go_on(self) -> None:
        """Let the time go on, with what was left of it."""
        self._holds -= 1
        if not self._holds and not self._is_over:
            self._start()

    def drop(self) -> None:
        """End it: it rings no more."""
        self._is_over = True
        self._timers.drop(self._key)

    def _start(self) -> None:
        self._since = self._clock.monotonic()
        self._timers.set(self._key, max(self._left_s, 0.0), self._ring)
