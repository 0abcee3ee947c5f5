"""A run whose journal cannot be written stands still: nobody is left waiting, nothing ends, and it can be resumed."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from starloom.clock import ManualClock
from starloom.constellation.documents import build
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.ports import Completed
from starloom.orchestrator.runner import Runner

_spec = importlib.util.spec_from_file_location("simulated_fleet", Path(__file__).with_name("conftest.py"))
fleet = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fleet)

RUN = RunId("run_1")


class Disk(MemoryJournal):
    """A journal on a disk that can be full."""

    is_full = False

    async def append(self, run_id, events, **how):
        if self.is_full:
            raise StoreError("the disk is full; free some space")
        return await super().append(run_id, events, **how)


class Bench:
    def __init__(self):
        self.journal = Disk(ManualClock())
        self.let_go = []

    def runner(self, answer):
        return Runner(
            RUN,
            executor=fleet.Executor(answer),
            devices=fleet.Devices("north", max_tasks=2),
            clock=ManualClock(),
            journal=self.journal,
            let_go=lambda: self.let_go.append(True),
            reconcile=lambda _: answered(),
        )

    async def kinds(self):
        return [item.event.kind for item in await self.journal.read(RUN)]


async def answered():
    return Completed("done")


def graph():
    return build({"name": "n", "tasks": [{"task_id": "a"}, {"task_id": "b"}]})


async def test_whoever_asked_for_an_edit_is_told_and_devices_go_on():
    bench = Bench()
    forever = asyncio.get_running_loop().create_future()
    runner = bench.runner(lambda _: forever)
    work = asyncio.ensure_future(runner.run(graph()))
    await fleet.settle()
    bench.journal.is_full = True
    with pytest.raises(StoreError, match="disk is full"):
        await runner.edit([{"command": "add_task", "task": {"task_id": "c"}}])
    with pytest.raises(StoreError, match="disk is full"):
        await work
    assert bench.let_go == [True]
    assert "edit_applied" not in (await bench.kinds())[3:]


async def test_an_attempt_whose_record_cannot_be_written_has_not_ended_and_is_taken_up_later():
    bench = Bench()

    async def record(attempt):
        await bench.journal.append(RUN, [e.AgentAction("task", "t", {}, "allow", "success", attempt.task_id)])
        return Completed("done")

    runner = bench.runner(record)
    work = asyncio.ensure_future(runner.run(graph()))
    async for item in bench.journal.follow(RUN):
        if item.event.kind == "task_started":
            break
    bench.journal.is_full = True
    with pytest.raises(StoreError, match="disk is full"):
        await work
    assert not {"task_failed", "task_completed", "run_ended"} & set(await bench.kinds())
    bench.journal.is_full = False
    result = await bench.runner(record).resume()
    assert result.stop_reason == "finished"
