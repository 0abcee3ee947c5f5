"""What a device agent works on: the goal, what it may rest on, and the device it acts through. Made by the session."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from starloom.agents.plans import DeviceProfile
from starloom.ids import RunId
from starloom.processing.dispatch import Json
from starloom.safety.policy import Facts


@dataclass(frozen=True, slots=True)
class Assignment:
    """One goal for one device.

    `goal` and `tips` come from the user or the planner and go to the model as they are; `inputs` (results of earlier
    tasks, by their names) are data and are fenced.
    """

    goal: str
    device: DeviceProfile
    facts: Facts
    run_id: RunId
    task_id: str = ""
    tips: tuple[str, ...] = ()
    inputs: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """How much a device agent may use of things that only it knows."""

    history_tokens: int = 6_000
    result_tokens: int = 1_500  # of one action's result, as the model sees it
    reply_tokens: int = 2_048
    most_repairs: int = 2  # of one reply
    most_repeats: int = 3  # of one action on one screen: the last of them is not carried out
    most_denials: int = 2  # actions that the policy refused, before the work stops
    unanswered_questions: int = 2
    action_timeout_s: float | None = 120.0
