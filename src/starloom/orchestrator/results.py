"""Typed results: whether what a task gave is what it promised; asked by the scheduler when an attempt completes."""

import json
from functools import lru_cache
from typing import Any

from starloom.journal.events import Json


def mismatch(expected: str | dict[str, Any] | None, result: Json) -> str | None:
    """Return how the result differs from a JSON Schema; None when it matches, or a word or nothing was expected."""
    if not isinstance(expected, dict):
        return None
    return _check(json.dumps(expected, sort_keys=True), result)


def _check(schema: str, result: Json) -> str | None:
    import jsonschema  # heavy: only a graph with typed results pays for it

    try:
        errors = list(_validator(schema).iter_errors(result))
    except jsonschema.exceptions.SchemaError as problem:
        return f"expected_output_type is not a JSON Schema: {problem.message}"
    if not errors:
        return None
    first = min(errors, key=lambda error: list(map(str, error.absolute_path)))
    place = "".join(f"[{step!r}]" for step in first.absolute_path)
    return f"result{place} does not match expected_output_type: {first.message}"


@lru_cache(maxsize=256)
def _validator(schema: str) -> Json:
    import jsonschema

    parsed = json.loads(schema)
    kind = jsonschema.validators.validator_for(parsed)
    kind.check_schema(parsed)
    return kind(parsed)
