"""Lets old runs go: what `starloom runs prune` does. Only runs that have ended are ever removed.

A run disappears from the list in one commit; its events follow in small pieces, so that running runs wait for none of
it. A kill in between leaves nothing visible: the next opening finishes the work.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starloom.ids import RunId
from starloom.journal.artefacts import FileArtefacts, hashes_in
from starloom.journal.sqlite import SqliteJournal
from starloom.journal.sqlite_schema import SEQ_BITS
from starloom.journal.sqlite_writer import Batch
from starloom.journal.store import RunRecord

_PIECE = 5_000  # events or pages handled in one commit
_ALL = 1 << 62
_GRACE = timedelta(hours=1)  # an artefact this young may belong to an event that is about to be appended


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed."""

    runs: tuple[RunRecord, ...]
    artefacts: int
    artefact_bytes: int


def prunable(records: Sequence[RunRecord], *, keep: int, ended_before: datetime | None) -> tuple[RunRecord, ...]:
    """Return the runs that may go.

    Args:
        records: all runs, newest first.
        keep: how many of the newest stay whatever their age; runs that have not ended always stay.
        ended_before: only runs that ended before this go; None: of any age.
    """
    return tuple(
        record
        for record in records[keep:]
        if record.ended_at is not None and (ended_before is None or record.ended_at < ended_before)
    )


async def prune(
    journal: SqliteJournal,
    artefacts: FileArtefacts | None,
    *,
    now: datetime,
    keep: int,
    ended_before: datetime | None = None,
) -> Pruned:
    """Remove the runs that `prunable` names, then the artefacts that no remaining event refers to.

    Raises:
        StoreError: the journal or the artefacts cannot be written.
    """
    doomed = prunable(await journal.runs(_ALL), keep=keep, ended_before=ended_before)
    for record in doomed:
        await _remove(journal, record.run_id)
    if doomed:
        await _give_back(journal)
    count, size_bytes = 0, 0
    if artefacts is not None:
        kept = await referenced(journal)
        count, size_bytes = await artefacts.sweep(kept, (now - _GRACE).timestamp())
    return Pruned(doomed, count, size_bytes)


async def referenced(journal: SqliteJournal) -> set[str]:
    """Return every artefact hash that an event of any run mentions."""
    hashes: set[str] = set()
    position: int | None = 0
    while position is not None:
        found, position = await journal.query(lambda reader, after=position: _mentioned(reader, after))  # type: ignore[misc]
        hashes |= found
    return hashes


async def _remove(journal: SqliteJournal, run_id: RunId) -> None:
    """Take one run out of the list, then its events out of the file."""
    number = await journal.write(lambda batch: _hide(batch, run_id))
    while number is not None and await journal.write(lambda batch: _delete_piece(batch, number)):
        pass


async def _give_back(journal: SqliteJournal) -> None:
    """Return the file's free pages to the disk."""
    while await journal.write(_vacuum_piece):
        pass


def _hide(batch: Batch, run_id: RunId) -> int | None:
    """Hide an ended run and free its id; None when it is gone or goes on by now."""
    state = batch.find(run_id)
    if state is None or state.record.ended_at is None:
        return None
    batch.connection.execute(
        "UPDATE runs SET hidden = 1, run_id = 'removed:' || number WHERE number = ?", (state.number,)
    )
    batch.forget(run_id)
    return state.number


def _delete_piece(batch: Batch, number: int) -> bool:
    """Delete some of a hidden run's events, or at last the run; return whether more is left."""
    deleted = batch.connection.execute(
        "DELETE FROM events WHERE position IN (SELECT position FROM events WHERE position BETWEEN ? AND ? LIMIT ?)",
        (number << SEQ_BITS, (number + 1) << SEQ_BITS, _PIECE),
    )
    if deleted.rowcount:
        return True
    batch.connection.execute("DELETE FROM runs WHERE number = ?", (number,))
    return False


def _vacuum_piece(batch: Batch) -> bool:
    """Give some free pages back; return whether more are left."""
    batch.connection.execute(f"PRAGMA incremental_vacuum({_PIECE})").fetchall()
    (left,) = batch.connection.execute("PRAGMA freelist_count").fetchone()
    return bool(left)


def _mentioned(reader: sqlite3.Connection, after: int) -> tuple[set[str], int | None]:
    """Return the hashes in one piece of all events and where the next piece begins; None at the end."""
    rows = reader.execute(
        "SELECT position, body FROM events WHERE position > ? ORDER BY position LIMIT ?", (after, _PIECE)
    ).fetchall()
    hashes: set[str] = set()
    for _, body in rows:
        hashes |= hashes_in(body)
    return hashes, rows[-1][0] if rows else None
