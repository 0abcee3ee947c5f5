"""Conditions of edges: expressions in CEL (Common Expression Language), or a registered callable by name.

Checked when an edit is made, asked when the source of a conditional edge has ended. CEL has no endless loops, no side
effects and no access to Python. Variables: `status` (`completed`, `failed`), `result` (JSON), `error` (text or null).

    result.total > 100 && status == "completed"        "urgent" in result.tags        call:looks_right

Why CEL: docs/decisions/0010-conditions.md.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeAlias

from starloom.constellation.fields import FieldProblem
from starloom.constellation.problems import ConstellationError
from starloom.constellation.values import Json

Callables: TypeAlias = Mapping[str, Callable[[str, Any, str | None], bool]]

MAX_LENGTH = 2_000
_CALL = "call:"
_VARIABLES = frozenset({"status", "result", "error"})
_MACROS = ("exists", "exists_one", "all", "map", "filter", "bind")
_TIMES = ("FullYear", "Month", "DayOfYear", "DayOfMonth", "Date", "DayOfWeek")
_CLOCKS = ("Hours", "Minutes", "Seconds", "Milliseconds")
FUNCTIONS = (
    *("size", "contains", "startsWith", "endsWith", "matches"),
    *("string", "int", "uint", "double", "bytes", "type", "dyn", "timestamp", "duration"),
    *(f"get{part}" for part in (*_TIMES, *_CLOCKS)),
)
"""What the language's implementation knows; a test asks each of them."""

_accepts_all: ContextVar[bool] = ContextVar("starloom_recorded_conditions", default=False)


class ConditionProblem(ConstellationError):
    """The condition could not be decided: it raised, or gave something other than true or false."""


def check_condition(condition: str) -> None:
    """Refuse what cannot be compiled or decided; a callable's name is looked up only when it is asked.

    Raises:
        FieldProblem: the text is not an expression, or names a variable or function that does not exist.
    """
    if len(condition) > MAX_LENGTH:
        raise FieldProblem(f"condition has {len(condition)} characters; the limit is {MAX_LENGTH}.")
    if condition.startswith(_CALL):
        return
    called = {name for name in _parsed(condition).functions() if name.isidentifier()}  # operators have signs in theirs
    unknown = sorted(called - set(FUNCTIONS))
    if unknown and not _accepts_all.get():
        near = difflib.get_close_matches(unknown[0], (*FUNCTIONS, "has", *_MACROS), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise FieldProblem(
            f"condition {condition!r} calls {unknown[0]!r}, which does not exist.{hint} There are the functions "
            f"{', '.join(FUNCTIONS)}; and on lists and maps {', '.join(_MACROS[:-1])}; and has."
        )
    _compiled(condition)


@contextmanager
def recorded_conditions() -> Iterator[None]:
    """Take conditions as they are in records: an older Starloom found an unknown function only when it was asked."""
    token = _accepts_all.set(True)
    try:
        yield
    finally:
        _accepts_all.reset(token)


def holds(condition: str, status: str, result: Json, error: str | None, callables: Callables) -> bool:
    """Return whether the condition is true for an ended task.

    Raises:
        ConditionProblem: it cannot be decided; the message says why.
    """
    if condition.startswith(_CALL):
        answer = _call(condition.removeprefix(_CALL).strip(), status, result, error, callables)
    else:
        try:
            answer = _compiled(condition).execute({"status": status, "result": result, "error": error})
        except (KeyError, RuntimeError, ValueError, TypeError, ArithmeticError, IndexError) as problem:
            raise ConditionProblem(f"The condition {condition!r} could not be decided: {_reason(problem)}") from problem
    if not isinstance(answer, bool):
        raise ConditionProblem(f"The condition {condition!r} gave {answer!r}, neither true nor false.")
    return answer


def _call(name: str, status: str, result: Json, error: str | None, callables: Callables) -> Json:
    if name not in callables:
        raise ConditionProblem(f"No callable {name!r} is registered; known: {', '.join(sorted(callables)) or 'none'}.")
    try:
        return callables[name](status, result, error)
    except Exception as problem:
        raise ConditionProblem(f"The callable {name!r} raised {type(problem).__name__}: {problem}") from problem


@lru_cache(maxsize=1024)
def _parsed(condition: str) -> Json:
    import cel  # heavy: only a graph with conditions pays for it

    try:
        return cel.compile(condition)
    except ValueError as problem:
        raise FieldProblem(f"condition {condition!r} is not a CEL expression: {_reason(problem)}") from problem


@lru_cache(maxsize=1024)
def _compiled(condition: str) -> Json:
    program = _parsed(condition)
    unknown = sorted(set(program.variables()) - _VARIABLES)
    if unknown and not any(f".{macro}(" in condition for macro in _MACROS):  # a macro names variables of its own
        raise FieldProblem(f"condition {condition!r} names {unknown[0]!r}; it may use status, result and error.")
    return program


def _reason(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    if isinstance(problem, KeyError):
        text = f"there is no key {text}"
    return text if len(text) <= 200 else text[:197] + "..."
