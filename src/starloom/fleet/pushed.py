"""Tasks that the hub pushed to devices: which session belongs to which, and how they ended.

Upstream's server makes a new session when the device asks back, so the id it returned matches nothing, and its result
store deadlocks (D1, D26). Here the device's own task takes the promised id, and ends are kept, the newest thousand.
"""

from collections import OrderedDict, deque

from starloom.fleet.tasks import IncomingTask, TaskOutcome

KEPT = 1000


class PushedTasks:
    """Promised sessions per device, and the ends of tasks by name and by session."""

    def __init__(self) -> None:
        self._promised: dict[str, deque[tuple[str, str]]] = {}
        self._sessions: OrderedDict[str, str] = OrderedDict()
        self._ended: OrderedDict[str, TaskOutcome] = OrderedDict()

    def add(self, device_id: str, task_name: str, session_id: str) -> None:
        """Promise a session id for the next task of that name that the device asks for."""
        self._promised.setdefault(device_id, deque(maxlen=KEPT)).append((task_name, session_id))
        self._sessions[task_name] = session_id
        _trim(self._sessions)

    def take(self, device_id: str, task_name: str | None) -> str | None:
        """Return the id promised for this task of the device, once; None when none was."""
        promised = self._promised.get(device_id, deque())
        for entry in promised:
            if entry[0] == task_name:
                promised.remove(entry)
                if not promised:
                    del self._promised[device_id]
                return entry[1]
        return None

    def ended(self, task: IncomingTask, outcome: TaskOutcome) -> None:
        """Keep the end of a task that was promised."""
        if self._sessions.get(task.task_name) == task.session_id:
            self._ended[task.session_id] = outcome
            _trim(self._ended)

    def result(self, task_name: str) -> TaskOutcome | None:
        """Return how the newest task of this name ended; None while it runs, and for a name never pushed."""
        return self._ended.get(self._sessions.get(task_name, ""))


def _trim(kept: "OrderedDict[str, str] | OrderedDict[str, TaskOutcome]") -> None:
    while len(kept) > KEPT:
        kept.popitem(last=False)
