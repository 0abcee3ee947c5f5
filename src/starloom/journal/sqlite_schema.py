"""Opens a SQLite journal file: its tables, its versions, and what its errors mean. Called by `sqlite` only.

    schema_version(version, applied_at_us)     one row a migration that was applied
    runs(number, run_id, …, last_seq, epoch)   the list of runs, kept in the same transactions as the events;
                                               hidden: on its way in or out, and nobody's after a crash
    events(position, version, at_us, kind, key, body)
                                               position = runs.number * 2^32 + seq, so a run lies in one piece
    timeline(run_id, seq, at, kind, key, body) the events for a person with a SQLite browser

A file opened for writing is migrated in one transaction; a newer file is refused and left as it is. Nothing here needs
a SQLite newer than 3.24, since Python uses the system's.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from starloom.errors import StoreError
from starloom.journal.rows import microseconds

SEQ_BITS = 32
_APPLICATION_ID = 0x5374_4C6D  # "StLm": tells our file from another program's
_BUSY_S = 10.0
_LARGEST_LOG_BYTES = 16 << 20  # the log is cut back to this when a very large commit has made it longer
_HEADER_BYTES = 100  # of a SQLite file; a shorter one holds nothing

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at_us INTEGER NOT NULL);
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL UNIQUE,
        request TEXT NOT NULL,
        started_at_us INTEGER NOT NULL,
        ended_at_us INTEGER,
        stop_reason TEXT,
        last_seq INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        hidden INTEGER NOT NULL
    );
    CREATE TABLE events (
        position INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        at_us INTEGER NOT NULL,
        kind TEXT NOT NULL,
        key TEXT,
        body TEXT NOT NULL
    );
    CREATE UNIQUE INDEX events_key ON events (position >> 32, key) WHERE key IS NOT NULL;
    CREATE VIEW timeline AS
        SELECT run_id, position & 4294967295 AS seq,
            strftime('%Y-%m-%dT%H:%M:%fZ', at_us / 1000000.0, 'unixepoch') AS at, kind, key, body
        FROM events JOIN runs ON runs.number = position >> 32;
    """,
)
"""One script a version; the position in this tuple plus one is the version it leads to. Append, never change.

A new form of an event is a new version here too, if only with an empty script: it keeps older programs out.
"""

_MEANINGS: tuple[tuple[str, str], ...] = (
    ("SQLITE_FULL", "the disk is full; free some space and try again"),
    ("SQLITE_READONLY", "the file or its directory is read-only; give this user the right to write there"),
    ("SQLITE_PERM", "the file may not be opened; give this user the right to read and write it"),
    ("SQLITE_CANTOPEN", "the file cannot be opened; check that its directory exists and may be written"),
    ("SQLITE_CORRUPT", "the file is damaged; put back a copy of it, or move it away to start with an empty journal"),
    ("SQLITE_NOTADB", "the file is not a journal or its first page is damaged; put back a copy, or move it away"),
    ("SQLITE_BUSY", "another program holds the file locked; end that program and try again"),
    ("SQLITE_IOERR", "the disk refused; check its space, its limits and its health"),
)


def translated(error: sqlite3.Error, doing: str, path: Path) -> StoreError:
    """Return our error for one of SQLite's: what was tried, on which file, what it means and what to do."""
    name: str = getattr(error, "sqlite_errorname", "")
    meaning = next((text for prefix, text in _MEANINGS if name.startswith(prefix)), f"SQLite said: {error}")
    return StoreError(f"Could not {doing} {str(path)!r}: {meaning}.", path=str(path), reason=name or None)


def connect_writer(path: Path, now: datetime, migrations: Sequence[str] = MIGRATIONS) -> sqlite3.Connection:
    """Open or create the file for writing, brought to the newest version.

    SQLite itself repairs a torn end of the write-ahead log: frames whose checksum fails were never committed.

    Raises:
        StoreError: it cannot be written, is damaged, not ours, or from a newer Starloom.
    """
    _check_not_cut(path)
    with _opening(path, sqlite_uri(path, "rwc")) as connection:
        version = current_version(connection, path)
        _check_not_newer(path, version, len(migrations))
        if version == 0:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that `prune` can give space back
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA journal_size_limit={_LARGEST_LOG_BYTES}")
        migrate(connection, path, now, migrations)
        _sweep_hidden(connection)
        return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open an existing file for reading only.

    Raises:
        StoreError: there is no journal at this path, it is damaged, not ours, or of another version.
    """
    if not path.exists():
        raise StoreError(f"There is no journal at {str(path)!r}; it is made by the first run.", path=str(path))
    with _opening(path, sqlite_uri(path, "ro")) as connection:
        version = current_version(connection, path)
        _check_not_newer(path, version, len(MIGRATIONS))
        if version < len(MIGRATIONS):
            raise StoreError(
                f"The journal {str(path)!r} has schema version {version}, this Starloom needs {len(MIGRATIONS)}: "
                "start the hub once, which brings it up to date.",
                path=str(path),
            )
        return connection


def sqlite_uri(path: Path, mode: str) -> str:
    """Return the URI by which SQLite opens the file in a mode (`ro rw rwc`)."""
    return f"{path.absolute().as_uri()}?mode={mode}"


@contextmanager
def _opening(path: Path, uri: str) -> Iterator[sqlite3.Connection]:
    """Give a new connection; closed again, and its errors ours, when the block fails."""
    with ExitStack() as undo:
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            undo.callback(connection.close)
            yield connection
        except sqlite3.Error as error:
            raise translated(error, "open the journal", path) from error
        undo.pop_all()


def migrate(connection: sqlite3.Connection, path: Path, now: datetime, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the tables to the newest version, all steps in one transaction; also proves that the file can be written.

    Raises:
        StoreError: the file is not ours.
        sqlite3.Error: the file cannot be written or is damaged.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = current_version(connection, path)
        if version == 0:
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        for number, script in enumerate(migrations[version:], start=version + 1):
            for statement in script.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?, ?)", (number, microseconds(now)))
        connection.execute("DELETE FROM runs WHERE 0")  # BEGIN alone does not notice a read-only file
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _sweep_hidden(connection: sqlite3.Connection) -> None:
    """Remove what an interrupted import or prune left."""
    for (number,) in connection.execute("SELECT number FROM runs WHERE hidden").fetchall():
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "DELETE FROM events WHERE position BETWEEN ? AND ?", (number << SEQ_BITS, (number + 1) << SEQ_BITS)
        )
        connection.execute("DELETE FROM runs WHERE number = ?", (number,))
        connection.execute("COMMIT")


def current_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file's tables; 0 for an empty file.

    Raises:
        StoreError: the file is another program's database.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if not tables and application_id in (0, _APPLICATION_ID):
        return 0
    if application_id != _APPLICATION_ID or "schema_version" not in tables:
        raise StoreError(
            f"{str(path)!r} is another program's database, not a journal; choose another path.", path=str(path)
        )
    (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(version)


def _check_not_cut(path: Path) -> None:
    """Refuse a file so short that SQLite would take it for a new one and throw its log away."""
    log = path.with_name(f"{path.name}-wal")
    size_bytes = path.stat().st_size if path.exists() else 0
    log_bytes = log.stat().st_size if log.exists() else 0
    if 0 < size_bytes < _HEADER_BYTES or (size_bytes == 0 and log_bytes > 0):
        raise StoreError(
            f"Could not open the journal {str(path)!r}: the file is damaged, only {size_bytes} bytes of it are there; "
            "put back a copy of it, or move it and its '-wal' file away to start with an empty journal.",
            path=str(path),
        )


def _check_not_newer(path: Path, found: int, known: int) -> None:
    """Refuse a file of a version that this Starloom does not know."""
    if found > known:
        raise StoreError(
            f"The journal {str(path)!r} has schema version {found}, this Starloom knows {known}: "
            "update Starloom to use it; nothing was changed.",
            path=str(path),
            found=found,
            known=known,
        )
