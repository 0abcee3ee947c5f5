"""What device agents need from the rest of the house, as small ports; the composition root fits the real ones.

`ActionGate` is `safety.gate.Gate`, `Fence` is `safety.provenance.Fence.wrap`, `Interactor` a terminal, a
page or nobody.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from starloom.agents.record import AgentEvent
from starloom.ids import RunId
from starloom.safety.policy import Facts, ProposedAction, Verdict
from starloom.safety.provenance import Provenance

Recorder: TypeAlias = Callable[[AgentEvent], Awaitable[None]]
"""Takes what an agent did, before it goes on; the session writes it to the journal."""

Fence: TypeAlias = Callable[[str, Provenance], str]
"""(text, where it comes from) → the text marked as data for a prompt, its closing mark impossible to write."""


class ActionGate(Protocol):
    """Judges an action before it happens."""

    async def admit(self, action: ProposedAction, facts: Facts, *, run_id: RunId, task_id: str = "") -> Verdict:
        """Return ALLOW or DENY, after asking a person when the policy says so; never raise for a denied action."""
        ...


class Interactor(Protocol):
    """Someone who can be asked a question in words."""

    async def ask(self, question: str) -> str | None:
        """Return the answer; None when nobody can or will answer."""
        ...
