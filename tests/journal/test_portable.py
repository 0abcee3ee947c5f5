import gzip
import hashlib
import json

import pytest

from starloom.clock import ManualClock
from starloom.errors import StoreError, UsageError
from starloom.ids import RunId
from starloom.journal.artefacts import MemoryArtefacts
from starloom.journal.events import RunEnded, RunStarted, TaskCompleted, TaskReady
from starloom.journal.memory import MemoryJournal
from starloom.journal.portable import Portable, export_run, import_run
from starloom.journal.sqlite import SqliteJournal

RUN = RunId("run_1")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def journal(tmp_path, clock):
    store = await SqliteJournal.open(tmp_path / "here" / "journal.db", clock)
    yield store
    await store.close()


@pytest.fixture
async def other(tmp_path, clock):
    store = await SqliteJournal.open(tmp_path / "there" / "journal.db", clock)
    yield store
    await store.close()


async def fill(journal, clock, artefact=None):
    await journal.append(RUN, [RunStarted("sum 考虑")], keys=["start"])
    for start in range(0, 2_500, 100):
        clock.advance(0.25)
        numbers = range(start, start + 100)
        files = [artefact.to_json() if artefact and number == 7 else None for number in numbers]
        events = [
            TaskCompleted(f"t{number}", 1, {"n": number, "x": 0.1 + number, "file": file})
            for number, file in zip(numbers, files, strict=True)
        ]
        await journal.append(RUN, events, keys=[f"end:{number}" for number in numbers])
    await journal.append(RUN, [RunEnded("finished", result="surrogate \udcff")])


async def test_run_comes_back_the_same(journal, other, clock, tmp_path):
    here, there = MemoryArtefacts(), MemoryArtefacts()
    ref = await here.put(b"a screenshot")
    await fill(journal, clock, ref)
    file = tmp_path / "run.jsonl.gz"
    assert await export_run(journal, RUN, file, here) == Portable(RUN, 2_502, 1)
    await other.append(RunId("before"), [RunStarted("before")])
    assert await import_run(other, file, there) == Portable(RUN, 2_502, 1)
    assert await other.read(RUN) == await journal.read(RUN)
    assert await other.run(RUN) == await journal.run(RUN)
    assert await there.get(ref.hash) == b"a screenshot"
    assert await other.append(RUN, [TaskReady("t")], keys=["end:3"]) == ()
    again = tmp_path / "again.jsonl.gz"
    await export_run(other, RUN, again, there)
    assert again.read_bytes() == file.read_bytes()


async def test_run_of_the_memory_journal_can_be_exported(other, clock, tmp_path):
    memory = MemoryJournal(clock)
    await memory.append(RUN, [RunStarted("go"), TaskReady("t")])
    await export_run(memory, RUN, tmp_path / "run.gz")
    await import_run(other, tmp_path / "run.gz", as_run_id=RunId("copy"))
    assert [one.event for one in await other.read(RunId("copy"))] == [RunStarted("go"), TaskReady("t")]


async def test_unknown_run_is_not_exported(journal, tmp_path):
    with pytest.raises(UsageError, match="no run 'run_1'"):
        await export_run(journal, RUN, tmp_path / "run.gz")
    assert not (tmp_path / "run.gz").exists()


async def test_place_that_cannot_be_written_is_an_error(journal, clock, tmp_path):
    await journal.append(RUN, [RunStarted("go")])
    with pytest.raises(StoreError, match="Could not write"):
        await export_run(journal, RUN, tmp_path / "missing" / "run.gz")


async def test_run_that_is_there_is_not_imported_over(journal, tmp_path):
    await journal.append(RUN, [RunStarted("go")])
    await export_run(journal, RUN, tmp_path / "run.gz")
    before = await journal.read(RUN)
    with pytest.raises(UsageError, match="already holds a run"):
        await import_run(journal, tmp_path / "run.gz")
    assert await journal.read(RUN) == before


async def test_imported_run_has_no_owner(journal, other, tmp_path):
    await journal.append(RUN, [RunStarted("go")])
    await journal.take(RUN)
    await export_run(journal, RUN, tmp_path / "run.gz")
    await import_run(other, tmp_path / "run.gz")
    assert await other.take(RUN) == 1


def rewritten(source, change) -> list[dict]:
    lines = [json.loads(line) for line in gzip.decompress(source.read_bytes()).splitlines()]
    change(lines)
    source.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    return lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[1]["body"].update(request="other"), "another hash"),
        (lambda lines: lines.pop(), "its end is missing"),
        (lambda lines: lines.pop(2), "event 2 is missing|another hash"),
        (lambda lines: lines.append({"seq": 9}), "another hash"),
        (lambda lines: lines[0].update(events=9), "another hash"),
        (lambda lines: lines[0].update(format="tar"), "not an exported run"),
        (lambda lines: lines[0].update(schema_version=99), "newer Starloom"),
        (lambda lines: lines[1].pop("kind"), "not as it must be"),
        (lambda lines: lines[1].update(kind="dreamt"), "unknown kind"),
        (lambda lines: lines.insert(1, {"artefact": "sha256:00", "base64": ""}), "another hash"),
        (lambda lines: lines.clear(), "its end is missing"),
    ],
)
async def test_changed_file_is_refused_and_nothing_is_imported(journal, other, tmp_path, change, said):
    await journal.append(RUN, [RunStarted("go"), TaskReady("a"), TaskReady("b")])
    file = tmp_path / "run.gz"
    await export_run(journal, RUN, file)
    rewritten(file, change)
    with pytest.raises(StoreError, match=said):
        await import_run(other, file)
    assert await other.runs() == ()


@pytest.mark.parametrize("content", [b"", b"no gzip", None])
async def test_file_that_is_cut_or_no_gzip_is_refused(journal, other, tmp_path, content):
    await journal.append(RUN, [RunStarted("go")])
    file = tmp_path / "run.gz"
    await export_run(journal, RUN, file)
    file.write_bytes(file.read_bytes()[:60] if content is None else content)
    with pytest.raises(StoreError, match="damaged"):
        await import_run(other, file)
    with pytest.raises(StoreError, match="Could not read"):
        await import_run(other, tmp_path / "missing.gz")


async def test_file_with_a_key_twice_is_refused(journal, other, tmp_path):
    await journal.append(RUN, [RunStarted("go"), TaskReady("a")], keys=["a", "b"])
    file = tmp_path / "run.gz"
    await export_run(journal, RUN, file)

    def change(lines):
        lines[2]["key"] = "a"
        whole = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
        lines[-1]["sha256"] = hashlib.sha256(whole).hexdigest()

    rewritten(file, change)
    with pytest.raises(StoreError, match="occurs twice"):
        await import_run(other, file)
    assert await other.runs() == ()
