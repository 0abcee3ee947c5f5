"""What one step knows: phases, the fields its strategies hand on, and what each of them did.

Made fresh by `ProcessorTemplate` for every step, over the session's `Context`; read by middleware afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from starloom.errors import Bug, StarloomError
from starloom.processing.context import Context

T = TypeVar("T")


class ProcessingPhase(StrEnum):
    """The order of a step. GUARD judges every action before ACTION_EXECUTION may carry out the first."""

    SETUP = "setup"
    DATA_COLLECTION = "data_collection"
    LLM_INTERACTION = "llm_interaction"
    GUARD = "guard"
    ACTION_EXECUTION = "action_execution"
    MEMORY_UPDATE = "memory_update"
    CLEANUP = "cleanup"


class ProcessingException(StarloomError):
    """A step cannot go on: a strategy that must not fail has failed. The cause is what it raised."""

    def __init__(self, message: str, *, phase: ProcessingPhase, strategy: str) -> None:
        super().__init__(message, phase=phase.value, strategy=strategy)
        self.phase = phase
        self.strategy = strategy

    @property
    def reason(self) -> str:
        """What went wrong in words for a person: the cause's own sentence when it is one of ours."""
        cause = self.__cause__
        if cause is None:
            return self.message
        return cause.message if isinstance(cause, StarloomError) else f"{type(cause).__name__}: {cause}"


@dataclass(frozen=True, slots=True)
class ProcessingResult:
    """What one strategy did in one step. `skipped`: a field it needs was lost when an earlier strategy failed."""

    phase: ProcessingPhase
    strategy: str
    success: bool
    duration_s: float
    error: str | None = None
    skipped: bool = False


class ProcessingContext:
    """One step's fields (local) over the session's shared state (global)."""

    def __init__(self, global_context: Context, fields: Mapping[str, object] | None = None) -> None:
        self.global_context = global_context
        self.results: list[ProcessingResult] = []
        self.error: ProcessingException | None = None
        self.cancelled = False
        self._fields: dict[str, object] = dict(fields or {})

    def get_local(self, name: str, default: object = None) -> object:
        """Return a field of this step, or the default when no strategy has given it."""
        return self._fields.get(name, default)

    def require(self, name: str, expected: type[T]) -> T:
        """Return a field of this step as what it is.

        Raises:
            Bug: it is missing or of another type; the contract of the strategy that asks does not name it.
        """
        if name not in self._fields:
            raise Bug(f"The step has no field {name!r} yet; declare it with @depends_on.")
        value = self._fields[name]
        if not isinstance(value, expected):
            raise Bug(f"The step's field {name!r} is {type(value).__name__}, not {expected.__name__}.")
        return value

    def update_local(self, fields: Mapping[str, object]) -> None:
        """Add fields, replacing those of the same name."""
        self._fields.update(fields)

    @property
    def fields(self) -> dict[str, object]:
        """A copy of all fields, for records and middleware."""
        return dict(self._fields)

    @property
    def duration_s(self) -> float:
        """Seconds that the strategies have taken together."""
        return sum(result.duration_s for result in self.results)
