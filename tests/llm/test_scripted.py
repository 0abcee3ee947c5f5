"""The scripted server speaks OpenAI's chat protocol to the real client, streamed and not, and gives faults as told."""

from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI

from starloom.llm.scripted import Fault, Said, ScriptedServer

ASK: list[Any] = [{"role": "user", "content": "hi"}]


def client(server: ScriptedServer, key: str = "k") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.base_url, api_key=key, max_retries=0)


async def test_script_is_said_line_by_line_and_the_last_line_stays() -> None:
    with ScriptedServer(["one", {"two": 2}]) as server:
        async with client(server) as asking:
            said = [
                (await asking.chat.completions.create(model="m", messages=ASK)).choices[0].message.content
                for _ in range(3)
            ]
    assert said == ["one", '{"two": 2}', '{"two": 2}']
    assert [request.path for request in server.requests] == ["/v1/chat/completions"] * 3
    assert server.requests[0].texts == ["hi"]


async def test_stream_gives_the_same_text_and_its_usage() -> None:
    with ScriptedServer([Said("a text longer than one chunk", completion_tokens=9)]) as server:
        async with client(server) as asking:
            stream = await asking.chat.completions.create(model="m", messages=ASK, stream=True)
            chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "a text longer than one chunk"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 9


async def test_line_may_be_made_from_the_request() -> None:
    with ScriptedServer([lambda body: f"you use {body['model']}"]) as server:
        async with client(server) as asking:
            reply = await asking.chat.completions.create(model="mine", messages=ASK)
    assert reply.choices[0].message.content == "you use mine"


async def test_fault_and_wrong_key_are_statuses() -> None:
    with ScriptedServer([Fault(429, retry_after_s=3), "fine"], key="right") as server:
        async with client(server, "right") as asking, client(server, "wrong") as stranger:
            with pytest.raises(APIStatusError) as limited:
                await asking.chat.completions.create(model="m", messages=ASK)
            with pytest.raises(APIStatusError) as refused:
                await stranger.chat.completions.create(model="m", messages=ASK)
    assert (limited.value.status_code, limited.value.response.headers["retry-after"]) == (429, "3")
    assert refused.value.status_code == 401


async def test_models_are_listed() -> None:
    with ScriptedServer([]) as server:
        async with client(server) as asking:
            assert [model.id async for model in await asking.models.list()] == ["scripted"]
        assert server.model_form == f"{server.base_url}#scripted"
