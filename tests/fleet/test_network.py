"""A bad network at every state of the protocol, over real sockets: runs end as they would without it, nothing twice.

Between a device (or another hub) and the hub stands a relay of real WebSockets that does to one frame, counted over
both directions from REGISTER on, what a network can do:

    lost       the frame never arrives, the connection stays
    cut        the connection breaks in place of the frame
    late       the frame arrives after a while
    doubled    the frame arrives twice
    overtaken  the frame arrives after the next one of its direction
    mute       from this frame on its direction is silent, while the other one works: a half-closed link
    closed     its direction is closed (FIN) while the other one stays open
"""

import asyncio
import contextlib
import os

import pytest
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from starloom.aip.messages import Command, TaskStatus
from starloom.aip.websocket import connect
from starloom.clock import SystemClock
from starloom.device.attempts import AttemptJournal
from starloom.device.process import DeviceState
from starloom.device.settings import DeviceSettings
from starloom.fleet.errors import DeviceLost
from starloom.fleet.fleet import Fleet
from starloom.fleet.outpost_specs import OutpostSpec
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings
from starloom.fleet.tasks import TaskOutcome

FAULTS = ["lost", "cut", "late", "doubled", "overtaken", "mute", "closed"]
LONG = os.environ.get("STARLOOM_PROPERTIES") == "long"
QUICK = DeviceSettings(first_delay_s=0.01, max_delay_s=0.05, registration_timeout_s=0.3)


def grid(positions):
    """Return every fault at every position; in the short run a third of them, every fault and every position in it."""
    pairs = [(fault, position) for fault in FAULTS for position in range(1, positions + 1)]
    return pairs if LONG else [pair for pair in pairs if (FAULTS.index(pair[0]) + pair[1]) % 3 == 0]


class Work:
    """Performs tasks that come over the wire, and counts them."""

    def __init__(self):
        self.requests = []

    async def perform(self, task):
        self.requests.append(task.request)
        return TaskOutcome(TaskStatus.COMPLETED, f"did {task.request}")


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def settings():
    return FleetSettings(
        resume_window_s=10,
        heartbeat_s=0.1,
        registration_timeout_s=0.3,
        probe_timeout_s=0.1,
        fresh_s=0,
        list_tools_timeout_s=5,
        outpost_heartbeat_s=0.1,
        outpost_max_delay_s=0.02,
    )


@pytest.fixture
def fleet(settings, work):
    return Fleet(clock=SystemClock(), settings=settings, tasks=work)


class Relay:
    """Stands between one end and the hub, and harms one frame."""

    def __init__(self, there):
        self.there = there
        self.fault, self.position = "none", 0
        self.frames = 0
        self.struck = asyncio.Event()
        self.is_cut_off = False

    def cut_off(self):
        """Let nothing through any more, neither on links that are open nor on new ones; nobody is told."""
        self.is_cut_off = True

    async def accept(self, near):
        if self.is_cut_off:
            await near.wait_closed()
            return
        async with dial(self.there, compression=None, ping_interval=None) as far:
            both = near, far
            async with asyncio.TaskGroup() as group:
                group.create_task(self.pass_on(near, far, both))
                group.create_task(self.pass_on(far, near, both))

    async def strike(self, frame, source, sink, both):
        """Do to the frame what is to happen to it; return it when it is to come after the next one."""
        match self.fault:
            case "cut":
                for end in both:
                    end.transport.abort()
            case "late":
                await asyncio.sleep(0.05)
                await sink.send(frame)
            case "doubled":
                await sink.send(frame)
                await sink.send(frame)
            case "overtaken":
                return frame
            case "mute" | "closed":
                if self.fault == "closed":
                    sink.transport.write_eof()
                async for _ in source:
                    pass
        return None

    async def pass_on(self, source, sink, both):
        held = None
        with contextlib.suppress(ConnectionClosed):
            async for frame in source:
                if self.is_cut_off:
                    continue
                self.frames += 1
                if self.frames != self.position:
                    await sink.send(frame)
                    if held is not None:
                        await sink.send(held)
                        held = None
                    continue
                self.struck.set()
                held = await self.strike(frame, source, sink, both)
        if source.close_code in (None, 1005, 1006):  # a break is passed on as a break, a goodbye as that goodbye
            sink.transport.abort()
        else:
            await sink.close(source.close_code, source.close_reason)


@pytest.fixture
async def relay(listener):
    found = Relay(f"{listener.url}?token=KEY")
    async with serve(found.accept, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        found.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        yield found


@pytest.fixture
async def attempts(tmp_path):
    made = await AttemptJournal.open(tmp_path / "attempts.sqlite")
    yield made
    await made.close()


def echo(text, call_id):
    return Command(tool_name="bench.echo", parameters={"text": text}, call_id=call_id)


async def a_run(fleet, bench):
    """Go through every state: registered, idle, busy, two at once in a batch, stopped, settled."""
    values = [result.result for result in await fleet.call("dev1", [echo("a", "1"), echo("b", "2")], session_id="s1")]
    fleet.committed("dev1", ["1", "2"])
    hold = Command(tool_name="bench.hold", parameters={"name": "held"}, call_id="3")
    call = asyncio.ensure_future(fleet.call("dev1", [hold], session_id="s2"))
    await bench.entered.wait()
    call.cancel()
    await asyncio.wait([call])
    [third] = await fleet.call("dev1", [echo("c", "4")], session_id="s3", once=True)
    [again] = await fleet.call("dev1", [echo("c", "4")], session_id="s3", once=True)
    return [*values, third.result, again.result]


AS_WITHOUT_FAULTS = ["a", "b", "c", "c"]


async def test_a_run_without_faults(fleet, join, bench, relay, attempts):
    await join(connect=lambda: connect(relay.url), settings=QUICK, attempts=attempts)
    async with asyncio.timeout(20):
        assert await a_run(fleet, bench) == AS_WITHOUT_FAULTS
    assert bench.effects == ["a", "b", "c"]
    assert bench.stopped == ["held"]


@pytest.mark.properties
@pytest.mark.parametrize(("fault", "position"), grid(14))
async def test_a_run_ends_as_without_faults_and_does_nothing_twice(
    fleet, join, bench, relay, attempts, until, fault, position
):
    relay.fault, relay.position = fault, position
    await join(connect=lambda: connect(relay.url), settings=QUICK, attempts=attempts, wait=False)
    async with asyncio.timeout(20):
        await until("dev1", DeviceStatus.IDLE)
        assert await a_run(fleet, bench) == AS_WITHOUT_FAULTS
        await relay.struck.wait()
    assert bench.effects == ["a", "b", "c"]
    assert bench.stopped == ["held"]


@pytest.mark.properties
@pytest.mark.parametrize(("fault", "position"), grid(8))
async def test_a_task_of_another_hub_ends_as_without_faults_and_is_done_once(
    listener, join, relay, work, settings, fault, position
):
    await join("dev1", connect=lambda: connect(listener.url, token="KEY"))
    away = Fleet(clock=SystemClock(), settings=settings)
    relay.fault, relay.position = fault, position
    spec = OutpostSpec(device_id="dev1", server_url=relay.url, reconnect_delay_s=0.01)
    running = asyncio.create_task(away.outposts.run(spec, lambda: connect(spec.server_url)))
    async with asyncio.timeout(20):
        async for _ in away.changes():
            if any(record.status is DeviceStatus.IDLE for record in away.records()):
                break
        for number in range(2):
            ended = await away.outposts.delegate("dev1", f"task {number}", task_id=f"t{number}")
            assert ended.status is TaskStatus.COMPLETED
        await relay.struck.wait()
    assert work.requests == ["task 0", "task 1"]
    running.cancel()
    await asyncio.wait([running])


async def test_a_process_cut_off_behind_a_silent_network_stops_before_another_begins(
    fleet, join, listener, relay, bench, attempts, settings, until, tmp_path
):
    """Two processes with one id, over real links: the first hears nothing any more and does not know it."""
    object.__setattr__(settings, "lease_s", 1.0)
    object.__setattr__(settings, "resume_window_s", 0.1)
    order = []
    await join(connect=lambda: connect(relay.url), settings=QUICK, attempts=attempts)
    hold = Command(tool_name="bench.hold", parameters={"name": "first"}, call_id="1")
    call = asyncio.ensure_future(fleet.call("dev1", [hold], session_id="s", once=True))
    await bench.entered.wait()
    relay.cut_off()
    stopped = asyncio.create_task(bench.cancelled.wait())
    stopped.add_done_callback(lambda _: order.append("first stopped"))
    with pytest.raises(DeviceLost):
        await call
    other = await AttemptJournal.open(tmp_path / "other.sqlite")
    reports = asyncio.Queue()
    try:
        await join(
            connect=lambda: connect(listener.url, token="KEY"),
            settings=QUICK,
            attempts=other,
            wait=False,
            on_status=reports.put_nowait,
        )
        async with asyncio.timeout(20):
            while (await reports.get()).state is not DeviceState.REFUSED:
                pass
            await until("dev1", DeviceStatus.IDLE)
            order.append("second began")
            [result] = await fleet.call("dev1", [echo("second", "2")], session_id="s", once=True)
        assert result.result == "second"
    finally:
        await other.close()
    assert order == ["first stopped", "second began"]
    assert bench.effects == ["second"]
