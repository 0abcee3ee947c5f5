"""Kills a process that appends, at random moments, and looks for what was acknowledged.

Short by default; `STARLOOM_CHAOS=long` kills two hundred times.
"""

import os
import random
import signal
import subprocess
import sys

import pytest

from starloom.clock import SystemClock
from starloom.ids import RunId
from starloom.journal.sqlite import SqliteJournal

WRITER = """
import asyncio, random, sys
from pathlib import Path
from starloom.clock import SystemClock
from starloom.ids import RunId
from starloom.journal.events import TaskCompleted, TaskStarted
from starloom.journal.sqlite import SqliteJournal

async def burst(journal, run_id, name, size):
    events = [TaskStarted(f"{name}:{number}", 1, f"{run_id}:{name}:{number}", "d") for number in range(size)]
    for recorded in await journal.append(run_id, events, keys=[f"{name}:{number}" for number in range(size)]):
        print(run_id, recorded.seq, recorded.event.task_id, flush=True)

async def main(path, life):
    random.seed(life)
    journal = await SqliteJournal.open(Path(path), SystemClock())
    print("open", flush=True)
    number = 0
    while True:
        async with asyncio.TaskGroup() as group:
            for _ in range(random.randint(1, 20)):
                number += 1
                run_id = RunId(f"run_{number % 3}")
                group.create_task(burst(journal, run_id, f"{life}.{number}", random.randint(1, 5)))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.chaos
async def test_killed_writer_loses_nothing_it_acknowledged(tmp_path):
    path = tmp_path / "journal.db"
    chance = random.Random(20261130)
    kills = 200 if os.environ.get("STARLOOM_CHAOS") == "long" else 5
    acknowledged: dict[tuple[str, int], str] = {}
    for life in range(kills):
        _live_and_die(path, life, chance, acknowledged)
        if life % 10 == 9 or life == kills - 1:
            await _check(path, acknowledged)
    assert len(acknowledged) > 10 * kills
    print(f"{kills} kills, {len(acknowledged)} events acknowledged, none lost, no gap")


def _live_and_die(path, life: int, chance: random.Random, acknowledged: dict[tuple[str, int], str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(life)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    lines = [process.stdout.readline() for _ in range(chance.randint(0, 400))]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    for line in (*lines, *rest.splitlines(keepends=True)):
        if line.endswith("\n"):
            run_id, seq, task_id = line.split()
            assert acknowledged.setdefault((run_id, int(seq)), task_id) == task_id


async def _check(path, acknowledged: dict[tuple[str, int], str]) -> None:
    journal = await SqliteJournal.open(path, SystemClock())
    held: dict[tuple[str, int], str] = {}
    for record in await journal.runs():
        seqs = []
        async for chunk in journal.chunks(RunId(record.run_id)):
            seqs += [recorded.seq for recorded in chunk]
            held |= {(record.run_id, recorded.seq): recorded.event.task_id for recorded in chunk}
        assert seqs == list(range(1, record.last_seq + 1))
    await journal.close()
    assert {key: held.get(key) for key in acknowledged} == acknowledged
    bursts: dict[str, list[int]] = {}
    for task_id in held.values():
        name, number = task_id.rsplit(":", 1)
        bursts.setdefault(name, []).append(int(number))
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in bursts.values())
