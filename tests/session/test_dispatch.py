"""An agent's calls through what can go wrong with its device: what it is told, and what a person is asked."""

import asyncio
from dataclasses import replace

import pytest

from starloom.aip.extension import Capability
from starloom.aip.messages import IN_DOUBT, MCPToolInfo, Result, ResultStatus
from starloom.clock import ManualClock
from starloom.errors import DeviceError
from starloom.fleet.errors import DeviceLost, DeviceOffline
from starloom.fleet.records import DeviceRecord, DeviceStatus
from starloom.ids import AttemptId, CountingIds, DeviceId, RunId, TaskId
from starloom.journal.events import QuestionAsked
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.ports import Attempt, Failed
from starloom.orchestrator.settings import InDoubt
from starloom.processing.dispatch import Command, CommandStatus
from starloom.session.carrying import Carrier, Doubts
from starloom.session.desk import ApprovalDesk
from starloom.session.dispatch import FleetDispatcher
from starloom.session.recall import recall

RUN = RunId("run_1")
ATTEMPT = Attempt(RUN, TaskId("goal"), 1, AttemptId("run_1:goal:1"), DeviceId("d"), "goal", "Do it.")
CALL_ID = "run_1:goal:1/A.1.0"
DONE = Result(status=ResultStatus.SUCCESS, result=7)
CUT_OFF = Result(status=ResultStatus.FAILURE, error=IN_DOUBT)
WRITE = Command("shell.run", {"command": "x"}, "A.1.0", once=True)
READ = Command("files.read", {"path": "x"}, "A.1.0", once=True)


def tool(name, risk):
    return MCPToolInfo(
        tool_key=f"action::{name}",
        tool_name=name,
        namespace="action",
        tool_type="action",
        meta={"starloom": {"risk": risk}},
    )


class SimulatedFleet:
    """One device; each call ends as the next of `ends` says, an exception or a result."""

    def __init__(self, *ends):
        self.ends = list(ends)
        self.calls = []

    def records(self):
        tools = (tool("files.read", "read"), tool("shell.run", "irreversible"))
        yes = frozenset({Capability.ATTEMPTS.value})
        return (DeviceRecord("d", "linux", "linux", DeviceStatus.IDLE, tools=tools, capabilities=yes),)

    async def changes(self):
        yield

    async def call(self, device_id, commands, *, session_id, task_name, timeout_s, once):
        self.calls.append((commands[0].call_id, session_id, once))
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return [end]


class Bench:
    def __init__(self, *ends, policy=InDoubt.ASK):
        clock = ManualClock()
        self.journal = MemoryJournal(clock)
        self.desk = ApprovalDesk(self.journal, CountingIds())
        self.fleet = SimulatedFleet(*ends)
        carrier = Carrier(self.fleet, clock, Doubts(self.desk, policy), 10.0)
        self.hands = FleetDispatcher(carrier, ATTEMPT, losses=2)

    async def one(self, command):
        [result] = await self.hands.execute_commands([command], timeout_s=5)
        return result

    async def answered(self, command, answer):
        """Return the result after a person's answer to the one question that is asked."""
        call = asyncio.ensure_future(self.one(command))
        for _ in range(50):
            await asyncio.sleep(0)
        [asked] = [i.event for i in await self.journal.read(RUN) if isinstance(i.event, QuestionAsked)]
        assert "'shell.run for goal (call A.1.0)'" in asked.question
        assert "the agent is told that it had no effect" in asked.question
        self.desk.reply(asked.question_id, answer)
        return await call


async def test_a_call_is_known_by_its_attempt_and_its_own_name_and_kept_on_record():
    bench = Bench(DONE)
    result = await bench.one(WRITE)
    assert (result.status, result.result) == (CommandStatus.SUCCESS, 7)
    assert bench.fleet.calls == [(CALL_ID, "run_1:goal:1", True)]


async def test_a_lost_link_is_waited_out_and_the_same_call_asked_for():
    bench = Bench(DeviceLost("d", "s"), DeviceOffline("d"), DONE)
    assert (await bench.one(WRITE)).status is CommandStatus.SUCCESS
    assert bench.fleet.calls == [(CALL_ID, "run_1:goal:1", True)] * 3


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ("yes", CommandStatus.SUCCESS, "says that it took effect"),
        ("no", CommandStatus.FAILURE, "counts as not done"),
    ],
)
async def test_a_call_that_was_cut_off_is_a_person_s_to_know_and_the_agent_goes_on(answer, status, words):
    bench = Bench(CUT_OFF)
    result = await bench.answered(WRITE, answer)
    assert result.status is status
    assert words in (result.result or result.error)
    assert (bench.hands.ended, len(bench.fleet.calls)) == (None, 1)


async def test_an_answer_about_one_call_is_none_about_another_call_of_the_same_tool_after_a_restart():
    before = Bench(CUT_OFF)
    await before.answered(WRITE, "yes")
    after = Bench(CUT_OFF)
    after.desk.restore(RUN, recall(await before.journal.read(RUN)))
    call = asyncio.ensure_future(after.one(replace(WRITE, call_id="A.1.1")))
    for _ in range(50):
        await asyncio.sleep(0)
    [asked] = [i.event for i in await after.journal.read(RUN) if isinstance(i.event, QuestionAsked)]
    after.desk.reply(asked.question_id, "no")
    assert "counts as not done" in (await call).error


async def test_a_person_s_fail_ends_the_goal_in_doubt():
    bench = Bench(CUT_OFF)
    with pytest.raises(DeviceError):
        await bench.answered(WRITE, "fail")
    assert isinstance(bench.hands.ended, Failed)
    assert bench.hands.ended.in_doubt


async def test_the_rules_fail_and_again_keep_their_meaning():
    bench = Bench(CUT_OFF, policy=InDoubt.FAIL)
    with pytest.raises(DeviceError):
        await bench.one(WRITE)
    assert bench.hands.ended.in_doubt
    assert "counts as not done" in (await Bench(CUT_OFF, policy=InDoubt.AGAIN).one(WRITE)).error


async def test_a_call_that_only_reads_is_made_again_and_asks_nobody():
    bench = Bench(CUT_OFF, DONE)
    assert (await bench.one(READ)).result == 7
    assert [once for _, _, once in bench.fleet.calls] == [True, False]


async def test_reading_is_given_up_when_the_device_is_lost_with_it_too_often():
    bench = Bench(*[DeviceLost("d", "s")] * 3)
    assert (await bench.one(replace(READ, once=False))).status is CommandStatus.FAILURE


async def test_a_call_whose_arguments_are_not_kept_is_never_made_from_the_record():
    bench = Bench()
    unsent = await bench.one(replace(WRITE, withheld=True))
    reading = await bench.one(replace(READ, withheld=True, sent=True))
    assert "held a secret" in unsent.error
    assert "held a secret" in reading.error
    sent = await bench.answered(replace(WRITE, withheld=True, sent=True), "yes")
    assert sent.status is CommandStatus.SUCCESS
    assert bench.fleet.calls == []


async def test_after_one_that_failed_the_rest_is_skipped():
    bench = Bench(DeviceError("No."))
    results = await bench.hands.execute_commands([WRITE, WRITE])
    assert [result.status for result in results] == [CommandStatus.FAILURE, CommandStatus.SKIPPED]
