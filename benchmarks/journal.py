"""What the journal costs: a task, an event read, an event on disk; and beside DBOS and LangGraph on the same graphs.

    python benchmarks/journal.py [--events 1000000] [--peers PYTHON]

The peers run in an environment of their own (`python -m venv X; X/bin/pip install dbos langgraph
langgraph-checkpoint-sqlite`), named by `--peers` or STARLOOM_PEERS; without it their lines are skipped. Tasks take no
time, so what is measured is the record-keeping alone: two events a task, or whatever the peer keeps for a step.
CPU is the process's own, user and system, all threads. Ratios hold across machines, absolute times do not.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starloom.clock import SystemClock
from starloom.ids import RunId, TaskId, attempt_id
from starloom.journal.codec import dumps, loads
from starloom.journal.events import Event, RunStarted, TaskCompleted, TaskStarted
from starloom.journal.memory import MemoryJournal
from starloom.journal.sqlite import SqliteJournal
from starloom.journal.store import Journal

RUN = RunId("run_0123456789abcdef")
ROUNDS = 3
GRAPHS = {
    "chain 200": [1] * 200,
    "fan 200": [200],
    "layered 1000": [50] * 20,
    "layered 5000": [250] * 20,
}
"""Tasks a layer: each waits for all of the layer before."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task costs; `size_bytes` on disk."""

    cpu_ms: float
    wall_ms: float
    size_bytes: float = 0.0


CPU_TARGET_MS = 0.25  # added a task at 1,000 tasks
FOLD_TARGET_MS = 60.0  # 10,000 events
MEMORY_TARGET_MB = 50.0  # grown over the longer fold, whatever its length


Task = Callable[[int], Awaitable[object]]


async def timed(layers: Sequence[int], task: Task) -> Cost:
    cpu, wall, number = time.process_time(), time.perf_counter(), 0
    for width in layers:
        await asyncio.gather(*(task(number + offset) for offset in range(width)))
        number += width
    return Cost((time.process_time() - cpu) / number * 1e3, (time.perf_counter() - wall) / number * 1e3)


def started(number: int) -> TaskStarted:
    task = TaskId(f"task_{number}")
    return TaskStarted(task, 1, attempt_id(RUN, task, 1), "device-north")


def completed(number: int) -> TaskCompleted:
    return TaskCompleted(f"task_{number}", 1, {"files": ["north/a.pdf"], "total": number * 1.25, "pages": 3})


async def journalled(journal: Journal) -> Task:
    epoch = await journal.take(RUN)
    await journal.append(RUN, [RunStarted("benchmark")], epoch=epoch)

    async def task(number: int) -> None:
        first = started(number)
        await journal.append(RUN, [first], keys=[f"{first.attempt_id}:started"], epoch=epoch)
        await journal.append(RUN, [completed(number)], keys=[f"{first.attempt_id}:ended"])

    return task


async def bare(number: int) -> None:
    started(number), completed(number)


def verdict(what: str, value: float, limit: float, unit: str) -> str:
    return f"  {what:52} {value:9.3f} {unit} of at most {limit:g}: {'reached' if value <= limit else 'MISSED'}"


async def cost_per_task(verdicts: list[str]) -> dict[str, Cost]:
    print(
        "\nper task, milliseconds (best of three)   "
        "memory: CPU   SQLite: CPU    wall   added: CPU    wall   bytes on disk"
    )
    costs: dict[str, Cost] = {}
    for name, layers in GRAPHS.items():
        nothing = min([await timed(layers, bare) for _ in range(ROUNDS)], key=lambda cost: cost.cpu_ms)
        memory = [await timed(layers, await journalled(MemoryJournal(SystemClock()))) for _ in range(ROUNDS)]
        stored, size_bytes = [], 0
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory) / "journal.db"
                journal = await SqliteJournal.open(path, SystemClock())
                stored.append(await timed(layers, await journalled(journal)))
                await journal.close()
                size_bytes = path.stat().st_size
        best = min(stored, key=lambda cost: cost.cpu_ms)
        added_ms = best.cpu_ms - nothing.cpu_ms
        costs[name] = Cost(best.cpu_ms, best.wall_ms, size_bytes / sum(layers))
        print(
            f"  {name:38} {min(cost.cpu_ms for cost in memory):11.3f} {best.cpu_ms:13.3f} {best.wall_ms:7.3f} "
            f"{added_ms:12.3f} {best.wall_ms - nothing.wall_ms:7.3f} {size_bytes / sum(layers):15.0f}"
        )
        if sum(layers) == 1_000:
            verdicts.append(verdict(f"added CPU a task, {name}", added_ms, CPU_TARGET_MS, "ms"))
    return costs


def per_call_us(call: Callable[[], object], calls: int = 5_000) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        cpu = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, time.process_time() - cpu)
    return best / calls * 1e6


def codec() -> None:
    print("\ncodec, microseconds an event             ours: write    read    standard library: write    read")
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    reply = {"thought": "consider the files " * 40, "plan": [f"step {n}" for n in range(20)], "status": "CONTINUE"}
    for name, value in (
        ("task_completed", {"task_id": "a", "attempt": 1, "result": completed(1).result}),
        ("reply", reply),
    ):
        text = dumps(value)
        print(
            f"  {name:38} {per_call_us(lambda v=value: dumps(v)):12.2f} {per_call_us(lambda t=text: loads(t)):7.2f} "
            f"{per_call_us(lambda v=value: encoder.encode(v)):26.2f} {per_call_us(lambda t=text: json.loads(t)):7.2f}"
        )


async def fill(path: Path, events: int) -> None:
    journal = await SqliteJournal.open(path, SystemClock())
    for start in range(0, events, 5_000):
        batch: list[Event] = []
        for number in range(start // 2, min(start + 5_000, events) // 2):
            batch += [started(number), completed(number)]
        await journal.append(RUN, batch)
    await journal.close()


READ = """
import asyncio, resource, sys, time
from pathlib import Path
from starloom.clock import SystemClock
from starloom.ids import RunId
from starloom.journal.events import TaskCompleted
from starloom.journal.sqlite import SqliteJournal

async def main(path, run_id):
    journal = await SqliteJournal.open(Path(path), SystemClock(), read_only=True)
    async for chunk in journal.chunks(RunId(run_id)):
        break  # the first chunk pays for imports, statements and the allocator
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall, count, total = time.process_time(), time.perf_counter(), 0, 0.0
    async for chunk in journal.chunks(RunId(run_id)):
        count += len(chunk)
        for recorded in chunk:
            if isinstance(recorded.event, TaskCompleted):
                total += recorded.event.result["total"]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    await journal.close()
    print(count, cpu * 1e3, wall * 1e3, grown / 1024)

asyncio.run(main(*sys.argv[1:]))
"""


def cost_of_reading(sizes: Sequence[int], verdicts: list[str]) -> None:
    print(
        "\nread and fold, chunks of 1,000        events    CPU ms   wall ms   us/event   memory grown MB   bytes/event"
    )
    for size in sizes:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "journal.db"
            asyncio.run(fill(path, size))
            rounds = [read_back(path) for _ in range(ROUNDS if size <= 100_000 else 1)]
            count, cpu_ms, wall_ms, grown_mb = min(rounds, key=lambda result: result[1])
            print(
                f"  {'two events a task, no keys':30} {count:12,.0f} {cpu_ms:9.0f} {wall_ms:9.0f} "
                f"{cpu_ms / count * 1e3:10.1f} {grown_mb:17.1f} {path.stat().st_size / count:13.0f}"
            )
            if size == 10_000:
                verdicts.append(verdict("fold of 10,000 events, CPU", cpu_ms, FOLD_TARGET_MS, "ms"))
    verdicts.append(verdict(f"memory grown in the fold of {sizes[-1]:,} events", grown_mb, MEMORY_TARGET_MB, "MB"))


def read_back(path: Path) -> list[float]:
    """Fold in a process of its own, so that its memory is the fold's."""
    command = [sys.executable, "-c", READ, str(path), RUN]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(word) for word in output.split()]


def beside_peers(ours: dict[str, Cost], python: str | None) -> None:
    print("\nbeside others, same graphs: CPU, wall and bytes on disk a task, and as multiples of Starloom's journal")
    if python is None:
        print("  skipped: no environment with DBOS and LangGraph (see --help)")
        return
    script = Path(__file__).parent / "peers" / "durability.py"
    for peer in ("dbos", "langgraph"):
        for name, layers in GRAPHS.items():
            if sum(layers) > 1_000:
                continue
            with tempfile.TemporaryDirectory() as directory:
                done = subprocess.run(
                    [python, str(script), peer, directory, json.dumps(layers)], capture_output=True, text=True
                )
            if done.returncode:
                print(f"  {peer:10} {name:28} skipped: {(done.stderr.strip().splitlines() or ['failed'])[-1][:90]}")
                continue
            theirs, own = json.loads(done.stdout.splitlines()[-1]), ours[name]
            print(
                f"  {peer:10} {name:14} CPU {theirs['cpu_ms']:7.2f} ms = {theirs['cpu_ms'] / own.cpu_ms:5.1f} x"
                f"   wall {theirs['wall_ms']:7.2f} ms = {theirs['wall_ms'] / own.wall_ms:5.1f} x"
                f"   disk {theirs['bytes']:8,.0f} bytes = {theirs['bytes'] / own.size_bytes:5.1f} x"
                f"   {theirs['version']}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, help="the longer of the two runs that are read")
    parser.add_argument("--peers", default=os.environ.get("STARLOOM_PEERS"), help="a Python with the peers installed")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    verdicts: list[str] = []
    costs = asyncio.run(cost_per_task(verdicts))
    codec()
    cost_of_reading((10_000, arguments.events), verdicts)
    beside_peers(costs, arguments.peers)
    print("\ntargets")
    print("\n".join(verdicts))
    print(f"\npeak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
