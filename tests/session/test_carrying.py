"""One tool call through everything that can go wrong with its device."""

import asyncio

import pytest

from starloom.aip.extension import Capability
from starloom.aip.messages import IN_DOUBT, Command, Result, ResultStatus
from starloom.clock import ManualClock
from starloom.errors import DeviceError
from starloom.fleet.errors import CallTimedOut, DeviceLost, DeviceOffline
from starloom.fleet.records import DeviceRecord, DeviceStatus
from starloom.ids import AttemptId, CountingIds, DeviceId, RunId, TaskId
from starloom.journal.events import QuestionAnswered, QuestionAsked
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.ports import Attempt, Completed, Failed
from starloom.orchestrator.settings import InDoubt
from starloom.session.carrying import Carrier, Doubts
from starloom.session.desk import ApprovalDesk

RUN = RunId("run_1")
DONE = Result(status=ResultStatus.SUCCESS, result=7)
CUT_OFF = Result(status=ResultStatus.FAILURE, error=IN_DOUBT)
COMMAND = Command(tool_name="shell.run", tool_type="action", parameters={}, call_id="run_1:a:1")


class SimulatedFleet:
    """One device; each call ends as the next of `ends` says, an exception or a result."""

    def __init__(self, *ends, remembers=True):
        self.ends = list(ends)
        self.calls = []
        self.cancelled = 0
        self._there = True
        self._changed = asyncio.Event()
        self._capabilities = frozenset({Capability.ATTEMPTS.value} if remembers else ())

    def records(self):
        status = DeviceStatus.IDLE if self._there else DeviceStatus.DISCONNECTED
        return (DeviceRecord("d", "linux", "linux", status, capabilities=self._capabilities),)

    def move(self, *, there):
        self._there = there
        self._changed.set()

    async def changes(self):
        yield
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    async def call(self, device_id, commands, *, session_id, task_name, timeout_s, once):
        self.calls.append((commands[0].call_id, once))
        end = self.ends.pop(0)
        if end is None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if isinstance(end, DeviceLost):
            self._there = self._there and not getattr(end, "stays_away", False)
        if isinstance(end, Exception):
            raise end
        return [end]


class Bench:
    def __init__(self, *ends, policy=InDoubt.ASK, remembers=True):
        self.clock = ManualClock()
        self.journal = MemoryJournal(self.clock)
        self.desk = ApprovalDesk(self.journal, CountingIds())
        self.fleet = SimulatedFleet(*ends, remembers=remembers)
        self.carrier = Carrier(self.fleet, self.clock, Doubts(self.desk, policy), 10.0)

    def carry(self, *, repeatable=False, sent=False, idempotent=False):
        attempt = Attempt(
            RUN, TaskId("a"), 1, AttemptId("run_1:a:1"), DeviceId("d"), "a", "", timeout_s=60.0, idempotent=idempotent
        )
        return asyncio.ensure_future(self.carrier.carry(attempt, COMMAND, repeatable=repeatable, sent=sent))

    async def question(self):
        """Return the id of the question once one is open."""
        for _ in range(50):
            await asyncio.sleep(0)
            asked = [item.event for item in await self.journal.read(RUN) if isinstance(item.event, QuestionAsked)]
            if asked:
                return asked[-1].question_id
        raise AssertionError("nobody asked")


async def settle():
    for _ in range(30):
        await asyncio.sleep(0)


def lost():
    return DeviceLost("d", "s")


async def test_an_answer_is_the_result():
    bench = Bench(DONE)
    assert await bench.carry() == DONE
    assert bench.fleet.calls == [("run_1:a:1", True)]


async def test_a_lost_device_is_asked_again_by_the_same_id():
    bench = Bench(lost(), DeviceOffline("d"), DONE)
    assert await bench.carry() == DONE
    assert bench.fleet.calls == [("run_1:a:1", True)] * 3


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("yes", Completed(None)),
        ('done {"total": 3}', Completed({"total": 3})),
        ("no", Failed("It was cut off, and someone decided that it is run again.", again=True)),
        ("fail", Failed("It was cut off, and someone decided that it has failed.", in_doubt=True)),
    ],
)
async def test_an_attempt_that_was_cut_off_is_a_persons_to_decide(answer, outcome):
    bench = Bench(CUT_OFF)
    carrying = bench.carry()
    bench.desk.reply(await bench.question(), answer)
    assert await carrying == outcome


async def test_an_answer_that_is_not_clear_is_asked_for_again_and_none_is_a_doubt():
    bench = Bench(CUT_OFF)
    carrying = bench.carry()
    first = await bench.question()
    bench.desk.reply(first, "perhaps")
    await settle()
    second = await bench.question()
    assert second != first
    bench.desk.reply(second, "")
    assert (await carrying).in_doubt


@pytest.mark.parametrize("how", [{"repeatable": True}, {"idempotent": True}])
async def test_what_may_be_repeated_asks_nobody(how):
    outcome = await Bench(CUT_OFF).carry(**how)
    assert (outcome.transient, outcome.interrupted, outcome.in_doubt) == (True, True, False)


async def test_the_policy_may_decide_in_a_persons_place():
    assert (await Bench(CUT_OFF, policy=InDoubt.FAIL).carry()).in_doubt
    assert (await Bench(CUT_OFF, policy=InDoubt.AGAIN).carry()).again


async def test_a_device_without_a_record_is_not_asked_twice():
    bench = Bench(lost(), remembers=False)
    carrying = bench.carry()
    bench.desk.reply(await bench.question(), "fail")
    assert (await carrying).in_doubt
    assert len(bench.fleet.calls) == 1


async def test_a_device_that_comes_back_after_all_answers_the_question_itself():
    gone = lost()
    gone.stays_away = True
    bench = Bench(gone, DONE)
    carrying = bench.carry()
    await settle()
    bench.clock.advance(11)
    await bench.question()
    bench.fleet.move(there=True)
    assert await carrying == DONE
    answers = [item.event for item in await bench.journal.read(RUN) if isinstance(item.event, QuestionAnswered)]
    assert [answer.by for answer in answers] == ["device"]


async def test_what_was_never_sent_goes_back_to_the_scheduler_without_doubt():
    bench = Bench()
    bench.fleet.move(there=False)
    carrying = bench.carry()
    await settle()
    bench.clock.advance(11)
    outcome = await carrying
    assert (outcome.again, outcome.in_doubt, bench.fleet.calls) == (True, False, [])


async def test_other_ends_are_failures_in_words():
    late = await Bench(CallTimedOut("d", "s", 60.0)).carry()
    assert (late.in_doubt, late.transient) == (True, False)
    assert await Bench(DeviceError("No.")).carry() == Failed("No.")


@pytest.mark.parametrize(("letting_go", "cancelled"), [(False, 1), (True, 0)])
async def test_a_cancelled_call_is_stopped_on_its_device_unless_the_hub_lets_go(letting_go, cancelled):
    bench = Bench(None)
    carrying = bench.carry()
    await settle()
    if letting_go:
        bench.carrier.let_go()
    carrying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await carrying
    assert bench.fleet.cancelled == cancelled


async def test_an_attempt_of_an_earlier_life_is_asked_about():
    bench = Bench(DONE)
    assert await bench.carry(sent=True) == DONE
