"""Follows a reply while it is written, and ends the request at once when it is stuck or nobody waits any more.

Called by `openai_compatible.Connection` when someone follows. Pieces are counted here and never read: only the whole
response goes on to the reader of replies.

    sent ──first piece──▶ pieces … ──end with a reason──▶ the whole response
      │ first_chunk_s       │ chunk_gap_s   │ timeout_s for all of it
      └────────▶ StuckError ◀───────────────┘              end without a reason ──▶ BrokenOffError
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starloom.llm.port import Follow, Progress

if TYPE_CHECKING:
    from httpx2 import Response
    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.models import StreamedResponse

_CHARACTERS_A_TOKEN = 4
_RESPONSES: "ContextVar[list[Response] | None]" = ContextVar("_RESPONSES", default=None)


class StuckError(Exception):
    """Nothing came in time; the text says what was waited for."""


class BrokenOffError(Exception):
    """The stream ended before the reply did."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the first piece, from piece to piece, and for the whole reply."""

    first_s: float
    gap_s: float
    whole_s: float


class Following:
    """Counts the pieces of one reply and tells of them; `progress` is what has come so far."""

    def __init__(self, model: str, follow: Follow | None) -> None:
        self.progress = Progress(model)
        self._follow = follow
        self._characters = 0

    def sent(self) -> None:
        """Tell that the request is on its way."""
        self._tell()

    async def whole(self, opening: Any, patience: Patience) -> "ModelResponse":  # noqa: ANN401 - a context of the library
        """Return the response when it is whole.

        Args:
            opening: the library's context manager that sends the request and gives the stream.
            patience: the limits; a limit that is reached ends the request.

        Raises:
            StuckError: a limit was reached.
            BrokenOffError: the stream ended without saying that the reply has.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + patience.whole_s
        waited = f"no first word within {patience.first_s:g} s"
        try:
            async with (
                asyncio.timeout_at(min(end, clock() + patience.first_s)) as limit,
                _closed_early(opening) as stream,
            ):
                async for event in stream:
                    soon = clock() + patience.gap_s
                    waited = f"silence for {patience.gap_s:g} s" if soon < end else f"no end in {patience.whole_s:g} s"
                    limit.reschedule(min(end, soon))
                    self._heard(event, stream)
        except TimeoutError as error:
            raise StuckError(waited) from error
        response: ModelResponse = stream.get()
        if response.finish_reason is None:
            raise BrokenOffError
        return response

    def _heard(self, event: "ModelResponseStreamEvent", stream: "StreamedResponse") -> None:
        text, is_thinking = _piece(event)
        self._characters += len(text)
        written = -(-self._characters // _CHARACTERS_A_TOKEN)  # rounded up
        counted = stream.usage
        self.progress = Progress(
            self.progress.model, max(written, counted.output_tokens), counted.input_tokens or None, is_thinking
        )
        self._tell()

    def _tell(self) -> None:
        if self._follow is not None:
            self._follow(self.progress)


async def note_response(response: "Response") -> None:
    """Remember an HTTP response of the request under way; a hook for the connection's HTTP client."""
    responses = _RESPONSES.get()
    if responses is not None:
        responses.append(response)


@asynccontextmanager
async def _closed_early(opening: Any) -> "AsyncIterator[StreamedResponse]":  # noqa: ANN401 - as above
    """Have the stream for the block; when it is left by an exception, the connection is closed.

    The libraries close it themselves, but for Google's, which leaves that to the collector of garbage.
    """
    responses: list[Response] = []
    token = _RESPONSES.set(responses)
    try:
        async with opening as stream:
            try:
                yield stream
            except BaseException:
                await stream.cancel()
                raise
    finally:
        _RESPONSES.reset(token)
        for response in responses:
            await response.aclose()


def _piece(event: "ModelResponseStreamEvent") -> tuple[str, bool]:
    """Return the text that an event brings, and whether it is the model's thinking."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent

    match event:
        case PartStartEvent(part=part):
            text = getattr(part, "content", None) or getattr(part, "args", None)
            return (text if isinstance(text, str) else str(text or "")), part.part_kind == "thinking"
        case PartDeltaEvent(delta=delta):
            text = getattr(delta, "content_delta", None) or getattr(delta, "args_delta", None)
            return (text if isinstance(text, str) else str(text or "")), delta.part_delta_kind == "thinking"
        case _:
            return "", False
