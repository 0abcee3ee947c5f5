"""Frames that have arrived on a connection, and where they go: to a taker at once, or to whoever asks for the next.

Used by the WebSocket transports. A taker is called from the event loop's own callback, so a frame costs no wake-up of
a task; what it cannot take yet waits here, and then the connection is not read from, so the other end waits too.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from starloom.aip.protocol import Frame
from starloom.aip.transport import Take, TransportClosed

AT_ONCE = 16  # frames of one connection that are taken before others get their turn
MOST_WAITING = 16


class Inbox:
    """One connection's frames, in order, and then its end.

    Args:
        pause: stop reading from the connection.
        resume: go on reading.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._paused = False
        self._frames: deque[Frame] = deque()
        self._take: Take | None = None
        self._rest: Awaitable[None] | None = None
        self._in_turn = 0
        self._ended: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def turn(self) -> None:
        """Note that the event loop has come round to this connection again."""
        self._in_turn = 0

    def put(self, frame: Frame) -> None:
        """Hand a frame to the taker, or keep it when there is none, it rests, or others should have their turn."""
        if self._ended is not None:
            return
        if self._take is None or self._frames or self._rest is not None or self._in_turn >= AT_ONCE:
            self._frames.append(frame)
            self._flow()
            self._wake()
            return
        self._in_turn += 1
        try:
            self._rest = self._take(frame)
        except Exception as error:  # noqa: BLE001 - not lost: `deliver` raises it, in the task that owns the connection
            self.close(error)
        if self._rest is not None:
            self._flow()
            self._wake()

    def close(self, why: BaseException) -> None:
        """End the connection for whoever reads, after the frames that wait; the first reason stays."""
        if self._ended is None:
            self._ended = why
            self._wake()

    def stop(self, why: BaseException) -> None:
        """Drop what waits and what comes, but go on reading: we leave, and the other end's goodbye must be heard."""
        self.close(why)
        self._frames.clear()
        if self._paused:
            self._paused = False
            self._resume()

    async def receive(self) -> Frame:
        """Return the next frame; for readers without a taker."""
        while not self._frames:
            if self._ended is not None:
                raise self._ended
            await self._news()
        frame = self._frames.popleft()
        self._flow()
        return frame

    async def deliver(self, take: Take) -> None:
        """Hand over every frame as it arrives, until the connection is gone; see `DirectTransport.deliver`."""
        self._take = take
        try:
            while True:
                for _ in range(min(len(self._frames), AT_ONCE)):
                    if self._rest is None:
                        self._rest = take(self._frames.popleft())
                self._flow()
                if self._rest is not None:
                    await self._rest
                    self._rest = None
                elif self._frames:
                    await asyncio.sleep(0)  # others' turn
                elif self._ended is not None:
                    raise self._ended
                else:
                    await self._news()
        finally:
            self._take = None

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _flow(self) -> None:
        """Read from the connection only while there is room, and nobody rests."""
        full = self._rest is not None or len(self._frames) > MOST_WAITING
        if full is not self._paused and self._ended is None:
            self._paused = full
            (self._pause if full else self._resume)()


def closed_with(code: int | None, reason: str | None) -> TransportClosed:
    """Return the end of a connection; without a code there was no goodbye."""
    return TransportClosed(1006 if code is None else code, reason or "")
