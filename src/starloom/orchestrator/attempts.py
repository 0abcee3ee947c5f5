"""Building an attempt: everything an executor needs, references resolved; called by the scheduler at dispatch."""

from starloom.constellation.enums import TaskStatus
from starloom.constellation.references import ReferenceProblem, resolve
from starloom.constellation.star import TaskStar
from starloom.ids import TaskId
from starloom.journal.events import Json
from starloom.orchestrator.ports import Attempt
from starloom.orchestrator.state import LiveAttempt, RunState


def build_attempt(state: RunState, star: TaskStar, live: LiveAttempt, default_timeout_s: float | None) -> Attempt:
    """Return the attempt.

    Raises:
        ReferenceProblem: the task refers to something that is not there.
    """
    spec = star.spec
    description, tips, task_data = spec.description, spec.tips, spec.task_data
    if spec.references:

        def lookup(task_id: str, part: str) -> Json:
            return _part(state, star, task_id, part)

        description = str(resolve(description, lookup))
        tips = tuple(str(tip) for tip in resolve(tips, lookup))
        task_data = resolve(task_data, lookup)
    return Attempt(
        run_id=state.run_id,
        task_id=star.task_id,
        number=live.number,
        attempt_id=live.attempt_id,
        device_id=live.device_id,
        name=spec.name,
        description=description,
        tips=tips,
        task_data=task_data,
        inputs=star.inputs(),
        timeout_s=spec.timeout if spec.timeout is not None else default_timeout_s,
        idempotent=spec.idempotent,
    )


def _part(state: RunState, star: TaskStar, task_id: str, part: str) -> Json:
    source = state.constellation.graph.tasks.get(TaskId(task_id))
    if source is None:
        raise ReferenceProblem(f"Task {star.task_id!r} refers to {task_id!r}, which does not exist.")
    if part == "status":
        return source.status.value
    if part == "error":
        return source.error
    if source.status is not TaskStatus.COMPLETED:
        raise ReferenceProblem(
            f"Task {star.task_id!r} needs the result of {task_id!r}, which is {source.status.value} and has none."
        )
    return source.result
