"""The hub's side of a WebSocket: uvicorn sees to handshakes and frames, the fleet's link reads and writes directly.

Handed to uvicorn by `hub.serve`. An application that accepted a connection may take it over (`aip.websocket.accepted`
asks for it); from then on a message costs neither an ASGI event, nor a queue, nor a task's waking up. One that does
not ask is served by ASGI as ever.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.utils import ClientDisconnected
from websockets.http11 import Request
from websockets.protocol import State

from starloom.aip.frames import Cutter, Raw, framed
from starloom.aip.inbox import Inbox, closed_with
from starloom.aip.protocol import NORMAL, Frame
from starloom.aip.transport import Take
from starloom.aip.websocket import CLOSE_TIMEOUT_S, DIRECT
from starloom.hub.certificates import CertifiedWebSocket


class WireProtocol(CertifiedWebSocket):
    """The server's WebSocket, with the extension `starloom.direct` in its scope."""

    inbox: Inbox | None = None
    cutter: Cutter | None = None
    came_early = False  # bytes behind the request, before the application took over: the library is amid a frame

    def handle_connect(self, event: Request) -> None:
        """Offer the extension to the application, whose task has not begun yet."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[DIRECT] = self._take_over

    def data_received(self, data: bytes) -> None:
        """Take in what the socket brought."""
        if self.inbox is None or self.cutter is None:
            self.came_early = self.came_early or self.handshake_initiated
            super().data_received(data)
            return
        self.inbox.turn()
        for part in self.cutter.cut(data):
            if isinstance(part, Raw):
                super().data_received(part.data)
            else:
                self.inbox.put(part)

    def handle_ping(self) -> None:
        """Answer a ping, unless answers are piling up: one who reads none of them gets none."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def _take_over(self) -> "AcceptedTransport":
        earlier, self.inbox = self.queue, Inbox(self.transport.pause_reading, self.transport.resume_reading)
        self.queue = _Events(self.inbox)
        if not self.came_early:  # nobody may send before the handshake is answered; who did is the library's alone
            self.cutter = Cutter(masked=True, limit_bytes=self.conn.max_message_size)
        while not earlier.empty():
            self.queue.put_nowait(earlier.get_nowait())
        if self.read_paused:
            self.transport.resume_reading()
        self.read_paused = True  # uvicorn's word for "do not pause": from now on the inbox does
        return AcceptedTransport(self, self.inbox)


class _Events(asyncio.Queue[ASGIReceiveEvent]):
    """What uvicorn takes for the application's queue; events go into the inbox."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__()
        self._inbox = inbox

    def put_nowait(self, item: ASGIReceiveEvent) -> None:
        """Turn an event into a frame, or the end."""
        if item["type"] == "websocket.receive":
            text = item.get("text")
            self._inbox.put(text if text is not None else item.get("bytes") or b"")
        elif item["type"] == "websocket.disconnect":
            self._inbox.close(closed_with(item.get("code"), item.get("reason")))


class AcceptedTransport:
    """A connection that was taken over."""

    def __init__(self, wire: WireProtocol, inbox: Inbox) -> None:
        self._wire = wire
        self._inbox = inbox

    def send_now(self, frame: Frame) -> bool:
        """Send one frame unless the other end reads slowly, or the connection is not open."""
        wire = self._wire
        if not wire.writable.is_set() or wire.disconnected or wire.conn.state is not State.OPEN:
            return False
        wire.transport.write(framed(frame, masked=False))
        return True

    async def send(self, frame: Frame) -> None:
        """Send one frame."""
        wire = self._wire
        while not self.send_now(frame):
            if wire.disconnected or wire.conn.state is not State.OPEN:
                received = wire.conn.close_rcvd
                raise closed_with(received.code if received else None, received.reason if received else None)
            await wire.writable.wait()  # a ping's answer may fill it again before we are woken

    def deliver(self, take: Take) -> Awaitable[None]:
        """Hand over every frame as it arrives."""
        return self._inbox.deliver(take)

    def receive(self) -> Awaitable[Frame]:
        """Return the next frame."""
        return self._inbox.receive()

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Send the goodbye; the server waits for the client's."""
        self._inbox.stop(closed_with(code, reason))
        if self._wire.conn.state is not State.OPEN:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._wire.send({"type": "websocket.close", "code": code, "reason": reason[:120]})
        except ClientDisconnected:
            return  # the client was faster
        except TimeoutError:  # it reads nothing any more
            self._wire.transport.abort()
