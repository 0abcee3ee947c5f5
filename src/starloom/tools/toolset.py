"""A tool is a typed function with a schema, a risk and the names of the arguments that say where it acts.

`tool` makes one from a plain function; a `Toolset` is a named group of them, the unit that a device offers and that MCP
serves. Called by every module of this room that defines tools, and read by the router.
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from starloom.blobs import Blob
from starloom.errors import Bug, UsageError
from starloom.safety.policy import Risk

ToolFunction: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]

_STOP_GRACE_S = 10.0
_PLAIN = (str, int, bool)  # a value of these types is a JSON value as it is
_stop: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("starloom_tool_stop", default=None)


class ToolFailure(UsageError):
    """A tool could not do what it was asked; the message is for the model and the person."""


class ArgumentsRefused(ToolFailure):
    """The arguments do not fit the tool's schema; nothing was done."""


class ToolStopped(ToolFailure):
    """The call was cancelled or timed out and the tool stopped before its next effect."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing a device can do. `function` checks its arguments itself and returns a JSON value."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    risk: Risk
    destinations: tuple[str, ...]
    kind: str
    function: ToolFunction

    @property
    def namespace(self) -> str:
        """Return the name of the tool's toolset: what stands before the first dot."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Toolset:
    """A named group of tools; each tool's name starts with the toolset's and a dot."""

    name: str
    tools: tuple[Tool, ...]

    def __post_init__(self) -> None:
        for item in self.tools:
            if item.namespace != self.name:
                raise Bug(f"The tool {item.name!r} is not named after its toolset {self.name!r}.")


def tool(
    function: Callable[..., Any],
    *,
    name: str,
    risk: Risk,
    destinations: tuple[str, ...] = (),
    kind: str = "action",
    description: str | None = None,
) -> Tool:
    """Make a tool from a function: its parameters give the input schema, its return type the output schema.

    A function that returns a `Blob` hands over bytes: they reach a hub as they are, and others as a data URL.

    A plain function runs in a thread; when the call is cancelled it is told through `check_stopped`, and the call ends
    when the function has. The description is the docstring's first paragraph unless given.
    """
    model = _arguments_model(function, name)
    for argument in destinations:
        if argument not in model.model_fields:
            raise Bug(f"The tool {name!r} has no argument {argument!r} to be a destination.")
    returned = get_type_hints(function, include_extras=True)["return"]
    result = TypeAdapter[Any](returned)
    plain = returned if returned in _PLAIN else None
    in_place = inspect.iscoroutinefunction(function)

    async def run(arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a JSON value of any shape
        checked = _checked(model, arguments, name)
        value = await (function(**checked) if in_place else _in_thread(function, checked))
        if type(value) is plain or isinstance(value, Blob):
            return value
        return result.dump_python(value, mode="json")

    return Tool(
        name=name,
        description=description or (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " "),
        input_schema=flat_schema(model.model_json_schema()),
        output_schema=flat_schema(result.json_schema(mode="serialization")),
        risk=risk,
        destinations=destinations,
        kind=kind,
        function=run,
    )


def check_stopped() -> None:
    """Stop the running tool if its call was cancelled; tools call it between parts and before each effect.

    Raises:
        ToolStopped: the call was cancelled.
    """
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise ToolStopped("The call was cancelled before the tool had finished; nothing more was done.")


def flat_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema with its `$defs` put in place and pydantic's titles left out: shorter to read for a model.

    A definition that contains itself stays a reference.
    """
    definitions: dict[str, Any] = schema.get("$defs", {})
    recursive = {name for name in definitions if _mentions(definitions[name], name, definitions, frozenset())}

    def place(part: Any, *, is_properties: bool = False) -> Any:  # noqa: ANN401 - any part of a schema
        if isinstance(part, list):
            return [place(item) for item in part]
        if not isinstance(part, dict):
            return part
        reference = part.get("$ref", "").removeprefix("#/$defs/") if isinstance(part.get("$ref"), str) else ""
        if reference in definitions and reference not in recursive:
            merged = {**definitions[reference], **{key: value for key, value in part.items() if key != "$ref"}}
            return place(merged)
        return {
            key: place(value, is_properties=key == "properties" and not is_properties)
            for key, value in part.items()
            if is_properties or (key != "$defs" and not (key == "title" and isinstance(value, str)))
        }

    flat: dict[str, Any] = place(dict(schema))
    if recursive:
        flat["$defs"] = {name: place(definitions[name]) for name in sorted(recursive)}
    return flat


def _mentions(part: object, name: str, definitions: Mapping[str, Any], seen: frozenset[str]) -> bool:
    """Answer whether a part of a schema reaches the definition `name` through references."""
    if isinstance(part, list):
        return any(_mentions(item, name, definitions, seen) for item in part)
    if not isinstance(part, dict):
        return False
    target = part.get("$ref")
    if isinstance(target, str):
        reached = target.removeprefix("#/$defs/")
        if reached == name:
            return True
        if reached not in seen and reached in definitions:
            return _mentions(definitions[reached], name, definitions, seen | {reached})
    return any(_mentions(value, name, definitions, seen) for value in part.values())


def _arguments_model(function: Callable[..., Any], name: str) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (Annotated[hints[parameter.name], Field()], default)
    return create_model(name.replace(".", "_"), __config__=ConfigDict(extra="forbid", frozen=True), **fields)


def _checked(model: type[BaseModel], arguments: Mapping[str, Any], name: str) -> dict[str, Any]:
    try:
        checked = model.__pydantic_validator__.validate_python(dict(arguments))
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)[:5]
        )
        wanted = ", ".join(model.model_fields)
        raise ArgumentsRefused(f"The arguments of {name} do not fit ({faults}). It takes: {wanted}.") from error
    fields: dict[str, Any] = checked.__dict__  # of a model without extra fields: all of them, and nothing else
    return fields


async def _in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - its result
    """Run a plain function in a thread; when cancelled, tell it and wait for its end: nothing runs on unseen."""
    stop = threading.Event()

    def body() -> Any:  # noqa: ANN401 - the function's own result
        _stop.set(stop)
        return function(**arguments)

    work = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, body)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({work}, timeout=_STOP_GRACE_S)
        if work.done() and not work.cancelled():
            work.exception()  # taken, so that asyncio does not report it as never retrieved
        raise
