"""A provider's model as our `Model` port: ask, read, and ask again in bounded turns until the reply fits the schema.

Made by `session` (and `llm.fallback`) from a profile; called by agents and planners through `llm.port.Model`.

    ask ─▶ read ── fits ──▶ Reply
     ▲      ├─ not usable: one line that names the field; the broken text never enters the history ──┐
     │      └─ cut off: more room                                                                    │
     ├── mode refused: native → tool → prompted, remembered · picture refused: left out, remembered  │
     └───────────────────────────────── repair_turns at most ────────────────────────────────────────┘
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pydantic import BaseModel

from starloom.llm.compaction import compacted
from starloom.llm.faults import FaultKind, ModelFault, advice
from starloom.llm.fitting import Fitted, read_reply
from starloom.llm.metering import current_meter
from starloom.llm.openai_compatible import Answer
from starloom.llm.port import Message, Reply, Usage, estimated_tokens
from starloom.llm.prices import cost_of
from starloom.llm.replies import Unreadable
from starloom.llm.settings import PROVIDERS, ModelProfile, OutputMode

T = TypeVar("T", bound=BaseModel)

_PLAINER = {OutputMode.NATIVE: OutputMode.TOOL, OutputMode.TOOL: OutputMode.PROMPTED}
_MODE_WORDS = ("response_format", "json_schema", "schema", "tool", "function", "grammar", "structured")
_IMAGE_WORDS = ("image", "vision", "multimodal", "multi-modal", "content type")


class Asking(Protocol):
    """What this module needs of a connection; `openai_compatible.Connection` fits."""

    @property
    def profile(self) -> ModelProfile:
        """The profile that it speaks to."""
        ...

    @property
    def base_url(self) -> str:
        """Where it is."""
        ...

    async def ask(
        self, messages: Sequence[Message], schema: type[BaseModel], mode: OutputMode, *, max_tokens: int
    ) -> Answer:
        """Return the model's answer, or raise `ModelFault`."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


@dataclass(slots=True)
class _Progress:
    """What one `complete` has gathered so far."""

    turns: list[Message]
    max_tokens: int
    usage: Usage
    repairs: list[str]


class ProviderModel:
    """A `Model` behind a connection. Remembers which output mode works and whether pictures are taken."""

    def __init__(self, connection: Asking) -> None:
        self._connection = connection
        profile = connection.profile
        provider = PROVIDERS.get(profile.provider)
        is_auto = profile.output_mode is OutputMode.AUTO
        self._may_step_down = is_auto
        self._mode = (provider.output_mode if provider else OutputMode.NATIVE) if is_auto else profile.output_mode
        self._sees_images = profile.sees_images

    @property
    def name(self) -> str:
        """The model's name as its provider spells it."""
        return self._connection.profile.model

    @property
    def base_url(self) -> str:
        """The endpoint's address."""
        return self._connection.base_url

    @property
    def output_mode(self) -> OutputMode:
        """The mode in use now."""
        return self._mode

    async def complete(self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048) -> Reply[T]:
        """Return a reply that validates against `schema`.

        Raises:
            ModelFault: refused, unreachable, or nothing usable after the profile's repair turns.
        """
        room = self._connection.profile.context_tokens
        said = ""
        if room is not None:
            messages, said = compacted(messages, room - max_tokens)
        state = _Progress(list(messages), max_tokens, Usage(requests=0), [said] if said else [])
        try:
            return await self._in_turns(state, messages, schema)
        except ModelFault:
            if state.usage.requests:
                current_meter().wasted.append((self.name, state.usage))
            raise

    async def _in_turns(self, state: _Progress, messages: list[Message], schema: type[T]) -> Reply[T]:
        """Ask until a reply fits, in the profile's repair turns."""
        trouble = Unreadable("no reply")
        for _ in range(self._connection.profile.repair_turns + 1):
            answer = await self._ask(state, schema)
            cost = cost_of(self._connection.profile, self._connection.base_url, answer.usage)
            state.usage = _sum(state.usage, replace(answer.usage, cost=cost))
            outcome = read_reply(answer.text, schema, answer.finish)
            if isinstance(outcome, Fitted):
                return Reply(outcome.value, answer.model, state.usage, (*state.repairs, *outcome.repairs))
            trouble = outcome
            state.repairs.append("asked_again")
            if outcome.is_truncated and answer.finish == "length":
                state.max_tokens *= 2
            complaint = (
                f"Your last reply could not be used: {outcome.reason}. Answer again with exactly one JSON object."
            )
            state.turns = [*messages, Message("user", complaint)]
        kind = FaultKind.CUT_OFF if trouble.is_truncated else FaultKind.UNUSABLE_REPLY
        raise ModelFault(kind, advice(kind, self.name, self._connection.base_url, trouble.reason), model=self.name)

    async def close(self) -> None:
        """End the connection."""
        await self._connection.close()

    async def _ask(self, state: _Progress, schema: type[BaseModel]) -> Answer:
        """Ask once; step down to a plainer mode or leave pictures out when the endpoint refuses them."""
        while True:
            turns = state.turns
            if self._sees_images is False and any(turn.images for turn in turns):
                turns = [_without_images(turn) for turn in turns]
                state.repairs += ["images_left_out"] * ("images_left_out" not in state.repairs)
            meter = current_meter()
            meter.before(self.name, estimated_tokens(turns, schema) + state.max_tokens)
            try:
                answer = await self._connection.ask(turns, schema, self._mode, max_tokens=state.max_tokens)
                meter.after(answer.usage)
                return answer
            except ModelFault as fault:
                if fault.kind is not FaultKind.BAD_REQUEST:
                    raise
                said = fault.message.lower()
                if self._sees_images is None and any(turn.images for turn in turns) and _speaks_of(said, _IMAGE_WORDS):
                    self._sees_images = False
                elif self._may_step_down and self._mode in _PLAINER and _speaks_of(said, _MODE_WORDS):
                    self._mode = _PLAINER[self._mode]
                else:
                    raise


def _speaks_of(text: str, words: Sequence[str]) -> bool:
    said = text.partition("it said:")[2]
    return any(word in said for word in words)


def _without_images(turn: Message) -> Message:
    if not turn.images:
        return turn
    return replace(
        turn, text=f"{turn.text}\n[{len(turn.images)} picture(s) left out: this model takes none]", images=()
    )


def _sum(one: Usage, other: Usage) -> Usage:
    """Add two calls; a cost is known only when both are."""
    cost = other.cost if one.requests == 0 else None
    if one.cost is not None and other.cost is not None:
        cost = one.cost + other.cost
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.requests + other.requests,
        cost,
    )
