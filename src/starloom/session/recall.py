"""What people were asked in an earlier life of a run and what still counts of it: a fold over the run's events.

Called by the galaxy when it takes up a run; read by the desk, which asks on under the same ids, and by the executor.
Pure. A question counts while the attempt, or the step of an agent, that asked it lives: until then its answer is kept,
after that it is void.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.safety.approvals import ApprovalAnswer


@dataclass(slots=True)
class PastApproval:
    """An approval that was asked for; `answer` None: it is open."""

    approval_id: str
    answer: ApprovalAnswer | None = None


@dataclass(slots=True)
class PastQuestion:
    """A question that was asked; `answer` None: it is open."""

    question_id: str
    answer: str | None = None


@dataclass(slots=True)
class Recall:
    """What was asked before a restart, by task; the task of a question about the whole run is empty.

    Attributes:
        approvals: (task, hash of the action) → the newest approval asked for it.
        questions: (task, its text) → the newest question of that text.
    """

    approvals: dict[tuple[str, str], PastApproval] = field(default_factory=dict)
    questions: dict[tuple[str, str], PastQuestion] = field(default_factory=dict)

    def waits_for_approval(self, task_id: str) -> bool:
        """Whether the task's attempt was held by an open approval: then nothing of it was sent."""
        return any(task == task_id and past.answer is None for (task, _), past in self.approvals.items())

    def forget(self, task_id: str) -> None:
        """Drop what an attempt asked that is over, or a step of its agent."""
        for key in [key for key in self.approvals if key[0] == task_id]:
            del self.approvals[key]
        for key in [key for key in self.questions if key[0] == task_id]:
            del self.questions[key]


def recall(recorded: Iterable[Recorded]) -> Recall:
    """Return what still counts after these events of one run."""
    past = Recall()
    for item in recorded:
        _note(past, item.event)
    return past


def _note(past: Recall, event: e.Event) -> None:
    match event:
        case e.TaskStarted() | e.TaskCompleted() | e.TaskFailed() | e.TaskCancelled() | e.TaskRetrying():
            past.forget(event.task_id)
        case e.AgentResponse(task_id=task_id) if task_id:
            past.forget(task_id)  # its agent has gone on; what it asks from now on it asks anew
        case e.ApprovalAsked(approval_id=approval_id, action_hash=action_hash, task_id=task_id):
            past.approvals[task_id, action_hash] = PastApproval(approval_id)
        case e.QuestionAsked(question_id=question_id, question=text, task_id=task_id):
            past.questions[task_id, text] = PastQuestion(question_id)
        case e.ApprovalAnswered() | e.QuestionAnswered():
            _answer(past, event)
        case _:
            pass


def _answer(past: Recall, event: e.ApprovalAnswered | e.QuestionAnswered) -> None:
    if isinstance(event, e.ApprovalAnswered):
        for approval in past.approvals.values():
            if approval.approval_id == event.approval_id:
                approval.answer = ApprovalAnswer(event.approved, event.by, event.comment)
        return
    for question in past.questions.values():
        if question.question_id == event.question_id:
            question.answer = event.answer
