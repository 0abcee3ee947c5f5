"""Tasks that arrive over the wire: what a handler is given, what it gives back, and the sessions that run.

The handler is injected by the composition root (it runs the device's agent); the fleet only keeps order: whose session
it is, which device it runs on, and that it ends when either of them goes.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from starloom.aip.messages import ClientType, Json, TaskStatus

DEVICE_GONE = "Task was cancelled because target device disconnected"
STOPPED_BY_REQUESTER = "Task was cancelled by its requester"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
NAME_LIMIT = 128


@dataclass(frozen=True, slots=True)
class IncomingTask:
    """A request in natural language that someone wants done on a device.

    Attributes:
        session_id: as the requester knows it; put it on every command of the task.
        task_name: made safe for file names.
        requester_id: who gets the end of it; the device itself when it asked on its own behalf.
    """

    session_id: str
    task_name: str
    request: str
    device_id: str
    requester_id: str
    requester_type: ClientType


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How the task ended. `status` is COMPLETED or FAILED; `result` any JSON value, a list is sent as it is."""

    status: TaskStatus
    result: Json = None
    error: str | None = None


class TaskHandler(Protocol):
    """Performs tasks; implemented in the composition root."""

    async def perform(self, task: IncomingTask) -> TaskOutcome:
        """Do the task and return how it ended; cancelled when the requester or the device goes away."""
        ...


def safe_task_name(name: str | None, fallback: str) -> str:
    """Return a task name that is harmless as a file name: `[A-Za-z0-9._-]`, no leading dot, never empty.

    Source: wire specification, section 6.2; GHSA-whcg-fgpx-76f2.
    """
    return _UNSAFE.sub("_", name or "").lstrip(".")[:NAME_LIMIT] or fallback


def rounds(request: str, result: Json) -> Json:
    """Return a result in upstream's form: one `{"request", "result"}` object per round."""
    return result if isinstance(result, list) else [{"request": request, "result": result}]
