"""The graph under a constellation: tasks, edges, adjacency and a topological order kept up to date edge by edge.

Only `TaskConstellation` changes it. An inserted edge that agrees with the order costs nothing; one that does not
reorders only the tasks between its two ends (Pearce and Kelly, "A dynamic topological sort algorithm for directed
acyclic graphs", 2006). Whole documents are inserted in bulk and ordered once. Nothing recurses.
"""

from collections import deque
from collections.abc import Iterable

from starloom.constellation.line import TaskStarLine
from starloom.constellation.problems import CycleError, EditError, cycle_text
from starloom.constellation.star import TaskStar
from starloom.ids import LineId, TaskId


class Graph:
    """Tasks and edges by id, without any meaning of statuses."""

    __slots__ = ("_deferred", "_next_order", "lines", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[TaskId, TaskStar] = {}
        self.lines: dict[LineId, TaskStarLine] = {}
        self._next_order = 0
        self._deferred = False

    def insert_task(self, star: TaskStar) -> None:
        """Add a task without edges, last in the order.

        Raises:
            EditError: the id is taken, or the star is part of a graph already.
        """
        if star._task_id in self.tasks:
            raise EditError(f"There is already a task {star._task_id!r}; task ids are unique.")
        if star._owned:
            raise EditError(f"Task {star._task_id!r} already belongs to a constellation; add a new TaskStar.")
        if star._home is not self:  # a restored task keeps its place, so that its edges fit at once
            self._next_order += 1
            star._order = self._next_order
            star._home = self
        star._owned = True
        self.tasks[star._task_id] = star

    def remove_task(self, star: TaskStar) -> None:
        """Take out a task that has no edges left."""
        del self.tasks[star._task_id]
        star._owned = False

    def insert_line(self, line: TaskStarLine) -> tuple[TaskStar, TaskStar]:
        """Add an edge, with a free id when it was not given one, and return its ends.

        Raises:
            EditError: an end does not exist, the id is taken, or the ends are the same task.
            CycleError: it would close a cycle.
        """
        source, target = self.tasks.get(line._from), self.tasks.get(line._to)
        if source is None or target is None:
            missing = line._from if source is None else line._to
            raise EditError(f"Dependency {line._line_id!r} names task {missing!r}, which does not exist.")
        if source is target:
            raise CycleError(f"Task {line._from!r} cannot depend on itself.", [line._from])
        if line._owned:
            raise EditError(f"Dependency {line._line_id!r} already belongs to a constellation; add a new TaskStarLine.")
        if line._line_id in self.lines:
            self._name_anew(line)
        if not self._deferred and source._order >= target._order:
            self._reorder(source, target)
        line._source, line._target, line._owned = source, target, True
        self.lines[line._line_id] = line
        source._out[line] = target
        target._in[line] = source
        return source, target

    def ends_of(self, line: TaskStarLine) -> tuple[TaskStar, TaskStar]:
        """Return the two tasks of an edge of this graph.

        Raises:
            EditError: it is not in the graph.
        """
        if line._source is None or line._target is None:
            raise EditError(f"There is no dependency {line._line_id!r}.")
        return line._source, line._target

    def remove_line(self, line: TaskStarLine, source: TaskStar, target: TaskStar) -> None:
        """Take out an edge; the order stays valid."""
        del self.lines[line._line_id]
        del source._out[line]
        del target._in[line]
        line._source = line._target = None
        line._owned = False

    def defer_order(self) -> None:
        """Insert edges without ordering from now on; `order_all` must follow `resume_order`."""
        self._deferred = True

    def resume_order(self) -> None:
        """Order every edge as it is inserted again."""
        self._deferred = False

    def order_all(self) -> None:
        """Order every task afresh in one pass.

        Raises:
            CycleError: the graph has a cycle; the order is unchanged.
        """
        missing = {star: len(star._in) for star in self.tasks.values()}
        ready = deque(star for star, count in missing.items() if not count)
        ordered: list[TaskStar] = []
        while ready:
            star = ready.popleft()
            ordered.append(star)
            for target in star.successors():
                missing[target] -= 1
                if not missing[target]:
                    ready.append(target)
        if len(ordered) < len(missing):
            cycle = _cycle_among({star for star, count in missing.items() if count})
            raise CycleError(f"The dependencies close a cycle: {cycle_text(cycle)}.", cycle)
        for number, star in enumerate(ordered, self._next_order + 1):  # never a number that a removed task still has
            star._order = number
        self._next_order += len(ordered)

    def in_order(self, stars: Iterable[TaskStar] | None = None) -> list[TaskStar]:
        """Return the tasks, or these of them, sources first."""
        return sorted(self.tasks.values() if stars is None else stars, key=lambda star: star._order)

    def is_ancestor(self, ancestors: Iterable[str], star: TaskStar) -> str | None:
        """Return the first of the ids that is not an ancestor of the star; None when all are."""
        wanted = {name for name in ancestors if name not in star.dependencies}
        for name in sorted(wanted):
            if name not in self.tasks:
                return name
        if not wanted:
            return None
        lowest = min(self.tasks[TaskId(name)]._order for name in wanted)
        seen = {star}
        stack = [star]
        while stack and wanted:
            for source in stack.pop()._in.values():
                if source not in seen and source._order >= lowest:
                    seen.add(source)
                    stack.append(source)
                    wanted.discard(source._task_id)
        return min(wanted) if wanted else None

    def _name_anew(self, line: TaskStarLine) -> None:
        if line._named:
            raise EditError(f"There is already a dependency {line._line_id!r}; dependency ids are unique.")
        number = 2
        while (name := LineId(f"{line._from}->{line._to}#{number}")) in self.lines:
            number += 1
        line._line_id = name

    def _reorder(self, source: TaskStar, target: TaskStar) -> None:
        """Make room for an edge from `source` to `target`, which now stand the wrong way round."""
        lowest = target._order
        after = _reach(source, target)
        before = {source}
        stack = [source]
        while stack:
            for previous in stack.pop()._in.values():
                if previous._order >= lowest and previous not in before:
                    before.add(previous)
                    stack.append(previous)
        moved = self.in_order(before) + self.in_order(after)
        for star, order in zip(moved, sorted(star._order for star in moved), strict=True):
            star._order = order


def _reach(source: TaskStar, target: TaskStar) -> dict[TaskStar, TaskStar]:
    """Return what follows `target` up to the place of `source`, each with how it was reached.

    Raises:
        CycleError: `source` is among it.
    """
    highest = source._order
    came_from = {target: target}
    stack = [target]
    push, pop = stack.append, stack.pop
    while stack:
        star = pop()
        for following in star._out.values():
            if following._order <= highest and following not in came_from:
                came_from[following] = star
                push(following)
    if source in came_from:
        cycle = _path_back(came_from, source, target)
        names = f"{source._task_id!r} → {target._task_id!r}"
        raise CycleError(f"The dependency {names} would close a cycle: {cycle_text(cycle)}.", cycle)
    return came_from


def _path_back(came_from: dict[TaskStar, TaskStar], end: TaskStar, start: TaskStar) -> tuple[TaskId, ...]:
    path = []
    star = end
    while star is not start:
        star = came_from[star]
        path.append(star._task_id)
    path.append(end._task_id)
    path.reverse()
    return tuple(path)


def _cycle_among(stuck: set[TaskStar]) -> list[TaskId]:
    """Return a cycle in what is left of Kahn's pass: walk backwards until a task comes twice."""
    star = min(stuck, key=lambda item: item._task_id)
    seen: dict[TaskStar, int] = {}
    path: list[TaskStar] = []
    while star not in seen:
        seen[star] = len(path)
        path.append(star)
        star = min((before for before in star.predecessors() if before in stuck), key=lambda item: item._task_id)
    return [item._task_id for item in reversed(path[seen[star] :])]
