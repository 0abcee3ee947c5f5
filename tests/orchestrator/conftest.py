"""A simulated fleet: devices that come and go, and an executor whose attempts end when the test says so."""

import asyncio

import pytest

from starloom.clock import ManualClock
from starloom.ids import DeviceId
from starloom.orchestrator.ports import Completed, DeviceOffer


class Devices:
    """A device directory whose devices the test connects and disconnects."""

    def __init__(self, *names, device_type="linux", tools=(), max_tasks=1):
        self._changed = asyncio.Event()
        self._offers = {}
        for name in names:
            self.connect(name, device_type, tools, max_tasks)

    def offers(self):
        return tuple(self._offers.values())

    async def changes(self):
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    def connect(self, name, device_type="linux", tools=(), max_tasks=1):
        self._offers[name] = DeviceOffer(DeviceId(name), device_type, frozenset(tools), max_tasks)
        self._changed.set()

    def disconnect(self, name):
        self._offers.pop(name, None)
        self._changed.set()


class Executor:
    """Performs attempts by calling `answer(attempt)`; an awaitable answer is awaited. Keeps what it saw."""

    def __init__(self, answer=lambda attempt: Completed(attempt.task_id)):
        self._answer = answer
        self.attempts = []
        self.stopped = []
        self.running = {}
        self.most_at_once = {}

    async def execute(self, attempt):
        self.attempts.append(attempt)
        at_once = self.running.setdefault(attempt.device_id, set())
        at_once.add(attempt.attempt_id)
        self.most_at_once[attempt.device_id] = max(self.most_at_once.get(attempt.device_id, 0), len(at_once))
        try:
            answer = self._answer(attempt)
            return await answer if hasattr(answer, "__await__") else answer
        except asyncio.CancelledError:
            self.stopped.append(attempt.attempt_id)
            raise
        finally:
            at_once.discard(attempt.attempt_id)

    def tasks(self):
        return [attempt.task_id for attempt in self.attempts]


async def settle(times=20):
    """Let everything that can go on go on."""
    for _ in range(times):
        await asyncio.sleep(0)


async def advance(clock, seconds):
    """Move the clock once everyone sleeps, and let them wake."""
    await settle()
    clock.advance(seconds)
    await settle()


@pytest.fixture
def clock():
    return ManualClock()
