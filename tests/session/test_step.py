"""Steps are recorded whatever becomes of them, and agents' reports reach the journal in its words."""

import asyncio

import pytest

from starloom.agents.record import Acted, Answered, Asked, Responded, Spent
from starloom.clock import ManualClock
from starloom.journal import events
from starloom.llm.port import Usage
from starloom.processing.context import Context
from starloom.processing.dispatch import CommandStatus
from starloom.processing.processing_context import ProcessingPhase
from starloom.processing.processor import ProcessorTemplate
from starloom.safety.policy import Decision
from starloom.session.step import StepRecorder, from_journal, to_journal


def processor(recorder, error=None):
    class Phase:
        name = "Phase"
        fail_fast = True

        async def execute(self, context):
            if error is not None:
                raise error
            return {}

    return ProcessorTemplate(
        {ProcessingPhase.SETUP: Phase()}, clock=ManualClock(), middleware=[recorder], initial={"agent": str}
    )


async def test_a_step_that_worked_is_recorded_with_its_phases():
    recorder = StepRecorder(ManualClock())
    await processor(recorder).process(Context(), agent="A", usage=Usage(5, 2, cost=0.5))
    [step] = recorder.steps
    assert (step.number, step.agent, step.error, step.usage.input_tokens) == (1, "A", None, 5)
    assert [phase.phase for phase in step.phases] == [ProcessingPhase.SETUP]
    assert recorder.usage.cost == 0.5


async def test_steps_are_in_the_structural_logs_of_their_round():
    recorder, context = StepRecorder(ManualClock()), Context()
    context.set("CURRENT_ROUND_ID", 2)
    await processor(recorder).process(context, agent="A", llm_cost=0.5)
    await processor(recorder, ValueError("no")).process(context, agent="A")
    assert context.filter_structural_logs(2, 0, ["step", "cost"]) == [
        {"step": 1, "cost": 0.5},
        {"step": 2, "cost": None},
    ]


async def test_a_failed_and_a_cancelled_step_are_recorded_too():
    recorder = StepRecorder(ManualClock())
    await processor(recorder, ValueError("no")).process(Context(), agent="A")
    with pytest.raises(asyncio.CancelledError):
        await processor(recorder, asyncio.CancelledError()).process(Context(), agent="A")
    failed, cancelled = recorder.steps
    assert "no" in failed.error
    assert (cancelled.cancelled, cancelled.number) == (True, 2)


async def test_one_unknown_cost_makes_the_sum_unknown_and_never_zero():
    recorder = StepRecorder(ManualClock())
    await processor(recorder).process(Context(), agent="A", usage=Usage(5, 2, cost=0.5))
    await processor(recorder).process(Context(), agent="A", usage=Usage(5, 2, cost=None))
    assert recorder.usage.cost is None


@pytest.mark.parametrize(
    ("report", "event"),
    [
        (Responded("A", 2, {"status": "FINISH"}), events.AgentResponse("A", 2, {"status": "FINISH"}, task_id="t")),
        (
            Acted("A", "files.read", {"path": "a"}, Decision.DENY, CommandStatus.SKIPPED, error="no"),
            events.AgentAction("A", "files.read", {"path": "a"}, "deny", "skipped", "t", "d", "no"),
        ),
        (
            Responded("A", 2, {"status": "CONTINUE"}, screen="0f", suspicions=("orders",), withheld=True),
            events.AgentResponse("A", 2, {"status": "CONTINUE"}, "t", "0f", ["orders"], True),
        ),
        (
            Acted("A", "f.read", {}, Decision.ALLOW, CommandStatus.SUCCESS, step=2, index=1, result="shown"),
            events.AgentAction("A", "f.read", {}, "allow", "success", "t", "d", None, 2, 1, "shown"),
        ),
        (Spent("shell", "m", Usage(3, 2)), events.CostRecorded("shell", "m", 3, 2, cost=None, task_id="t")),
        (Asked("q", "Which?"), events.QuestionAsked("q", "Which?", task_id="t")),
        (Answered("q", "b", "nobody"), events.QuestionAnswered("q", "b", by="nobody")),
    ],
)
def test_reports_become_events_that_the_journal_can_keep(report, event):
    made = to_journal(report, task_id="t", device_id="d")
    assert made == event
    assert events.decode(made.kind, events.encode(made)) == made
    if not isinstance(report, Acted) or report.step:  # older records of actions do not say which they are
        assert from_journal(made) == report


def test_what_no_agent_reports_is_none_of_its_reports():
    assert from_journal(events.AgentAction("task", "files.read", {}, "allow", "success", "t", "d")) is None
    assert from_journal(events.TaskCompleted("t", 1)) is None
