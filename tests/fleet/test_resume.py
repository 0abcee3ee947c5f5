"""A link that breaks at any frame: the calls end as they would without faults, and no effect happens twice."""

import asyncio
import contextlib
import random

import pytest

from starloom.aip.messages import Command
from starloom.aip.protocol import Frame
from starloom.aip.transport import MemoryTransport, TransportClosed, memory_pair
from starloom.device.settings import DeviceSettings
from starloom.fleet.errors import DeviceLost, DeviceOffline
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings


@pytest.fixture
def settings() -> FleetSettings:
    return FleetSettings(resume_window_s=5, probe_timeout_s=0.05, fresh_s=0)


class Weather:
    """Decides, frame by frame, when the link breaks and whether the frame still arrives."""

    def __init__(
        self,
        breaks: set[int] = frozenset(),
        *,
        arrives: bool = True,
        repeats: set[int] = frozenset(),
        late: set[int] = frozenset(),
    ) -> None:
        self.breaks = breaks
        self.arrives = arrives
        self.repeats = repeats
        self.late = late
        self.tasks: set[asyncio.Task[None]] = set()
        self.frames = 0

    def next(self) -> int:
        self.frames += 1
        return self.frames


class FlakyEnd:
    """One end of an in-memory link that breaks as the weather says; what was on the way is lost."""

    def __init__(self, inner: MemoryTransport, weather: Weather) -> None:
        self.inner = inner
        self.weather = weather

    async def send(self, frame: Frame) -> None:
        number = self.weather.next()
        if number in self.weather.breaks:
            if self.weather.arrives:
                await self.inner.send(frame)
            else:
                drain(self.inner.peer)
            drain(self.inner)
            await self.inner.close(1006, "cut")
            raise TransportClosed(1006, "cut")
        if number in self.weather.late:
            self.weather.tasks.add(asyncio.create_task(self._send_late(frame)))
            return
        await self.inner.send(frame)
        if number in self.weather.repeats:
            await self.inner.send(frame)

    async def _send_late(self, frame: Frame) -> None:
        """Let other frames overtake this one."""
        await asyncio.sleep(0.005)
        with contextlib.suppress(TransportClosed):
            await self.inner.send(frame)

    async def receive(self) -> Frame:
        return await self.inner.receive()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self.inner.close(code, reason)


def drain(end: MemoryTransport) -> None:
    while not end._inbox.empty():
        end._inbox.get_nowait()


def flaky_connector(fleet, group, weather):
    async def connect():
        ours, theirs = memory_pair()
        group.create_task(fleet.serve(FlakyEnd(ours, weather)))
        return FlakyEnd(theirs, weather)

    return connect


async def work(fleet, count=4):
    """Call the device again and again, two commands a call; return what came back."""
    values = []
    for number in range(count):
        commands = [Command(tool_name="bench.echo", parameters={"text": f"{number}{part}"}) for part in "ab"]
        results = await fleet.call("dev1", commands, session_id=f"s{number}")
        values += [result.result for result in results]
    return values


EXPECTED = [f"{number}{part}" for number in range(4) for part in "ab"]


@pytest.mark.parametrize("arrives", [True, False], ids=["the frame arrives", "the frame is lost"])
@pytest.mark.parametrize("position", range(1, 26))
async def test_one_break_at_any_frame_loses_and_repeats_nothing(fleet, join, group, bench, position, arrives):
    weather = Weather({position}, arrives=arrives)
    await join(connect=flaky_connector(fleet, group, weather))
    async with asyncio.timeout(10):
        assert await work(fleet) == EXPECTED
    assert bench.effects == EXPECTED


@pytest.mark.parametrize("seed", range(20))
async def test_many_breaks_and_repeated_frames_lose_and_repeat_nothing(fleet, join, group, bench, seed):
    draw = random.Random(seed)
    # breaks stand apart, so that each new link gets through its registration
    breaks, at = set(), 4
    for _ in range(6):
        at += draw.randrange(6, 14)
        breaks.add(at)
    weather = Weather(breaks, arrives=draw.random() < 0.5, repeats={draw.randrange(8, 80) for _ in range(8)})
    await join(connect=flaky_connector(fleet, group, weather))
    async with asyncio.timeout(10):
        assert await work(fleet) == EXPECTED
    assert bench.effects == EXPECTED


@pytest.mark.parametrize("seed", range(15))
async def test_frames_that_overtake_each_other_lose_and_repeat_nothing(fleet, join, group, bench, seed):
    draw = random.Random(seed)
    weather = Weather(
        late={draw.randrange(5, 60) for _ in range(12)}, repeats={draw.randrange(5, 60) for _ in range(4)}
    )
    settings = DeviceSettings(first_delay_s=0.01, max_in_flight=3)
    await join(connect=flaky_connector(fleet, group, weather), settings=settings)
    calls = [
        fleet.call("dev1", [Command(tool_name="bench.echo", parameters={"text": str(number)})], session_id=f"s{number}")
        for number in range(12)
    ]
    async with asyncio.timeout(10):
        results = await asyncio.gather(*calls)
    assert [result.result for (result,) in results] == [str(number) for number in range(12)]
    assert sorted(bench.effects, key=int) == [str(number) for number in range(12)]


async def test_tool_goes_on_while_the_link_is_gone_and_answers_on_the_next(fleet, join, group, bench, until):
    links = []

    async def connect():
        ours, theirs = memory_pair()
        links.append(theirs)
        group.create_task(fleet.serve(ours))
        return theirs

    await join(connect=connect)
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    call = asyncio.create_task(fleet.call("dev1", [hold], session_id="s1"))
    await bench.entered.wait()
    await links[0].close(1006)
    await until("dev1", DeviceStatus.DISCONNECTED)
    bench.may_end.set()
    assert (await call)[0].result == "x"
    assert bench.effects == ["x"]
    assert len(links) == 2
    assert fleet.get("dev1").status is DeviceStatus.IDLE


async def test_call_cancelled_while_its_device_is_away_is_stopped_when_it_is_back(fleet, join, group, bench, until):
    links, may_return = [], asyncio.Event()

    async def connect():
        if links:
            await may_return.wait()
        ours, theirs = memory_pair()
        links.append(theirs)
        group.create_task(fleet.serve(ours))
        return theirs

    await join(connect=connect)
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    call = asyncio.create_task(fleet.call("dev1", [hold], session_id="s1"))
    await bench.entered.wait()
    await links[0].close(1006)
    await until("dev1", DeviceStatus.DISCONNECTED)
    call.cancel()
    may_return.set()
    async with asyncio.timeout(5):
        await asyncio.wait([call])
        await until("dev1", DeviceStatus.IDLE)
    assert bench.stopped == ["x"]
    assert bench.effects == []


async def test_call_made_while_a_lost_device_is_awaited_waits_for_it(fleet, join, group, until):
    links = []

    async def connect():
        ours, theirs = memory_pair()
        links.append(theirs)
        group.create_task(fleet.serve(ours))
        return theirs

    await join(connect=connect, settings=DeviceSettings(first_delay_s=0.1))
    await links[0].close(1006)
    await until("dev1", DeviceStatus.DISCONNECTED)
    assert await fleet.call("dev1", [], session_id="s") == []


class TestWithoutReturn:
    @pytest.fixture
    def settings(self) -> FleetSettings:
        return FleetSettings(resume_window_s=0.05)

    async def test_commands_of_a_device_that_stays_away_are_lost(self, fleet, join, group, bench, until):
        links = []

        async def connect():
            if links:
                await asyncio.Event().wait()
            ours, theirs = memory_pair()
            links.append(theirs)
            group.create_task(fleet.serve(ours))
            return theirs

        await join(connect=connect)
        hold = Command(tool_name="bench.hold", parameters={"name": "x"})
        call = asyncio.create_task(fleet.call("dev1", [hold], session_id="s1"))
        waiting = [asyncio.create_task(fleet.call("dev1", [hold], session_id=f"w{n}")) for n in range(4)]
        await bench.entered.wait()
        await links[0].close(1006)
        with pytest.raises(DeviceLost):
            await call
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(end) for end in ends} <= {DeviceLost, DeviceOffline}


class Freezable:
    """One end of a link that can go dead without a goodbye: a half-open connection."""

    def __init__(self, inner: MemoryTransport) -> None:
        self.inner = inner
        self.frozen = False

    async def send(self, frame: Frame) -> None:
        if not self.frozen:
            await self.inner.send(frame)

    async def receive(self) -> Frame:
        frame = await self.inner.receive()
        if self.frozen:
            await asyncio.Event().wait()
        return frame

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self.inner.close(code, reason)


async def test_new_process_takes_over_from_one_that_hangs_and_the_old_commands_are_lost(fleet, join, group, bench):
    links = []

    async def connect():
        ours, theirs = memory_pair()
        links.append(Freezable(theirs))
        group.create_task(fleet.serve(ours))
        return links[-1]

    await join(connect=connect)
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    call = asyncio.create_task(fleet.call("dev1", [hold], session_id="s1"))
    await bench.entered.wait()
    links[0].frozen = True
    await join(connect=connect, wait=False)
    with pytest.raises(DeviceLost):
        async with asyncio.timeout(5):
            await call
    assert await fleet.call("dev1", [], session_id="s2") == []


async def test_second_process_under_a_living_id_is_refused_and_the_first_works_on(fleet, join, group, bench):
    refusal = asyncio.get_running_loop().create_future()

    def watch(report):
        if report.state == "refused" and not refusal.done():
            refusal.set_result(report)

    await join()
    await join(wait=False, on_status=watch, settings=DeviceSettings(first_delay_s=60))
    async with asyncio.timeout(5):
        refused = await refusal
    assert refused.detail == "client_id 'dev1' is already registered; duplicate registrations are not allowed"
    echo = Command(tool_name="bench.echo", parameters={"text": "still here"})
    assert (await fleet.call("dev1", [echo], session_id="s"))[0].result == "still here"
