"""Invariants I1–I8 of constellation.md over random edits, outcomes, device losses, pauses, cancels and restarts.

A short profile runs with every test run; `STARLOOM_PROPERTIES=long` takes at least 100,000 steps.
"""

import os
from collections import deque

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import canonical_json, normal_document
from starloom.constellation.enums import DependencyType, TaskStatus
from starloom.constellation.line import TaskStarLine
from starloom.constellation.star import TaskStar
from starloom.ids import AttemptId, DeviceId, RunId, TaskId
from starloom.journal import events as e
from starloom.journal.events import Recorded, decode, encode
from starloom.orchestrator import signals as s
from starloom.orchestrator.ports import Completed, DeviceOffer, Failed
from starloom.orchestrator.scheduler import Scheduler
from starloom.orchestrator.settings import RunSettings
from starloom.orchestrator.state import RunState

pytestmark = pytest.mark.properties
IS_LONG = os.environ.get("STARLOOM_PROPERTIES") == "long"
RUN = RunId("run")
DEVICES = ("d0", "d1", "d2")
NAMES = tuple(f"t{number}" for number in range(14))
CONDITIONS = ("status == 'completed'", "result.n > 1", "result.missing == 1", "error != null")
AT = None

names = st.sampled_from(NAMES)
specs = st.fixed_dictionaries(
    {"task_id": names},
    optional={
        "target_device_id": st.sampled_from([*DEVICES, None]),
        "priority": st.integers(1, 4),
        "retry_count": st.integers(0, 2),
        "idempotent": st.booleans(),
        "replan": st.booleans(),
        "description": st.sampled_from(["", "plain", "{{ tasks.t0.status }}", "{{ tasks.t1.result.n }}"]),
    },
)
kinds = st.one_of(
    st.sampled_from(["unconditional", "success_only", "completion_only"]).map(lambda kind: {"dependency_type": kind}),
    st.sampled_from(CONDITIONS).map(lambda condition: {"condition": condition}),
)
commands = st.one_of(
    specs.map(lambda task: {"command": "add_task", "task": task}),
    specs.map(lambda task: {"command": "add_task", "task": task}),
    st.tuples(names, names, kinds).map(
        lambda line: {"command": "add_dependency", "dependency": {"from": line[0], "to": line[1], **line[2]}}
    ),
    st.tuples(names, names, kinds).map(
        lambda line: {"command": "add_dependency", "dependency": {"from": line[0], "to": line[1], **line[2]}}
    ),
    names.map(lambda name: {"command": "remove_task", "task_id": name}),
    st.tuples(names, names).map(lambda ends: {"command": "remove_dependency", "line_id": f"{ends[0]}->{ends[1]}"}),
    st.tuples(names, st.integers(1, 4)).map(
        lambda change: {"command": "update_task", "task_id": change[0], "changes": {"priority": change[1]}}
    ),
    st.tuples(names, names, kinds).map(
        lambda change: {"command": "update_dependency", "line_id": f"{change[0]}->{change[1]}", "changes": change[2]}
    ),
)
outcomes = st.one_of(
    st.integers(0, 3).map(lambda number: Completed({"n": number})),
    st.builds(Failed, st.just("broken"), transient=st.booleans(), in_doubt=st.booleans()),
)


class Runs(RuleBasedStateMachine):
    """Plays everyone around the scheduler: executor, fleet, clock, planner, user and journal."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[Recorded] = []
        self.outstanding: dict[AttemptId, tuple[TaskId, DeviceId]] = {}
        self.stopping: set[AttemptId] = set()
        self.ended_attempts: deque[tuple[TaskId, AttemptId, DeviceId]] = deque(maxlen=20)
        self.timers: set[tuple[str, str]] = set()
        self.planner_asked = False
        self.connected: set[str] = set(DEVICES)
        self.frozen: dict[str, tuple[object, frozenset[object]]] = {}
        self.finished = False

    @initialize(
        tasks=st.lists(specs, min_size=2, max_size=7, unique_by=lambda task: task["task_id"]),
        lines=st.lists(st.tuples(st.tuples(st.integers(0, 6), st.integers(0, 6)), kinds), max_size=8),
        limit=st.sampled_from([None, 1, 2]),
    )
    def begin(self, tasks, lines, limit):
        graph = TaskConstellation("c")
        for task in tasks:
            if "{{" not in task.get("description", ""):
                graph.add_task(TaskStar(**task))
        there = list(graph.tasks)
        for (low, high), kind in lines:
            if low < high < len(there):
                graph.add_dependency(TaskStarLine(there[low], there[high], **kind))
        self.settings = RunSettings(max_concurrent_tasks=limit, device_wait_s=5, device_lost_s=1)
        self.state = RunState(RUN)
        self.state.adopt(graph)
        build = {"command": "build_constellation", "document": normal_document(graph), "with_state": True}
        opening = [e.ConstellationStarted("c"), e.EditApplied(graph.version, [build], "import")]
        for event in opening:
            self.state.apply(event)
        self.append(opening)
        self.scheduler = Scheduler(self.state, self.settings, has_planner=True)
        self.tell(self.offers())
        self.tell(s.Begin())

    def offers(self):
        return s.DevicesChanged(tuple(DeviceOffer(DeviceId(name), "linux") for name in sorted(self.connected)))

    def append(self, events):
        for event in events:
            stored = decode(event.kind, encode(event))
            self.journal.append(Recorded(RUN, len(self.journal) + 1, AT, stored))

    def tell(self, signal):
        decision = self.scheduler.decide(signal)
        self.check_starts(decision)
        self.append(decision.events)
        for command in decision.commands:
            match command:
                case s.Start(attempt):
                    key = attempt.attempt_id
                    assert key not in self.outstanding, "I1: an attempt is started once"
                    holders = [task for task, _ in self.outstanding.values()]
                    assert attempt.task_id not in holders, "I1: one live attempt of a task"
                    users = [device for _, device in self.outstanding.values()]
                    assert attempt.device_id not in users, "one task at a time per device"
                    self.outstanding[key] = (attempt.task_id, attempt.device_id)
                case s.Stop(_, key):
                    assert key in self.outstanding
                    self.stopping.add(key)
                case s.Wake(key, _):
                    self.timers.add(key)
                case s.CallPlanner():
                    assert not self.planner_asked, "one call of the planner at a time"
                    self.planner_asked = True
                case s.Finish():
                    assert not self.finished
                    self.finished = True
        return decision

    def check_starts(self, decision):
        """I4, from the events alone and by the specification's table."""
        graph = self.state.constellation
        for event in decision.events:
            if isinstance(event, e.TaskStarted):
                star = graph.get_task(event.task_id)
                for line in star.lines_in:
                    source = graph.get_task(line.from_task_id)
                    assert source.status.is_terminal
                    match line.dependency_type:
                        case DependencyType.SUCCESS_ONLY:
                            assert source.status is TaskStatus.COMPLETED
                        case DependencyType.COMPLETION_ONLY:
                            assert source.status in {TaskStatus.COMPLETED, TaskStatus.FAILED}
                        case DependencyType.CONDITIONAL:
                            assert graph.ask_condition(line) == (True, None)

    # What may happen

    @rule(
        edit=st.lists(commands, min_size=1, max_size=3),
        lag=st.sampled_from([0, 0, 0, 1, 2]),
        by=st.sampled_from(["user", "rule"]),
    )
    def edit(self, edit, lag, by):
        version = self.state.constellation.version
        before = canonical_json(self.state.constellation)
        decision = self.tell(s.EditProposed(edit, by, "why not", max(0, version - lag)))
        if any(isinstance(event, e.EditRefused) for event in decision.events):
            assert version == self.state.constellation.version
            assert before == canonical_json(self.state.constellation), "a refused edit changes nothing"

    @rule(data=st.data(), kind_1=kinds, kind_2=kinds, by=st.sampled_from(["user", "planner"]))
    def grow(self, data, kind_1, kind_2, by):
        """Hang a new task on one or two that exist: the commonest edit of a planner."""
        there = sorted(self.state.constellation.tasks)
        free = [name for name in NAMES if name not in there]
        if not free or not there:
            return
        spec = {**data.draw(specs), "task_id": free[0], "description": ""}
        first, second = data.draw(st.sampled_from(there)), data.draw(st.sampled_from(there))
        if data.draw(st.booleans()):
            spec["description"] = f"after {{{{ tasks.{first}.status }}}}"
        edit = [
            {"command": "add_task", "task": spec},
            {"command": "add_dependency", "dependency": {"from": first, "to": free[0], **kind_1}},
        ]
        if second != first:
            edit.append({"command": "add_dependency", "dependency": {"from": second, "to": free[0], **kind_2}})
        decision = self.tell(s.EditProposed(edit, by, "more to do", self.state.constellation.version))
        if not self.finished and not self.state.is_cancelled:
            assert any(isinstance(event, e.EditApplied) for event in decision.events)

    @precondition(lambda self: len(self.state.constellation.tasks) > 1)
    @rule(data=st.data(), kind=kinds)
    def connect(self, data, kind):
        there = sorted(self.state.constellation.tasks)
        first, second = data.draw(st.sampled_from(there)), data.draw(st.sampled_from(there))
        line = {"from": first, "to": second, **kind}
        self.tell(s.EditProposed([{"command": "add_dependency", "dependency": line}], "user"))

    @precondition(lambda self: self.frozen)
    @rule(data=st.data(), dice=st.integers(0, 2))
    def touch_what_has_started(self, data, dice):
        name = data.draw(st.sampled_from(sorted(self.frozen)))
        edit = [
            {"command": "update_task", "task_id": name, "changes": {"name": "other"}},
            {"command": "remove_task", "task_id": name},
            {"command": "add_dependency", "dependency": {"from": name, "to": name}},
        ][dice]
        decision = self.tell(s.EditProposed([edit], "user"))
        assert not any(isinstance(event, e.EditApplied) for event in decision.events), "I3"

    @precondition(lambda self: self.state.constellation.lines)
    @rule(data=st.data(), kind=kinds, dice=st.integers(0, 1))
    def change_a_line(self, data, kind, dice):
        name = data.draw(st.sampled_from(sorted(self.state.constellation.lines)))
        remove = {"command": "remove_dependency", "line_id": name}
        update = {"command": "update_dependency", "line_id": name, "changes": kind}
        self.tell(s.EditProposed([update if dice else remove], "user"))

    @rule(action=st.sampled_from(["undo", "redo"]))
    def step_in_history(self, action):
        before = canonical_json(self.state.constellation)
        invoker = self.state.editor.invoker
        stacks = (list(invoker.done), list(invoker.undone))
        decision = self.tell(s.EditProposed((), "user", action=action))
        if any(isinstance(event, e.EditRefused) for event in decision.events):
            assert before == canonical_json(self.state.constellation)
            assert stacks == (list(invoker.done), list(invoker.undone)), "I6: both stacks intact"

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), outcome=outcomes)
    def attempt_ends(self, data, outcome):
        key = data.draw(st.sampled_from(sorted(self.outstanding)))
        task_id, device_id = self.outstanding.pop(key)
        self.ended_attempts.append((task_id, key, device_id))
        if key in self.stopping and data.draw(st.booleans()):
            self.stopping.discard(key)
            self.tell(s.AttemptStopped(task_id, key, device_id))
            return
        self.stopping.discard(key)
        self.tell(s.AttemptEnded(task_id, key, device_id, outcome))

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), number=st.integers(0, 3))
    def attempt_succeeds(self, data, number):
        key = data.draw(st.sampled_from(sorted(self.outstanding)))
        task_id, device_id = self.outstanding.pop(key)
        self.stopping.discard(key)
        self.ended_attempts.append((task_id, key, device_id))
        self.tell(s.AttemptEnded(task_id, key, device_id, Completed({"n": number})))

    @precondition(lambda self: self.ended_attempts)
    @rule(data=st.data(), outcome=outcomes)
    def a_second_result_comes(self, data, outcome):
        task_id, key, device_id = data.draw(st.sampled_from(list(self.ended_attempts)))
        before = canonical_json(self.state.constellation)
        decision = self.tell(s.AttemptEnded(task_id, key, device_id, outcome))
        assert not decision.events, "I5: a second result changes nothing"
        assert before == canonical_json(self.state.constellation)

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), outcome=outcomes)
    def a_stranger_answers(self, data, outcome):
        key = data.draw(st.sampled_from(sorted(self.outstanding)))
        task_id, _ = self.outstanding[key]
        decision = self.tell(s.AttemptEnded(task_id, key, DeviceId("stranger"), outcome))
        assert not decision.events, "I5: a device that does not own the attempt changes nothing"

    @rule(name=st.sampled_from(DEVICES), dice=st.integers(0, 3))
    def device_comes_or_goes(self, name, dice):
        if dice != 2:
            self.connected.add(name)
        else:
            self.connected.discard(name)
        self.tell(self.offers())

    @precondition(lambda self: self.timers)
    @rule(data=st.data(), dice=st.integers(0, 3))
    def a_timer_rings(self, data, dice):
        key = data.draw(st.sampled_from(sorted(self.timers)))
        if key[0] == "device" and dice:
            return
        self.timers.discard(key)
        self.tell(s.Woke(key))

    @precondition(lambda self: self.planner_asked)
    @rule(edit=st.lists(commands, max_size=3))
    def planner_answers(self, edit):
        self.planner_asked = False
        self.tell(s.PlannerAnswered(edit, "advice", self.state.constellation.version))

    @rule(dice=st.integers(0, 5))
    def pause(self, dice):
        self.tell(s.PauseAsked(dice == 3))

    @rule(name=names, dice=st.integers(0, 3))
    def cancel_task(self, name, dice):
        if dice == 2 and name in self.state.constellation.tasks:
            self.tell(s.CancelAsked(task_id=TaskId(name)))

    @rule(name=st.sampled_from(DEVICES), dice=st.integers(0, 20))
    def cancel_device(self, name, dice):
        if dice == 13:
            self.tell(s.CancelAsked(device_id=DeviceId(name)))

    @rule(dice=st.integers(0, 60))
    def cancel_run(self, dice):
        if dice == 37:
            self.tell(s.CancelAsked(reason="enough"))

    @rule(dice=st.integers(0, 4))
    def restart(self, dice):
        """The hub dies and is started again: only the journal is left."""
        if dice != 3 or self.finished:
            return
        live_before = canonical_json(self.state.constellation)
        self.state = RunState(RUN)
        for item in self.journal:
            self.state.apply(item.event, item.at)
        assert canonical_json(self.state.constellation) == live_before, "I8"
        attempts = self.outstanding
        self.outstanding, self.stopping, self.timers, self.planner_asked = {}, set(), set(), False
        self.scheduler = Scheduler(self.state, self.settings, has_planner=True)
        self.tell(self.offers())
        self.tell(s.Begin())
        assert self.outstanding.keys() >= attempts.keys(), "live attempts are asked about under the same ids"

    # What must always be true

    @invariant()
    def graph_is_acyclic(self):
        graph = self.state.constellation
        left = {name: len(star.lines_in) for name, star in graph.tasks.items()}
        ready = [name for name, count in left.items() if not count]
        while ready:
            name = ready.pop()
            del left[name]
            for line in graph.tasks[name].lines_out:
                left[line.to_task_id] -= 1
                if not left[line.to_task_id]:
                    ready.append(line.to_task_id)
        assert not left, "I2"

    @invariant()
    def steps_are_counted(self):
        type(self).steps += 1

    @invariant()
    def started_tasks_are_immutable(self):
        graph = self.state.constellation
        for name, (spec, lines) in self.frozen.items():
            star = graph.tasks[TaskId(name)]
            assert star.spec == spec, "I3"
            assert frozenset((line.line_id, line.spec.condition) for line in star.lines_in) == lines, "I3"
        for name, star in graph.tasks.items():
            if star.has_started and name not in self.frozen:
                self.frozen[name] = (
                    star.spec,
                    frozenset((line.line_id, line.spec.condition) for line in star.lines_in),
                )

    @invariant()
    def counters_tell_the_truth(self):
        graph = self.state.constellation
        assert {live.attempt_id for live in self.state.live.values()} == self.outstanding.keys()
        for star in graph.tasks.values():
            if not star.has_started:
                pending = [line for line in star.lines_in if line.outcome.value == "pending"]
                assert (star.task_id in graph.ready) == (not pending)
                assert not any(line.outcome.value == "unsatisfiable" for line in star.lines_in), "settled at once"
        assert not graph.doomed
        assert not graph.undecided

    @invariant()
    def nothing_stalls_in_silence(self):
        waits = self.scheduler.waits()
        assert "being settled" not in waits.values(), "I7"
        if not self.finished:
            assert waits or self.planner_asked, "I7: everything has ended and nobody is asked, yet the run goes on"
        for name, reason in waits.items():
            assert self.is_going_to_change(name, reason), f"I7: {name}: {reason}"
        if self.finished:
            assert not waits
            assert not self.outstanding

    def is_going_to_change(self, name, reason):
        """Whether something outside the scheduler is under way that will move this task on."""
        if reason.startswith("running"):
            return name in {task for task, _ in self.outstanding.values()}
        if reason.startswith("waiting for"):
            return True  # for a task that is looked at as well
        if "paused" in reason:
            return self.state.is_paused
        if "before attempt" in reason:
            return ("retry", name) in self.timers
        if "is busy" in reason:
            return bool(self.outstanding)
        return ("device", name) in self.timers

    def teardown(self):
        if hasattr(self, "state"):
            replayed = RunState(RUN)
            for item in self.journal:
                replayed.apply(item.event, item.at)
            assert canonical_json(replayed.constellation) == canonical_json(self.state.constellation), "I8"


TestRuns = Runs.TestCase
TestRuns.settings = settings(
    max_examples=2_600 if IS_LONG else 40,
    stateful_step_count=60 if IS_LONG else 40,
    deadline=None,
    derandomize=not IS_LONG,
    suppress_health_check=list(HealthCheck),
)


def test_enough_steps_were_taken():
    """Runs after `TestRuns`, in this file's order; alone it has nothing to count."""
    if not Runs.steps:
        pytest.skip("the machine did not run in this session")
    print(f"{Runs.steps} steps of random edits, outcomes, losses, pauses, cancels and restarts")
    assert Runs.steps >= (100_000 if IS_LONG else 1_000)
