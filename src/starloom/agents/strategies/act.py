"""ACTION_EXECUTION: carry out what GUARD admitted, in order; the first failure drops the rest.

A list is a guess that every action finds the world as the model expects. When one does not end well the guess was
wrong, so the rest is skipped and the agent looks again. Every action is recorded once, the skipped ones too.

Each call has a name that is the same after a restart. What is on record is not done again; the first action of a reply
that is not may have been sent, so the device is asked about it by that name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starloom.agents.assignment import AgentLimits
from starloom.agents.memory import clip
from starloom.agents.ports import Recorder
from starloom.agents.prompts import as_text
from starloom.agents.record import Acted
from starloom.agents.replies import ActionCommandInfo
from starloom.agents.resumption import AgentPast, PastStep
from starloom.agents.strategies.guard import Guarded, Ruling
from starloom.processing.dispatch import Command, CommandDispatcher, CommandResult, CommandStatus
from starloom.processing.processing_context import ProcessingContext
from starloom.processing.strategy_dependency import depends_on, provides
from starloom.safety.policy import Decision


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """An action and how it ended; `shown` is what the agent reads of its result or its error, within its bound."""

    action: ActionCommandInfo
    result: CommandResult
    shown: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the tool said so."""
        return self.result.status is CommandStatus.SUCCESS


@depends_on(guarded=Guarded, step=int)
@provides(outcomes=tuple)
class ActThroughDispatcher:
    """Gives `outcomes`: one for every action of the reply, those that were not carried out as skipped."""

    name = "ActThroughDispatcher"
    fail_fast = True

    def __init__(
        self,
        dispatcher: CommandDispatcher,
        recorder: Recorder,
        past: AgentPast | None = None,
        *,
        agent: str,
        limits: AgentLimits,
    ) -> None:
        self._dispatcher = dispatcher
        self._record = recorder
        self._past = past or AgentPast()
        self._agent = agent
        self._timeout_s = limits.action_timeout_s
        self._shown_tokens = limits.result_tokens

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """Carry out the admitted actions one by one."""
        guarded, step = context.require("guarded", Guarded), context.require("step", int)
        past = self._past.step(self._agent, step)
        held = guarded.ruling is Ruling.HELD
        outcomes: list[ActionOutcome] = []
        failed = ""
        for index, action in enumerate(guarded.actions):
            acted = past.outcome(index, held=held) if past is not None else None
            outcome = None if acted is None else _recalled(action, acted)
            if outcome is None:
                decision, result = await self._carry_out(guarded, index, step, failed, past)
                outcome = ActionOutcome(action, result, self._shown(result))
                await self._note(outcome, decision, step, index)
            outcomes.append(outcome)
            failed = failed or ("" if outcome.succeeded else f"{action.tool} before it failed")
        return {"outcomes": tuple(outcomes)}

    async def _carry_out(
        self, guarded: Guarded, index: int, step: int, failed: str, past: PastStep | None
    ) -> tuple[Decision, CommandResult]:
        """Return what was decided about an action, and how it ended."""
        action = guarded.actions[index]
        if guarded.ruling is not Ruling.ADMITTED:
            decision = Decision.ASK if guarded.ruling is Ruling.HELD else Decision.DENY
            return decision, _skipped(_why(guarded, action))
        if failed:
            return Decision.ALLOW, _skipped(f"not tried: {failed}")
        command = Command(
            action.tool,
            dict(action.arguments),
            call_id=f"{self._agent}.{step}.{index}",
            once=True,
            sent=past is not None and past.missing(len(guarded.actions))[0] == index,
            withheld=past is not None and past.withheld,
        )
        [result] = await self._dispatcher.execute_commands([command], timeout_s=self._timeout_s)
        return Decision.ALLOW, result

    def _shown(self, result: CommandResult) -> str:
        match result.status:
            case CommandStatus.SUCCESS:
                return clip(as_text(result.result), self._shown_tokens)
            case CommandStatus.FAILURE:
                return clip(result.error or "no reason given", self._shown_tokens)
            case CommandStatus.SKIPPED:
                return result.error or ""

    async def _note(self, outcome: ActionOutcome, decision: Decision, step: int, index: int) -> None:
        action, result = outcome.action, outcome.result
        await self._record(
            Acted(
                self._agent,
                action.tool,
                dict(action.arguments),
                decision,
                result.status,
                error=result.error,
                step=step,
                index=index,
                result=result.result,
            )
        )


def _recalled(action: ActionCommandInfo, acted: Acted) -> ActionOutcome:
    """Return an outcome that is on record; what was shown of it is the record's text as it stands."""
    result = CommandResult("", acted.status, acted.result, acted.error)
    succeeded = acted.status is CommandStatus.SUCCESS
    return ActionOutcome(action, result, as_text(acted.result) if succeeded else acted.error or "no reason given")


def _skipped(why: str) -> CommandResult:
    return CommandResult("", CommandStatus.SKIPPED, error=why)


def _why(guarded: Guarded, action: ActionCommandInfo) -> str:
    if guarded.ruling is Ruling.HELD:
        return "not carried out yet: it waits for a confirmation"
    if guarded.ruling is Ruling.REPEATED:
        return "not carried out: the same was tried before on the same folder, with the same result to be expected"
    reason = guarded.verdict.reason if guarded.verdict is not None else ""
    if action is guarded.decisive:
        return f"not allowed: {reason}"
    return "not carried out: another action of the same reply was not allowed"
