"""Names for the ids that cross room borders, and the port that makes new ones.

Everyone may import this. Ids that must be reproducible (attempts) are derived, never drawn.
"""

import uuid
from typing import NewType, Protocol

RunId = NewType("RunId", str)
TaskId = NewType("TaskId", str)
LineId = NewType("LineId", str)
DeviceId = NewType("DeviceId", str)
AttemptId = NewType("AttemptId", str)
ApprovalId = NewType("ApprovalId", str)


class Ids(Protocol):
    """Where new ids come from; the only source of randomness in the pure rooms' callers."""

    def new(self, prefix: str) -> str:
        """Return an id that no one has seen before: the prefix, an underscore and hexadecimal digits."""
        ...


class RandomIds:
    """Ids of 64 random bits: short enough to type the first letters, rare enough never to meet twice in a journal."""

    def new(self, prefix: str) -> str:
        """Return `prefix_` and 16 hexadecimal digits."""
        return f"{prefix}_{uuid.uuid4().hex[:16]}"


class CountingIds:
    """Ids in order, for tests and rehearsals: `run_1`, `run_2` …; one counter for all prefixes."""

    def __init__(self) -> None:
        self._count = 0

    def new(self, prefix: str) -> str:
        """Return `prefix_` and the next number."""
        self._count += 1
        return f"{prefix}_{self._count}"


def attempt_id(run_id: RunId, task_id: TaskId, number: int) -> AttemptId:
    """Derive the one id of a task's attempt, so that a restarted hub asks the device about the same attempt.

    Source: constellation.md I5 (one effect): an attempt has one id.
    """
    return AttemptId(f"{run_id}:{task_id}:{number}")
