"""A provider's model as our `Model` port: ask, read, and ask again in bounded turns until the reply fits the schema.

Made by `session` (and `llm.fallback`) from a profile; called by agents and planners through `llm.port.Model`.

    ask ─▶ read ── fits ──▶ Reply
     ▲      ├─ not usable: one line that names the field; the broken text never enters the history ──┐
     │      └─ cut off: more room                                                                    │
     ├── mode refused: native → tool → prompted, remembered · picture refused: left out, remembered  │
     ├── stream broken off: taken whole from now on                                                  │
     └───────────────────────────────── repair_turns at most ────────────────────────────────────────┘
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from pydantic import BaseModel

from starloom.llm.answers import Answer
from starloom.llm.compaction import compacted
from starloom.llm.faults import FaultKind, ModelFault, advice
from starloom.llm.fitting import Fitted, read_reply
from starloom.llm.metering import current_meter
from starloom.llm.port import Follow, Message, Progress, Reply, Usage, estimated_tokens, total_usage
from starloom.llm.prices import cost_of
from starloom.llm.replies import Unreadable
from starloom.llm.settings import PROVIDERS, ModelProfile, OutputMode

T = TypeVar("T", bound=BaseModel)

_PLAINER = {OutputMode.NATIVE: OutputMode.TOOL, OutputMode.TOOL: OutputMode.PROMPTED}
_STREAM_WORDS = ("stream",)
_WORKED_IN_VAIN = (FaultKind.TIMED_OUT, FaultKind.BROKEN_OFF, FaultKind.CONTENT_FILTER)
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
        self,
        messages: Sequence[Message],
        schema: type[BaseModel],
        mode: OutputMode,
        *,
        max_tokens: int,
        follow: Follow | None = None,
        is_streamed: bool = False,
    ) -> Answer:
        """Return the model's answer, or raise `ModelFault`; `follow` hears at least that the request was sent."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


@dataclass(slots=True)
class _Call:
    """What one `complete` has gathered so far; `used` has an entry for each request that used anything."""

    turns: list[Message]
    max_tokens: int
    repairs: list[str]
    follow: Follow | None
    used: list[Usage] = field(default_factory=list)


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
        self._streams = profile.stream

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

    async def complete(
        self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048, follow: Follow | None = None
    ) -> Reply[T]:
        """Return a reply that validates against `schema`.

        Raises:
            ModelFault: refused, unreachable, or nothing usable after the profile's repair turns.
        """
        room = self._connection.profile.context_tokens
        said = ""
        if room is not None:
            messages, said = compacted(messages, room - max_tokens)
        state = _Call(list(messages), max_tokens, [said] if said else [], follow)
        try:
            return await self._in_turns(state, messages, schema)
        except (ModelFault, asyncio.CancelledError):
            if state.used:
                current_meter().wasted.append((self.name, total_usage(state.used)))
            raise

    async def _in_turns(self, state: _Call, messages: list[Message], schema: type[T]) -> Reply[T]:
        """Ask until a reply fits, in the profile's repair turns."""
        trouble = Unreadable("no reply")
        for _ in range(self._connection.profile.repair_turns + 1):
            answer = await self._ask(state, schema)
            outcome = read_reply(answer.text, schema, answer.finish)
            if isinstance(outcome, Fitted):
                return Reply(outcome.value, answer.model, total_usage(state.used), (*state.repairs, *outcome.repairs))
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

    async def _ask(self, state: _Call, schema: type[BaseModel]) -> Answer:
        """Ask once; step down to what the endpoint takes when it refuses a mode, a picture or a stream."""
        while True:
            turns = state.turns
            if self._sees_images is False and any(turn.images for turn in turns):
                turns = [_without_images(turn) for turn in turns]
                state.repairs += ["images_left_out"] * ("images_left_out" not in state.repairs)
            sending = self._priced(Usage(estimated_tokens(turns, schema), is_estimated=True))
            current_meter().before(self.name, sending, state.max_tokens)
            try:
                return await self._request(state, turns, schema, sending)
            except ModelFault as fault:
                if not self._steps_down(fault, turns, is_followed=state.follow is not None):
                    raise

    async def _request(self, state: _Call, turns: list[Message], schema: type[BaseModel], sending: Usage) -> Answer:
        """Make one request and note what it used, also when it is cancelled or fails half-way."""
        sent: list[Progress] = []

        def heard(progress: Progress) -> None:
            sent.append(progress)
            if state.follow is not None:
                state.follow(progress)

        is_streamed = state.follow is not None and self._streams
        try:
            answer = await self._connection.ask(
                turns, schema, self._mode, max_tokens=state.max_tokens, follow=heard, is_streamed=is_streamed
            )
        except (ModelFault, asyncio.CancelledError) as ended:
            self._note(state, _used_in_vain(ended, sent, sending))
            raise
        self._note(state, answer.usage or replace(sending, output_tokens=len(answer.text) // 4))
        return answer

    def _note(self, state: _Call, usage: Usage | None) -> None:
        if usage is not None:
            state.used.append(self._priced(usage))
            current_meter().after(state.used[-1])

    def _priced(self, usage: Usage) -> Usage:
        return replace(usage, cost=cost_of(self._connection.profile, self._connection.base_url, usage))

    def _steps_down(self, fault: ModelFault, turns: list[Message], *, is_followed: bool) -> bool:
        """Return whether the fault is about something that can be left out, which it then is, for good."""
        said = fault.message.lower()
        if (
            is_followed
            and self._streams
            and (
                fault.kind is FaultKind.BROKEN_OFF
                or (fault.kind is FaultKind.BAD_REQUEST and _speaks_of(said, _STREAM_WORDS))
            )
        ):
            self._streams = False
        elif fault.kind is not FaultKind.BAD_REQUEST:
            return False
        elif self._sees_images is None and any(turn.images for turn in turns) and _speaks_of(said, _IMAGE_WORDS):
            self._sees_images = False
        elif self._may_step_down and self._mode in _PLAINER and _speaks_of(said, _MODE_WORDS):
            self._mode = _PLAINER[self._mode]
        else:
            return False
        return True


def _used_in_vain(ended: BaseException, sent: list[Progress], sending: Usage) -> Usage | None:
    """Return what a request without an answer used: as the provider says, else our guess; None when it was refused."""
    if isinstance(ended, ModelFault):
        if ended.usage is not None:
            return ended.usage
        has_begun = len(sent) > 1
        if ended.kind not in _WORKED_IN_VAIN and not has_begun:
            return None
    if not sent:
        return None
    last = sent[-1]
    return replace(sending, input_tokens=last.input_tokens or sending.input_tokens, output_tokens=last.output_tokens)


def _speaks_of(text: str, words: Sequence[str]) -> bool:
    said = text.partition("it said:")[2]
    return any(word in said for word in words)


def _without_images(turn: Message) -> Message:
    if not turn.images:
        return turn
    return replace(
        turn, text=f"{turn.text}\n[{len(turn.images)} picture(s) left out: this model takes none]", images=()
    )
