"""Tasks that live as long as a block: a task group whose members are stopped, not awaited, when the block is left.

Used where something must run beside a body (a device beside a hub, a question beside a view). A member's failure ends
the body, as in a task group; the body's own error leaves as itself, not in an exception group.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def raise_lost_cancellation() -> None:
    """Raise a cancellation that a task group has dropped: before Python 3.13 it loses one that comes while it fails.

    To be called after a group whose failure is handled; nothing happens when nobody asked the task to end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Background:
    """Starts tasks beside the block."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[Any]] = set()

    def create_task(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> "asyncio.Task[T]":
        """Start the work; it is cancelled when the block is left."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stop(self) -> None:
        """Ask all that still runs to stop; idempotent."""
        for task in tuple(self._tasks):
            task.cancel()


@asynccontextmanager
async def background() -> AsyncIterator[Background]:
    """Run a block with tasks beside it; when it is left, they are cancelled and awaited."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        tasks = Background(group)
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 - kept, and raised again below as itself
            failure = error
        finally:
            tasks.stop()
    if failure is not None:
        raise failure
