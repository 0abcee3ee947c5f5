"""What the journal says of a goal's attempts: what this one's agent lived through, and what earlier ones did.

Pure folds over a run's events; called by the executor when it performs an attempt with a goal.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from starloom.agents.resumption import AgentPast, past_of
from starloom.journal.events import AgentAction, AgentResponse, Json, QuestionAnswered, Recorded, TaskStarted
from starloom.orchestrator.ports import Attempt
from starloom.session.step import from_journal

_EARLIER_STEPS = 50  # of earlier attempts, the newest


@dataclass(slots=True)
class GoalRecord:
    """The events of one goal, before its present attempt began and since."""

    earlier: list[Recorded] = field(default_factory=list)
    own: list[Recorded] = field(default_factory=list)

    @property
    def has_begun(self) -> bool:
        """Whether this attempt's agent has thought."""
        return any(isinstance(item.event, AgentResponse) for item in self.own)

    def past(self, now: datetime) -> AgentPast | None:
        """Return what this attempt's agent lived through; None: nothing, or its record is an older version's."""
        if not self.own:
            return None
        reports = [report for item in self.own if (report := from_journal(item.event)) is not None]
        return past_of(reports, away_s=(now - self.own[-1].at).total_seconds())

    def earlier_steps(self) -> list[Json]:
        """Return what earlier attempts did, oldest first."""
        steps: list[Json] = [
            {"tool": event.tool, "arguments": event.arguments, "status": event.status}
            for event in (item.event for item in self.earlier)
            if isinstance(event, AgentAction)
        ]
        return steps[-_EARLIER_STEPS:]


def goal_record(recorded: Iterable[Recorded], attempt: Attempt) -> GoalRecord:
    """Return what a run's events say of an attempt's goal."""
    record = GoalRecord()
    kept = record.earlier
    for item in recorded:
        event = item.event
        if isinstance(event, TaskStarted) and event.attempt_id == attempt.attempt_id:
            kept = record.own
        elif isinstance(event, QuestionAnswered) or getattr(event, "task_id", None) == attempt.task_id:
            kept.append(item)
    return record
