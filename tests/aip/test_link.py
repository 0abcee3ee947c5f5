"""The driver: it reads, writes and keeps time as the core says, and ends with the connection."""

import asyncio
import json

import pytest

from starloom.aip.link import Link
from starloom.aip.pace import Pace
from starloom.aip.server import ServerProtocol
from starloom.aip.server_events import RegistrationAsked
from starloom.aip.stamps import CountingStamps
from starloom.aip.transport import TransportClosed, memory_pair
from starloom.clock import ManualClock

REGISTER = '{"type":"register","status":"ok","client_id":"a"}'


async def settle():
    """Let everything that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return ManualClock()


class Running:
    def __init__(self, clock, **options):
        ours, self.theirs = memory_pair()
        self.events = []
        self.protocol = ServerProtocol(CountingStamps(), clock.monotonic())
        self.link = Link(ours, self.protocol, clock, self.events.append, **options)
        self.task = asyncio.create_task(self.link.run())


async def test_events_are_handed_over_and_frames_are_sent(clock):
    running = Running(clock)
    await running.theirs.send(REGISTER)
    await settle()
    assert [type(event) for event in running.events] == [RegistrationAsked]
    running.protocol.accept(clock.monotonic())
    running.link.flush()
    assert json.loads(await running.theirs.receive())["type"] == "heartbeat"
    await running.theirs.close(1001, "bye")
    ended = await running.task
    assert (ended.code, ended.reason) == (1001, "bye")


async def test_deadlines_are_kept_by_the_clock_and_end_the_connection(clock):
    running = Running(clock)
    await settle()
    clock.advance(30)
    ended = await running.task
    assert ended.code == 1008
    assert json.loads(await running.theirs.receive())["error"] == "No register message came in time"
    with pytest.raises(TransportClosed):
        await running.theirs.receive()


async def test_earlier_deadline_wakes_the_timekeeper(clock):
    running = Running(clock)
    await running.theirs.send(REGISTER)
    await settle()
    running.protocol.accept(clock.monotonic())  # silence: in 300 s
    running.link.flush()
    await settle()
    running.protocol.probe(clock.monotonic())  # in 5 s
    running.link.flush()
    await settle()
    clock.advance(5)
    await settle()
    assert type(running.events[-1]).__name__ == "ProbeFailed"
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)


async def test_cancelling_says_goodbye(clock):
    running = Running(clock)
    await settle()
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)
    with pytest.raises(TransportClosed) as closed:
        await running.theirs.receive()
    assert closed.value.code == 1000


@pytest.mark.parametrize("turns", range(4))
async def test_cancelling_while_the_connection_ends_is_not_forgotten(clock, turns):
    """A task group of Python before 3.13 drops a cancellation that comes while it fails."""
    running = Running(clock)
    await settle()
    running.protocol.close(1000, "over")
    running.link.flush()
    for _ in range(turns):
        await asyncio.sleep(0)
    assert running.task.cancel()
    await asyncio.wait({running.task})
    assert running.task.cancelled()


async def test_fast_sender_is_read_at_its_pace(clock):
    running = Running(clock, pace=Pace(per_second=1.0, burst=2))
    await running.theirs.send(REGISTER)
    await settle()
    running.protocol.accept(clock.monotonic())
    for _ in range(3):
        await running.theirs.send('{"type":"heartbeat","status":"ok"}')
    await settle()
    heard = []
    for second in range(3):
        while not running.theirs._inbox.empty():
            heard.append((second, await running.theirs.receive()))
        clock.advance(1)
        await settle()
    assert [second for second, _ in heard] == [0, 0, 1, 2]  # the confirmation and three answers
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)


def test_pace_fills_with_time_up_to_its_burst():
    pace = Pace(per_second=2.0, burst=2)
    assert [pace.take(0.0) for _ in range(4)] == [0, 0, 0.5, 1.0]
    assert pace.take(100.0) == 0
    assert [pace.take(100.0) for _ in range(2)] == [0, 0.5]


def test_a_frame_given_back_was_free():
    pace = Pace(per_second=1.0, burst=1)
    for _ in range(5):
        assert pace.take(0.0) == 0
        pace.give_back()
    assert [pace.take(0.0) for _ in range(2)] == [0, 1.0]
