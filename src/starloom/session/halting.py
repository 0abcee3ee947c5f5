"""Runs that stand still because the journal could not be written: never ended for it, and told to whoever waits.

Nothing that was not committed has been acted on, so such a run is as whole as after a kill: once the disk has space
again it is resumed from the journal. Kept by the galaxy; read by the views that follow a run.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starloom.errors import DeviceError, ModelError, StarloomError, StoreError
from starloom.ids import RunId
from starloom.journal.events import Recorded
from starloom.llm.faults import FaultKind, ModelFault

log = logging.getLogger(__name__)


class Halts:
    """The runs of one hub that stand still, by the error that stopped them."""

    def __init__(self) -> None:
        self._errors: dict[RunId, StoreError] = {}

    def note(self, run_id: RunId, error: StoreError) -> None:
        """Keep why a run stands still."""
        message = f"Run {run_id} stands still, nothing is lost: {error.message} Then go on: starloom resume {run_id}"
        log.error("%s", message)
        self._errors[run_id] = StoreError(message, run_id=run_id)

    def forget(self, run_id: RunId) -> None:
        """The run goes on."""
        self._errors.pop(run_id, None)

    def of(self, run_id: RunId) -> StoreError | None:
        """Return why a run stands still; None: it does not."""
        return self._errors.get(run_id)


async def until_halted(
    stream: AsyncIterator[Recorded], over: Callable[[], Awaitable[StoreError | None]]
) -> AsyncIterator[Recorded]:
    """Yield a run's events as they come.

    Args:
        stream: the events.
        over: returns when the run is over in this hub, with the error when it stands still.

    Raises:
        StoreError: the run stands still; no event will come.
    """
    halted = asyncio.ensure_future(over())
    event: asyncio.Future[Recorded | None] | None = None
    try:
        while True:
            event = event or asyncio.ensure_future(_next(stream))
            waiting: set[asyncio.Future[Any]] = {event} if halted.done() else {event, halted}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if event.done():
                recorded, event = event.result(), None
                if recorded is None:
                    return
                yield recorded
            elif (error := halted.result()) is not None:
                raise error
    finally:
        halted.cancel()
        if event is not None:
            event.cancel()
            await asyncio.wait({event})


def stop_reason_of(error: StarloomError) -> str:
    """Return the stop reason of a run that an error ended."""
    if isinstance(error, ModelFault) and error.kind is FaultKind.OUT_OF_BUDGET:
        return error.kind.value
    return "failed" if isinstance(error, ModelError | DeviceError) else "error"


async def _next(stream: AsyncIterator[Recorded]) -> Recorded | None:
    return await anext(stream, None)
