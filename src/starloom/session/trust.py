"""What of a run is the user's own word, and which tasks may be run again.

Pure; called by the galaxy when a graph is about to run. A recipe that the user starts is the user's word as a whole;
of a planned graph only the request is, never what a model wrote into it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from starloom.agents.plans import DeviceProfile
from starloom.constellation.constellation import TaskConstellation
from starloom.journal.events import Json
from starloom.safety.detectors import detect
from starloom.safety.policy import Risk


def words_of_graph(graph: TaskConstellation) -> str:
    """Return every literal of a graph that the user vouches for, one a line."""
    return "\n".join(_strings([star.description, *star.tips, star.task_data] for star in graph.tasks.values()))


def words_of_import(commands: Sequence[Json]) -> str:
    """Return the words of the graph that a run began with, from its first edit: no more than `words_of_graph` had.

    Ids, names and devices are none of them, so what had to be asked about before a restart still has to be after it.
    """
    tasks = (task for command in commands for task in command["document"]["tasks"])
    return "\n".join(_strings([task.get("description"), task.get("tips"), task.get("task_data")] for task in tasks))


def suspicions_in(text: str) -> tuple[str, ...]:
    """Return the names of the detectors that fire on a text; they raise what is asked, and never change the text."""
    return tuple(sorted({finding.detector for finding in detect(text)}))


def mark_repeatable(document: Mapping[str, Any], devices: Sequence[DeviceProfile]) -> dict[str, Any]:
    """Return the document with every task whose tool only reads marked `idempotent`: a lost device costs nothing."""
    readers = {tool.name for device in devices for tool in device.tools if tool.risk is Risk.READ}
    tasks = {
        task_id: {**task, "idempotent": True} if (task.get("task_data") or {}).get("tool") in readers else dict(task)
        for task_id, task in document["tasks"].items()
    }
    return {**document, "tasks": tasks}


def _strings(value: Json | Iterable[Json]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _strings(item)
