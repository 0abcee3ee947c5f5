"""Reading fields strictly: what a task or an edge may be given, checked once, refused with the field named.

For `star`, `line`, `commands` and `documents`. Words of enums are read without regard to case, because upstream's two
dialects differ in it; nothing unknown falls back silently.
"""

import math
from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, TypeVar, cast

from starloom.constellation.problems import ConstellationError
from starloom.constellation.values import Json

MAX_DEPTH = 64
_Word = TypeVar("_Word", bound=Enum)


class FieldProblem(ConstellationError):
    """A field has a wrong type or an unknown word, or does not exist."""


def text(value: Json, field: str) -> str:
    """Return the text."""
    if not isinstance(value, str):
        raise _wrong(field, "a text", value)
    return value


def optional_text(value: Json, field: str) -> str | None:
    """Return the text; None and the empty text mean none."""
    return None if value is None or value == "" else text(value, field)


def texts(value: Json, field: str) -> tuple[str, ...]:
    """Return the list of texts; None is the empty list, one text is a list of one."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise _wrong(field, "a list of texts", value)
    return tuple(value)


def flag(value: Json, field: str) -> bool:
    """Return the boolean; None is false."""
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong(field, "true or false", value)
    return value


def whole_number(value: Json, field: str, *, least: int = 0) -> int:
    """Return the integer, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(field, "a whole number", value)
    if value < least:
        raise FieldProblem(f"{field} is {value}; it must be {least} or more.")
    return value


def seconds(value: Json, field: str) -> float | None:
    """Return the positive number of seconds; None means no limit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(field, "a number of seconds", value)
    if not (value > 0 and math.isfinite(value)):
        raise FieldProblem(f"{field} is {value}; it must be a positive number of seconds.")
    return float(value)


def word(kind: type[_Word], value: Json, field: str) -> _Word:
    """Return the enum's member for a member, its name or its value, in any case; integers for integer enums."""
    if isinstance(value, kind):
        return value
    words = _words_of(kind)
    if isinstance(value, str):
        member = words.get(value) or words.get(value.strip().lower())
    else:
        member = words.get(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if member is not None:
        return cast("_Word", member)
    raise FieldProblem(f"{field} is {value!r}; it must be one of: {_choices(kind)}.")


def json_object(value: Json, field: str) -> dict[str, Any]:
    """Return a copy of a JSON object; None is the empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(field, "an object", value)
    copied = json_value(value, field)
    assert isinstance(copied, dict)  # noqa: S101 — json_value keeps the kind
    return copied


def json_value(value: Json, field: str, depth: int = 0) -> Json:
    """Return a deep copy made of plain JSON values only; tuples become lists."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) and type(value) is not str else value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FieldProblem(f"{field} holds {value}, which JSON cannot.")
        return value
    if depth >= MAX_DEPTH:
        raise FieldProblem(f"{field} is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _wrong(f"a key of {field}", "a text", key)
        return {key: json_value(item, f"{field}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, f"{field}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise _wrong(field, "a JSON value", value)


def refuse_unknown(given: Mapping[str, Any], known: frozenset[str], of: str) -> None:
    """Refuse fields that do not exist, with the nearest that does.

    Raises:
        FieldProblem: naming the first unknown field.
    """
    if given.keys() <= known:
        return
    for name in given:
        if name not in known:
            close = get_close_matches(str(name), sorted(known), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(sorted(known))}."
            raise FieldProblem(f"{of} has no field {name!r}.{hint}")


@lru_cache(maxsize=32)
def _words_of(kind: type[Enum]) -> dict[Json, Enum]:
    words: dict[Json, Enum] = {member.name.lower(): member for member in kind}
    words |= {member.value if issubclass(kind, IntEnum) else str(member.value).lower(): member for member in kind}
    return words


def _choices(kind: type[Enum]) -> str:
    if issubclass(kind, IntEnum):
        return ", ".join(f"{member.name} ({member.value})" for member in kind)
    return ", ".join(str(member.value) for member in kind)


def _wrong(field: str, wanted: str, value: Json) -> FieldProblem:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return FieldProblem(f"{field} must be {wanted}, not {shown} ({type(value).__name__}).")
