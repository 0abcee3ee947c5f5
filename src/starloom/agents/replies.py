"""Reply schemas: one class per role is the source of the prompt's text, the JSON Schema and the validation.

The status words come from the agent's own table of states, so a misspelt one is a validation error that goes back to
the model. Used by the THINK strategies; `llm` reads and repairs the raw text.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from starloom.agents.states import AgentStateManager
from starloom.agents.status import AgentStatus

R = TypeVar("R", bound="AgentReply")


class Closed(BaseModel):
    """Unknown fields are errors: a model must not think it said something that nobody reads."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ActionCommandInfo(Closed):
    """One tool call. Only the call: neither target nor result can be set by a model."""

    tool: str = Field(description="The tool's full name, exactly as listed.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Its arguments, by the tool's schema.")


class AgentReply(Closed):
    """What every role says each time."""

    observation: str = Field(default="", description="What you see now that matters, in one or two sentences.")
    thought: str = Field(description="Why the next action is the right one, in one or two sentences.")
    status: str = Field(description="Where the work stands after this reply.")
    plan: list[str] = Field(default_factory=list, description="The steps still to come, short.")
    comment: str = Field(default="", description="One sentence for the user.")
    questions: list[str] = Field(default_factory=list, description="Questions for the user; only with PENDING.")
    result: Any = Field(default=None, description="The result as JSON; only with FINISH.")


class DeviceAgentResponse(AgentReply):
    """A device agent's reply."""

    action: list[ActionCommandInfo] | ActionCommandInfo | None = Field(
        default=None,
        description="The tool call to make now, or a list of calls in order when you are sure of them all.",
    )

    @property
    def actions(self) -> tuple[ActionCommandInfo, ...]:
        """The calls as a tuple, however they were written."""
        if self.action is None:
            return ()
        return (self.action,) if isinstance(self.action, ActionCommandInfo) else tuple(self.action)


class SaveScreenshot(Closed):
    """Whether this step's picture is worth keeping, and why."""

    save: bool = False
    reason: str = ""


class AppAgentResponse(DeviceAgentResponse):
    """The reply of an agent that works in one application."""

    save_screenshot: SaveScreenshot = Field(default_factory=SaveScreenshot)


class HostAgentResponse(AgentReply):
    """The reply of the agent that splits a request into subtasks and gives each to an application's agent."""

    current_subtask: str = Field(default="", description="The subtask to give away now; only with ASSIGN.")
    application: str = Field(default="", description="The application that does it, as listed; only with ASSIGN.")
    message: list[str] = Field(default_factory=list, description="What that application's agent should know.")


def reply_schema(base: type[R], states: AgentStateManager) -> type[R]:
    """Return the reply class whose status is one of the table's words for models, and nothing else."""
    literal: Any = Literal  # built at run time, which type checkers cannot follow
    words = literal[states.words_for_models]
    described = Field(description=str(base.model_fields["status"].description))
    return create_model(base.__name__, __base__=base, status=(Annotated[words, described], ...))


def device_reply_problems(reply: DeviceAgentResponse) -> list[str]:
    """Return one line for each way in which status, actions and questions do not go together.

    An empty list of actions never means done: it is asked again.
    """
    problems = []
    if reply.status in (AgentStatus.CONTINUE, AgentStatus.CONFIRM) and not reply.actions:
        problems.append(
            f"action: the status {reply.status} needs at least one action; if the work is done write FINISH, "
            "if it cannot be done write FAIL."
        )
    if reply.status == AgentStatus.PENDING and not reply.questions:
        problems.append("questions: the status PENDING needs at least one question.")
    return problems


def host_reply_problems(reply: HostAgentResponse, applications: Sequence[str]) -> list[str]:
    """Return one line for each thing that an assignment lacks."""
    problems = []
    if reply.status in (AgentStatus.ASSIGN, AgentStatus.CONFIRM):
        if not reply.current_subtask.strip():
            problems.append(f"current_subtask: the status {reply.status} needs the subtask in words.")
        if reply.application not in applications:
            problems.append(f"application: {reply.application!r} is not one of {', '.join(applications)}.")
    if reply.status == AgentStatus.PENDING and not reply.questions:
        problems.append("questions: the status PENDING needs at least one question.")
    return problems
