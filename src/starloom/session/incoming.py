"""Tasks that come over the wire (from upstream's constellation clients, or a device's own request) become runs.

Fits `fleet.tasks.TaskHandler`; made by the composition root before the galaxy exists, and handed the galaxy then.
"""

import contextlib

from starloom.aip.messages import Json, TaskStatus
from starloom.errors import StarloomError, UsageError
from starloom.fleet.tasks import IncomingTask, TaskOutcome
from starloom.ids import DeviceId, RunId
from starloom.journal.events import RunEnded
from starloom.session.galaxy import Galaxy


def answer_of(ended: RunEnded) -> Json:
    """Return what a run of one goal ended with."""
    return ended.result.get("goal") if isinstance(ended.result, dict) else ended.result


class WireTasks:
    """Performs each task as a run of one goal on the device it names."""

    def __init__(self) -> None:
        self._galaxy: Galaxy | None = None

    def hand_to(self, galaxy: Galaxy) -> None:
        """Give the tasks that come from now on to this galaxy."""
        self._galaxy = galaxy

    async def perform(self, task: IncomingTask) -> TaskOutcome:
        """Run the task to its end; a run that did not finish is `failed`, never `completed` (aip.md D9)."""
        galaxy = self._galaxy
        if galaxy is None:
            return TaskOutcome(TaskStatus.FAILED, error="The hub is still starting.")
        try:
            run_id = await galaxy.submit_goal(task.request, DeviceId(task.device_id))
        except StarloomError as error:
            return TaskOutcome(TaskStatus.FAILED, error=error.message)
        try:
            ended = await galaxy.wait(run_id)
        except BaseException:
            await self._withdraw(galaxy, run_id)
            raise
        if ended is None:
            return TaskOutcome(TaskStatus.FAILED, error="The hub stopped before the task ended.")
        if ended.stop_reason != "finished":
            return TaskOutcome(TaskStatus.FAILED, error=ended.error or f"The task ended: {ended.stop_reason}.")
        return TaskOutcome(TaskStatus.COMPLETED, result=answer_of(ended))

    async def _withdraw(self, galaxy: Galaxy, run_id: RunId) -> None:
        with contextlib.suppress(UsageError):  # it ended in this very moment
            await galaxy.cancel(run_id, by="requester")
