"""The router: finds a tool by name, lets the guard judge the call, runs it within limits, and returns a value.

Called by the device process for every command. This is one of the four borders where any exception of a tool becomes a
failed outcome: the model must see it, and the device must live on.
"""

import asyncio
import difflib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct
from pydantic_core import from_json

from starloom.blobs import Blob
from starloom.deadlines import Deadlines, Limit
from starloom.errors import StarloomError, UsageError
from starloom.safety.policy import Decision, Verdict
from starloom.tools.effects import recording
from starloom.tools.toolset import Tool, Toolset

logger = logging.getLogger(__name__)

_ALWAYS_FLAT_ENOUGH = 190
_write = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

Guard: TypeAlias = Callable[[Tool, Mapping[str, Any]], Verdict]


class ToolStatus(StrEnum):
    """How a call ended. Source: upstream's `ResultStatus`, the two that a device reports."""

    SUCCESS = "success"
    FAILURE = "failure"


class ToolCall(Struct, frozen=True):
    """One call. `kind`, when given, must be the tool's; `timeout_s` None means the router's default."""

    name: str
    arguments: Mapping[str, Any] = {}
    call_id: str = ""
    timeout_s: float | None = None
    kind: str | None = None


class ToolOutcome(Struct, frozen=True):
    """What came of a call. `error` is set exactly when it failed; `namespace` names the toolset that ran it."""

    status: ToolStatus
    result: Any = None
    error: str | None = None
    namespace: str | None = None


class ToolRouter:
    """Calls the tools of several toolsets by their qualified names.

    Args:
        toolsets: the toolsets offered; two with one name are refused.
        guard: the device's own judgement; a DENY verdict stops the call. ASK passes: only the hub can ask a person,
            and its gate has done so before the command left.
        default_timeout_s: the limit of a call that brings none.
        result_limit_bytes: a result whose JSON is longer is a failure, so that no frame grows without bound.
        unlisted: toolsets that are called by who knows them and not offered to anyone.
    """

    def __init__(
        self,
        toolsets: Iterable[Toolset],
        *,
        guard: Guard | None = None,
        default_timeout_s: float = 120.0,
        result_limit_bytes: int = 4 * 1024 * 1024,
        unlisted: Iterable[Toolset] = (),
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._unlisted = {item.name: item for toolset in unlisted for item in toolset.tools}
        namespaces: set[str] = set()
        for toolset in toolsets:
            if toolset.name in namespaces:
                raise UsageError(f"Two toolsets are named {toolset.name!r}. Give one of them another name.")
            namespaces.add(toolset.name)
            self._tools.update((item.name, item) for item in toolset.tools)
        self._guard = guard
        self._default_timeout_s = default_timeout_s
        self._result_limit_bytes = result_limit_bytes
        self._surely_short = (result_limit_bytes - 2) // 6  # quotes; a character is at most \u001f
        self._deadlines = Deadlines()

    def infos(self) -> tuple[Tool, ...]:
        """Return every tool on offer, in the order the toolsets were given."""
        return tuple(self._tools.values())

    def find(self, name: str) -> Tool | None:
        """Return the tool of that qualified name, or None."""
        return self._tools.get(name) or self._unlisted.get(name)

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run one call and return how it ended; only cancellation leaves as an exception."""
        found = self.find(call.name)
        if found is None:
            return _failure(self._unknown(call.name), None)
        if call.kind is not None and call.kind != found.kind:
            return _failure(f"{call.name} is a tool of kind {found.kind!r}, not {call.kind!r}.", found)
        if self._guard is not None:
            verdict = self._guard(found, call.arguments)
            if verdict.decision is Decision.DENY:
                return _failure(f"This device refuses {call.name}: {verdict.reason}", found)
        limit = Limit(self._deadlines, self._default_timeout_s if call.timeout_s is None else call.timeout_s)
        try:
            with limit, recording(call.call_id):
                result = await found.function(call.arguments)
        except asyncio.CancelledError as error:
            if limit.task.cancelling():
                raise
            return _failure(_told(error, call, limit), found)  # nobody stopped the call, only what the tool waited for
        except Exception as error:  # noqa: BLE001 - the border of a tool call: a broken tool must not end the device
            return _failure(_told(error, call, limit), found)
        if type(result) is str and result.isascii() and len(result) <= self._surely_short:
            return ToolOutcome(ToolStatus.SUCCESS, result, None, found.namespace)
        return self._within_limit(found, result)

    def _within_limit(self, found: Tool, result: Any) -> ToolOutcome:  # noqa: ANN401 - a JSON value
        try:
            size_bytes = _size_bytes(result)
        except (TypeError, ValueError, RecursionError) as error:
            return _failure(f"{found.name} returned something that is not JSON for the wire: {error}", found)
        if size_bytes > self._result_limit_bytes:
            limit = self._result_limit_bytes
            return _failure(
                f"{found.name} returned {size_bytes} bytes, more than {limit}. Ask for a smaller part.", found
            )
        return ToolOutcome(ToolStatus.SUCCESS, result, None, found.namespace)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._tools, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else f" It has: {', '.join(self._tools) or 'none'}."
        return f"This device has no tool {name!r}.{hint}"


def _told(error: BaseException, call: ToolCall, limit: Limit) -> str:
    """Say in a sentence what went wrong in a tool; what it did not foresee is logged too."""
    match error:
        case TimeoutError() if limit.has_passed:
            return f"{call.name} was stopped after its limit of {limit.seconds:g} s."
        case TimeoutError():
            return f"{call.name} failed: a time limit inside it passed ({error})."
        case StarloomError():
            return error.message
        case OSError():
            return f"{call.name} failed: {error.strerror or error} ({error.filename or 'no file'})."
        case _:
            logger.error("The tool %s broke in call %s.", call.name, call.call_id, exc_info=error)
            return f"{call.name} broke inside: {type(error).__name__}: {error}"


def _size_bytes(result: Any) -> int:  # noqa: ANN401 - a JSON value, or a blob
    if isinstance(result, Blob):
        return len(result.body)
    text = _write(result)
    if text.count("[") + text.count("{") > _ALWAYS_FLAT_ENOUGH:
        from_json(f"[[[{text}]]]")  # as deep as it lies in a message; the wire's readers take 200 levels, as this one
    return len(text.encode())


def _failure(error: str, found: Tool | None) -> ToolOutcome:
    return ToolOutcome(ToolStatus.FAILURE, None, error, found.namespace if found else None)
