import os
from datetime import timedelta

import pytest

from starloom.clock import ManualClock
from starloom.ids import RunId
from starloom.journal.artefacts import FileArtefacts
from starloom.journal.events import RunEnded, RunStarted, TaskCompleted
from starloom.journal.retention import prunable, prune, referenced
from starloom.journal.sqlite import SqliteJournal


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def journal(tmp_path, clock):
    store = await SqliteJournal.open(tmp_path / "journal.db", clock)
    yield store
    await store.close()


async def add_run(journal, name, *, ended=True, results=()):
    run_id = RunId(name)
    await journal.append(run_id, [RunStarted(name)])
    await journal.append(run_id, [TaskCompleted("t", 1, result) for result in results])
    if ended:
        await journal.append(run_id, [RunEnded("finished")])


async def names(journal):
    return [record.run_id for record in await journal.runs()]


async def test_only_old_ended_runs_go(journal, clock):
    await add_run(journal, "old")
    await add_run(journal, "unfinished", ended=False)
    clock.advance(3_600)
    limit = clock.now()
    await add_run(journal, "young")
    records = await journal.runs()
    assert [record.run_id for record in prunable(records, keep=0, ended_before=limit)] == ["old"]
    assert [record.run_id for record in prunable(records, keep=0, ended_before=None)] == ["young", "old"]
    assert [record.run_id for record in prunable(records, keep=1, ended_before=None)] == ["old"]
    assert prunable(records, keep=3, ended_before=None) == ()


async def test_pruned_runs_are_gone_and_the_others_whole(journal, clock):
    for name in ("a", "b", "c"):
        await add_run(journal, name, results=range(50))
    before = await journal.read(RunId("c"))
    pruned = await prune(journal, None, now=clock.now(), keep=1)
    assert sorted(record.run_id for record in pruned.runs) == ["a", "b"]
    assert await names(journal) == ["c"]
    assert await journal.read(RunId("a")) == ()
    assert await journal.run(RunId("a")) is None
    assert await journal.read(RunId("c")) == before


async def test_id_of_a_pruned_run_can_be_used_again(journal, clock):
    await add_run(journal, "a")
    await prune(journal, None, now=clock.now(), keep=0)
    (recorded,) = await journal.append(RunId("a"), [RunStarted("again")])
    assert recorded.seq == 1


async def test_space_goes_back_to_the_disk(journal, clock, tmp_path):
    await add_run(journal, "large", results=["x" * 3_000] * 2_000)
    await add_run(journal, "small")
    await prune(journal, None, now=clock.now(), keep=1)
    await journal.close()
    assert (tmp_path / "journal.db").stat().st_size < 200_000


async def test_artefacts_of_pruned_runs_go_with_them(journal, clock, tmp_path):
    artefacts = FileArtefacts(tmp_path / "artefacts")
    gone, shared, unborn = [await artefacts.put(content) for content in (b"gone", b"shared", b"unborn")]
    for ref in (gone, shared):
        os.utime(artefacts.path_of(ref.hash), (1_000, 1_000))
    os.utime(artefacts.path_of(unborn.hash), (clock.now().timestamp(),) * 2)
    await add_run(journal, "a", results=[gone.to_json(), shared.to_json()])
    await add_run(journal, "b", results=[[shared.to_json()]])
    pruned = await prune(journal, artefacts, now=clock.now() + timedelta(minutes=5), keep=1)
    assert (pruned.artefacts, pruned.artefact_bytes) == (1, 4)
    assert [await artefacts.verify(ref.hash) for ref in (gone, shared, unborn)] == [False, True, True]
    assert await referenced(journal) == {shared.hash}
