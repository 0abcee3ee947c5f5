"""The hub's routes that change a run: edits, undo, redo, cancel and people's answers.

Added by `hub.app`, behind its check of the hub's key. Each takes an `Idempotency-Key`, good for one run: a program that
lost the reply sends the same again and gets the same reply; the change is made once, over restarts too. The same key
with another request is refused with 422. Source: the IETF's draft of the header field of that name.
"""

import hashlib
import json
from typing import Annotated, Any

from fastapi import FastAPI, Header
from pydantic import Field

from starloom.hub.bodies import Body
from starloom.ids import ApprovalId, RunId
from starloom.orchestrator.requests import Request
from starloom.session import changing
from starloom.session.galaxy import Galaxy

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]


class NewEdit(Body):
    """An edit of a running graph: commands in their serialised form, all or none."""

    commands: list[dict[str, Any]] = Field(min_length=1, max_length=10_000)
    why: str = ""
    against: int | None = None


class Answer(Body):
    """A person's answer to an approval."""

    approved: bool
    comment: str = ""


class QuestionAnswer(Body):
    """A person's answer to a question."""

    answer: str


def add_edit_routes(app: FastAPI, galaxy: Galaxy) -> None:
    """Add the routes that change runs."""

    @app.post("/api/runs/{run_id}/edits")
    async def edit(run_id: str, body: NewEdit, key: Key = None) -> dict[str, Any]:
        request = keyed_request(key, "edit", body.model_dump(mode="json"))
        run = RunId(run_id)
        version = await changing.edit(galaxy, run, body.commands, why=body.why, against=body.against, request=request)
        return {"run_id": run_id, "version": version}

    @app.post("/api/runs/{run_id}/undo")
    async def undo(run_id: str, key: Key = None) -> dict[str, Any]:
        return {"run_id": run_id, "version": await changing.undo(galaxy, RunId(run_id), keyed_request(key, "undo"))}

    @app.post("/api/runs/{run_id}/redo")
    async def redo(run_id: str, key: Key = None) -> dict[str, Any]:
        return {"run_id": run_id, "version": await changing.redo(galaxy, RunId(run_id), keyed_request(key, "redo"))}

    @app.post("/api/runs/{run_id}/cancel")
    async def cancel(run_id: str) -> dict[str, Any]:
        await changing.cancel(galaxy, RunId(run_id))  # twice is once, with a key and without
        return {"run_id": run_id}

    @app.post("/api/approvals/{approval_id}")
    async def answer(approval_id: str, body: Answer, key: Key = None) -> dict[str, Any]:
        is_keyed = key is not None
        await changing.approve(
            galaxy, ApprovalId(approval_id), approved=body.approved, comment=body.comment, is_keyed=is_keyed
        )
        return {"approval_id": approval_id, "approved": body.approved}

    @app.post("/api/questions/{question_id}")
    async def reply(question_id: str, body: QuestionAnswer, key: Key = None) -> dict[str, Any]:
        await changing.reply(galaxy, question_id, body.answer, is_keyed=key is not None)
        return {"question_id": question_id}


def keyed_request(key: str | None, action: str, body: Any = None) -> Request | None:  # noqa: ANN401 - a JSON value
    """Return a request with its key and the digest of all it asks; None without a key."""
    if key is None:
        return None
    form = json.dumps([action, body], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return Request(key, hashlib.sha256(form.encode()).hexdigest())
