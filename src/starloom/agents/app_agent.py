"""`AppAgent`: a device agent that works in one application for its host, one subtask at a time.

    CONTINUE, SCREENSHOT ──▶ status written     PENDING ──▶ CONTINUE with the answer
    CONFIRM ──▶ approved: the action, then CONTINUE · refused: FINISH (user_refused)
    FINISH ──▶ the host's CONTINUE, subtask archived
    FAIL, ERROR ──▶ the host's CONTINUE with the failure; the host's FAIL when its budget is spent

An application is a group of a device's tools (`files`, `sheets` …); the host reuses one agent for each. Made by
`host_agent.HostAgent`.
"""

from typing import Any, Protocol

from starloom.agents.assignment import Assignment
from starloom.agents.device_agent import AgentParts, DeviceAgent
from starloom.agents.device_states import WORKING_STATES, ContinueState
from starloom.agents.replies import AppAgentResponse
from starloom.agents.states import AgentState, AgentStateManager, BasicAgent
from starloom.agents.status import AgentStatus, Evidence, StopReason
from starloom.processing.context import Context
from starloom.processing.dispatch import Json
from starloom.processing.names import ContextNames

APP_STATES = AgentStateManager("AppAgent", WORKING_STATES)


class Host(Protocol):
    """What an application's agent knows of its host: where it stands, and how to tell it what came out."""

    @property
    def status(self) -> str:
        """The host's status."""
        ...

    @property
    def states(self) -> AgentStateManager:
        """The host's states."""
        ...

    @property
    def acting(self) -> BasicAgent:
        """The host as an agent that can act next."""
        ...

    def receive(self, stop_reason: StopReason, *, error: str | None, evidence: Evidence) -> None:
        """Take note of how a subtask ended, and stand at the status that follows."""
        ...


class AppAgent(DeviceAgent):
    """Does subtasks in one application."""

    model_role = "app"

    def __init__(self, parts: AgentParts, assignment: Assignment, *, host: Host, application: str) -> None:
        self.host = host
        self.application = application
        super().__init__(
            f"AppAgent:{application}",
            APP_STATES.copy(),
            parts,
            assignment,
            role=f"You do one subtask with the application {application!r}; another agent has the whole request.",
            schema=AppAgentResponse,
        )

    def archive_subtask(self, context: Context) -> None:
        """Put the subtask with its end on the list that the host reads, and tell the host."""
        reason = self.stop_reason or StopReason.ERROR
        done: dict[str, Json] = {
            "subtask": self.assignment.goal,
            "application": self.application,
            "status": reason.value,
            "result": self.result if reason is StopReason.FINISHED else self.error,
        }
        earlier = context.get(ContextNames.PREVIOUS_SUBTASKS)
        context.set(ContextNames.PREVIOUS_SUBTASKS, [*(earlier if isinstance(earlier, list) else []), done])
        self.host.receive(reason, error=self.error, evidence=self.evidence)


@APP_STATES.register
class ScreenshotState(ContinueState):
    """Look again before anything else: every step begins with a fresh observation, so it is a step like another."""

    @classmethod
    def name(cls) -> str:
        """Return SCREENSHOT."""
        return AgentStatus.SCREENSHOT


class _BackToHost(AgentState[AppAgent]):
    """A subtask has ended; the host acts next."""

    async def handle(self, agent: AppAgent, context: Context) -> None:
        """Archive the subtask."""
        agent.archive_subtask(context)

    def next_state(self, agent: AppAgent) -> AgentState[Any]:
        """Return the host's state, as it stands after it was told."""
        return agent.host.states.get_state(agent.host.status)

    def next_agent(self, agent: AppAgent) -> BasicAgent:
        """Return the host."""
        return agent.host.acting

    def is_subtask_end(self) -> bool:
        """Answer yes."""
        return True


@APP_STATES.register
class FinishState(_BackToHost):
    """The subtask is done, or a person said no."""

    @classmethod
    def name(cls) -> str:
        """Return FINISH."""
        return AgentStatus.FINISH


@APP_STATES.register
class FailState(_BackToHost):
    """The subtask cannot be done."""

    @classmethod
    def name(cls) -> str:
        """Return FAIL."""
        return AgentStatus.FAIL


@APP_STATES.register
class ErrorState(_BackToHost):
    """Something broke."""

    model_may_write = False

    @classmethod
    def name(cls) -> str:
        """Return ERROR."""
        return AgentStatus.ERROR
