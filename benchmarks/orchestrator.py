"""What scheduling costs: the constellation's table, ours beside LangGraph, dask and an asyncio floor.

    python benchmarks/orchestrator.py [--peers PYTHON] [--quick] [--repeat 3]

The peers run in an environment of their own (`python -m venv X; X/bin/pip install langgraph "dask[distributed]"`),
named by `--peers` or STARLOOM_PEERS; without it their columns say so. Every figure comes from a process of its own; the
least of `--repeat` runs counts, for other work on the machine only ever adds. Tasks do nothing: what is measured is the
engine.
CPU is the process's own, all threads. Ratios hold across machines, absolute times do not.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starloom.clock import SystemClock
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import load, save
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.line import TaskStarLine
from starloom.constellation.problems import CycleError
from starloom.constellation.star import TaskStar
from starloom.ids import DeviceId, RunId
from starloom.journal.sqlite import SqliteJournal
from starloom.orchestrator.ports import Attempt, Completed, DeviceOffer, Outcome
from starloom.orchestrator.replanning import ReplanRequest
from starloom.orchestrator.runner import Runner
from starloom.orchestrator.settings import ReplanPolicy, RunSettings

PEERS = Path(__file__).parent / "peers" / "graphs.py"
GRAPHS = [("chain", 200), ("fan", 200), ("layered", 100), ("layered", 1_000), ("layered", 5_000), ("layered", 20_000)]
LANGGRAPH_MOST, DASK_MOST = 5_000, 5_000  # beyond, they take minutes and gigabytes
LONG = 100_000


def parents_of(shape: str, size: int) -> list[list[int]]:
    spec = importlib.util.spec_from_file_location("graphs", PEERS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[list[int]] = module.parents_of(shape, size)
    return found


class Devices:
    """Eight devices that never change."""

    def offers(self) -> list[DeviceOffer]:
        """Return the eight."""
        return [DeviceOffer(DeviceId(f"d{number}"), "linux") for number in range(8)]

    async def changes(self) -> AsyncIterator[None]:
        """Yield never."""
        await asyncio.Event().wait()
        yield


class Instant:
    """Completes every attempt at once."""

    async def execute(self, attempt: Attempt) -> Outcome:
        """Return at once."""
        return Completed()


def build(parents: list[list[int]]) -> tuple[TaskConstellation, float]:
    """Return the graph, built by add_task and add_dependency, and the CPU seconds of those calls."""
    stars = [TaskStar(f"t{number}") for number in range(len(parents))]
    lines = [TaskStarLine(f"t{parent}", f"t{number}") for number, before in enumerate(parents) for parent in before]
    constellation = TaskConstellation("bench")
    before_s = time.process_time()
    for star in stars:
        constellation.add_task(star)
    for line in lines:
        constellation.add_dependency(line)
    return constellation, time.process_time() - before_s


async def run(shape: str, size: int, *, with_journal: bool) -> dict[str, float]:
    parents = parents_of(shape, size)
    constellation, build_s = build(parents)
    elements = constellation.task_count + constellation.dependency_count
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        journal = await SqliteJournal.open(Path(folder) / "journal.sqlite", clock) if with_journal else None
        runner = Runner(RunId("bench"), executor=Instant(), devices=Devices(), clock=clock, journal=journal)
        before_s = time.process_time()
        result = await runner.run(constellation)
        used_s = time.process_time() - before_s
        if journal is not None:
            await journal.close()
    assert result.stop_reason == "finished"
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"run_ms": used_s / size * 1e3, "build_us": build_s / elements * 1e6, "peak_mb": peak_mb}


def median_ms(work: Callable[[], object], times: int = 21) -> float:
    taken = []
    for _ in range(times):
        before_s = time.process_time()
        work()
        taken.append(time.process_time() - before_s)
    return sorted(taken)[times // 2] * 1e3


def edits() -> dict[str, float]:
    """Return milliseconds of execute, undo and redo for each command at 1,000 tasks, and the history's memory."""
    constellation, _ = build(parents_of("layered", 1_000))
    editor = ConstellationEditor(constellation)
    line_id = next(iter(constellation.get_task("t500").lines_in)).line_id
    forms: dict[str, dict[str, Any]] = {
        "add_task": {"command": "add_task", "task": {"task_id": "new"}},
        "update_task": {"command": "update_task", "task_id": "t500", "changes": {"name": "other"}},
        "add_dependency": {"command": "add_dependency", "dependency": {"from": "t0", "to": "t999"}},
        "remove_dependency": {"command": "remove_dependency", "line_id": line_id},
        "remove_task": {"command": "remove_task", "task_id": "t500"},
    }
    found: dict[str, float] = {}
    for name, form in forms.items():
        spent: dict[str, list[float]] = {"execute": [], "undo": [], "redo": []}
        for _ in range(21):
            for step, work in (
                ("execute", lambda form=form: editor.execute_command(form)),
                ("undo", editor.undo),
                ("redo", editor.redo),
            ):
                before_s = time.process_time()
                work()
                spent[step].append(time.process_time() - before_s)
            editor.undo()
        found |= {f"{name} {step}": sorted(taken)[10] * 1e3 for step, taken in spent.items()}
    editor.clear_history()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(100):
        editor.update_task("t1", name=f"name {number}")
    found["history of 100 edits, MB"] = (tracemalloc.get_traced_memory()[0] - before) / 2**20
    tracemalloc.stop()
    return found


def files() -> dict[str, float]:
    """Return the figures of a 100,000-task chain: build, save, load, and refuse the edge that would close it."""
    constellation, build_s = build(parents_of("chain", LONG))
    editor = ConstellationEditor(constellation)

    def close() -> None:
        try:
            editor.add_dependency(TaskStarLine(f"t{LONG - 1}", "t0"))
        except CycleError:
            return
        raise AssertionError("the closing edge was accepted")

    found = {"refuse the closing edge, ms": median_ms(close, 5)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.json"
        found["save, s"] = median_ms(lambda: save(constellation, path), 1) / 1e3
        found["load, s"] = median_ms(lambda: load(path), 1) / 1e3
    found["build, us an element"] = build_s / (2 * LONG - 1) * 1e6
    return found


async def planned() -> dict[str, float]:
    """Return the wall milliseconds a dependent step of a chain waits for a planner that answers at once."""

    async def answer(request: ReplanRequest) -> None:
        return None

    size = 200
    constellation, _ = build(parents_of("chain", size))
    settings = RunSettings(replan=ReplanPolicy.AFTER_EACH, max_replans=size)
    runner = Runner(
        RunId("b"), executor=Instant(), devices=Devices(), clock=SystemClock(), settings=settings, replan=answer
    )
    before_s = time.perf_counter()
    await runner.run(constellation)
    return {"wait per dependent step, ms": (time.perf_counter() - before_s) / size * 1e3}


def child(command: list[str], repeat: int) -> dict[str, Any] | None:
    """Return the least of each figure over several processes; None when one failed."""
    best: dict[str, Any] = {}
    for _ in range(repeat):
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode:
            return None
        for name, value in json.loads(done.stdout.splitlines()[-1]).items():
            best[name] = min(best.get(name, value), value)
    return best


def table(peers: str | None, repeat: int, graphs: list[tuple[str, int]]) -> None:
    print("run: CPU ms a task (peak MB)")
    print(f"{'graph':16}{'ours':>14}{'+ SQLite':>16}{'floor':>14}{'LangGraph':>16}{'dask':>16}   ours is")
    for shape, size in graphs:
        rows: list[dict[str, Any] | None] = []
        for engine in ("ours", "journal"):
            rows.append(child([sys.executable, __file__, "--one", engine, shape, str(size)], repeat))
        rows.append(child([sys.executable, str(PEERS), "floor", shape, str(size)], repeat))
        for engine, most in (("langgraph", LANGGRAPH_MOST), ("dask", DASK_MOST)):
            known = peers is not None and size <= most
            rows.append(child([str(peers), str(PEERS), engine, shape, str(size)], 1) if known else None)
        cells = [f"{row['run_ms']:.4f} ({row['peak_mb']:.0f})" if row else "not run" for row in rows]
        ours, floor, peer = rows[0], rows[2], rows[3]
        ratio = f"{ours['run_ms'] / floor['run_ms']:.1f} × floor" if ours and floor else ""
        if ours and peer:
            ratio += f", LangGraph ÷ {peer['run_ms'] / ours['run_ms']:.0f}"
        widths = (14, 16, 14, 16, 16)
        line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"{shape + ' ' + str(size):16}{line}   {ratio}")
        if ours and peer:
            print(f"{'  build':16}{ours['build_us']:>10.2f} µs an element; LangGraph {peer['build_s']:.2f} s in all")
        elif ours:
            print(f"{'  build':16}{ours['build_us']:>10.2f} µs an element")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=os.environ.get("STARLOOM_PEERS"), help="an interpreter that has the peers")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="graphs of up to 1,000 tasks, once")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "SHAPE", "N"), help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=["edits", "files", "planned"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        engine, shape, size = options.one
        print(json.dumps(asyncio.run(run(shape, int(size), with_journal=engine == "journal"))))
        return
    if options.part:
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "edits": edits, "files": files, "planned": lambda: asyncio.run(planned()),
        }  # fmt: skip
        print(json.dumps(parts[options.part]()))
        return
    if options.peers is None:
        print("LangGraph and dask: not run, no interpreter given (--peers or STARLOOM_PEERS)")
    repeat = 1 if options.quick else options.repeat
    table(options.peers, repeat, [graph for graph in GRAPHS if not options.quick or graph[1] <= 1_000])
    for part in ("edits", "planned", "files"):
        print(f"\n{part}")
        for name, value in (child([sys.executable, __file__, "--part", part], repeat) or {}).items():
            print(f"  {name:32}{value:12.4f}")


if __name__ == "__main__":
    main()
