"""Local devices: a way into the fleet that needs no socket.

Used by the composition root: the function it makes is handed to `device.process.run_device` like any other dialler.
"""

import asyncio
from collections.abc import Awaitable, Callable

from starloom.aip.transport import Transport, memory_pair
from starloom.fleet.fleet import Fleet


def local_connector(fleet: Fleet, group: asyncio.TaskGroup) -> Callable[[], Awaitable[Transport]]:
    """Return a dialler whose every connection the fleet serves in a task of `group`."""

    async def connect() -> Transport:
        ours, theirs = memory_pair()
        group.create_task(fleet.serve(ours))
        return theirs

    return connect
