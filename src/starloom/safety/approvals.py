"""Approvals: a person's yes or no to exactly one action.

Called by the gate. The answer is bound to the hash of device, tool and arguments, so a yes can never be spent on
another action. Adapters of `Approver`: the terminal (`cli`), the page (`hub`), a fixed answer (tests, `--yes`).
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Protocol

from starloom.ids import ApprovalId, RunId
from starloom.safety.policy import ProposedAction


def action_hash(action: ProposedAction) -> str:
    """Return the SHA-256 of the action's device, tool and arguments in canonical JSON."""
    canonical = json.dumps(
        [action.device_id, action.tool, action.arguments], sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Approval:
    """An open question to a person; `reason` says which rule asks and why."""

    approval_id: ApprovalId
    run_id: RunId
    action: ProposedAction
    action_hash: str
    reason: str
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The person's answer; `by` names who gave it."""

    approved: bool
    by: str
    comment: str = ""


class Approver(Protocol):
    """Someone who can be asked."""

    async def ask(self, approval: Approval) -> ApprovalAnswer:
        """Return the answer; wait as long as the person takes."""
        ...
