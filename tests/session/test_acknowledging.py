"""Devices are told what is committed: not before, and not never."""

import asyncio
from datetime import UTC, datetime

from starloom.fleet.errors import UnknownDevice
from starloom.fleet.records import DeviceRecord, DeviceStatus
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.orchestrator.stream import EventStream
from starloom.session.acknowledging import Acknowledgements

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class SimulatedFleet:
    """A fleet of one device that is there or not, and what it was told."""

    def __init__(self, *, online: bool) -> None:
        self.online = online
        self.told: list[str] = []
        self.changed = asyncio.Event()

    def get(self, device_id):
        if device_id != "hub":
            raise UnknownDevice(device_id)
        status = DeviceStatus.IDLE if self.online else DeviceStatus.DISCONNECTED
        return DeviceRecord("hub", "linux", "linux", status)

    def committed(self, device_id, call_ids):
        self.told += call_ids

    async def changes(self):
        while True:
            await self.changed.wait()
            self.changed.clear()
            yield


def recorded(*events):
    return [Recorded(RunId("run_1"), seq, NOW, event) for seq, event in enumerate(events, start=1)]


STARTED = e.TaskStarted("a", 1, "run_1:a:1", "hub")


async def test_the_end_of_an_attempt_is_acknowledged_once_it_is_published():
    fleet, stream = SimulatedFleet(online=True), EventStream()
    following = asyncio.create_task(Acknowledgements(fleet).follow(stream))
    stream.publish(recorded(STARTED))
    await asyncio.sleep(0)
    assert fleet.told == []
    stream.publish(recorded(e.TaskCompleted("a", 1)))
    stream.close()
    await following
    assert fleet.told == ["run_1:a:1"]


async def test_a_device_that_was_away_is_told_when_it_is_back():
    fleet = SimulatedFleet(online=False)
    owed = Acknowledgements(fleet)
    for item in recorded(STARTED, e.TaskRetrying("a", 1, "no"), e.TaskStarted("b", 1, "run_1:b:1", "elsewhere")):
        owed.note(item)
    serving = asyncio.create_task(owed.serve())
    fleet.changed.set()
    await asyncio.sleep(0)
    assert fleet.told == []
    fleet.online = True
    fleet.changed.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert fleet.told == ["run_1:a:1"]
    serving.cancel()
