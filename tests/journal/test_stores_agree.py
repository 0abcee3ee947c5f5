"""Any sequence of calls leaves the SQLite journal and the one in memory with the same content."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from starloom.clock import ManualClock
from starloom.ids import RunId
from starloom.journal.events import RunEnded, RunResumed, RunStarted, TaskCompleted, TaskReady
from starloom.journal.memory import MemoryJournal
from starloom.journal.sqlite import SqliteJournal
from starloom.journal.store import Fenced, Journal

EXAMPLES = 2_000 if os.environ.get("STARLOOM_PROPERTIES") == "long" else 20
RUNS = tuple(RunId(name) for name in ("a", "b"))

RUN_IDS = st.sampled_from(RUNS)
EVENTS = st.one_of(
    st.builds(TaskReady, st.text(st.characters(codec=None), max_size=5)),
    st.builds(
        TaskCompleted, st.just("t"), st.integers(), st.recursive(st.none() | st.floats(allow_nan=False), st.lists)
    ),
    st.sampled_from([RunStarted("go"), RunEnded("finished"), RunResumed()]),
)
KEYED = st.lists(st.tuples(EVENTS, st.none() | st.sampled_from(["k1", "k2", "k3"])), max_size=4)
STEPS = st.one_of(
    st.tuples(st.just("append"), RUN_IDS, KEYED, st.none() | st.integers(0, 3)),
    st.tuples(st.just("take"), RUN_IDS),
    st.tuples(st.just("wait"), st.integers(0, 10**12)),
    st.tuples(st.just("reopen")),
)


async def perform(journal: Journal, step: tuple) -> object:
    match step:
        case ("append", run_id, keyed, epoch):
            try:
                return await journal.append(
                    run_id, [event for event, _ in keyed], keys=[key for _, key in keyed], epoch=epoch
                )
            except Fenced:
                return "fenced"
        case ("take", run_id):
            return await journal.take(run_id)
    return None


async def content(journal: Journal) -> list[object]:
    reads = [await journal.read(run_id, after) for run_id in RUNS for after in (0, 2)]
    chunks = [[chunk async for chunk in journal.chunks(run_id, 1, 2)] for run_id in RUNS]
    return [*reads, *chunks, await journal.runs()]


@pytest.mark.properties
@settings(deadline=None, max_examples=EXAMPLES)
@given(st.lists(STEPS, max_size=12))
def test_stores_agree(steps):
    async def compare(path: Path) -> None:
        clock = ManualClock()
        memory, stored = MemoryJournal(clock), await SqliteJournal.open(path, clock)
        for step in steps:
            if step[0] == "wait":
                clock.advance(step[1] / 1_000_000)
            elif step[0] == "reopen":
                await stored.close()
                stored = await SqliteJournal.open(path, clock)
            assert await perform(memory, step) == await perform(stored, step)
        assert await content(memory) == await content(stored)
        await stored.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(Path(directory) / "journal.db"))
