"""ACTION_EXECUTION: carry out what GUARD admitted, in order; the first failure drops the rest.

A list is a guess that every action finds the world as the model expects. When one does not end well the guess was
wrong, so the rest is skipped and the agent looks again. Every action is recorded, the skipped ones too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starloom.agents.assignment import AgentLimits
from starloom.agents.ports import Recorder
from starloom.agents.record import Acted
from starloom.agents.replies import ActionCommandInfo
from starloom.agents.strategies.guard import Guarded, Ruling
from starloom.ids import Ids
from starloom.processing.dispatch import Command, CommandDispatcher, CommandResult, CommandStatus
from starloom.processing.processing_context import ProcessingContext
from starloom.processing.strategy_dependency import depends_on, provides
from starloom.safety.policy import Decision


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """An action and how it ended."""

    action: ActionCommandInfo
    result: CommandResult

    @property
    def succeeded(self) -> bool:
        """Whether the tool said so."""
        return self.result.status is CommandStatus.SUCCESS


@depends_on(guarded=Guarded)
@provides(outcomes=tuple)
class ActThroughDispatcher:
    """Gives `outcomes`: one for every action of the reply, those that were not carried out as skipped."""

    name = "ActThroughDispatcher"
    fail_fast = True

    def __init__(
        self, dispatcher: CommandDispatcher, recorder: Recorder, ids: Ids, *, agent: str, limits: AgentLimits
    ) -> None:
        self._dispatcher = dispatcher
        self._record = recorder
        self._ids = ids
        self._agent = agent
        self._timeout_s = limits.action_timeout_s

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """Carry out the admitted actions one by one."""
        guarded = context.require("guarded", Guarded)
        if guarded.ruling is not Ruling.ADMITTED:
            return {"outcomes": await self._skip_all(guarded)}
        outcomes: list[ActionOutcome] = []
        failed = ""
        for action in guarded.actions:
            if failed:
                result = _skipped(f"not tried: {failed}")
            else:
                command = Command(action.tool, dict(action.arguments), call_id=self._ids.new("call"))
                [result] = await self._dispatcher.execute_commands([command], timeout_s=self._timeout_s)
                failed = "" if result.status is CommandStatus.SUCCESS else f"{action.tool} before it failed"
            await self._note(action, Decision.ALLOW, result)
            outcomes.append(ActionOutcome(action, result))
        return {"outcomes": tuple(outcomes)}

    async def _skip_all(self, guarded: Guarded) -> Sequence[ActionOutcome]:
        decision = Decision.ASK if guarded.ruling is Ruling.HELD else Decision.DENY
        outcomes = []
        for action in guarded.actions:
            result = _skipped(_why(guarded, action))
            await self._note(action, decision, result)
            outcomes.append(ActionOutcome(action, result))
        return tuple(outcomes)

    async def _note(self, action: ActionCommandInfo, decision: Decision, result: CommandResult) -> None:
        await self._record(
            Acted(self._agent, action.tool, dict(action.arguments), decision, result.status, error=result.error)
        )


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
