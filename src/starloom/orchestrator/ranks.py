"""Longest remaining paths: how many tasks still follow each task at most; the scheduler's second criterion.

Computed once when a run begins; an edit costs the tasks whose rank it really changes.
"""

from collections.abc import Iterable

from starloom.constellation.changes import Change
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.star import TaskStar


class Ranks:
    """The rank of every task of one graph: 0 for a task without dependents."""

    def __init__(self) -> None:
        self._ranks: dict[TaskStar, int] = {}

    def of(self, star: TaskStar) -> int:
        """Return how many tasks follow on the longest path from here."""
        return self._ranks.get(star, 0)

    def compute(self, constellation: TaskConstellation) -> None:
        """Compute every rank afresh."""
        ranks: dict[TaskStar, int] = {}
        for star in reversed(constellation.graph.in_order()):
            ranks[star] = max((ranks[after] + 1 for after in star.successors()), default=0)
        self._ranks = ranks

    def update(self, constellation: TaskConstellation, changes: Iterable[Change]) -> list[TaskStar]:
        """Correct what these changes made wrong; return the tasks whose rank is another now."""
        suspects: list[TaskStar] = []
        for change in changes:
            if change.star is not None:
                suspects.append(change.star)
            elif change.line is not None and change.kind != "set_line":
                source = constellation.graph.tasks.get(change.line.from_task_id)
                suspects += [] if source is None else [source]
        changed: dict[TaskStar, None] = {}
        while suspects:
            star = suspects.pop()
            rank = max((self._ranks.get(after, 0) + 1 for after in star.successors()), default=0)
            if self._ranks.get(star) != rank:
                self._ranks[star] = rank
                changed[star] = None
                suspects += [before for before in star.predecessors() if not before.has_started]
        return list(changed)
