"""An edit that a planner drafts for a running graph: serialised commands and their checks. Pure.

The editor refuses a bad edit anyway; these checks exist so that the model can be told what is wrong in one turn, and
know what only planners care about: that tools and devices exist. Called by planners and the constellation's agent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starloom.agents.drafts import step_problems
from starloom.agents.plans import DeviceProfile, PlannedStep
from starloom.constellation.problems import ConstellationError
from starloom.constellation.references import references_in
from starloom.processing.dispatch import Json

_STARTED = frozenset({"running", "completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Surprise:
    """One thing that calls for judgement: `failed unreachable asked message completed edit_refused empty`."""

    kind: str
    task_id: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EditDraft:
    """Commands for the editor, in its serialised form, applied as one; none: leave the graph as it is."""

    commands: tuple[dict[str, Json], ...] = field(default_factory=tuple)
    why: str = ""


def tasks_of(document: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """Return a document's tasks by id, whichever form it has."""
    tasks = document.get("tasks") or {}
    listed = tasks.values() if isinstance(tasks, Mapping) else tasks
    return {str(task["task_id"]): task for task in listed}


def edit_problems(draft: EditDraft, document: Mapping[str, Json], devices: Sequence[DeviceProfile]) -> tuple[str, ...]:
    """Return one line for each command that cannot be applied to this graph."""
    known = tasks_of(document)
    added = {
        str(command["task"].get("task_id")): command["task"]
        for command in draft.commands
        if command.get("command") == "add_task"
    }
    problems: list[str] = []
    for command in draft.commands:
        match command.get("command"):
            case "add_task":
                problems += _added_problems(command["task"], known, {*known, *added}, devices)
            case "update_task" | "remove_task":
                problems += _touched_problems(command, known, devices)
            case "add_dependency":
                problems += _line_problems(command["dependency"], known, added)
            case "remove_dependency":
                pass  # the editor knows the lines
            case other:
                problems.append(f"There is no command {other!r} for planners.")
    return tuple(dict.fromkeys(problems))


def planned_step(task: Mapping[str, Json]) -> PlannedStep:
    """Return a document's task as a step, to be checked like one."""
    call = task.get("task_data") or {}
    return PlannedStep(
        step_id=str(task.get("task_id", "")),
        name=str(task.get("name", "")),
        description=str(task.get("description", "")),
        device_id=task.get("target_device_id"),
        tool=call.get("tool"),
        arguments=call.get("arguments") or {},
    )


def _added_problems(
    task: Mapping[str, Json],
    known: Mapping[str, Mapping[str, Json]],
    all_ids: set[str],
    devices: Sequence[DeviceProfile],
) -> list[str]:
    step = planned_step(task)
    if step.step_id in known:
        return [f"The task id {step.step_id!r} is taken; choose another."]
    problems = step_problems(step, devices)
    try:
        unknown = references_in(step.description, step.arguments) - all_ids
    except ConstellationError as problem:
        return [*problems, f"Task {step.step_id}: {problem.message}"]
    return problems + [f"Task {step.step_id} refers to {name!r}, which is no task." for name in sorted(unknown)]


def _touched_problems(
    command: Mapping[str, Json], known: Mapping[str, Mapping[str, Json]], devices: Sequence[DeviceProfile]
) -> list[str]:
    task_id = str(command.get("task_id", ""))
    task = known.get(task_id)
    if task is None:
        return [f"There is no task {task_id!r} to change."]
    if task.get("status") in _STARTED:
        return [f"The task {task_id!r} has {task['status']} as its status and cannot be changed; add a new one."]
    if command["command"] == "remove_task":
        return []
    changed = {**task, **(command.get("changes") or {}), "task_id": task_id}
    return step_problems(planned_step(changed), devices)


def _line_problems(
    line: Mapping[str, Json], known: Mapping[str, Mapping[str, Json]], added: Mapping[str, Mapping[str, Json]]
) -> list[str]:
    problems = []
    for end in ("from_task_id", "to_task_id"):
        if line.get(end) not in known and line.get(end) not in added:
            problems.append(f"The dependency's {end} is {line.get(end)!r}, which is no task.")
    target = known.get(str(line.get("to_task_id")), {})
    if target.get("status") in _STARTED:
        problems.append(f"The task {line.get('to_task_id')!r} has started; nothing can be put before it.")
    return problems
