"""Commands to and from their serialised form: what the journal holds and what planners send.

Called by the editor and by the journal's fold. Commands that touch files are not read back: a model must not write
files through an edit, and a replay needs none (`load_constellation` is stored as the document it read).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starloom.constellation import commands as c, fields
from starloom.constellation.changes import Change
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.dialects import line_document, task_document
from starloom.constellation.line import SPEC_FIELDS as LINE_FIELDS, LineSpec
from starloom.constellation.problems import ConstellationError, EditError
from starloom.constellation.star import SPEC_FIELDS as TASK_FIELDS, TaskSpec

_Maker = Callable[[Mapping[str, Any]], c.Command]

# Per command: how it is made, the fields it needs, the fields it may have.
_READERS: dict[str, tuple[_Maker, frozenset[str], frozenset[str]]] = {
    "add_task": (
        lambda form: c.AddTaskCommand(form["task"], form.get("position")),
        frozenset({"task"}),
        frozenset({"position"}),
    ),
    "remove_task": (lambda form: c.RemoveTaskCommand(form["task_id"]), frozenset({"task_id"}), frozenset()),
    "update_task": (
        lambda form: c.UpdateTaskCommand(form["task_id"], form["changes"]),
        frozenset({"task_id", "changes"}),
        frozenset(),
    ),
    "add_dependency": (
        lambda form: c.AddDependencyCommand(form["dependency"], form.get("position")),
        frozenset({"dependency"}),
        frozenset({"position"}),
    ),
    "remove_dependency": (lambda form: c.RemoveDependencyCommand(form["line_id"]), frozenset({"line_id"}), frozenset()),
    "update_dependency": (
        lambda form: c.UpdateDependencyCommand(form["line_id"], form["changes"]),
        frozenset({"line_id", "changes"}),
        frozenset(),
    ),
    "build_constellation": (
        lambda form: c.BuildConstellationCommand(
            form["document"],
            fields.flag(form.get("clear_existing", True), "clear_existing"),
            fields.flag(form.get("with_state"), "with_state"),
        ),
        frozenset({"document"}),
        frozenset({"clear_existing", "with_state"}),
    ),
    "clear_constellation": (lambda _form: c.ClearConstellationCommand(), frozenset(), frozenset()),
}


def command_from(form: Mapping[str, Any] | c.Command) -> c.Command:
    """Return the command of a serialised form; a command object is returned as it is.

    Raises:
        EditError: it is no known command, or a field is missing, unknown or wrong; named.
    """
    if isinstance(form, c.Command):
        return form
    if not isinstance(form, Mapping):
        raise EditError(f"A command must be an object, not {type(form).__name__}.")
    name = form.get("command")
    if not isinstance(name, str) or name not in _READERS:
        raise EditError(f"There is no command {name!r}; known: {', '.join(_READERS)}.")
    maker, needed, optional = _READERS[name]
    missing = sorted(needed - form.keys())
    if missing:
        raise EditError(f"{name}: {missing[0]} is missing.")
    try:
        fields.refuse_unknown(form, needed | optional | {"command"}, name)
        if form.get("position") is not None:
            fields.whole_number(form["position"], "position", least=1)
        return maker(form)
    except EditError:
        raise
    except ConstellationError as problem:
        raise EditError(f"{name}: {problem.message}") from problem


def commands_from(forms: Sequence[Mapping[str, Any] | c.Command]) -> list[c.Command]:
    """Return the commands of a batch; a refusal names the place in it."""
    commands = []
    for index, form in enumerate(forms):
        try:
            commands.append(command_from(form))
        except EditError as problem:
            if len(forms) == 1:
                raise
            raise EditError(f"Command {index + 1} of {len(forms)}: {problem.message}") from problem
    return commands


def forms_of(constellation: TaskConstellation, changes: Sequence[Change], *, undone: bool) -> list[dict[str, Any]]:
    """Return the serialised commands that repeat an undo (`undone`) or a redo that was just made of these changes.

    Positions are kept, so that a replay gives restored elements their old places.
    """
    ordered = reversed(changes) if undone else changes
    return [_form(constellation, change, undone=undone) for change in ordered]


def _form(constellation: TaskConstellation, change: Change, *, undone: bool) -> dict[str, Any]:
    kind = change.inverse().kind if undone else change.kind
    star, line = change.star, change.line
    if star is not None:
        if kind == "add_task":
            return {"command": "add_task", "task": task_document(star), "position": star.position}
        if kind == "remove_task":
            return {"command": "remove_task", "task_id": star.task_id}
        return {"command": "update_task", "task_id": star.task_id, "changes": _all_fields(star.spec, TASK_FIELDS)}
    if line is not None:
        if kind == "add_line":
            return {"command": "add_dependency", "dependency": line_document(line), "position": line.position}
        if kind == "remove_line":
            return {"command": "remove_dependency", "line_id": line.line_id}
        return {"command": "update_dependency", "line_id": line.line_id, "changes": _all_fields(line.spec, LINE_FIELDS)}
    about = {"name": constellation.name, "metadata": constellation.metadata, "tasks": [], "dependencies": []}
    return {"command": "build_constellation", "document": about, "clear_existing": False}


def _all_fields(spec: TaskSpec | LineSpec, names: frozenset[str]) -> dict[str, Any]:
    values = {name: getattr(spec, name) for name in sorted(names)}
    return c.plain(values)
