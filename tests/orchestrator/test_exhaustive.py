"""Every graph of up to four tasks, every edge type, every order of outcomes, against a reference interpreter.

The default run takes all graphs of up to three tasks and every 113th of four; `STARLOOM_PROPERTIES=long` takes all.
"""

import itertools
import os

import pytest

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.line import TaskStarLine
from starloom.constellation.star import TaskStar
from starloom.ids import DeviceId, RunId, TaskId
from starloom.orchestrator import signals as s
from starloom.orchestrator.ports import Completed, DeviceOffer, Failed
from starloom.orchestrator.scheduler import Scheduler
from starloom.orchestrator.settings import RunSettings
from starloom.orchestrator.state import RunState

pytestmark = pytest.mark.properties
STEP = 1 if os.environ.get("STARLOOM_PROPERTIES") == "long" else 113
KINDS = ("none", "unconditional", "completion_only", "success_only", "conditional")
CONDITION = "status == 'failed'"


# The reference interpreter: straight from the table of constellation.md, knowing nothing of counters or events.
def says(kind, status):
    """Return True, False or None (pending) for an edge of this kind from a task of this status."""
    if status in {"waiting", "running"}:
        return None
    if kind == "unconditional":
        return True
    if status == "cancelled":
        return False
    if kind == "completion_only":
        return True
    if kind == "success_only":
        return status == "completed"
    return status == "failed"  # the condition used here


def reference(size, edges, ended):
    """Return every task's status when these outcomes have come in; tasks are numbered in topological order."""
    statuses = []
    for task in range(size):
        answers = [says(kind, statuses[source]) for (source, target), kind in edges.items() if target == task]
        if task in ended:
            statuses.append(ended[task])
        elif False in answers:
            statuses.append("cancelled")
        else:
            statuses.append("waiting" if None in answers else "running")
    return tuple(statuses)


def play(size, edges, path):
    """Return the scheduler and whether it finished, after these outcomes in this order."""
    graph = TaskConstellation("c")
    for task in range(size):
        graph.add_task(TaskStar(str(task)))
    for (source, target), kind in edges.items():
        condition = CONDITION if kind == "conditional" else None
        graph.add_dependency(TaskStarLine(str(source), str(target), kind, condition=condition))
    state = RunState(RunId("r"))
    state.adopt(graph)
    scheduler = Scheduler(state, RunSettings())
    scheduler.decide(s.DevicesChanged((DeviceOffer(DeviceId("d"), "linux", max_tasks=size),)))
    decisions = [scheduler.decide(s.Begin())]
    for task, status in path:
        live = state.live[TaskId(str(task))]
        outcome = Completed() if status == "completed" else Failed("no")
        decisions.append(scheduler.decide(s.AttemptEnded(live.task_id, live.attempt_id, live.device_id, outcome)))
    finished = any(isinstance(command, s.Finish) for decision in decisions for command in decision.commands)
    return state, finished


def graphs(size):
    pairs = list(itertools.combinations(range(size), 2))
    for kinds in itertools.product(KINDS, repeat=len(pairs)):
        yield {pair: kind for pair, kind in zip(pairs, kinds, strict=True) if kind != "none"}


def explore(size, edges):
    """Compare at every state that any order of outcomes reaches; return how many there are."""
    seen = set()
    paths = [()]
    while paths:
        path = paths.pop()
        expected = reference(size, edges, dict(path))
        if expected in seen:
            continue
        seen.add(expected)
        state, finished = play(size, edges, path)
        statuses = tuple(
            "waiting" if star.status.value == "waiting_dependency" else star.status.value
            for star in state.constellation.in_insertion_order()
        )
        assert statuses == expected, (edges, path)
        running = [task for task, status in enumerate(expected) if status == "running"]
        assert finished == (not running), (edges, path)
        paths += [(*path, (task, status)) for task in running for status in ("completed", "failed")]
    return len(seen)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_small_graph_does_what_the_table_says(size):
    assert sum(explore(size, edges) for edges in graphs(size)) > size


def test_graphs_of_four_tasks_do_what_the_table_says():
    states = sum(explore(4, edges) for edges in itertools.islice(graphs(4), 0, None, STEP))
    assert states > 500


def test_every_order_of_outcomes_ends_alike():
    """The states above are reached by some order; here every order is played to its end."""
    edges = {(0, 2): "success_only", (1, 2): "completion_only", (0, 3): "conditional", (1, 3): "unconditional"}
    for outcomes in itertools.product(("completed", "failed"), repeat=4):
        ends = set()
        for order in itertools.permutations(range(4)):
            path: tuple = ()
            while True:
                statuses = reference(4, edges, dict(path))
                running = [task for task in order if statuses[task] == "running"]
                if not running:
                    break
                path = (*path, (running[0], outcomes[running[0]]))
            state, finished = play(4, edges, path)
            assert finished
            ends.add(tuple(star.status for star in state.constellation.in_insertion_order()))
        assert len(ends) == 1
