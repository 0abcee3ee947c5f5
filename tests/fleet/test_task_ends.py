"""The end of a task reaches who asked for it, also when the link broke meanwhile (D19), and only them."""

import asyncio
import contextlib

import pytest

from starloom.aip.messages import TaskStatus
from starloom.aip.transport import TransportClosed, memory_pair
from starloom.aip.websocket import Unreachable
from starloom.clock import SystemClock
from starloom.fleet.errors import CallTimedOut, DeviceLost
from starloom.fleet.fleet import Fleet
from starloom.fleet.outpost_specs import OutpostSpec
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings
from starloom.fleet.tasks import TaskOutcome


@pytest.fixture
def settings():
    return FleetSettings(resume_window_s=5, probe_timeout_s=0.05, fresh_s=0)


class Work:
    """Performs tasks when the test says so."""

    def __init__(self):
        self.begun = []
        self.stopped = []
        self.entered = asyncio.Event()
        self.ended = asyncio.Event()
        self.may_end = asyncio.Event()

    async def perform(self, task):
        self.begun.append(task.request)
        self.entered.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.stopped.append(task.request)
            raise
        finally:
            self.ended.set()
        return TaskOutcome(TaskStatus.COMPLETED, [{"request": task.request, "result": "done"}])


class Cable:
    """The way from one fleet to the other; it can be cut, or swallow what comes back."""

    def __init__(self, server, group):
        self.server, self.group = server, group
        self.is_cut = False
        self.mute = False
        self.end = None
        self.dialled = 0

    async def dial(self):
        if self.is_cut:
            raise Unreachable("the cable is cut")
        self.dialled += 1
        ours, theirs = memory_pair()
        self.end = ours
        self.group.create_task(self.server.serve(_Mute(ours, self)))
        return theirs

    async def cut(self):
        self.is_cut = True
        await self.end.close(1006, "cut")


class _Mute:
    def __init__(self, inner, cable):
        self.inner, self.cable = inner, cable

    async def send(self, frame):
        if not self.cable.mute:
            await self.inner.send(frame)

    async def receive(self):
        return await self.inner.receive()

    async def close(self, code=1000, reason=""):
        await self.inner.close(code, reason)


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def fleet(work, settings):
    return Fleet(clock=SystemClock(), settings=settings, tasks=work)


@pytest.fixture
def cable(fleet, group):
    return Cable(fleet, group)


@pytest.fixture
async def away(join, cable, group, settings):
    """Return a fleet that reaches the other one's device over the cable."""
    await join("dev1")
    fleet = Fleet(clock=SystemClock(), settings=settings)
    spec = OutpostSpec(device_id="dev1", server_url="ws://cable/ws", reconnect_delay_s=0.01)
    group.create_task(fleet.outposts.run(spec, cable.dial))
    await idle(fleet)
    return fleet


async def idle(fleet, *statuses):
    async with asyncio.timeout(5):
        async for _ in fleet.changes():
            if any(record.status in (statuses or (DeviceStatus.IDLE,)) for record in fleet.records()):
                return


@contextlib.asynccontextmanager
async def a_task(away, work, **options):
    task = asyncio.ensure_future(away.outposts.delegate("dev1", "do it", task_id="t", **options))
    try:
        async with asyncio.timeout(5):
            await work.entered.wait()
            yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_task_goes_on_while_its_requester_is_away_and_its_end_is_kept(away, cable, work):
    async with a_task(away, work) as task:
        await cable.cut()
        await idle(away, DeviceStatus.DISCONNECTED)
        work.may_end.set()
        await work.ended.wait()
        cable.is_cut = False
        assert (await task).result == [{"request": "do it", "result": "done"}]
    assert (work.begun, work.stopped) == (["do it"], [])


async def test_an_end_that_was_lost_on_the_way_is_sent_again(away, cable, work):
    async with a_task(away, work) as task:
        cable.mute = True
        work.may_end.set()
        await work.ended.wait()
        await cable.cut()
        cable.mute = cable.is_cut = False
        assert (await task).status is TaskStatus.COMPLETED
    assert work.begun == ["do it"]


async def test_a_requester_that_stays_away_loses_its_task(away, cable, work, settings):
    object.__setattr__(settings, "resume_window_s", 0.05)
    async with a_task(away, work) as task:
        await cable.cut()
        with pytest.raises(DeviceLost):
            await task
        await work.ended.wait()
    assert work.stopped == ["do it"]


async def test_a_task_that_was_given_up_while_away_is_stopped_on_return(away, cable, work):
    async with a_task(away, work, timeout_s=0.1) as task:
        await cable.cut()
        with pytest.raises(CallTimedOut):
            await task
        assert work.stopped == []
        cable.is_cut = False
        await work.ended.wait()
    assert work.stopped == ["do it"]


async def test_nobody_gets_the_end_of_anothers_task(away, cable, work, fleet):
    async with a_task(away, work):
        await cable.cut()
        [client_id] = fleet._arrivals._requesters
        ours, theirs = memory_pair()
        serving = asyncio.ensure_future(fleet.serve(ours))
        await theirs.send(
            '{"type": "register", "status": "ok", "client_type": "constellation", "target_id": "dev1", '
            f'"client_id": "{client_id}", "metadata": {{"x_starloom": '
            '{"v": 1, "caps": ["resume"], "token": "guessed", "received": 0}}}'
        )
        answer = await theirs.receive()
        assert '"resumed":false' in answer.replace(" ", "")
        work.may_end.set()
        await work.ended.wait()
        await theirs.send('{"type": "heartbeat", "status": "ok"}')
        assert "done" not in await theirs.receive()
        await theirs.close()
        await serving


async def test_a_fleet_that_closes_does_not_wait_for_requesters(away, cable, work, fleet):
    async with a_task(away, work):
        await cable.cut()
        await fleet.close()
        await work.ended.wait()
    assert work.stopped == ["do it"]
    with pytest.raises(TransportClosed):
        await cable.end.receive()
