"""Performs attempts: a tool call over the fleet, or a goal pursued by the device's agent; the gate before either.

Fits the orchestrator's `TaskExecutor` port. The attempt's id travels as the command's call id, so that a restarted hub
asks the device about the same attempt (`reattach`), and an agent that was cut off goes on where it was. What the
journal is told is redacted here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starloom.agents.assignment import AgentLimits
from starloom.agents.memory import clip
from starloom.agents.prompts import as_text
from starloom.agents.record import Acted, AgentEvent, Answered, Asked, Responded
from starloom.agents.resumption import AgentPast
from starloom.aip.messages import Command, Result, ResultStatus
from starloom.clock import Clock
from starloom.errors import ModelError, StarloomError, StoreError
from starloom.fleet.fleet import Fleet
from starloom.fleet.records import DeviceRecord
from starloom.ids import Ids, RunId
from starloom.journal.events import AgentAction
from starloom.journal.store import Journal
from starloom.llm.budgets import BudgetedModel
from starloom.llm.port import Model
from starloom.orchestrator.ports import Attempt, Completed, Failed, Outcome
from starloom.orchestrator.settings import RunSettings
from starloom.safety.gate import Gate
from starloom.safety.policy import Decision, Facts, Risk
from starloom.safety.provenance import Fence
from starloom.safety.redaction import Redactor
from starloom.safety.rules import propose
from starloom.session.carrying import Carrier, Doubts
from starloom.session.delegating import Delegation
from starloom.session.desk import ApprovalDesk
from starloom.session.dispatch import FleetDispatcher
from starloom.session.goals import goal_record
from starloom.session.profiles import profile_of, tool_profile
from starloom.session.recall import Recall
from starloom.session.round import Limits, run_goal
from starloom.session.spending import Spending
from starloom.session.step import to_journal
from starloom.session.trust import suspicions_in

_SHOWN_BYTES = 2_000  # of an argument in the journal's record of an action; the edit holds the whole

_AGENT_LIMITS = AgentLimits()

_EARLIER = "what an earlier try at this goal did before it was cut off"

# A tool that only reads can be run again on the same device; anything else may have had its effect.
_REPEATABLE = frozenset({Risk.READ})


@dataclass(frozen=True, slots=True)
class Crew:
    """What performing an attempt needs, shared by all runs of a hub. `model` None: only tasks with a tool can run."""

    fleet: Fleet
    journal: Journal
    gate: Gate
    desk: ApprovalDesk
    redactor: Redactor
    clock: Clock
    ids: Ids
    model: Model | None
    limits: Limits
    spending: Spending


class FleetExecutor:
    """Performs the attempts of one run.

    Args:
        crew: what all runs share.
        run_id: the run.
        facts: what the policy may trust in this run.
        settings: what happens to an attempt that was cut off.
        past: what an earlier life of the run had asked.
    """

    def __init__(
        self, crew: Crew, run_id: RunId, facts: Facts, settings: RunSettings, past: Recall | None = None
    ) -> None:
        self._crew = crew
        self._run_id = run_id
        self._facts = facts
        self._past = past or Recall()
        self._settings = settings
        self._doubts = Doubts(crew.desk, settings.in_doubt)
        self._carrier = Carrier(crew.fleet, crew.clock, self._doubts, settings.device_lost_s)
        self._delegation = Delegation(crew.fleet, crew.gate, crew.journal, crew.redactor, self._doubts, facts)

    async def execute(self, attempt: Attempt) -> Outcome:
        """Perform the attempt; a failed one is a value, cancellation stops the device first."""
        return await self._perform(attempt, sent=False)

    async def reattach(self, attempt: Attempt) -> Outcome:
        """Go on with an attempt that an earlier life of the hub had started; it is asked about, not run again.

        One that was held by an open approval was never sent. An agent goes on at the step where it was cut off.
        """
        outcome = await self._take_up(attempt)
        await self._crew.desk.withdraw(self._run_id, attempt.task_id)
        return outcome

    async def _take_up(self, attempt: Attempt) -> Outcome:
        if attempt.task_data.get("tool") is not None:
            return await self._perform(attempt, sent=not self._past.waits_for_approval(attempt.task_id))
        record = goal_record(await self._crew.journal.read(self._run_id), attempt)
        past = record.past(self._crew.clock.now())
        if past is None and record.has_begun:
            what = "An older Starloom was stopped while its agent worked on this goal; it did not write down enough."
            return await self._doubts.settle(attempt, what, repeatable=False)
        return await self._perform(attempt, sent=past is not None, past=past)

    def let_go(self) -> None:
        """The hub stops: tool calls that are cancelled from now on go on, on their devices."""
        self._carrier.let_go()

    async def _perform(self, attempt: Attempt, *, sent: bool, past: AgentPast | None = None) -> Outcome:
        tool = attempt.task_data.get("tool")
        try:
            record = await self._carrier.there(attempt, repeatable=False, sent=sent)
            if not isinstance(record, DeviceRecord):
                return record
            if tool is None and record.outpost:
                return await self._delegation.perform(attempt)
            if tool is None:
                return await self._pursue_goal(attempt, record, past)
            return await self._call_tool(attempt, record, str(tool), sent=sent)
        except StoreError:
            raise  # what was done is not on record: the run stands still
        except StarloomError as error:
            return Failed(self._crew.redactor.text(error.message))

    async def _call_tool(self, attempt: Attempt, record: DeviceRecord, tool: str, *, sent: bool) -> Outcome:
        arguments: Mapping[str, Any] = attempt.task_data.get("arguments") or {}
        profile = tool_profile(record, tool)
        risk = profile.risk if profile else None
        action = propose(attempt.device_id, tool, dict(arguments), risk, profile.destinations if profile else ())
        verdict = await self._crew.gate.admit(action, self._facts, run_id=self._run_id, task_id=attempt.task_id)
        if verdict.decision is not Decision.ALLOW:
            await self._record(attempt, tool, arguments, verdict.decision, "skipped", verdict.reason)
            return Failed(f"Not allowed: {verdict.reason}")
        command = Command(
            tool_name=tool, tool_type="action", parameters=dict(arguments), call_id=str(attempt.attempt_id)
        )
        answer = await self._carrier.carry(attempt, command, repeatable=risk in _REPEATABLE, sent=sent)
        outcome = self._outcome(answer) if isinstance(answer, Result) else answer
        error = outcome.error if isinstance(outcome, Failed) else None
        await self._record(attempt, tool, arguments, verdict.decision, "failure" if error else "success", error)
        return outcome

    def _outcome(self, result: Result) -> Outcome:
        if result.status is ResultStatus.SUCCESS:
            return Completed(self._crew.redactor.known(result.result))
        return Failed(self._crew.redactor.text(result.error or f"The tool ended with status {result.status.value}."))

    async def _pursue_goal(self, attempt: Attempt, record: DeviceRecord, past: AgentPast | None) -> Outcome:
        crew = self._crew
        if crew.model is None:
            raise ModelError(
                f"Task {attempt.task_id!r} is a goal in words, and no model is set to pursue it. "
                "Set STARLOOM_MODEL (see `starloom doctor`), or give the task a tool."
            )
        hands = FleetDispatcher(self._carrier, attempt, has_acted=past is not None, losses=self._settings.device_losses)
        outcome = await run_goal(
            attempt.description,
            device=profile_of(record, has_agent=True),
            dispatcher=hands,
            model=BudgetedModel(crew.model, crew.spending.of_task(self._run_id, attempt.task_id)),
            gate=crew.gate,
            facts=self._facts,
            run_id=self._run_id,
            task_id=attempt.task_id,
            tips=attempt.tips,
            inputs={**{str(task): value for task, value in attempt.inputs.items()}, **await self._earlier(attempt)},
            fence=Fence.drawn().wrap,
            recorder=_Recorder(crew, self._run_id, attempt),
            clock=crew.clock,
            ids=crew.ids,
            interactor=_DeskInteractor(crew.desk, self._run_id, attempt.task_id),
            detect=suspicions_in,
            limits=crew.limits,
            agent_limits=_AGENT_LIMITS,
            past=past,
        )
        if hands.ended is not None:
            return hands.ended
        if outcome.completed:
            return Completed(crew.redactor.known(outcome.result))
        return Failed(crew.redactor.text(outcome.error or f"The agent stopped: {outcome.stop_reason.value}."))

    async def _earlier(self, attempt: Attempt) -> dict[str, Any]:
        """Return what earlier attempts of this goal did, as an input of its own: a new agent must know what is done."""
        if attempt.number == 1:
            return {}
        steps = goal_record(await self._crew.journal.read(self._run_id), attempt).earlier_steps()
        return {_EARLIER: steps} if steps else {}

    async def _record(
        self,
        attempt: Attempt,
        tool: str,
        arguments: Mapping[str, Any],
        decision: Decision,
        status: str,
        error: str | None,
    ) -> None:
        event = AgentAction(
            agent="task",
            tool=tool,
            arguments={name: self._shown(value) for name, value in arguments.items()},
            decision=decision.value,
            status=status,
            task_id=attempt.task_id,
            device_id=attempt.device_id,
            error=error,
        )
        key = f"action:{attempt.attempt_id}"  # once, also when the hub is stopped before the task's end is written
        await self._crew.journal.append(self._run_id, [event], keys=[key])

    def _shown(self, value: object) -> object:
        size = len(json.dumps(value, ensure_ascii=False))
        return self._crew.redactor.value(value) if size <= _SHOWN_BYTES else {"omitted_bytes": size}


class _Recorder:
    """Journals what the attempt's agent reports: secrets hidden, results as the agent is shown them."""

    def __init__(self, crew: Crew, run_id: RunId, attempt: Attempt) -> None:
        self._crew = crew
        self._run_id = run_id
        self._attempt = attempt

    async def __call__(self, event: AgentEvent) -> None:
        crew, attempt = self._crew, self._attempt
        if isinstance(event, Asked | Answered):
            return  # the desk journals what it asks
        journalled = to_journal(self._redacted(event), task_id=attempt.task_id, device_id=attempt.device_id)
        await crew.journal.append(self._run_id, [journalled])
        if isinstance(event, Responded):  # what was asked for an earlier step counts no more
            await crew.desk.withdraw(self._run_id, attempt.task_id)

    def _redacted(self, event: AgentEvent) -> AgentEvent:
        redactor = self._crew.redactor
        match event:
            case Responded(response=response):
                hidden = redactor.mapping(response)
                return replace(event, response=hidden, withheld=hidden.get("action") != response.get("action"))
            case Acted(arguments=arguments, error=error, result=result):
                bound = _AGENT_LIMITS.result_tokens  # secrets first: a cut could leave a part of one
                shown = None if result is None else clip(as_text(redactor.value(result)), bound)
                error = None if error is None else clip(redactor.text(error), bound)
                return replace(event, arguments=redactor.mapping(arguments), error=error, result=shown)
            case _:
                return event


class _DeskInteractor:
    """Asks a person at the desk what an agent wants to know."""

    def __init__(self, desk: ApprovalDesk, run_id: RunId, task_id: str) -> None:
        self._desk = desk
        self._run_id = run_id
        self._task_id = task_id

    async def ask(self, question: str) -> str | None:
        return await self._desk.question(self._run_id, question, self._task_id) or None
