"""The WebSocket transports: dialling out with `websockets`, taking in what starlette accepted.

Only this file and `aip.dialled` know those libraries; `websockets` is imported when the first connection is made, and
starlette not at all: its WebSocket is used by the shape of it. Compression is declined: screenshots do not shrink, and
5,000 idle connections would each pay for a dictionary.
"""

import asyncio
import ssl
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from starloom.aip.protocol import NORMAL, TOO_BIG, Frame
from starloom.aip.transport import Transport, TransportClosed
from starloom.errors import Bug, UsageError, WireError

if TYPE_CHECKING:
    from starloom.aip.dialled import DialledTransport

MAX_MESSAGE_BYTES = 100 * 1024 * 1024  # Source: wire specification, section 1
CLOSE_TIMEOUT_S = 10.0
CLOSED_ABNORMALLY = 1006
DIRECT = "starloom.direct"  # an ASGI extension of our own server class: frames without ASGI messages (hub.wire)


class Unreachable(WireError):
    """Nobody answers at this address, or it speaks something else."""


class HandshakeRefused(WireError):
    """The server answered, but not with a WebSocket. `status` 401 or 403: the token is missing or wrong."""

    def __init__(self, url: str, status: int) -> None:
        hint = "Check the token." if status in (401, 403) else "Check the address."
        super().__init__(f"{redact_url(url)!r} answered with HTTP {status} instead of a connection. {hint}")
        self.status = status


def redact_url(url: str) -> str:
    """Return the address without its token, fit for a log."""
    parts = urlsplit(url)
    query = urlencode([(name, "***" if name == "token" else value) for name, value in parse_qsl(parts.query)], safe="*")
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def token_of(headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
    """Return the token of a request: `?token=`, `Authorization: Bearer …`, or `X-API-Key`; None when there is none."""
    token = query.get("token")
    if token is not None:
        return token
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value:
        return value.strip()
    return headers.get("x-api-key")


def with_token(url: str, token: str | None) -> str:
    """Return the address with `?token=`; one that is already there stays (upstream's servers read nothing else)."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss"):
        raise UsageError(f"{redact_url(url)!r} is not a WebSocket address. It must begin with ws:// or wss://.")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if token is None or any(name == "token" for name, _ in query):
        return url
    return urlunsplit(parts._replace(query=urlencode([*query, ("token", token)])))


async def connect(
    url: str,
    *,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    max_size_bytes: int = MAX_MESSAGE_BYTES,
    open_timeout_s: float = 30.0,
) -> "DialledTransport":
    """Dial a server and return the open connection.

    Args:
        url: `ws://host:port/ws` or `wss://…`, with or without `?token=`.
        token: put into the query and into `Authorization: Bearer`.
        tls: certificates for `wss://`; None: the system's.
        max_size_bytes: the largest frame taken; a larger one closes the connection with 1009.
        open_timeout_s: how long the handshake may take; a hub that just came back has thousands to answer.

    Raises:
        HandshakeRefused: the server answered with an HTTP status.
        Unreachable: nobody answers there, or not in time.
        UsageError: the address is not a WebSocket address.
    """
    from websockets.asyncio.client import connect as dial
    from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI

    from starloom.aip.dialled import DialledConnection, DialledTransport

    address = with_token(url, token)
    try:
        connection = await dial(
            address,
            create_connection=DialledConnection,
            ssl=tls or (True if urlsplit(address).scheme == "wss" else None),
            compression=None,
            max_size=max_size_bytes,
            open_timeout=open_timeout_s,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=None,  # the protocol's heartbeats tell both ends as much
            additional_headers={"Authorization": f"Bearer {token}"} if token is not None and token.isascii() else None,
        )
    except InvalidStatus as error:
        raise HandshakeRefused(url, error.response.status_code) from error
    except InvalidURI as error:
        raise UsageError(f"{redact_url(url)!r} is not a usable address.") from error
    except (OSError, TimeoutError, InvalidHandshake, EOFError) as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError) and address.startswith("wss:"):
            reason = "it hung up; if it asks for client certificates, it did not take our certificate"
        raise Unreachable(f"{redact_url(url)!r} cannot be reached: {reason}.") from error
    if not isinstance(connection, DialledConnection):
        raise Bug("websockets made a connection of another kind than it was told to.")
    return DialledTransport(connection)


class AcceptedWebSocket(Protocol):
    """What we use of starlette's WebSocket, after `accept`."""

    scope: MutableMapping[str, Any]

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next ASGI message."""
        ...

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send an ASGI message."""
        ...


def accepted(websocket: AcceptedWebSocket, *, max_size_bytes: int = MAX_MESSAGE_BYTES) -> Transport:
    """Return the transport of a connection just accepted: the server's own where it offers one, else over ASGI."""
    take_over = websocket.scope.get("extensions", {}).get(DIRECT)
    if take_over is None:
        return StarletteTransport(websocket, max_size_bytes=max_size_bytes)
    transport: Transport = take_over()
    return transport


class StarletteTransport:
    """A connection that a starlette application accepted.

    Args:
        websocket: accepted already; nobody else may read from it.
        max_size_bytes: a larger text or binary frame closes the connection with 1009.
    """

    def __init__(self, websocket: AcceptedWebSocket, *, max_size_bytes: int = MAX_MESSAGE_BYTES) -> None:
        from starlette.websockets import WebSocketDisconnect

        self._websocket = websocket
        self._max_size_bytes = max_size_bytes
        self._closed: TransportClosed | None = None
        self._gone = (RuntimeError, OSError, WebSocketDisconnect)  # sent after close, or the client went away meanwhile

    async def send(self, frame: Frame) -> None:
        """Send one frame."""
        if self._closed is not None:
            raise self._closed
        body = {"text": frame} if isinstance(frame, str) else {"bytes": frame}
        try:
            await self._websocket.send({"type": "websocket.send", **body})
        except self._gone as error:
            raise self._shut(CLOSED_ABNORMALLY, "") from error

    async def receive(self) -> Frame:
        """Return the next frame."""
        if self._closed is not None:
            raise self._closed
        try:
            message = await self._websocket.receive()
        except RuntimeError as error:  # starlette: received after the disconnect
            raise self._shut(CLOSED_ABNORMALLY, "") from error
        if message["type"] == "websocket.disconnect":
            raise self._shut(message.get("code") or CLOSED_ABNORMALLY, message.get("reason") or "")
        text = message.get("text")
        frame: Frame = text if text is not None else message.get("bytes") or b""
        if len(frame) > self._max_size_bytes:
            await self.close(TOO_BIG, "the message is too big")
            raise TransportClosed(TOO_BIG, "the message is too big")
        return frame

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Send the goodbye; the server waits for the client's."""
        if self._closed is not None:
            return
        self._shut(code, reason)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._websocket.send({"type": "websocket.close", "code": code, "reason": reason[:120]})
        except (*self._gone, TimeoutError):
            return  # the client was faster

    def _shut(self, code: int, reason: str) -> TransportClosed:
        if self._closed is None:
            self._closed = TransportClosed(code, reason)
        return self._closed
