import sqlite3

import pytest

from starloom.clock import ManualClock
from starloom.errors import StoreError
from starloom.journal.events import SCHEMA_VERSION
from starloom.journal.sqlite_schema import (
    MIGRATIONS,
    connect_reader,
    connect_writer,
    current_version,
    translated,
)

NOW = ManualClock().now()
SECOND = "ALTER TABLE runs ADD COLUMN colour TEXT; UPDATE runs SET colour = 'blue'"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


def test_new_file_has_the_newest_version(path):
    connection = connect_writer(path, NOW)
    assert current_version(connection, path) == len(MIGRATIONS)
    assert connection.execute("SELECT version FROM schema_version").fetchall() == [(1,)]
    connection.close()


def test_new_form_of_an_event_is_a_new_schema_version():
    assert len(MIGRATIONS) >= SCHEMA_VERSION


def test_older_file_is_brought_up_to_date_with_its_rows(path):
    connect_writer(path, NOW).close()
    old = sqlite3.connect(path)
    old.execute("INSERT INTO runs VALUES (1, 'run_1', 'go', 0, NULL, NULL, 1, 0, 0)")
    old.commit()
    old.close()
    connection = connect_writer(path, NOW, (*MIGRATIONS, SECOND))
    assert current_version(connection, path) == len(MIGRATIONS) + 1
    assert connection.execute("SELECT run_id, colour FROM runs").fetchall() == [("run_1", "blue")]
    connection.close()


def test_migration_that_fails_changes_nothing(path):
    connect_writer(path, NOW).close()
    with pytest.raises(StoreError, match="Could not open the journal"):
        connect_writer(path, NOW, (*MIGRATIONS, f"{SECOND}; INSERT INTO nowhere VALUES (1)"))
    connection = connect_writer(path, NOW)
    columns = {row[1] for row in connection.execute("PRAGMA table_info(runs)")}
    assert "colour" not in columns
    connection.close()


def test_newer_file_is_refused_and_stays(path):
    connect_writer(path, NOW, (*MIGRATIONS, SECOND)).close()
    before = path.read_bytes()
    for connect in (lambda: connect_writer(path, NOW), lambda: connect_reader(path)):
        with pytest.raises(StoreError, match="schema version 2, this Starloom knows 1: update Starloom"):
            connect()
    assert path.read_bytes() == before


def test_reader_of_an_older_file_says_who_updates_it(path):
    sqlite3.connect(path).close()
    with pytest.raises(StoreError, match="start the hub once"):
        connect_reader(path)


def test_database_of_another_program_is_refused_and_stays(path):
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE bookmarks (url TEXT)")
    foreign.commit()
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program's database"):
        connect_writer(path, NOW)
    assert path.read_bytes() == before


def test_what_an_interrupted_import_left_is_removed(path):
    connection = connect_writer(path, NOW)
    connection.execute("INSERT INTO runs VALUES (7, 'importing:7', '', 0, NULL, NULL, 1, 0, 1)")
    connection.execute(
        "INSERT INTO events (position, version, at_us, kind, body) VALUES (?, 1, 0, 'x', '{}')", ((7 << 32) | 1,)
    )
    connection.close()
    connection = connect_writer(path, NOW)
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
    connection.close()


def test_full_disk_is_called_that(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA max_page_count=2")
    connection.execute("CREATE TABLE t (x)")
    with pytest.raises(sqlite3.Error) as caught:
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.close()
    error = translated(caught.value, "write to the journal", path)
    assert (
        error.message
        == f"Could not write to the journal {str(path)!r}: the disk is full; free some space and try again."
    )


def test_unknown_trouble_is_passed_on_in_sqlites_words(path):
    assert "SQLite said: strange" in translated(sqlite3.OperationalError("strange"), "read", path).message
