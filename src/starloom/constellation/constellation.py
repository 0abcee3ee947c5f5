"""`TaskConstellation`: the graph and its state, with one writer; counters instead of searches.

Structure is changed by the editor (`changes` below are its only way in), statuses by whoever runs it: the
orchestrator's fold, or a person with `start_task` and `mark_task_completed`. Both keep the same counters: how many
incoming edges of a task are pending and how many can never be satisfied (`ledger`).

Source: constellation.md, Model, Edges, Invariants.
"""

import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from starloom.constellation.changes import Change, roll_back
from starloom.constellation.conditions import Callables, holds
from starloom.constellation.enums import (
    CancelReason,
    ConstellationState,
    EdgeOutcome,
    TaskStatus,
)
from starloom.constellation.graph import Graph
from starloom.constellation.ledger import Ledger
from starloom.constellation.line import TaskStarLine
from starloom.constellation.problems import ConstellationError, EditError
from starloom.constellation.star import TaskStar
from starloom.constellation.values import Json
from starloom.ids import LineId, TaskId


class TaskConstellation:
    """A directed acyclic graph of tasks.

    Args:
        constellation_id: made when not given.
        name: for people.
        metadata: free notes, JSON.
        callables: registered Python conditions, by the name that `call:NAME` uses.
    """

    def __init__(
        self,
        constellation_id: str | None = None,
        name: str = "",
        metadata: Mapping[str, Any] | None = None,
        callables: Callables | None = None,
    ) -> None:
        self.constellation_id = constellation_id or f"constellation_{uuid.uuid4().hex[:12]}"
        self.name = name
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.callables: Callables = dict(callables or {})
        self.version = 0
        self.graph = Graph()
        self.ledger = Ledger()
        self.run_is_cancelled = False

    # Reading

    @property
    def tasks(self) -> Mapping[TaskId, TaskStar]:
        """Every task by id; a live view."""
        return MappingProxyType(self.graph.tasks)

    @property
    def lines(self) -> Mapping[LineId, TaskStarLine]:
        """Every edge by id; a live view."""
        return MappingProxyType(self.graph.lines)

    dependencies = lines

    @property
    def task_count(self) -> int:
        """How many tasks there are."""
        return len(self.graph.tasks)

    @property
    def dependency_count(self) -> int:
        """How many edges there are."""
        return len(self.graph.lines)

    @property
    def counts(self) -> Mapping[TaskStatus, int]:
        """How many tasks have each status; a live view."""
        return MappingProxyType(self.ledger.counts)

    @property
    def unfinished_count(self) -> int:
        """How many tasks have not ended."""
        counts = self.ledger.counts
        ended = counts[TaskStatus.COMPLETED] + counts[TaskStatus.FAILED] + counts[TaskStatus.CANCELLED]
        return len(self.graph.tasks) - ended

    @property
    def state(self) -> ConstellationState:
        """The state, computed from the counters and the run."""
        counts, total = self.ledger.counts, len(self.graph.tasks)
        completed, failed, cancelled = (
            counts[TaskStatus.COMPLETED],
            counts[TaskStatus.FAILED],
            counts[TaskStatus.CANCELLED],
        )
        ended = completed + failed + cancelled
        if ended == total:
            if self.run_is_cancelled and (cancelled or not total):
                return ConstellationState.CANCELLED
            if not total:
                return ConstellationState.CREATED
            if failed:
                return ConstellationState.PARTIALLY_FAILED if completed else ConstellationState.FAILED
            return ConstellationState.COMPLETED if completed else ConstellationState.CANCELLED
        started = ended or counts[TaskStatus.RUNNING] or self.run_is_cancelled
        return ConstellationState.EXECUTING if started else ConstellationState.READY

    def get_task(self, task_id: str) -> TaskStar:
        """Return the task.

        Raises:
            EditError: there is none of this id.
        """
        star = self.graph.tasks.get(TaskId(task_id))
        if star is None:
            raise EditError(f"There is no task {task_id!r}.")
        return star

    def get_dependency(self, line_id: str) -> TaskStarLine:
        """Return the edge.

        Raises:
            EditError: there is none of this id.
        """
        line = self.graph.lines.get(LineId(line_id))
        if line is None:
            raise EditError(f"There is no dependency {line_id!r}.")
        return line

    def get_ready_tasks(self) -> list[TaskStar]:
        """Return the tasks that may start now: highest priority first, then in order of insertion."""
        return sorted(self.ready.values(), key=lambda star: (-star._spec.priority, star._position))

    def get_topological_order(self) -> list[TaskId]:
        """Return every task's id, sources first."""
        return [star._task_id for star in self.graph.in_order()]

    def in_insertion_order(self) -> Iterator[TaskStar]:
        """Yield the tasks in the order they were first added, whatever was undone since."""
        return iter(sorted(self.graph.tasks.values(), key=lambda star: star._position))

    @property
    def ready(self) -> dict[TaskId, TaskStar]:
        """The tasks that may start now, by id; a live view."""
        return self.ledger.ready

    @property
    def undecided(self) -> dict[LineId, TaskStarLine]:
        """The conditional edges whose condition is to be asked; a live view."""
        return self.ledger.undecided

    @property
    def doomed(self) -> dict[TaskId, TaskStar]:
        """The unstarted tasks that can never start, to be cancelled; a live view."""
        return self.ledger.doomed

    # Structure: each in one checked, counted step of its own. The editor adds history to the same steps.

    def add_task(self, star: TaskStar) -> None:
        """Add a task.

        Raises:
            EditError: its id is taken, or it refers to a task that is not its ancestor.
        """
        self._alone(Change("add_task", star))

    def add_dependency(self, line: TaskStarLine) -> None:
        """Add an edge; one from an ended task takes effect at once.

        Raises:
            EditError: an end is missing or has started, the id is taken, or it would close a cycle.
        """
        self._alone(Change("add_line", line))

    def remove_dependency(self, line_id: str) -> None:
        """Remove an edge whose target has not started.

        Raises:
            EditError: there is none, its target has started, or a reference needs it.
        """
        self._alone(Change("remove_line", self.get_dependency(line_id)))

    def remove_task(self, task_id: str) -> None:
        """Remove an unstarted task and its edges.

        Raises:
            EditError: there is none, it has started, or a reference needs it.
        """
        star = self.get_task(task_id)
        self._alone(
            *(Change("remove_line", line) for line in (*star.lines_in, *star.lines_out)), Change("remove_task", star)
        )

    def _alone(self, *changes: Change) -> None:
        done: list[Change] = []
        position = self.ledger.last_position
        try:
            for change in changes:
                change.apply(self)
                done.append(change)
            self.check_references(done)
        except ConstellationError:
            roll_back(self, done, position)
            raise
        self.version += 1

    def check_references(self, changes: list[Change]) -> None:
        """Refuse when a task now refers to one that is not its ancestor; cost is that of the change.

        Raises:
            EditError: naming the task and the reference.
        """
        if not self.ledger.referencing:
            return
        loses = any(change.kind in {"remove_task", "remove_line"} for change in changes)
        suspects: list[TaskStar] = (
            [star for star in self.ledger.referencing.values() if not star.has_started]
            if loses
            else [change.star for change in changes if change.star is not None and change.star._spec.references]
        )
        for star in suspects:
            if star._task_id not in self.graph.tasks:
                continue
            missing = self.graph.is_ancestor(star._spec.references, star)
            if missing is not None:
                raise EditError(
                    f"Task {star._task_id!r} refers to {{{{ tasks.{missing} }}}}, but no such task is before it; "
                    f"add a dependency from {missing!r} to {star._task_id!r}."
                )

    # Statuses

    def start_task(self, task_id: str, at: datetime | None = None, attempt: int | None = None) -> TaskStar:
        """Mark a ready task as running and return it.

        Raises:
            ConstellationError: it is not ready.
        """
        star = self.get_task(task_id)
        if star._task_id not in self.ready:
            raise ConstellationError(f"Task {task_id!r} is {star._status.value}; only a ready task can start.")
        del self.ready[star._task_id]
        self.ledger.set_status(star, TaskStatus.RUNNING)
        star._attempt = star._attempt + 1 if attempt is None else attempt
        star._started_at, star._ended_at = at, None
        return star

    def end_task(
        self,
        task_id: str,
        status: TaskStatus,
        *,
        result: Json = None,
        error: str | None = None,
        reason: CancelReason | None = None,
        detail: str = "",
        at: datetime | None = None,
    ) -> TaskStar:
        """End a task for good; edges out of it are decided, conditional ones become `undecided`.

        Raises:
            ConstellationError: it has ended already, or completes without having started.
        """
        star = self.get_task(task_id)
        if star._status.is_terminal:
            raise ConstellationError(f"Task {task_id!r} is {star._status.value} already; a second end changes nothing.")
        if status is TaskStatus.COMPLETED and star._status is not TaskStatus.RUNNING:
            raise ConstellationError(f"Task {task_id!r} is {star._status.value}; only a running task can complete.")
        star._result, star._error, star._cancel_reason = result, error, reason
        star._detail, star._ended_at = detail, at
        self.ledger.end(star, status)
        return star

    def retry_task(self, task_id: str, error: str) -> TaskStar:
        """Put a running task back to pending for another attempt; it stays immutable, having started."""
        star = self.get_task(task_id)
        if star._status is not TaskStatus.RUNNING:
            raise ConstellationError(f"Task {task_id!r} is {star._status.value}; only a running task can be retried.")
        self.ledger.set_status(star, TaskStatus.PENDING)
        star._current_retry += 1
        star._error = error
        self.ledger.settle(star)
        return star

    def restore_task(
        self,
        star: TaskStar,
        status: TaskStatus,
        *,
        result: Json = None,
        error: str | None = None,
        reason: CancelReason | None = None,
        detail: str = "",
        attempt: int = 0,
        current_retry: int = 0,
    ) -> None:
        """Take over the end of a task from a document."""
        star._attempt, star._current_retry = attempt, current_retry
        if status is TaskStatus.COMPLETED:
            self.ledger.set_status(star, TaskStatus.RUNNING)
        self.end_task(star._task_id, status, result=result, error=error, reason=reason, detail=detail)

    def ask_condition(self, line: TaskStarLine) -> tuple[bool, str | None]:
        """Return what the condition of an undecided edge says, and the error when it could not; changes nothing."""
        source, condition = line._source, line._spec.condition
        if source is None or condition is None:
            raise ConstellationError(f"Dependency {line.line_id!r} has no condition to ask.")
        try:
            return holds(condition, source._status.value, source._result, source._error, self.callables), None
        except ConstellationError as problem:
            return False, problem.message

    def decide_line(self, line_id: str, satisfied: bool, error: str | None = None) -> None:
        """Record what an undecided edge has come to."""
        line = self.get_dependency(line_id)
        self.undecided.pop(line._line_id, None)
        line._error = error
        self.ledger.decide(line, EdgeOutcome.SATISFIED if satisfied else EdgeOutcome.UNSATISFIABLE)

    def mark_task_completed(
        self,
        task_id: str,
        success: bool = True,
        result: Json = None,
        error: str | None = None,
        at: datetime | None = None,
    ) -> list[TaskStar]:
        """End a running task, decide its edges, cancel what became unreachable; return what became ready.

        For use without an orchestrator. A ready task is started first.
        """
        if TaskId(task_id) in self.ready:
            self.start_task(task_id, at)
        status = TaskStatus.COMPLETED if success else TaskStatus.FAILED
        self.end_task(task_id, status, result=result, error=error, at=at)
        return self.settle(at)

    def settle(self, at: datetime | None = None) -> list[TaskStar]:
        """Ask every undecided condition and cancel everything unreachable; return the tasks that became ready."""
        while self.undecided or self.doomed:
            for line in list(self.undecided.values()):
                satisfied, error = self.ask_condition(line)
                self.decide_line(line.line_id, satisfied, error)
            for star in list(self.doomed.values()):
                self.end_task(
                    star._task_id,
                    TaskStatus.CANCELLED,
                    reason=CancelReason.UNREACHABLE,
                    detail=why_unreachable(star),
                    at=at,
                )
        return [star for star in self.ledger.take_fresh() if star._task_id in self.ready]

    def __repr__(self) -> str:
        return f"TaskConstellation({self.constellation_id!r}, {self.task_count} tasks, {self.state.value})"


def why_unreachable(star: TaskStar) -> str:
    """Return the edge that can never be satisfied, in words."""
    for line in star._in:
        if line._outcome is EdgeOutcome.UNSATISFIABLE and line._source is not None:
            reason = f"; {line._error}" if line._error else ""
            return f"{line.line_id}: {line._source.task_id} is {line._source.status.value}{reason}"
    return ""
