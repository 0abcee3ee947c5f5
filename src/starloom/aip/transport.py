"""The transport port and its in-memory pair: how frames get from one end to the other.

For `aip.link`, which drives any of them; the WebSocket adapters are in `aip.websocket`. A local device is a device on
an in-memory pair, so there is one path for one machine and for a thousand.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, cast

from starloom.aip.protocol import NORMAL, Frame
from starloom.errors import WireError

# Takes a frame, and returns what to wait for before the next one; None: nothing.
Take: TypeAlias = Callable[[Frame], Awaitable[None] | None]


class TransportClosed(WireError):
    """The connection is gone. `code` and `reason` as in WebSocket; 1006: without a goodbye."""

    def __init__(self, code: int = 1006, reason: str = "") -> None:
        super().__init__(f"The connection was closed with code {code}{f' ({reason})' if reason else ''}.")
        self.code = code
        self.reason = reason


class Transport(Protocol):
    """One connection that carries whole frames in order: text as `str`, binary as `bytes`."""

    async def send(self, frame: Frame) -> None:
        """Send one frame; waits while the other end reads slowly.

        Raises:
            TransportClosed: the connection is gone.
        """
        ...

    def receive(self) -> Awaitable[Frame]:
        """Return the next frame. Cancelling loses none.

        Raises:
            TransportClosed: the connection is gone and everything that arrived was returned.
        """
        ...

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Close the connection; idempotent, and never raises."""
        ...


class DirectTransport(Transport, Protocol):
    """A transport that also takes frames and hands them over without a task's waking up for each."""

    def send_now(self, frame: Frame) -> bool:
        """Send one frame if that needs no waiting; False: it was not sent, and `send` says why. Never raises."""
        ...

    async def deliver(self, take: Take) -> None:
        """Hand every frame to `take` as it arrives, in place of `receive`, until the connection is gone.

        Raises:
            TransportClosed: the connection is gone and everything that arrived was handed over.
        """
        ...


class Patient:
    """Any transport in the shape of a direct one: every frame waits for its turn."""

    def __init__(self, transport: Transport) -> None:
        self.send = transport.send
        self.receive = transport.receive
        self.close = transport.close

    def send_now(self, frame: Frame) -> bool:
        """Leave the frame to `send`."""
        return False

    async def deliver(self, take: Take) -> None:
        """Receive frame after frame."""
        await _pull(self.receive, take)


def direct(transport: Transport) -> DirectTransport:
    """Return a transport in the shape of a direct one."""
    return cast("DirectTransport", transport) if hasattr(transport, "send_now") else Patient(transport)


async def _pull(receive: Callable[[], Awaitable[Frame]], take: Take) -> None:
    while True:
        rest = take(await receive())
        if rest is not None:
            await rest


class MemoryTransport:
    """One end of an in-memory pair; made by `memory_pair`."""

    def __init__(self, limit: int) -> None:
        self._inbox: asyncio.Queue[Frame | TransportClosed] = asyncio.Queue(limit)
        self._closed: TransportClosed | None = None
        self._over = asyncio.Event()
        self.peer: MemoryTransport = self

    def send_now(self, frame: Frame) -> bool:
        """Put the frame into the other end's inbox unless that is full, or closed."""
        if self._closed is not None or self.peer._inbox.full():
            return False
        self.peer._inbox.put_nowait(frame)
        return True

    async def send(self, frame: Frame) -> None:
        """Put the frame into the other end's inbox; waits while that is full."""
        if self._closed is not None:
            raise self._closed
        if not self.send_now(frame):
            await self._put_or_closed(frame)

    async def _put_or_closed(self, frame: Frame) -> None:
        async with asyncio.TaskGroup() as group:
            put = group.create_task(self.peer._inbox.put(frame))
            over = group.create_task(self._over.wait())
            await asyncio.wait({put, over}, return_when=asyncio.FIRST_COMPLETED)
            sent = put.done()
            put.cancel()
            over.cancel()
        if not sent:
            raise self._closed or TransportClosed()

    async def deliver(self, take: Take) -> None:
        """Hand over frame after frame of the inbox."""
        await _pull(self.receive, take)

    async def receive(self) -> Frame:
        """Return the next frame of the inbox."""
        if self._inbox.empty() and self._closed is not None:
            raise self._closed
        if not self._inbox.empty():
            item = self._inbox.get_nowait()
        else:
            item = await self._inbox.get()
        if isinstance(item, TransportClosed):
            raise item
        return item

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Close both ends; the other end still reads what was sent before."""
        for end in (self, self.peer):
            end._shut(TransportClosed(code, reason))

    def _shut(self, why: TransportClosed) -> None:
        if self._closed is not None:
            return
        self._closed = why
        self._over.set()
        if self._inbox.empty():
            self._inbox.put_nowait(why)  # wakes a reader that waits


def memory_pair(limit: int = 64) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two ends joined in memory; `limit` frames may wait in each direction before `send` waits."""
    left, right = MemoryTransport(limit), MemoryTransport(limit)
    left.peer, right.peer = right, left
    return left, right
