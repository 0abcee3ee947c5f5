"""The model port: what agents ask of a language model, whatever provider stands behind it.

Adapters: `openai_compatible` (over pydantic-ai), `embedded` (a GGUF file in this process). Agents never import a
provider's library. Chosen by role in `llm.roles`.
"""

from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)


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
