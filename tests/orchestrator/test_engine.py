"""Several constellations in one engine; and the orchestrator example of seed 4, with only its import paths changed."""

import asyncio

import pytest

from starloom.constellation.documents import build
from starloom.constellation.enums import TaskStatus
from starloom.errors import UsageError
from starloom.orchestrator.engine import ConstellationDeviceManager, TaskConstellationOrchestrator
from starloom.orchestrator.ports import Completed

CHAIN = {"tasks": [{"task_id": "a"}, {"task_id": "b", "after": ["a"]}]}


async def test_the_seeds_example_runs(capsys):
    device_manager = ConstellationDeviceManager()
    device_manager.register_device(device_id="mac-mini-01", device_type="macos", address="tcp://mac-mini-01:8765")
    orchestrator = TaskConstellationOrchestrator(device_manager=device_manager, enable_logging=True)

    async def demo_cancel():
        cancelled = await orchestrator.cancel_execution("invoice_processing")
        print(f"Cancelled: {cancelled}")

    await demo_cancel()
    assert capsys.readouterr().out == "Cancelled: False\n"
    assert device_manager.address_of("mac-mini-01") == "tcp://mac-mini-01:8765"
    with pytest.raises(UsageError, match="no executor"):
        await orchestrator.orchestrate_constellation(build(CHAIN))


async def test_the_seeds_ready_set_is_ours():
    constellation = build(CHAIN)
    ready = [
        t
        for t in constellation.tasks.values()
        if t.status == TaskStatus.PENDING
        and all(constellation.tasks[dep_id].status == TaskStatus.COMPLETED for dep_id in t.dependencies)
    ]
    assert ready == constellation.get_ready_tasks()


class Gated:
    def __init__(self):
        self.gate = asyncio.Event()

    async def execute(self, attempt):
        await self.gate.wait()
        return Completed()


async def test_a_cancel_reaches_one_constellation_and_the_engine_goes_on():
    devices, executor = ConstellationDeviceManager(), Gated()
    engine = TaskConstellationOrchestrator(devices, executor=executor)
    first = asyncio.create_task(engine.orchestrate_constellation(build({**CHAIN, "name": "first"})))
    second = asyncio.create_task(engine.orchestrate_constellation(build({**CHAIN, "name": "second"})))
    await asyncio.sleep(0)
    devices.register_device("d1", "linux", max_tasks=2)
    await asyncio.sleep(0)
    assert await engine.cancel_execution("first")
    assert (await first).stop_reason == "cancelled"
    executor.gate.set()
    assert (await second).stop_reason == "finished"
    assert not await engine.cancel_execution("first")
    assert (await engine.orchestrate_constellation(build({**CHAIN, "name": "first"}))).stop_reason == "finished"


async def test_a_device_that_leaves_is_not_offered():
    devices = ConstellationDeviceManager()
    devices.register_device("d1", "linux")
    devices.unregister_device("d1")
    devices.unregister_device("d1")
    assert devices.offers() == ()
    assert devices.address_of("d1") is None
