"""Performs attempts: a tool call over the fleet, or a goal pursued by the device's agent; the gate before either.

Fits the orchestrator's `TaskExecutor` port. The attempt's id travels as the command's call id, so that a restarted hub
asks the device about the same attempt. What the journal is told is redacted here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starloom.agents.record import AgentEvent
from starloom.aip.messages import Command, Result, ResultStatus
from starloom.clock import Clock
from starloom.errors import ModelError, StarloomError
from starloom.fleet.errors import CallTimedOut, DeviceLost, DeviceOffline
from starloom.fleet.fleet import Fleet
from starloom.ids import Ids, RunId
from starloom.journal.events import AgentAction, AgentResponse
from starloom.journal.store import Journal
from starloom.llm.port import Model
from starloom.orchestrator.ports import Attempt, Completed, Failed, Outcome
from starloom.safety.gate import Gate
from starloom.safety.policy import Decision, Facts, Risk
from starloom.safety.provenance import Fence
from starloom.safety.redaction import Redactor
from starloom.safety.rules import propose
from starloom.session.desk import ApprovalDesk
from starloom.session.dispatch import FleetDispatcher
from starloom.session.profiles import device_there, profile_of, tool_profile
from starloom.session.round import Limits, run_goal
from starloom.session.step import to_journal
from starloom.session.trust import suspicions_in

_SHOWN_BYTES = 2_000  # of an argument in the journal's record of an action; the edit holds the whole

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


class FleetExecutor:
    """Performs the attempts of one run. `facts`: what the policy may trust in this run."""

    def __init__(self, crew: Crew, run_id: RunId, facts: Facts) -> None:
        self._crew = crew
        self._run_id = run_id
        self._facts = facts

    async def execute(self, attempt: Attempt) -> Outcome:
        """Perform the attempt; a failed one is a value, cancellation stops the device first."""
        try:
            tool = attempt.task_data.get("tool")
            if tool is not None:
                return await self._call_tool(attempt, str(tool), attempt.task_data.get("arguments") or {})
            return await self._pursue_goal(attempt)
        except StarloomError as error:
            return Failed(self._crew.redactor.text(error.message))

    async def _call_tool(self, attempt: Attempt, tool: str, arguments: Mapping[str, Any]) -> Outcome:
        profile = tool_profile(await device_there(self._crew.fleet, attempt.device_id), tool)
        risk = profile.risk if profile else None
        action = propose(attempt.device_id, tool, dict(arguments), risk, profile.destinations if profile else ())
        verdict = await self._crew.gate.admit(action, self._facts, run_id=self._run_id, task_id=attempt.task_id)
        if verdict.decision is not Decision.ALLOW:
            await self._record(attempt, tool, arguments, verdict.decision, "skipped", verdict.reason)
            return Failed(f"Not allowed: {verdict.reason}")
        command = Command(
            tool_name=tool, tool_type="action", parameters=dict(arguments), call_id=str(attempt.attempt_id)
        )
        outcome = await self._send(attempt, command, repeatable=risk in _REPEATABLE)
        error = outcome.error if isinstance(outcome, Failed) else None
        await self._record(attempt, tool, arguments, verdict.decision, "failure" if error else "success", error)
        return outcome

    async def _send(self, attempt: Attempt, command: Command, *, repeatable: bool) -> Outcome:
        """Send the command until it is answered; a device that is away is waited for, as long as the runner lets us."""
        while True:
            await device_there(self._crew.fleet, attempt.device_id)
            try:
                [result] = await self._crew.fleet.call(
                    attempt.device_id,
                    [command],
                    session_id=str(attempt.attempt_id),
                    task_name=attempt.task_id,
                    timeout_s=attempt.timeout_s,
                )
                return self._outcome(result)
            except DeviceOffline:
                continue  # nothing was sent
            except DeviceLost as error:
                if error.in_doubt and not repeatable:
                    return Failed(error.message, in_doubt=True)
            except CallTimedOut as error:
                return Failed(error.message, transient=repeatable, in_doubt=not repeatable)

    def _outcome(self, result: Result) -> Outcome:
        if result.status is ResultStatus.SUCCESS:
            return Completed(self._crew.redactor.known(result.result))
        return Failed(self._crew.redactor.text(result.error or f"The tool ended with status {result.status.value}."))

    async def _pursue_goal(self, attempt: Attempt) -> Outcome:
        crew = self._crew
        if crew.model is None:
            raise ModelError(
                f"Task {attempt.task_id!r} is a goal in words, and no model is set to pursue it. "
                "Set STARLOOM_MODEL (see `starloom doctor`), or give the task a tool."
            )
        outcome = await run_goal(
            attempt.description,
            device=profile_of(await device_there(crew.fleet, attempt.device_id), has_agent=True),
            dispatcher=FleetDispatcher(crew.fleet, attempt),
            model=crew.model,
            gate=crew.gate,
            facts=self._facts,
            run_id=self._run_id,
            task_id=attempt.task_id,
            tips=attempt.tips,
            inputs={str(task): value for task, value in attempt.inputs.items()},
            fence=Fence.drawn().wrap,
            recorder=self._recorder(attempt),
            clock=crew.clock,
            ids=crew.ids,
            interactor=_DeskInteractor(crew.desk, self._run_id, attempt.task_id),
            detect=suspicions_in,
            limits=crew.limits,
        )
        if outcome.completed:
            return Completed(crew.redactor.known(outcome.result))
        return Failed(crew.redactor.text(outcome.error or f"The agent stopped: {outcome.stop_reason.value}."))

    def _recorder(self, attempt: Attempt) -> "_Recorder":
        return _Recorder(self._crew, self._run_id, attempt)

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
        await self._crew.journal.append(self._run_id, [event])

    def _shown(self, value: object) -> object:
        size = len(json.dumps(value, ensure_ascii=False))
        return self._crew.redactor.value(value) if size <= _SHOWN_BYTES else {"omitted_bytes": size}


class _Recorder:
    """Journals what the attempt's agent reports."""

    def __init__(self, crew: Crew, run_id: RunId, attempt: Attempt) -> None:
        self._crew = crew
        self._run_id = run_id
        self._attempt = attempt

    async def __call__(self, event: AgentEvent) -> None:
        journalled = to_journal(event, task_id=self._attempt.task_id, device_id=self._attempt.device_id)
        redactor = self._crew.redactor
        match journalled:
            case AgentResponse(response=response):
                journalled = replace(journalled, response=redactor.value(response))
            case AgentAction(arguments=arguments, error=error):
                hidden = redactor.mapping(arguments)
                journalled = replace(journalled, arguments=hidden, error=redactor.text(error) if error else None)
            case _:
                pass
        await self._crew.journal.append(self._run_id, [journalled])


class _DeskInteractor:
    """Asks a person at the desk what an agent wants to know."""

    def __init__(self, desk: ApprovalDesk, run_id: RunId, task_id: str) -> None:
        self._desk = desk
        self._run_id = run_id
        self._task_id = task_id

    async def ask(self, question: str) -> str | None:
        return await self._desk.question(self._run_id, question, self._task_id) or None
