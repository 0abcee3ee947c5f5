"""The model port: what agents ask of a language model, whatever provider stands behind it.

Adapters: `openai_compatible` (over pydantic-ai), `embedded` (a GGUF file in this process). Agents never import a
provider's library. Chosen by role in `llm.roles`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

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
    """What a call used. `cost` in US dollars; None: unknown, which is never zero."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 1
    cost: float | None = None


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

    async def complete(self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048) -> Reply[T]:
        """Return a reply that validates against `schema`.

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

    async def generate(self, messages: list[Message], grammar: str, *, max_tokens: int = 512) -> "Generated":
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


def estimated_tokens(messages: Sequence[Message], schema: type[BaseModel] | None = None) -> int:
    """Return a cautious estimate of what the turns, and the schema sent with them, will be counted as."""
    size = sum(len(message.text.encode()) for message in messages)
    size += len(json.dumps(schema.model_json_schema())) if schema is not None else 0
    images = sum(len(message.images) for message in messages)
    return size // _BYTES_A_TOKEN + images * _TOKENS_AN_IMAGE + 4 * len(messages)
