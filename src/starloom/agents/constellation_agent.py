"""`ConstellationAgent`: turns a request into a checked plan, and a surprise into a checked edit.

The planner drafts and re-asks; this agent trusts no draft: what has a problem never becomes a graph.

    START ──▶ CONTINUE (a plan stands) ──▶ FINISH        START ──▶ FINISH (nothing to do: refused)
      └─────▶ FAIL (no usable plan)      └──▶ FAIL

Its states are driven by the run it belongs to (`plan_stands`, `run_ended`), not by a model's status word. Called by
`session`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starloom.agents.drafts import draft_document, draft_problems, draft_summary
from starloom.agents.edits import EditDraft, Surprise, edit_problems
from starloom.agents.plans import DeviceProfile, PlanDraft, Planner
from starloom.agents.states import AgentState, AgentStateManager, BasicAgent
from starloom.agents.status import AgentStatus, StopReason
from starloom.errors import ModelError, UsageError
from starloom.processing.dispatch import Json

CONSTELLATION_STATES = AgentStateManager("ConstellationAgent")

_NAME_LENGTH = 60


class Replanner(Protocol):
    """Drafts an edit of a graph when something calls for judgement."""

    async def replan(
        self,
        request: str,
        surprises: Sequence[Surprise],
        document: Mapping[str, Json],
        devices: Sequence[DeviceProfile],
    ) -> EditDraft:
        """Return the edit; no commands mean: leave the graph as it is.

        Raises:
            ModelError: the model cannot be had or gave nothing usable.
        """
        ...


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan that can run: the draft, its document for the editor, one line a task for people.

    `refusal` is set, and the document has no tasks, when the planner says that it cannot be done.
    """

    draft: PlanDraft
    document: dict[str, Json]
    summary: list[str] = field(default_factory=list)

    @property
    def refusal(self) -> str | None:
        """Why there is no plan; None when there is one."""
        return self.draft.refusal


class ConstellationAgent(BasicAgent):
    """Plans one run. Uses no device itself."""

    def __init__(self, planner: Planner, *, replanner: Replanner | None = None) -> None:
        super().__init__("ConstellationAgent", CONSTELLATION_STATES.copy(), start=AgentStatus.START)
        self._planner = planner
        self._replanner = replanner

    async def create(self, request: str, devices: Sequence[DeviceProfile], name: str = "") -> CheckedPlan:
        """Return a plan that can run on these devices, or the planner's refusal.

        Raises:
            UsageError: no device is connected.
            ModelError: the planner cannot be had, or what it drafted still has problems (named in the message).
        """
        if not devices:
            self._fail("No device is connected.")
            raise UsageError("No device is connected. Start one with `starloom up` or `starloom join`.")
        try:
            draft = await self._planner.plan(request, devices)
            problems = draft_problems(draft, devices)
            if problems:
                raise ModelError(f"The plan of {draft.model!r} cannot run: {' '.join(problems)}")
        except ModelError as error:
            self._fail(error.message)
            raise
        title = name or " ".join(request.split())[:_NAME_LENGTH]
        if draft.refusal is not None:
            self.end(AgentStatus.FINISH, StopReason.FAILED, error=draft.refusal)
            self._enter()
            return CheckedPlan(draft, {"name": title, "tasks": {}, "dependencies": {}})
        self.status = AgentStatus.CONTINUE
        self._enter()
        return CheckedPlan(draft, draft_document(draft, name=title), draft_summary(draft))

    @property
    def can_replan(self) -> bool:
        """Whether its planner edits running graphs; small ones only draft new ones."""
        return self._replanner is not None

    async def replan(
        self,
        request: str,
        surprises: Sequence[Surprise],
        document: Mapping[str, Json],
        devices: Sequence[DeviceProfile],
    ) -> EditDraft:
        """Return an edit for what happened; without a replanner, one that changes nothing.

        Raises:
            ModelError: the model cannot be had, or its edit still has problems (named in the message).
        """
        if self._replanner is None:
            return EditDraft(why="This planner does not replan.")
        draft = await self._replanner.replan(request, surprises, document, devices)
        problems = edit_problems(draft, document, devices)
        if problems:
            raise ModelError(f"The edit that the planner proposes cannot be made: {' '.join(problems)}")
        return draft

    def run_ended(self, stop_reason: StopReason, error: str | None = None) -> None:
        """Stand at FINISH or FAIL as the run did."""
        finished = stop_reason is StopReason.FINISHED
        self.end(AgentStatus.FINISH if finished else AgentStatus.FAIL, stop_reason, error=error)
        self._enter()

    def _fail(self, error: str) -> None:
        self.end(AgentStatus.FAIL, StopReason.FAILED, error=error)
        self._enter()

    def _enter(self) -> None:
        self.set_state(self.states.get_state(self.status))


class _RunState(AgentState[ConstellationAgent]):
    """A state that the run leaves, not a model."""

    model_may_write = False


@CONSTELLATION_STATES.register
class StartState(_RunState):
    """There is a request and no graph."""

    @classmethod
    def name(cls) -> str:
        """Return START."""
        return AgentStatus.START


@CONSTELLATION_STATES.register
class ContinueState(_RunState):
    """The graph runs; the agent is asked again only on a surprise."""

    @classmethod
    def name(cls) -> str:
        """Return CONTINUE."""
        return AgentStatus.CONTINUE


@CONSTELLATION_STATES.register
class FinishState(_RunState):
    """Everything is done, or there is nothing to do."""

    @classmethod
    def name(cls) -> str:
        """Return FINISH."""
        return AgentStatus.FINISH

    def is_round_end(self) -> bool:
        """Answer yes."""
        return True


@CONSTELLATION_STATES.register
class FailState(_RunState):
    """It cannot be done."""

    @classmethod
    def name(cls) -> str:
        """Return FAIL."""
        return AgentStatus.FAIL

    def is_round_end(self) -> bool:
        """Answer yes."""
        return True
