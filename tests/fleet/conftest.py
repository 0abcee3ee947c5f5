"""A fleet with devices on in-memory links, for the fleet's tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect as dial
from websockets.exceptions import ConnectionClosed

from starloom.aip.transport import Transport
from starloom.aip.websocket import accepted, token_of
from starloom.blobs import Blob
from starloom.clock import SystemClock
from starloom.device.identity import DeviceIdentity
from starloom.device.process import run_device
from starloom.device.settings import DeviceSettings
from starloom.fleet.fleet import Fleet
from starloom.fleet.local import local_connector
from starloom.fleet.principals import Principal
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings
from starloom.hub.serve import bind
from starloom.hub.wire import WireProtocol
from starloom.journal.events import Event
from starloom.safety.policy import Risk
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Toolset, tool

IMAGE = Blob("image/png", bytes(range(256)) * 8000)


class Bench:
    """What the tools of the test device saw and when they may end."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.entered = asyncio.Event()
        self.both = asyncio.Event()
        self.may_end = asyncio.Event()
        self.stopped: list[str] = []
        self.cancelled = asyncio.Event()
        self.running = 0
        self.most_running = 0

    def router(self) -> ToolRouter:
        """Return a router with tools that do what a test needs."""

        async def echo(text: str) -> str:
            """Return the text."""
            self.effects.append(text)
            return text

        async def fail(why: str) -> str:
            """Fail."""
            raise OSError(5, why)

        async def falsy() -> int:
            """Return nothing much."""
            return 0

        async def hold(name: str) -> str:
            """Wait until the test says so."""
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.entered.set()
            if self.running == 2:
                self.both.set()
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.stopped.append(name)
                self.cancelled.set()
                raise
            finally:
                self.running -= 1
            self.effects.append(name)
            return name

        async def picture() -> Blob:
            """Return a large image."""
            return IMAGE

        tools = (
            tool(echo, name="bench.echo", risk=Risk.WRITE, destinations=("text",)),
            tool(fail, name="bench.fail", risk=Risk.READ),
            tool(falsy, name="bench.falsy", risk=Risk.READ, kind="data_collection"),
            tool(hold, name="bench.hold", risk=Risk.READ),
            tool(picture, name="bench.picture", risk=Risk.READ, kind="data_collection"),
        )
        return ToolRouter([Toolset("bench", tools)])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def identity(device_id: str = "dev1") -> DeviceIdentity:
    return DeviceIdentity(device_id, "linux", "linux", {"device_id": device_id, "platform": "linux", "cpu_count": 2})


Until = Callable[..., Awaitable[None]]


@pytest.fixture
def until(fleet: Fleet) -> Until:
    """Wait until a device is in one of some states."""

    async def wait(device_id: str, *statuses: DeviceStatus) -> None:
        async with asyncio.timeout(5):
            async for _ in fleet.changes():
                known = {record.device_id: record for record in fleet.records()}
                if device_id in known and known[device_id].status in statuses:
                    return

    return wait


Join = Callable[..., Awaitable[asyncio.Task[None]]]


@pytest.fixture
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that is cancelled when the test is over."""

    class Over(Exception):
        pass

    try:
        async with asyncio.TaskGroup() as group:
            yield group
            raise Over
    except* Over:
        pass


@pytest.fixture
def settings() -> FleetSettings:
    return FleetSettings(resume_window_s=0.2)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def fleet(settings: FleetSettings, events: list[Event]) -> Fleet:
    return Fleet(clock=SystemClock(), settings=settings, observe=events.append)


@pytest.fixture
def join(fleet: Fleet, group: asyncio.TaskGroup, bench: Bench, until: Until) -> Join:
    """Start a device and wait until it is idle."""

    async def start(
        device_id: str = "dev1",
        *,
        connect: Callable[[], Awaitable[Transport]] | None = None,
        settings: DeviceSettings | None = None,
        wait: bool = True,
        **options: object,
    ) -> asyncio.Task[None]:
        dial = connect or local_connector(fleet, group)
        task = group.create_task(
            run_device(
                dial,
                bench.router(),
                identity(device_id),
                clock=SystemClock(),
                settings=settings or DeviceSettings(first_delay_s=0.01),
                **options,  # type: ignore[arg-type]
            )
        )
        if wait:
            await until(device_id, DeviceStatus.IDLE)
        return task

    return start


class RawClient:
    """A peer that says exactly what the test wants, over a real WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, frame: str | bytes | dict[str, Any]) -> None:
        await self.connection.send(json.dumps(frame) if isinstance(frame, dict) else frame)

    async def hear(self) -> dict[str, Any]:
        """Return the next frame; the fleet's question for tools is answered on the way."""
        async with asyncio.timeout(5):
            while True:
                frame: dict[str, Any] = json.loads(await self.connection.recv())
                if frame["type"] == "command" and frame["task_name"] == "list_tools":
                    await self.answer(frame, [])
                    continue
                return frame

    async def answer(self, command: dict[str, Any], *results: object) -> None:
        """Answer a COMMAND with one successful result per value."""
        called = zip(command["actions"], results, strict=True)
        await self.say(
            {
                "type": "command_results",
                "status": command["status"],
                "session_id": command["session_id"],
                "prev_response_id": command["response_id"],
                "action_results": [
                    {"status": "success", "result": result, "call_id": action["call_id"]} for action, result in called
                ],
            }
        )

    async def register(self, client_id: str, client_type: str = "device", **fields: object) -> dict[str, Any]:
        """Send REGISTER and return the answer; a device waits until the fleet knows that it has no tools."""
        frame = {"type": "register", "status": "ok", "client_type": client_type, "client_id": client_id, **fields}
        if client_type == "device":
            frame.setdefault("metadata", {"platform": "linux"})
        await self.say(frame)
        return await self.hear()

    async def sync(self) -> None:
        """Return when everything said before has been processed: the answer to a heartbeat is the next frame."""
        await self.say({"type": "heartbeat", "status": "ok"})
        assert (await self.hear())["type"] == "heartbeat"

    async def closed(self) -> int:
        """Wait until the server has closed, and return the code; frames before are skipped."""
        async with asyncio.timeout(5):
            try:
                while True:
                    await self.connection.recv()
            except ConnectionClosed:
                return self.connection.close_code or 0


class Listener:
    """A real server in front of the fleet, as the hub's listener is."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.open: list[ClientConnection] = []

    async def dial(self, query: str = "?token=KEY", **options: Any) -> RawClient:
        connection = await dial(f"{self.url}{query}", compression=None, ping_interval=None, **options)
        self.open.append(connection)
        return RawClient(connection)


@pytest.fixture
def principals() -> dict[str, Principal]:
    """Tokens and what they allow."""
    return {"KEY": Principal()}


@pytest.fixture(params=["direct", "asgi"])
async def listener(
    request: pytest.FixtureRequest, fleet: Fleet, principals: dict[str, Principal]
) -> AsyncIterator[Listener]:
    async def endpoint(websocket: WebSocket) -> None:
        token = token_of(websocket.headers, websocket.query_params)
        principal = principals.get(token or "")
        if principal is None:
            await websocket.close()
            return
        await websocket.accept()
        await fleet.serve(accepted(websocket), principal=principal)

    listening = bind("127.0.0.1", 0)
    app = Starlette(routes=[WebSocketRoute("/ws", endpoint)])
    ws: Any = WireProtocol if request.param == "direct" else "auto"
    config = uvicorn.Config(app, ws=ws, log_level="critical", lifespan="off", ws_per_message_deflate=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listening]))
    found = Listener(f"ws://127.0.0.1:{listening.getsockname()[1]}/ws")
    yield found
    for connection in found.open:
        await connection.close()
    await fleet.close()
    server.should_exit = True
    await serving
