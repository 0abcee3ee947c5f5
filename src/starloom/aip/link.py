"""The asyncio driver: joins one protocol core to one transport until the connection ends.

Used by the fleet, its outposts and the device process. It reads, writes and keeps time; every decision is the core's.
One task writes, one keeps time, and the caller of `run` reads; events are handed over synchronously and in order, so
nothing queues up here: a handler that has to wait starts a task of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from starloom.aip.messages import ClientMessage, ServerMessage
from starloom.aip.pace import Pace
from starloom.aip.protocol import Endpoint
from starloom.aip.transport import Transport, TransportClosed
from starloom.clock import Clock

EventT = TypeVar("EventT")
MessageT = TypeVar("MessageT", ClientMessage, ServerMessage)


class Link(Generic[EventT, MessageT]):
    """One connection's driver.

    Args:
        transport: an open connection; `run` closes it.
        protocol: the core of our role.
        clock: for the core's deadlines.
        handle: takes each event; must not block.
        send_timeout_s: how long one frame may wait for a slow reader before the connection is given up.
        pace: how fast frames are taken in; the rest waits in the other end's buffers. None: as they come.
    """

    def __init__(
        self,
        transport: Transport,
        protocol: Endpoint[EventT, MessageT],
        clock: Clock,
        handle: Callable[[EventT], None],
        *,
        send_timeout_s: float = 60.0,
        pace: Pace | None = None,
    ) -> None:
        self._transport = transport
        self._protocol: Endpoint[EventT, MessageT] = protocol
        self._clock = clock
        self._handle = handle
        self._send_timeout_s = send_timeout_s
        self._pace = pace
        self._to_write = asyncio.Event()
        self._earlier = asyncio.Event()
        self._armed_for: float | None = None

    async def run(self) -> TransportClosed:
        """Drive the connection until either end closes it, and return how it ended."""
        ended = TransportClosed()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write())
                group.create_task(self._keep_time())
                self.flush()
                await self._read()
        except* TransportClosed as closed:
            ended = _first(closed)
        finally:
            self._protocol.close()
            await self._transport.close()
        return ended

    def flush(self) -> None:
        """Send what the core wants sent; call it after every word to the core."""
        self._to_write.set()
        deadline = self._protocol.deadline()
        if deadline is not None and (self._armed_for is None or deadline < self._armed_for):
            self._earlier.set()

    async def _read(self) -> None:
        while True:
            frame = await self._transport.receive()
            now = self._clock.monotonic()
            if self._pace is not None and (delay_s := self._pace.take(now)) > 0:
                await self._clock.sleep(delay_s)
            self._pass_on(self._protocol.receive(frame, now))

    def _pass_on(self, events: list[EventT]) -> None:
        for event in events:
            self._handle(event)
        self.flush()

    async def _write(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            for frame in self._protocol.take_frames():
                try:
                    async with asyncio.timeout(self._send_timeout_s):
                        await self._transport.send(frame)
                except TimeoutError as error:
                    raise TransportClosed(1006, "the other end reads too slowly") from error
            closing = self._protocol.closing
            if closing is not None:
                await self._transport.close(closing.code, closing.reason)
                raise TransportClosed(closing.code, closing.reason)

    async def _keep_time(self) -> None:
        while True:
            self._armed_for = self._protocol.deadline()
            self._earlier.clear()
            if self._armed_for is None:
                await self._earlier.wait()
                continue
            await self._sleep_until(self._armed_for)
            self._pass_on(self._protocol.expire(self._clock.monotonic()))

    async def _sleep_until(self, deadline: float) -> None:
        """Return at the deadline, or when an earlier one was set."""
        sleeper = asyncio.ensure_future(self._clock.sleep(deadline - self._clock.monotonic()))
        waker = asyncio.ensure_future(self._earlier.wait())
        try:
            await asyncio.wait({sleeper, waker}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            waker.cancel()


def _first(group: BaseExceptionGroup[TransportClosed]) -> TransportClosed:
    """Return one leaf: all of them say the same."""
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf if isinstance(leaf, TransportClosed) else TransportClosed()
