"""How things end and go on: retries, stop reasons, results, what a task waits for; pure, for the scheduler."""

import hashlib
from dataclasses import dataclass, field, replace

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import canonical_json
from starloom.constellation.enums import ConstellationState, EdgeOutcome, TaskStatus
from starloom.constellation.star import TaskStar
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.events import Json
from starloom.orchestrator.assignment import Assignment
from starloom.orchestrator.ports import Failed
from starloom.orchestrator.settings import InDoubt, RunSettings
from starloom.orchestrator.state import LiveAttempt, RunState


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `result` holds the results of the completed tasks that nothing depends on."""

    run_id: RunId
    state: ConstellationState
    stop_reason: str
    constellation: TaskConstellation = field(repr=False)
    statistics: dict[str, Json] = field(repr=False)
    error: str | None = None
    result: dict[str, Json] = field(default_factory=dict)


def retry_delay(star: TaskStar, outcome: Failed, settings: RunSettings, *, is_lost: bool) -> float | None:
    """Return the seconds until the next attempt of a failed task; None when it has failed for good.

    Repeated is what is marked idempotent, or failed in passing without doubt about its effect. A lost device does not
    use up the retries of a task that may be repeated. What someone decided to try again is tried again.
    """
    if outcome.again:
        return 0.0
    spec = star.spec
    may_repeat = spec.idempotent or (outcome.transient and not outcome.in_doubt)
    tries = spec.retry_count + (settings.device_losses if is_lost else 0)
    if not may_repeat or star.current_retry >= tries:
        return None
    if is_lost:
        return 0.0
    growth: float = settings.retry_factor ** min(star.current_retry, 64)
    return min(settings.retry_delay_s * growth, settings.retry_max_delay_s)


def gives_up_lost(state: RunState, live: LiveAttempt, settings: RunSettings) -> bool:
    """Whether an attempt on a device that stays away is given up, so that another device can take an idempotent task.

    When doubt is put to a person, whoever performs the attempt does so, and goes on when the device comes back.
    """
    return settings.in_doubt is not InDoubt.ASK or state.constellation.get_task(live.task_id).spec.idempotent


def stop_reason(constellation: TaskConstellation, unplaced: int) -> tuple[str, str | None]:
    """Return why the run is over and its error in words; `unplaced` tasks failed because nothing could run them."""
    final = constellation.state
    if final is ConstellationState.COMPLETED:
        return "finished", None
    if final is ConstellationState.CANCELLED:
        return "cancelled", None
    if final is ConstellationState.CREATED:
        return "nothing_can_run", "The constellation has no task."
    failures = [star for star in constellation.in_insertion_order() if star.status is TaskStatus.FAILED]
    error = f"{failures[0].task_id}: {failures[0].error}"
    if len(failures) > 1:
        error += f" (and {len(failures) - 1} more)"
    if unplaced == len(failures) and final is ConstellationState.FAILED:
        return "nothing_can_run", error
    return final.value, error


def sealed(event: e.RunEnded, constellation: TaskConstellation) -> e.RunEnded:
    """Return the end with the digest of the graph as it ended, by which a replay can prove itself (I8)."""
    return replace(event, digest=digest(constellation))


def digest(constellation: TaskConstellation) -> str:
    """Return the SHA-256 of the graph's canonical JSON."""
    return hashlib.sha256(canonical_json(constellation).encode("utf-8", "surrogatepass")).hexdigest()


def end_event(constellation: TaskConstellation, reason: str, error: str | None, figures: dict[str, Json]) -> e.Event:
    """Return the event that tells how the constellation ended."""
    final = constellation.state
    if final is ConstellationState.COMPLETED:
        return e.ConstellationCompleted(constellation.constellation_id, final.value, figures)
    return e.ConstellationFailed(constellation.constellation_id, final.value, error or reason, figures)


def final_results(constellation: TaskConstellation) -> dict[str, Json]:
    """Return the results of the completed tasks that nothing depends on."""
    return {
        star.task_id: star.result
        for star in constellation.in_insertion_order()
        if star.status is TaskStatus.COMPLETED and not star.lines_out
    }


def why_waiting(state: RunState, assignment: Assignment, star: TaskStar) -> str:
    """Return what an unfinished task waits for: an edge, a device, a retry, a pause (I7)."""
    task_id = star.task_id
    if task_id in state.live:
        return f"running on {state.live[task_id].device_id}"
    if task_id not in state.constellation.ready:
        for line in star.lines_in:
            if line.outcome is EdgeOutcome.PENDING:
                return f"waiting for {line.from_task_id} ({line.line_id})"
        return "being settled"
    if state.is_paused:
        return "ready; the run is paused"
    if state.backing_off.get(task_id):
        return f"waiting {state.backing_off[task_id]:g} s before attempt {star.attempt + 1}"
    if reason := assignment.lacks(task_id):
        return f"ready; {reason}"
    if assignment.is_queued(task_id):
        return "ready; its device is busy or the run's limit is reached"
    return "being settled"
