"""Documents: constellations read from and written to JSON and YAML.

For the CLI, the session and recipes; `dialects` knows the forms. Written is upstream's engine form plus
`schema_version`, without the fields that are at their default, or a tidy YAML recipe; `canonical_json` is what a
replay is compared by: sorted, compact, without times.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from starloom.constellation.changes import Change
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.dialects import (
    SCHEMA_VERSION,
    Normal,
    as_object,
    content,
    line_document,
    normalise,
    task_document,
)
from starloom.constellation.enums import CancelReason, DependencyType, EdgeOutcome, TaskStatus
from starloom.constellation.line import TaskStarLine
from starloom.constellation.parsing import parse, read_text
from starloom.constellation.problems import ConstellationError, DocumentError
from starloom.constellation.star import TaskStar


def read_document(text: str | bytes, *, where: str = "document") -> dict[str, Any]:
    """Return the plain object that JSON or YAML text holds.

    Raises:
        DocumentError: naming line and column.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            raise DocumentError(f"{where} is not UTF-8 text (byte {problem.start}).") from problem
    return as_object(parse(text, where), where)


def read_file(path: str | Path) -> dict[str, Any]:
    """Return the plain object that a JSON or YAML file holds.

    Raises:
        DocumentError: naming the file, line and column.
    """
    text, is_yaml = read_text(Path(path))
    return as_object(parse(text, str(path), is_yaml=is_yaml or None), str(path))


def build(document: Mapping[str, Any], *, where: str = "document") -> TaskConstellation:
    """Return the constellation of a document of any dialect, with the states of its ended tasks.

    Raises:
        DocumentError: naming the place; a cycle is named by its tasks.
    """
    normal = normalise(document, where)
    constellation = TaskConstellation(normal.document.get("constellation_id"))
    try:
        assemble(constellation, normal, [], with_state=True)
    except DocumentError:
        raise
    except ConstellationError as problem:
        raise DocumentError(f"{where}: {problem.message}") from problem
    constellation.version = 1
    return constellation


def load(path: str | Path) -> TaskConstellation:
    """Return the constellation of a JSON or YAML file.

    Raises:
        DocumentError: naming the file and the place.
    """
    return build(read_file(path), where=str(path))


def assemble(constellation: TaskConstellation, normal: Normal, changes: list[Change], *, with_state: bool) -> None:
    """Add a normal document to a constellation, in bulk; what was done is appended to `changes`.

    Raises:
        ConstellationError: refused; the changes made so far are in `changes`, for the caller to roll back.
    """
    made = content(normal)
    if made.about is not None:
        _do(constellation, changes, Change("set_about", None, made.about))
    for star in made.stars:
        _do(constellation, changes, Change("add_task", star))
    constellation.graph.defer_order()
    try:
        for line in made.lines:
            _do(constellation, changes, Change("add_line", line))
    finally:
        constellation.graph.resume_order()
    constellation.graph.order_all()
    if with_state:
        constellation.check_references(changes)
        for item, star in zip(normal.document["tasks"], made.stars, strict=True):
            if "status" in item:
                _restore(constellation, star, item)
        for item, line in zip(normal.document["dependencies"], made.lines, strict=True):
            if "outcome" in item and line.line_id in constellation.undecided:
                satisfied = item["outcome"] == EdgeOutcome.SATISFIED.value
                constellation.decide_line(line.line_id, satisfied, item.get("error"))


def _do(constellation: TaskConstellation, changes: list[Change], change: Change) -> None:
    change.apply(constellation)
    changes.append(change)


def _restore(constellation: TaskConstellation, star: TaskStar, item: Mapping[str, Any]) -> None:
    reason = item.get("cancel_reason")
    constellation.restore_task(
        star,
        TaskStatus(item["status"]),
        result=item.get("result"),
        error=item.get("error"),
        reason=None if reason is None else CancelReason(reason),
        detail=item.get("detail", ""),
        attempt=item.get("attempt", 0),
        current_retry=item.get("current_retry", 0),
    )


def to_document(constellation: TaskConstellation) -> dict[str, Any]:
    """Return upstream's engine form (A) plus `schema_version`; ids and statuses always, defaults left out."""
    lines = sorted(constellation.graph.lines.values(), key=lambda line: line.position)
    return {
        "schema_version": SCHEMA_VERSION,
        "constellation_id": constellation.constellation_id,
        "name": constellation.name,
        "state": constellation.state.value,
        "version": constellation.version,
        "tasks": {star.task_id: _task_form(star) for star in constellation.in_insertion_order()},
        "dependencies": {line.line_id: _line_form(line) for line in lines},
        "metadata": constellation.metadata,
    }


def _task_form(star: TaskStar) -> dict[str, Any]:
    form = {
        "name": star.name,
        "description": star.description,
        "priority": star.priority.value,
        **task_document(star),
        **task_state(star),
    }
    for name in ("execution_start_time", "execution_end_time"):
        moment: datetime | None = getattr(star, name)
        if moment is not None:
            form[name] = moment.isoformat()
    return form


def task_state(star: TaskStar) -> dict[str, Any]:
    """Return what has happened to a task, without times; only what there is to say."""
    state: dict[str, Any] = {"status": star.status.value}
    if star.result is not None:
        state["result"] = star.result
    if star.error is not None:
        state["error"] = star.error
    if star.attempt:
        state["attempt"] = star.attempt
    if star.current_retry:
        state["current_retry"] = star.current_retry
    if star.cancel_reason is not None:
        state["cancel_reason"] = star.cancel_reason.value
        state["detail"] = star.detail
    return state


def _line_form(line: TaskStarLine) -> dict[str, Any]:
    form = {"dependency_type": line.dependency_type.value, **line_document(line), **line_state(line)}
    form["is_satisfied"] = line.is_satisfied
    return form


def line_state(line: TaskStarLine) -> dict[str, Any]:
    """Return what an edge has come to; empty while it is pending."""
    state: dict[str, Any] = {}
    if line.outcome is not EdgeOutcome.PENDING:
        state["outcome"] = line.outcome.value
    if line.error is not None:
        state["error"] = line.error
    return state


def canonical_json(constellation: TaskConstellation) -> str:
    """Return the one text of a graph, its states and results: sorted, compact, without times. Source: I8."""
    form = {
        "constellation_id": constellation.constellation_id,
        "name": constellation.name,
        "metadata": constellation.metadata,
        "state": constellation.state.value,
        "version": constellation.version,
        "tasks": {
            star.task_id: {**task_document(star), **task_state(star)} for star in constellation.graph.tasks.values()
        },
        "dependencies": {
            line.line_id: {**line_document(line), **line_state(line)} for line in constellation.graph.lines.values()
        },
    }
    return json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def to_json(constellation: TaskConstellation) -> str:
    """Return the document as compact JSON text."""
    return json.dumps(to_document(constellation), ensure_ascii=False, separators=(",", ":"))


def to_recipe(constellation: TaskConstellation) -> dict[str, Any]:
    """Return a tidy list form without states: what a person reads and changes.

    A plain `success_only` edge becomes `after: [ids]` on its target.
    """
    lines = sorted(constellation.graph.lines.values(), key=lambda line: line.position)
    after: dict[str, list[str]] = {}
    dependencies = []
    for line in lines:
        form = line_document(line)
        short = {"from": form.pop("from_task_id"), "to": form.pop("to_task_id")}
        if form.get("line_id", "").startswith(f"{line.from_task_id}->{line.to_task_id}"):
            del form["line_id"]
        if form == {"dependency_type": DependencyType.SUCCESS_ONLY.value}:
            after.setdefault(line.to_task_id, []).append(line.from_task_id)
            continue
        if "dependency_type" in form:
            short["type"] = form.pop("dependency_type")
        dependencies.append({**short, **form})
    tasks = []
    for star in constellation.in_insertion_order():
        task: dict[str, Any] = {"task_id": star.task_id}
        if star.task_id in after:
            task["after"] = after[star.task_id]
        tasks.append({**task, **task_document(star)})
    recipe: dict[str, Any] = {"name": constellation.name or constellation.constellation_id, "tasks": tasks}
    if dependencies:
        recipe["dependencies"] = dependencies
    if constellation.metadata:
        recipe["metadata"] = constellation.metadata
    return recipe


def to_yaml(constellation: TaskConstellation) -> str:
    """Return the recipe as YAML text."""
    import yaml  # only who writes YAML pays for it

    text: str = yaml.safe_dump(to_recipe(constellation), sort_keys=False, allow_unicode=True, width=120)
    return text


def save(constellation: TaskConstellation, path: str | Path) -> None:
    """Write the constellation: a YAML recipe for `.yaml` and `.yml`, else JSON; whole or not at all.

    Raises:
        DocumentError: the file cannot be written; what was there is unchanged.
    """
    path = Path(path)
    text = to_yaml(constellation) if path.suffix.lower() in {".yaml", ".yml"} else to_json(constellation) + "\n"
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as problem:
        raise DocumentError(f"{path} cannot be written: {problem.strerror}.", path=str(path)) from problem


def normal_document(constellation: TaskConstellation) -> dict[str, Any]:
    """Return the document in normal form with the states of ended tasks: what the journal stores of an import."""
    lines = sorted(constellation.graph.lines.values(), key=lambda line: line.position)
    normal: dict[str, Any] = {
        "constellation_id": constellation.constellation_id,
        "tasks": [
            {**task_document(star), **(task_state(star) if star.status.is_terminal else {})}
            for star in constellation.in_insertion_order()
        ],
        "dependencies": [{**line_document(line), **line_state(line)} for line in lines],
    }
    if constellation.name:
        normal["name"] = constellation.name
    if constellation.metadata:
        normal["metadata"] = constellation.metadata
    return normal
