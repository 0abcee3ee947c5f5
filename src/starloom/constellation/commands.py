"""The editor's ten commands: each executes, undoes, describes itself and has a serialised form.

A command turns its arguments into `changes`; they are all it remembers. `to_dict` is what the journal stores and what a
planner sends; `command_from` reads it back. Source: seed 4 §2.2 for the names.

    add_task remove_task update_task · add_dependency remove_dependency update_dependency
    build_constellation clear_constellation · save_constellation load_constellation
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from starloom.constellation import dialects, documents, fields
from starloom.constellation.changes import Change, revert_all, roll_back
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.dialects import line_document, line_from, task_document, task_from
from starloom.constellation.line import TaskStarLine, line_spec
from starloom.constellation.problems import ConstellationError, EditError
from starloom.constellation.star import TaskStar, task_spec
from starloom.constellation.values import Json
from starloom.ids import TaskId

Touched = frozenset[str]


class Command:
    """What all ten share: make changes one by one, and take all of them back when one is refused."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def execute(self, constellation: TaskConstellation) -> Json:
        """Make the changes and return what the command is about.

        Raises:
            EditError: refused; nothing changed. References are checked by the editor, once an edit is whole.
        """
        self.changes = []
        position = constellation.ledger.last_position
        try:
            return self._perform(constellation)
        except ConstellationError as problem:
            roll_back(constellation, self.changes, position)
            self.changes = []
            if isinstance(problem, EditError):
                raise
            raise EditError(f"{self.name}: {problem.message}") from problem

    def undo(self, constellation: TaskConstellation) -> None:
        """Take the changes back, all or none.

        Raises:
            EditError: something they touch has started since; nothing changed.
        """
        revert_all(constellation, self.changes)

    @property
    def description(self) -> str:
        """The command in words."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        raise NotImplementedError

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return the ids that must not have changed since the version it was made against."""
        raise NotImplementedError

    def _perform(self, constellation: TaskConstellation) -> Json:
        raise NotImplementedError

    def _do(self, constellation: TaskConstellation, change: Change) -> None:
        change.apply(constellation)
        self.changes.append(change)


class AddTaskCommand(Command):
    """Add a task. `task` is a `TaskStar` or its fields; `position` restores its place in the order of insertion."""

    name = "add_task"

    def __init__(self, task: TaskStar | Mapping[str, Any], position: int | None = None) -> None:
        super().__init__()
        self.star = task if isinstance(task, TaskStar) else task_from(task, "task")
        self.position = position

    def _perform(self, constellation: TaskConstellation) -> TaskStar:
        if self.position is not None:
            self.star._position = self.position
        self._do(constellation, Change("add_task", self.star))
        return self.star

    @property
    def description(self) -> str:
        """The command in words."""
        return f"add task {self.star.task_id!r}"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        form: dict[str, Any] = {"command": self.name, "task": task_document(self.star)}
        return form if self.position is None else form | {"position": self.position}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return its own id and those it refers to."""
        return frozenset({self.star.task_id}) | self.star.spec.references


class RemoveTaskCommand(Command):
    """Remove an unstarted task and its edges."""

    name = "remove_task"

    def __init__(self, task_id: str) -> None:
        super().__init__()
        self.task_id = fields.text(task_id, "task_id")

    def _perform(self, constellation: TaskConstellation) -> TaskStar:
        star = constellation.get_task(self.task_id)
        for line in (*star.lines_in, *star.lines_out):
            self._do(constellation, Change("remove_line", line))
        self._do(constellation, Change("remove_task", star))
        return star

    @property
    def description(self) -> str:
        """The command in words."""
        return f"remove task {self.task_id!r} and its dependencies"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        return {"command": self.name, "task_id": self.task_id}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return the task and its edges of now: an edge added meanwhile is a conflict."""
        star = constellation.graph.tasks.get(TaskId(self.task_id))
        lines = () if star is None else (*star.lines_in, *star.lines_out)
        return frozenset({self.task_id, *(line.line_id for line in lines)})


class UpdateTaskCommand(Command):
    """Change fields of an unstarted task."""

    name = "update_task"

    def __init__(self, task_id: str, changes: Mapping[str, Any]) -> None:
        super().__init__()
        self.task_id = fields.text(task_id, "task_id")
        self.fields = fields.json_object(plain(changes), "changes")
        task_spec(self.fields)

    def _perform(self, constellation: TaskConstellation) -> TaskStar:
        star = constellation.get_task(self.task_id)
        self._do(constellation, Change("set_task", star, task_spec(self.fields, star.spec)))
        return star

    @property
    def description(self) -> str:
        """The command in words."""
        return f"update {', '.join(self.fields) or 'nothing'} of task {self.task_id!r}"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        return {"command": self.name, "task_id": self.task_id, "changes": self.fields}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return the task and those it will refer to."""
        return frozenset({self.task_id}) | task_spec(self.fields).references


class AddDependencyCommand(Command):
    """Add an edge. `dependency` is a `TaskStarLine` or its fields."""

    name = "add_dependency"

    def __init__(self, dependency: TaskStarLine | Mapping[str, Any], position: int | None = None) -> None:
        super().__init__()
        self.line = dependency if isinstance(dependency, TaskStarLine) else line_from(dependency, "dependency")
        self.position = position

    def _perform(self, constellation: TaskConstellation) -> TaskStarLine:
        if self.position is not None:
            self.line._position = self.position
        self._do(constellation, Change("add_line", self.line))
        return self.line

    @property
    def description(self) -> str:
        """The command in words."""
        return f"add dependency {self.line.from_task_id!r} → {self.line.to_task_id!r}"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        form: dict[str, Any] = {"command": self.name, "dependency": line_document(self.line)}
        return form if self.position is None else form | {"position": self.position}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return the edge and its ends."""
        return frozenset({self.line.line_id, self.line.from_task_id, self.line.to_task_id})


class RemoveDependencyCommand(Command):
    """Remove an edge whose target has not started."""

    name = "remove_dependency"

    def __init__(self, line_id: str) -> None:
        super().__init__()
        self.line_id = fields.text(line_id, "line_id")

    def _perform(self, constellation: TaskConstellation) -> TaskStarLine:
        line = constellation.get_dependency(self.line_id)
        self._do(constellation, Change("remove_line", line))
        return line

    @property
    def description(self) -> str:
        """The command in words."""
        return f"remove dependency {self.line_id!r}"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        return {"command": self.name, "line_id": self.line_id}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return the edge."""
        return frozenset({self.line_id})


class UpdateDependencyCommand(Command):
    """Change the type, condition or notes of an edge whose target has not started."""

    name = "update_dependency"

    def __init__(self, line_id: str, changes: Mapping[str, Any]) -> None:
        super().__init__()
        self.line_id = fields.text(line_id, "line_id")
        self.fields = fields.json_object(plain(changes), "changes")

    def _perform(self, constellation: TaskConstellation) -> TaskStarLine:
        line = constellation.get_dependency(self.line_id)
        self._do(constellation, Change("set_line", line, line_spec(self.fields, line.spec)))
        return line

    @property
    def description(self) -> str:
        """The command in words."""
        return f"update {', '.join(self.fields) or 'nothing'} of dependency {self.line_id!r}"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        return {"command": self.name, "line_id": self.line_id, "changes": self.fields}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return the edge."""
        return frozenset({self.line_id})


class ClearConstellationCommand(Command):
    """Remove everything; refused as soon as one task has started."""

    name = "clear_constellation"

    def _perform(self, constellation: TaskConstellation) -> None:
        clear(self, constellation)

    @property
    def description(self) -> str:
        """The command in words."""
        return "remove every task and dependency"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        return {"command": self.name}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return everything there is."""
        return frozenset({*constellation.graph.tasks, *constellation.graph.lines})


class BuildConstellationCommand(Command):
    """Add a whole document of any dialect.

    `clear_existing` removes what was there; else it is added to it. `with_state` takes over the states of ended tasks;
    only an import may.
    """

    name = "build_constellation"

    def __init__(self, document: Mapping[str, Any], clear_existing: bool = True, with_state: bool = False) -> None:
        super().__init__()
        self.normal = dialects.normalise(document, "document")
        self.clear_existing = clear_existing
        self.with_state = with_state

    def _perform(self, constellation: TaskConstellation) -> TaskConstellation:
        if self.clear_existing:
            clear(self, constellation)
        documents.assemble(constellation, self.normal, self.changes, with_state=self.with_state)
        return constellation

    @property
    def description(self) -> str:
        """The command in words."""
        return f"build {len(self.normal.tasks)} tasks and {len(self.normal.lines)} dependencies"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        form = {"command": self.name, "document": self.normal.document, "clear_existing": self.clear_existing}
        return form | {"with_state": True} if self.with_state else form

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return everything it adds, and everything there is when it clears."""
        added = {item["task_id"] for item in self.normal.document["tasks"]}
        there = {*constellation.graph.tasks, *constellation.graph.lines} if self.clear_existing else set()
        return frozenset(added | there)


class LoadConstellationCommand(BuildConstellationCommand):
    """Replace everything by a file's content. Stored as the document it read, so that replay needs no file."""

    name = "load_constellation"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        super().__init__(documents.read_file(self.path))

    @property
    def description(self) -> str:
        """The command in words."""
        return f"load {self.path}"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form: that of a build."""
        return {"command": BuildConstellationCommand.name, "document": self.normal.document, "clear_existing": True}


class SaveConstellationCommand(Command):
    """Write the constellation to a file; undo puts back what was there. It changes no graph."""

    name = "save_constellation"

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self._former: bytes | None = None

    def _perform(self, constellation: TaskConstellation) -> Path:
        self._former = self.path.read_bytes() if self.path.exists() else None
        documents.save(constellation, self.path)
        return self.path

    def undo(self, constellation: TaskConstellation) -> None:
        """Put back the file that was there, or remove it."""
        if self._former is None:
            self.path.unlink(missing_ok=True)
        else:
            self.path.write_bytes(self._former)

    @property
    def description(self) -> str:
        """The command in words."""
        return f"save to {self.path}"

    def to_dict(self) -> dict[str, Any]:
        """Return the serialised form."""
        return {"command": self.name, "path": str(self.path)}

    def touches(self, constellation: TaskConstellation) -> Touched:
        """Return nothing."""
        return frozenset()


def clear(command: Command, constellation: TaskConstellation) -> None:
    """Remove every edge and task as part of a command."""
    for line in list(constellation.graph.lines.values()):
        command._do(constellation, Change("remove_line", line))
    for star in list(constellation.graph.tasks.values()):
        command._do(constellation, Change("remove_task", star))


def plain(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as JSON values: words for enum members, lists for tuples."""
    return {
        name: value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value
        for name, value in changes.items()
    }
