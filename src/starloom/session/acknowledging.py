"""Tells devices which of their results the journal holds, so that they may forget them; never before it does.

Fed with committed events by the galaxy. What is owed to a device that is away is told when it is back; telling twice
does no harm.
"""

from collections.abc import Coroutine
from typing import Any

from starloom.fleet.errors import UnknownDevice
from starloom.fleet.fleet import Fleet
from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.orchestrator.stream import EventStream, Item

_AT_ONCE = 500  # ids in one frame


class Acknowledgements:
    """What is owed to the devices of one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._live: dict[tuple[str, str], tuple[str, str]] = {}
        self._owed: dict[str, list[str]] = {}

    def note(self, recorded: Recorded) -> None:
        """Take a committed event in; the end of an attempt makes its acknowledgement due."""
        match recorded.event:
            case e.TaskStarted(task_id=task_id, attempt_id=attempt_id, device_id=device_id):
                self._live[recorded.run_id, task_id] = (device_id, attempt_id)
            case (
                e.TaskCompleted(task_id=task_id)
                | e.TaskFailed(task_id=task_id)
                | e.TaskCancelled(task_id=task_id)
                | e.TaskRetrying(task_id=task_id)
            ):
                ended = self._live.pop((recorded.run_id, task_id), None)
                if ended is not None:
                    device_id, attempt_id = ended
                    self._owed.setdefault(device_id, []).append(attempt_id)
            case _:
                pass

    def follow(self, stream: EventStream) -> Coroutine[Any, Any, None]:
        """Return the work that acknowledges what one run commits; a gap is made good at the hub's next start."""
        return stream.deliver(stream.subscribe("acknowledgements"), self._receive)

    async def serve(self) -> None:
        """Tell devices that come back what they are owed; for ever."""
        async for _ in self._fleet.changes():
            self._tell_those_there()

    def _receive(self, item: Item) -> None:
        if isinstance(item, Recorded):
            self.note(item)
            if self._owed:
                self._tell_those_there()

    def _tell_those_there(self) -> None:
        for device_id in [owed for owed in self._owed if self._is_there(owed)]:
            attempt_ids = self._owed.pop(device_id)
            for first in range(0, len(attempt_ids), _AT_ONCE):
                self._fleet.committed(device_id, attempt_ids[first : first + _AT_ONCE])

    def _is_there(self, device_id: str) -> bool:
        try:
            return self._fleet.get(device_id).status.is_online
        except UnknownDevice:
            return False
