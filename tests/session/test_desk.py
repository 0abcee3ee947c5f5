"""Facts about the desk; the journal here is the real in-memory one."""

import asyncio
from dataclasses import replace

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
from starloom.session.recall import recall

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


async def test_an_open_approval_of_an_earlier_life_is_answered_by_its_id_and_not_asked_for_again():
    journal = MemoryJournal(ManualClock())
    await ApprovalDesk(journal, CountingIds()).record(Asked(an_approval()))
    desk = ApprovalDesk(journal, CountingIds())
    keeping = [asyncio.create_task(work) for work in desk.restore(RUN, recall(await journal.read(RUN)))]
    desk.answer(ApprovalId("approval_1"), approved=True, by="ada")  # before anyone waits for it
    await asyncio.gather(*keeping)
    again = replace(an_approval(), approval_id=ApprovalId("approval_9"))
    await desk.record(Asked(again))
    answer = await desk.ask(again)
    await desk.record(Answered(again, answer))
    assert answer.approved
    events = [item.event for item in await journal.read(RUN)]
    assert [event.kind for event in events] == ["approval_asked", "approval_answered"]
    assert events[1].approval_id == "approval_1"


async def test_an_answer_of_an_earlier_life_is_used_once():
    journal = MemoryJournal(ManualClock())
    await journal.append(RUN, [QuestionAsked("question_7", "Really?", "t1"), QuestionAnswered("question_7", "yes")])
    desk = ApprovalDesk(journal, CountingIds())
    assert desk.restore(RUN, recall(await journal.read(RUN))) == []
    assert await desk.question(RUN, "Really?", "t1") == "yes"
    second = asyncio.create_task(desk.question(RUN, "Really?", "t1"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not second.done()
    desk.forget(RUN)
    second.cancel()


async def test_what_nobody_waits_for_any_more_is_closed_with_its_run():
    journal = MemoryJournal(ManualClock())
    await journal.append(RUN, [QuestionAsked("question_7", "Really?", "t1")])
    desk = ApprovalDesk(journal, CountingIds())
    keeping = [asyncio.create_task(work) for work in desk.restore(RUN, recall(await journal.read(RUN)))]
    desk.forget(RUN)
    await asyncio.gather(*keeping)
    with pytest.raises(UsageError):
        desk.reply("question_7", "yes")


async def test_what_an_earlier_life_asked_for_an_attempt_that_is_over_is_closed_in_the_journal():
    journal = MemoryJournal(ManualClock())
    await ApprovalDesk(journal, CountingIds()).record(Asked(an_approval()))
    await journal.append(RUN, [QuestionAsked("question_7", "Really?", "t1"), QuestionAsked("question_8", "And?", "t2")])
    desk = ApprovalDesk(journal, CountingIds())
    keeping = [asyncio.create_task(work) for work in desk.restore(RUN, recall(await journal.read(RUN)))]
    await desk.withdraw(RUN, "t1")
    desk.forget(RUN)
    await asyncio.gather(*keeping)
    events = [item.event for item in await journal.read(RUN)]
    approval = next(event for event in events if isinstance(event, ApprovalAnswered))
    assert (approval.approval_id, approval.approved, approval.by) == ("approval_1", False, "recovery")
    assert [event.question_id for event in events if isinstance(event, QuestionAnswered)] == ["question_7"]


async def test_nothing_stays_open_after_its_run():
    desk = ApprovalDesk(MemoryJournal(ManualClock()), CountingIds())
    await desk.record(Asked(an_approval()))  # whoever asked was stopped before it could wait
    assert desk.is_open("approval_1")
    desk.forget(RunId("run_2"))
    assert desk.is_open("approval_1")
    desk.forget(RUN)
    assert not desk.is_open("approval_1")
