"""The journal port: append, then act; everything else is a fold over what was appended.

The adapters are `sqlite` (embedded) and `memory` (tests, rehearsals). Both pass `tests/journal/test_store_contract.py`.
Readers ask by sequence number, so a late reader catches up and a slow one never slows a writer.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import Event, Recorded


class Fenced(StoreError):
    """A newer owner has taken this run; whoever gets this must stop acting on it at once."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One line of the list of runs. `stop_reason` is None while the run has not ended."""

    run_id: RunId
    request: str
    started_at: datetime
    ended_at: datetime | None
    stop_reason: str | None
    last_seq: int


class Journal(Protocol):
    """Append-only events per run, in one gapless sequence each."""

    async def append(
        self, run_id: RunId, events: Sequence[Event], *, keys: Sequence[str | None] = (), epoch: int | None = None
    ) -> tuple[Recorded, ...]:
        """Commit events in order and return them with their numbers; when this returns they survive a kill.

        Args:
            run_id: the run; the first append creates it.
            events: appended together or not at all.
            keys: idempotency keys, one an event or none at all. An event whose key the run already holds is not
                appended again, and is left out of what is returned.
            epoch: the owner's number from `take`; refused when a newer owner exists. None: anyone may append
                (completions, edits, answers).

        Raises:
            Fenced: `epoch` is not the newest.
            StoreError: the store cannot write; nothing was appended.

        A caller that is cancelled while it waits does not know: the events may be appended all the same. Keys make it
        safe to append them again.
        """
        ...

    async def take(self, run_id: RunId) -> int:
        """Become the run's owner and return the new epoch; earlier owners are fenced from now on.

        May come before the first append; the run is listed once it has an event.
        """
        ...

    async def read(self, run_id: RunId, after: int = 0) -> tuple[Recorded, ...]:
        """Return the events with a sequence number above `after`, in order; empty for an unknown run."""
        ...

    async def keyed(self, prefix: str, run_id: RunId | None = None) -> tuple[tuple[str, Recorded], ...]:
        """Return the events whose idempotency key begins with this, with their keys, in order; None: of all runs."""
        ...

    def chunks(self, run_id: RunId, after: int = 0, size: int = 1_000) -> AsyncIterator[tuple[Recorded, ...]]:
        """Yield the events above `after` in order, at most `size` at a time: a fold of any length in bounded memory."""
        ...

    def follow(self, run_id: RunId, after: int = 0) -> AsyncIterator[Recorded]:
        """Yield events above `after`, then new ones as this process commits them; ends after `run_ended`.

        It ends once everything is read and the run has ended, so a run that was resumed after an end goes on.

        Raises:
            StoreError: the journal was closed before the run ended.
        """
        ...

    async def runs(self, limit: int = 50) -> tuple[RunRecord, ...]:
        """Return the newest runs first."""
        ...

    async def close(self) -> None:
        """Flush and let go of the files; idempotent."""
        ...
