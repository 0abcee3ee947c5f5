"""What the runner needs from the world: someone who performs an attempt, and someone who knows the devices.

The composition root (`session/build.py`) fits the fleet and the agents to these; the orchestrator never imports them.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from starloom.ids import AttemptId, DeviceId, RunId, TaskId


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one task on one device: everything needed to perform it, references already resolved.

    `task_data` may hold `{"tool": name, "arguments": {…}}`: then no model is needed. `inputs` maps each direct
    predecessor to its result, whether or not it is referenced.
    """

    run_id: RunId
    task_id: TaskId
    number: int
    attempt_id: AttemptId
    device_id: DeviceId
    name: str
    description: str
    tips: tuple[str, ...] = ()
    task_data: dict[str, Any] = field(default_factory=dict)
    inputs: dict[TaskId, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Completed:
    """The attempt succeeded; `result` is a JSON value."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed.

    Attributes:
        error: why, in words.
        transient: another try may help.
        in_doubt: its effect may have happened.
        interrupted: what performed it was lost in the middle; for a task that may be repeated, a loss of its device.
        again: someone who may decide it has decided that the task is tried again, whatever its retries.
    """

    error: str
    transient: bool = False
    in_doubt: bool = False
    interrupted: bool = False
    again: bool = False


Outcome: TypeAlias = Completed | Failed


class TaskExecutor(Protocol):
    """Performs attempts: by a tool call, or by a device agent's round."""

    async def execute(self, attempt: Attempt) -> Outcome:
        """Perform the attempt and return how it ended; never raise for a failed task.

        When cancelled, stop the work on the device first, then let `CancelledError` out: only then is the device free.
        """
        ...


@dataclass(frozen=True, slots=True)
class DeviceOffer:
    """What assignment needs to know about a device that is connected now."""

    device_id: DeviceId
    device_type: str  # windows macos linux android ios web api
    tools: frozenset[str] = frozenset()  # qualified names; empty: unknown, not checked
    max_tasks: int = 1


class DeviceDirectory(Protocol):
    """Knows which devices can take work now."""

    def offers(self) -> Sequence[DeviceOffer]:
        """Return the connected devices, in a stable order."""
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yield whenever `offers` may have changed, once at least for any number of changes meanwhile."""
        ...
