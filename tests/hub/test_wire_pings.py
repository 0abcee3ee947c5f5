"""Pings of a client that reads no answers do not pile up in the hub."""

import asyncio
import socket

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


async def test_answers_to_pings_that_nobody_reads_do_not_pile_up():
    held: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def endpoint(websocket):
        await websocket.accept()
        transport = accepted(websocket)
        await transport.receive()
        held.set_result(transport._wire.transport.get_write_buffer_size())

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    app = Starlette(routes=[WebSocketRoute("/ws", endpoint)])
    config = uvicorn.Config(app, ws=WireProtocol, lifespan="off", log_config=None, ws_per_message_deflate=False)
    server = uvicorn.Server(config)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1024)
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
        server.should_exit = True
