"""What counts after a restart of what people were asked before."""

from datetime import UTC, datetime

from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.session.recall import recall

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def after(*events):
    return recall([Recorded(RunId("run_1"), seq, NOW, event) for seq, event in enumerate(events, start=1)])


STARTED = e.TaskStarted("a", 1, "run_1:a:1", "hub")
ASKED = e.ApprovalAsked("approval_1", "hash", "shell.run", {}, "hub", "why", "a")


def test_an_open_approval_is_remembered_and_holds_its_task():
    past = after(STARTED, ASKED)
    assert past.approvals["a", "hash"].approval_id == "approval_1"
    assert past.waits_for_approval("a")


def test_an_answer_is_remembered_and_holds_no_task():
    past = after(STARTED, ASKED, e.ApprovalAnswered("approval_1", True, "ada"))
    assert past.approvals["a", "hash"].answer.approved
    assert not past.waits_for_approval("a")


def test_what_an_attempt_asked_is_void_when_it_is_over():
    for end in (e.TaskRetrying("a", 1, "no"), e.TaskCompleted("a", 1), e.TaskStarted("a", 2, "run_1:a:2", "hub")):
        past = after(STARTED, ASKED, e.QuestionAsked("question_1", "really?", "a"), end)
        assert (past.approvals, past.questions) == ({}, {})


def test_a_question_about_the_run_outlives_its_tasks():
    past = after(e.QuestionAsked("question_1", "Run this plan?"), STARTED, e.TaskCompleted("a", 1))
    assert past.questions["", "Run this plan?"].answer is None


def test_what_an_agent_asked_for_a_step_is_void_at_the_next():
    asked = (
        STARTED,
        ASKED,
        e.ApprovalAnswered("approval_1", True, "ada"),
        e.QuestionAsked("question_1", "which?", "a"),
    )
    past = after(*asked, e.AgentAction("A", "shell.run", {}, "allow", "success", "a", step=1))
    assert (len(past.approvals), len(past.questions)) == (1, 1)
    past = after(*asked, e.AgentResponse("A", 2, {}, "a"))
    assert (past.approvals, past.questions) == ({}, {})
