"""One run as one file: to send a run to someone, to keep it, to take it to another machine.

A gzip of JSON lines. Export writes the file beside its place and renames it; import checks all of it before it changes
anything, and the run appears in the list in one commit, so neither leaves half a run. Called by the CLI and the hub.

    {"format": "starloom-run", "format_version": 1, "schema_version": 1, "run_id": …, "events": N}
    {"artefact": "sha256:…", "base64": …}                                   none or more
    {"seq": 1, "at_us": …, "version": 1, "kind": …, "key": …, "body": {…}}  N of them
    {"sha256": …}                                                           of all the lines above
"""

import asyncio
import base64
import gzip
import hashlib
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starloom.durable import flush_names
from starloom.errors import StoreError, UsageError
from starloom.ids import RunId
from starloom.journal.artefacts import Artefacts, hash_of, hashes_in
from starloom.journal.codec import dumps, loads
from starloom.journal.events import SCHEMA_VERSION, Json, decode
from starloom.journal.rows import NumberedRow, Row
from starloom.journal.sqlite import SqliteJournal
from starloom.journal.sqlite_writer import Batch
from starloom.journal.store import RunRecord

FORMAT = "starloom-run"
FORMAT_VERSION = 1
_CHUNK = 1_000  # events handled at a time, on the way out and in


class RowSource(Protocol):
    """What export reads from: either store."""

    async def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run's line of the list; None for an unknown run."""
        ...

    async def rows(self, run_id: RunId, after: int, size: int) -> tuple[NumberedRow, ...]:
        """Return at most `size` rows above `after` as they are stored."""
        ...


@dataclass(frozen=True, slots=True)
class Portable:
    """What a file holds."""

    run_id: RunId
    events: int
    artefacts: int


async def export_run(source: RowSource, run_id: RunId, target: Path, artefacts: Artefacts | None = None) -> Portable:
    """Write a run, as far as it has come, with the artefacts its events mention and that are still there.

    Raises:
        UsageError: there is no such run.
        StoreError: it cannot be read or the file cannot be written; an older file of that name is untouched then.
    """
    record = await source.run(run_id)
    if record is None:
        raise UsageError(f"There is no run {run_id!r} to export.", run_id=run_id)
    hashes: set[str] = set()
    if artefacts is not None:
        async for row in _all_rows(source, run_id, record.last_seq):
            hashes |= hashes_in(row.row.body)
    temporary = target.with_name(f"{target.name}.part")
    try:
        with _Writer(temporary) as file:
            file.write(_header(run_id, record.last_seq))
            carried = 0
            for content_hash in sorted(hashes):
                if artefacts is not None and await artefacts.verify(content_hash):
                    content = await artefacts.get(content_hash)
                    await asyncio.to_thread(file.write, _artefact_line(content_hash, content))
                    carried += 1
            after = 0
            while after < record.last_seq:
                rows = await source.rows(run_id, after, min(_CHUNK, record.last_seq - after))
                await asyncio.to_thread(file.write, b"".join(_event_line(row) for row in rows))
                after = rows[-1].seq
            file.finish()
        temporary.replace(target)
        flush_names(target.parent)
    except OSError as error:
        raise StoreError(f"Could not write {str(target)!r}: {error.strerror}.", path=str(target)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return Portable(run_id, record.last_seq, carried)


async def import_run(
    journal: SqliteJournal, source: Path, artefacts: Artefacts | None = None, *, as_run_id: RunId | None = None
) -> Portable:
    """Add the run of a file to the journal, with its times, keys and numbers, and its artefacts when given a place.

    Raises:
        UsageError: the journal holds a run of that id already; `as_run_id` gives it another.
        StoreError: the file is damaged, cut short, newer or not a run's; nothing was changed.
    """
    found = await asyncio.to_thread(_checked, source)
    run_id = as_run_id or found.run_id
    if await journal.run(run_id) is not None:
        raise _taken(run_id)
    hidden = await journal.write(_begin)
    lines = _lines(source)
    waiting: list[Row] = []
    while (line := await asyncio.to_thread(next, lines, None)) is not None:
        if "artefact" in line and artefacts is not None:
            await artefacts.put(base64.b64decode(line["base64"]))
        elif "seq" in line:
            waiting.append(_row(line))
        if len(waiting) == _CHUNK:
            await _add(journal, hidden, waiting)
            waiting = []
    await _add(journal, hidden, waiting)
    await journal.write(lambda batch: _reveal(batch, hidden, run_id))
    return Portable(run_id, found.events, found.artefacts)


class _Writer:
    """A gzip file that knows the hash of what went into it. The same run gives the same bytes."""

    def __init__(self, path: Path) -> None:
        self._raw = path.open("wb")
        self._file = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._raw, mtime=0)
        self._hash = hashlib.sha256()

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()

    def write(self, lines: bytes) -> None:
        """Add whole lines."""
        self._hash.update(lines)
        self._file.write(lines)

    def finish(self) -> None:
        """Add the hash of all lines and flush to the disk."""
        self._file.write(_line({"sha256": self._hash.hexdigest()}))
        self._file.close()
        self._raw.flush()


def _header(run_id: RunId, events: int) -> bytes:
    """Return the first line."""
    return _line(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "events": events,
        }
    )


def _artefact_line(content_hash: str, content: bytes) -> bytes:
    """Return an artefact's line."""
    return _line({"artefact": content_hash, "base64": base64.b64encode(content).decode()})


def _event_line(numbered: NumberedRow) -> bytes:
    """Return an event's line; its body goes in as it is stored."""
    row = numbered.row
    before = {"seq": numbered.seq, "at_us": row.at_us, "version": row.version, "kind": row.kind, "key": row.key}
    return f'{dumps(before)[:-1]},"body":{row.body}}}\n'.encode()


def _line(record: dict[str, Json]) -> bytes:
    """Return a record as a line."""
    return f"{dumps(record)}\n".encode()


def _row(line: dict[str, Json]) -> Row:
    """Return the row of an event's line."""
    return Row(line["kind"], dumps(line["body"]), line["key"], line["at_us"], line["version"])


async def _all_rows(source: RowSource, run_id: RunId, last_seq: int) -> AsyncIterator[NumberedRow]:
    """Yield a run's rows up to a number."""
    after = 0
    while after < last_seq:
        rows = await source.rows(run_id, after, min(_CHUNK, last_seq - after))
        for row in rows:
            yield row
        after = rows[-1].seq


def _checked(source: Path) -> Portable:
    """Read the whole file and return what it holds, if it is whole and readable by this Starloom."""
    events = artefacts = 0
    header: dict[str, Json] = {}
    try:
        for line in _lines(source):
            if not header:
                header = line
                _check_header(header, source)
            elif "artefact" in line:
                artefacts += 1
                if hash_of(base64.b64decode(line["base64"])) != line["artefact"]:
                    raise _damaged(source, f"artefact {line['artefact']} has another hash")
            else:
                events += 1
                decode(line["kind"], line["body"])
                if line["seq"] != events:
                    raise _damaged(source, f"event {events} is missing")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(source, f"a line is not as it must be ({error!r})") from error
    if events != header.get("events"):
        raise _damaged(source, f"it holds {events} of {header.get('events')} events")
    return Portable(RunId(header["run_id"]), events, artefacts)


def _check_header(header: dict[str, Json], source: Path) -> None:
    """Refuse a file that is not a run's, or newer than this Starloom."""
    if header.get("format") != FORMAT:
        raise StoreError(f"{str(source)!r} is not an exported run.", path=str(source))
    if header["format_version"] > FORMAT_VERSION or header["schema_version"] > SCHEMA_VERSION:
        raise StoreError(
            f"{str(source)!r} was written by a newer Starloom (schema {header['schema_version']}, known here "
            f"{SCHEMA_VERSION}): update Starloom to import it.",
            path=str(source),
        )


def _lines(source: Path) -> Iterator[dict[str, Json]]:
    """Yield the file's records without the last one, which must be the hash of the others."""
    digest = hashlib.sha256()
    try:
        with gzip.open(source, "rb") as file:
            yield from _hashed(file, digest, source)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(source, str(error)) from error
    except OSError as error:
        raise StoreError(f"Could not read {str(source)!r}: {error.strerror}.", path=str(source)) from error


def _hashed(file: gzip.GzipFile, digest: "hashlib._Hash", source: Path) -> Iterator[dict[str, Json]]:
    """Yield records while adding their lines to the hash, and check it at the end."""
    for text in file:
        try:
            record = loads(text.decode())
        except (StoreError, UnicodeDecodeError) as error:
            raise _damaged(source, "a line is not JSON") from error
        if isinstance(record, dict) and set(record) == {"sha256"}:
            if record["sha256"] != digest.hexdigest() or file.read(1):
                raise _damaged(source, "its content has another hash than its last line says")
            return
        digest.update(text)
        yield record
    raise _damaged(source, "its end is missing")


def _damaged(source: Path, what: str) -> StoreError:
    """Return the error for a file that is not whole."""
    return StoreError(f"The exported run {str(source)!r} is damaged: {what}. Nothing was imported.", path=str(source))


def _begin(batch: Batch) -> RunId:
    """Make a hidden run of a name that no other import has, in the writer thread."""
    (number,) = batch.connection.execute("SELECT coalesce(max(number), 0) + 1 FROM runs").fetchone()
    hidden = RunId(f"importing:{number}")
    batch.create(hidden, 0, hidden=True)
    return hidden


async def _add(journal: SqliteJournal, hidden: RunId, rows: list[Row]) -> None:
    """Commit some rows of the hidden run."""
    if rows:
        await journal.write(lambda batch: _insert(batch, hidden, rows))


def _insert(batch: Batch, hidden: RunId, rows: list[Row]) -> None:
    """Add rows to the hidden run, in the writer thread."""
    state = batch.create(hidden, rows[0].at_us, hidden=True)
    for row in rows:
        if batch.insert(state, row) is None:
            raise StoreError(f"The exported run is damaged: the key {row.key!r} occurs twice. Nothing was imported.")


def _reveal(batch: Batch, hidden: RunId, run_id: RunId) -> None:
    """Give the imported run its name and its place in the list, in the writer thread."""
    if batch.find(run_id) is not None:
        raise _taken(run_id)
    batch.flush()
    batch.connection.execute("UPDATE runs SET run_id = ?, hidden = 0 WHERE run_id = ?", (run_id, hidden))
    batch.forget(hidden)


def _taken(run_id: RunId) -> UsageError:
    """Return the error for an id that is in use."""
    return UsageError(f"The journal already holds a run {run_id!r}; import it under another id.", run_id=run_id)
