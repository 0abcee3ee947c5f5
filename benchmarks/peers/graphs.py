"""The orchestrator benchmark's graphs on an asyncio floor, LangGraph and dask.distributed.

    python graphs.py floor|langgraph|dask SHAPE N        (an interpreter that has the peer)

Prints one line of JSON: CPU ms a task of the run, of the build, peak MB, the version. Tasks do nothing, so what is
measured is the engine. Also imported by `benchmarks/orchestrator.py`, for the same graphs.
"""

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from operator import or_
from typing import Annotated, Any, TypedDict

WIDTHS = {100: 10, 1_000: 40}


def parents_of(shape: str, size: int) -> list[list[int]]:
    """Return each task's predecessors: a chain, a fan (source, middle, sink) or layers with 1–4 random parents."""
    if shape == "chain":
        return [[number - 1] if number else [] for number in range(size)]
    if shape == "fan":
        return [[]] + [[0] for _ in range(size - 2)] + [list(range(1, size - 1))]
    dice, width = random.Random(7), WIDTHS.get(size, 100)
    parents: list[list[int]] = [[] for _ in range(min(width, size))]
    for number in range(width, size):
        first = (number // width - 1) * width
        parents.append(dice.sample(range(first, first + width), dice.randint(1, 4)))
    return parents


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(size: int, build_s: float, run_s: float, name: str) -> None:
    print(json.dumps({"run_ms": run_s / size * 1e3, "build_s": build_s, "peak_mb": peak_mb(), "version": name}))


async def run_floor(parents: list[list[int]]) -> None:
    """The work itself: counters, a queue and one asyncio task a task."""
    children: list[list[int]] = [[] for _ in parents]
    for number, before in enumerate(parents):
        for parent in before:
            children[parent].append(number)
    missing = [len(before) for before in parents]
    done: asyncio.Queue[int] = asyncio.Queue()
    live: set[asyncio.Task[None]] = set()

    async def work(number: int) -> None:
        done.put_nowait(number)

    def start(number: int) -> None:
        task = asyncio.create_task(work(number))
        live.add(task)
        task.add_done_callback(live.discard)

    for number, count in enumerate(missing):
        if not count:
            start(number)
    for _ in parents:
        for child in children[await done.get()]:
            missing[child] -= 1
            if not missing[child]:
                start(child)


def floor(parents: list[list[int]]) -> None:
    before = time.process_time()
    asyncio.run(run_floor(parents))
    report(len(parents), 0.0, time.process_time() - before, f"asyncio {sys.version.split()[0]}")


def langgraph(parents: list[list[int]]) -> None:
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        done: Annotated[dict[int, bool], or_]

    def node(number: int) -> Callable[[State], dict[str, Any]]:
        return lambda state: {"done": {number: True}}

    before = time.process_time()
    graph = StateGraph(State)
    has_child = {parent for before_it in parents for parent in before_it}
    for number in range(len(parents)):
        graph.add_node(f"t{number}", node(number))
    for number, before_it in enumerate(parents):
        graph.add_edge([f"t{parent}" for parent in before_it] if before_it else START, f"t{number}")
        if number not in has_child:
            graph.add_edge(f"t{number}", END)
    compiled = graph.compile()
    built = time.process_time() - before
    before = time.process_time()
    result = asyncio.run(compiled.ainvoke({"done": {}}, {"recursion_limit": len(parents) + 10}))
    assert len(result["done"]) == len(parents)
    report(len(parents), built, time.process_time() - before, f"langgraph {version('langgraph')}")


def dask(parents: list[list[int]]) -> None:
    from distributed import Client

    def work(*_: object) -> None:
        return None

    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        before = time.process_time()
        futures: list[Any] = []
        for before_it in parents:
            futures.append(client.submit(work, *(futures[parent] for parent in before_it), pure=False))
        client.gather(futures)
        spent = time.process_time() - before
    report(len(parents), 0.0, spent, f"distributed {version('distributed')}")


if __name__ == "__main__":
    ENGINES = {"floor": floor, "langgraph": langgraph, "dask": dask}
    ENGINES[sys.argv[1]](parents_of(sys.argv[2], int(sys.argv[3])))
