"""The ledger: what a constellation counts so that it never has to search; kept by `changes` and by task endings.

ready      pending tasks whose every edge is satisfied
doomed     unstarted tasks with an edge that can never be satisfied: to be cancelled as unreachable
undecided  conditional edges whose source has ended: their condition is to be asked
"""

from starloom.constellation.enums import EdgeOutcome, TaskStatus
from starloom.constellation.line import TaskStarLine, outcome_of
from starloom.constellation.star import TaskStar
from starloom.ids import LineId, TaskId

_PENDING, _SATISFIED, _NEVER = EdgeOutcome.PENDING, EdgeOutcome.SATISFIED, EdgeOutcome.UNSATISFIABLE


class Ledger:
    """Counters and sets over one graph; every method costs the edges it looks at."""

    def __init__(self) -> None:
        self.ready: dict[TaskId, TaskStar] = {}
        self.doomed: dict[TaskId, TaskStar] = {}
        self.undecided: dict[LineId, TaskStarLine] = {}
        self.referencing: dict[TaskId, TaskStar] = {}
        self.counts = dict.fromkeys(TaskStatus, 0)
        self.last_position = 0
        self._fresh: list[TaskStar] = []

    def take_position(self, given: int) -> int:
        """Return the next place in the order of insertion, or the given one (not 0) of a restored element."""
        if given:
            self.last_position = max(self.last_position, given)
            return given
        self.last_position += 1
        return self.last_position

    def take_fresh(self) -> list[TaskStar]:
        """Return the tasks that became ready since this was last asked; some may not be ready any more."""
        fresh, self._fresh = self._fresh, []
        return list(dict.fromkeys(fresh))

    def enter(self, star: TaskStar) -> None:
        """Count a task that is new in the graph."""
        self.counts[star._status] += 1
        if star._spec.references:
            self.referencing[star._task_id] = star
        self.settle(star)

    def leave(self, star: TaskStar) -> None:
        """Forget a task that left the graph."""
        self.counts[star._status] -= 1
        self.ready.pop(star._task_id, None)
        self.doomed.pop(star._task_id, None)
        self.referencing.pop(star._task_id, None)

    def respecify(self, star: TaskStar) -> None:
        """Note a new description."""
        if star._spec.references:
            self.referencing[star._task_id] = star
        else:
            self.referencing.pop(star._task_id, None)
        if star._task_id in self.ready:
            self._fresh.append(star)

    def link(self, line: TaskStarLine, source: TaskStar, target: TaskStar) -> None:
        """Count an edge that is new in the graph, deciding it when its source has ended."""
        line._outcome, line._error = _PENDING, None
        target._waiting += 1
        if source._status.is_terminal:
            self.decide_by_status(line, source._status)
        self.settle(target)

    def unlink(self, line: TaskStarLine, target: TaskStar) -> None:
        """Uncount an edge that is about to leave."""
        self.undecided.pop(line._line_id, None)
        if line._outcome is _PENDING:
            target._waiting -= 1
        elif line._outcome is _NEVER:
            target._blocked -= 1
        line._outcome = _SATISFIED  # counts for nothing until it is linked again
        self.settle(target)

    def end(self, star: TaskStar, status: TaskStatus) -> None:
        """Count the end of a task and decide the edges out of it; conditional ones become `undecided`."""
        self.ready.pop(star._task_id, None)
        self.doomed.pop(star._task_id, None)
        self.set_status(star, status)
        for line in star._out:
            self.decide_by_status(line, status)

    def decide_by_status(self, line: TaskStarLine, status: TaskStatus) -> None:
        """Decide an edge by the status its source ended with, or note that its condition must be asked."""
        outcome = outcome_of(line._spec.dependency_type, status)
        if outcome is None:
            self.undecided[line._line_id] = line
        else:
            self.decide(line, outcome)

    def decide(self, line: TaskStarLine, outcome: EdgeOutcome) -> None:
        """Record what an edge has come to; a second decision changes nothing."""
        target = line._target
        if line._outcome is not _PENDING or target is None:
            return
        line._outcome = outcome
        target._waiting -= 1
        if outcome is _NEVER:
            target._blocked += 1
        self.settle(target)

    def settle(self, star: TaskStar) -> None:
        """Put an unstarted task where its counters say it belongs."""
        status = star._status
        if status is not TaskStatus.PENDING and status is not TaskStatus.WAITING_DEPENDENCY:
            return
        task_id = star._task_id
        if star._blocked:
            self.doomed[task_id] = star
        elif self.doomed:
            self.doomed.pop(task_id, None)
        if star._waiting or star._blocked:
            if status is TaskStatus.PENDING:
                self.ready.pop(task_id, None)
                self.set_status(star, TaskStatus.WAITING_DEPENDENCY)
            return
        if status is TaskStatus.WAITING_DEPENDENCY:
            self.set_status(star, TaskStatus.PENDING)
        if task_id not in self.ready:
            self.ready[task_id] = star
            self._fresh.append(star)

    def set_status(self, star: TaskStar, status: TaskStatus) -> None:
        """Move a task from one count to another."""
        self.counts[star._status] -= 1
        self.counts[status] += 1
        star._status = status
