"""What an agent tells whoever keeps records: one tagged union of frozen values, in the journal's words.

The session turns them into the journal's events (`session.step.to_journal`); agents know no journal.
"""

from dataclasses import dataclass
from typing import TypeAlias

from starloom.llm.port import Usage
from starloom.processing.dispatch import CommandStatus, Json
from starloom.safety.policy import Decision


@dataclass(frozen=True, slots=True)
class Responded:
    """A model answered in the agent's shape.

    Attributes:
        screen: names what the agent saw when it was asked, without saying it; None: not known (older records).
        suspicions: what had looked like an attempt to give orders by then.
        withheld: a secret in an argument of an action was hidden, so the action is no longer known as it was.
    """

    agent: str
    step: int
    response: dict[str, Json]
    screen: str | None = None
    suspicions: tuple[str, ...] = ()
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class Acted:
    """An action was judged and carried out, or not (`skipped`).

    Attributes:
        step: whose reply it stands in.
        index: which of the reply's actions it is, from 0.
        error, result: what came out, of any size; as read from a record, the text that the agent was shown.
    """

    agent: str
    tool: str
    arguments: dict[str, Json]
    decision: Decision
    status: CommandStatus
    error: str | None = None
    step: int = 0
    index: int = 0
    result: Json = None


@dataclass(frozen=True, slots=True)
class Spent:
    """One model call's use; `role` is the word under which its model was chosen (`shell`, `app`, `host`)."""

    role: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Asked:
    """A question goes to a person."""

    question_id: str
    question: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The person's answer; `by` is `nobody` when there was none."""

    question_id: str
    answer: str
    by: str = "user"


AgentEvent: TypeAlias = Responded | Acted | Spent | Asked | Answered
