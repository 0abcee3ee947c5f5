"""What a restart must not lose, and what follows when an attempt was cut off."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from starloom.constellation.documents import build
from starloom.ids import RunId
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.endings import digest
from starloom.orchestrator.ports import Completed, Failed
from starloom.orchestrator.runner import Runner
from starloom.orchestrator.settings import InDoubt, RunSettings
from starloom.orchestrator.state import fold

_spec = importlib.util.spec_from_file_location("simulated_fleet", Path(__file__).with_name("conftest.py"))
fleet = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fleet)

RUN = RunId("run_1")
CHAIN = {"tasks": [{"task_id": "a"}, {"task_id": "b", "after": ["a"]}]}


def a_runner(clock, journal, answer, *, settings=None, devices=None, **more):
    executor = fleet.Executor(answer)
    devices = devices or fleet.Devices("d1")
    settings = settings or RunSettings()
    return Runner(RUN, executor=executor, devices=devices, clock=clock, journal=journal, settings=settings, **more)


async def kinds(journal):
    return [item.event.kind for item in await journal.read(RUN)]


async def test_the_end_carries_the_digest_of_the_graph_that_a_replay_gives(clock):
    journal = MemoryJournal(clock)
    await a_runner(clock, journal, lambda attempt: Completed(attempt.task_id)).run(build(CHAIN))
    recorded = await journal.read(RUN)
    assert recorded[-1].event.digest == digest(fold(RUN, recorded).constellation)


async def test_what_could_be_undone_and_redone_is_the_same_after_a_restart(clock):
    journal = MemoryJournal(clock)
    runner = a_runner(clock, journal, lambda attempt: asyncio.get_running_loop().create_future())
    running = asyncio.create_task(runner.run(build(CHAIN)))
    await fleet.settle()
    await runner.edit([{"command": "add_task", "task": {"task_id": "c"}}])
    await runner.edit([{"command": "add_task", "task": {"task_id": "d"}}])
    await runner.undo()
    again = fold(RUN, await journal.read(RUN))
    history = runner.state.editor.get_history()
    assert again.editor.get_history() == history
    assert len(history) == 1
    assert (again.editor.can_redo(), again.constellation.version) == (True, runner.constellation.version)
    assert digest(again.constellation) == digest(runner.constellation)
    assert again.editor.redo() is not None
    assert "d" in again.constellation.graph.tasks
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_graph_that_a_run_began_with_is_nothing_to_undo_after_a_restart(clock):
    journal = MemoryJournal(clock)
    await a_runner(clock, journal, lambda attempt: Completed()).run(build(CHAIN))
    assert not fold(RUN, await journal.read(RUN)).editor.can_undo()


async def test_what_someone_decided_to_try_again_is_tried_again_whatever_its_retries(clock):
    journal = MemoryJournal(clock)

    def answer(attempt):
        return Failed("unknown", again=True) if attempt.number < 3 else Completed()

    await a_runner(clock, journal, answer).run(build({"tasks": [{"task_id": "a"}]}))
    assert (await kinds(journal)).count("task_retrying") == 2


@pytest.mark.parametrize(("idempotent", "retries"), [(True, 3), (False, 0)])
async def test_an_interrupted_attempt_is_repeated_only_when_that_is_harmless(clock, idempotent, retries):
    journal = MemoryJournal(clock)
    document = {"tasks": [{"task_id": "a", "idempotent": idempotent}]}
    runner = a_runner(clock, journal, lambda attempt: Failed("the device died", in_doubt=True, interrupted=True))
    result = await runner.run(build(document))
    assert (await kinds(journal)).count("task_retrying") == retries
    assert result.stop_reason == "failed"


@pytest.mark.parametrize(("idempotent", "stopped"), [(True, 1), (False, 0)])
async def test_a_lost_device_keeps_what_a_person_would_be_asked_about(clock, idempotent, stopped):
    journal, devices = MemoryJournal(clock), fleet.Devices("d1")
    settings = RunSettings(in_doubt=InDoubt.ASK, device_wait_s=None)
    executor = fleet.Executor(lambda attempt: asyncio.get_running_loop().create_future())
    runner = Runner(RUN, executor=executor, devices=devices, clock=clock, journal=journal, settings=settings)
    running = asyncio.create_task(runner.run(build({"tasks": [{"task_id": "a", "idempotent": idempotent}]})))
    await fleet.settle()
    devices.disconnect("d1")
    await fleet.advance(clock, settings.device_lost_s + 1)
    assert len(executor.stopped) == stopped
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_attempt_says_whether_it_may_be_repeated(clock):
    seen = []

    def answer(attempt):
        seen.append(attempt.idempotent)
        return Completed()

    await a_runner(clock, MemoryJournal(clock), answer).run(build({"tasks": [{"task_id": "a", "idempotent": True}]}))
    assert seen == [True]


async def test_a_planner_is_asked_after_a_restart_about_what_it_had_not_answered(clock):
    journal = MemoryJournal(clock)
    asked = []

    async def silent(request):
        asked.append(request.surprises)
        await asyncio.get_running_loop().create_future()

    def answer(attempt):
        return Failed("no") if attempt.task_id == "a" else asyncio.get_running_loop().create_future()

    document = {"tasks": [{"task_id": "a"}, {"task_id": "z"}]}
    for _ in range(2):  # the second time from the journal
        runner = a_runner(clock, journal, answer, devices=fleet.Devices("d1", "d2"), replan=silent)
        running = asyncio.create_task(runner.resume() if asked else runner.run(build(document)))
        await fleet.settle(60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    first, second = asked
    assert [(surprise.kind, surprise.task_id) for surprise in first] == [("failed", "a")]
    assert ("failed", "a") in [(surprise.kind, surprise.task_id) for surprise in second]
