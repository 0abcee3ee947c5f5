"""Notes of the model calls under way, so that what a killed hub had sent is still counted.

Called by `spending`. One small file a call, written before each of its requests and gone when the call is counted. It
is not synced to the disk: it outlives a killed process, and a machine without power has lost the call as well.

    note {"run", "role", "model", "task", "used"}          left over ──next start──▶ CostRecorded(is_estimated) ──▶ gone
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.llm.port import Usage

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that was under way; `usage` is our guess of what it had used by then, with what was sent."""

    run_id: RunId
    role: str
    model: str
    task_id: str
    usage: Usage


class Note:
    """The note of one call; there is none before the first request."""

    def __init__(self, path: Path, run_id: RunId, role: str, model: str, task_id: str) -> None:
        self._path = path
        self._words = {"run": run_id, "role": role, "model": model, "task": task_id}

    def write(self, usage: Usage) -> None:
        """Say what the call has used by now.

        Raises:
            StoreError: the file cannot be written.
        """
        part = self._path.with_suffix(".part")
        try:
            part.write_text(json.dumps({**self._words, "used": asdict(usage)}), encoding="utf-8")
            part.replace(self._path)
        except OSError as error:
            raise StoreError(f"The note of a model call cannot be kept in {str(part)!r}: {error.strerror}.") from error

    def remove(self) -> None:
        """Take the note away: the call is counted."""
        self._path.unlink(missing_ok=True)


class OpenCalls:
    """The notes of one hub; its folder is the hub's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine = f"{os.getpid()}-{uuid4().hex[:8]}"
        self._next = 0

    @contextmanager
    def noted(self, run_id: RunId, role: str, model: str, task_id: str) -> Iterator[Note]:
        """Have a note for a call while the block runs."""
        if not self._next:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._next += 1
        note = Note(self._folder / f"{self._mine}-{self._next}.json", run_id, role, model, task_id)
        try:
            yield note
        finally:
            note.remove()

    def left_over(self) -> list[tuple[str, OpenCall]]:
        """Return the calls that a dead hub left open, each with the name under which it is forgotten.

        A note that a fall of the machine spoilt is logged and taken away: it must not hold up the start.
        """
        found = []
        for part in self._folder.glob("*.part"):
            part.unlink(missing_ok=True)
        for path in sorted(self._folder.glob("*.json")):
            try:
                said = json.loads(path.read_text(encoding="utf-8"))
                call = OpenCall(RunId(said["run"]), said["role"], said["model"], said["task"], Usage(**said["used"]))
            except (ValueError, TypeError, KeyError) as error:
                _LOG.warning("The note of a model call %s cannot be read and is not counted: %s", path.name, error)
                path.unlink(missing_ok=True)
                continue
            found.append((path.stem, call))
        return found

    def forget(self, name: str) -> None:
        """Take a left-over note away: its call is counted."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)
