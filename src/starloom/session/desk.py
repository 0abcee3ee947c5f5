"""The desk where people are asked: approvals of actions, and questions such as «run this plan?».

Every question is journalled before anyone is asked and every answer before anyone acts on it. Views (terminal, page,
API) see the question as an event and answer through `answer` and `reply`; the first answer counts. After a restart
`restore` takes up what was asked: an open question can be answered by the same id, an answer given is not asked for
again as long as the attempt that wanted it lives.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar, assert_never

from starloom.errors import UsageError
from starloom.ids import ApprovalId, Ids, RunId
from starloom.journal.events import ApprovalAnswered, ApprovalAsked, Event, QuestionAnswered, QuestionAsked
from starloom.journal.store import Journal
from starloom.patience import a_person_thinking
from starloom.safety.approvals import Approval, ApprovalAnswer
from starloom.safety.gate import Answered, Asked, GateRecord
from starloom.session.recall import PastApproval, PastQuestion, Recall

T = TypeVar("T")


class _Waiting(Generic[T]):
    """Open questions of one sort, by id. An id is open before its event is written, so no answer can come too early."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[T]] = {}
        self._runs: dict[str, RunId] = {}

    def open(self, key: str, run_id: RunId) -> "asyncio.Future[T]":
        if key not in self._open:
            self._open[key] = asyncio.get_running_loop().create_future()
            self._runs[key] = run_id
        return self._open[key]

    def close(self, key: str) -> None:
        future = self._open.pop(key, None)
        self._runs.pop(key, None)
        if future is not None:
            future.cancel()

    def close_all(self, run_id: RunId) -> None:
        for key in [key for key, of in self._runs.items() if of == run_id]:
            self.close(key)

    def run_of(self, key: str) -> RunId | None:
        return self._runs.get(key) if self.is_open(key) else None

    def is_open(self, key: str) -> bool:
        future = self._open.get(key)
        return future is not None and not future.done()

    def settle(self, key: str, value: T) -> None:
        future = self._open.get(key)
        if future is None or future.done():
            raise UsageError(f"Nothing with the id {key!r} is waiting for an answer.", id=key)
        future.set_result(value)


class ApprovalDesk:
    """Open questions of all runs; the `Approver` of the policy gate, and the keeper of what the gate records."""

    def __init__(self, journal: Journal, ids: Ids) -> None:
        self._journal = journal
        self._ids = ids
        self._approvals: _Waiting[ApprovalAnswer] = _Waiting()
        self._questions: _Waiting[tuple[str, str]] = _Waiting()
        self._past: dict[RunId, Recall] = {}
        self._asked_before: dict[str, PastApproval] = {}  # the gate's new id → the approval of an earlier life

    def restore(self, run_id: RunId, past: Recall) -> list[Coroutine[Any, Any, None]]:
        """Open what was asked in an earlier life, under its ids; return work that keeps answers which come early."""
        self._past[run_id] = past
        keeping: list[Coroutine[Any, Any, None]] = []
        for approval in past.approvals.values():
            if approval.answer is None:
                answered = self._approvals.open(approval.approval_id, run_id)
                keeping.append(self._keep_approval(run_id, approval.approval_id, answered))
        for question in past.questions.values():
            if question.answer is None:
                replied = self._questions.open(question.question_id, run_id)
                keeping.append(self._keep_question(run_id, question.question_id, replied))
        return keeping

    async def withdraw(self, run_id: RunId, task_id: str) -> None:
        """Forget what an earlier life asked for a task that is over or has gone on without it.

        What is still open is closed; that is journalled first.
        """
        past = self._past.get(run_id, Recall())
        for (task, _), question in list(past.questions.items()):
            if task == task_id and self._questions.is_open(question.question_id):
                await self._replied(run_id, question.question_id, "", "recovery")
                self._questions.close(question.question_id)
        for (task, _), approval in list(past.approvals.items()):
            if task == task_id and self._approvals.is_open(approval.approval_id):
                answer = ApprovalAnswer(approved=False, by="recovery", comment="the attempt is over")
                await self._answered(run_id, approval.approval_id, answer)
                self._approvals.close(approval.approval_id)
        past.forget(task_id)

    def forget(self, run_id: RunId) -> None:
        """Close what was asked for a run that is over here; nobody waits for it any more."""
        self._past.pop(run_id, None)
        self._approvals.close_all(run_id)
        self._questions.close_all(run_id)

    async def record(self, item: GateRecord) -> None:
        """Journal what the gate asked and what it was told, once."""
        event: Event
        approval = item.approval
        match item:
            case Asked():
                past = self._past_approval(approval)
                if past is not None:
                    self._asked_before[approval.approval_id] = past
                    return
                self._approvals.open(approval.approval_id, approval.run_id)
                event = ApprovalAsked(
                    approval_id=approval.approval_id,
                    action_hash=approval.action_hash,
                    tool=approval.action.tool,
                    arguments=approval.action.arguments,
                    device_id=approval.action.device_id,
                    reason=approval.reason,
                    task_id=approval.task_id,
                )
                await self._journal.append(approval.run_id, [event])
            case Answered(answer=answer):
                past = self._asked_before.pop(approval.approval_id, None)
                if past is None or past.answer is None:
                    await self._answered(approval.run_id, past.approval_id if past else approval.approval_id, answer)
            case _:
                assert_never(item)

    async def ask(self, approval: Approval) -> ApprovalAnswer:
        """Wait for a person's answer."""
        past = self._asked_before.get(approval.approval_id)
        if past is not None and past.answer is not None:
            return past.answer
        approval_id = past.approval_id if past else approval.approval_id
        try:
            with a_person_thinking():
                return await self._approvals.open(approval_id, approval.run_id)
        finally:
            self._approvals.close(approval_id)

    def is_open(self, key: str) -> bool:
        """Whether an approval or a question of this id waits for an answer, so that a view need not ask in vain."""
        return self._approvals.is_open(key) or self._questions.is_open(key)

    def run_of(self, key: str) -> RunId | None:
        """Return the run whose approval or question of this id is open; None: nothing of that id is."""
        return self._approvals.run_of(key) or self._questions.run_of(key)

    def answer(self, approval_id: ApprovalId, *, approved: bool, by: str, comment: str = "") -> None:
        """Give a person's answer.

        Raises:
            UsageError: nothing with that id is open (never asked, answered already, or its run has ended).
        """
        self._approvals.settle(approval_id, ApprovalAnswer(approved=approved, by=by, comment=comment))

    async def question(self, run_id: RunId, text: str, task_id: str = "") -> str:
        """Ask a person in words and return what they said."""
        said = await self.question_unless(asyncio.get_running_loop().create_future(), run_id, text, task_id)
        return said or ""

    async def question_unless(
        self, settled: "asyncio.Future[Any]", run_id: RunId, text: str, task_id: str = ""
    ) -> str | None:
        """Ask a person in words; None when it settled itself first, by whatever `settled` waits for."""
        past = self._past_question(run_id, task_id, text)
        if past is not None and past.answer is not None:
            return past.answer
        question_id = past.question_id if past else self._ids.new("question")
        try:
            answered = self._questions.open(question_id, run_id)
            if past is None:
                await self._journal.append(run_id, [QuestionAsked(question_id, text, task_id)])
            with a_person_thinking():
                await asyncio.wait({answered, settled}, return_when=asyncio.FIRST_COMPLETED)
            if not answered.done():
                await self._replied(run_id, question_id, "", "device")
                return None
            answer, by = answered.result()
            await self._replied(run_id, question_id, answer, by)
            return answer
        finally:
            self._questions.close(question_id)

    def reply(self, question_id: str, answer: str, by: str = "user") -> None:
        """Give a person's answer to a question.

        Raises:
            UsageError: nothing with that id is open.
        """
        self._questions.settle(question_id, (answer, by))

    def _past_approval(self, approval: Approval) -> PastApproval | None:
        past = self._past.get(approval.run_id)
        return past.approvals.pop((approval.task_id, approval.action_hash), None) if past else None

    def _past_question(self, run_id: RunId, task_id: str, text: str) -> PastQuestion | None:
        past = self._past.get(run_id)
        return past.questions.pop((task_id, text), None) if past else None

    async def _keep_approval(self, run_id: RunId, approval_id: str, answered: "asyncio.Future[ApprovalAnswer]") -> None:
        await asyncio.wait({answered})
        if not answered.cancelled():
            await self._answered(run_id, approval_id, answered.result())

    async def _keep_question(
        self, run_id: RunId, question_id: str, answered: "asyncio.Future[tuple[str, str]]"
    ) -> None:
        await asyncio.wait({answered})
        if not answered.cancelled():
            await self._replied(run_id, question_id, *answered.result())

    async def _answered(self, run_id: RunId, approval_id: str, answer: ApprovalAnswer) -> None:
        """Journal an answer; twice is once."""
        event = ApprovalAnswered(approval_id, approved=answer.approved, by=answer.by, comment=answer.comment)
        await self._journal.append(run_id, [event], keys=[f"answer:{approval_id}"])

    async def _replied(self, run_id: RunId, question_id: str, answer: str, by: str) -> None:
        """Journal a reply; twice is once."""
        await self._journal.append(run_id, [QuestionAnswered(question_id, answer, by)], keys=[f"answer:{question_id}"])
