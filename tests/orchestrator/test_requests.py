"""A request that is sent again is answered again and carried out once, in this life of the run and in the next."""

import asyncio
import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from starloom.clock import ManualClock
from starloom.constellation.documents import build
from starloom.constellation.problems import EditError
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.requests import KeyReused, Request
from starloom.orchestrator.runner import Runner

_spec = importlib.util.spec_from_file_location("simulated_fleet", Path(__file__).with_name("conftest.py"))
fleet = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fleet)

RUN = RunId("run_1")


def add(name):
    return [{"command": "add_task", "task": {"task_id": name, "description": name}}]


class Life:
    """A run in one life of the hub: a task that never ends keeps it going."""

    def __init__(self, journal):
        self._journal = journal
        held = asyncio.get_running_loop().create_future
        self.runner = Runner(
            RUN,
            executor=fleet.Executor(lambda _: held()),
            devices=fleet.Devices("north"),
            clock=ManualClock(),
            journal=journal,
            reconcile=lambda _: held(),
        )
        self._task = None

    async def __aenter__(self):
        if await self._journal.read(RUN):
            self._task = asyncio.create_task(self.runner.resume())
        else:
            self._task = asyncio.create_task(self.runner.run(build({"name": "n", "tasks": [{"task_id": "held"}]})))
        await fleet.settle()
        return self.runner

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.wait([self._task])


async def edits(journal):
    return [item.event for item in await journal.read(RUN) if isinstance(item.event, e.EditApplied)][1:]


async def test_the_same_request_twice_is_one_edit_with_one_answer():
    journal = MemoryJournal(ManualClock())
    async with Life(journal) as runner:
        twice = [runner.edit(add("a"), request=Request("k", "1")) for _ in range(2)]
        first, second = await asyncio.gather(*twice)
        assert first == second == await runner.edit(add("a"), request=Request("k", "1"))
    async with Life(journal) as runner:
        assert await runner.edit(add("a"), request=Request("k", "1")) == first
        assert runner.constellation.task_count == 2
    assert await edits(journal) == [first]


async def test_a_key_with_another_request_is_refused_in_every_life():
    journal = MemoryJournal(ManualClock())
    for _ in range(2):
        async with Life(journal) as runner:
            await runner.edit(add("a"), request=Request("k", "1"))
            with pytest.raises(KeyReused, match="'k'"):
                await runner.edit(add("b"), request=Request("k", "2"))
    assert len(await edits(journal)) == 1


async def test_a_refusal_is_answered_again_too():
    journal = MemoryJournal(ManualClock())
    remove = [{"command": "remove_task", "task_id": "later"}]
    async with Life(journal) as runner:
        with pytest.raises(EditError) as first:
            await runner.edit(remove, request=Request("k", "1"))
        await runner.edit(add("later"))
        with pytest.raises(EditError) as second:
            await runner.edit(remove, request=Request("k", "1"))
    assert first.value.message == second.value.message
    assert len(await edits(journal)) == 1


async def test_an_undo_that_is_sent_again_undoes_nothing_more():
    journal = MemoryJournal(ManualClock())
    async with Life(journal) as runner:
        with pytest.raises(EditError, match="nothing to undo"):
            await runner.undo(request=Request("early", "undo"))
        await runner.edit(add("a"))
        await runner.edit(add("b"))
        undone = await runner.undo(request=Request("k", "undo"))
        with pytest.raises(EditError, match="nothing to undo"):
            await runner.undo(request=Request("early", "undo"))
    async with Life(journal) as runner:
        assert await runner.undo(request=Request("k", "undo")) == undone
        assert [star.task_id for star in runner.constellation.in_insertion_order()] == ["held", "a"]


@settings(max_examples=40, deadline=None)
@given(
    sent=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=14),
)
def test_however_often_requests_are_sent_each_is_one_edit(sent):
    """`True`: the hub dies after the request was committed, and the answer is lost."""

    async def check():
        journal = MemoryJournal(ManualClock())
        answers = {}
        lives = [[]]
        for number, dies in sent:
            lives[-1].append(number)
            if dies:
                lives.append([])
        for life in lives:
            async with Life(journal) as runner:
                for number in life:
                    answer = await runner.edit(add(f"t{number}"), request=Request(f"k{number}", str(number)))
                    assert answers.setdefault(number, answer) == answer
        assert sorted(edit.version for edit in await edits(journal)) == sorted(a.version for a in answers.values())

    asyncio.run(check())
