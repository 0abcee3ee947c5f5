"""What the terminal shows of foreign text is text."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from starloom.cli.console import RunView, plain
from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.llm.port import Progress

EVIL = "\x1b[2J\u202e[red]x\x07\u200b"


@pytest.mark.parametrize(
    "event",
    [
        e.RunStarted(EVIL),
        e.PlanProposed([EVIL], EVIL, [EVIL]),
        e.EditApplied(1, [{"command": "add_task", "task": {"task_id": "a", "name": EVIL}}], "user"),
        e.TaskStarted("a", 1, "a:1", EVIL),
        e.TaskWaiting("a", EVIL),
        e.TaskCompleted("a", 1, {"path": EVIL}),
        e.TaskFailed("a", 1, EVIL),
        e.TaskRetrying("a", 1, EVIL),
        e.TaskCancelled("a", EVIL, EVIL),
        e.DeviceDisconnected(EVIL, EVIL),
        e.ApprovalAnswered("p", approved=True, by=EVIL),
        e.RunEnded(EVIL, error=EVIL),
    ],
    ids=lambda event: event.kind,
)
def test_an_event_cannot_move_the_cursor_hide_or_colour_anything(event):
    out = io.StringIO()
    view = RunView(Console(file=out, force_terminal=False, width=200))
    view.show(
        Recorded(
            "r",
            1,
            datetime.now(UTC),
            e.EditApplied(1, [{"command": "add_task", "task": {"task_id": "a", "name": EVIL}}], "user"),
        )
    )
    view.show(Recorded("r", 2, datetime.now(UTC), event))
    assert not set(out.getvalue()) & set("\x1b\u202e\x07\u200b")


def test_the_waiting_line_says_how_far_the_models_are():
    view = RunView(Console(file=io.StringIO(), force_terminal=False))
    now: dict[str, Progress] = {"": Progress("big[red]")}
    view.watch(lambda: now)
    assert view.waiting() == "planning … (big\\[red] thinks)"
    now[""] = Progress("big", 12, is_thinking=True)
    assert view.waiting() == "planning … (big thinks, 12 tokens)"
    now[""] = Progress("big", 40)
    assert view.waiting() == "planning … (big writes, 40 tokens)"
    view.show(Recorded("r", 1, datetime.now(UTC), e.EditApplied(1, [], "planner")))
    assert view.waiting() == ""
    view.show(Recorded("r", 2, datetime.now(UTC), e.TaskStarted("a", 1, "a:1", "hub")))
    view.show(Recorded("r", 3, datetime.now(UTC), e.TaskStarted("b", 1, "b:1", "hub")))
    now["b"] = Progress("small", 3)
    assert view.waiting() == "running: a on hub, b on hub (small writes, 3 tokens)"


def test_square_brackets_are_shown_as_they_are():
    out = io.StringIO()
    RunView(Console(file=out, force_terminal=False)).say("[red]x[/] a[0]")
    assert out.getvalue() == "[red]x[/] a[0]\n"


def test_plain_text_is_left_alone():
    assert plain("Lindqvist & Söhne, 汇总\tEUR 3") == "Lindqvist & Söhne, 汇总\tEUR 3"
