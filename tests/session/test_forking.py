"""With what a fork begins."""

from datetime import UTC, datetime

import pytest

from starloom.errors import UsageError
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.session.forking import forked

RUN = RunId("run_1")
NOW = datetime(2026, 11, 30, tzinfo=UTC)
EVENTS = (
    e.RunStarted("go", parameters={"confirm_plan": True}),
    e.EditApplied(1, [], "import"),
    e.TaskStarted("a", 1, "run_1:a:1", "hub"),
    e.TaskCompleted("a", 1, 7),
    e.TaskStarted("b", 1, "run_1:b:1", "hub"),
    e.ApprovalAsked("approval_1", "hash", "shell.run", {}, "hub", "why", "b"),
    e.TaskRetrying("b", 1, "no"),
    e.TaskStarted("b", 2, "run_1:b:2", "hub"),
    e.RunCancelled(),
    e.TaskCancelled("b", "run_cancelled"),
    e.ConstellationFailed("c", "cancelled"),
    e.RunEnded("cancelled"),
)
RECORDED = [Recorded(RUN, seq, NOW, event) for seq, event in enumerate(EVENTS, start=1)]


def test_what_had_ended_is_kept_and_what_was_running_has_not_begun():
    kept = forked(RUN, RECORDED, 8)
    assert kept[0].parameters == {"confirm_plan": True, "forked_from": "run_1", "forked_at": 8}
    assert kept[1:] == [*EVENTS[1:5], EVENTS[6]]


def test_the_end_of_the_old_run_is_not_the_forks():
    assert {event.kind for event in forked(RUN, RECORDED, 12)} == {
        "run_started",
        "edit_applied",
        "task_started",
        "task_completed",
        "task_retrying",
    }


@pytest.mark.parametrize(("at", "words"), [(0, "1 to 12"), (13, "1 to 12"), (1, "no graph")])
def test_a_point_that_is_none_is_refused(at, words):
    with pytest.raises(UsageError, match=words):
        forked(RUN, RECORDED, at)
