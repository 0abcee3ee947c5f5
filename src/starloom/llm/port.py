"""The model port: what agents ask of a language model, whatever provider stands behind it.

Adapters: `openai_compatible` (over pydantic-ai), `embedded` (a GGUF file in this process). Agents never import a
provider's library. Chosen by role in `llm.roles`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)

_BYTES_A_TOKEN = 3  # cautious: most Latin texts have four, a Chinese character has three
_TOKENS_AN_IMAGE = 1500


@dataclass(frozen=True, slots=True)
class Image:
    """A picture for the model: encoded bytes and their media type, `image/png` or `image/jpeg`."""

    content: bytes
    media_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. Stable turns come first, so that providers and the embedded model can cache the prefix."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call used. None, of any of them: unknown, which is never zero.

    The parts of the input (read from the provider's cache, written to it, pictures) and of the output (reasoning) are
    counted in its total. `cost` in US dollars. `is_estimated`: the provider did not say, so the totals are our guess.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    requests: int = 1
    cost: float | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    image_tokens: int | None = None
    is_estimated: bool = False

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.input_tokens + self.output_tokens


def total_usage(used: Iterable[Usage]) -> Usage:
    """Return the sum. A part or a cost that is unknown for one call is unknown for all, the totals are not."""
    calls = [usage for usage in used if usage.requests]
    if not calls:
        return Usage(requests=0, cost=0.0)
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in calls),
        output_tokens=sum(usage.output_tokens for usage in calls),
        cached_tokens=_known_sum([usage.cached_tokens for usage in calls]),
        requests=sum(usage.requests for usage in calls),
        cost=_known_sum([usage.cost for usage in calls]),
        cache_write_tokens=_known_sum([usage.cache_write_tokens for usage in calls]),
        reasoning_tokens=_known_sum([usage.reasoning_tokens for usage in calls]),
        image_tokens=_known_sum([usage.image_tokens for usage in calls]),
        is_estimated=any(usage.is_estimated for usage in calls),
    )


Number = TypeVar("Number", int, float)


def _known_sum(numbers: Sequence[Number | None]) -> Number | None:
    known = [number for number in numbers if number is not None]
    return sum(known[1:], start=known[0]) if known and len(known) == len(numbers) else None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is; the first one comes when it is sent. Nothing in it can be acted on: only a `Reply` can.

    `output_tokens` is counted from what has come, `input_tokens` None until the provider says it.
    """

    model: str
    output_tokens: int = 0
    input_tokens: int | None = None
    is_thinking: bool = False


Follow: TypeAlias = Callable[[Progress], None]
"""Hears how a reply grows. Who gives one has the reply streamed, where the endpoint can; the result is the same."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """A validated reply, which model gave it, what it used, and the repairs that made it readable."""

    value: T
    model: str
    usage: Usage
    repairs: tuple[str, ...] = ()


class Model(Protocol):
    """Answers in a given shape."""

    @property
    def name(self) -> str:
        """The model's name as its provider spells it."""
        ...

    async def complete(
        self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048, follow: Follow | None = None
    ) -> Reply[T]:
        """Return a reply that validates against `schema`; cancelling ends the request.

        Raises:
            ModelError: unreachable, refused, or nothing usable after the bounded repair turns.
        """
        ...


class GrammarModel(Protocol):
    """A model whose output can be held to a GBNF grammar; only the embedded one."""

    @property
    def name(self) -> str:
        """The model's file name without its ending."""
        ...

    async def generate(
        self, messages: list[Message], grammar: str, *, max_tokens: int = 512, follow: Follow | None = None
    ) -> "Generated":
        """Return text that the grammar accepts.

        Raises:
            ModelError: the weights cannot be loaded, or the reply was cut off at `max_tokens`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Generated:
    """Raw text of a grammar-bound reply."""

    text: str
    model: str
    usage: Usage = field(default_factory=Usage)


@lru_cache(maxsize=128)  # a schema is the same for every step of a role, and slow to write out
def _schema_size(schema: type[BaseModel]) -> int:
    return len(json.dumps(schema.model_json_schema()))


def estimated_tokens(messages: Sequence[Message], schema: type[BaseModel] | None = None) -> int:
    """Return a cautious estimate of what the turns, and the schema sent with them, will be counted as."""
    size = sum(len(message.text.encode()) for message in messages)
    size += _schema_size(schema) if schema is not None else 0
    images = sum(len(message.images) for message in messages)
    return size // _BYTES_A_TOKEN + images * _TOKENS_AN_IMAGE + 4 * len(messages)
