"""What differs between two versions of a constellation, or two documents: tasks and edges added, removed, changed.

For the CLI and the page. When the edits between the two are known, each difference says who made it and why.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.dialects import line_document, task_document
from starloom.constellation.documents import line_state, task_state
from starloom.constellation.values import Json


@dataclass(frozen=True, slots=True)
class Item:
    """One difference. `fields` maps a changed field to its old and new value; `by` and `why` are of its last edit."""

    how: Literal["added", "removed", "changed"]
    what: Literal["task", "dependency"]
    name: str
    fields: dict[str, tuple[Json, Json]] = field(default_factory=dict)
    by: str = ""
    why: str = ""

    @property
    def text(self) -> str:
        """The difference in one line."""
        mark = {"added": "+", "removed": "-", "changed": "~"}[self.how]
        details = ", ".join(f"{name}: {old!r} → {new!r}" for name, (old, new) in self.fields.items())
        who = f"  ({self.by}: {self.why})" if self.why else f"  ({self.by})" if self.by else ""
        return f"{mark} {self.what} {self.name}{': ' + details if details else ''}{who}"


@dataclass(frozen=True, slots=True)
class Difference:
    """All differences, tasks first, in the order of their ids."""

    items: tuple[Item, ...]

    def __bool__(self) -> bool:
        return bool(self.items)

    def lines(self) -> list[str]:
        """Return one line a difference."""
        return [item.text for item in self.items]

    def to_dict(self) -> dict[str, Json]:
        """Return JSON values: lists under `added`, `removed`, `changed`."""
        form: dict[str, Json] = {"added": [], "removed": [], "changed": []}
        for item in self.items:
            entry: dict[str, Json] = {"what": item.what, "id": item.name}
            if item.fields:
                entry["fields"] = {name: {"old": old, "new": new} for name, (old, new) in item.fields.items()}
            if item.by:
                entry |= {"by": item.by, "why": item.why}
            form[item.how].append(entry)
        return form


def diff(
    a: TaskConstellation,
    b: TaskConstellation,
    edits: Iterable[Mapping[str, Json]] = (),
    *,
    with_state: bool = False,
) -> Difference:
    """Return what must change in `a` to become `b`.

    Args:
        a: the older version.
        b: the newer version.
        edits: what led from one to the other, oldest first, each with `commands`, `by`, `why` (`EditApplied`'s fields).
        with_state: compare statuses and results as well.
    """
    credit = _credit(edits)
    tasks = _compare("task", _task_forms(a, with_state), _task_forms(b, with_state), credit)
    lines = _compare("dependency", _line_forms(a, with_state), _line_forms(b, with_state), credit)
    return Difference((*tasks, *lines))


def _task_forms(constellation: TaskConstellation, with_state: bool) -> dict[str, dict[str, Json]]:
    return {
        star.task_id: task_document(star) | (task_state(star) if with_state else {})
        for star in constellation.tasks.values()
    }


def _line_forms(constellation: TaskConstellation, with_state: bool) -> dict[str, dict[str, Json]]:
    return {
        line.line_id: line_document(line) | (line_state(line) if with_state else {})
        for line in constellation.lines.values()
    }


def _compare(
    what: Literal["task", "dependency"],
    old: Mapping[str, dict[str, Json]],
    new: Mapping[str, dict[str, Json]],
    credit: Mapping[str, tuple[str, str]],
) -> list[Item]:
    items = []
    for name in sorted({*old, *new}):
        by, why = credit.get(name, ("", ""))
        before, after = old.get(name), new.get(name)
        if before is None:
            items.append(Item("added", what, name, {}, by, why))
        elif after is None:
            items.append(Item("removed", what, name, {}, by, why))
        elif before != after:
            changed = {
                key: (before.get(key), after.get(key))
                for key in sorted({*before, *after})
                if before.get(key) != after.get(key)
            }
            items.append(Item("changed", what, name, changed, by, why))
    return items


def _credit(edits: Iterable[Mapping[str, Json]]) -> dict[str, tuple[str, str]]:
    credit: dict[str, tuple[str, str]] = {}
    for edit in edits:
        for command in edit.get("commands", ()):
            for name in _subjects(command):
                credit[name] = (str(edit.get("by", "")), str(edit.get("why", "")))
    return credit


def _subjects(command: Mapping[str, Json]) -> list[str]:
    names = [command.get("task_id"), command.get("line_id")]
    names.append((command.get("task") or {}).get("task_id"))
    line = command.get("dependency") or {}
    ends = (line.get("from_task_id", line.get("from")), line.get("to_task_id", line.get("to")))
    names.append(line.get("line_id") or (f"{ends[0]}->{ends[1]}" if ends[0] else None))
    document = command.get("document") or {}
    for item in document.get("tasks", ()):
        names.append(item.get("task_id"))
    for item in document.get("dependencies", ()):
        names.append(item.get("line_id") or f"{item.get('from_task_id')}->{item.get('to_task_id')}")
    return [name for name in names if name]
