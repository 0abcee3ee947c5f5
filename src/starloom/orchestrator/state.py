"""The fold: what a run's events add up to. The scheduler, recovery and every reader of a run use this one function.

`RunState.apply` is total over the journal's union: events that say nothing about the run's state change nothing.
Replaying a run's events gives the state that the live run had, byte for byte in its canonical JSON (I8).
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from starloom.constellation.conditions import Callables, recorded_conditions
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.enums import CancelReason, TaskStatus
from starloom.ids import AttemptId, DeviceId, RunId, TaskId
from starloom.journal import events as e
from starloom.journal.events import Event, Recorded
from starloom.orchestrator.replanning import Surprise


class LiveAttempt(NamedTuple):
    """An attempt that has started and not ended."""

    task_id: TaskId
    number: int
    attempt_id: AttemptId
    device_id: DeviceId


class RunState:
    """One run: its graph, its live attempts, whether starts are held."""

    def __init__(self, run_id: RunId, callables: Callables | None = None) -> None:
        self.run_id = run_id
        self.callables = callables
        self.constellation = TaskConstellation("", callables=callables)
        self.editor = ConstellationEditor(self.constellation)
        self.is_paused = False
        self.is_cancelled = False
        self.has_graph = False
        self.has_opened = False  # its first edit, the graph it began with, was made
        self.is_over = False
        self.ended: e.RunEnded | None = None
        self.live: dict[TaskId, LiveAttempt] = {}
        self.backing_off: dict[TaskId, float] = {}  # task → seconds until its next attempt, from when it failed
        self.unanswered: list[Surprise] = []  # what a planner would be asked about, since its last edit
        self.planner_edits = 0
        self.missing: dict[TaskId, str] = {}  # ready task → what no connected device has

    def adopt(self, constellation: TaskConstellation, editor: ConstellationEditor | None = None) -> None:
        """Take a graph that exists already as the run's own, before its events are written."""
        self.constellation = constellation
        self.editor = editor or ConstellationEditor(constellation)

    def apply(self, event: Event, at: datetime | None = None) -> None:
        """Move on by one event."""
        change = _CHANGES.get(type(event))
        if change is not None:
            change(self, event, at)


def fold(run_id: RunId, recorded: Iterable[Recorded], callables: Callables | None = None) -> RunState:
    """Return the state that these events of one run add up to."""
    state = RunState(run_id, callables)
    for item in recorded:
        state.apply(item.event, item.at)
    return state


def _graph_started(state: RunState, event: e.ConstellationStarted, _at: datetime | None) -> None:
    state.has_graph = True
    if not state.constellation.task_count:
        state.constellation.constellation_id = event.constellation_id
        state.constellation.name = event.name


def _edited(state: RunState, event: e.EditApplied, _at: datetime | None) -> None:
    is_opening, state.has_opened = not state.has_opened, True
    if event.by == "planner":
        state.planner_edits += 1
        state.unanswered.clear()
    if event.version <= state.constellation.version:
        return  # the live editor has made it already
    with recorded_conditions():
        match event.action:
            case "undo":
                state.editor.undo(event.by)
            case "redo":
                state.editor.redo(event.by)
            case _:
                state.editor.batch(event.commands, by=event.by, why=event.why)
    if is_opening:
        state.editor.clear_history()  # a run begins with its graph; there is nothing before it to go back to
    state.constellation.version = event.version


def _started(state: RunState, event: e.TaskStarted, at: datetime | None) -> None:
    task_id = TaskId(event.task_id)
    state.constellation.start_task(task_id, at, event.attempt)
    state.missing.pop(task_id, None)
    state.live[task_id] = LiveAttempt(task_id, event.attempt, AttemptId(event.attempt_id), DeviceId(event.device_id))


def _completed(state: RunState, event: e.TaskCompleted, at: datetime | None) -> None:
    task_id = TaskId(event.task_id)
    state.live.pop(task_id, None)
    state.constellation.end_task(task_id, TaskStatus.COMPLETED, result=event.result, at=at)


def _failed(state: RunState, event: e.TaskFailed, at: datetime | None) -> None:
    task_id = TaskId(event.task_id)
    state.live.pop(task_id, None)
    state.backing_off.pop(task_id, None)
    state.missing.pop(task_id, None)
    state.constellation.end_task(task_id, TaskStatus.FAILED, error=event.error, at=at)
    state.unanswered.append(Surprise("failed", task_id, event.error))


def _task_cancelled(state: RunState, event: e.TaskCancelled, at: datetime | None) -> None:
    task_id = TaskId(event.task_id)
    state.live.pop(task_id, None)
    state.backing_off.pop(task_id, None)
    state.missing.pop(task_id, None)
    reason = CancelReason(event.reason)
    state.constellation.end_task(task_id, TaskStatus.CANCELLED, reason=reason, detail=event.detail, at=at)
    if reason is CancelReason.UNREACHABLE:
        state.unanswered.append(Surprise("unreachable", task_id, event.detail))


def _retrying(state: RunState, event: e.TaskRetrying, _at: datetime | None) -> None:
    task_id = TaskId(event.task_id)
    state.live.pop(task_id, None)
    state.backing_off[task_id] = event.delay_s
    state.constellation.retry_task(task_id, event.error)


def _ready(state: RunState, event: e.TaskReady, _at: datetime | None) -> None:
    state.backing_off.pop(TaskId(event.task_id), None)


def _waiting(state: RunState, event: e.TaskWaiting, _at: datetime | None) -> None:
    state.missing[TaskId(event.task_id)] = event.reason


def _edge(state: RunState, event: e.EdgeDecided, _at: datetime | None) -> None:
    state.constellation.decide_line(event.line_id, event.satisfied, event.error)


def _paused(state: RunState, _event: e.RunPaused, _at: datetime | None) -> None:
    state.is_paused = True


def _resumed(state: RunState, event: e.RunResumed, _at: datetime | None) -> None:
    if event.by != "recovery":
        state.is_paused = False


def _cancelled(state: RunState, _event: e.RunCancelled, _at: datetime | None) -> None:
    state.is_cancelled = True
    state.constellation.run_is_cancelled = True


def _over(state: RunState, _event: Event, _at: datetime | None) -> None:
    state.is_over = True


def _ended(state: RunState, event: e.RunEnded, _at: datetime | None) -> None:
    state.is_over = True
    state.ended = event


_CHANGES: dict[type[Event], Callable[[RunState, Any, datetime | None], None]] = {
    e.ConstellationStarted: _graph_started,
    e.EditApplied: _edited,
    e.TaskReady: _ready,
    e.TaskWaiting: _waiting,
    e.TaskStarted: _started,
    e.TaskCompleted: _completed,
    e.TaskFailed: _failed,
    e.TaskCancelled: _task_cancelled,
    e.TaskRetrying: _retrying,
    e.EdgeDecided: _edge,
    e.RunPaused: _paused,
    e.RunResumed: _resumed,
    e.RunCancelled: _cancelled,
    e.ConstellationCompleted: _over,
    e.ConstellationFailed: _over,
    e.RunEnded: _ended,
}
