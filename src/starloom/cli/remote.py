"""A run in a hub of another process: submit it, follow its events, answer from this terminal.

Called by `run` and `resume` when a hub is running. Ctrl-C cancels the run in the hub.
"""

import contextlib
import json
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starloom.cli import terminal
from starloom.cli.console import JsonView, RunView, exit_code
from starloom.cli.hub_client import HubClient
from starloom.errors import StoreError, UsageError
from starloom.journal import events as e
from starloom.journal.events import Recorded, decode
from starloom.safety.provenance import visible


def run_remotely(hub: HubClient, body: dict[str, Any], view: RunView | JsonView) -> int:
    """Submit a run to the hub and follow it to its end; return the exit code."""
    return follow_remotely(hub, hub.post("/api/runs", body)["run_id"], view)


def follow_remotely(hub: HubClient, run_id: str, view: RunView | JsonView) -> int:
    """Follow a run of the hub to its end; return the exit code."""
    path = f"/api/runs/{quote(run_id, safe='')}"
    closed = {_closed_by(row) for row in hub.lines(f"{path}/events?follow=false")}  # in an earlier life of the run
    try:
        with view:
            for row in hub.lines(f"{path}/events"):
                recorded = Recorded(
                    row["run_id"], row["seq"], datetime.fromisoformat(row["at"]), decode(row["kind"], row["event"])
                )
                view.show(recorded)
                if _asked_by(row) not in closed:
                    _answer(hub, recorded.event, view)
                if isinstance(recorded.event, e.RunEnded):
                    return exit_code(recorded.event.stop_reason)
    except KeyboardInterrupt:
        hub.post(f"{path}/cancel")
        raise
    raise StoreError(
        f"The hub cannot go on with run {run_id}, and has said why in its log; nothing is lost. When that is mended: "
        f"starloom resume {run_id}",
        run_id=run_id,
    )


def _closed_by(row: dict[str, Any]) -> str | None:
    """Return the id of the approval or question that an event answers."""
    return _asked_by(row) if row["kind"].endswith("_answered") else None


def _asked_by(row: dict[str, Any]) -> str:
    return str(row["event"].get("approval_id") or row["event"].get("question_id") or "")


def _answer(hub: HubClient, event: e.Event, view: RunView | JsonView) -> None:
    if isinstance(view, JsonView) or not terminal.someone_is_there():
        return  # the page, or another terminal, can answer
    with contextlib.suppress(UsageError):  # answered in an earlier life of the run, or on the page meanwhile
        _answer_here(hub, event, view)


def _answer_here(hub: HubClient, event: e.Event, view: RunView) -> None:
    match event:
        case e.ApprovalAsked(
            approval_id=approval_id, tool=tool, device_id=device_id, arguments=arguments, reason=reason
        ):
            shown = json.dumps(arguments, ensure_ascii=False)
            prompt = f"? {tool} on {device_id}: {shown}\n  {reason}\n  Allow this? [y/N] "
            hub.post(f"/api/approvals/{quote(approval_id, safe='')}", {"approved": terminal.is_yes(_ask(view, prompt))})
        case e.QuestionAsked(question_id=question_id, question=question):
            hub.post(f"/api/questions/{quote(question_id, safe='')}", {"answer": _ask(view, f"? {question} ")})
        case _:
            pass


def _ask(view: RunView, prompt: str) -> str:
    view.hold()
    try:
        return input(visible(prompt))
    except EOFError:
        return ""
    finally:
        view.go_on()
