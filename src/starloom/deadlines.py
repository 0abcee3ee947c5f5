"""Deadlines that nearly always are dropped before they come: many of them, one timer of the event loop.

Used where each call has a limit and ends long before it. To note a deadline and to drop it cost two turns of a dict;
the loop is asked for a timer only when an earlier deadline comes or the timer rings. It knows nothing of `Clock`.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Self, TypeVarTuple, Unpack

from starloom.errors import Bug

ArgsT = TypeVarTuple("ArgsT")


class Deadlines:
    """Calls back what is not dropped in time; within the loop that runs at the time of `add`.

    A timer that rings looks through all that are noted, so an owner has as many as it has calls under way, not more.
    """

    def __init__(self) -> None:
        self._noted: dict[int, tuple[float, Callable[..., object], tuple[Any, ...]]] = {}
        self._last = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

    def __len__(self) -> int:
        return len(self._noted)

    def add(self, seconds: float, callback: Callable[[Unpack[ArgsT]], object], *args: *ArgsT) -> int:
        """Call back when that many seconds have passed, unless the key that is returned was dropped before.

        Callbacks come in the order of their deadlines, never from within this call, and must not block.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the one before has ended, and with it whoever waited there
            self._noted.clear()
            self._loop, self._timer, self._rings_at = loop, None, math.inf
        self._last += 1
        when = loop.time() + seconds
        self._noted[self._last] = (when, callback, args)
        if when < self._rings_at:
            self._ring_at(loop, when)
        return self._last

    def drop(self, key: int) -> bool:
        """Forget a deadline; return whether it was still to come."""
        return self._noted.pop(key, None) is not None

    def _ring_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = loop.call_at(when, self._ring, loop), when

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call back what is due, and set the timer for the rest; it is left when all have been dropped."""
        now = max(loop.time(), self._rings_at)  # a loop may ring a moment early
        self._timer, self._rings_at = None, math.inf
        due = sorted((when, key) for key, (when, _, _) in self._noted.items() if when <= now)
        try:
            for _, key in due:
                if (noted := self._noted.pop(key, None)) is not None:
                    noted[1](*noted[2])
        finally:  # a callback that breaks is the loop's to report, and takes no other with it
            earliest = min((when for when, _, _ in self._noted.values()), default=math.inf)
            if earliest < self._rings_at:
                self._ring_at(loop, earliest)


class Limit:
    """Stops a block that takes too long with `TimeoutError`, as `asyncio.timeout` does; enter it once, in a task.

    A cancellation from elsewhere at the same moment goes before the limit and leaves as itself.

    Attributes:
        task: who entered it.
        has_passed: the block was stopped.
    """

    __slots__ = ("_asked_before", "_deadlines", "_key", "has_passed", "seconds", "task")

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        self._deadlines = deadlines
        self.seconds = seconds
        self.has_passed = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise Bug("A limit stops a task, and this is none.")
        self.task: asyncio.Task[Any] = task
        self._asked_before = task.cancelling()
        self._key = self._deadlines.add(self.seconds, task.cancel)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._deadlines.drop(self._key):
            return
        self.has_passed = True
        if self.task.uncancel() <= self._asked_before and kind is asyncio.CancelledError:
            raise TimeoutError from error
