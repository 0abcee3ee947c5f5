"""Tokens in addresses and requests, and the ASGI transport against a server that misbehaves."""

import asyncio

import pytest

from starloom.aip.transport import TransportClosed
from starloom.aip.websocket import StarletteTransport, redact_url, token_of, with_token
from starloom.errors import UsageError


def test_token_goes_into_the_address_unless_one_is_there():
    assert with_token("ws://h:1/ws", "K&=") == "ws://h:1/ws?token=K%26%3D"
    assert with_token("ws://h:1/ws?a=1", "K") == "ws://h:1/ws?a=1&token=K"
    assert with_token("wss://h/ws?token=OLD", "K") == "wss://h/ws?token=OLD"
    assert with_token("ws://h/ws", None) == "ws://h/ws"


@pytest.mark.parametrize("url", ["http://h/ws", "h:5000", "", "wsx://h"])
def test_other_addresses_are_refused(url):
    with pytest.raises(UsageError, match="ws://"):
        with_token(url, "K")


def test_address_in_a_log_has_no_secret():
    assert redact_url("ws://user:pass@h:1/ws?token=SECRET&a=b#f") == "ws://h:1/ws?token=***&a=b"


@pytest.mark.parametrize(
    ("headers", "query", "token"),
    [
        ({}, {"token": "a"}, "a"),
        ({"authorization": "Bearer b"}, {}, "b"),
        ({"authorization": "bearer  b "}, {}, "b"),
        ({"authorization": "Basic b", "x-api-key": "c"}, {}, "c"),
        ({"authorization": "Bearer b"}, {"token": "a"}, "a"),
        ({}, {}, None),
    ],
)
def test_token_of_a_request(headers, query, token):
    assert token_of(headers, query) == token


class Asgi:
    """A starlette WebSocket of the tests' making."""

    def __init__(self, *messages):
        self.messages = list(messages)
        self.sent = []
        self.broken = None

    async def receive(self):
        if not self.messages:
            raise RuntimeError("already disconnected")
        return self.messages.pop(0)

    async def send(self, message):
        if self.broken:
            raise self.broken
        self.sent.append(message)


async def test_text_and_binary_frames_pass_both_ways():
    asgi = Asgi({"type": "websocket.receive", "text": "a"}, {"type": "websocket.receive", "bytes": b"b", "text": None})
    transport = StarletteTransport(asgi)
    assert [await transport.receive(), await transport.receive()] == ["a", b"b"]
    await transport.send("c")
    await transport.send(b"d")
    assert [message.get("text") or message.get("bytes") for message in asgi.sent] == ["c", b"d"]


async def test_disconnect_ends_both_directions():
    transport = StarletteTransport(Asgi({"type": "websocket.disconnect", "code": 1001, "reason": "bye"}))
    for use in (transport.receive, lambda: transport.send("x"), transport.receive):
        with pytest.raises(TransportClosed) as closed:
            await use()
        assert (closed.value.code, closed.value.reason) == (1001, "bye")


async def test_errors_of_the_library_are_translated():
    asgi = Asgi()
    with pytest.raises(TransportClosed):
        await StarletteTransport(asgi).receive()
    asgi.broken = RuntimeError("Cannot call send once a close message has been sent.")
    transport = StarletteTransport(asgi)
    with pytest.raises(TransportClosed):
        await transport.send("x")
    await StarletteTransport(asgi).close()


async def test_too_big_a_frame_closes_with_1009():
    asgi = Asgi({"type": "websocket.receive", "text": "x" * 11})
    with pytest.raises(TransportClosed):
        await StarletteTransport(asgi, max_size_bytes=10).receive()
    assert asgi.sent == [{"type": "websocket.close", "code": 1009, "reason": "the message is too big"}]


async def test_close_twice_says_goodbye_once():
    asgi = Asgi()
    transport = StarletteTransport(asgi)
    await asyncio.gather(transport.close(1000, "a"), transport.close(1001, "b"))
    assert [message["code"] for message in asgi.sent] == [1000]
