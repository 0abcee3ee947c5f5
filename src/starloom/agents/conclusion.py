"""What follows from a step: the next status, and the end of the work if this was it. Pure: a table over rulings.

ruling     status written    becomes
refused    any               FINISH, stop user_refused
denied     any               CONTINUE with the reason; FAIL, stop policy_denied, at the limit of denials
repeated   any               PENDING once, when someone can be asked; then FAIL, stop no_progress
held       CONFIRM           CONFIRM
admitted   CONFIRM           CONTINUE (it was confirmed just now)
any        FINISH            FINISH, stop finished; CONTINUE when one of its actions did not succeed
any        FAIL              FAIL, stop failed
any        other             as written
"""

from collections.abc import Sequence
from dataclasses import dataclass

from starloom.agents.replies import DeviceAgentResponse
from starloom.agents.status import AgentStatus, StopReason
from starloom.agents.strategies.act import ActionOutcome
from starloom.agents.strategies.guard import Guarded, Ruling
from starloom.processing.dispatch import Json


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The next status; `stop_reason` is set when the work ends with it."""

    status: str
    stop_reason: StopReason | None = None
    result: Json = None
    error: str | None = None


def conclude(
    reply: DeviceAgentResponse,
    guarded: Guarded,
    outcomes: Sequence[ActionOutcome],
    *,
    denials: int,
    most_denials: int,
    can_ask: bool = False,
) -> Conclusion:
    """Return what follows.

    Args:
        reply: what the model wrote.
        guarded: the ruling over its actions.
        outcomes: how they ended.
        denials: how often the policy has refused so far, this step included.
        most_denials: the last of so many ends the work.
        can_ask: whether a person can still be asked what to do about an agent that goes in circles.
    """
    reason = guarded.verdict.reason if guarded.verdict is not None else ""
    match guarded.ruling:
        case Ruling.REFUSED:
            return Conclusion(AgentStatus.FINISH, StopReason.USER_REFUSED, error=reason or "The user refused.")
        case Ruling.DENIED if denials >= most_denials:
            return Conclusion(AgentStatus.FAIL, StopReason.POLICY_DENIED, error=reason)
        case Ruling.DENIED:
            return Conclusion(AgentStatus.CONTINUE)
        case Ruling.REPEATED if can_ask:
            return Conclusion(AgentStatus.PENDING)
        case Ruling.REPEATED:
            tool = guarded.actions[0].tool
            error = f"No progress: {tool} was proposed again and again with the same arguments on the same folder."
            return Conclusion(AgentStatus.FAIL, StopReason.NO_PROGRESS, error=error)
        case Ruling.HELD:
            return Conclusion(AgentStatus.CONFIRM)
        case Ruling.ADMITTED | Ruling.NOTHING:
            return _by_status(reply, outcomes)


def _by_status(reply: DeviceAgentResponse, outcomes: Sequence[ActionOutcome]) -> Conclusion:
    if reply.status == AgentStatus.CONFIRM:
        return Conclusion(AgentStatus.CONTINUE)
    if reply.status == AgentStatus.FAIL:
        return Conclusion(AgentStatus.FAIL, StopReason.FAILED, error=reply.comment or reply.thought)
    if reply.status == AgentStatus.FINISH:
        if not all(outcome.succeeded for outcome in outcomes):
            return Conclusion(AgentStatus.CONTINUE)
        result = reply.result if reply.result is not None else reply.comment or None
        return Conclusion(AgentStatus.FINISH, StopReason.FINISHED, result=result)
    return Conclusion(reply.status)
