"""The one thread that writes a SQLite journal: takes whatever work is waiting, commits it together, then answers.

While one commit is on its way to the disk the next batch gathers, so the number of commits follows the disk, not the
number of callers. Called by `sqlite` only.

    event loop            writer thread
    do(work) ──queue──▶   BEGIN · work · work · work · COMMIT
    await     ◀─────────  every caller's answer, in one call back to the loop
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import Recorded
from starloom.journal.rows import Row, instant, microseconds, summarised, to_recorded
from starloom.journal.sqlite_schema import SEQ_BITS, translated
from starloom.journal.store import Fenced, RunRecord

T = TypeVar("T")

_LARGEST_BATCH = 1_000  # pieces of work in one commit

_INSERT = """INSERT INTO events (position, version, at_us, kind, key, body) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (position >> 32, key) WHERE key IS NOT NULL DO NOTHING"""


@dataclass(slots=True)
class RunState:
    """A run's row while a batch works on it."""

    number: int
    epoch: int
    record: RunRecord


@dataclass(slots=True)
class Batch:
    """One transaction: what the work in it may use. Lives in the writer thread."""

    connection: sqlite3.Connection
    published: list[tuple[RunId, tuple[Recorded, ...]]] = field(default_factory=list)
    _runs: dict[RunId, RunState] = field(default_factory=dict)

    def find(self, run_id: RunId) -> RunState | None:
        """Return the run's state, with what this batch has changed; None for an unknown run."""
        state = self._runs.get(run_id)
        if state is None:
            row = self.connection.execute(
                "SELECT number, epoch, request, started_at_us, ended_at_us, stop_reason, last_seq FROM runs "
                "WHERE run_id = ?",
                (run_id,),
            ).fetchone()
            if row is None:
                return None
            state = RunState(row[0], row[1], to_run_record(run_id, *row[2:]))
            self._runs[run_id] = state
        return state

    def create(self, run_id: RunId, at_us: int, *, hidden: bool = False) -> RunState:
        """Return the run's state, new when unknown; a hidden run is not listed."""
        state = self.find(run_id)
        if state is None:
            number = self.connection.execute(
                "INSERT INTO runs (run_id, request, started_at_us, last_seq, epoch, hidden) VALUES (?, '', ?, 0, 0, ?)",
                (run_id, at_us, hidden),
            ).lastrowid
            state = RunState(number or 0, 0, RunRecord(run_id, "", instant(at_us), None, None, 0))
            self._runs[run_id] = state
        return state

    def insert(self, state: RunState, row: Row) -> Recorded | None:
        """Add one event to a run; None when the run already holds its key."""
        run_id, seq = state.record.run_id, state.record.last_seq + 1
        position = (state.number << SEQ_BITS) | seq
        values = (position, row.version, row.at_us, row.kind, row.key, row.body)
        if not self.connection.execute(_INSERT, values).rowcount:
            return None
        recorded = to_recorded(run_id, seq, row)
        state.record = summarised(state.record, recorded)
        return recorded

    def flush(self) -> None:
        """Write the changed runs' rows; the last thing before the commit."""
        self.connection.executemany(
            "UPDATE runs SET request = ?, started_at_us = ?, ended_at_us = ?, stop_reason = ?, last_seq = ?, epoch = ? "
            "WHERE number = ?",
            [
                (
                    state.record.request,
                    microseconds(state.record.started_at),
                    None if state.record.ended_at is None else microseconds(state.record.ended_at),
                    state.record.stop_reason,
                    state.record.last_seq,
                    state.epoch,
                    state.number,
                )
                for state in self._runs.values()
            ],
        )

    def forget(self, run_id: RunId) -> None:
        """Drop what the batch knows of a run whose row the work has changed itself."""
        self._runs.pop(run_id, None)


def to_run_record(
    run_id: RunId, request: str, started_at_us: int, ended_at_us: int | None, stop_reason: str | None, last_seq: int
) -> RunRecord:
    """Return a row of the runs table as readers get it."""
    ended_at = None if ended_at_us is None else instant(ended_at_us)
    return RunRecord(run_id, request, instant(started_at_us), ended_at, stop_reason, last_seq)


Work = Callable[[Batch], Any]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Work and who waits for it."""

    work: Work
    answer: "asyncio.Future[Any]"


@dataclass(frozen=True, slots=True)
class _Answer:
    """How one piece of work ended."""

    asked: _Asked
    result: Any = None
    error: Exception | None = None


class Writer:
    """Owns the writing connection. `do` belongs to the loop that made the writer."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, publish: Callable[[RunId, tuple[Recorded, ...]], None]
    ) -> None:
        self._connection = connection
        self._path = path
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._closed = False
        # A daemon: a process that forgets to close must still be able to end; what was answered is on disk.
        self._thread = threading.Thread(target=self._write, name="journal-writer", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[Batch], T]) -> T:
        """Run the work in a transaction and return its result once that is committed.

        The work may be run a second time, in a transaction of its own, when the batch it was in could not be committed.

        Raises:
            StoreError: the journal is closed or cannot be written; nothing of this work was committed.
        """
        if self._closed:
            raise StoreError(f"The journal {str(self._path)!r} is closed.", path=str(self._path))
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Asked(work, answer))
        return await answer

    async def close(self) -> None:
        """Commit what is waiting, let the file go; idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _write(self) -> None:
        """Run in the thread until `close`."""
        goes_on = True
        while goes_on:
            asked, goes_on = self._gather()
            published: list[tuple[RunId, tuple[Recorded, ...]]] = []
            answers = self._commit(asked, published)
            # Without its loop nobody waits any more; the events are committed, which is what counts.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._settle, answers, published)
        self._connection.close()

    def _gather(self) -> tuple[list[_Asked], bool]:
        """Return all work that is waiting, at least one piece, and whether more may come."""
        first = self._queue.get()
        if first is None:
            return [], False
        gathered = [first]
        while len(gathered) < _LARGEST_BATCH:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                return gathered, False
            gathered.append(following)
        return gathered, True

    def _commit(self, asked: list[_Asked], published: list[tuple[RunId, tuple[Recorded, ...]]]) -> list[_Answer]:
        """Commit the work together; when that fails, each piece alone, so that one cannot fail the others."""
        if not asked:
            return []
        batch = Batch(self._connection)
        answers: list[_Answer] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for one in asked:
                try:
                    answers.append(_Answer(one, one.work(batch)))
                except Fenced as error:  # raised before anything is written
                    answers.append(_Answer(one, error=error))
            batch.flush()
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 (the thread's border: every failure goes to who waits for it)
            self._roll_back()
            if len(asked) > 1:
                return [answer for one in asked for answer in self._commit([one], published)]
            if isinstance(error, sqlite3.Error):
                error = translated(error, "write to the journal", self._path)
            return [_Answer(asked[0], error=error)]
        published.extend(batch.published)
        return answers

    def _roll_back(self) -> None:
        """Undo the transaction; SQLite has already done so after some errors."""
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # the error that led here is the one to report
                self._connection.execute("ROLLBACK")

    def _settle(self, answers: list[_Answer], published: list[tuple[RunId, tuple[Recorded, ...]]]) -> None:
        """Answer the callers and wake the followers; runs in the loop."""
        for run_id, committed in published:
            self._publish(run_id, committed)
        for answer in answers:
            if answer.asked.answer.done():  # the caller was cancelled
                continue
            if answer.error is None:
                answer.asked.answer.set_result(answer.result)
            else:
                answer.asked.answer.set_exception(answer.error)
