"""What the planner is told when a run calls for judgement, and what it answers; between the runner and the session.

The planner gets values and gives values: it never holds the live graph. Its answer is an edit like any other.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from starloom.ids import RunId, TaskId

SurpriseKind: TypeAlias = Literal["failed", "unreachable", "asked", "message", "completed", "edit_refused", "empty"]


_NO_TASK = TaskId("")


@dataclass(frozen=True, slots=True)
class Surprise:
    """One thing that calls for judgement. `task_id` is empty for a message, a refused edit and an empty plan."""

    kind: SurpriseKind
    task_id: TaskId = _NO_TASK
    detail: str = ""


@dataclass(frozen=True)
class ReplanRequest:
    """Everything that came together since the planner last looked. `snapshot` is called when the graph is asked for."""

    run_id: RunId
    version: int
    surprises: tuple[Surprise, ...]
    snapshot: Callable[[], dict[str, Any]] = field(repr=False)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The graph as a document (form A) at the time of the first look."""
        return self.snapshot()


@dataclass(frozen=True, slots=True)
class EditDraft:
    """The planner's answer: serialised commands, applied as one edit. No commands: leave it as it is."""

    commands: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    why: str = ""


Replan: TypeAlias = Callable[[ReplanRequest], Awaitable[EditDraft | None]]
