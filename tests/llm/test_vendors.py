"""The wires of Anthropic, Google, Azure and Bedrock over real HTTP: a structured step with a picture, and faults."""

import base64
import importlib.util
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from starloom.errors import UsageError
from starloom.llm import vendors
from starloom.llm.completion import ProviderModel
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.openai_compatible import Connection
from starloom.llm.port import Image, Message
from starloom.llm.scripted import ScriptedServer
from starloom.llm.settings import ModelProfile, OutputMode, parse_model

PNG = b"\x89PNG\r\n\x1a\n"
KEY = "sk-vendor-0123456789"
ASK = [Message("system", "You click."), Message("user", "Click it.", (Image(PNG),))]


class Step(BaseModel):
    """One step."""

    status: str
    action: str


needs_boto3 = pytest.mark.skipif(importlib.util.find_spec("boto3") is None, reason="needs the extra `bedrock`")
GOOD = {"status": "FINISH", "action": "click"}


@dataclass
class FakeVendor:
    """A server that gives each POST the next of its answers, the last one for ever."""

    answers: list[tuple[int, str]]
    url: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(*answers: Mapping[str, Any] | tuple[int, str]) -> Iterator[FakeVendor]:
    fake = FakeVendor([answer if isinstance(answer, tuple) else (200, json.dumps(answer)) for answer in answers])

    class Answerer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None: ...

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            fake.paths.append(self.path)
            fake.bodies.append(json.loads(body))
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, text = fake.answers[min(len(fake.paths), len(fake.answers)) - 1]
            self.send_response(status)
            self.send_header("content-type", "text/html" if text.startswith("<") else "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answerer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@asynccontextmanager
async def opened(provider: str, model: str, url: str, **changes: Any) -> AsyncIterator[ProviderModel]:
    profile = ModelProfile(provider=provider, model=model, base_url=url, **changes)
    opened = ProviderModel(Connection(profile, SecretStr(KEY)))
    try:
        yield opened
    finally:
        await opened.close()


def anthropic_reply(*content: Mapping[str, Any], stop: str = "tool_use") -> dict[str, Any]:
    usage = {"input_tokens": 12, "output_tokens": 7}
    frame = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "stop_sequence": None}
    return {**frame, "content": list(content), "stop_reason": stop, "usage": usage}


def gemini_reply(text: str, finish: str = "STOP") -> dict[str, Any]:
    counts = {"promptTokenCount": 12, "candidatesTokenCount": 7, "totalTokenCount": 19}
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": finish, "index": 0}
    return {"candidates": [candidate], "usageMetadata": counts, "modelVersion": "gemini-2.5-flash"}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "final_result", "input": GOOD}


async def test_anthropics_wire_takes_a_picture_and_gives_a_validated_step() -> None:
    with serving(anthropic_reply(CALL)) as fake:
        async with opened("anthropic", "claude-haiku-4-5", fake.url, headers={"X-Team": "t"}) as model:
            reply = await model.complete(ASK, Step)
    assert reply.value == Step(**GOOD)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 7)
    assert fake.paths[0].startswith("/v1/messages")
    assert KEY in (fake.headers[0].get("x-api-key"), fake.headers[0].get("authorization", "").removeprefix("Bearer "))
    assert fake.headers[0]["x-team"] == "t"
    assert "temperature" not in fake.bodies[0]
    assert base64.b64encode(PNG).decode() in json.dumps(fake.bodies[0])
    assert fake.bodies[0]["tools"][0]["name"] == "final_result"


async def test_anthropics_cut_off_reply_is_asked_again_with_more_room() -> None:
    half = {"type": "text", "text": '{"status": "FINISH", "act'}
    whole = {"type": "text", "text": json.dumps(GOOD)}
    with serving(anthropic_reply(half, stop="max_tokens"), anthropic_reply(whole, stop="end_turn")) as fake:
        async with opened("anthropic", "claude-haiku-4-5", fake.url, output_mode="prompted") as model:
            reply = await model.complete(ASK, Step, max_tokens=300)
    assert reply.value.action == "click"
    assert [body["max_tokens"] for body in fake.bodies] == [300, 600]


async def test_geminis_wire_takes_a_picture_and_gives_a_validated_step() -> None:
    with serving(gemini_reply(json.dumps(GOOD))) as fake:
        async with opened("google", "gemini-2.5-flash", fake.url) as model:
            reply = await model.complete(ASK, Step)
    assert reply.value == Step(**GOOD)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 7)
    assert fake.paths[0].endswith("/models/gemini-2.5-flash:generateContent")
    assert fake.headers[0]["x-goog-api-key"] == KEY
    assert "image/png" in json.dumps(fake.bodies[0])


@pytest.mark.parametrize("version", [None, "2024-10-21"])
async def test_azures_wire_sends_the_key_and_the_version(version: str | None) -> None:
    with ScriptedServer([GOOD]) as server:
        url = server.base_url if version is None else server.base_url.removesuffix("/v1")
        async with opened("azure", "my-gpt", url, api_version=version) as model:
            reply = await model.complete(ASK, Step)
        sent = server.requests[0]
    assert reply.value == Step(**GOOD)
    assert KEY in (sent.headers.get("api-key"), sent.headers.get("authorization", "").removeprefix("Bearer "))
    assert ("api-version=2024-10-21" in sent.path) is (version is not None)


@needs_boto3
async def test_bedrocks_wire_takes_a_picture_and_gives_a_validated_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    call = {"toolUse": {"toolUseId": "t1", "name": "final_result", "input": GOOD}}
    usage = {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19}
    output = {"message": {"role": "assistant", "content": [call]}}
    answer = {"output": output, "stopReason": "tool_use", "usage": usage, "metrics": {"latencyMs": 1}}
    with serving(answer) as fake:
        profile = ModelProfile(provider="bedrock", model="anthropic.claude-haiku-4-5-v1:0", base_url=fake.url)
        model = ProviderModel(Connection(profile))
        reply = await model.complete(ASK, Step)
        await model.close()
    assert reply.value == Step(**GOOD)
    assert "eu-central-1" in fake.headers[0]["authorization"]


@needs_boto3
async def test_bedrock_sends_no_key_in_the_clear_and_says_so() -> None:
    url = "http://bedrock-runtime.eu-central-1.invalid"
    async with opened("bedrock", "anthropic.claude-haiku-4-5-v1:0", url) as model:
        with pytest.raises(ModelFault, match="HTTPS"):
            await model.complete(ASK, Step)


@pytest.mark.parametrize(("provider", "model"), [("anthropic", "claude-haiku-4-5"), ("google", "gemini-2.5-flash")])
@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (401, '{"error": {"type": "authentication_error", "message": "bad key"}}', FaultKind.WRONG_KEY),
        (404, '{"error": {"type": "not_found_error", "message": "no such model"}}', FaultKind.UNKNOWN_MODEL),
        (429, '{"error": {"type": "rate_limit_error", "message": "slow down"}}', FaultKind.RATE_LIMITED),
        (503, '{"error": {"type": "overloaded_error", "message": "later"}}', FaultKind.SERVER_ERROR),
        (200, "<html>Sign in</html>", FaultKind.NOT_JSON),
    ],
)
async def test_faults_are_told_apart_asked_once_and_never_show_the_key(
    provider: str, model: str, status: int, text: str, kind: FaultKind
) -> None:
    with serving((status, text)) as fake:
        async with opened(provider, model, fake.url) as asked:
            with pytest.raises(ModelFault) as caught:
                await asked.complete(ASK, Step)
    assert caught.value.kind is kind
    assert len(fake.paths) == 1
    assert KEY not in caught.value.message
    assert "\n" not in caught.value.message


async def test_nobody_there_is_said() -> None:
    for provider, model in (("anthropic", "claude-haiku-4-5"), ("google", "gemini-2.5-flash")):
        async with opened(provider, model, "http://127.0.0.1:9") as asked:
            with pytest.raises(ModelFault) as caught:
                await asked.complete(ASK, Step)
        assert caught.value.kind is FaultKind.UNREACHABLE


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vendors._LIBRARIES, "anthropic", "no_such_package.at_all")
    with pytest.raises(UsageError, match=r"pip install 'starloom\[anthropic\]'"):
        Connection(parse_model("claude-haiku-4-5"), SecretStr(KEY))


async def test_what_the_wire_has_not_is_refused() -> None:
    async with opened("google", "gemini-2.5-flash", "http://127.0.0.1:9", extra_body={"a": 1}) as model:
        with pytest.raises(UsageError, match="extra_body"):
            await model.complete(ASK, Step)
    async with opened("azure", "my-gpt", "http://127.0.0.1:9") as model:
        with pytest.raises(UsageError, match="api_version"):
            await model.complete(ASK, Step)


def test_vendors_begin_with_the_mode_that_they_take() -> None:
    claude = ProviderModel(Connection(parse_model("claude-haiku-4-5"), SecretStr(KEY)))
    assert (claude.base_url, claude.output_mode) == ("https://api.anthropic.com", OutputMode.TOOL)
