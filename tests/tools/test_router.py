import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from starloom.blobs import Blob
from starloom.errors import PolicyError, UsageError
from starloom.safety.policy import Decision, Risk, Verdict
from starloom.tools.router import ToolCall, ToolOutcome, ToolRouter, ToolStatus
from starloom.tools.toolset import Toolset, tool


def echo(text: str) -> str:
    """Say it again."""
    return text


def refuse() -> str:
    """Refuse."""
    raise PolicyError("Not that.")


def open_missing() -> str:
    """Open a file that is not there."""
    with open("/nonexistent/file") as file:  # noqa: PTH123
        return file.read()


def break_down() -> str:
    """Break."""
    raise ZeroDivisionError("by zero")


async def wait_for_ever() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return ""


async def give_up() -> str:
    """Time out inside."""
    raise TimeoutError("the printer")


async def not_a_number() -> float:
    """Return what JSON cannot hold."""
    return float("nan")


async def picture() -> Blob:
    """Return bytes."""
    return Blob("image/png", bytes(100))


FUNCTIONS = (echo, refuse, open_missing, break_down, wait_for_ever, give_up, not_a_number, picture)
TOOLSET = Toolset("t", tuple(tool(item, name=f"t.{item.__name__}", risk=Risk.READ) for item in FUNCTIONS))


def router(**options) -> ToolRouter:
    return ToolRouter([TOOLSET], **options)


async def test_call_returns_the_result_and_its_namespace():
    outcome = await router().call(ToolCall("t.echo", {"text": "hi"}))
    assert outcome == ToolOutcome(ToolStatus.SUCCESS, "hi", None, "t")


async def test_bytes_leave_as_they_are_and_count_towards_the_limit():
    assert (await router().call(ToolCall("t.picture"))).result == Blob("image/png", bytes(100))
    assert "returned 100 bytes, more than 99" in (await router(result_limit_bytes=99).call(ToolCall("t.picture"))).error


def test_infos_and_find():
    assert [item.name for item in router().infos()][:2] == ["t.echo", "t.refuse"]
    assert router().find("t.echo") is TOOLSET.tools[0]
    assert router().find("echo") is None


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("t.ecco", {}, "Did you mean t.echo"),
        ("zzz", {}, "It has: t.echo"),
        ("t.echo", {"tekst": "hi"}, "text: Field required"),
        ("t.refuse", {}, "Not that."),
        ("t.open_missing", {}, "No such file"),
        ("t.give_up", {}, "the printer"),
        ("t.not_a_number", {}, "not JSON"),
    ],
)
async def test_failure_is_a_value_with_a_sentence(name, arguments, words):
    outcome = await router().call(ToolCall(name, arguments))
    assert outcome.status is ToolStatus.FAILURE
    assert words in (outcome.error or "")
    assert outcome.result is None


async def test_broken_tool_is_logged_once_and_becomes_a_failure(caplog):
    with caplog.at_level(logging.ERROR):
        outcome = await router().call(ToolCall("t.break_down", {}, "c1"))
    assert "ZeroDivisionError" in (outcome.error or "")
    assert len(caplog.records) == 1


async def test_call_over_its_limit_is_stopped():
    outcome = await router().call(ToolCall("t.wait_for_ever", {}, timeout_s=0.01))
    assert outcome.error == "t.wait_for_ever was stopped after its limit of 0.01 s."


async def test_result_over_the_limit_is_a_failure():
    outcome = await router(result_limit_bytes=10).call(ToolCall("t.echo", {"text": "x" * 20}))
    assert "22 bytes" in (outcome.error or "")


async def test_kind_must_fit():
    assert (await router().call(ToolCall("t.echo", {"text": ""}, kind="action"))).status is ToolStatus.SUCCESS
    assert (await router().call(ToolCall("t.echo", {"text": ""}, kind="data_collection"))).status is ToolStatus.FAILURE


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        (Decision.ALLOW, ToolStatus.SUCCESS),
        (Decision.ASK, ToolStatus.SUCCESS),
        (Decision.DENY, ToolStatus.FAILURE),
    ],
)
async def test_guard_can_only_refuse(decision, status):
    guarded = router(guard=lambda _tool, _arguments: Verdict(decision, "rule", "because"))
    assert (await guarded.call(ToolCall("t.echo", {"text": ""}))).status is status


async def test_cancellation_leaves_the_router():
    call = asyncio.ensure_future(router().call(ToolCall("t.wait_for_ever")))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_two_toolsets_of_one_name_are_refused():
    with pytest.raises(UsageError, match="'t'"):
        ToolRouter([TOOLSET, TOOLSET])


async def say_nothing_printable(size: int) -> str:
    """Return characters that JSON writes in six."""
    return "\x1f" * size


async def half_a_character() -> str:
    """Return what no encoding can hold."""
    return "\ud800"


async def anything(*, value: object) -> Any:
    """Return what it is given."""
    return value


ODD_FUNCTIONS = (say_nothing_printable, half_a_character, anything)
ODD = ToolRouter(
    [Toolset("o", tuple(tool(item, name=f"o.{item.__name__}", risk=Risk.READ) for item in ODD_FUNCTIONS))],
    result_limit_bytes=62,
)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("o.say_nothing_printable", {"size": 10}, None),
        ("o.say_nothing_printable", {"size": 11}, "68 bytes, more than 62"),
        ("o.half_a_character", {}, "not JSON"),
        ("o.anything", {"value": "x" * 60}, None),
        ("o.anything", {"value": "x" * 61}, "63 bytes"),
        ("o.anything", {"value": "é" * 30}, None),
        ("o.anything", {"value": "é" * 31}, "64 bytes"),
        ("o.anything", {"value": ["x" * 55, 7]}, None),
        ("o.anything", {"value": ["x" * 56, 77]}, "64 bytes"),
        ("o.anything", {"value": None}, None),
        ("o.anything", {"value": True}, None),
        ("o.anything", {"value": 1e300}, None),
    ],
)
async def test_results_are_measured_as_they_are_written(name, arguments, words):
    outcome = await ODD.call(ToolCall(name, arguments))
    assert (outcome.error is None) == (words is None), outcome.error
    assert (words or "") in (outcome.error or "")


@pytest.mark.parametrize(("depth", "fits"), [(190, True), (210, False), (900, False), (100_000, False)])
async def test_result_that_no_reader_of_the_wire_takes_is_a_failure(depth, fits):
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]

    async def nest(arguments: Mapping[str, Any]) -> Any:
        return value

    nested = ToolRouter([Toolset("t", (dataclasses.replace(TOOLSET.tools[0], function=nest),))])
    outcome = await nested.call(ToolCall("t.echo"))
    assert (outcome.status is ToolStatus.SUCCESS) == fits
    assert fits or "not JSON for the wire" in outcome.error


def test_limit_holds_in_the_next_event_loop_too():
    kept = router()
    for _ in range(2):
        outcome = asyncio.run(kept.call(ToolCall("t.wait_for_ever", {}, timeout_s=0.01)))
        assert "stopped after its limit" in outcome.error


async def test_calls_at_once_are_stopped_each_at_its_own_limit():
    limits = (0.03, 0.01, 0.02)
    ended = []

    async def one(limit_s):
        ended.append((await kept.call(ToolCall("t.wait_for_ever", {}, timeout_s=limit_s))).error)

    kept = router()
    await asyncio.gather(*map(one, limits))
    assert ended == [f"t.wait_for_ever was stopped after its limit of {limit_s} s." for limit_s in sorted(limits)]


async def test_tool_whose_inside_was_cancelled_has_failed_and_nobody_else_is_cancelled(caplog):
    async def trip() -> str:
        """Wait for what somebody cancels."""
        waited = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(waited.cancel)
        return await waited

    tripping = ToolRouter([Toolset("t", (tool(trip, name="t.trip", risk=Risk.READ),))])
    with caplog.at_level(logging.ERROR):
        outcome = await tripping.call(ToolCall("t.trip"))
    assert "t.trip broke inside: CancelledError" in outcome.error
    assert len(caplog.records) == 1
