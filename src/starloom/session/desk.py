"""The desk where people are asked: approvals of actions, and questions such as «run this plan?».

Every question is journalled before anyone is asked and every answer before anyone acts on it. Views (terminal, page,
API) see the question as an event and answer through `answer` and `reply`; the first answer counts.
"""

import asyncio
from typing import Generic, TypeVar, assert_never

from starloom.errors import UsageError
from starloom.ids import ApprovalId, Ids, RunId
from starloom.journal.events import ApprovalAnswered, ApprovalAsked, Event, QuestionAnswered, QuestionAsked
from starloom.journal.store import Journal
from starloom.safety.approvals import Approval, ApprovalAnswer
from starloom.safety.gate import Answered, Asked, GateRecord

T = TypeVar("T")


class _Waiting(Generic[T]):
    """Open questions of one sort, by id. An id is open before its event is written, so no answer can come too early."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[T]] = {}

    def open(self, key: str) -> "asyncio.Future[T]":
        if key not in self._open:
            self._open[key] = asyncio.get_running_loop().create_future()
        return self._open[key]

    def close(self, key: str) -> None:
        self._open.pop(key, None)

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
        self._questions: _Waiting[str] = _Waiting()

    async def record(self, item: GateRecord) -> None:
        """Journal what the gate asked and what it was told."""
        event: Event
        match item:
            case Asked(approval=approval):
                self._approvals.open(approval.approval_id)
                event = ApprovalAsked(
                    approval_id=approval.approval_id,
                    action_hash=approval.action_hash,
                    tool=approval.action.tool,
                    arguments=approval.action.arguments,
                    device_id=approval.action.device_id,
                    reason=approval.reason,
                    task_id=approval.task_id,
                )
            case Answered(approval=approval, answer=answer):
                event = ApprovalAnswered(
                    approval.approval_id, approved=answer.approved, by=answer.by, comment=answer.comment
                )
            case _:
                assert_never(item)
        await self._journal.append(approval.run_id, [event])

    async def ask(self, approval: Approval) -> ApprovalAnswer:
        """Wait for a person's answer."""
        try:
            return await self._approvals.open(approval.approval_id)
        finally:
            self._approvals.close(approval.approval_id)

    def answer(self, approval_id: ApprovalId, *, approved: bool, by: str, comment: str = "") -> None:
        """Give a person's answer.

        Raises:
            UsageError: nothing with that id is open (never asked, answered already, or its run has ended).
        """
        self._approvals.settle(approval_id, ApprovalAnswer(approved=approved, by=by, comment=comment))

    async def question(self, run_id: RunId, text: str, task_id: str = "") -> str:
        """Ask a person in words and return what they said."""
        question_id = self._ids.new("question")
        try:
            answered = self._questions.open(question_id)
            await self._journal.append(run_id, [QuestionAsked(question_id, text, task_id)])
            answer = await answered
        finally:
            self._questions.close(question_id)
        await self._journal.append(run_id, [QuestionAnswered(question_id, answer)])
        return answer

    def reply(self, question_id: str, answer: str) -> None:
        """Give a person's answer to a question.

        Raises:
            UsageError: nothing with that id is open.
        """
        self._questions.settle(question_id, answer)
