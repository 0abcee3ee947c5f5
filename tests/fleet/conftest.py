"""A fleet with devices on in-memory links, for the fleet's tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from starloom.aip.transport import Transport
from starloom.clock import SystemClock
from starloom.device.identity import DeviceIdentity
from starloom.device.process import run_device
from starloom.device.settings import DeviceSettings
from starloom.fleet.fleet import Fleet
from starloom.fleet.local import local_connector
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings
from starloom.journal.events import Event
from starloom.safety.policy import Risk
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Toolset, tool


class Bench:
    """What the tools of the test device saw and when they may end."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.entered = asyncio.Event()
        self.both = asyncio.Event()
        self.may_end = asyncio.Event()
        self.stopped: list[str] = []
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
                raise
            finally:
                self.running -= 1
            self.effects.append(name)
            return name

        tools = (
            tool(echo, name="bench.echo", risk=Risk.WRITE, destinations=("text",)),
            tool(fail, name="bench.fail", risk=Risk.READ),
            tool(falsy, name="bench.falsy", risk=Risk.READ, kind="data_collection"),
            tool(hold, name="bench.hold", risk=Risk.READ),
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
