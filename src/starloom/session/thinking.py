"""How far the models of each run are with their replies, for whoever shows a run; it is kept nowhere.

Written by `spending`, which sees every call of a run; read by the command line. Numbers, never a word of the reply.
"""

from collections.abc import Mapping

from starloom.ids import RunId
from starloom.llm.port import Progress


class Thinking:
    """The replies that are being written, by run and task."""

    def __init__(self) -> None:
        self._now: dict[RunId, dict[str, Progress]] = {}

    def heard(self, run_id: RunId, task_id: str, progress: Progress) -> None:
        """Note how far a task's reply is; no task: the run's planner."""
        self._now.setdefault(run_id, {})[task_id] = progress

    def ended(self, run_id: RunId, task_id: str) -> None:
        """Forget a reply that is there, or will not come."""
        tasks = self._now.get(run_id, {})
        tasks.pop(task_id, None)
        if not tasks:
            self._now.pop(run_id, None)

    def of(self, run_id: RunId) -> Mapping[str, Progress]:
        """Return the replies of a run that are being written, by task."""
        return self._now.get(run_id, {})
