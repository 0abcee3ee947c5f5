"""Data along edges: `{{ tasks.ocr.result.total }}` in a task's words and arguments; for the editor and the scheduler.

Found when a task is described, checked when an edit is made, resolved at dispatch. Nothing is evaluated as code: a
reference is a task, one of `result error status`, and a path of keys and indexes.

    {{ tasks.ocr.result }}            the whole result; alone in its string it keeps its JSON type
    {{ tasks.ocr.result.rows[0].sum }}
    {{ tasks["an odd id"].error }}    any id, quoted
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from starloom.constellation.problems import ConstellationError
from starloom.constellation.values import Json

_TASK = r"""tasks(?:\.(?P<plain>[\w\-]+)|\[(?P<quote>["'])(?P<quoted>.+?)(?P=quote)\])"""
_PATH = r"""(?P<path>(?:\.[\w\-]+|\[\d+\]|\["[^"]*"\]|\['[^']*'\])*)"""
_REFERENCE = re.compile(r"\{\{\s*" + _TASK + r"\.(?P<part>result|error|status)" + _PATH + r"\s*\}\}")
_STARTS_AS_ONE = re.compile(r"\{\{\s*tasks\b[^}]*\}\}")
_PATH_STEP = re.compile(r"""\.([\w\-]+)|\[(\d+)\]|\["([^"]*)"\]|\['([^']*)'\]""")

Lookup = Callable[[str, str], Any]


class ReferenceProblem(ConstellationError):
    """A reference is malformed, or the value it names is not there."""


def references_in(*values: Json) -> frozenset[str]:
    """Return the ids of the tasks that these JSON values refer to.

    Raises:
        ReferenceProblem: something starts like a reference to a task and is not one.
    """
    found: set[str] = set()
    for text in _texts(values):
        for candidate in _STARTS_AS_ONE.finditer(text):
            match = _REFERENCE.fullmatch(candidate.group())
            if match is None:
                raise ReferenceProblem(
                    f"The reference {candidate.group()!r} cannot be read; write {{{{ tasks.ID.result.KEY }}}} "
                    "with result, error or status."
                )
            found.add(match["plain"] or match["quoted"])
    return frozenset(found)


def resolve(value: Json, lookup: Lookup) -> Json:
    """Return the JSON value with every reference replaced.

    Args:
        value: text, list, dict or anything else; left unchanged, a copy is made where something is replaced.
        lookup: gives the part (`result`, `error`, `status`) of a task.

    Raises:
        ReferenceProblem: a path leads nowhere.
    """
    if isinstance(value, str):
        return _resolve_text(value, lookup) if "{{" in value else value
    if isinstance(value, dict):
        return {key: resolve(item, lookup) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(item, lookup) for item in value]
    return value


def as_text(value: Json) -> str:
    """Return how a value reads inside a longer text: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def follow(value: Json, path: str, whole: str) -> Json:
    """Return what lies at the path (`.rows[0].sum`) below a value; `whole` is the reference for messages.

    Raises:
        ReferenceProblem: a key or an index is not there.
    """
    for step in _PATH_STEP.finditer(path):
        key = next(group for group in step.groups() if group is not None)
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            there = f"keys {sorted(value)[:10]}" if isinstance(value, dict) else f"a {type(value).__name__}"
            raise ReferenceProblem(f"The reference {whole} leads nowhere: at {key!r} there is {there}.") from None
    return value


def _resolve_text(text: str, lookup: Lookup) -> Json:
    whole = _REFERENCE.fullmatch(text.strip())
    if whole is not None:
        return _value(whole, lookup)
    return _REFERENCE.sub(lambda match: as_text(_value(match, lookup)), text)


def _value(match: re.Match[str], lookup: Lookup) -> Json:
    return follow(lookup(match["plain"] or match["quoted"], match["part"]), match["path"], match.group())


def _texts(value: Json) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if "{{" in item:
                yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
