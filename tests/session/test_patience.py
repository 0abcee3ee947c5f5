"""A task's timeout does not count the time that a person takes to answer; everything else it counts."""

import asyncio

import pytest

from starloom.clock import ManualClock
from starloom.constellation.documents import build
from starloom.ids import ApprovalId, CountingIds, DeviceId, RunId
from starloom.journal.events import ApprovalAsked, QuestionAsked, TaskCompleted, TaskFailed
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.ports import Completed, DeviceOffer
from starloom.orchestrator.runner import Runner
from starloom.safety.approvals import Approval, action_hash
from starloom.safety.gate import Answered, Asked
from starloom.safety.policy import ProposedAction, Risk
from starloom.session.desk import ApprovalDesk

RUN = RunId("run_1")
TIMEOUT_S = 10.0


class OneDevice:
    def offers(self):
        return (DeviceOffer(DeviceId("north"), "linux", frozenset(), 1),)

    async def changes(self):
        await asyncio.get_running_loop().create_future()
        yield


class Bench:
    """A run of one task that works, asks a person, and works on."""

    def __init__(self, asks):
        self.clock = ManualClock()
        self.journal = MemoryJournal(self.clock)
        self.desk = ApprovalDesk(self.journal, CountingIds())
        self.before_s = self.after_s = 0.0
        self._asks = asks
        graph = build({"name": "n", "tasks": [{"task_id": "t", "timeout": TIMEOUT_S}]})
        runner = Runner(RUN, executor=self, devices=OneDevice(), clock=self.clock, journal=self.journal)
        self.work = asyncio.ensure_future(runner.run(graph))

    async def execute(self, attempt):
        await self.clock.sleep(self.before_s)
        await self._asks(self.desk)
        await self.clock.sleep(self.after_s)
        return Completed("done")

    async def advance(self, seconds):
        for _ in range(30):
            await asyncio.sleep(0)
        self.clock.advance(seconds)
        for _ in range(30):
            await asyncio.sleep(0)

    async def answer(self):
        for item in await self.journal.read(RUN):
            if isinstance(item.event, ApprovalAsked):
                self.desk.answer(ApprovalId(item.event.approval_id), approved=True, by="ada")
            elif isinstance(item.event, QuestionAsked):
                self.desk.reply(item.event.question_id, "yes")

    async def ended(self):
        await self.work
        return next(
            type(item.event)
            for item in await self.journal.read(RUN)
            if isinstance(item.event, TaskCompleted | TaskFailed)
        )


async def approval(desk):
    action = ProposedAction("north", "files.delete", {"path": "a.txt"}, Risk.IRREVERSIBLE, ("a.txt",))
    asked = Approval(ApprovalId("approval_1"), RUN, action, action_hash(action), "cannot be undone", "t")
    await desk.record(Asked(asked))
    await desk.record(Answered(asked, await desk.ask(asked)))


async def question(desk):
    await desk.question(RUN, "Which month?", "t")


async def two_at_once(desk):
    await asyncio.gather(desk.question(RUN, "Which month?", "t"), approval(desk))


@pytest.mark.parametrize("asks", [approval, question, two_at_once])
async def test_a_person_may_take_longer_than_the_timeout(asks):
    bench = Bench(asks)
    bench.before_s = bench.after_s = 4.0
    await bench.advance(4.0)
    await bench.advance(1000.0)
    await bench.answer()
    await bench.advance(4.0)
    assert await bench.ended() is TaskCompleted


@pytest.mark.parametrize("asks", [approval, question, two_at_once])
async def test_the_work_before_and_after_the_answer_counts_together(asks):
    bench = Bench(asks)
    bench.before_s = bench.after_s = 6.0
    await bench.advance(6.0)
    await bench.advance(1000.0)
    await bench.answer()
    await bench.advance(5.0)
    assert await bench.ended() is TaskFailed


async def test_work_that_asks_nobody_is_stopped_in_time():
    async def nobody(_desk):
        pass

    bench = Bench(nobody)
    bench.before_s = 11.0
    await bench.advance(10.5)
    assert await bench.ended() is TaskFailed
