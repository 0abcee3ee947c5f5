"""What is SQLite's own: survival, damage, full disks, read-only directories."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys

import pytest

from starloom.clock import ManualClock
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import RunStarted, TaskCompleted, TaskReady
from starloom.journal.sqlite import SqliteJournal

RUN = RunId("run_1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "journal.db"


async def opened(path) -> SqliteJournal:
    return await SqliteJournal.open(path, ManualClock())


async def filled(path, count: int = 100) -> SqliteJournal:
    journal = await opened(path)
    for number in range(count):
        await journal.append(RUN, [TaskReady(f"task_{number}")], keys=[f"key_{number}"])
    return journal


async def seqs(journal: SqliteJournal) -> list[int]:
    return [recorded.seq for recorded in await journal.read(RUN)]


async def test_events_keys_and_epochs_outlive_the_process(path):
    journal = await filled(path, 3)
    assert await journal.take(RUN) == 1
    before = await journal.read(RUN)
    await journal.close()
    journal = await opened(path)
    assert await journal.read(RUN) == before
    assert await journal.append(RUN, [TaskReady("task_0")], keys=["key_0"]) == ()
    assert await journal.take(RUN) == 2
    await journal.close()


async def test_clean_close_leaves_one_file_and_the_lock(path):
    journal = await filled(path, 3)
    await journal.close()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["journal.db", "owner.lock"]


async def test_every_commit_is_flushed(path):
    journal = await opened(path)
    settings = await journal.write(
        lambda batch: [
            batch.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]
    )
    assert settings == ["wal", 2]
    await journal.close()


async def test_timeline_is_for_a_person_with_a_sqlite_browser(path):
    journal = await filled(path, 2)
    await journal.close()
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT * FROM timeline").fetchall()
    connection.close()
    assert rows[1] == ("run_1", 2, "2026-01-01T00:00:00.000Z", "task_ready", "key_1", '{"task_id":"task_1"}')


async def test_reader_beside_the_owner_sees_what_is_committed(path):
    journal = await filled(path, 3)
    reader = await SqliteJournal.open(path, ManualClock(), read_only=True)
    await journal.append(RUN, [TaskReady("late")])
    assert await seqs(reader) == [1, 2, 3, 4]
    with pytest.raises(StoreError, match="read-only"):
        await reader.append(RUN, [TaskReady("x")])
    with pytest.raises(StoreError, match="cannot be followed"):
        reader.follow(RUN)
    await reader.close()
    await journal.close()


async def test_reader_after_a_clean_close(path):
    journal = await filled(path, 3)
    await journal.close()
    reader = await SqliteJournal.open(path, ManualClock(), read_only=True)
    assert await seqs(reader) == [1, 2, 3]
    assert [record.last_seq for record in await reader.runs()] == [3]
    await reader.close()


@pytest.mark.parametrize("with_index", [True, False])
async def test_reader_after_a_kill_sees_what_the_log_holds(path, tmp_path, with_index):
    journal = await filled(path, 3)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    for name in ("journal.db", "journal.db-wal", *(("journal.db-shm",) if with_index else ())):
        shutil.copy(path.with_name(name), copy.with_name(name))
    await journal.close()
    reader = await SqliteJournal.open(copy, ManualClock(), read_only=True)
    assert await seqs(reader) == [1, 2, 3]
    await reader.close()


async def test_reader_without_a_journal_is_told_so(path):
    with pytest.raises(StoreError, match="no journal at"):
        await SqliteJournal.open(path, ManualClock(), read_only=True)
    assert not path.parent.exists()


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.37, 0.5, 0.83, 0.999])
async def test_torn_end_of_the_log_gives_a_gapless_beginning(path, tmp_path, keep):
    journal = await filled(path)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    log = path.with_name("journal.db-wal").read_bytes()
    copy.with_name("journal.db-wal").write_bytes(log[: int(len(log) * keep)])
    await journal.close()
    repaired = await opened(copy)
    found = await seqs(repaired)
    assert found == list(range(1, len(found) + 1))
    (recorded,) = await repaired.append(RUN, [TaskReady("next")])
    assert recorded.seq == len(found) + 1
    await repaired.close()


async def test_garbage_after_the_last_commit_is_left_out(path, tmp_path):
    journal = await filled(path)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    log = path.with_name("journal.db-wal").read_bytes()
    copy.with_name("journal.db-wal").write_bytes(log + b"\xff" * 5_000)
    await journal.close()
    repaired = await opened(copy)
    assert await seqs(repaired) == list(range(1, 101))
    await repaired.close()


@pytest.mark.parametrize("keep", [1, 50, 4_096, 9_000])
async def test_truncated_file_is_an_error_and_stays(path, keep):
    journal = await filled(path)
    await journal.close()
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StoreError, match=r"damaged|not a journal"):
        await opened(path)
    assert path.stat().st_size == keep


async def test_emptied_file_beside_a_log_is_an_error_and_the_log_stays(path, tmp_path):
    journal = await filled(path)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    copy.touch()
    log = copy.with_name("journal.db-wal")
    shutil.copy(path.with_name("journal.db-wal"), log)
    await journal.close()
    before = log.read_bytes()
    with pytest.raises(StoreError, match="only 0 bytes of it are there"):
        await opened(copy)
    assert log.read_bytes() == before


async def test_damaged_record_is_named(path):
    journal = await filled(path, 3)
    await journal.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE events SET body = substr(body, 1, 5) WHERE position & 4294967295 = 2")
    connection.commit()
    connection.close()
    journal = await opened(path)
    with pytest.raises(StoreError, match="damaged"):
        await journal.read(RUN)
    assert [recorded.seq for recorded in await journal.read(RUN, after=2)] == [3]
    await journal.close()


async def test_file_that_is_no_database_is_an_error_and_stays(path):
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1_000)
    with pytest.raises(StoreError, match="not a journal"):
        await opened(path)
    assert path.read_bytes() == b"no database " * 1_000


async def test_failed_opening_lets_the_directory_go(path):
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1_000)
    for _ in range(2):
        with pytest.raises(StoreError, match="not a journal"):
            await opened(path)


CHILD = """
import asyncio, os, resource, signal, sys
from pathlib import Path
from starloom.clock import SystemClock
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import TaskReady, TaskCompleted
from starloom.journal.sqlite import SqliteJournal

RUN = RunId("run_1")
"""

FULL = (
    CHILD
    + """
async def main(path):
    journal = await SqliteJournal.open(Path(path), SystemClock())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    acknowledged = 0
    try:
        while True:
            await journal.append(RUN, [TaskCompleted("t", 1, "x" * 2_000)], keys=[f"k{acknowledged}"])
            acknowledged += 1
    except StoreError as error:
        print(error, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (again,) = await journal.append(RUN, [TaskReady("t")], keys=[f"k{acknowledged}"])
    print(acknowledged, again.seq, len(await journal.read(RUN)), flush=True)
    os._exit(0)

asyncio.run(main(sys.argv[1]))
"""
)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
async def test_disk_that_takes_no_more_loses_nothing_and_recovers(path):
    output = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert "Could not write to the journal" in output[0]
    assert "disk" in output[0]
    acknowledged, again, held = map(int, output[1].split())
    assert acknowledged > 10
    assert again == held == acknowledged + 1
    journal = await opened(path)
    assert await seqs(journal) == list(range(1, held + 1))
    await journal.close()


NO_SPACE = (
    CHILD
    + """
async def main(path):
    path = Path(path)
    ballast = path.parent / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    journal = await SqliteJournal.open(path, SystemClock())
    acknowledged = 0
    try:
        while True:
            await journal.append(RUN, [TaskCompleted("t", 1, "x" * 2_000)], keys=[f"k{acknowledged}"])
            acknowledged += 1
    except StoreError as error:
        print(error)
    held = len(await journal.read(RUN))
    ballast.unlink()
    (again,) = await journal.append(RUN, [TaskReady("t")], keys=[f"k{acknowledged}"])
    await journal.close()
    journal = await SqliteJournal.open(path, SystemClock())
    print(acknowledged, held, again.seq, [one.seq for one in await journal.read(RUN)] == list(range(1, held + 2)))
    await journal.close()

asyncio.run(main(sys.argv[1]))
"""
)


async def test_full_disk_is_called_that_loses_nothing_and_goes_on_when_there_is_space(path):
    """On a file system of its own, in a mount namespace that ends with the child."""
    path.parent.mkdir()
    mount = 'mount -t tmpfs -o size=3m tmpfs "$0" && exec "$@"'
    child = [sys.executable, "-c", NO_SPACE, str(path)]
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-m", "sh", "-c", mount, str(path.parent), "true"]).returncode:
        pytest.skip("needs the right to mount a small file system")
    command = [unshare, "-m", "sh", "-c", mount, str(path.parent), *child]
    said, counts = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert "the disk is full" in said
    acknowledged, held, again, whole = counts.split()
    assert int(acknowledged) > 10
    assert acknowledged == held
    assert int(again) == int(held) + 1
    assert whole == "True"


READ_ONLY = (
    CHILD
    + """
import urllib.parse  # pathlib wants it later, when the library's folder may be closed to us

async def main(path):
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        await SqliteJournal.open(Path(path), SystemClock())
    except StoreError as error:
        print(error)

asyncio.run(main(sys.argv[1]))
"""
)


def without_rights(path) -> str:
    command = [sys.executable, "-c", READ_ONLY, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_directory_without_write_permission_is_a_clear_error(path, tmp_path):
    path.parent.mkdir()
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(directory.stat().st_mode | 0o055)
    path.parent.chmod(0o555)
    assert "Could not write to the data directory" in without_rights(path)
    assert list(path.parent.iterdir()) == []


async def test_file_without_write_permission_is_a_clear_error(path, tmp_path):
    journal = await filled(path, 1)
    await journal.close()
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(directory.stat().st_mode | 0o055)
    path.parent.chmod(0o777)
    (path.parent / "owner.lock").chmod(0o666)
    path.chmod(0o444)
    said = without_rights(path)
    assert "read-only" in said
    assert str(path) in said
    path.chmod(0o644)
    path.parent.chmod(0o755)


async def test_large_result_comes_back(path):
    journal = await opened(path)
    result = {"text": "考虑" * 500_000}
    await journal.append(RUN, [RunStarted("go"), TaskCompleted("t", 1, result)])
    assert (await journal.read(RUN, after=1))[0].event.result == result
    await journal.close()


def test_importing_the_store_loads_no_heavy_library():
    code = "import sys; import starloom.journal.sqlite; print(*sorted({n.split('.')[0] for n in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={**os.environ}
    ).stdout.split()
    assert not {"pydantic", "pydantic_ai", "fastapi", "mcp", "openai", "websockets"} & set(loaded)
