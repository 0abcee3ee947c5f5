"""`Session`: one conversation — asks for the next request until there is none, and always ends with its finalisers.

It knows neither agents nor devices: a request source gives requests, a round maker gives rounds. Modes differ only in
these two arguments. Called by the composition root.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from starloom.agents.status import StopReason
from starloom.processing.context import Context
from starloom.session.round import RoundOutcome

_LOG = logging.getLogger(__name__)


class RequestSource(Protocol):
    """Where requests come from: a person, a plan file, a list."""

    async def next_request(self, last: RoundOutcome | None) -> str | None:
        """Return the next request, None when there is none. `last` is how the one before it ended."""
        ...


class RunnableRound(Protocol):
    """A round that can be run; `round.Round` is the one."""

    async def run(self) -> RoundOutcome:
        """Run the request to its end."""
        ...


RoundMaker: TypeAlias = Callable[[str, int, Context], RunnableRound]
"""(request, its number from 0, the session's context) → the round that will do it."""


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """How a session ended. `finaliser_errors` has one line for each finaliser that failed."""

    stop_reason: StopReason
    rounds: tuple[RoundOutcome, ...] = ()
    finaliser_errors: tuple[str, ...] = ()


Finaliser: TypeAlias = Callable[[SessionOutcome], Awaitable[None]]
"""Runs when a session has ended, whatever the end: snapshot, evaluation, report, cost."""

_ENDS_SESSION = (StopReason.ERROR, StopReason.CANCELLED)


class Session:
    """Runs rounds one after the other over one shared context."""

    def __init__(
        self,
        requests: RequestSource,
        make_round: RoundMaker,
        *,
        context: Context | None = None,
        finalisers: Sequence[Finaliser] = (),
        max_rounds: int | None = 20,
    ) -> None:
        self.context = context or Context()
        self._requests = requests
        self._make_round = make_round
        self._finalisers = tuple(finalisers)
        self._max_rounds = max_rounds
        self._rounds: list[RoundOutcome] = []

    async def run(self) -> SessionOutcome:
        """Run to the end, then the finalisers, and return how it ended.

        When cancelled, the finalisers run with the stop reason `cancelled` before `CancelledError` goes out. An error
        of the request source ends the session with `error` and goes out too.
        """
        reason = StopReason.ERROR
        try:
            reason = await self._run_rounds()
        except asyncio.CancelledError:
            reason = StopReason.CANCELLED
            raise
        finally:
            errors = await self._finalise(SessionOutcome(reason, tuple(self._rounds)))
        return SessionOutcome(reason, tuple(self._rounds), errors)

    async def _run_rounds(self) -> StopReason:
        last: RoundOutcome | None = None
        while self._max_rounds is None or len(self._rounds) < self._max_rounds:
            request = await self._requests.next_request(last)
            if request is None:
                return StopReason.FINISHED if last is None else last.stop_reason
            last = await self._make_round(request, len(self._rounds), self.context).run()
            self._rounds.append(last)
            if last.stop_reason in _ENDS_SESSION:
                return last.stop_reason
        return StopReason.ROUND_LIMIT

    async def _finalise(self, outcome: SessionOutcome) -> tuple[str, ...]:
        errors = []
        for finaliser in self._finalisers:
            try:
                await finaliser(outcome)
            except Exception as error:  # noqa: BLE001 - border: a finaliser may be a plug-in's; the others still run
                _LOG.warning("A finaliser failed: %s", error, exc_info=error)
                errors.append(f"{getattr(finaliser, '__name__', type(finaliser).__name__)}: {error}")
        return tuple(errors)
