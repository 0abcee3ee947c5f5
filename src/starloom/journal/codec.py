"""Turns JSON values into text and back, exactly; used by the stores and by export, by nobody else.

pydantic-core's codec is about four times as fast as the standard library's on our small records (measured in
`benchmarks/journal.py`); the standard library stands in for what the former refuses: lone surrogates, as file names
may hold them, and nesting deeper than 200 levels.

A value that JSON does not know becomes the nearest that it does (a tuple a list, a time its ISO text), so a store hands
back what it read, never what it was given.
"""

import json
from collections.abc import Sequence

from pydantic_core import PydanticSerializationError, from_json, to_json

from starloom.errors import StoreError
from starloom.journal.events import Json


def dumps(value: Json) -> str:
    """Return compact JSON text; NaN and the infinities keep their names.

    Raises:
        StoreError: the value holds something that has no JSON form.
    """
    try:
        return to_json(value).decode()
    except (PydanticSerializationError, ValueError):
        pass
    try:
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"An event holds a value that cannot be stored as JSON: {error}.") from error


def loads(text: str) -> Json:
    """Return the value that `dumps` gave `text` for.

    Raises:
        StoreError: the text is not JSON: the stored record is damaged.
    """
    try:
        return from_json(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"A stored record is not readable as JSON ({error}); the file is damaged.") from error


def loads_all(texts: Sequence[str]) -> list[Json]:
    """Return the values of many texts in one pass, which costs a third less than one by one.

    Raises:
        StoreError: one of the texts is not JSON.
    """
    try:
        values = from_json(f"[{','.join(texts)}]")
    except ValueError:
        return [loads(text) for text in texts]
    if len(values) != len(texts):  # a damaged text may hold a comma of its own
        return [loads(text) for text in texts]
    return list(values)
