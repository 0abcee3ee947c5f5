import asyncio
import threading
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

import pytest
from pydantic import Field, PlainSerializer
from typing_extensions import TypedDict

from starloom.blobs import Blob
from starloom.errors import Bug
from starloom.safety.policy import Risk
from starloom.tools.toolset import (
    ArgumentsRefused,
    ToolFailure,
    Toolset,
    ToolStopped,
    check_stopped,
    flat_schema,
    tool,
)


class Point(TypedDict):
    x: int
    y: int


def move(
    point: Annotated[Point, Field(json_schema_extra={"x-reference": True})], path: str, steps: int = 1
) -> list[Point]:
    """Move a point.

    Not part of the description.
    """
    return [Point(x=point["x"] + number, y=point["y"]) for number in range(steps)]


MOVE = tool(move, name="points.move", risk=Risk.WRITE, destinations=("path",))


def test_schema_comes_from_the_type_hints_with_definitions_in_place():
    assert MOVE.description == "Move a point."
    assert MOVE.namespace == "points"
    assert MOVE.input_schema["required"] == ["point", "path"]
    assert MOVE.input_schema["properties"]["point"]["x-reference"] is True
    assert MOVE.input_schema["properties"]["point"]["properties"]["x"] == {"type": "integer"}
    assert MOVE.input_schema["properties"]["steps"] == {"type": "integer", "default": 1}
    assert "$defs" not in MOVE.input_schema
    assert MOVE.output_schema is not None
    assert MOVE.output_schema["type"] == "array"


async def test_call_checks_arguments_and_returns_a_json_value():
    assert await MOVE.function({"point": {"x": 1, "y": 2}, "path": "p", "steps": 2}) == [
        {"x": 1, "y": 2},
        {"x": 2, "y": 2},
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"point": {"x": 1, "y": 2}}, "path"),
        ({"point": {"x": 1, "y": 2}, "path": "p", "colour": "red"}, "colour"),
        ({"point": {"x": "left", "y": 2}, "path": "p"}, "point.x"),
    ],
)
async def test_wrong_arguments_are_refused_by_name(arguments, named):
    with pytest.raises(ArgumentsRefused, match=named):
        await MOVE.function(arguments)


def test_recursive_definition_stays_a_reference():
    schema = {
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        "properties": {"first": {"$ref": "#/$defs/Node"}},
    }
    assert flat_schema(schema)["properties"]["first"] == {"$ref": "#/$defs/Node"}
    assert "Node" in flat_schema(schema)["$defs"]


def test_property_called_title_is_kept():
    schema = {"title": "T", "properties": {"title": {"title": "Title", "type": "string"}}}
    assert flat_schema(schema) == {"properties": {"title": {"type": "string"}}}


def test_destination_must_be_an_argument():
    with pytest.raises(Bug, match="where"):
        tool(move, name="points.move", risk=Risk.WRITE, destinations=("where",))


def test_tool_must_be_named_after_its_toolset():
    with pytest.raises(Bug, match="points"):
        Toolset("shapes", (MOVE,))


async def test_cancelled_call_stops_the_function_before_its_effect():
    entered, leave = threading.Event(), threading.Event()
    effects: list[str] = []

    def work() -> str:
        """Work."""
        entered.set()
        leave.wait(10)
        try:
            check_stopped()
        except ToolStopped:
            effects.append("stopped")
            raise
        effects.append("done")
        return "done"

    slow = tool(work, name="work.run", risk=Risk.WRITE)
    call = asyncio.ensure_future(slow.function({}))
    await asyncio.to_thread(entered.wait, 10)
    call.cancel()
    await asyncio.sleep(0)
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert effects == ["stopped"]


async def test_async_function_is_awaited_in_place():
    async def fail() -> str:
        """Fail."""
        raise ToolFailure("No.")

    with pytest.raises(ToolFailure, match="No"):
        await tool(fail, name="work.fail", risk=Risk.READ).function({})


def test_check_stopped_outside_a_call_does_nothing():
    check_stopped()


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("returned", "value", "written"),
    [
        (str, "x", "x"),
        (str, Colour.RED, "red"),
        (int, 7, 7),
        (int, True, 1),
        (Annotated[int, PlainSerializer(lambda number: f"no. {number}")], 7, "no. 7"),
        (Colour, Colour.RED, "red"),
        (tuple[int, ...], (1, 2), [1, 2]),
        (None, None, None),
        (str, Blob("a/b", b"c"), Blob("a/b", b"c")),
    ],
)
async def test_a_value_leaves_as_its_type_is_written(returned, value, written):
    async def give():
        """Give."""
        return value

    give.__annotations__["return"] = returned
    given = await tool(give, name="t.give", risk=Risk.READ).function({})
    assert (given, type(given)) == (written, type(written))


async def test_defaults_are_filled_in_and_the_callers_arguments_stay_as_they_are():
    async def take(first: int, rest: list[int] = [1]) -> list[int]:  # noqa: B006 - the model copies it
        """Take."""
        rest.append(first)
        return rest

    taking, arguments = tool(take, name="t.take", risk=Risk.READ), {"first": "2"}
    assert await taking.function(arguments) == [1, 2]
    assert await taking.function(MappingProxyType(arguments)) == [1, 2]
    assert arguments == {"first": "2"}
