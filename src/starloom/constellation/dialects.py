"""Dialects: upstream's three forms of a constellation and ours, read into one normal form; the file that knows them.

Read strictly: unknown fields and words, wrong types, repeated ids, missing ends and cycles are refused with the place.

    A  engine form    {"tasks": {id: {...}}, "dependencies": {id: {...}}}   lower-case words, priority a number
    B  schema form    the same shape, upper-case words, priority a name
    C  list form      {"tasks": [...], "dependencies": [...]}               what a model writes
    ours              A plus schema_version, or a list form; `from`/`to`/`type`, `after: [ids]` are short

Inside Starloom a document is *normal*: lists, our field names, plain JSON values, no field at its default.
Source: reference galaxy.md §2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from starloom.constellation import fields
from starloom.constellation.enums import CancelReason, EdgeOutcome, TaskStatus
from starloom.constellation.line import SPEC_FIELDS as LINE_FIELDS, LineSpec, TaskStarLine, end_of, line_spec
from starloom.constellation.problems import ConstellationError, DocumentError
from starloom.constellation.star import SPEC_FIELDS as TASK_FIELDS, TaskSpec, TaskStar, task_spec
from starloom.constellation.values import Json

SCHEMA_VERSION = 1
TASK_STATE = frozenset({"status", "result", "error", "current_retry", "cancel_reason", "detail", "attempt"})
_TASK_DERIVED = frozenset(
    {"task_description", "created_at", "updated_at", "execution_start_time", "execution_end_time"}
    | {"execution_duration", "dependencies", "dependents", "config"}
)
_LINE_STATE = frozenset({"outcome", "error"})
_LINE_DERIVED = frozenset(
    {"is_satisfied", "last_evaluation_result", "last_evaluation_time", "created_at", "updated_at"}
)
_LINE_SHORT = {"from": "from_task_id", "to": "to_task_id", "type": "dependency_type"}
_ENDS = frozenset({"line_id", "from_task_id", "to_task_id"})
_TOP = frozenset(
    {"constellation_id", "name", "description", "tasks", "dependencies", "metadata", "schema_version", "version"}
    | {"state", "created_at", "updated_at", "execution_start_time", "execution_end_time", "execution_duration"}
)
_TASK_ALL = TASK_FIELDS | TASK_STATE | _TASK_DERIVED | {"task_id", "after"}
_LINE_ALL = LINE_FIELDS | _ENDS | _LINE_STATE | _LINE_DERIVED
_TASK_DEFAULTS = TaskSpec()
_LINE_DEFAULTS = line_spec({})
_AFTER = line_spec({"dependency_type": "success_only"})
_USUAL = {
    names: (ordered := tuple(sorted(names)), attrgetter(*ordered), attrgetter(*ordered)(defaults))
    for names, defaults in ((TASK_FIELDS, _TASK_DEFAULTS), (LINE_FIELDS, _LINE_DEFAULTS))
}


@dataclass(frozen=True, slots=True)
class Normal:
    """A checked document: its normal form, and the description of each task and edge in it, in order."""

    document: dict[str, Json]
    tasks: list[TaskSpec]
    lines: list[LineSpec]


@dataclass(frozen=True, slots=True)
class Content:
    """What a normal document holds, as fresh objects."""

    about: tuple[str, dict[str, Any]] | None
    stars: list[TaskStar]
    lines: list[TaskStarLine]


def normalise(document: Mapping[str, Any], where: str = "document") -> Normal:
    """Return the document in normal form, every field checked; the form of a normal document is equal to it.

    Raises:
        DocumentError: naming the place.
    """
    document = as_object(document, where)
    _refuse_unknown(document, _TOP, where)
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise DocumentError(f"{where}: schema_version is {version!r}; this Starloom reads {SCHEMA_VERSION}. Update it.")
    tasks, task_specs = _normal_tasks(document.get("tasks"), where)
    lines = [line for task in tasks for line in task.pop("after", ())]
    line_specs = [_AFTER] * len(lines)
    more_lines, more_specs = _normal_lines(document.get("dependencies"), where)
    lines += more_lines
    line_specs += more_specs
    _check_ends(tasks, lines, where)
    normal: dict[str, Any] = {"tasks": tasks, "dependencies": lines}
    with _place(where):
        for name in ("constellation_id", "name"):
            if value := fields.optional_text(document.get(name), name):
                normal[name] = value
        if metadata := fields.json_object(document.get("metadata"), "metadata"):
            normal["metadata"] = metadata
    return Normal(normal, task_specs, line_specs)


def _check_ends(tasks: list[dict[str, Json]], lines: list[dict[str, Json]], where: str) -> None:
    known = {task["task_id"] for task in tasks}
    named: set[str] = set()
    for index, line in enumerate(lines, 1):
        line_id = line.get("line_id")
        for end in ("from_task_id", "to_task_id"):
            if line[end] not in known:
                place = f"{where}: dependency {line_id or index!r}"
                raise DocumentError(f"{place}: {end} is {line[end]!r}, which is no task of this document.")
        if line_id is not None:
            if line_id in named:
                raise DocumentError(f"{where}: dependency {line_id!r}: the line_id comes twice; ids are unique.")
            named.add(line_id)


def content(normal: Normal) -> Content:
    """Return fresh stars and lines of a normal document; statuses are not taken over here."""
    form = normal.document
    about = (form.get("name", ""), dict(form.get("metadata", {})))
    stars = [TaskStar.from_spec(item["task_id"], spec) for item, spec in zip(form["tasks"], normal.tasks, strict=True)]
    lines = [
        TaskStarLine.from_spec(item["from_task_id"], item["to_task_id"], spec, item.get("line_id"))
        for item, spec in zip(form["dependencies"], normal.lines, strict=True)
    ]
    return Content(about if about != ("", {}) else None, stars, lines)


def task_from(form: Mapping[str, Any], where: str) -> TaskStar:
    """Return a fresh task of one task's fields; state fields are refused, for an edit describes and does not report."""
    form = as_object(form, where)
    with _place(where):
        fields.refuse_unknown(form, TASK_FIELDS | {"task_id"}, "A task")
        spec = task_spec({name: value for name, value in form.items() if name != "task_id"})
        task_id = fields.optional_text(form.get("task_id"), "task_id")
    return TaskStar.from_spec(task_id, spec) if task_id else TaskStar(**_arguments(form))


def line_from(form: Mapping[str, Any], where: str) -> TaskStarLine:
    """Return a fresh edge of one edge's fields."""
    form = _long_names(as_object(form, where), where)
    with _place(where):
        fields.refuse_unknown(form, LINE_FIELDS | _ENDS, "A dependency")
        spec = line_spec({name: form[name] for name in LINE_FIELDS & form.keys()})
        return TaskStarLine.from_spec(
            form.get("from_task_id", ""), form.get("to_task_id", ""), spec, form.get("line_id")
        )


def task_document(star: TaskStar) -> dict[str, Any]:
    """Return the fields of a task's description that are not at their default, as JSON values."""
    return {"task_id": star.task_id, **_given(star.spec, _TASK_DEFAULTS, TASK_FIELDS)}


def line_document(line: TaskStarLine) -> dict[str, Any]:
    """Return the fields of an edge's description that are not at their default, as JSON values."""
    ends = {"line_id": line.line_id, "from_task_id": line.from_task_id, "to_task_id": line.to_task_id}
    return {**ends, **_given(line.spec, _LINE_DEFAULTS, LINE_FIELDS)}


def _given(spec: TaskSpec | LineSpec, defaults: TaskSpec | LineSpec, names: frozenset[str]) -> dict[str, Any]:
    """Return the fields that are not at their default, as JSON values, in the order of their names."""
    if spec is defaults:
        return {}
    ordered, get, usual = _USUAL[names]
    values = get(spec)
    if values == usual:
        return {}
    return {
        name: value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value
        for name, value, default in zip(ordered, values, usual, strict=True)
        if value != default
    }


def _normal_tasks(value: Json, where: str) -> tuple[list[dict[str, Any]], list[TaskSpec]]:
    tasks: list[dict[str, Any]] = []
    specs: list[TaskSpec] = []
    seen: set[str] = set()
    given = {str(item.get("task_id")) for _, item in _items(value, "tasks", where) if isinstance(item, Mapping)}
    for key, item in _items(value, "tasks", where):
        place = (
            f"{where}: task {item.get('task_id') or key!r}" if isinstance(item, Mapping) else f"{where}: task {key!r}"
        )
        form = dict(as_object(item, place))
        _refuse_unknown(form, _TASK_ALL, place)
        task_id = _own_id(form, "task_id", key, place) or _free("task", len(tasks) + 1, seen | given)
        if task_id in seen:
            raise DocumentError(f"{place}: the task_id {task_id!r} comes twice; ids are unique.")
        seen.add(task_id)
        with _place(place):
            spec = task_spec({name: form[name] for name in TASK_FIELDS & form.keys()})
            normal = {"task_id": task_id, **_given(spec, _TASK_DEFAULTS, TASK_FIELDS), **_normal_state(form)}
            if form.get("after") is not None:
                normal["after"] = [
                    {"from_task_id": before, "to_task_id": task_id, "dependency_type": "success_only"}
                    for before in fields.texts(form["after"], "after")
                ]
        tasks.append(normal)
        specs.append(spec)
    return tasks, specs


def _normal_state(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a task that has ended; a task that was running or waiting starts afresh."""
    status = fields.word(TaskStatus, form.get("status") or "pending", "status")
    if not status.is_terminal:
        return {}
    state: dict[str, Any] = {"status": status.value}
    if form.get("result") is not None:
        state["result"] = fields.json_value(form["result"], "result")
    if form.get("error") is not None:
        state["error"] = fields.text(form["error"], "error")
    if status is TaskStatus.CANCELLED:
        state["cancel_reason"] = fields.word(CancelReason, form.get("cancel_reason") or "user", "cancel_reason").value
        state["detail"] = fields.text(form.get("detail") or "", "detail")
    for name in ("attempt", "current_retry"):
        if form.get(name):
            state[name] = fields.whole_number(form[name], name)
    return state


def _normal_lines(value: Json, where: str) -> tuple[list[dict[str, Any]], list[LineSpec]]:
    lines: list[dict[str, Any]] = []
    specs: list[LineSpec] = []
    for key, item in _items(value, "dependencies", where):
        place = f"{where}: dependency {key!r}"
        if isinstance(item, list):  # the web page's form: {child: [parents]}
            parents = fields.texts(item, f"dependencies.{key}")
            lines += [{"from_task_id": parent, "to_task_id": str(key)} for parent in parents]
            specs += [_LINE_DEFAULTS] * len(parents)
            continue
        form = _long_names(as_object(item, place), place)
        _refuse_unknown(form, _LINE_ALL, place)
        kind = str(form.get("dependency_type") or "").lower()
        if kind == "conditional" and not form.get("condition"):
            form["condition"] = "status == 'completed'"  # upstream never stores its callables
        line_id = _own_id(form, "line_id", key, place)
        with _place(place):
            spec = line_spec({name: form[name] for name in LINE_FIELDS & form.keys()})
            normal: dict[str, Json] = {name: end_of(form.get(name), name) for name in ("from_task_id", "to_task_id")}
            normal |= _given(spec, _LINE_DEFAULTS, LINE_FIELDS)
            if line_id:
                normal["line_id"] = line_id
            if form.get("outcome") is not None:
                normal["outcome"] = fields.word(EdgeOutcome, form["outcome"], "outcome").value
                if form.get("error") is not None:
                    normal["error"] = fields.text(form["error"], "error")
        lines.append(normal)
        specs.append(spec)
    return lines, specs


def _items(value: Json, name: str, where: str) -> Iterable[tuple[Any, Any]]:
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value, 1)
    raise DocumentError(f"{where}: {name} must be a list or an object, not {type(value).__name__}.")


def _own_id(form: Mapping[str, Any], name: str, key: Json, place: str) -> str | None:
    with _place(place):
        own = fields.optional_text(form.get(name), name)
    if isinstance(key, str):
        if own is not None and own != key:
            raise DocumentError(f"{place}: it stands under the key {key!r}, but its {name} is {own!r}.")
        return key
    return own


def _free(prefix: str, number: int, taken: set[str]) -> str:
    while (name := f"{prefix}_{number}") in taken:
        number += 1
    return name


def _long_names(form: Mapping[str, Any], place: str) -> dict[str, Any]:
    longer = dict(form)
    for short, name in _LINE_SHORT.items():
        if short in longer:
            if name in longer:
                raise DocumentError(f"{place}: {short} and {name} mean the same; give one.")
            longer[name] = longer.pop(short)
    return longer


def _arguments(form: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in form.items() if name != "task_id"}


def as_object(value: Json, where: str) -> dict[str, Any]:
    """Return the value when it is an object; refuse it by its place otherwise."""
    if not isinstance(value, Mapping):
        raise DocumentError(f"{where} must be an object, not {type(value).__name__}.")
    return value if isinstance(value, dict) else dict(value)


def _refuse_unknown(form: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    with _place(place):
        fields.refuse_unknown(form, known, "The document" if known is _TOP else "It")


class _place:
    """Put the place in front of what is wrong inside."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if isinstance(problem, ConstellationError) and not isinstance(problem, DocumentError):
            raise DocumentError(f"{self._where}: {problem.message}") from problem
