"""The asyncio driver: joins one protocol core to one transport until the connection ends.

Used by the fleet, its outposts and the device process. It reads, writes and keeps time; every decision is the core's.
Events are handed over synchronously and in order, so nothing queues up here: a handler that has to wait starts a task
of its own. A frame is read, judged and answered in one go, within the event loop's call; a task is woken only where
something has to wait: a reader that is slow, a sender that is too fast, a deadline.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from starloom.aip.messages import ClientMessage, ServerMessage
from starloom.aip.pace import Pace
from starloom.aip.protocol import Endpoint, Frame
from starloom.aip.transport import Transport, TransportClosed, direct
from starloom.background import raise_lost_cancellation
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
        self._transport = direct(transport)
        self._protocol: Endpoint[EventT, MessageT] = protocol
        self._clock = clock
        self._handle = handle
        self._send_timeout_s = send_timeout_s
        self._pace = pace
        self._group: asyncio.TaskGroup | None = None  # while `run` runs
        self._writing = False
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at = math.inf

    async def run(self) -> TransportClosed:
        """Drive the connection until either end closes it, and return how it ended."""
        ended = TransportClosed()
        try:
            async with asyncio.TaskGroup() as self._group:
                self.flush()
                with self._part():
                    await self._transport.deliver(self._take)
        except* TransportClosed as closed:
            ended = _first(closed)
        finally:
            self._protocol.close()
            await self._transport.close()
        raise_lost_cancellation()
        return ended

    @contextlib.contextmanager
    def _part(self) -> Iterator[None]:
        """Mark a part of the connection: when it breaks, the rest is ending and begins nothing more."""
        try:
            yield
        except BaseException:
            self._group = None
            raise

    def flush(self) -> None:
        """Send what the core wants sent; call it after every word to the core."""
        group, protocol = self._group, self._protocol
        if group is None:
            return
        if not self._writing and not protocol.hand_over(self._transport.send_now):
            self._writing = True
            group.create_task(self._write())
        if protocol.soonest < self._alarm_at:
            self._wake_at(protocol.soonest, group)

    def _take(self, frame: Frame) -> Awaitable[None] | None:
        now = self._clock.monotonic()
        if self._pace is not None and (delay_s := self._pace.take(now)) > 0:
            return self._take_later(frame, now, delay_s)
        self._pass_on(self._protocol.receive(frame, now))
        return None

    async def _take_later(self, frame: Frame, now: float, delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        self._pass_on(self._protocol.receive(frame, now))

    def _pass_on(self, events: list[EventT]) -> None:
        for event in events:
            self._handle(event)
        self.flush()

    async def _write(self) -> None:
        """Write what the transport would not take at once, and the goodbye."""
        with self._part():
            while frames := self._protocol.take_frames():
                for frame in frames:
                    await self._write_in_time(frame)
            closing = self._protocol.closing
            if closing is not None:
                await self._transport.close(closing.code, closing.reason)
                raise TransportClosed(closing.code, closing.reason)
            self._writing = False

    async def _write_in_time(self, frame: Frame) -> None:
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await self._transport.send(frame)
        except TimeoutError as error:
            raise TransportClosed(1006, "the other end reads too slowly") from error

    def _wake_at(self, deadline: float, group: asyncio.TaskGroup) -> None:
        """Set the one alarm; a deadline that moves later leaves it, and it looks again when it rings."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = group.create_task(self._ring(deadline))

    async def _ring(self, deadline: float) -> None:
        await self._clock.sleep(deadline - self._clock.monotonic())
        self._alarm, self._alarm_at = None, math.inf
        with self._part():
            self._pass_on(self._protocol.expire(self._clock.monotonic()))


def _first(group: BaseExceptionGroup[TransportClosed]) -> TransportClosed:
    """Return one leaf: all of them say the same."""
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf if isinstance(leaf, TransportClosed) else TransportClosed()
