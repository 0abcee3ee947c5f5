"""A journal that forgets when the process ends: for tests and rehearsals; same contract as `sqlite`.

It keeps the stored form, not the events it was given, so what a test reads back has gone through the same codec.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from starloom.clock import Clock
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import Event, Recorded
from starloom.journal.feed import Feed
from starloom.journal.rows import NumberedRow, Row, summarised, to_many_recorded, to_recorded, to_rows
from starloom.journal.store import Fenced, RunRecord


@dataclass(slots=True)
class _Run:
    """All that is kept of one run."""

    record: RunRecord
    rows: list[Row] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)  # key → seq
    epoch: int = 0


class MemoryJournal:
    """Events in lists; belongs to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._feed = Feed()
        self._runs: dict[RunId, _Run] = {}
        self._closed = False

    async def append(
        self, run_id: RunId, events: Sequence[Event], *, keys: Sequence[str | None] = (), epoch: int | None = None
    ) -> tuple[Recorded, ...]:
        """Append events in order and return them with their numbers; see `Journal.append`."""
        self._check_open()
        rows = to_rows(events, keys, self._clock.now())
        if epoch is not None and (run_id not in self._runs or self._runs[run_id].epoch != epoch):
            raise Fenced(f"Run {run_id!r} has a newer owner than epoch {epoch}; this one must stop.", run_id=run_id)
        if not rows:
            return ()
        run = self._run(run_id)
        committed = []
        for row in rows:
            if row.key is not None and row.key in run.keys:
                continue
            run.rows.append(row)
            if row.key is not None:
                run.keys[row.key] = len(run.rows)
            recorded = to_recorded(run_id, len(run.rows), row)
            run.record = summarised(run.record, recorded)
            committed.append(recorded)
        self._feed.publish(run_id, committed)
        return tuple(committed)

    async def take(self, run_id: RunId) -> int:
        """Become the run's owner and return the new epoch; see `Journal.take`."""
        self._check_open()
        run = self._run(run_id)
        run.epoch += 1
        return run.epoch

    async def read(self, run_id: RunId, after: int = 0) -> tuple[Recorded, ...]:
        """Return the events above `after`, in order."""
        return tuple([recorded async for chunk in self.chunks(run_id, after) for recorded in chunk])

    async def keyed(self, prefix: str, run_id: RunId | None = None) -> tuple[tuple[str, Recorded], ...]:
        """Return the events whose key begins with this; see `Journal.keyed`."""
        self._check_open()
        chosen = self._runs if run_id is None else {run_id: self._runs[run_id]} if run_id in self._runs else {}
        return tuple(
            (key, to_recorded(of, seq, run.rows[seq - 1]))
            for of, run in chosen.items()
            for key, seq in run.keys.items()
            if key.startswith(prefix)
        )

    async def chunks(self, run_id: RunId, after: int = 0, size: int = 1_000) -> AsyncIterator[tuple[Recorded, ...]]:
        """Yield the events above `after`, at most `size` at a time."""
        while rows := await self.rows(run_id, after, size):
            yield to_many_recorded(run_id, [(item.seq, item.row.at_us, item.row.kind, item.row.body) for item in rows])
            after = rows[-1].seq

    async def rows(self, run_id: RunId, after: int, size: int) -> tuple[NumberedRow, ...]:
        """Return at most `size` rows above `after` as they are stored."""
        self._check_open()
        run = self._runs.get(run_id)
        stored = run.rows[after : after + size] if run else []
        return tuple(NumberedRow(after + offset, row) for offset, row in enumerate(stored, start=1))

    def follow(self, run_id: RunId, after: int = 0) -> AsyncIterator[Recorded]:
        """Yield events above `after`, then new ones; see `Journal.follow`."""
        return self._feed.follow(run_id, after, self.chunks, self._has_ended)

    async def runs(self, limit: int = 50) -> tuple[RunRecord, ...]:
        """Return the newest runs first."""
        self._check_open()
        listed = [run.record for run in self._runs.values() if run.rows]
        return tuple(reversed(listed))[:limit]

    async def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run's line of the list; None for an unknown run."""
        self._check_open()
        run = self._runs.get(run_id)
        return run.record if run and run.rows else None

    async def close(self) -> None:
        """End the followers; idempotent."""
        self._closed = True
        self._feed.close()

    def _run(self, run_id: RunId) -> _Run:
        """Return the run, new when unknown."""
        if run_id not in self._runs:
            self._runs[run_id] = _Run(RunRecord(run_id, "", self._clock.now(), None, None, 0))
        return self._runs[run_id]

    async def _has_ended(self, run_id: RunId) -> bool:
        """Return whether the run's last word is its end."""
        run = self._runs.get(run_id)
        return run is not None and run.record.stop_reason is not None

    def _check_open(self) -> None:
        """Refuse work after `close`."""
        if self._closed:
            raise StoreError("The journal is closed.")
