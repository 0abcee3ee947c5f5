"""Facts about the desk; the journal here is the real in-memory one."""

import asyncio

import pytest

from starloom.clock import ManualClock
from starloom.errors import UsageError
from starloom.ids import ApprovalId, CountingIds, RunId
from starloom.journal.events import ApprovalAnswered, ApprovalAsked, QuestionAnswered, QuestionAsked
from starloom.journal.memory import MemoryJournal
from starloom.safety.approvals import Approval, action_hash
from starloom.safety.gate import Answered, Asked
from starloom.safety.policy import ProposedAction, Risk
from starloom.session.desk import ApprovalDesk

RUN = RunId("run_1")


def an_approval() -> Approval:
    action = ProposedAction("hub", "files.delete", {"path": "a.txt"}, Risk.IRREVERSIBLE, ("a.txt",))
    return Approval(ApprovalId("approval_1"), RUN, action, action_hash(action), "cannot be undone", "t1")


async def test_question_and_answer_are_journalled_in_order():
    journal = MemoryJournal(ManualClock())
    desk = ApprovalDesk(journal, CountingIds())

    async def person() -> None:
        async for recorded in journal.follow(RUN):
            if isinstance(recorded.event, ApprovalAsked):
                desk.answer(ApprovalId(recorded.event.approval_id), approved=True, by="ada")
                return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(person())
        await desk.record(Asked(an_approval()))
        answer = await desk.ask(an_approval())
        await desk.record(Answered(an_approval(), answer))
    assert answer.approved
    kinds = [type(recorded.event) for recorded in await journal.read(RUN)]
    assert kinds == [ApprovalAsked, ApprovalAnswered]


async def test_an_answer_nobody_waits_for_is_refused():
    desk = ApprovalDesk(MemoryJournal(ManualClock()), CountingIds())
    with pytest.raises(UsageError, match="approval_9"):
        desk.answer(ApprovalId("approval_9"), approved=True, by="ada")


async def test_a_second_answer_is_refused():
    journal = MemoryJournal(ManualClock())
    desk = ApprovalDesk(journal, CountingIds())
    async with asyncio.TaskGroup() as tasks:
        await desk.record(Asked(an_approval()))
        asking = tasks.create_task(desk.ask(an_approval()))
        desk.answer(ApprovalId("approval_1"), approved=False, by="ada")
        with pytest.raises(UsageError):
            desk.answer(ApprovalId("approval_1"), approved=True, by="eve")
        assert not (await asking).approved


async def test_a_question_in_words_is_answered():
    journal = MemoryJournal(ManualClock())
    desk = ApprovalDesk(journal, CountingIds())
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(desk.question(RUN, "Run this plan?"))
        async for recorded in journal.follow(RUN):
            if isinstance(recorded.event, QuestionAsked):
                desk.reply(recorded.event.question_id, "yes")
                break
        assert await asking == "yes"
    assert isinstance((await journal.read(RUN))[-1].event, QuestionAnswered)
