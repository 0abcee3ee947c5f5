"""A provider's model over real HTTP: structured replies, repairs, second questions and faults."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from starloom.llm.completion import ProviderModel
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.openai_compatible import Connection
from starloom.llm.port import Image, Message
from starloom.llm.scripted import Fault, Line, Said, ScriptedServer
from starloom.llm.settings import ModelProfile, OutputMode

PNG = b"\x89PNG\r\n\x1a\n"
ASK = [Message("system", "You click."), Message("user", "Click it.")]


class Step(BaseModel):
    """One step."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["CONTINUE", "FINISH"]
    action: str
    thought: str = ""


GOOD = {"status": "FINISH", "action": "click"}


@asynccontextmanager
async def scripted(
    *script: Line, key: str | None = None, **changes: Any
) -> AsyncIterator[tuple[ProviderModel, ScriptedServer]]:
    with ScriptedServer(script, key=key) as server:
        profile = ModelProfile(provider="endpoint", model="scripted", base_url=server.base_url, **changes)
        model = ProviderModel(Connection(profile, SecretStr("sk-wrong") if key else None))
        try:
            yield model, server
        finally:
            await model.close()


async def fault_of(*script: Line, **changes: Any) -> ModelFault:
    async with scripted(*script, **changes) as (model, _):
        with pytest.raises(ModelFault) as caught:
            await model.complete(ASK, Step)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
async def test_each_mode_gives_a_validated_reply_with_a_picture(mode: str) -> None:
    line = (
        Said(None, "tool_calls", tool_arguments='{"status": "FINISH", "action": "click"}') if mode == "tool" else GOOD
    )
    async with scripted(line, output_mode=mode) as (model, server):
        reply = await model.complete([ASK[0], Message("user", "Click.", (Image(PNG),))], Step)
    assert reply.value == Step(status="FINISH", action="click")
    assert (reply.model, reply.usage.input_tokens, reply.usage.output_tokens) == ("scripted", 10, 5)
    assert reply.usage.cost is None
    body = server.requests[0].body
    assert body["messages"][-1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert ("tools" in body) == (mode == "tool")
    assert body.get("response_format", {}).get("type") == {"native": "json_schema", "prompted": "json_object"}.get(mode)


async def test_slips_are_repaired_without_asking_again() -> None:
    async with scripted("<think>hm</think>```json\n{'status': 'finish', 'action': 'click',}\n```") as (model, server):
        reply = await model.complete(ASK, Step)
    assert reply.value.action == "click"
    assert {"fence", "single_quotes", "trailing_comma", "choice_spelling"} <= set(reply.repairs)
    assert len(server.requests) == 1


async def test_second_question_names_the_field_and_never_shows_the_broken_reply() -> None:
    async with scripted('{"status": "FINISH", "act": "wrong"}', GOOD) as (model, server):
        reply = await model.complete(ASK, Step)
    assert reply.repairs == ("asked_again",)
    assert reply.usage.requests == 2
    assert "action" in server.requests[1].texts[-1]
    assert "wrong" not in " ".join(server.requests[1].texts)


async def test_always_broken_reply_ends_after_the_bounded_turns() -> None:
    async with scripted("no", repair_turns=2) as (model, server):
        with pytest.raises(ModelFault, match="no JSON object") as caught:
            await model.complete(ASK, Step)
    assert caught.value.kind is FaultKind.UNUSABLE_REPLY
    assert len(server.requests) == 3


async def test_cut_off_reply_is_never_repaired_and_gets_more_room() -> None:
    async with scripted(Said('{"status": "FINISH", "action": "cl', "length"), GOOD) as (model, server):
        reply = await model.complete(ASK, Step, max_tokens=64)
    assert reply.value.action == "click"
    assert [request.body["max_tokens"] for request in server.requests] == [64, 128]


async def test_refused_schema_steps_down_once_and_is_remembered() -> None:
    refusal = Fault(400, '{"error": {"message": "response_format json_schema is not supported"}}')
    tools = Fault(400, '{"error": {"message": "tools are not supported"}}')
    async with scripted(refusal, tools, GOOD, GOOD) as (model, server):
        await model.complete(ASK, Step)
        await model.complete(ASK, Step)
    assert model.output_mode is OutputMode.PROMPTED
    assert len(server.requests) == 4


async def test_refused_picture_is_left_out_stated_and_remembered() -> None:
    refusal = Fault(400, '{"error": {"message": "image_url is not supported by this model"}}')
    turns = [Message("user", "Click.", (Image(PNG),))]
    async with scripted(refusal, GOOD, GOOD) as (model, server):
        first = await model.complete(turns, Step)
        second = await model.complete(turns, Step)
    assert first.repairs == second.repairs == ("images_left_out",)
    assert "left out" in server.requests[1].texts[-1]
    assert len(server.requests) == 3


async def test_known_context_is_kept_to_and_it_is_said() -> None:
    old = [Message("user", "a long story " * 200), Message("assistant", "yes " * 200)]
    async with scripted(GOOD, context_tokens=500) as (model, server):
        reply = await model.complete([ASK[0], *old, ASK[1]], Step, max_tokens=100)
    assert reply.repairs == ("left out: 1 older turns",)
    assert "older turns were left out" in " ".join(server.requests[0].texts)


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        (Fault(400), FaultKind.BAD_REQUEST, "refused the request"),
        (Fault(400, '{"error": {"message": "maximum context length is 8192"}}'), FaultKind.TOO_LONG, "too long"),
        (Fault(400, '{"error": {"code": "content_filter", "message": "x"}}'), FaultKind.CONTENT_FILTER, "filter"),
        (Fault(401), FaultKind.WRONG_KEY, "refused the key"),
        (Fault(403), FaultKind.WRONG_KEY, "refused the key"),
        (Fault(404), FaultKind.UNKNOWN_MODEL, "not known there"),
        (Fault(408), FaultKind.TIMED_OUT, "in time"),
        (Fault(413), FaultKind.TOO_LONG, "too long"),
        (Fault(429, retry_after_s=7), FaultKind.RATE_LIMITED, "slow down"),
        (Fault(500), FaultKind.SERVER_ERROR, "own side"),
        (Fault(503, "<html>down</html>", "text/html"), FaultKind.SERVER_ERROR, "own side"),
        (Fault(200, "<html>sign in</html>", "text/html"), FaultKind.NOT_JSON, "as a model does"),
        (Fault(404, "<html>nothing</html>", "text/html"), FaultKind.UNKNOWN_MODEL, "/v1"),
        (Fault(200, ""), FaultKind.NOT_JSON, "as a model does"),
        (Fault(200, "{"), FaultKind.NOT_JSON, "as a model does"),
        (Fault(200, '{"hello": 1}'), FaultKind.NOT_JSON, "as a model does"),
        (
            Fault(200, '{"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}'),
            FaultKind.NOT_JSON,
            "without choices",
        ),
        (Said(None), FaultKind.UNUSABLE_REPLY, "empty"),
        (Said(None, "content_filter"), FaultKind.CONTENT_FILTER, "filter"),
        (Said('{"status": "FI', "length"), FaultKind.CUT_OFF, "cut off"),
        (Fault(200, "{" * 100, stops_after=10), FaultKind.UNREACHABLE, "cannot be reached"),
    ],
)
async def test_each_fault_has_its_kind_and_one_clear_line(line: Line, kind: FaultKind, words: str) -> None:
    fault = await fault_of(line)
    assert fault.kind is kind
    assert words in fault.message
    assert fault.exit_code == 5


async def test_silence_ends_at_the_deadline() -> None:
    fault = await fault_of(Fault(hangs=True), timeout_s=0.2)
    assert fault.kind is FaultKind.TIMED_OUT


async def test_refused_connection_is_said() -> None:
    profile = ModelProfile(provider="endpoint", model="m", base_url="http://127.0.0.1:9/v1")
    model = ProviderModel(Connection(profile))
    with pytest.raises(ModelFault, match="cannot be reached") as caught:
        await model.complete(ASK, Step)
    await model.close()
    assert caught.value.kind is FaultKind.UNREACHABLE


async def test_retry_after_is_kept() -> None:
    assert (await fault_of(Fault(429, retry_after_s=7))).retry_after_s == 7


async def test_key_is_never_in_a_message() -> None:
    fault = await fault_of(GOOD, key="sk-right")
    assert fault.kind is FaultKind.WRONG_KEY
    assert "sk-wrong" not in fault.message
    assert "[key]" in fault.message
