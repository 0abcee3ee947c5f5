"""Model requests as OpenTelemetry spans with the GenAI attributes; nothing happens where no tracer provider is set.

Called by `openai_compatible.Connection` for each request, so a repair turn is a span of its own. What is said goes into
a span only when the user wants it (the variable below), with secrets hidden; pictures are never in it, only their size.

Source: OpenTelemetry semantic conventions for generative AI, client spans.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starloom.errors import ModelError
from starloom.llm.faults import ModelFault
from starloom.llm.port import Message, Usage
from starloom.llm.settings import ModelProfile
from starloom.safety.redaction import Redactor, secrets_of_environment

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_PROVIDER_VARIABLE = "OTEL_PYTHON_TRACER_PROVIDER"
_WITH_CONTENT = frozenset({"true", "1", "span_only", "span_and_event"})

# Our provider's word → the convention's; the others are the same.
_PROVIDER_NAMES = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "dashscope-cn": "alibaba_cloud.model_studio",
    "dashscope-intl": "alibaba_cloud.model_studio",
}


def provider_here() -> "TracerProvider | None":
    """Return the process's tracer provider; None when none was set, which is found out without importing anything."""
    if "opentelemetry.trace" not in sys.modules and _PROVIDER_VARIABLE not in os.environ:
        return None
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

    provider = get_tracer_provider()
    return None if isinstance(provider, ProxyTracerProvider) else provider


@dataclass(frozen=True, slots=True)
class Tracing:
    """How requests are traced. `provider` None: the process's own, if one is set."""

    redactor: Redactor = field(default_factory=Redactor)
    has_content: bool = False
    provider: "TracerProvider | None" = None

    @contextmanager
    def request(
        self, profile: ModelProfile, base_url: str, messages: Sequence[Message], *, max_tokens: int
    ) -> Iterator["Request"]:
        """Have a span around the block; a fault or a cancellation in it becomes the span's error."""
        provider = self.provider or provider_here()
        if provider is None:
            yield Request(None, self)
            return
        from opentelemetry.trace import SpanKind

        tracer = provider.get_tracer("starloom.llm")
        with tracer.start_as_current_span(
            f"chat {profile.model}", kind=SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
        ) as span:
            request = Request(span, self)
            request.asked(profile, base_url, messages, max_tokens)
            try:
                yield request
            except ModelFault as fault:
                request.failed(fault.kind.value, fault.message)
                raise
            except ModelError as error:
                request.failed("model_error", error.message)
                raise
            except asyncio.CancelledError:
                request.failed("cancelled", "")
                raise


@dataclass(frozen=True, slots=True)
class Request:
    """One request's span; none where nothing is traced."""

    span: "Span | None"
    tracing: Tracing

    def asked(self, profile: ModelProfile, base_url: str, messages: Sequence[Message], max_tokens: int) -> None:
        """Note what is asked, and of whom."""
        if self.span is None or not self.span.is_recording():
            return
        place = urlsplit(base_url)
        self.span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": _PROVIDER_NAMES.get(profile.provider, profile.provider),
                "gen_ai.request.model": profile.model,
                "gen_ai.request.max_tokens": max_tokens,
                "gen_ai.output.type": "json",
            }
        )
        if place.hostname:
            port = place.port or (80 if place.scheme == "http" else 443)
            self.span.set_attributes({"server.address": place.hostname, "server.port": port})
        if self.tracing.has_content:
            turns = [{"role": turn.role, "parts": _parts(turn)} for turn in messages]
            self.span.set_attribute("gen_ai.input.messages", self._hidden(turns))

    def answered(self, text: str, model: str, finish: str, usage: Usage | None) -> None:
        """Note the answer."""
        if self.span is None or not self.span.is_recording():
            return
        self.span.set_attributes({"gen_ai.response.model": model, "gen_ai.response.finish_reasons": [finish]})
        if usage is not None:
            counts = {
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            }
            self.span.set_attributes({name: count for name, count in counts.items() if count is not None})
        if self.tracing.has_content:
            said = [{"role": "assistant", "parts": [{"type": "text", "content": text}], "finish_reason": finish}]
            self.span.set_attribute("gen_ai.output.messages", self._hidden(said))

    def failed(self, kind: str, message: str) -> None:
        """Note what went wrong, in a word and in our own line."""
        if self.span is None:
            return
        from opentelemetry.trace import StatusCode

        self.span.set_attribute("error.type", kind)
        self.span.set_status(StatusCode.ERROR, self.tracing.redactor.text(message))

    def _hidden(self, turns: list[dict[str, Any]]) -> str:
        return json.dumps(self.tracing.redactor.value(turns), ensure_ascii=False)


def tracing_of(environ: Mapping[str, str]) -> Tracing:
    """Return the tracing that the environment asks for; its secrets are hidden in every span."""
    has_content = environ.get(CONTENT_VARIABLE, "").strip().lower() in _WITH_CONTENT
    return Tracing(Redactor(secrets_of_environment(environ)), has_content)


def _parts(turn: Message) -> list[dict[str, Any]]:
    pictures = [
        {"type": "blob", "modality": "image", "mime_type": image.media_type, "omitted_bytes": len(image.content)}
        for image in turn.images
    ]
    return [{"type": "text", "content": turn.text}, *pictures]
