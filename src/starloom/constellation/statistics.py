"""Figures about a constellation, by upstream's definitions: sizes, counts, paths, parallelism; for reports and events.

Longest path counts tasks; the critical path is the longest by time (a task's measured duration, one unit while it has
none); parallelism ratio = total work ÷ critical path. Source: reference galaxy.md §1.1; constellation.md, Documents.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.star import TaskStar


def longest_path(constellation: TaskConstellation) -> list[str]:
    """Return the ids of a path with the most tasks, from its source."""
    return [star.task_id for star in _heaviest(constellation, lambda _star: 1.0)[1]]


def critical_path(constellation: TaskConstellation) -> tuple[float, list[str]]:
    """Return the length and the ids of the path that takes longest."""
    length, path = _heaviest(constellation, _work(_is_timed(constellation)))
    return length, [star.task_id for star in path]


def max_width(constellation: TaskConstellation) -> int:
    """Return how many tasks the fullest layer has; a layer is what may start together at the earliest."""
    return max(Counter(layer_numbers(constellation).values()).values(), default=0)


def layer_numbers(constellation: TaskConstellation) -> dict[TaskStar, int]:
    """Return each task's layer: 0 for sources, else one more than its highest predecessor."""
    numbers: dict[TaskStar, int] = {}
    for star in constellation.graph.in_order():
        numbers[star] = max((numbers[before] + 1 for before in star.predecessors()), default=0)
    return numbers


def statistics(constellation: TaskConstellation) -> dict[str, Any]:
    """Return all figures as JSON values."""
    is_timed = _is_timed(constellation)
    work = _work(is_timed)
    total_work = sum(work(star) for star in constellation.graph.tasks.values())
    length, path = _heaviest(constellation, work)
    numbers = layer_numbers(constellation)
    return {
        "constellation_id": constellation.constellation_id,
        "name": constellation.name,
        "state": constellation.state.value,
        "total_tasks": constellation.task_count,
        "total_dependencies": constellation.dependency_count,
        "task_status_counts": {status.value: count for status, count in constellation.counts.items() if count},
        "longest_path_length": max(numbers.values(), default=-1) + 1,
        "max_width": max(Counter(numbers.values()).values(), default=0),
        "critical_path": [star.task_id for star in path[:100]],
        "critical_path_length": round(length, 6),
        "total_work": round(total_work, 6),
        "parallelism_ratio": round(total_work / length, 3) if length else 1.0,
        "parallelism_calculation_mode": "actual_time" if is_timed else "node_count",
    }


def _is_timed(constellation: TaskConstellation) -> bool:
    return constellation.state.is_terminal and any(
        star.execution_duration is not None for star in constellation.graph.tasks.values()
    )


def _work(is_timed: bool) -> Callable[[TaskStar], float]:
    if is_timed:
        return lambda star: star.execution_duration or 0.0
    return lambda _star: 1.0


def _heaviest(constellation: TaskConstellation, work: Callable[[TaskStar], float]) -> tuple[float, list[TaskStar]]:
    best: dict[TaskStar, tuple[float, TaskStar | None]] = {}
    end: TaskStar | None = None
    for star in constellation.graph.in_order():
        length, before = 0.0, None
        for previous in star.predecessors():
            if before is None or best[previous][0] > length:
                length, before = best[previous][0], previous
        best[star] = (length + work(star), before)
        if end is None or best[star][0] > best[end][0]:
            end = star
    if end is None:
        return 0.0, []
    total, path = best[end][0], []
    at: TaskStar | None = end
    while at is not None:
        path.append(at)
        at = best[at][1]
    path.reverse()
    return total, path
