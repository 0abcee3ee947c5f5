import asyncio
import threading

import pytest

from starloom.clock import ManualClock
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import TaskReady
from starloom.journal.rows import to_rows
from starloom.journal.sqlite import SqliteJournal

RUN = RunId("run_1")


@pytest.fixture
async def journal(tmp_path):
    store = await SqliteJournal.open(tmp_path / "journal.db", ManualClock())
    yield store
    await store.close()


async def test_work_that_gathers_during_a_commit_is_committed_together(journal):
    gate = threading.Event()
    batches: list[object] = []
    first = asyncio.ensure_future(journal.write(lambda batch: gate.wait(10)))
    rest = [asyncio.ensure_future(journal.write(lambda batch: batches.append(batch))) for _ in range(50)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *rest)
    assert len(batches) == 50
    assert len({id(batch) for batch in batches}) <= 2


async def test_work_that_fails_does_not_fail_its_neighbours(journal):
    gate = threading.Event()
    first = asyncio.ensure_future(journal.write(lambda batch: gate.wait(10)))
    good = [asyncio.ensure_future(journal.append(RUN, [TaskReady(f"t{number}")])) for number in range(3)]

    def broken(batch):
        batch.connection.execute("DELETE FROM events")
        raise ValueError("broken")

    bad = asyncio.ensure_future(journal.write(broken))
    good += [asyncio.ensure_future(journal.append(RUN, [TaskReady(f"t{number}")])) for number in range(3, 6)]
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(ValueError, match="broken"):
        await bad
    await asyncio.gather(first, *good)
    assert [(one.seq, one.event.task_id) for one in await journal.read(RUN)] == [(n + 1, f"t{n}") for n in range(6)]


async def test_error_of_sqlite_reaches_the_caller_as_ours(journal):
    with pytest.raises(StoreError, match="Could not write to the journal"):
        await journal.write(lambda batch: batch.connection.execute("INSERT INTO nowhere VALUES (1)"))
    await journal.append(RUN, [TaskReady("a")])


async def test_what_was_rolled_back_is_not_published(journal):
    stream = journal.follow(RUN)
    await journal.append(RUN, [TaskReady("a")])
    assert (await anext(stream)).seq == 1

    def half(batch):
        state = batch.find(RUN)
        batch.published.append((RUN, (batch.insert(state, _row("never")),)))
        raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        await journal.write(half)
    await journal.append(RUN, [TaskReady("b")])
    assert (await anext(stream)).event == TaskReady("b")
    await stream.aclose()


async def test_close_commits_what_waits(tmp_path):
    store = await SqliteJournal.open(tmp_path / "journal.db", ManualClock())
    waiting = [asyncio.ensure_future(store.append(RUN, [TaskReady(f"t{number}")])) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*waiting)) == 20
    store = await SqliteJournal.open(tmp_path / "journal.db", ManualClock())
    assert len(await store.read(RUN)) == 20
    await store.close()


def _row(task: str):
    return to_rows([TaskReady(task)], (), ManualClock().now())[0]
