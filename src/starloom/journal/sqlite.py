"""The embedded journal: one SQLite file, one writer thread that batches commits, one reader thread.

Made by the composition root, used by whoever appends and reads. Write-ahead log with full sync: what `append` has
returned survives a kill and a power cut that the disk honours. Source: `Journal` in `store`, whose contract this keeps.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from starloom.clock import Clock
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import Event, Recorded
from starloom.journal.feed import Feed
from starloom.journal.ownership import Ownership, own
from starloom.journal.rows import NumberedRow, Row, microseconds, to_many_recorded, to_rows
from starloom.journal.sqlite_schema import SEQ_BITS, connect_reader, connect_writer, translated
from starloom.journal.sqlite_writer import Batch, Writer, to_run_record
from starloom.journal.store import Fenced, RunRecord

T = TypeVar("T")

_LAST_SEQ = (1 << SEQ_BITS) - 1
_AFTER_ALL = "\U0010ffff"  # a sign that no key holds
_RUN_COLUMNS = "run_id, request, started_at_us, ended_at_us, stop_reason, last_seq"


class SqliteJournal:
    """Events in one file. Belongs to the event loop that opened it; made by `open`, not by the constructor."""

    def __init__(
        self, path: Path, clock: Clock, reader: sqlite3.Connection, ownership: Ownership | None, feed: Feed
    ) -> None:
        self.path = path
        self._clock = clock
        self._reader = reader
        self._reading = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-reader")
        self._ownership = ownership
        self._feed = feed
        self._writer: Writer | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path, clock: Clock, *, read_only: bool = False) -> "SqliteJournal":
        """Open the journal at a path, made with its directory when missing, and own that directory.

        Args:
            path: the database file; the directory it is in is the data directory that one process owns.
            clock: gives the events their times.
            read_only: read beside a running owner: takes no ownership, changes nothing, refuses to append.

        Raises:
            StoreError: another process owns the directory; the file is damaged, newer, not ours, cannot be written, or
                (read-only) is not there.
        """
        if read_only:
            reader = await asyncio.to_thread(connect_reader, path)
            return cls(path, clock, reader, None, Feed())
        ownership = await asyncio.to_thread(own, path.parent)
        try:
            connection = await asyncio.to_thread(connect_writer, path, clock.now())
            reader = await asyncio.to_thread(connect_reader, path)
        except StoreError:
            ownership.release()
            raise
        feed = Feed()
        journal = cls(path, clock, reader, ownership, feed)
        journal._writer = Writer(connection, path, feed.publish)
        return journal

    async def append(
        self, run_id: RunId, events: Sequence[Event], *, keys: Sequence[str | None] = (), epoch: int | None = None
    ) -> tuple[Recorded, ...]:
        """Commit events in order and return them as a reader gets them; see `Journal.append`."""
        rows = to_rows(events, keys, self._clock.now())
        return await self.write(lambda batch: _append(batch, run_id, rows, epoch))

    async def take(self, run_id: RunId) -> int:
        """Become the run's owner and return the new epoch; see `Journal.take`."""
        at_us = microseconds(self._clock.now())
        return await self.write(lambda batch: _take(batch, run_id, at_us))

    async def read(self, run_id: RunId, after: int = 0) -> tuple[Recorded, ...]:
        """Return the events above `after`, in order; `chunks` is the form for long runs."""
        return tuple([recorded async for chunk in self.chunks(run_id, after) for recorded in chunk])

    async def keyed(self, prefix: str, run_id: RunId | None = None) -> tuple[tuple[str, Recorded], ...]:
        """Return the events whose key begins with this; see `Journal.keyed`."""
        return await self.query(lambda reader: _keyed(reader, prefix, run_id))

    async def chunks(self, run_id: RunId, after: int = 0, size: int = 1_000) -> AsyncIterator[tuple[Recorded, ...]]:
        """Yield the events above `after`, at most `size` at a time, each chunk one short read."""
        while chunk := await self.query(lambda reader, after=after: _recorded(reader, run_id, after, size)):  # type: ignore[misc]
            yield chunk
            after = chunk[-1].seq
            if len(chunk) < size:
                return

    async def rows(self, run_id: RunId, after: int, size: int) -> tuple[NumberedRow, ...]:
        """Return at most `size` rows above `after` as they are stored; for export."""
        return await self.query(lambda reader: _rows(reader, run_id, after, size))

    def follow(self, run_id: RunId, after: int = 0) -> AsyncIterator[Recorded]:
        """Yield events above `after`, then new ones as this process commits them; see `Journal.follow`.

        Raises:
            StoreError: the journal is read-only, so no commit of this process could wake the follower.
        """
        if self._writer is None:
            raise StoreError("A journal opened read-only cannot be followed; ask the hub that owns it.")
        return self._feed.follow(run_id, after, self.chunks, self._has_ended)

    async def runs(self, limit: int = 50) -> tuple[RunRecord, ...]:
        """Return the newest runs first; reads one row a run."""
        return await self.query(lambda reader: _runs(reader, limit))

    async def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run's line of the list; None for an unknown run."""
        return await self.query(lambda reader: _run(reader, run_id))

    async def close(self) -> None:
        """Commit what is waiting, end the followers and let the files go; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._feed.close()
        await asyncio.to_thread(self._reading.shutdown)
        self._reader.close()
        if self._writer is not None:
            await self._writer.close()
        if self._ownership is not None:
            self._ownership.release()

    async def write(self, work: Callable[[Batch], T]) -> T:
        """Run work in the writer's next transaction; for this room's own retention and import.

        Raises:
            StoreError: the journal is closed, read-only or cannot be written.
        """
        if self._writer is None:
            raise StoreError(f"The journal {str(self.path)!r} was opened read-only.", path=str(self.path))
        return await self._writer.do(work)

    async def query(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in the reader thread; for this room's own retention.

        Raises:
            StoreError: the journal is closed or cannot be read.
        """
        if self._closed:
            raise StoreError(f"The journal {str(self.path)!r} is closed.", path=str(self.path))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, question, self._reader)
        except sqlite3.Error as error:
            raise translated(error, "read the journal", self.path) from error

    async def _has_ended(self, run_id: RunId) -> bool:
        """Return whether the run's last word is its end."""
        record = await self.run(run_id)
        return record is not None and record.stop_reason is not None


def _append(batch: Batch, run_id: RunId, rows: Sequence[Row], epoch: int | None) -> tuple[Recorded, ...]:
    """Add rows to a run, in the writer thread."""
    state = batch.find(run_id)
    if epoch is not None and (state is None or state.epoch != epoch):
        raise Fenced(f"Run {run_id!r} has a newer owner than epoch {epoch}; this one must stop.", run_id=run_id)
    if not rows:
        return ()
    if state is None:
        state = batch.create(run_id, rows[0].at_us)
    inserted = [recorded for row in rows if (recorded := batch.insert(state, row)) is not None]
    committed = tuple(inserted)
    batch.published.append((run_id, committed))
    return committed


def _take(batch: Batch, run_id: RunId, at_us: int) -> int:
    """Count the run's epoch up, in the writer thread."""
    state = batch.create(run_id, at_us)
    state.epoch += 1
    return state.epoch


def _recorded(reader: sqlite3.Connection, run_id: RunId, after: int, size: int) -> tuple[Recorded, ...]:
    """Read one chunk of events, in the reader thread."""
    bounds = _bounds(reader, run_id, after)
    if bounds is None:
        return ()
    rows = reader.execute(
        f"SELECT position & {_LAST_SEQ}, at_us, kind, body FROM events "  # noqa: S608 (a constant)
        "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?",
        (*bounds, size),
    ).fetchall()
    return to_many_recorded(run_id, rows)


def _keyed(reader: sqlite3.Connection, prefix: str, run_id: RunId | None) -> tuple[tuple[str, Recorded], ...]:
    """Look keys up in their index, run by run, in the reader thread."""
    rows = reader.execute(
        "SELECT key, run_id, position & ?, at_us, kind, body FROM runs "
        "JOIN events ON position >> 32 = runs.number AND key >= ? AND key < ? "
        "WHERE NOT hidden AND (? IS NULL OR run_id = ?) ORDER BY position",
        (_LAST_SEQ, prefix, prefix + _AFTER_ALL, run_id, run_id),
    ).fetchall()
    return tuple((key, to_many_recorded(RunId(of), [tuple(row)])[0]) for key, of, *row in rows)


def _rows(reader: sqlite3.Connection, run_id: RunId, after: int, size: int) -> tuple[NumberedRow, ...]:
    """Read one chunk of rows, in the reader thread."""
    bounds = _bounds(reader, run_id, after)
    if bounds is None:
        return ()
    rows = reader.execute(
        f"SELECT position & {_LAST_SEQ}, kind, body, key, at_us, version FROM events "  # noqa: S608 (a constant)
        "WHERE position > ? AND position <= ? ORDER BY position LIMIT ?",
        (*bounds, size),
    )
    return tuple(NumberedRow(row[0], Row(*row[1:])) for row in rows)


def _bounds(reader: sqlite3.Connection, run_id: RunId, after: int) -> tuple[int, int] | None:
    """Return the positions between which the run's events above `after` lie; None for an unknown run."""
    found = reader.execute("SELECT number FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        return None
    start = found[0] << SEQ_BITS
    return start + after, start + _LAST_SEQ


def _runs(reader: sqlite3.Connection, limit: int) -> tuple[RunRecord, ...]:
    """Read the list of runs, in the reader thread."""
    rows = reader.execute(
        f"SELECT {_RUN_COLUMNS} FROM runs WHERE last_seq > 0 AND NOT hidden ORDER BY number DESC LIMIT ?",  # noqa: S608 (constants)
        (limit,),
    )
    return tuple(to_run_record(*row) for row in rows)


def _run(reader: sqlite3.Connection, run_id: RunId) -> RunRecord | None:
    """Read one run's line, in the reader thread."""
    row = reader.execute(
        f"SELECT {_RUN_COLUMNS} FROM runs WHERE run_id = ? AND last_seq > 0 AND NOT hidden",  # noqa: S608 (constants)
        (run_id,),
    ).fetchone()
    return None if row is None else to_run_record(*row)
