"""A connection that we dialled: `websockets` sees to addresses, proxies, TLS, handshakes and frames, we to the reading.

Imported by `aip.websocket.connect` when the first connection is made. The library would wake a task for each message;
here a message goes straight to the link's taker, and an answer straight into the socket's buffer (`aip.frames`).
"""

from collections.abc import Awaitable
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame as WebSocketFrame, Opcode
from websockets.protocol import Event, State

from starloom.aip.frames import Cutter, Raw, framed
from starloom.aip.inbox import Inbox, closed_with
from starloom.aip.protocol import NORMAL, Frame
from starloom.aip.transport import Take

_HEAD_END = b"\r\n\r\n"
_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class DialledConnection(ClientConnection):
    """The library's connection, whose messages come into an inbox of ours."""

    inbox: Inbox
    cutter: Cutter | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as the library declares it
        """Begin with an empty inbox."""
        super().connection_made(transport)
        self.inbox = Inbox(self.transport.pause_reading, self.transport.resume_reading)
        self._parts: list[bytes] = []
        self._is_text = False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the inbox."""
        super().connection_lost(exc)
        self.inbox.close(closed_with(self.close_code, self.close_reason))

    def data_received(self, data: bytes) -> None:
        """Take in what the socket brought."""
        self.inbox.turn()
        if self.cutter is None:
            self._shake_hands(data)
            return
        for part in self.cutter.cut(data):
            if isinstance(part, Raw):
                super().data_received(part.data)
            else:
                self.inbox.put(part)

    def _shake_hands(self, data: bytes) -> None:
        """Leave bytes to the library; when the answer's head ends with them, what follows begins with a frame."""
        begins = self.protocol.state is State.CONNECTING and data.find(_HEAD_END) == len(data) - len(_HEAD_END) >= 0
        super().data_received(data)
        if begins and self.protocol.state is State.OPEN:
            self.cutter = Cutter(masked=False, limit_bytes=self.protocol.max_message_size)

    def process_event(self, event: Event) -> None:
        """Put messages into the inbox; the rest is the library's."""
        if isinstance(event, WebSocketFrame) and event.opcode in _DATA:
            self._message(event)
        else:
            super().process_event(event)

    def _message(self, part: WebSocketFrame) -> None:
        if part.opcode is not Opcode.CONT:
            self._is_text = part.opcode is Opcode.TEXT
        if not part.fin:
            self._parts.append(bytes(part.data))
            return
        body = bytes(part.data)
        if self._parts:
            body, self._parts = b"".join([*self._parts, body]), []
        if not self._is_text:
            self.inbox.put(body)
            return
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            self.protocol.fail(CloseCode.INVALID_DATA, f"{error.reason} at position {error.start}")
            self.send_data()
            return
        self.inbox.put(text)


class DialledTransport:
    """A connection that we dialled."""

    def __init__(self, connection: DialledConnection) -> None:
        self._connection = connection

    def send_now(self, frame: Frame) -> bool:
        """Send one frame unless the other end reads slowly, or the connection is not open."""
        connection = self._connection
        protocol = connection.protocol
        if connection.paused or protocol.state is not State.OPEN:
            return False
        connection.transport.write(framed(frame, masked=True))
        return True

    async def send(self, frame: Frame) -> None:
        """Send one frame."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed as error:
            raise closed_with(self._connection.close_code, self._connection.close_reason) from error

    def deliver(self, take: Take) -> Awaitable[None]:
        """Hand over every frame as it arrives."""
        return self._connection.inbox.deliver(take)

    def receive(self) -> Awaitable[Frame]:
        """Return the next frame."""
        return self._connection.inbox.receive()

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Close the connection and wait for the other end's goodbye, ten seconds at most."""
        self._connection.inbox.stop(closed_with(code, reason))
        await self._connection.close(code, reason[:120])
