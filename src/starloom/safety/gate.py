"""The gate: every action passes here between a model's reply, or a plan's task, and the device.

Called by the session and the agents. It judges with the pure rules and, when they say ask, puts the question to a
person; only ALLOW or DENY comes out. Who journals is told through `record`, before the question and after the answer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from starloom.ids import ApprovalId, Ids, RunId
from starloom.safety.approvals import Approval, ApprovalAnswer, Approver, action_hash
from starloom.safety.policy import Decision, Facts, ProposedAction, Verdict
from starloom.safety.redaction import Redactor
from starloom.safety.rules import judge


@dataclass(frozen=True, slots=True)
class Asked:
    """A question is about to be put to a person; its arguments are redacted, its hash is the real action's."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class Answered:
    """The person has answered."""

    approval: Approval
    answer: ApprovalAnswer


GateRecord: TypeAlias = Asked | Answered


class Gate:
    """Admits actions or refuses them.

    Args:
        approver: who is asked.
        record: told of each question before it is asked and of each answer before it counts.
        ids: where approvals get their ids.
        redactor: hides secrets in what is recorded; the approver sees the action as it is.
    """

    def __init__(
        self,
        approver: Approver,
        record: Callable[[GateRecord], Awaitable[None]],
        ids: Ids,
        redactor: Redactor | None = None,
    ) -> None:
        self._approver = approver
        self._record = record
        self._ids = ids
        self._redactor = redactor or Redactor()

    async def admit(self, action: ProposedAction, facts: Facts, *, run_id: RunId, task_id: str = "") -> Verdict:
        """Return ALLOW or DENY; a person is asked when the rules say so, and waited for."""
        verdict = judge(action, facts)
        if verdict.decision is not Decision.ASK:
            return verdict
        return await self._ask(action, verdict, run_id, task_id)

    async def _ask(self, action: ProposedAction, verdict: Verdict, run_id: RunId, task_id: str) -> Verdict:
        approval_id = ApprovalId(self._ids.new("approval"))
        approval = Approval(approval_id, run_id, action, action_hash(action), verdict.reason, task_id)
        recorded = self._redacted(approval)
        await self._record(Asked(recorded))
        answer = await self._approver.ask(approval)
        comment = self._redactor.text(answer.comment)
        await self._record(Answered(recorded, replace(answer, comment=comment)))
        if action_hash(action) != approval.action_hash:
            return Verdict(Decision.DENY, "changed", "The action changed while the question was open; ask again.")
        if answer.approved:
            return Verdict(Decision.ALLOW, "approved", f"{answer.by} approved it.")
        said = f": {answer.comment}" if answer.comment else "."
        return Verdict(Decision.DENY, "refused", f"{answer.by} refused it{said}")

    def _redacted(self, approval: Approval) -> Approval:
        action = approval.action
        hidden = replace(
            action,
            arguments=self._redactor.mapping(action.arguments),
            destinations=tuple(self._redactor.text(place) for place in action.destinations),
        )
        return replace(approval, action=hidden, reason=self._redactor.text(approval.reason))
