"""One connection to a provider's endpoint over pydantic-ai: a request out, an answer or a `ModelFault` back.

Called by `llm.completion`, which reads the reply and asks again. It speaks OpenAI's chat protocol itself; `vendors`
opens the other wires. These two alone import pydantic-ai, the vendors' libraries and their HTTP client, and only when a
connection is opened; all their exceptions end here.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

from starloom.errors import UsageError
from starloom.llm.answers import Answer, answer_of
from starloom.llm.entra import EntraError, EntraTokens, bearer
from starloom.llm.faults import FaultKind, ModelFault, advice, kind_of_status
from starloom.llm.port import Follow, Message, Usage
from starloom.llm.settings import PROVIDERS, ModelProfile, OutputMode
from starloom.llm.streams import BrokenOffError, Following, Patience, StuckError, note_response
from starloom.llm.tracing import Tracing
from starloom.llm.vendors import check_extra, errors_of, opened_vendor

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model as LibraryModel, ModelRequestParameters

_MAX_DETAIL = 200
_NO_TAGS = ("\x00", "\x00")  # thinking is told from answers by the one reader of replies
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that an endpoint lists; its context size where it says so."""

    name: str
    context_tokens: int | None = None


class Connection:
    """Speaks to one profile's endpoint. Opened at the first request; whoever made it closes it."""

    def __init__(self, profile: ModelProfile, key: SecretStr | None = None, tracing: Tracing | None = None) -> None:
        self.profile = profile
        self._key = key
        self._tracing = tracing or Tracing()
        self._model: LibraryModel[Any] | None = None
        self._http: Any = None  # httpx2.AsyncClient
        self._login: Any = None  # the same, for tokens
        provider = PROVIDERS.get(profile.provider)
        self.base_url = (profile.base_url or (provider.base_url if provider else None) or "").rstrip("/")
        if not self.base_url:
            raise UsageError(f"The profile of {profile.model!r} names no address (`base_url`).")
        self._kind = provider.kind if provider else "openai"
        check_extra(self._kind)
        if profile.entra is not None and self._kind != "azure":
            raise UsageError(f"The profile of {profile.model!r} has an `entra` identity; only Azure's models know it.")
        self._tokens: EntraTokens | None = None

    async def ask(
        self,
        messages: Sequence[Message],
        schema: type[BaseModel],
        mode: OutputMode,
        *,
        max_tokens: int,
        follow: Follow | None = None,
        is_streamed: bool = False,
    ) -> Answer:
        """Send the turns and return the answer; cancelling ends the HTTP request.

        `follow` hears that the request was sent and, when the answer is streamed, how it grows.

        Raises:
            ModelFault: what went wrong, in one line and one kind.
        """
        # The library's import is two seconds of work: not on the event loop.
        if self._model is None:
            self._model = await asyncio.to_thread(self._open)
        if self._tokens is not None:
            await self._refresh(self._tokens)
        with self._tracing.request(self.profile, self.base_url, messages, max_tokens=max_tokens) as traced:
            request = (_history(messages), self._settings(max_tokens), _parameters(schema, mode))
            response = await self._requested(
                self._model, request, Following(self.profile.model, follow), is_streamed=is_streamed
            )
            answer = answer_of(response, self.profile.model)
            traced.answered(answer.text, answer.model, answer.finish, answer.usage)
            if response.finish_reason == "content_filter":
                raise self._fault(FaultKind.CONTENT_FILTER, answer.text, usage=answer.usage)
        return answer

    async def _requested(
        self,
        model: "LibraryModel[Any]",
        request: "tuple[list[ModelMessage], Any, ModelRequestParameters]",
        following: Following,
        *,
        is_streamed: bool,
    ) -> "ModelResponse":
        """Send the request; what the libraries raise becomes our fault."""
        from pydantic_ai.exceptions import AgentRunError, UserError

        try:
            following.sent()
            if is_streamed:
                return await following.whole(model.request_stream(*request), self._patience())
            async with asyncio.timeout(self.profile.timeout_s):
                return await model.request(*request)
        except StuckError as error:
            raise self._fault(FaultKind.TIMED_OUT, str(error)) from error
        except BrokenOffError as error:
            raise self._fault(FaultKind.BROKEN_OFF, "") from error
        except TimeoutError as error:
            raise self._fault(FaultKind.TIMED_OUT, f"nothing within {self.profile.timeout_s:g} s") from error
        except (AgentRunError, UserError, IndexError) as error:  # IndexError: `choices` is empty
            raise self._translated(error) from error
        except errors_of(self._kind) as error:
            raise self._fault(FaultKind.BAD_REQUEST, str(error)) from error

    def _patience(self) -> Patience:
        profile = self.profile
        return Patience(profile.first_chunk_s or profile.timeout_s, profile.chunk_gap_s, profile.timeout_s)

    async def _refresh(self, tokens: EntraTokens) -> None:
        try:
            await tokens.refresh()
        except EntraError as error:
            raise self._fault(FaultKind.WRONG_KEY, error.message) from error

    async def listed(self) -> list[ListedModel]:
        """Return the models that the endpoint lists.

        Raises:
            ModelFault: it lists none, or cannot be asked.
        """
        if self._model is None:
            self._model = await asyncio.to_thread(self._open)
        from openai import APIError, APIStatusError
        from pydantic_ai.models.openai import OpenAIChatModel

        if not isinstance(self._model, OpenAIChatModel):
            raise self._fault(FaultKind.BAD_REQUEST, "its models are not listed here")
        try:
            async with asyncio.timeout(self.profile.timeout_s):
                page = await self._model.client.models.list()
                return [ListedModel(item.id, _context_of(item.model_extra or {})) for item in page.data or ()]
        except TimeoutError as error:
            raise self._fault(FaultKind.TIMED_OUT, f"nothing within {self.profile.timeout_s:g} s") from error
        except APIStatusError as error:
            kind = kind_of_status(error.status_code, error.message)
            raise self._fault(kind, _message_in(error.body), status=error.status_code) from error
        except APIError as error:
            raise self._fault(FaultKind.UNREACHABLE, "") from error
        except (AttributeError, TypeError, ValueError) as error:  # the library reads a page that is no list of models
            raise self._fault(FaultKind.NOT_JSON, "a web page or text") from error

    async def close(self) -> None:
        """End the connections to the endpoint."""
        for client in (self._http, self._login):
            if client is not None:
                await client.aclose()
        self._http = self._login = self._model = self._tokens = None

    def _open(self) -> "LibraryModel[Any]":
        import httpx2

        profile = self.profile
        try:
            verify: ssl.SSLContext | bool = (
                ssl.create_default_context(cafile=profile.ca_file) if profile.ca_file else True
            )
        except OSError as error:
            raise UsageError(f"The CA file {profile.ca_file!r} cannot be read: {error.strerror}.") from error
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(profile.timeout_s, connect=min(10.0, profile.timeout_s)),
            verify=verify,
            proxy=profile.proxy,
            trust_env=urlsplit(self.base_url).hostname not in _LOOPBACK,  # a proxy is never asked for this machine
            headers=profile.headers,
            event_hooks={"response": [note_response]},
        )
        if profile.entra is not None:
            self._login = httpx2.AsyncClient(verify=verify, proxy=profile.proxy)
            self._tokens = EntraTokens(profile.entra, self._key, self._login, time.monotonic)
            self._http.auth = bearer(self._tokens)
            return opened_vendor(self._kind, profile, self.base_url, None, self._http)
        if self._kind != "openai":
            return opened_vendor(self._kind, profile, self.base_url, self._key, self._http)
        return self._openai()

    def _openai(self) -> "LibraryModel[Any]":
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider

        profile = self.profile
        client = AsyncOpenAI(
            base_url=self.base_url,
            api_key=self._key.get_secret_value() if self._key else "none",
            default_headers=profile.headers,
            http_client=self._http,
            max_retries=0,  # tries are ours: counted, with a deadline and a breaker
        )
        abilities = OpenAIModelProfile(
            supports_json_schema_output=True,
            supports_json_object_output=True,
            openai_chat_supports_max_completion_tokens=profile.provider == "openai",
            openai_chat_streaming_requires_finish_reason=True,
            thinking_tags=_NO_TAGS,
        )
        return OpenAIChatModel(profile.model, provider=OpenAIProvider(openai_client=client), profile=abilities)

    def _settings(self, max_tokens: int) -> Any:  # noqa: ANN401 - pydantic-ai's ModelSettings, a typed dict
        profile = self.profile
        settings: dict[str, Any] = {"max_tokens": max_tokens}
        if profile.extra_body:
            settings["extra_body"] = dict(profile.extra_body)
        # The newest models of these refuse a temperature; who sets one means it.
        by_default = profile.provider not in ("openai", "azure", "anthropic")
        if profile.temperature is not None and (by_default or "temperature" in profile.model_fields_set):
            settings["temperature"] = profile.temperature
        return settings

    def _translated(self, error: Exception) -> ModelFault:
        """Return our fault for a library's exception."""
        from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UserError

        if isinstance(error, ModelHTTPError):
            body = str(error.body or "")
            retry_after = _seconds((error.headers or {}).get("retry-after"))
            kind = kind_of_status(error.status_code, body)
            if "<html" in body.lower() and kind is not FaultKind.SERVER_ERROR:
                body = "a web page"
            return self._fault(kind, _message_in(error.body), retry_after_s=retry_after, status=error.status_code)
        text = str(error)
        cause = type(error.__cause__).__name__
        if isinstance(error, ModelAPIError):
            if "finish_reason" in text:
                return self._fault(FaultKind.BROKEN_OFF, "")
            if "decode" in text or "JSON" in text:
                return self._fault(FaultKind.NOT_JSON, "an answer that is no JSON")
            if "Timeout" in cause or "timed out" in text.lower():
                return self._fault(FaultKind.TIMED_OUT, "")
            return self._fault(FaultKind.UNREACHABLE, text if text != "Connection error." else "")
        if isinstance(error, UserError):
            return self._fault(FaultKind.BAD_REQUEST, text)
        if "without content" in text:  # a stream of nothing: a page, a server that knows no streams, an early end
            return self._fault(FaultKind.BROKEN_OFF, "an empty stream")
        detail = "an answer without choices" if isinstance(error, IndexError) else "an answer of another shape"
        return self._fault(FaultKind.NOT_JSON, "a web page or text" if "expected JSON" in text else detail)

    def _fault(
        self,
        kind: FaultKind,
        detail: str,
        *,
        retry_after_s: float | None = None,
        status: int | None = None,
        usage: Usage | None = None,
    ) -> ModelFault:
        line = advice(kind, self.profile.model, self.base_url, self._clean(detail))
        return ModelFault(kind, line, model=self.profile.model, retry_after_s=retry_after_s, status=status, usage=usage)

    def _clean(self, text: str) -> str:
        """Return a provider's words as one short line without the key."""
        if self._key is not None:
            text = text.replace(self._key.get_secret_value(), "[key]")
        text = re.sub(r"\b(sk|pk|key)-[\w*-]{3,}", "[key]", text)
        text = " ".join(text.split())
        return text if len(text) <= _MAX_DETAIL else text[: _MAX_DETAIL - 1] + "…"


def _history(messages: Sequence[Message]) -> "list[ModelMessage]":
    """Return the turns in pydantic-ai's words; turns of one side that follow each other become one message."""
    from pydantic_ai.messages import (
        BinaryContent,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        UserPromptPart,
    )

    history: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in messages:
        if message.role == "assistant":
            if parts:
                history.append(ModelRequest(parts))
                parts = []
            history.append(ModelResponse([TextPart(message.text)]))
        elif message.role == "system":
            parts.append(SystemPromptPart(message.text))
        else:
            images = [BinaryContent(image.content, media_type=image.media_type) for image in message.images]
            parts.append(UserPromptPart([message.text, *images] if images else message.text))
    return [*history, ModelRequest(parts)] if parts else history


@lru_cache(maxsize=128)  # the library copies what it changes; a schema is slow to write out
def _parameters(schema: type[BaseModel], mode: OutputMode) -> "ModelRequestParameters":
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    json_schema = schema.model_json_schema()
    description = schema.__doc__
    if mode is OutputMode.TOOL:
        tool = ToolDefinition(
            name="final_result", parameters_json_schema=json_schema, description=description, kind="output"
        )
        return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
    wanted = OutputObjectDefinition(json_schema=json_schema, name=schema.__name__, description=description)
    return ModelRequestParameters(
        output_mode="prompted" if mode is OutputMode.PROMPTED else "native", output_object=wanted
    )


def _context_of(details: dict[str, Any]) -> int | None:
    """Return the context size under any of the names that servers give it."""
    for name in ("context_length", "max_model_len", "context_window", "max_context_length"):
        if isinstance(details.get(name), int):
            return int(details[name])
    meta = details.get("meta")
    return _context_of({"context_length": meta.get("n_ctx_train")}) if isinstance(meta, dict) else None


def _message_in(body: object) -> str:
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            return str(inner.get("message") or inner.get("detail") or "")
        return str(inner)
    text = str(body or "")
    return "a web page" if "<html" in text.lower() or "<!doctype" in text.lower() else text


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
