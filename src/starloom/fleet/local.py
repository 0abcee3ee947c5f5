"""Local devices: a way into the fleet that needs no socket.

Used by the composition root: the function it makes is handed to `device.process.run_device` like any other dialler.
"""

from asyncio import Task
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from starloom.aip.messages import ClientType
from starloom.aip.transport import Transport, memory_pair
from starloom.fleet.fleet import Fleet
from starloom.fleet.principals import Principal


class TaskStarter(Protocol):
    """Who owns the serving tasks; a `Background` or a `TaskGroup`."""

    def create_task(self, work: Coroutine[Any, Any, None], /) -> "Task[None]":
        """Start the work and answer for its end."""
        ...


def local_connector(
    fleet: Fleet, group: TaskStarter, device_id: str | None = None
) -> Callable[[], Awaitable[Transport]]:
    """Return a dialler whose every connection the fleet serves in a task of `group`.

    With a `device_id` the connections may register that device only, and no other's token may take its place.
    """
    principal = Principal(ClientType.DEVICE, device_id) if device_id is not None else None

    async def connect() -> Transport:
        ours, theirs = memory_pair()
        group.create_task(fleet.serve(ours, principal=principal))
        return theirs

    return connect
