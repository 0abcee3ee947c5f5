"""The routes of upstream's server, in its shapes: health, clients, dispatch, task_result. Added by `hub.app`.

A dispatched task is a run of one goal. Its name is chosen by the caller, and the name of its result; so the run's id
begins with a digest of it, and the journal's list of runs is all that must be known to find the newest of a name, over
restarts too. Source: wire specification, section 8; D1 and GHSA-whcg-fgpx-76f2 (section 12) are remedied here.
"""

import hashlib
import re
import secrets
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import ConfigDict, Field

from starloom import __version__
from starloom.fleet.tasks import rounds
from starloom.hub.bodies import Body
from starloom.ids import DeviceId, RunId
from starloom.session.galaxy import Galaxy
from starloom.session.incoming import answer_of

_LOOKED_AT = 10_000  # runs, the newest: a name is good for as long
_TASK_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_NO_NAME = "Invalid task_name: must be a non-empty string of characters [A-Za-z0-9._-] and must not start with '.'"


class Dispatch(Body):
    """Upstream's body of `POST /api/dispatch`; upstream overlooks other fields."""

    model_config = ConfigDict(extra="ignore")

    client_id: str = ""
    request: str = Field(default="", max_length=100_000)
    task_name: str | None = None


def add_upstream_routes(app: FastAPI, galaxy: Galaxy) -> None:
    """Add the routes."""

    @app.get("/api/health")
    async def health() -> dict[str, Any]:
        return {"status": "healthy", "online_clients": galaxy.online_devices(), "version": __version__}

    @app.get("/api/clients")
    async def clients() -> dict[str, Any]:
        return {"online_clients": sorted({*galaxy.fleet.client_ids(), *galaxy.online_devices()})}

    @app.post("/api/dispatch", responses={400: {"description": "No request, client or name that could be one"}})
    async def dispatch(body: Dispatch) -> dict[str, Any]:
        if not body.request:
            raise HTTPException(400, "Empty task content")
        if not body.client_id:
            raise HTTPException(400, "Empty client ID")
        if body.task_name is not None and not _TASK_NAME.fullmatch(body.task_name):
            raise HTTPException(400, _NO_NAME)
        if body.client_id not in galaxy.online_devices():
            raise HTTPException(404, "Client not online")
        as_run = RunId(_of_name(body.task_name) + secrets.token_hex(6)) if body.task_name is not None else None
        run_id = await galaxy.submit_goal(body.request, DeviceId(body.client_id), as_run)
        return {
            "status": "dispatched",
            "task_name": body.task_name or run_id,
            "client_id": body.client_id,
            "session_id": run_id,
        }

    @app.get("/api/task_result/{task_name}")
    async def task_result(task_name: str) -> dict[str, Any]:
        run_id = await _newest(galaxy, task_name)
        ended = await galaxy.ending(run_id)
        if ended is None:
            return {"status": "pending"}
        started = await galaxy.known_run(run_id)
        result = rounds(started.request, answer_of(ended)) if started.source == "goal" else ended.result
        failed = {} if ended.stop_reason == "finished" else {"error": ended.error or ended.stop_reason}
        return {"status": "done", "result": result, **failed}


async def _newest(galaxy: Galaxy, task_name: str) -> RunId:
    """Return the newest run of a task's name; the name itself, when it is that of no task, may be a run's id."""
    begins = _of_name(task_name)
    runs = await galaxy.journal.runs(_LOOKED_AT)
    return next((record.run_id for record in runs if record.run_id.startswith(begins)), RunId(task_name))


def _of_name(task_name: str) -> str:
    """Return what the id of every run of a dispatched task with this name begins with; no start's key makes it."""
    digest = hashlib.sha256(f"dispatch\n{task_name}".encode()).hexdigest()
    return f"run_{digest[:20]}"
