"""A planner's draft: checked against what is connected, shown, and turned into one document for the editor. Pure.

Nothing of a draft has happened yet. `draft_problems` is what planners re-ask with and what the constellation's agent
refuses with; the same checks hold for every planner.
"""

import json
import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from starloom.agents.arguments import call_problems
from starloom.agents.plans import DeviceProfile, PlanDraft, PlannedStep, ToolProfile
from starloom.constellation.problems import ConstellationError
from starloom.constellation.references import references_in
from starloom.processing.dispatch import Json

_SHOWN_CHARACTERS = 120
_WHOLE_RESULT = re.compile(r'"\{\{ *tasks\.([\w-]+)\.result *\}\}"')


def draft_problems(draft: PlanDraft, devices: Sequence[DeviceProfile]) -> tuple[str, ...]:
    """Return one line for each thing that keeps a draft from running; empty when it can, or is a refusal."""
    if draft.refusal is not None:
        return ()
    if not draft.steps:
        return ("The plan has no steps.",)
    problems = _id_problems(draft.steps)
    for step in draft.steps:
        problems += step_problems(step, devices)
    problems += _order_problems(draft.steps)
    return tuple(dict.fromkeys(problems))


def step_problems(step: PlannedStep, devices: Sequence[DeviceProfile]) -> list[str]:
    """Return what is wrong with a step by itself: its device, its tool, its arguments."""
    place = f"Step {step.step_id}"
    chosen = [device for device in devices if step.device_id in (None, device.device_id)]
    if not chosen:
        names = ", ".join(device.device_id for device in devices) or "none"
        return [f"{place}: there is no device {step.device_id!r}; connected: {names}."]
    if step.tool is None:
        if not step.description.strip():
            return [f"{place}: it has neither a tool nor a description."]
        if not any(device.has_agent for device in chosen):
            return [f"{place}: {_named(chosen)} cannot pursue a goal in words; name a tool."]
        return []
    offering = [device for device in chosen if any(tool.name == step.tool for tool in device.tools)]
    tools: Sequence[ToolProfile] = (offering or chosen)[0].tools
    return [f"{place}: {line}" for line in call_problems(step.tool, step.arguments, tools, references=True)]


def references_of(step: PlannedStep) -> frozenset[str]:
    """Return the ids of the steps whose results a step refers to, in its words or its arguments.

    Raises:
        ReferenceProblem: something is written like a reference and is none.
    """
    return references_in(step.description, step.arguments)


def draft_document(draft: PlanDraft, *, name: str) -> dict[str, Json]:
    """Return the draft as a constellation document (form A): every task pending, every edge `success_only`.

    References become edges too, whether or not the planner listed them. The draft must have no problems.
    """
    tasks = {step.step_id: _task(step) for step in draft.steps}
    lines = {}
    for step in draft.steps:
        for before in dict.fromkeys([*step.depends_on, *sorted(references_of(step))]):
            line_id = f"{before}->{step.step_id}"
            lines[line_id] = {
                "line_id": line_id,
                "from_task_id": before,
                "to_task_id": step.step_id,
                "dependency_type": "success_only",
            }
    return {"name": name, "tasks": tasks, "dependencies": lines}


def draft_summary(draft: PlanDraft) -> list[str]:
    """Return one line a step, for the person who decides whether it may run."""
    return [_line(step) for step in draft.steps]


def _task(step: PlannedStep) -> dict[str, Json]:
    task: dict[str, Json] = {
        "task_id": step.step_id,
        "name": step.name or step.step_id,
        "description": step.description,
    }
    if step.device_id is not None:
        task["target_device_id"] = step.device_id
    if step.tool is not None:
        task["task_data"] = {"tool": step.tool, "arguments": dict(step.arguments)}
    return task


def _line(step: PlannedStep) -> str:
    where = step.device_id or "any device"
    what = f"{step.tool}({_shown(step.arguments)})" if step.tool is not None else f"goal: {step.description}"
    after = f"  after {', '.join(step.depends_on)}" if step.depends_on else ""
    text = f"{step.step_id}  {where}  {what}"
    return (text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…") + after


def _shown(arguments: Mapping[str, Json]) -> str:
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return _WHOLE_RESULT.sub(r"\1", shown)  # a step's whole result is shown by the step's name


def _id_problems(steps: Sequence[PlannedStep]) -> list[str]:
    problems = []
    seen: set[str] = set()
    for step in steps:
        if not step.step_id or not step.step_id.replace("_", "").replace("-", "").isalnum():
            problems.append(f"Step id {step.step_id!r}: use letters, digits, _ and - only.")
        if step.step_id in seen:
            problems.append(f"Step id {step.step_id!r} comes twice.")
        seen.add(step.step_id)
    return problems


def _order_problems(steps: Sequence[PlannedStep]) -> list[str]:
    """Return what is wrong between steps: what they wait for and refer to, and cycles."""
    known = {step.step_id for step in steps}
    problems = []
    waits: dict[str, set[str]] = {}
    for step in steps:
        try:
            referred = references_of(step)
        except ConstellationError as problem:
            problems.append(f"Step {step.step_id}: {problem.message}")
            continue
        for before in sorted({*step.depends_on, *referred} - known):
            problems.append(f"Step {step.step_id}: it names the step {before!r}, which does not exist.")
        waits[step.step_id] = {*step.depends_on, *referred} & known
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as cycle:
        problems.append(f"The steps wait for each other in a circle: {' → '.join(cycle.args[1])}.")
    return problems


def _named(devices: Sequence[DeviceProfile]) -> str:
    return " and ".join(device.device_id for device in devices)
