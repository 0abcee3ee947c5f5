"""`ConstellationEditor`: every change of a constellation's structure, checked, counted, recorded and undoable.

For people's code, planners and the orchestrator, which hands in batches. An edit is atomic: all commands or none,
one version, one step of undo. History holds inverse changes, never copies.
Source: seed 4 §2; constellation.md, Editing.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from starloom.constellation import commands as c
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.history import CommandInvoker, Edit
from starloom.constellation.line import TaskStarLine
from starloom.constellation.serialisation import commands_from
from starloom.constellation.star import TaskStar
from starloom.constellation.values import Json
from starloom.ids import TaskId

Observer: TypeAlias = Callable[["ConstellationEditor", str, Any], None]
CommandForm: TypeAlias = Mapping[str, Any] | c.Command

_logger = logging.getLogger(__name__)


class ConstellationEditor:
    """The one way to change a constellation.

    Args:
        constellation: what to edit; a new empty one when None.
        enable_history: keep edits for undo.
        max_history_size: the oldest edits are dropped beyond this many.
    """

    def __init__(
        self,
        constellation: TaskConstellation | None = None,
        enable_history: bool = True,
        max_history_size: int = 100,
    ) -> None:
        self.constellation = constellation if constellation is not None else TaskConstellation()
        self.invoker = CommandInvoker(self.constellation, max_history_size if enable_history else 0, self._tell)
        self._observers: list[Observer] = []
        self.failed_observers: deque[tuple[Observer, Exception]] = deque(maxlen=100)

    def add_task(self, task: TaskStar | Mapping[str, Any]) -> TaskStar:
        """Add a task. Raises EditError when refused, like every method below."""
        star: TaskStar = self.execute(c.AddTaskCommand(task))
        return star

    def create_and_add_task(
        self, task_id: str | None = None, name: str = "", description: str = "", **more: Json
    ) -> TaskStar:
        """Make a task of its fields and add it."""
        return self.add_task(TaskStar(task_id, name, description, **more))

    def remove_task(self, task_id: str) -> TaskStar:
        """Remove an unstarted task and its edges."""
        star: TaskStar = self.execute(c.RemoveTaskCommand(task_id))
        return star

    def update_task(self, task_id: str, **changes: Json) -> TaskStar:
        """Change fields of an unstarted task."""
        star: TaskStar = self.execute(c.UpdateTaskCommand(task_id, changes))
        return star

    def add_dependency(self, dependency: TaskStarLine | Mapping[str, Any]) -> TaskStarLine:
        """Add an edge; one from an ended task takes effect at once."""
        line: TaskStarLine = self.execute(c.AddDependencyCommand(dependency))
        return line

    def create_and_add_dependency(self, from_task_id: str, to_task_id: str, **more: Json) -> TaskStarLine:
        """Make an edge of its fields and add it."""
        return self.add_dependency(TaskStarLine(from_task_id, to_task_id, **more))

    def remove_dependency(self, line_id: str) -> TaskStarLine:
        """Remove an edge whose target has not started."""
        line: TaskStarLine = self.execute(c.RemoveDependencyCommand(line_id))
        return line

    def update_dependency(self, line_id: str, **changes: Json) -> TaskStarLine:
        """Change the type, condition or notes of an edge whose target has not started."""
        line: TaskStarLine = self.execute(c.UpdateDependencyCommand(line_id, changes))
        return line

    def build_constellation(self, document: Mapping[str, Any], clear_existing: bool = True) -> TaskConstellation:
        """Add a whole document of any dialect, after clearing unless told otherwise."""
        constellation: TaskConstellation = self.execute(c.BuildConstellationCommand(document, clear_existing))
        return constellation

    def clear_constellation(self) -> None:
        """Remove everything; refused as soon as one task has started."""
        self.execute(c.ClearConstellationCommand())

    def save_constellation(self, path: str | Path) -> Path:
        """Write a JSON or YAML file; undo puts back what was there."""
        saved: Path = self.execute(c.SaveConstellationCommand(path))
        return saved

    def load_constellation(self, path: str | Path) -> TaskConstellation:
        """Replace everything by a file's content."""
        constellation: TaskConstellation = self.execute(c.LoadConstellationCommand(path))
        return constellation

    def execute(self, command: c.Command, *, by: str = "user", why: str = "", against: int | None = None) -> Json:
        """Carry out one command as an edit of its own and return its result."""
        return self.invoker.execute([command], by=by, why=why, against=against)[1][0]

    def execute_command(
        self, form: CommandForm, *, by: str = "user", why: str = "", against: int | None = None
    ) -> Edit:
        """Carry out one serialised command as an edit of its own."""
        return self.batch([form], by=by, why=why, against=against)

    def batch(
        self, commands: Sequence[CommandForm], *, by: str = "user", why: str = "", against: int | None = None
    ) -> Edit:
        """Carry out commands as one edit: all or none, one version, one step of undo.

        Args:
            commands: serialised forms or command objects; tasks and edges may come in any order that makes sense
                step by step, references are checked at the end.
            by: user, planner, rule or import.
            why: the reason, for the record.
            against: the version it was made against; when older, it is rebased if nothing it touches has changed.

        Raises:
            EditError: refused; nothing changed. `ConflictError` when it cannot be rebased.
        """
        return self.invoker.execute(commands_from(commands), by=by, why=why, against=against)[0]

    def undo(self, by: str = "user") -> Edit | None:
        """Undo the newest edit; None when there is none.

        Raises:
            EditError: it touches a task that has started; history is as before.
        """
        return self.invoker.undo(by)

    def redo(self, by: str = "user") -> Edit | None:
        """Make the newest undone edit again; None when there is none.

        Raises:
            EditError: it cannot be made any more; history is as before.
        """
        return self.invoker.redo(by)

    def can_undo(self) -> bool:
        """Whether there is an edit to undo."""
        return bool(self.invoker.done)

    def can_redo(self) -> bool:
        """Whether there is an undone edit to make again."""
        return bool(self.invoker.undone)

    def clear_history(self) -> None:
        """Forget what could be undone."""
        self.invoker.clear_history()

    def get_history(self) -> list[str]:
        """Return the descriptions of the edits that can be undone, oldest first."""
        return [edit.description for edit in self.invoker.done]

    def add_observer(self, observer: Observer) -> None:
        """Call `observer(editor, command_name, result)` after every command that took effect."""
        self._observers.append(observer)

    def remove_observer(self, observer: Observer) -> None:
        """Stop calling it; nothing happens when it was not there."""
        if observer in self._observers:
            self._observers.remove(observer)

    def get_ready_tasks(self) -> list[TaskStar]:
        """Return the tasks that may start now."""
        return self.constellation.get_ready_tasks()

    def get_topological_order(self) -> list[TaskId]:
        """Return every task's id, sources first."""
        return self.constellation.get_topological_order()

    def _tell(self, name: str, result: Json) -> None:
        for observer in list(self._observers):
            try:
                observer(self, name, result)
            except Exception as problem:
                self.failed_observers.append((observer, problem))
                _logger.exception("An observer of the editor failed after %s", name)
