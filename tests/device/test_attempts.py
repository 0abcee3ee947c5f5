import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import starloom
from starloom.device.attempts import Attached, AttemptJournal, Finished, Fresh, Interrupted, Unreported
from starloom.errors import Bug, StoreError
from starloom.ids import AttemptId, RunId, TaskId, attempt_id

A = attempt_id(RunId("run_1"), TaskId("a"), 1)
B = attempt_id(RunId("run_1"), TaskId("b"), 1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "device" / "attempts.db"


async def test_first_begin_is_fresh_and_only_the_first(path):
    journal = await AttemptJournal.open(path)
    assert await journal.begin(A) == Fresh()
    assert await journal.begin(A) == Attached()
    assert await journal.begin(B) == Fresh()
    await journal.close()


async def test_racing_begins_give_one_fresh(path):
    journal = await AttemptJournal.open(path)
    answers = await asyncio.gather(*(journal.begin(A) for _ in range(20)))
    assert answers == [Fresh()] + [Attached()] * 19
    await journal.close()


async def test_finished_attempt_gives_its_result_again(path):
    journal = await AttemptJournal.open(path)
    result = {"rows": [1, 2.5, None], "name": "考虑 \udcff"}
    await journal.begin(A)
    await journal.finish(A, result)
    assert await journal.begin(A) == Finished(result)
    await journal.close()
    journal = await AttemptJournal.open(path)
    assert await journal.begin(A) == Finished(result)
    await journal.close()


async def test_second_result_changes_nothing(path):
    journal = await AttemptJournal.open(path)
    await journal.begin(A)
    await journal.finish(A, 1)
    await journal.finish(A, 2)
    assert await journal.begin(A) == Finished(1)
    await journal.close()


async def test_result_of_nothing_is_still_a_result(path):
    journal = await AttemptJournal.open(path)
    await journal.begin(A)
    await journal.finish(A, None)
    assert await journal.begin(A) == Finished(None)
    await journal.close()


async def test_outbox_keeps_results_until_they_are_acknowledged(path):
    journal = await AttemptJournal.open(path)
    for attempt, result in ((A, "a"), (B, "b")):
        await journal.begin(attempt)
        await journal.finish(attempt, result)
    assert await journal.unacknowledged() == (Unreported(A, Finished("a")), Unreported(B, Finished("b")))
    journal.acknowledge(A)
    journal.acknowledge(A)
    await journal.close()
    journal = await AttemptJournal.open(path)
    assert await journal.unacknowledged() == (Unreported(B, Finished("b")),)
    assert await journal.begin(A) == Finished("a")
    await journal.close()


async def test_calls_of_an_attempt_s_agent_are_settled_with_it_and_no_other_s_are(path):
    journal = await AttemptJournal.open(path)
    for name in ("run:a:1/A.1.0", "run:a:1/AppAgent:files.2.1", "run:a:1", "run:a:10/A.1.0", "run:a:1.0"):
        await journal.begin(AttemptId(name))
        await journal.finish(AttemptId(name), 1)
    journal.acknowledge(AttemptId("run:a:1"))
    assert [item.attempt_id for item in await journal.unacknowledged()] == ["run:a:10/A.1.0", "run:a:1.0"]
    await journal.close()


async def test_running_attempt_is_not_in_the_outbox_and_cannot_be_acknowledged(path):
    journal = await AttemptJournal.open(path)
    await journal.begin(A)
    assert await journal.unacknowledged() == ()
    journal.acknowledge(A)
    await journal.finish(A, 1)
    assert await journal.unacknowledged() == (Unreported(A, Finished(1)),)
    await journal.close()


async def test_attempt_of_a_process_that_ended_is_interrupted_for_good(path):
    journal = await AttemptJournal.open(path)
    await journal.begin(A)
    await journal.close()
    for _ in range(2):
        journal = await AttemptJournal.open(path)
        assert await journal.begin(A) == Interrupted()
        assert await journal.unacknowledged() == (Unreported(A, Interrupted()),)
        await journal.finish(A, "too late")
        assert await journal.begin(A) == Interrupted()
        await journal.close()
    journal = await AttemptJournal.open(path)
    journal.acknowledge(A)
    assert await journal.unacknowledged() == ()
    assert await journal.begin(A) == Interrupted()
    await journal.close()


async def test_result_without_a_beginning_is_a_bug(path):
    journal = await AttemptJournal.open(path)
    with pytest.raises(Bug, match="never begun"):
        await journal.finish(A, 1)
    journal.acknowledge(A)
    await journal.close()


async def test_result_that_is_not_json_is_refused(path):
    journal = await AttemptJournal.open(path)
    await journal.begin(A)
    with pytest.raises(StoreError, match="not JSON"):
        await journal.finish(A, object())
    assert await journal.begin(A) == Attached()
    await journal.close()


async def test_cancelled_begin_stays_recorded(path):
    journal = await AttemptJournal.open(path)
    waiting = asyncio.ensure_future(journal.begin(A))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await journal.begin(A) in (Attached(), Fresh())
    assert await journal.begin(A) == Attached()
    await journal.close()


async def test_old_settled_attempts_are_forgotten_and_open_ones_never(path):
    journal = await AttemptJournal.open(path)
    for number in range(10):
        attempt = AttemptId(f"t:{number}")
        await journal.begin(attempt)
        await journal.finish(attempt, number)
        if number != 1:
            journal.acknowledge(attempt)
    await journal.close()
    journal = await AttemptJournal.open(path, keep=3)
    assert await journal.begin(AttemptId("t:0")) == Fresh()
    assert await journal.begin(AttemptId("t:1")) == Finished(1)
    assert await journal.begin(AttemptId("t:7")) == Finished(7)
    await journal.close()


async def test_closed_record_refuses_work(path):
    journal = await AttemptJournal.open(path)
    await journal.close()
    await journal.close()
    with pytest.raises(StoreError, match="closed"):
        await journal.begin(A)


async def test_second_process_on_the_same_record_is_refused(path):
    journal = await AttemptJournal.open(path)
    with pytest.raises(StoreError, match="another device process uses it"):
        await AttemptJournal.open(path)
    assert await journal.begin(A) == Fresh()
    await journal.close()


async def test_damaged_record_is_an_error_and_stays(path):
    path.parent.mkdir()
    path.write_bytes(b"not a database " * 1_000)
    with pytest.raises(StoreError, match="damaged"):
        await AttemptJournal.open(path)
    assert path.read_bytes().startswith(b"not a database")


async def test_newer_record_is_refused(path):
    journal = await AttemptJournal.open(path)
    await journal.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="schema version 99"):
        await AttemptJournal.open(path)


async def test_directory_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="Could not create"):
        await AttemptJournal.open(tmp_path / "file" / "attempts.db")


async def test_what_waits_shares_one_commit_and_results_do_not_wait_for_starts(path):
    journal = await AttemptJournal.open(path)
    await journal.begin(A)
    statements, gate = [], threading.Event()
    journal._connection.set_trace_callback(statements.append)
    journal._thread.submit(gate.wait)
    starts = [asyncio.ensure_future(journal.begin(AttemptId(f"t:{number}"))) for number in range(20)]
    result = asyncio.ensure_future(journal.finish(A, 1))
    await asyncio.sleep(0)
    journal.acknowledge(A)
    gate.set()
    assert await asyncio.gather(*starts) == [Fresh()] * 20
    await result
    commits = [number for number, statement in enumerate(statements) if statement == "COMMIT"]
    assert len(commits) == 2
    assert ["UPDATE" in statement for statement in statements[: commits[0]]].count(True) == 2
    assert statements[0] == "PRAGMA synchronous=NORMAL"
    assert statements[commits[0] + 1] == "PRAGMA synchronous=FULL"
    await journal.close()


async def test_one_that_cannot_be_recorded_does_not_fail_what_waits_with_it(path):
    journal = await AttemptJournal.open(path)
    await journal.begin(A)
    gate = threading.Event()
    journal._thread.submit(gate.wait)
    asked = [
        asyncio.ensure_future(work)
        for work in (
            journal.finish(A, "a"),
            journal.finish(B, "never begun"),
            journal.begin(AttemptId("t:1")),
            journal.begin(AttemptId("no text: \udcff")),
            journal.begin(AttemptId("t:2")),
        )
    ]
    await asyncio.sleep(0)
    asked[-1].cancel()
    await asyncio.sleep(0)
    gate.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), Bug, Fresh, UnicodeEncodeError, asyncio.CancelledError]
    assert await journal.begin(A) == Finished("a")
    assert await journal.begin(AttemptId("t:1")) == Attached()
    assert await journal.begin(AttemptId("t:2")) == Fresh(), "cancelled before its turn"
    await journal.close()


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "finish", "acknowledge"]), st.integers(0, 5)), max_size=30)


async def lived(path, steps):
    """Do the steps one by one; return the file, its log, what was begun and finished, and how much surely is on disk.

    What is not flushed is counted as lost: the log behind the last start.
    """
    journal = await AttemptJournal.open(path)
    log = path.with_name(f"{path.name}-wal")
    begun, finished, on_disk = set(), {}, log.stat().st_size
    for number, (step, name) in enumerate(steps):
        attempt = AttemptId(f"t:{name}")
        match step:
            case "begin" if attempt not in begun:
                assert await journal.begin(attempt) == Fresh()
                begun.add(attempt)
                on_disk, sure = log.stat().st_size, dict(finished)
            case "finish" if attempt in begun:
                await journal.finish(attempt, number)
                finished.setdefault(attempt, number)
            case "acknowledge":
                journal.acknowledge(attempt)
    files = path.read_bytes(), log.read_bytes()
    await journal.close()
    return files, begun, finished, sure if begun else {}, on_disk


async def known_after(path, files, attempts):
    """Return what a new process on these files knows of the attempts."""
    path.parent.mkdir()
    path.write_bytes(files[0])
    path.with_name(f"{path.name}-wal").write_bytes(files[1])
    journal = await AttemptJournal.open(path)
    known = {attempt: await journal.begin(attempt) for attempt in attempts}
    await journal.close()
    return known


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, place=st.floats(0, 1), zeros=st.booleans())
def test_after_a_power_cut_nothing_that_was_begun_is_fresh_and_after_a_kill_no_result_is_lost(steps, place, zeros):
    with tempfile.TemporaryDirectory() as folder:
        files, begun, finished, sure, on_disk = asyncio.run(lived(Path(folder) / "lived" / "a.db", steps))
        killed = asyncio.run(known_after(Path(folder) / "killed" / "a.db", files, begun))
        cut = on_disk + int(place * (len(files[1]) - on_disk))
        torn = files[1][:cut] + bytes(len(files[1]) - cut if zeros else 0)
        known = asyncio.run(known_after(Path(folder) / "cut" / "a.db", (files[0], torn), begun))
    assert killed == {one: Finished(finished[one]) if one in finished else Interrupted() for one in begun}
    for attempt, found in known.items():
        assert found in (Interrupted(), Finished(finished.get(attempt)))
        assert attempt not in sure or found == Finished(sure[attempt])


WORKER = """
import asyncio, sys
from pathlib import Path
from starloom.device.attempts import AttemptJournal, Fresh, Interrupted

async def main(path, effects):
    journal = await AttemptJournal.open(Path(path))
    number = 0
    while True:
        attempt = f"run:t{number}:1"
        begun = await journal.begin(attempt)
        if begun == Fresh():
            with open(effects, "a") as file:
                file.write(attempt + "\\n")
            await journal.finish(attempt, number)
            print(attempt, flush=True)
        number += 1

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.chaos
async def test_killed_device_never_acts_twice_and_never_loses_a_result(path, tmp_path):
    effects = tmp_path / "effects.txt"
    finished: list[str] = []
    rounds = 60 if os.environ.get("STARLOOM_CHAOS") == "long" else 6
    for round_number in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(effects)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(1 + 7 * (round_number % 5)):
            finished.append(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        finished.extend(line for line in rest.split("\n")[:-1] if line)
    done = effects.read_text().split()
    assert len(done) == len(set(done))
    assert set(finished) <= set(done)
    journal = await AttemptJournal.open(path)
    outbox = {one.attempt_id: one.ended for one in await journal.unacknowledged()}
    await journal.close()
    assert all(isinstance(outbox[AttemptId(attempt)], Finished) for attempt in finished)
    assert sum(ended == Interrupted() for ended in outbox.values()) <= rounds
    assert set(done) <= set(outbox)


def test_record_of_attempts_needs_only_the_standard_library():
    code = (
        "import sys; import starloom.device.attempts; "
        "print([n for n in sys.modules if n.split('.')[0] not in sys.stdlib_module_names and n != '__main__'])"
    )
    source = str(Path(starloom.__file__).parent.parent)
    command = [sys.executable, "-S", "-c", "import sys; sys.path[:0] = sys.argv[1:]; " + code, source]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    modules = [name for name in eval(output) if not name.startswith("starloom")]
    assert modules == []


FAILED_FLUSH = """
import asyncio, sys
from pathlib import Path
from starloom.device.attempts import AttemptJournal
from starloom.errors import StoreError

async def main(path):
    journal = await AttemptJournal.open(path)
    for number in range(9):
        try:
            begun = await journal.begin(f"t:{number}")
        except StoreError as error:
            begun = error.message
        print(begun)
    await journal.finish("t:0", 1)
    await journal.close()

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_after_a_flush_that_failed_nothing_is_begun_until_the_device_is_started_again(path, tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    await (await AttemptJournal.open(path)).close()  # a file that is there is opened with fewer flushes
    faults = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=6"]  # counted for each thread
    command = ["strace", "-f", "-o", str(tmp_path / "trace"), *faults, sys.executable, "-c", FAILED_FLUSH, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode and "ptrace" in done.stderr.lower():
        pytest.skip("needs the right to trace")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    begun = lines.count("Fresh()")
    assert 0 < begun < len(lines) - 1
    assert lines[:begun] == ["Fresh()"] * begun
    assert "check that" in lines[begun]
    assert all("start this device again" in line for line in lines[begun + 1 :])
    journal = await AttemptJournal.open(path)
    found = [await journal.begin(AttemptId(f"t:{number}")) for number in range(len(lines))]
    assert found == [Finished(1), *[Interrupted()] * (begun - 1), *[Fresh()] * (len(lines) - begun)]
    await journal.close()


FULL_DISK = """
import asyncio, sys
from pathlib import Path
from starloom.aip.device import CommandAsked
from starloom.aip.messages import Command, ResultStatus, TaskStatus
from starloom.device.attempts import AttemptJournal
from starloom.device.runner import CommandRunner
from starloom.safety.policy import Risk
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Toolset, tool

async def main(folder):
    attempts = await AttemptJournal.open(folder / "attempts.sqlite")
    done, refused = [], []

    def act() -> str:
        done.append("acted")
        return "done"

    router = ToolRouter([Toolset("a", (tool(act, name="a.act", risk=Risk.WRITE, description="Act."),))])
    answers = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        runner = CommandRunner(
            router, group, progress=lambda *_: None, max_in_flight=1, max_waiting=1, attempts=attempts
        )

        async def ask(attempt_id):
            action = Command(tool_name="a.act", tool_type="action", parameters={}, call_id=attempt_id)
            command = CommandAsked(attempt_id, None, TaskStatus.CONTINUE, (action,), once=True)
            runner.start(command, lambda _, results: answers.put_nowait(results))
            [result] = await answers.get()
            return result

        for number in range(300):  # what is free on the disk is used up first
            before = len(done)
            result = await ask(f"run_1:t{number}:1")
            if result.status is ResultStatus.FAILURE:
                assert "the disk is full" in result.error, result.error
                assert len(done) == before, "done without a record"
                refused.append(f"run_1:t{number}:1")
        print(len(done), len(refused), flush=True)
        sys.stdin.readline()
        for attempt_id in refused:
            assert (await ask(attempt_id)).status is ResultStatus.SUCCESS
        print(len(done), flush=True)
    await attempts.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_on_a_full_disk_an_attempt_is_refused_before_it_begins_and_begins_when_there_is_space(small_disk):
    disk = small_disk(400)
    command = disk.command(sys.executable, "-c", FULL_DISK, str(disk.path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as device:
        done, refused = map(int, device.stdout.readline().split())
        assert done > 0
        assert refused > 0
        assert done + refused == 300
        disk.grow(10_000)
        device.stdin.write("go on\n")
        device.stdin.flush()
        assert int(device.stdout.readline()) == 300
    assert device.returncode == 0
