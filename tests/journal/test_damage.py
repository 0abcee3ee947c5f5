"""A damaged file: what opens is a beginning of what was committed, or a clear error; never something else.

And power cuts: what the disk holds at the moment when an append returns is enough to open it with all that was
acknowledged, and it holds that because it was flushed by then.
"""

import asyncio
import random
import re
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

from starloom.clock import ManualClock
from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import TaskCompleted, TaskReady
from starloom.journal.sqlite import SqliteJournal

RUN = RunId("run_1")
COUNT = 40


def log_of(path):
    return path.with_name(f"{path.name}-wal")


async def written(path):
    """Write events one by one; return the journal's two files and the length of the log after each of them."""
    journal = await SqliteJournal.open(path, ManualClock())
    lengths = []
    for number in range(COUNT):
        await journal.append(RUN, [TaskReady(f"task_{number}"), TaskCompleted("t", number, "x" * (number * 50))])
        lengths.append(log_of(path).stat().st_size)
    files = path.read_bytes(), log_of(path).read_bytes()
    await journal.close()
    return files, lengths


async def read_back(path, main, log):
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.iterdir():
        leftover.unlink()
    path.write_bytes(main)
    log_of(path).write_bytes(log)
    journal = await SqliteJournal.open(path, ManualClock())
    try:
        return [item.event for item in await journal.read(RUN)]
    finally:
        await journal.close()


def opened(path, main, log):
    """Return the events that damaged files give, or the error's words."""
    try:
        return asyncio.run(read_back(path, main, log)), None
    except StoreError as error:
        return [], error.message


def expected():
    events = []
    for number in range(COUNT):
        events += [TaskReady(f"task_{number}"), TaskCompleted("t", number, "x" * (number * 50))]
    return events


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    return folder, asyncio.run(written(folder / "data" / "journal.db"))


@settings(max_examples=80, deadline=None)
@given(place=st.floats(0, 1), damage=st.sampled_from(["cut", "flip", "zeros", "noise"]), seed=st.binary(min_size=8))
def test_a_damaged_log_gives_a_beginning_and_all_that_was_committed_before_the_damage(sample, place, damage, seed):
    folder, ((main, log), lengths) = sample
    offset = int(place * (len(log) - 1))
    match damage:
        case "cut":
            torn = log[:offset]
        case "flip":
            torn = log[:offset] + bytes([log[offset] ^ (seed[0] or 1)]) + log[offset + 1 :]
        case "zeros":
            torn = log[:offset] + bytes(len(log) - offset)
        case _:
            torn = log[:offset] + (seed * (len(log) // len(seed) + 1))[: len(log) - offset]
    found, error = opened(folder / "copy" / "journal.db", main, torn)
    assert error is None or "damaged" in error or "not a journal" in error
    if error is not None:
        return
    assert found == expected()[: len(found)]
    assert len(found) % 2 == 0, "an append is there whole or not at all"
    safe = sum(1 for length in lengths if length <= offset)
    assert len(found) >= 2 * safe


@settings(max_examples=40, deadline=None)
@given(place=st.floats(0, 1), seed=st.integers(0, 1_000_000))
def test_a_damaged_page_is_an_error_that_says_what_to_do_or_does_no_harm(sample, place, seed):
    folder, ((main, log), _) = sample
    whole = folder / "whole" / "journal.db"
    if not whole.exists():
        asyncio.run(read_back(whole, main, log))  # closed again: all of it is in the one file
    content = whole.read_bytes()
    page = int(place * (len(content) // 4096 - 1))
    noise = random.Random(seed).randbytes(4096)
    torn = content[: page * 4096] + noise + content[(page + 1) * 4096 :]
    found, error = opened(folder / "copy" / "journal.db", torn, b"")
    if error is None:
        assert found == expected()
    else:
        assert re.search("put back a copy|move it away|another program's database", error), error
        assert "journal.db" in error


async def test_what_the_files_hold_when_an_append_returns_opens_with_all_that_was_acknowledged(tmp_path):
    path = tmp_path / "data" / "journal.db"
    journal = await SqliteJournal.open(path, ManualClock())
    copies = []
    for number in range(12):
        await journal.append(RUN, [TaskReady(f"task_{number}")])
        copies.append((path.read_bytes(), log_of(path).read_bytes()))
    await journal.close()
    for number, (main, log) in enumerate(copies, start=1):
        found = await read_back(tmp_path / "copy" / "journal.db", main, log)
        assert found == [TaskReady(f"task_{one}") for one in range(number)]


WRITER = """
import asyncio, sys
from pathlib import Path
from starloom.clock import SystemClock
from starloom.device.attempts import AttemptJournal
from starloom.fleet.known import KnownDevice, KnownDevices
from starloom.ids import AttemptId, RunId
from starloom.journal.artefacts import FileArtefacts
from starloom.journal.events import TaskReady
from starloom.journal.sqlite import SqliteJournal
from starloom.tools.effects import recording
from starloom.tools.workspace import Workspace

def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()

async def main(folder):
    journal = await SqliteJournal.open(folder / "data" / "journal.db", SystemClock())
    attempts = await AttemptJournal.open(folder / "device" / "attempts.db")
    artefacts = FileArtefacts(folder / "artefacts")
    workspace = Workspace(folder / "work")
    known = KnownDevices(folder / "fleet" / "devices.sqlite")
    for number in range(3):
        say("begin append")
        await journal.append(RunId("run_1"), [TaskReady(f"task_{number}")])
        say("done append")
        say("begin attempt")
        await attempts.begin(AttemptId(f"run_1:t{number}:1"))
        say("done attempt")
        say("begin result")
        await attempts.finish(AttemptId(f"run_1:t{number}:1"), number)
        say("done result")
        say("begin artefact")
        await artefacts.put(f"content {number}".encode())
        say("done artefact")
        say("begin place")
        known.remember(KnownDevice("dev1", "linux", "linux", holder=f"process {number}", lease_s=300.0))
        say("done place")
        say("begin tag")
        known.remember(KnownDevice("dev1", "linux", "linux", tags=("t",), holder=f"process {number}", lease_s=300.0))
        say("done tag")
        say("begin file")
        with recording(f"run_1:t{number}:1"), workspace.replacing(f"made{number}/a.txt") as part:
            part.write_text("x")
        say("done file")
    known.close()
    await attempts.close()
    await journal.close()

asyncio.run(main(Path(sys.argv[1])))
"""

_CALL = re.compile(r"^(\d+\s+)?(?P<name>f(?:data)?sync|p?write(?:64)?|rename\w*|mkdir\w*|unlink\w*)\((?P<rest>.*)$")


def traced(folder):
    """Return the system calls of a writer: before the first `begin`, then up to each `done`, as (word, calls)."""
    strace = shutil.which("strace")
    command = [
        "-f",
        "-y",
        "-s",
        "64",
        "-e",
        "trace=fsync,fdatasync,write,pwrite64,rename,renameat,renameat2,mkdir,mkdirat",
    ]
    output = folder / "trace"
    if strace is None:
        pytest.skip("needs strace")
    words = [strace, *command, "-o", str(output), sys.executable, "-c", WRITER, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode and ("ptrace" in done.stderr or "PTRACE" in done.stderr):
        pytest.skip("needs the right to trace")
    assert done.returncode == 0, done.stderr
    spans, calls = [], []
    for line in output.read_text().splitlines():
        if '"begin ' in line:
            if not spans:
                spans.append(("open", calls))
            calls = []
        elif '"done ' in line:
            spans.append((re.search(r'"done (\w+)', line)[1], calls))
        elif found := _CALL.match(line):
            calls.append(f"{found['name']}({found['rest']}")
    return spans


def flushed(calls, name):
    return [call for call in calls if call.startswith(("fsync", "fdatasync")) and name in call]


def test_nothing_is_called_done_before_it_is_flushed(tmp_path):
    (tmp_path / "work").mkdir()
    spans = traced(tmp_path)
    assert [word for word, _ in spans] == [
        "open",
        *["append", "attempt", "result", "artefact", "place", "tag", "file"] * 3,
    ]
    for word, calls in spans:
        match word:
            case "open":
                for name in ("", "/data", "/device"):  # the files' names, and their folders'
                    assert flushed(calls, f"{tmp_path}{name}>"), name
            case "append":
                assert flushed(calls, "journal.db-wal>")
            case "attempt":
                assert flushed(calls, "attempts.db-wal>")
            case "result":
                assert any(call.startswith("pwrite") and "attempts.db-wal>" in call for call in calls), "outlives us"
                assert not flushed(calls, "/device/"), "the next start's flush takes it along"
            case "place":
                assert flushed(calls, "devices.sqlite-wal>"), "else two could have it after a power cut"
            case "tag":
                assert any(call.startswith("pwrite") and "devices.sqlite-wal>" in call for call in calls)
                assert not flushed(calls, "/fleet/"), "the device tells it again"
            case "artefact":
                assert flushed(calls, "/artefacts/")
                assert flushed(calls, f"{tmp_path}/artefacts>"), "a new folder's name, too"
                assert last_flush_is_after_the_rename(calls, "/artefacts/")
            case _:
                record = [at for at, call in enumerate(calls) if call in flushed(calls, "record.jsonl>")]
                renamed = [at for at, call in enumerate(calls) if call.startswith("rename") and "a.txt" in call]
                assert record
                assert record[0] < renamed[0], "the change is on record before it is made"
                assert flushed(calls, "/work>"), "a new folder's name, too"
                assert last_flush_is_after_the_rename(calls, "/work/made")


def last_flush_is_after_the_rename(calls, name):
    renamed = max(at for at, call in enumerate(calls) if call.startswith("rename"))
    return any(call in flushed(calls, name) for call in calls[renamed + 1 :])
