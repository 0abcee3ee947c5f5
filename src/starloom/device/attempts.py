"""The device's own record of attempts and its outbox of results: why nothing is run twice.

A hub that restarts, a link that drops and a bus that repeats itself all ask again for an attempt by the same id; only
the device knows whether it acted. A start is flushed to disk before `begin` says to act, so that after a power cut no
attempt that acted is unknown. A result is in the file before `finish` returns, so that a kill cannot undo it; the next
start's flush takes it along, and until then a power cut may turn it into `Interrupted`, which a person is asked about.
Called by the device process, which `acknowledge`s only when the hub says that it has committed the result.

    unknown ──begin──▶ started ──finish──▶ finished ──acknowledge──▶ settled
                          │ the process died                            ▲
                          └──────────────▶ interrupted ──acknowledge────┘

Standard library only: a device starts without a model, MCP or web library. Source: engine.md 8 and 10.
"""

import asyncio
import json
import logging
import secrets
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from starloom.durable import make_folder
from starloom.errors import Bug, StoreError
from starloom.ids import AttemptId

logger = logging.getLogger(__name__)

Json: TypeAlias = Any  # a JSON value
T = TypeVar("T")

_SCHEMA_VERSION = 1
_INSTANCE = "CREATE TABLE IF NOT EXISTS instance (name TEXT NOT NULL)"

_TABLE = """CREATE TABLE IF NOT EXISTS attempts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    attempt_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('started', 'finished', 'interrupted')),
    result TEXT,
    acknowledged INTEGER NOT NULL DEFAULT 0
)"""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nobody has begun this attempt: act. It is now recorded as started."""


@dataclass(frozen=True, slots=True)
class Attached:
    """This process has begun the attempt already: wait for its result, do not act.

    When nobody in the process works on it (the caller of that `begin` was cancelled), it counts as interrupted.
    """


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt was carried out: answer with its result, do not act."""

    result: Json


@dataclass(frozen=True, slots=True)
class Interrupted:
    """An earlier process began the attempt and died: its effect may have happened. Report it, do not act."""


Begun: TypeAlias = Fresh | Attached | Finished | Interrupted


@dataclass(frozen=True, slots=True)
class Unreported:
    """An ended attempt that the hub has not acknowledged."""

    attempt_id: AttemptId
    ended: Finished | Interrupted


@dataclass(frozen=True, slots=True)
class _Asked:
    """Something to do with the file, and where its answer goes."""

    work: Callable[[], Any]
    answer: Future[Any]


class AttemptJournal:
    """Attempts in one file that one process owns. Made by `open`.

    One thread writes, and what waits for it shares a commit: starts also a flush. What needs none goes before them.

    Attributes:
        instance: the file's own name; two processes that say it at the same time are impossible.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.instance: str = connection.execute("SELECT name FROM instance").fetchone()[0]
        self._connection = connection
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="attempt-journal")
        self._starts: deque[_Asked] = deque()
        self._others: deque[_Asked] = deque()
        self._closed = False
        self._unsure = False  # a flush failed: what it should have kept may be missing from the log, and all behind it

    @classmethod
    async def open(cls, path: Path, *, keep: int = 10_000) -> "AttemptJournal":
        """Open the file, made with its directory when missing; attempts an earlier process left are `Interrupted`.

        Args:
            path: the file; each device process needs its own.
            keep: how many of the newest attempts are remembered after they are settled, so that a late repeat of one
                is still refused; unsettled ones are always kept.

        Raises:
            StoreError: another process uses it, or it is damaged, newer or cannot be written.
        """
        connection = await asyncio.to_thread(_opened, path, keep)
        return cls(path, connection)

    async def begin(self, attempt_id: AttemptId) -> Begun:
        """Say what to do about an attempt; on `Fresh` its start is on disk. Repeating the call never gives `Fresh`."""
        work = partial(self._begin, attempt_id)
        return await self._do("record the start of an attempt in", work, self._starts)

    async def finish(self, attempt_id: AttemptId, result: Json) -> None:
        """Put the attempt's result into the file and so into the outbox; a second result for it changes nothing.

        It survives the process at once, and a power cut when the next start has been flushed or the system has written
        it by itself; lost, the attempt is `Interrupted`.

        Raises:
            Bug: the attempt was never begun.
            StoreError: it cannot be written; the result is not safe.
        """
        try:
            text = json.dumps(result, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"The result of attempt {attempt_id!r} is not JSON: {error}.") from error
        work = partial(_finish, self._connection, attempt_id, text)
        await self._do("record the result of an attempt in", work, self._others)

    def acknowledge(self, attempt_id: AttemptId) -> None:
        """Take an ended attempt out of the outbox: the hub has committed it. Idempotent; unknown ids are ignored.

        The calls of an attempt's agent, `<attempt>/<call>`, are settled with it. Nobody waits until it is written; when
        it never is, a result stays in the outbox.
        """
        if not self._closed:
            answer = self._enqueue(partial(_settle, self._connection, attempt_id), self._others)
            answer.add_done_callback(partial(_complain, self.path))

    async def unacknowledged(self) -> tuple[Unreported, ...]:
        """Return the outbox in the order the attempts began; to be sent after every reconnect."""
        return await self._do("read", partial(_unacknowledged, self._connection), self._others)

    async def close(self) -> None:
        """Let the file go; idempotent. An attempt that is still running will be `Interrupted` for the next process."""
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._thread.shutdown)
            self._connection.close()

    async def _do(self, doing: str, work: Callable[[], T], queue: deque[_Asked]) -> T:
        """Have the thread do the work, in one commit with what else waits in the queue then.

        A caller that is cancelled does not stop work that has begun: a start that was recorded stays recorded.
        """
        if self._closed:
            raise StoreError(f"The record of attempts {str(self.path)!r} is closed.", path=str(self.path))
        try:
            return await asyncio.wrap_future(self._enqueue(work, queue))
        except sqlite3.Error as error:
            raise _translated(error, doing, self.path) from error

    def _begin(self, attempt_id: AttemptId) -> Begun:
        if self._unsure:
            raise StoreError(
                f"The disk could not keep the record of attempts {str(self.path)!r}: nothing more is begun. "
                "See that the disk is well, and start this device again.",
                path=str(self.path),
            )
        return _begin(self._connection, attempt_id)

    def _enqueue(self, work: Callable[[], T], queue: deque[_Asked]) -> Future[T]:
        answer: Future[T] = Future()
        queue.append(_Asked(work, answer))
        self._thread.submit(self._write_waiting)  # one that finds nothing waiting any more does nothing
        return answer

    def _write_waiting(self) -> None:
        for queue, synchronous in ((self._others, "NORMAL"), (self._starts, "FULL")):
            waiting = [queue.popleft() for _ in range(len(queue))]
            asked = [one for one in waiting if one.answer.set_running_or_notify_cancel()]
            if asked:
                self._commit(asked, synchronous)

    def _commit(self, asked: list[_Asked], synchronous: str) -> None:
        """Do all of it in one transaction and answer after its commit; when that fails, each of it alone."""
        try:
            self._connection.execute(f"PRAGMA synchronous={synchronous}")
            with self._connection:
                if len(asked) > 1:  # one writes with one statement, which commits itself
                    self._connection.execute("BEGIN IMMEDIATE")
                results = [one.work() for one in asked]
        except Exception as error:  # noqa: BLE001 (the thread's border: every failure goes to who waits for it)
            self._unsure = self._unsure or getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR")
            if len(asked) == 1:
                asked[0].answer.set_exception(error)
                return
            for one in asked:
                self._commit([one], synchronous)
            return
        for one, result in zip(asked, results, strict=True):
            one.answer.set_result(result)


def _opened(path: Path, keep: int) -> sqlite3.Connection:
    """Open the file for this process alone and settle what an earlier one left."""
    connection: sqlite3.Connection | None = None
    try:
        make_folder(path.parent)
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise StoreError(
                f"The record of attempts {str(path)!r} has schema version {version}, this Starloom knows "
                f"{_SCHEMA_VERSION}: update Starloom on this device.",
                path=str(path),
            )
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_TABLE)
        connection.execute(_INSTANCE)
        connection.execute(
            "INSERT INTO instance SELECT ? WHERE NOT EXISTS (SELECT 1 FROM instance)", (secrets.token_hex(16),)
        )
        connection.execute("UPDATE attempts SET state = 'interrupted' WHERE state = 'started'")
        connection.execute(
            "DELETE FROM attempts WHERE acknowledged = 1 AND number <= (SELECT max(number) FROM attempts) - ?", (keep,)
        )
        connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
        connection.execute("COMMIT")
        # Into the main file with all that an earlier process left in the log: a flush of its that failed may have lost
        # what this one still reads there.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except OSError as error:
        raise StoreError(f"Could not create {str(path.parent)!r}: {error.strerror}.", path=str(path)) from error
    except (sqlite3.Error, StoreError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, StoreError):
            raise
        raise _translated(error, "open", path) from error
    return connection


def _begin(connection: sqlite3.Connection, attempt_id: AttemptId) -> Begun:
    """Record a start unless the attempt is known."""
    inserted = connection.execute(
        "INSERT INTO attempts (attempt_id, state) VALUES (?, 'started') ON CONFLICT DO NOTHING", (attempt_id,)
    )
    if inserted.rowcount:
        return Fresh()
    state, result = connection.execute(
        "SELECT state, result FROM attempts WHERE attempt_id = ?", (attempt_id,)
    ).fetchone()
    return Attached() if state == "started" else _ended(state, result)


def _finish(connection: sqlite3.Connection, attempt_id: AttemptId, text: str) -> None:
    """Record a result unless the attempt has ended."""
    updated = connection.execute(
        "UPDATE attempts SET state = 'finished', result = ? WHERE attempt_id = ? AND state = 'started'",
        (text, attempt_id),
    )
    if updated.rowcount:
        return
    if connection.execute("SELECT 1 FROM attempts WHERE attempt_id = ?", (attempt_id,)).fetchone() is None:
        raise Bug(f"Attempt {attempt_id!r} was finished but never begun.", attempt_id=attempt_id)


def _settle(connection: sqlite3.Connection, attempt_id: AttemptId) -> None:
    """Settle an attempt that has ended, with its agent's calls; one that runs has nothing to acknowledge."""
    connection.execute(
        "UPDATE attempts SET acknowledged = 1 WHERE state != 'started' AND acknowledged = 0"
        " AND (attempt_id = ? OR (attempt_id > ? AND attempt_id < ?))",
        (attempt_id, f"{attempt_id}/", f"{attempt_id}0"),  # 0 is what follows / in every order of letters
    )


def _unacknowledged(connection: sqlite3.Connection) -> tuple[Unreported, ...]:
    """Read the outbox."""
    rows = connection.execute(
        "SELECT attempt_id, state, result FROM attempts WHERE acknowledged = 0 AND state != 'started' ORDER BY number"
    )
    return tuple(Unreported(AttemptId(attempt_id), _ended(state, result)) for attempt_id, state, result in rows)


def _ended(state: str, result: str | None) -> Finished | Interrupted:
    """Return how an attempt ended."""
    return Interrupted() if state == "interrupted" or result is None else Finished(json.loads(result))


def _complain(path: Path, answer: Future[Any]) -> None:
    """Tell of an acknowledgement that could not be written; nobody waits for it, and it does no harm."""
    error = answer.exception()
    if isinstance(error, sqlite3.Error):
        logger.warning("%s", _translated(error, "record an acknowledgement in", path).message)
    elif error is not None:
        logger.error("An acknowledgement could not be recorded.", exc_info=error)


def _translated(error: sqlite3.Error, doing: str, path: Path) -> StoreError:
    """Return our error for one of SQLite's."""
    name: str = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        meaning = "another device process uses it; end that one, or give this device a directory of its own"
    elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        meaning = (
            "it is damaged. Move it away to start anew; attempts that were running then count as never begun, "
            "so first look at what they did"
        )
    elif name.startswith("SQLITE_FULL"):
        meaning = "the disk is full; free some space"
    else:
        meaning = f"{error}; check that this user may write there and that the disk is well"
    return StoreError(f"Could not {doing} the record of attempts {str(path)!r}: {meaning}.", path=str(path))
