"""`Json`: the name of a JSON value in signatures of this room."""

from typing import Any, TypeAlias

Json: TypeAlias = Any  # None, bool, int, float, str, list[Json] or dict[str, Json]
