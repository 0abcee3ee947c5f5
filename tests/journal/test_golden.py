"""The stored form of every event, per schema version, as files.

A test that fails here means: the stored form has changed. When only fields with defaults were added, run this file as
a program: it writes the new form beside the old one (`kind.json`, `kind-2.json` …), and all of them must load for ever.
For any other change raise `SCHEMA_VERSION`, keep the old files, teach `decode` to read them, and run this file. (An
event that no release has had yet may still change: remove its file, and `journal-vN.sqlite` and `run-vN.jsonl.gz`.)
"""

import asyncio
import json
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from starloom.clock import ManualClock
from starloom.ids import RunId
from starloom.journal.artefacts import MemoryArtefacts
from starloom.journal.codec import dumps
from starloom.journal.events import (
    SCHEMA_VERSION,
    AgentAction,
    AgentResponse,
    ApprovalAnswered,
    ApprovalAsked,
    ConstellationCompleted,
    ConstellationFailed,
    ConstellationStarted,
    CostRecorded,
    DeviceConnected,
    DeviceDisconnected,
    DeviceStatusChanged,
    EdgeDecided,
    EditApplied,
    EditRefused,
    Event,
    PlanProposed,
    QuestionAnswered,
    QuestionAsked,
    RunCancelled,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskReady,
    TaskRetrying,
    TaskStarted,
    TaskWaiting,
    decode,
)
from starloom.journal.portable import export_run, import_run
from starloom.journal.rows import to_rows
from starloom.journal.sqlite import SqliteJournal

RUN = RunId("run_golden")

GOLDEN = Path(__file__).parent / "golden"
CURRENT = GOLDEN / f"v{SCHEMA_VERSION}"

EXAMPLES: tuple[Event, ...] = (
    RunStarted("总结 the invoices", "recipe", {"month": "2026-10", "limit": 3}),
    RunPaused("rule"),
    RunResumed("recovery"),
    RunCancelled("rule", "changed my mind"),
    RunEnded("finished", "COMPLETED", "no error", {"total": 1234.56, "files": ["totals.xlsx"]}, "0f" * 32),
    ConstellationStarted("constellation_1", "invoices"),
    EditApplied(4, [{"command": "add_task", "task": {"task_id": "a"}}], "planner", "first plan", 3, "redo"),
    EditRefused([{"command": "remove_task", "task_id": "a"}], "user", "task 'a' has started"),
    ConstellationCompleted("constellation_1", "completed", {"total_tasks": 3}),
    ConstellationFailed("constellation_1", "failed", "no device", {"total_tasks": 3}),
    TaskReady("a"),
    TaskWaiting("a", "no device has the tool 'sheets.write'"),
    TaskStarted("a", 2, "run_1:a:2", "device-north"),
    TaskCompleted("a", 2, {"rows": [1, 2.5, None, True]}),
    TaskFailed("a", 2, "the file is gone", True),
    TaskCancelled("a", "unreachable", "line 'b' cannot be satisfied"),
    TaskRetrying("a", 1, "timed out", 0.5),
    EdgeDecided("line_1", False, "unknown name 'x'"),
    DeviceConnected("device-north", "linux"),
    DeviceDisconnected("device-north", "the socket closed"),
    DeviceStatusChanged("device-north", "busy"),
    PlanProposed(["collect north"], "small-model", ["no device for 'c'"], {"tasks": {"a": {"task_id": "a"}}}),
    AgentResponse(
        "HostAgent",
        3,
        {"thought": "open it", "action": {"tool": "files.read"}},
        "a",
        screen="0f3c",
        suspicions=["orders"],
        withheld=True,
    ),
    AgentAction(
        "HostAgent",
        "files.read",
        {"path": "x.txt"},
        "allow",
        "failure",
        "a",
        "device-north",
        "not found",
        step=3,
        index=1,
        result="two lines",
    ),
    CostRecorded("planner", "small-model", 812, 64, 0.0012, "a", 512, 128, 32, 100, is_estimated=True),
    QuestionAsked("question_1", "Which month?", "a"),
    QuestionAnswered("question_1", "October", "rule"),
    ApprovalAsked("approval_1", "0f3c", "files.delete", {"path": "x.txt"}, "device-north", "it deletes", "a"),
    ApprovalAnswered("approval_1", True, "rule", "only this once"),
)


def golden(event: Event) -> dict:
    (row,) = to_rows([event], (), datetime(2026, 1, 1, tzinfo=UTC))
    return {"version": SCHEMA_VERSION, "kind": row.kind, "body": json.loads(row.body)}


def forms(kind: str) -> list[Path]:
    """Return the files of an event's stored forms in this version, the newest last."""
    later = sorted(CURRENT.glob(f"{kind}-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return [CURRENT / f"{kind}.json", *later]


def kind_of(path: Path) -> str:
    return path.stem.partition("-")[0]


def text_of(record: dict) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_stored_form_is_the_golden_one(event):
    assert forms(event.kind)[-1].read_text(encoding="utf-8") == text_of(golden(event)), (
        f"the stored form of {event.kind!r} has changed; write its new golden file (see above)"
    )


def test_every_event_has_an_example_and_a_file_and_no_file_is_left_over():
    kinds = {member.kind for member in get_args(Event)}
    assert {event.kind for event in EXAMPLES} == kinds
    assert {kind_of(path) for path in CURRENT.glob("*.json")} == kinds


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_example_leaves_no_field_at_its_default(event):
    """A field at its default would hide a change of that default or of its type."""
    required = {name: getattr(event, name) for name in event.__slots__ if name not in _defaults(type(event))}
    bare = type(event)(**required)
    assert [name for name in _defaults(type(event)) if getattr(bare, name) == getattr(event, name)] == []


def test_events_of_every_version_still_decode():
    paths = sorted(GOLDEN.glob("v*/*.json"))
    assert paths
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        assert decode(record["kind"], record["body"]).kind == kind_of(path)


def test_golden_file_decodes_to_the_example():
    for event in EXAMPLES:
        record = json.loads(forms(event.kind)[-1].read_text(encoding="utf-8"))
        assert decode(record["kind"], record["body"]) == event
        assert dumps(record["body"]) == dumps(golden(event)["body"])


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_journal_file_of_every_version_still_loads(version, tmp_path):
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / f"journal-v{version}.sqlite", path)
    journal = await SqliteJournal.open(path, ManualClock())
    recorded = await journal.read(RUN)
    assert [one.seq for one in recorded] == list(range(1, len(recorded) + 1))
    if version == SCHEMA_VERSION:
        first = [json.loads(forms(event.kind)[0].read_text(encoding="utf-8")) for event in EXAMPLES]
        assert [one.event for one in recorded] == [decode(record["kind"], record["body"]) for record in first]
    assert await journal.append(RUN, [TaskReady("a")], keys=["key 1"]) == ()
    await journal.close()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_exported_run_of_every_version_still_imports(version, tmp_path):
    journal = await SqliteJournal.open(tmp_path / "journal.db", ManualClock())
    found = await import_run(journal, GOLDEN / f"run-v{version}.jsonl.gz", MemoryArtefacts())
    recorded = await journal.read(RUN)
    assert (found.events, found.artefacts) == (len(recorded), 1)
    assert recorded[0].at == ManualClock().now()
    await journal.close()


def _defaults(member: type) -> list[str]:
    import dataclasses

    return [
        item.name
        for item in dataclasses.fields(member)
        if item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
    ]


async def write_files(directory: Path) -> None:
    """Write this version's journal and exported run, where they do not exist."""
    journal_file, run_file = (GOLDEN / f"journal-v{SCHEMA_VERSION}.sqlite", GOLDEN / f"run-v{SCHEMA_VERSION}.jsonl.gz")
    artefacts = MemoryArtefacts()
    ref = await artefacts.put(b"an artefact")
    journal = await SqliteJournal.open(directory / "journal.db", ManualClock())
    keys = [f"key {number}" for number in range(1, len(EXAMPLES) + 1)]
    await journal.append(RUN, EXAMPLES, keys=keys)
    other = await SqliteJournal.open(directory / "other" / "journal.db", ManualClock())
    await other.append(RUN, [*EXAMPLES, TaskCompleted("b", 1, ref.to_json())], keys=[*keys, None])
    if not run_file.exists():
        await export_run(other, RUN, run_file, artefacts)
    await journal.close()
    await other.close()
    if not journal_file.exists():
        shutil.copy(directory / "journal.db", journal_file)


if __name__ == "__main__":
    CURRENT.mkdir(parents=True, exist_ok=True)
    for one in EXAMPLES:
        known = [path for path in forms(one.kind) if path.exists()]
        if not known or known[-1].read_text(encoding="utf-8") != text_of(golden(one)):
            name = f"{one.kind}-{len(known) + 1}.json" if known else f"{one.kind}.json"
            (CURRENT / name).write_text(text_of(golden(one)), encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(write_files(Path(temporary)))
