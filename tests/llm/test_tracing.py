"""A request is a span with the GenAI attributes: what it used, how it failed, and neither secrets nor pictures."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from pydantic import BaseModel, SecretStr

from starloom.llm.completion import ProviderModel
from starloom.llm.faults import ModelFault
from starloom.llm.openai_compatible import Connection
from starloom.llm.port import Image, Message
from starloom.llm.scripted import Fault, Line, ScriptedServer
from starloom.llm.settings import ModelProfile
from starloom.llm.tracing import CONTENT_VARIABLE, Tracing, tracing_of

KEY = "sk-trace-0123456789abcdef"
PASSWORD = "correct horse battery"
PNG = b"\x89PNG\r\n\x1a\n"


class Word(BaseModel):
    """A word."""

    word: str


class RecordedSpan(trace.NonRecordingSpan):
    """A span that keeps what it is told."""

    def __init__(self, name: str) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name = name
        self.attributes: dict[str, Any] = {}
        self.status: tuple[Any, str | None] | None = None
        self.has_ended = False

    def is_recording(self) -> bool:
        return True

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.attributes |= attributes

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = (status, description)


@dataclass
class Spans(trace.TracerProvider, trace.Tracer):
    """A provider and its one tracer."""

    made: list[RecordedSpan] = field(default_factory=list)

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, *_: Any, **__: Any) -> trace.Span:
        self.made.append(RecordedSpan(name))
        return self.made[-1]

    @contextmanager
    def start_as_current_span(self, name: str, *_: Any, **__: Any) -> Iterator[trace.Span]:
        try:
            yield self.start_span(name)
        finally:
            self.made[-1].has_ended = True


async def traced(
    *script: Line, environ: dict[str, str] | None = None, timeout_s: float = 30, says: str = "hi"
) -> list[RecordedSpan]:
    spans, asked = Spans(), tracing_of(environ or {})
    with ScriptedServer(script) as server:
        profile = ModelProfile(
            provider="endpoint", model="scripted", base_url=server.base_url, repair_turns=1, timeout_s=timeout_s
        )
        tracing = Tracing(asked.redactor, asked.has_content, spans)
        model = ProviderModel(Connection(profile, SecretStr(KEY), tracing))
        try:
            await model.complete([Message("user", says, (Image(PNG),))], Word, max_tokens=99)
        except ModelFault:
            pass
        finally:
            await model.close()
    assert all(span.has_ended for span in spans.made)
    return spans.made


async def test_a_request_is_a_span_with_what_it_used_and_nothing_that_was_said() -> None:
    (span,) = await traced({"word": "yes"})
    assert span.name == "chat scripted"
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert span.attributes["gen_ai.request.max_tokens"] == 99
    assert span.attributes["gen_ai.usage.input_tokens"] == 10
    assert span.attributes["gen_ai.usage.output_tokens"] == 5
    assert span.attributes["server.address"] == "127.0.0.1"
    assert span.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert not [name for name in span.attributes if name.endswith("messages")]
    assert span.status is None


async def test_what_was_said_is_there_on_demand_without_secrets_and_pictures() -> None:
    environ = {CONTENT_VARIABLE: "true", "SHOP_PASSWORD": PASSWORD}
    (span,) = await traced({"word": PASSWORD}, environ=environ, says=f"Log in with {PASSWORD}, key {KEY}")
    text = json.dumps(span.attributes, ensure_ascii=False)
    assert PASSWORD not in text
    assert KEY not in text
    (turn,) = json.loads(span.attributes["gen_ai.input.messages"])
    assert turn["parts"][0]["content"].startswith("Log in with [redacted]")
    assert turn["parts"][1] == {
        "type": "blob",
        "modality": "image",
        "mime_type": "image/png",
        "omitted_bytes": len(PNG),
    }
    assert "[redacted]" in span.attributes["gen_ai.output.messages"]


async def test_each_repair_turn_is_a_span_and_a_fault_is_its_error() -> None:
    first, second = await traced("no JSON", Fault(429))
    assert first.status is None
    assert second.attributes["error.type"] == "rate_limited"
    assert second.status is not None
    assert second.status[0] is trace.StatusCode.ERROR
    assert KEY not in (second.status[1] or "")


async def test_a_cancelled_request_says_so() -> None:
    arrived = threading.Event()

    def hang(_: dict[str, Any]) -> Fault:
        arrived.set()
        return Fault(hangs=True)

    spans = Spans()
    with ScriptedServer([hang]) as server:
        profile = ModelProfile(provider="endpoint", model="scripted", base_url=server.base_url)
        model = ProviderModel(Connection(profile, None, Tracing(provider=spans)))
        asking = asyncio.create_task(model.complete([Message("user", "hi")], Word))
        assert await asyncio.to_thread(arrived.wait, 30)
        asking.cancel()
        await asyncio.wait([asking])
        await model.close()
    assert asking.cancelled()
    assert [(span.attributes["error.type"], span.has_ended) for span in spans.made] == [("cancelled", True)]
