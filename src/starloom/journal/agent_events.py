"""What agents and people do in a run: the records of plans, replies, actions, costs, questions and approvals.

Read through `events`, which joins them with the records of the graph to one union.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

Json: TypeAlias = Any  # a JSON value: None, bool, int, float, str, list[Json] or dict[str, Json]


@dataclass(frozen=True, slots=True)
class PlanProposed:
    """A planner drafted tasks for a request; `summary` has one line a task, for the preview before anything runs.

    `document` is the whole plan, so that a hub that was stopped before the first task goes on with this very plan.
    """

    kind: ClassVar[str] = "plan_proposed"
    summary: list[str]
    model: str = ""
    warnings: list[str] = field(default_factory=list)
    document: Json = None


@dataclass(frozen=True, slots=True)
class AgentResponse:
    """A model answered an agent; the parsed reply, secrets redacted.

    Attributes:
        screen: a digest of what the agent saw when it was asked; None in records of older versions.
        suspicions: the detectors that had fired by then.
        withheld: an argument of an action was redacted, so the action cannot be made from this record.
    """

    kind: ClassVar[str] = "agent_response"
    agent: str
    step: int
    response: Json
    task_id: str = ""
    screen: str | None = None
    suspicions: list[str] = field(default_factory=list)
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class AgentAction:
    """An agent's (or a task's) tool call was judged and carried out, or not.

    An agent's call is known by its step and its index in the step's reply; `result` is the text that the agent was
    shown, bounded, secrets redacted.
    """

    kind: ClassVar[str] = "agent_action"
    agent: str
    tool: str
    arguments: dict[str, Json]
    decision: str  # allow | ask | deny
    status: str  # success | failure | skipped
    task_id: str = ""
    device_id: str = ""
    error: str | None = None
    step: int = 0
    index: int = 0
    result: str | None = None


@dataclass(frozen=True, slots=True)
class CostRecorded:
    """Tokens and money of one model call; None of any of them means unknown, never zero.

    The parts (read from and written to the provider's cache, pictures; reasoning) are counted in the totals.
    `is_estimated`: the totals are our guess, for a call that was cut off or whose provider does not count.
    """

    kind: ClassVar[str] = "cost_recorded"
    role: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None = None
    task_id: str = ""
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    image_tokens: int | None = None
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """Someone must answer before work goes on."""

    kind: ClassVar[str] = "question_asked"
    question_id: str
    question: str
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class QuestionAnswered:
    """The answer to a question."""

    kind: ClassVar[str] = "question_answered"
    question_id: str
    answer: str
    by: str = "user"


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """An action waits for a person; `action_hash` binds the answer to exactly this tool, device and arguments."""

    kind: ClassVar[str] = "approval_asked"
    approval_id: str
    action_hash: str
    tool: str
    arguments: dict[str, Json]
    device_id: str
    reason: str
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalAnswered:
    """The person's answer."""

    kind: ClassVar[str] = "approval_answered"
    approval_id: str
    approved: bool
    by: str = "user"
    comment: str = ""
