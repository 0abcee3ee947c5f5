"""GUARD: every action of a reply is judged before the first of them is carried out.

No status word, list order or model text passes around it: ACTION_EXECUTION runs only what this phase admitted. The
riskiest action is judged first, so that one refusal spares the person the other questions. After a restart only what
was not carried out yet is judged again; a person's earlier yes to exactly that action is the gate's to remember.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from starloom.agents.assignment import Assignment
from starloom.agents.plans import ToolProfile
from starloom.agents.ports import ActionGate
from starloom.agents.replies import ActionCommandInfo, DeviceAgentResponse
from starloom.agents.resumption import AgentPast
from starloom.agents.status import AgentStatus
from starloom.agents.untrusted import UntrustedText
from starloom.processing.processing_context import ProcessingContext
from starloom.processing.strategy_dependency import StrategyDependency, depends_on, provides
from starloom.safety.policy import Decision, ProposedAction, Risk, Verdict
from starloom.safety.rules import propose

ASKED_BY_MODEL = "the_model_asks_for_a_confirmation"
"""The suspicion under which the gate is asked when the model itself wants a person's yes."""

REFUSED = "refused"
"""The rule of a verdict that a person's no has made. Source: safety.gate."""

_RISKS = list(Risk)


class Ruling(StrEnum):
    """What becomes of a reply's actions, all together."""

    NOTHING = "nothing"  # there is none, or its status says not to act
    ADMITTED = "admitted"
    HELD = "held"  # the model asks for a confirmation first
    DENIED = "denied"
    REFUSED = "refused"
    REPEATED = "repeated"  # the same again, with the same to be expected


@dataclass(frozen=True, slots=True)
class Guarded:
    """The ruling, the reply's actions in its own order, and the verdict that decided, if one did."""

    ruling: Ruling
    actions: tuple[ActionCommandInfo, ...] = ()
    verdict: Verdict | None = None
    decisive: ActionCommandInfo | None = None


_INACTIVE = (AgentStatus.PENDING, AgentStatus.FAIL)


@depends_on(
    StrategyDependency("repeated", required=False, expected_type=bool, default_value=False),
    agent=str,
    assignment=Assignment,
    reply=DeviceAgentResponse,
    step=int,
    tools=tuple,
)
@provides(guarded=Guarded)
class GuardActions:
    """Judges the reply's actions.

    Args:
        confirming: the person is to be asked now about actions that were held: the gate is told so.
    """

    name = "GuardActions"
    fail_fast = True

    def __init__(
        self, gate: ActionGate, untrusted: UntrustedText, past: AgentPast | None = None, *, confirming: bool = False
    ) -> None:
        self._gate = gate
        self._untrusted = untrusted
        self._past = past or AgentPast()
        self._confirming = confirming

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """Return the ruling over all actions."""
        reply = context.require("reply", DeviceAgentResponse)
        if not reply.actions or reply.status in _INACTIVE:
            return {"guarded": Guarded(Ruling.NOTHING)}
        if context.get_local("repeated"):
            return {"guarded": Guarded(Ruling.REPEATED, reply.actions)}
        if reply.status == AgentStatus.CONFIRM and not self._confirming:
            return {"guarded": Guarded(Ruling.HELD, reply.actions)}
        assignment = context.require("assignment", Assignment)
        past = self._past.step(context.require("agent", str), context.require("step", int))
        open_actions = reply.actions
        if past is not None:
            if not past.is_last and not past.was_admitted:
                return {"guarded": Guarded(Ruling.DENIED, reply.actions)}
            if past.was_admitted:
                open_actions = tuple(reply.actions[index] for index in past.missing(len(reply.actions)))
        guarded = await self._judge(open_actions, assignment, context.require("tools", tuple))
        return {"guarded": replace(guarded, actions=reply.actions)}

    async def _judge(
        self, actions: tuple[ActionCommandInfo, ...], assignment: Assignment, tools: Sequence[ToolProfile]
    ) -> Guarded:
        profiles = {tool.name: tool for tool in tools}
        suspicions = self._untrusted.suspicions + ((ASKED_BY_MODEL,) if self._confirming else ())
        facts = replace(assignment.facts, suspicions=(*assignment.facts.suspicions, *suspicions))
        for action in sorted(actions, key=lambda item: -_rank(profiles.get(item.tool))):
            verdict = await self._gate.admit(
                proposed(action, profiles.get(action.tool), assignment),
                facts,
                run_id=assignment.run_id,
                task_id=assignment.task_id,
            )
            if verdict.decision is not Decision.ALLOW:
                ruling = Ruling.REFUSED if verdict.rule == REFUSED else Ruling.DENIED
                return Guarded(ruling, actions, verdict, action)
        return Guarded(Ruling.ADMITTED, actions)


def proposed(action: ActionCommandInfo, profile: ToolProfile | None, assignment: Assignment) -> ProposedAction:
    """Return the action as the policy sees it; a tool that the device does not list has no known risk."""
    risk, destinations = (None, ()) if profile is None else (profile.risk, profile.destinations)
    return propose(assignment.device.device_id, action.tool, action.arguments, risk, destinations)


def _rank(profile: ToolProfile | None) -> int:
    """Return how risky a tool is; an unknown one is the riskiest."""
    if profile is None or profile.risk is None:
        return len(_RISKS)
    return _RISKS.index(profile.risk)
