"""What a planner is given and what it drafts: plain values between models and the constellation's editor.

Planners (`agents.structured_planner`, `agents.compact_planner`) draft; `agents.constellation_agent` checks the draft
and turns it into one atomic edit. A draft has done nothing yet and is always shown before it runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starloom.llm.port import Usage
from starloom.safety.policy import Risk


@dataclass(frozen=True, slots=True)
class ToolProfile:
    """A tool that a device offers now: its qualified name (`files.read`), JSON Schema and worst effect."""

    name: str
    description: str
    input_schema: dict[str, Any]
    risk: Risk | None = None
    destinations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """A connected device as a planner sees it. `device_type`: windows macos linux android ios web api."""

    device_id: str
    device_type: str
    tools: tuple[ToolProfile, ...]
    has_agent: bool = True  # a goal without a tool may be given to it
    description: str = ""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One task of a draft: a tool call when `tool` is set, else a goal in words for the device's agent.

    `arguments` may hold `{{ tasks.<step_id>.result }}` references; `depends_on` holds every step that must end first,
    those of the references included.
    """

    step_id: str
    name: str
    description: str
    device_id: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A planner's answer. `refusal` is set, and `steps` empty, when the request cannot be done with these devices."""

    steps: tuple[PlannedStep, ...]
    model: str
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()
    refusal: str | None = None


class Planner(Protocol):
    """Drafts tasks for a request."""

    async def plan(self, request: str, devices: Sequence[DeviceProfile]) -> PlanDraft:
        """Return a draft, or a refusal with its reason.

        Raises:
            ModelError: the model cannot be had or gave nothing usable.
        """
        ...
