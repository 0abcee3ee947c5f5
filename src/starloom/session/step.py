"""`Step`: the record of one pass of an agent's pipeline, and how records reach the journal.

`StepRecorder` is middleware, so every step is recorded, the failed and the cancelled ones too. `to_journal` turns what
agents report into the journal's events and `from_journal` turns them back: agents themselves know no journal.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from starloom.agents.prompts import as_text
from starloom.agents.record import Acted, AgentEvent, Answered, Asked, Responded, Spent
from starloom.agents.replies import AgentReply
from starloom.agents.strategies.act import ActionOutcome
from starloom.clock import Clock
from starloom.journal.events import (
    AgentAction,
    AgentResponse,
    CostRecorded,
    Event,
    QuestionAnswered,
    QuestionAsked,
)
from starloom.llm.port import Usage, total_usage
from starloom.processing.dispatch import CommandStatus, Json
from starloom.processing.middleware import ProcessorMiddleware
from starloom.processing.processing_context import ProcessingContext, ProcessingResult
from starloom.safety.policy import Decision
from starloom.session.costs import cost_recorded, usage_of


@dataclass(frozen=True, slots=True)
class StepAction:
    """One action of a step and how it ended; its result is in the agent's memory, not here."""

    tool: str
    arguments: dict[str, Json]
    status: CommandStatus
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of a pipeline. `status` is the word that the model wrote, empty when it wrote none."""

    number: int
    agent: str
    ended_at: datetime
    duration_s: float
    phases: tuple[ProcessingResult, ...]
    status: str = ""
    actions: tuple[StepAction, ...] = ()
    usage: Usage | None = None
    error: str | None = None
    cancelled: bool = False


class StepRecorder(ProcessorMiddleware):
    """Keeps the steps of one round, in order, whichever agent made them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: list[Step] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps so far."""
        return tuple(self._steps)

    @property
    def usage(self) -> Usage:
        """What the steps so far have used together; the cost is None as soon as one is unknown."""
        return total_usage([step.usage for step in self._steps if step.usage is not None])

    async def after_process(self, context: ProcessingContext) -> None:
        """Record the step that has ended."""
        self._log(context)
        reply, usage = context.get_local("reply"), context.get_local("usage")
        outcomes = context.get_local("outcomes", ())
        self._steps.append(
            Step(
                number=len(self._steps) + 1,
                agent=str(context.get_local("agent", "")),
                ended_at=self._clock.now(),
                duration_s=context.duration_s,
                phases=tuple(context.results),
                status=reply.status if isinstance(reply, AgentReply) else "",
                actions=_actions(outcomes if isinstance(outcomes, tuple) else ()),
                usage=usage if isinstance(usage, Usage) else None,
                error=None if context.error is None else context.error.message,
                cancelled=context.cancelled,
            )
        )

    def _log(self, context: ProcessingContext) -> None:
        """File the step in the session's structural logs too, under its round and subtask."""
        shared = context.global_context
        shared.add_to_structural_logs(
            {
                "Round": shared.current_round_id,
                "SubtaskIndex": shared.current_round_subtask_amount,
                "step": len(self._steps) + 1,
                "agent": context.get_local("agent", ""),
                "cost": context.get_local("llm_cost"),
                "duration_s": context.duration_s,
                "error": None if context.error is None else context.error.message,
            }
        )


def _actions(outcomes: tuple[object, ...]) -> tuple[StepAction, ...]:
    return tuple(
        StepAction(
            outcome.action.tool, dict(outcome.action.arguments), outcome.result.status, error=outcome.result.error
        )
        for outcome in outcomes
        if isinstance(outcome, ActionOutcome)
    )


def from_journal(event: Event) -> AgentEvent | None:
    """Return what an agent had reported for an event; None for all others. The inverse of `to_journal`."""
    match event:
        case AgentResponse():
            return Responded(
                event.agent,
                event.step,
                event.response,
                screen=event.screen,
                suspicions=tuple(event.suspicions),
                withheld=event.withheld,
            )
        case AgentAction(step=step) if step:  # a task's own call has no step
            return Acted(
                event.agent,
                event.tool,
                event.arguments,
                Decision(event.decision),
                CommandStatus(event.status),
                error=event.error,
                step=step,
                index=event.index,
                result=event.result,
            )
        case CostRecorded():
            return Spent(event.role, event.model, usage_of(event))
        case QuestionAsked():
            return Asked(event.question_id, event.question)
        case QuestionAnswered():
            return Answered(event.question_id, event.answer, event.by)
        case _:
            return None


def to_journal(event: AgentEvent, *, task_id: str = "", device_id: str = "") -> Event:
    """Return the journal's event for what an agent reports about a task on a device."""
    match event:
        case Responded():
            return AgentResponse(
                event.agent,
                event.step,
                event.response,
                task_id=task_id,
                screen=event.screen,
                suspicions=list(event.suspicions),
                withheld=event.withheld,
            )
        case Acted():
            return AgentAction(
                event.agent,
                event.tool,
                event.arguments,
                decision=event.decision.value,
                status=event.status.value,
                task_id=task_id,
                device_id=device_id,
                error=event.error,
                step=event.step,
                index=event.index,
                result=None if event.result is None else as_text(event.result),
            )
        case Spent():
            return cost_recorded(event.role, event.model, event.usage, task_id)
        case Asked():
            return QuestionAsked(event.question_id, event.question, task_id=task_id)
        case Answered():
            return QuestionAnswered(event.question_id, event.answer, by=event.by)
        case _:
            assert_never(event)
