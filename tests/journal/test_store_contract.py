"""What every journal store must keep, whatever it is made of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from starloom.clock import ManualClock
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import (
    AgentResponse,
    Recorded,
    RunEnded,
    RunResumed,
    RunStarted,
    TaskCompleted,
    TaskReady,
    TaskStarted,
)
from starloom.journal.memory import MemoryJournal
from starloom.journal.sqlite import SqliteJournal
from starloom.journal.store import Fenced, Journal

RUN = RunId("run_1")
OTHER = RunId("run_2")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request, clock, tmp_path) -> AsyncIterator[Journal]:
    store: Journal = (
        MemoryJournal(clock) if request.param == "memory" else await SqliteJournal.open(tmp_path / "journal.db", clock)
    )
    yield store
    await store.close()


def ready(number: int) -> TaskReady:
    return TaskReady(f"task_{number}")


async def collected(stream: AsyncIterator[Recorded], count: int) -> list[Recorded]:
    found = []
    async with asyncio.timeout(10), aclosing(stream):  # type: ignore[type-var]
        async for recorded in stream:
            found.append(recorded)
            if len(found) == count:
                break
    return found


async def test_append_returns_what_a_reader_gets(journal, clock):
    clock.advance(1.000001)
    returned = await journal.append(RUN, [RunStarted("sum the invoices"), ready(1)])
    assert [recorded.seq for recorded in returned] == [1, 2]
    assert returned[0] == Recorded(RUN, 1, datetime(2026, 1, 1, 0, 0, 1, 1, tzinfo=UTC), RunStarted("sum the invoices"))
    assert await journal.read(RUN) == returned


async def test_each_run_counts_for_itself(journal):
    await journal.append(RUN, [ready(1), ready(2)])
    await journal.append(OTHER, [ready(1)])
    (third,) = await journal.append(RUN, [ready(3)])
    assert third.seq == 3
    assert [recorded.seq for recorded in await journal.read(OTHER)] == [1]


async def test_read_starts_after_a_number(journal):
    await journal.append(RUN, [ready(number) for number in range(5)])
    assert [recorded.seq for recorded in await journal.read(RUN, after=3)] == [4, 5]
    assert await journal.read(RUN, after=5) == ()
    assert await journal.read(RunId("unknown")) == ()


async def test_chunks_hold_the_run_in_pieces(journal):
    await journal.append(RUN, [ready(number) for number in range(7)])
    chunks = [chunk async for chunk in journal.chunks(RUN, 1, 3)]
    assert [[recorded.seq for recorded in chunk] for chunk in chunks] == [[2, 3, 4], [5, 6, 7]]
    assert [chunk async for chunk in journal.chunks(RunId("unknown"))] == []


async def test_append_of_nothing_changes_nothing(journal):
    assert await journal.append(RUN, []) == ()
    assert await journal.runs() == ()
    with pytest.raises(Fenced):
        await journal.append(RUN, [ready(1)], epoch=0)
    await journal.append(OTHER, [ready(1)])
    await journal.append(RUN, [ready(1)])
    assert [record.run_id for record in await journal.runs()] == [RUN, OTHER]


async def test_repeated_key_is_left_out(journal):
    await journal.append(RUN, [ready(1)], keys=["a"])
    returned = await journal.append(RUN, [ready(2), ready(3), ready(4)], keys=["a", None, "b"])
    assert [(recorded.seq, recorded.event) for recorded in returned] == [(2, ready(3)), (3, ready(4))]
    assert await journal.append(RUN, [ready(5)], keys=["b"]) == ()
    assert [recorded.event for recorded in await journal.read(RUN)] == [ready(1), ready(3), ready(4)]


async def test_key_repeated_within_one_append_counts_once(journal):
    returned = await journal.append(RUN, [ready(1), ready(2)], keys=["a", "a"])
    assert [recorded.event for recorded in returned] == [ready(1)]


async def test_keys_belong_to_their_run(journal):
    await journal.append(RUN, [ready(1)], keys=["a"])
    assert len(await journal.append(OTHER, [ready(1)], keys=["a"])) == 1


async def test_keys_must_be_one_an_event(journal):
    with pytest.raises(StoreError, match="1 keys were given for 2 events"):
        await journal.append(RUN, [ready(1), ready(2)], keys=["a"])


async def test_duplicate_completions_racing_are_recorded_once(journal):
    event = TaskCompleted("t", 1, "done")
    answers = await asyncio.gather(*(journal.append(RUN, [event], keys=["run_1:t:1:end"]) for _ in range(8)))
    assert sorted(len(answer) for answer in answers) == [0] * 7 + [1]
    assert len(await journal.read(RUN)) == 1


async def test_forty_racing_writers_leave_no_gap(journal):
    await asyncio.gather(*(journal.append(RUN, [ready(number), ready(number)]) for number in range(40)))
    recorded = await journal.read(RUN)
    assert [one.seq for one in recorded] == list(range(1, 81))
    tasks = [one.event.task_id for one in recorded]
    assert tasks[::2] == tasks[1::2]


async def test_calls_in_order_are_recorded_in_order(journal):
    appends = [asyncio.ensure_future(journal.append(RUN, [ready(number)])) for number in range(50)]
    await asyncio.gather(*appends)
    assert [one.event for one in await journal.read(RUN)] == [ready(number) for number in range(50)]


async def test_older_owner_is_fenced(journal):
    first = await journal.take(RUN)
    await journal.append(RUN, [ready(1)], epoch=first)
    second = await journal.take(RUN)
    assert second == first + 1
    with pytest.raises(Fenced):
        await journal.append(RUN, [ready(2)], epoch=first)
    await journal.append(RUN, [ready(3)], epoch=second)
    await journal.append(RUN, [ready(4)])
    assert [one.event for one in await journal.read(RUN)] == [ready(1), ready(3), ready(4)]


async def test_epoch_of_an_unknown_run_is_fenced(journal):
    with pytest.raises(Fenced):
        await journal.append(RUN, [ready(1)], epoch=1)


async def test_fenced_append_does_not_hurt_its_neighbours(journal):
    old = await journal.take(RUN)
    new = await journal.take(RUN)
    answers = await asyncio.gather(
        *(journal.append(RUN, [ready(number)], epoch=new if number % 2 else old) for number in range(10)),
        return_exceptions=True,
    )
    assert [isinstance(answer, Fenced) for answer in answers] == [True, False] * 5
    assert [one.seq for one in await journal.read(RUN)] == [1, 2, 3, 4, 5]


async def test_taken_run_is_listed_once_it_has_an_event(journal, clock):
    await journal.take(RUN)
    assert await journal.runs() == ()
    clock.advance(60)
    await journal.append(RUN, [RunStarted("go")])
    (record,) = await journal.runs()
    assert (record.request, record.started_at, record.last_seq) == ("go", clock.now(), 1)


async def test_runs_are_listed_newest_first(journal, clock):
    await journal.append(RUN, [RunStarted("one"), ready(1)])
    clock.advance(5)
    await journal.append(OTHER, [RunStarted("two")])
    await journal.append(RUN, [RunEnded("finished", "COMPLETED")])
    newest, oldest = await journal.runs()
    assert (newest.run_id, newest.request, newest.ended_at, newest.stop_reason) == (OTHER, "two", None, None)
    assert (oldest.run_id, oldest.ended_at, oldest.stop_reason, oldest.last_seq) == (RUN, clock.now(), "finished", 3)
    assert await journal.runs(limit=1) == (newest,)
    assert await journal.run(RUN) == oldest
    assert await journal.run(RunId("unknown")) is None


async def test_run_resumed_after_its_end_is_open_again(journal):
    await journal.append(RUN, [RunStarted("one"), RunEnded("failed"), RunResumed()])
    (record,) = await journal.runs()
    assert (record.ended_at, record.stop_reason) == (None, None)


async def test_values_come_back_exactly(journal):
    value = {
        "floats": [0.1 + 0.2, 1e22, -0.0, 5e-324, 1.7976931348623157e308],
        "integers": [0, -1, 2**63, 10**40],
        "text": ["", "考虑", "\u2028\x00", 'quote " and \\'],
        "surrogate": "name-\udcff.txt",
        "others": [None, True, False, {}, [], {"": {"nested": [[]]}}],
    }
    deep: list = []
    for _ in range(400):
        deep = [deep]
    await journal.append(RUN, [AgentResponse("HostAgent", 1, value), TaskCompleted("t", 1, deep)])
    first, second = await journal.read(RUN)
    assert first.event.response == value
    assert str(first.event.response) == str(value)
    assert second.event.result == deep


async def test_not_a_number_comes_back(journal):
    await journal.append(RUN, [TaskCompleted("t", 1, [float("inf"), float("-inf"), float("nan")])])
    (recorded,) = await journal.read(RUN)
    assert str(recorded.event.result) == "[inf, -inf, nan]"


async def test_value_without_json_form_is_refused(journal):
    with pytest.raises(StoreError, match="cannot be stored as JSON"):
        await journal.append(RUN, [TaskCompleted("t", 1, object())])
    assert await journal.read(RUN) == ()


async def test_later_change_of_a_value_does_not_reach_the_journal(journal):
    result = {"total": 1}
    (returned,) = await journal.append(RUN, [TaskCompleted("t", 1, result)])
    result["total"] = 2
    assert returned.event.result == {"total": 1}
    assert (await journal.read(RUN))[0].event.result == {"total": 1}


async def test_follow_yields_the_past_and_then_what_comes(journal):
    await journal.append(RUN, [RunStarted("go"), ready(1)])
    reading = asyncio.ensure_future(collected(journal.follow(RUN, after=1), 3))
    await journal.append(OTHER, [ready(9)])
    await journal.append(RUN, [ready(2)])
    await journal.append(RUN, [ready(3)])
    assert [(one.seq, one.event) for one in await reading] == [(2, ready(1)), (3, ready(2)), (4, ready(3))]


async def test_follow_of_a_run_that_does_not_exist_yet(journal):
    reading = asyncio.ensure_future(collected(journal.follow(RUN), 1))
    await asyncio.sleep(0)
    await journal.append(RUN, [ready(1)])
    assert [one.seq for one in await reading] == [1]


async def test_follow_ends_after_the_run_has_ended(journal):
    reading = asyncio.ensure_future(collected(journal.follow(RUN), 100))
    await journal.append(RUN, [RunStarted("go")])
    await journal.append(RUN, [RunEnded("finished")])
    assert [one.event.kind for one in await reading] == ["run_started", "run_ended"]
    assert len(await collected(journal.follow(RUN), 100)) == 2
    assert await collected(journal.follow(RUN, after=2), 100) == []


async def test_follow_goes_on_when_the_run_was_resumed(journal):
    await journal.append(RUN, [RunStarted("go"), RunEnded("failed"), RunResumed()])
    reading = asyncio.ensure_future(collected(journal.follow(RUN), 100))
    await journal.append(RUN, [RunEnded("finished")])
    assert [one.seq for one in await reading] == [1, 2, 3, 4]


async def test_follower_that_falls_behind_misses_nothing(journal):
    stream = journal.follow(RUN)
    await journal.append(RUN, [RunStarted("go")])
    assert (await anext(stream)).seq == 1
    waiting = asyncio.ensure_future(anext(stream))
    await journal.append(RUN, [ready(0)])
    assert (await waiting).seq == 2
    for start in range(0, 5_000, 500):
        await journal.append(RUN, [ready(number) for number in range(start, start + 500)])
    await journal.append(RUN, [RunEnded("finished")])
    assert [one.seq for one in await collected(stream, 10_000)] == list(range(3, 5_004))


async def test_ten_followers_see_the_same(journal):
    readings = [asyncio.ensure_future(collected(journal.follow(RUN), 1_000)) for _ in range(10)]
    for number in range(20):
        await journal.append(RUN, [TaskStarted(f"t{number}", 1, f"run_1:t{number}:1", "d")])
    await journal.append(RUN, [RunEnded("finished")])
    for reading in readings:
        assert [one.seq for one in await reading] == list(range(1, 22))


async def test_close_ends_followers_with_an_error(journal):
    reading = asyncio.ensure_future(collected(journal.follow(RUN), 2))
    await journal.append(RUN, [ready(1)])
    await journal.close()
    with pytest.raises(StoreError, match="closed"):
        await reading


async def test_closed_journal_refuses_work(journal):
    await journal.close()
    await journal.close()
    with pytest.raises(StoreError, match="is closed"):
        await journal.append(RUN, [ready(1)])
    with pytest.raises(StoreError, match="is closed"):
        await journal.read(RUN)
    with pytest.raises(StoreError, match="is closed"):
        await journal.take(RUN)


async def test_cancelled_append_leaves_the_journal_usable(journal):
    waiting = asyncio.ensure_future(journal.append(RUN, [ready(1)], keys=["a"]))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await journal.append(RUN, [ready(1)], keys=["a"])
    assert [one.seq for one in await journal.read(RUN)] == [1]


async def test_events_are_found_by_how_their_keys_begin(journal):
    await journal.append(RUN, [ready(1), ready(2), ready(3)], keys=["request:a:1", None, "request:b:1"])
    await journal.append(OTHER, [ready(4), ready(5)], keys=["request:a:2", "answer:a"])

    async def found(prefix: str, run_id: RunId | None = None) -> list[tuple[str, str, int]]:
        return [(key, item.run_id, item.seq) for key, item in await journal.keyed(prefix, run_id)]

    assert await found("request:", RUN) == [("request:a:1", RUN, 1), ("request:b:1", RUN, 3)]
    assert await found("request:a:") == [("request:a:1", RUN, 1), ("request:a:2", OTHER, 1)]
    assert await found("answer:a", RUN) == []
    assert await found("request:", RunId("run_9")) == []
    [(_, recorded)] = await journal.keyed("answer:")
    assert recorded == (await journal.read(OTHER))[1]
