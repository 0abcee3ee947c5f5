"""The hub's side of a WebSocket under clients that misbehave."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from websockets.frames import Frame, Opcode

from starloom.aip.frames import framed
from starloom.aip.websocket import accepted
from starloom.hub.wire import WireProtocol

ASK = b"\r\n".join(
    (
        b"GET /ws HTTP/1.1",
        b"Host: hub",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        b"Sec-WebSocket-Version: 13",
        b"\r\n",
    )
)


@asynccontextmanager
async def serving(endpoint, protocol=WireProtocol):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    app = Starlette(routes=[WebSocketRoute("/ws", endpoint)])
    config = uvicorn.Config(app, ws=protocol, lifespan="off", log_config=None, ws_per_message_deflate=False)
    server = uvicorn.Server(config)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()
        server.should_exit = True


async def test_answers_to_pings_that_nobody_reads_do_not_pile_up():
    held: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def endpoint(websocket):
        await websocket.accept()
        transport = accepted(websocket)
        await transport.receive()
        held.set_result(transport._wire.transport.get_write_buffer_size())

    async with serving(endpoint) as address:
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(ASK)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        pings = Frame(Opcode.PING, b"p" * 125).serialize(mask=True) * 800
        for _ in range(200):
            writer.write(pings)
            await writer.drain()
        writer.write(framed("now", masked=True))
        assert await held < 1_000_000
        writer.transport.abort()


@pytest.mark.parametrize("early", [1, 3, 6, 9])
async def test_a_frame_that_began_before_the_handshake_was_answered_is_read_whole(early):
    asked, came_early = asyncio.Event(), asyncio.Event()
    heard: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

    async def endpoint(websocket):
        asked.set()
        await came_early.wait()
        await websocket.accept()
        transport = accepted(websocket)
        heard.set_result([await transport.receive(), await transport.receive()])

    class Noting(WireProtocol):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not data.startswith(b"GET"):
                came_early.set()

    body = framed("a frame within a frame", masked=True)
    frame = bytes((0x82, 0x80 | len(body), 0, 0, 0, 0)) + body  # a mask of nothing
    async with serving(endpoint, Noting) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(ASK)
        await asked.wait()
        writer.write(frame[:early])
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frame[early:] + framed("more", masked=True))
        assert await heard == [body, "more"]
        writer.transport.abort()
