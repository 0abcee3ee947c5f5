"""The runner against a simulated fleet and a manual clock."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from starloom.constellation.documents import build, canonical_json
from starloom.constellation.enums import CancelReason, ConstellationState, TaskStatus
from starloom.constellation.problems import EditError
from starloom.errors import StarloomError
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.memory import MemoryJournal
from starloom.journal.store import Fenced
from starloom.orchestrator.ports import Completed, Failed
from starloom.orchestrator.replanning import EditDraft
from starloom.orchestrator.runner import Runner
from starloom.orchestrator.settings import RunSettings
from starloom.orchestrator.state import fold
from starloom.orchestrator.stream import EventStream

_spec = importlib.util.spec_from_file_location("simulated_fleet", Path(__file__).with_name("conftest.py"))
fleet = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fleet)
Devices, Executor, settle, advance = fleet.Devices, fleet.Executor, fleet.settle, fleet.advance

RUN = RunId("run_1")
CHAIN = {"tasks": [{"task_id": "a"}, {"task_id": "b", "after": ["a"]}, {"task_id": "c", "after": ["b"]}]}


class Bench:
    """One run with everything around it."""

    def __init__(self, clock, *, devices=None, executor=None, journal=None, settings=None, **more):
        self.clock = clock
        self.devices = devices or Devices("d1", "d2")
        self.executor = executor or Executor()
        self.journal = journal or MemoryJournal(clock)
        self.runner = Runner(
            RUN,
            executor=self.executor,
            devices=self.devices,
            clock=clock,
            journal=self.journal,
            settings=settings or RunSettings(),
            **more,
        )

    async def events(self):
        return [item.event for item in await self.journal.read(RUN)]

    async def kinds(self):
        return [event.kind for event in await self.events()]


def forever(attempt):
    return asyncio.get_running_loop().create_future()


async def test_a_chain_runs_in_order_and_the_journal_rebuilds_it(clock):
    bench = Bench(clock)
    result = await bench.runner.run(build(CHAIN), started=e.RunStarted("go", "recipe"))
    assert bench.executor.tasks() == ["a", "b", "c"]
    assert (result.state, result.stop_reason) == (ConstellationState.COMPLETED, "finished")
    assert result.result == {"c": "c"}
    kinds = await bench.kinds()
    assert kinds[:3] == ["run_started", "constellation_started", "edit_applied"]
    assert kinds[-2:] == ["constellation_completed", "run_ended"]
    replayed = fold(RUN, await bench.journal.read(RUN))
    assert canonical_json(replayed.constellation) == canonical_json(result.constellation)


async def test_a_start_is_in_the_journal_before_the_attempt_begins(clock):
    journal = MemoryJournal(clock)
    seen = []

    async def look(attempt):
        kinds = [(item.event.kind, getattr(item.event, "task_id", "")) for item in await journal.read(RUN)]
        seen.append(("task_started", attempt.task_id) in kinds)
        return Completed()

    await Bench(clock, journal=journal, executor=Executor(look)).runner.run(build(CHAIN))
    assert seen == [True, True, True]


async def test_results_travel_along_edges_with_their_type(clock):
    document = {
        "tasks": [
            {"task_id": "count"},
            {
                "task_id": "use",
                "after": ["count"],
                "description": "all {{ tasks.count.result.n }} of them",
                "task_data": {"tool": "x.y", "arguments": {"n": "{{ tasks.count.result.n }}"}},
            },
        ]
    }
    executor = Executor(lambda attempt: Completed({"n": 3}))
    await Bench(clock, executor=executor).runner.run(build(document))
    last = executor.attempts[-1]
    assert last.task_data["arguments"] == {"n": 3}
    assert last.description == "all 3 of them"
    assert last.inputs == {"count": {"n": 3}}


async def test_a_reference_to_nothing_fails_the_task_by_name(clock):
    document = {"tasks": [{"task_id": "a"}, {"task_id": "b", "after": ["a"], "description": "{{ tasks.a.result.no }}"}]}
    result = await Bench(clock, executor=Executor(lambda attempt: Completed({"yes": 1}))).runner.run(build(document))
    assert result.state is ConstellationState.PARTIALLY_FAILED
    assert "'no'" in result.error


async def test_a_result_that_breaks_its_schema_fails_the_task(clock):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    document = {"tasks": [{"task_id": "a", "expected_output_type": schema}]}
    result = await Bench(clock, executor=Executor(lambda attempt: Completed({"n": "x"}))).runner.run(build(document))
    assert result.state is ConstellationState.FAILED
    assert "result['n']" in result.error


async def test_priority_then_path_then_insertion_decides_the_order(clock):
    document = {
        "tasks": [
            {"task_id": "short"},
            {"task_id": "head"},
            {"task_id": "late"},
            {"task_id": "urgent", "priority": "CRITICAL"},
            {"task_id": "tail", "after": ["head"]},
        ]
    }
    bench = Bench(clock, devices=Devices("d1"))
    await bench.runner.run(build(document))
    assert bench.executor.tasks() == ["urgent", "head", "short", "late", "tail"]


async def test_one_task_at_a_time_per_device_and_the_limit_holds(clock):
    document = {"tasks": [{"task_id": f"t{number}"} for number in range(20)]}

    async def later(attempt):
        await settle(3)
        return Completed()

    executor = Executor(later)
    bench = Bench(clock, executor=executor, devices=Devices("d1", "d2", "d3"))
    await bench.runner.run(build(document))
    assert set(executor.most_at_once.values()) == {1}
    assert len(executor.most_at_once) == 3
    limited = Executor(later)
    bench = Bench(clock, executor=limited, settings=RunSettings(max_concurrent_tasks=1))
    await bench.runner.run(build(document))
    assert limited.most_at_once == {"d1": 1}


async def test_tools_types_and_wishes_choose_the_device(clock):
    devices = Devices()
    devices.connect("w", "windows", ["files.read"])
    devices.connect("l", "linux", ["shell.run"])
    document = {
        "tasks": [
            {"task_id": "typed", "device_type": "LINUX"},
            {"task_id": "tooled", "task_data": {"tool": "files.read"}},
            {"task_id": "wished", "target_device_id": "l"},
        ]
    }
    bench = Bench(clock, devices=devices)
    await bench.runner.run(build(document))
    assert {attempt.task_id: attempt.device_id for attempt in bench.executor.attempts} == {
        "typed": "l",
        "tooled": "w",
        "wished": "l",
    }


async def test_a_task_nobody_can_take_is_reported_at_once_and_fails_after_the_wait(clock):
    bench = Bench(clock, settings=RunSettings(device_wait_s=30))
    run = asyncio.create_task(bench.runner.run(build({"tasks": [{"task_id": "a", "target_device_id": "north"}]})))
    await settle()
    assert e.TaskWaiting("a", "device 'north' is not connected") in await bench.events()
    assert bench.runner.waits() == {"a": "ready; device 'north' is not connected"}
    await advance(clock, 30)
    result = await run
    assert result.stop_reason == "nothing_can_run"
    assert "device 'north' is not connected" in result.error


async def test_without_a_wait_nothing_can_run_ends_at_once(clock):
    bench = Bench(clock, devices=Devices(), settings=RunSettings(device_wait_s=0))
    result = await bench.runner.run(build(CHAIN))
    assert (result.stop_reason, result.state) == ("nothing_can_run", ConstellationState.FAILED)
    assert result.constellation.get_task("c").cancel_reason is CancelReason.UNREACHABLE


async def test_a_device_that_comes_takes_what_waited_for_it(clock):
    bench = Bench(clock, devices=Devices())
    run = asyncio.create_task(bench.runner.run(build(CHAIN)))
    await settle()
    bench.devices.connect("d9")
    assert (await run).stop_reason == "finished"


async def test_a_transient_failure_is_retried_with_growing_delays(clock):
    def answer(attempt):
        return Completed("ok") if attempt.number == 3 else Failed("busy", transient=True)

    bench = Bench(clock, executor=Executor(answer), settings=RunSettings(retry_delay_s=4, retry_factor=2))
    run = asyncio.create_task(bench.runner.run(build({"tasks": [{"task_id": "a", "retry_count": 2}]})))
    await advance(clock, 3.9)
    assert len(bench.executor.attempts) == 1
    await advance(clock, 0.1)
    assert len(bench.executor.attempts) == 2
    assert bench.runner.waits() == {"a": "waiting 8 s before attempt 3"}
    await advance(clock, 8)
    assert (await run).result == {"a": "ok"}
    delays = [event.delay_s for event in await bench.events() if isinstance(event, e.TaskRetrying)]
    assert delays == [4, 8]
    assert len({attempt.attempt_id for attempt in bench.executor.attempts}) == 3


@pytest.mark.parametrize("failure", [Failed("no"), Failed("maybe", transient=True, in_doubt=True)])
async def test_what_is_not_marked_is_not_repeated(clock, failure):
    bench = Bench(clock, executor=Executor(lambda attempt: failure))
    await bench.runner.run(build({"tasks": [{"task_id": "a", "retry_count": 5}]}))
    assert len(bench.executor.attempts) == 1


async def test_a_timeout_stops_the_attempt_on_the_device_and_then_frees_it(clock):
    release = asyncio.Event()
    order = []

    async def slow(attempt):
        if attempt.task_id != "a":
            order.append("b starts")
            return Completed()
        try:
            return await forever(attempt)
        finally:
            await release.wait()
            order.append("a let go")

    bench = Bench(clock, executor=Executor(slow), devices=Devices("d1"))
    document = {"tasks": [{"task_id": "a", "timeout": 5, "priority": 4}, {"task_id": "b"}]}
    run = asyncio.create_task(bench.runner.run(build(document)))
    await advance(clock, 5)
    assert order == []
    release.set()
    result = await run
    assert order == ["a let go", "b starts"]
    assert "5 s" in result.constellation.get_task("a").error


async def test_a_device_that_does_not_let_go_stays_occupied_but_the_run_goes_on(clock):
    async def stubborn(attempt):
        if attempt.task_id != "a":
            return Completed()
        while True:
            try:
                return await forever(attempt)
            except asyncio.CancelledError:
                if done:
                    raise

    done = []
    bench = Bench(clock, executor=Executor(stubborn), devices=Devices("d1", "d2"))
    document = {"tasks": [{"task_id": "a", "target_device_id": "d1", "timeout": 5}, {"task_id": "b", "priority": 1}]}
    run = asyncio.create_task(bench.runner.run(build(document)))
    await advance(clock, 5)
    await advance(clock, 2)
    done.append(True)
    result = await run
    assert result.constellation.get_task("a").status is TaskStatus.FAILED
    assert bench.executor.attempts[-1].device_id == "d2"


async def test_cancelling_a_run_stops_everything_and_the_runner_says_so(clock):
    bench = Bench(clock, executor=Executor(forever))
    document = {"tasks": [{"task_id": "a"}, {"task_id": "b"}, {"task_id": "c", "after": ["a"]}]}
    run = asyncio.create_task(bench.runner.run(build(document)))
    await settle()
    await bench.runner.cancel(reason="enough")
    result = await run
    assert (result.stop_reason, result.state) == ("cancelled", ConstellationState.CANCELLED)
    assert len(bench.executor.stopped) == 2
    reasons = {star.task_id: star.cancel_reason for star in result.constellation.tasks.values()}
    assert set(reasons.values()) == {CancelReason.RUN_CANCELLED}
    with pytest.raises(EditError, match="ended"):
        await bench.runner.edit([{"command": "add_task", "task": {"task_id": "z"}}])


async def test_cancelling_a_task_or_a_device_leaves_the_rest(clock):
    def answer(attempt):
        return forever(attempt) if attempt.task_id in {"a", "b"} else Completed()

    bench = Bench(clock, executor=Executor(answer), devices=Devices("d1", "d2", "d3"))
    document = {
        "tasks": [
            {"task_id": "a"},
            {"task_id": "b", "target_device_id": "d2"},
            {"task_id": "c"},
            {"task_id": "queued", "target_device_id": "d2"},
        ]
    }
    run = asyncio.create_task(bench.runner.run(build(document)))
    await settle()
    await bench.runner.cancel_task("a")
    await bench.runner.cancel_device("d2")
    result = await run
    statuses = {star.task_id: star.status.value for star in result.constellation.tasks.values()}
    assert statuses == {"a": "cancelled", "b": "cancelled", "c": "completed", "queued": "cancelled"}
    assert "queued" not in bench.executor.tasks()


async def test_pause_holds_starts_only(clock):
    gate = asyncio.Event()

    async def wait(attempt):
        await gate.wait()
        return Completed()

    bench = Bench(clock, executor=Executor(wait))
    run = asyncio.create_task(bench.runner.run(build(CHAIN)))
    await settle()
    await bench.runner.pause()
    gate.set()
    await settle()
    assert bench.executor.tasks() == ["a"]
    assert bench.runner.waits()["b"] == "ready; the run is paused"
    await bench.runner.unpause()
    assert (await run).stop_reason == "finished"


async def test_a_lost_device_gives_an_idempotent_task_to_another_and_fails_the_rest_in_doubt(clock):
    def answer(attempt):
        return forever(attempt) if attempt.device_id == "d1" else Completed()

    for idempotent in (True, False):
        bench = Bench(clock, executor=Executor(answer), devices=Devices("d1"))
        document = {"tasks": [{"task_id": "a", "idempotent": idempotent}]}
        run = asyncio.create_task(bench.runner.run(build(document)))
        await settle()
        bench.devices.disconnect("d1")
        bench.devices.connect("d2")
        await advance(clock, 10)
        result = await run
        failed = [event for event in await bench.events() if isinstance(event, e.TaskFailed)]
        assert (result.stop_reason == "finished") is idempotent
        assert [event.in_doubt for event in failed] == ([] if idempotent else [True])


async def test_the_planner_is_called_for_surprises_only_and_its_edit_runs(clock):
    calls = []

    async def replan(request):
        calls.append([surprise.kind for surprise in request.surprises])
        task = {"task_id": "mend", "description": "look"}
        return EditDraft([{"command": "add_task", "task": task}], "b failed") if len(calls) == 1 else None

    def answer(attempt):
        return Failed("broken") if attempt.task_id == "b" else Completed()

    bench = Bench(clock, executor=Executor(answer), replan=replan)
    result = await bench.runner.run(build(CHAIN))
    assert calls == [["failed", "unreachable"]]
    assert result.constellation.get_task("mend").status is TaskStatus.COMPLETED
    edits = [event for event in await bench.events() if isinstance(event, e.EditApplied)]
    assert [(edit.by, edit.why) for edit in edits] == [("import", ""), ("planner", "b failed")]


async def test_a_run_without_surprises_never_calls_the_planner(clock):
    async def replan(request):
        raise AssertionError(request)

    assert (await Bench(clock, replan=replan).runner.run(build(CHAIN))).stop_reason == "finished"


async def test_a_planner_that_raises_or_errs_does_not_stop_the_run(clock):
    async def raising(request):
        raise StarloomError("no model")

    async def nonsense(request):
        kinds.append(request.surprises[0].kind)
        return EditDraft([{"command": "fly"}])

    kinds = []
    failing = Executor(lambda attempt: Failed("broken"))
    assert (await Bench(clock, executor=failing, replan=raising).runner.run(build(CHAIN))).stop_reason == "failed"
    bench = Bench(clock, executor=failing, replan=nonsense, settings=RunSettings(max_replans=3))
    assert (await bench.runner.run(build(CHAIN))).stop_reason == "failed"
    assert kinds == ["failed", "edit_refused", "edit_refused"]


async def test_completions_that_arrive_together_are_handed_over_together(clock):
    calls = []

    async def replan(request):
        calls.append(sorted(surprise.task_id for surprise in request.surprises))

    bench = Bench(clock, replan=replan, settings=RunSettings(replan="after_each"))
    await bench.runner.run(build({"tasks": [{"task_id": "a"}, {"task_id": "b"}]}))
    assert calls == [["a", "b"]]


async def test_an_edit_from_an_ended_task_takes_effect_at_once(clock):
    gate = asyncio.Event()

    async def answer(attempt):
        if attempt.task_id == "slow":
            await gate.wait()
        return Completed()

    bench = Bench(clock, executor=Executor(answer))
    run = asyncio.create_task(bench.runner.run(build({"tasks": [{"task_id": "a"}, {"task_id": "slow"}]})))
    await settle()
    edit = await bench.runner.edit(
        [
            {"command": "add_task", "task": {"task_id": "b", "description": "{{ tasks.a.status }}"}},
            {"command": "add_dependency", "dependency": {"from": "a", "to": "b", "type": "success_only"}},
        ],
        why="one more",
    )
    assert (edit.version, edit.by, edit.why) == (2, "user", "one more")
    await settle()
    assert "b" in bench.executor.tasks()
    with pytest.raises(EditError, match="running"):
        await bench.runner.edit([{"command": "update_task", "task_id": "slow", "changes": {"name": "x"}}])
    gate.set()
    await run


async def test_undo_and_redo_reach_the_journal_as_edits(clock):
    gate = asyncio.Event()

    async def answer(attempt):
        await gate.wait()
        return Completed()

    bench = Bench(clock, executor=Executor(answer), devices=Devices("d1"))
    run = asyncio.create_task(bench.runner.run(build(CHAIN)))
    await settle()
    await bench.runner.edit([{"command": "remove_task", "task_id": "c"}])
    assert (await bench.runner.undo()).commands[0]["command"] == "add_task"
    await bench.runner.redo()
    await bench.runner.undo()
    gate.set()
    result = await run
    assert bench.executor.tasks() == ["a", "b", "c"]
    replayed = fold(RUN, await bench.journal.read(RUN))
    assert canonical_json(replayed.constellation) == canonical_json(result.constellation)


async def test_a_stopped_hub_resumes_from_the_journal_and_asks_about_live_attempts(clock):
    journal = MemoryJournal(clock)
    first = Bench(clock, journal=journal, executor=Executor(forever))
    document = {"tasks": [{"task_id": "a"}, {"task_id": "b", "after": ["a"]}]}
    run = asyncio.create_task(first.runner.run(build(document)))
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert "run_ended" not in await first.kinds()
    asked = []

    async def reconcile(attempt):
        asked.append(attempt.attempt_id)
        return Completed("done meanwhile")

    second = Bench(clock, journal=journal, reconcile=reconcile)
    result = await second.runner.resume()
    assert asked == [first.executor.attempts[0].attempt_id]
    assert second.executor.tasks() == ["b"]
    assert result.constellation.get_task("a").result == "done meanwhile"
    again = Bench(clock, journal=journal)
    assert (await again.runner.resume()).stop_reason == "finished"
    assert again.executor.tasks() == []


@pytest.mark.parametrize("idempotent", [True, False])
async def test_after_a_restart_an_unknown_attempt_is_repeated_only_when_that_does_no_harm(clock, idempotent):
    journal = MemoryJournal(clock)
    run = asyncio.create_task(
        Bench(clock, journal=journal, executor=Executor(forever)).runner.run(
            build({"tasks": [{"task_id": "a", "idempotent": idempotent}]})
        )
    )
    await settle()
    run.cancel()
    await asyncio.wait([run])
    second = Bench(clock, journal=journal)
    result = await second.runner.resume()
    assert second.executor.tasks() == (["a"] if idempotent else [])
    assert result.stop_reason == ("finished" if idempotent else "failed")
    if idempotent:
        assert second.executor.attempts[0].number == 1


async def test_a_runner_that_lost_its_run_stops_acting(clock):
    journal = MemoryJournal(clock)
    gate = asyncio.Event()

    async def answer(attempt):
        await gate.wait()
        return Completed()

    bench = Bench(clock, journal=journal, executor=Executor(answer))
    run = asyncio.create_task(bench.runner.run(build(CHAIN)))
    await settle()
    await journal.take(RUN)
    gate.set()
    with pytest.raises(Fenced):
        await run
    assert bench.executor.tasks() == ["a"]


async def test_several_runs_in_one_process_never_touch_each_other(clock):
    journal, devices = MemoryJournal(clock), Devices("d1")
    stuck = Runner(RunId("one"), executor=Executor(forever), devices=devices, clock=clock, journal=journal)
    quick = Runner(RunId("two"), executor=Executor(), devices=devices, clock=clock, journal=journal)
    waiting = asyncio.create_task(stuck.run(build(CHAIN)))
    assert (await quick.run(build(CHAIN))).stop_reason == "finished"
    await quick.cancel()
    await settle()
    assert not waiting.done()
    await stuck.cancel()
    assert (await waiting).stop_reason == "cancelled"


async def test_an_executor_that_raises_fails_its_task_only(clock):
    def answer(attempt):
        if attempt.task_id == "a":
            raise ValueError("oops")
        return Completed()

    result = await Bench(clock, executor=Executor(answer)).runner.run(
        build({"tasks": [{"task_id": "a"}, {"task_id": "b"}]})
    )
    assert result.constellation.get_task("a").error == "ValueError: oops"
    assert result.state is ConstellationState.PARTIALLY_FAILED


async def test_the_stream_carries_what_the_journal_has(clock):
    stream = EventStream()
    reader = stream.subscribe("reader")
    bench = Bench(clock, stream=stream)
    await bench.runner.run(build(CHAIN))
    assert [item.seq async for item in reader] == [item.seq for item in await bench.journal.read(RUN)]


async def test_a_run_without_a_journal_streams_its_own_numbers(clock):
    stream = EventStream()
    reader = stream.subscribe("reader")
    runner = Runner(RUN, executor=Executor(), devices=Devices("d1"), clock=clock, stream=stream)
    await runner.run(build(CHAIN))
    numbers = [item.seq async for item in reader]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_task_that_asks_for_it_a_message_and_an_empty_plan_call_the_planner(clock):
    calls = []

    async def replan(request):
        calls.append([(surprise.kind, surprise.task_id, surprise.detail) for surprise in request.surprises])
        if request.surprises[0].kind == "empty":
            assert request.document["tasks"] == {}
            return EditDraft([{"command": "add_task", "task": {"task_id": "a", "replan": True}}])
        return None

    gate = asyncio.Event()

    async def answer(attempt):
        await gate.wait()
        return Completed()

    bench = Bench(clock, replan=replan, executor=Executor(answer))
    run = asyncio.create_task(bench.runner.run(build({"tasks": []})))
    await settle()
    await bench.runner.message("also zip it")
    await settle()
    gate.set()
    assert (await run).stop_reason == "finished"
    assert calls == [[("empty", "", "")], [("message", "", "also zip it")], [("asked", "a", "")]]


async def test_an_empty_plan_without_a_planner_cannot_run(clock):
    result = await Bench(clock).runner.run(build({"tasks": []}))
    assert (result.stop_reason, result.state) == ("nothing_can_run", ConstellationState.CREATED)


async def test_an_edit_made_against_an_older_version_is_rebased_or_refused_while_it_runs(clock):
    bench = Bench(clock, executor=Executor(forever), devices=Devices("d1"))
    run = asyncio.create_task(bench.runner.run(build(CHAIN)))
    await settle()
    change = [{"command": "update_task", "task_id": "c", "changes": {"name": "x"}}]
    await bench.runner.edit(change, against=1)
    with pytest.raises(EditError, match="'c'"):
        await bench.runner.edit(change, against=1)
    other = [{"command": "update_task", "task_id": "b", "changes": {"name": "x"}}]
    assert (await bench.runner.edit(other, against=1)).against == 1
    refused = [event for event in await bench.events() if isinstance(event, e.EditRefused)]
    assert [event.commands for event in refused] == [change]
    run.cancel()
    await asyncio.wait([run])


async def test_an_edit_may_not_report_results(clock):
    bench = Bench(clock, executor=Executor(forever))
    run = asyncio.create_task(bench.runner.run(build(CHAIN)))
    await settle()
    document = {"tasks": [{"task_id": "z", "status": "completed", "result": "forged"}]}
    forged = {"command": "build_constellation", "document": document, "clear_existing": False, "with_state": True}
    with pytest.raises(EditError, match="imports"):
        await bench.runner.edit([forged], by="planner")
    run.cancel()
    await asyncio.wait([run])


async def test_priorities_changed_while_it_runs_change_the_order(clock):
    gate = asyncio.Event()

    async def answer(attempt):
        await gate.wait()
        return Completed()

    document = {"tasks": [{"task_id": "a", "priority": 4}, {"task_id": "b"}, {"task_id": "c"}]}
    bench = Bench(clock, executor=Executor(answer), devices=Devices("d1"))
    run = asyncio.create_task(bench.runner.run(build(document)))
    await settle()
    await bench.runner.edit([{"command": "update_task", "task_id": "c", "changes": {"priority": "CRITICAL"}}])
    gate.set()
    await run
    assert bench.executor.tasks() == ["a", "c", "b"]


async def test_a_conditional_edge_is_decided_in_the_journal_and_not_asked_again_by_a_replay(clock):
    asked = []

    def judge(status, result, error):
        asked.append(result)
        return True

    document = {
        "tasks": [{"task_id": "a"}, {"task_id": "b"}],
        "dependencies": [{"from": "a", "to": "b", "condition": "call:judge"}],
    }
    graph = build(document)
    graph.callables = {"judge": judge}
    bench = Bench(clock)
    result = await bench.runner.run(graph)
    assert asked == ["a"]
    assert e.EdgeDecided("a->b", True) in await bench.events()
    replayed = fold(RUN, await bench.journal.read(RUN))
    assert asked == ["a"]
    assert canonical_json(replayed.constellation) == canonical_json(result.constellation)


async def test_a_device_that_leaves_again_is_missed_again(clock):
    bench = Bench(clock, devices=Devices(), executor=Executor(forever), settings=RunSettings(device_wait_s=30))
    document = {"tasks": [{"task_id": "a"}, {"task_id": "b", "target_device_id": "north"}]}
    run = asyncio.create_task(bench.runner.run(build(document)))
    await settle()
    bench.devices.connect("north")
    await settle()
    assert bench.executor.tasks() == ["a"]
    await advance(clock, 30)
    bench.devices.disconnect("north")
    await settle()
    waiting = [event.task_id for event in await bench.events() if isinstance(event, e.TaskWaiting)]
    assert waiting.count("b") == 2
    await advance(clock, 30)
    assert (await run).constellation.get_task("b").status is TaskStatus.FAILED
