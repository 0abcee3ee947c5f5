"""The stored form of every event, per schema version, as files.

A test that fails here means: the stored form has changed. Raise `SCHEMA_VERSION`, keep the old files, teach `decode`
to read them, and run this file as a program to write the new ones.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

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
from starloom.journal.rows import to_rows

GOLDEN = Path(__file__).parent / "golden"
CURRENT = GOLDEN / f"v{SCHEMA_VERSION}"

EXAMPLES: tuple[Event, ...] = (
    RunStarted("总结 the invoices", "recipe", {"month": "2026-10", "limit": 3}),
    RunPaused("rule"),
    RunResumed("recovery"),
    RunCancelled("rule", "changed my mind"),
    RunEnded("finished", "COMPLETED", "no error", {"total": 1234.56, "files": ["totals.xlsx"]}),
    ConstellationStarted("constellation_1", "invoices"),
    EditApplied(4, [{"command": "add_task", "task": {"task_id": "a"}}], "planner", "first plan", 3),
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
    PlanProposed(["collect north", "collect south"], "small-model", ["no device for 'c'"]),
    AgentResponse("HostAgent", 3, {"thought": "open it", "action": {"tool": "files.read"}}, "a"),
    AgentAction("HostAgent", "files.read", {"path": "x.txt"}, "allow", "failure", "a", "device-north", "not found"),
    CostRecorded("planner", "small-model", 812, 64, 0.0012, "a"),
    QuestionAsked("question_1", "Which month?", "a"),
    QuestionAnswered("question_1", "October", "rule"),
    ApprovalAsked("approval_1", "0f3c", "files.delete", {"path": "x.txt"}, "device-north", "it deletes", "a"),
    ApprovalAnswered("approval_1", True, "rule", "only this once"),
)


def golden(event: Event) -> dict:
    (row,) = to_rows([event], (), datetime(2026, 1, 1, tzinfo=UTC))
    return {"version": SCHEMA_VERSION, "kind": row.kind, "body": json.loads(row.body)}


def text_of(record: dict) -> str:
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_stored_form_is_the_golden_one(event):
    path = CURRENT / f"{event.kind}.json"
    assert path.read_text(encoding="utf-8") == text_of(golden(event)), (
        f"the stored form of {event.kind!r} has changed; raise SCHEMA_VERSION and write new golden files"
    )


def test_every_event_has_an_example_and_a_file_and_no_file_is_left_over():
    kinds = {member.kind for member in get_args(Event)}
    assert {event.kind for event in EXAMPLES} == kinds
    assert {path.stem for path in CURRENT.glob("*.json")} == kinds


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
        assert decode(record["kind"], record["body"]).kind == path.stem


def test_golden_file_decodes_to_the_example():
    for event in EXAMPLES:
        record = json.loads((CURRENT / f"{event.kind}.json").read_text(encoding="utf-8"))
        assert decode(record["kind"], record["body"]) == event
        assert dumps(record["body"]) == dumps(golden(event)["body"])


def _defaults(member: type) -> list[str]:
    import dataclasses

    return [
        item.name
        for item in dataclasses.fields(member)
        if item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
    ]


if __name__ == "__main__":
    CURRENT.mkdir(parents=True, exist_ok=True)
    for one in EXAMPLES:
        (CURRENT / f"{one.kind}.json").write_text(text_of(golden(one)), encoding="utf-8")
