"""The journal benchmark's graphs on DBOS and on LangGraph's SQLite checkpointer; run by an interpreter that has them.

    python durability.py dbos|langgraph DIRECTORY '[50, 50, …]'

Prints one line of JSON: CPU and wall milliseconds a task, bytes on disk a task, the version. Each peer keeps its state
in SQLite and is durable before it goes on; each task is a step (DBOS) or a node's execution (LangGraph) that returns
what Starloom's benchmark stores as a task's result.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict


def result_of(number: int) -> dict[str, Any]:
    return {"files": ["north/a.pdf"], "total": number * 1.25, "pages": 3}


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


async def timed(run: Callable[[], Awaitable[int]], directory: Path, name: str) -> None:
    cpu, wall = time.process_time(), time.perf_counter()
    tasks = await run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    size_bytes = size_of(directory)
    report = {"cpu_ms": cpu / tasks * 1e3, "wall_ms": wall / tasks * 1e3, "bytes": size_bytes / tasks}
    print(json.dumps({**report, "version": f"{name} {version(name)}"}), flush=True)


async def dbos(directory: Path, layers: list[int]) -> None:
    from dbos import DBOS

    logging.disable(logging.CRITICAL)
    DBOS(
        config={"name": "bench", "system_database_url": f"sqlite:///{directory}/dbos.sqlite", "run_admin_server": False}
    )

    @DBOS.step()
    async def task(number: int) -> dict[str, Any]:
        return result_of(number)

    @DBOS.workflow()
    async def graph(widths: list[int]) -> int:
        number = 0
        for width in widths:
            await asyncio.gather(*(task(number + offset) for offset in range(width)))
            number += width
        return number

    DBOS.launch()
    await timed(lambda: graph(layers), directory, "dbos")
    DBOS.destroy()


class State(TypedDict):
    """LangGraph's state: the results so far, and how many layers are done."""

    results: Annotated[list[dict[str, Any]], add]
    layer: int


async def langgraph(directory: Path, layers: list[int]) -> None:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    def fan_out(state: State) -> Any:
        if state["layer"] == len(layers):
            return END
        return [Send("task", {"number": number}) for number in range(layers[state["layer"]])]

    async def task(sent: dict[str, int]) -> dict[str, Any]:
        return {"results": [result_of(sent["number"])]}

    async def join(state: State) -> dict[str, int]:
        return {"layer": state["layer"] + 1}

    graph = StateGraph(State)
    graph.add_node("task", task)
    graph.add_node("join", join)
    graph.add_conditional_edges(START, fan_out, ["task", END])
    graph.add_edge("task", "join")
    graph.add_conditional_edges("join", fan_out, ["task", END])
    async with AsyncSqliteSaver.from_conn_string(str(directory / "langgraph.sqlite")) as saver:
        compiled = graph.compile(checkpointer=saver)

        async def run() -> int:
            config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 10 * len(layers) + 10}
            final = await compiled.ainvoke({"results": [], "layer": 0}, config, durability="sync")
            return len(final["results"])

        await timed(run, directory, "langgraph")


def main() -> None:
    peer, directory, layers = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    asyncio.run({"dbos": dbos, "langgraph": langgraph}[peer](directory, layers))


if __name__ == "__main__":
    main()
