"""The hub's application: `/ws` for AIP, `/api` for people's programs, `/` for the page.

Built by `cli` from a `Galaxy` that the composition root made. The routes of upstream's server are in `hub.upstream`,
those about devices in `hub.devices`, those that change a run in `hub.edits`.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from importlib import resources
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from pydantic import Field, model_validator

from starloom import __version__
from starloom.aip.protocol import POLICY
from starloom.aip.websocket import accepted, token_of
from starloom.errors import DeviceError, PolicyError, StarloomError, StoreError, UsageError
from starloom.fleet.errors import UnknownDevice
from starloom.hub.bodies import Body, refusal
from starloom.hub.certificates import certified
from starloom.hub.devices import add_device_routes
from starloom.hub.edits import Key, add_edit_routes, keyed_request
from starloom.hub.guard import Guard
from starloom.hub.upstream import add_upstream_routes
from starloom.ids import RunId
from starloom.orchestrator.requests import KeyReused
from starloom.session.changing import Starts
from starloom.session.galaxy import Galaxy
from starloom.session.halting import until_halted
from starloom.session.undoing import effects_of, undo_effects
from starloom.session.views import recorded_row, run_row

_OPEN_PATHS = frozenset(
    {"/", "/favicon.ico"}
)  # the page itself holds nothing; all it shows comes from /api with the key
_KEY_SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}
_STATUS: tuple[tuple[type[StarloomError], int], ...] = (
    (KeyReused, 422),
    (UsageError, 400),
    (UnknownDevice, 404),
    (DeviceError, 409),
    (PolicyError, 403),
)


class NewRun(Body):
    """A request in words, or a recipe document with its parameters: one of the two."""

    request: str | None = Field(default=None, max_length=100_000)
    recipe: dict[str, Any] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    confirm_plan: bool = False

    @model_validator(mode="after")
    def _one_of_two(self) -> "NewRun":
        if (self.request is None) == (self.recipe is None):
            raise ValueError("give either 'request' or 'recipe'")
        return self


class Fork(Body):
    """Where a new run leaves an old one."""

    at: int = Field(ge=1)


class _Hub(FastAPI):
    """The application, whose document says what the middleware asks of everybody."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        document.setdefault("components", {})["securitySchemes"] = _KEY_SCHEMES
        document["security"] = [{name: []} for name in _KEY_SCHEMES]
        return document


def create_app(galaxy: Galaxy, guard: Guard) -> FastAPI:
    """Return the application; it owns nothing and starts nothing."""
    app = _Hub(
        title="Starloom hub",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        responses={
            401: {"description": "The key is missing or wrong"},
            403: {"description": "A foreign Host or Origin"},
        },
    )

    @app.middleware("http")
    async def admit(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        headers = dict(request.headers)
        if not guard.host_is_right(headers.get("host")) or not guard.origin_is_right(headers.get("origin")):
            return JSONResponse({"detail": "This hub does not answer to that Host or Origin."}, status_code=403)
        open_path = request.url.path in _OPEN_PATHS
        if not open_path and not guard.key_is_right(token_of(headers, request.query_params)):
            return JSONResponse({"detail": "Invalid API key"}, status_code=401)
        return await go_on(request)

    @app.exception_handler(StarloomError)
    async def complain(_request: Request, error: StarloomError) -> JSONResponse:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        return JSONResponse({"detail": error.message, "kind": _branch_of(error)}, status_code=status)

    @app.exception_handler(RequestValidationError)
    async def refuse(_request: Request, error: RequestValidationError) -> Response:
        return refusal(error)

    _add_wire(app, galaxy, guard)
    add_upstream_routes(app, galaxy)
    _add_run_routes(app, galaxy)
    _add_later_routes(app, galaxy)
    _add_page(app)
    add_edit_routes(app, galaxy)
    add_device_routes(app, galaxy)
    return app


def _branch_of(error: StarloomError) -> str:
    """Return the name of the error's branch of the tree, which is all that a caller can know."""
    return next((kind.__name__ for kind in type(error).__mro__ if StarloomError in kind.__bases__), "StarloomError")


def _add_wire(app: FastAPI, galaxy: Galaxy, guard: Guard) -> None:
    @app.websocket("/ws")
    async def wire(websocket: WebSocket) -> None:
        headers = dict(websocket.headers)
        is_ours = guard.host_is_right(headers.get("host")) and guard.origin_is_right(headers.get("origin"))
        offered = token_of(headers, websocket.query_params)
        shown = certified(websocket.scope)
        principal = guard.principal(offered, galaxy.fleet.credentials, shown) if is_ours else None
        if principal is None:
            await websocket.close()  # before accept: the handshake is answered 403, as upstream does
            return
        await websocket.accept()
        principal = guard.principal(offered, galaxy.fleet.credentials, shown)
        if principal is None:  # revoked while the handshake was answered
            await websocket.close(POLICY, "the credential was revoked")
            return
        transport = accepted(websocket, max_size_bytes=galaxy.fleet.settings.max_message_bytes)
        await galaxy.fleet.serve(transport, principal=principal)


def _add_run_routes(app: FastAPI, galaxy: Galaxy) -> None:
    @app.get("/api/runs")
    async def runs(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> dict[str, Any]:
        return {"runs": [run_row(record) for record in await galaxy.journal.runs(limit)]}

    starts = Starts(galaxy)

    @app.post("/api/runs", status_code=201)
    async def start(body: NewRun, key: Key = None) -> dict[str, Any]:
        async def begin(as_run: RunId | None) -> RunId:
            if body.recipe is not None:
                return await galaxy.submit_recipe(body.recipe, body.parameters, as_run)
            return await galaxy.submit_request(body.request or "", confirm_plan=body.confirm_plan, as_run=as_run)

        return {"run_id": await starts.start(keyed_request(key, "start", body.model_dump(mode="json")), begin)}

    @app.get("/api/runs/{run_id}/events")
    async def events(run_id: str, after: Annotated[int, Query(ge=0)] = 0, follow: bool = True) -> StreamingResponse:
        await galaxy.known_run(RunId(run_id))
        lines = _lines(galaxy, RunId(run_id), after, follow=follow)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    @app.post("/api/runs/{run_id}/resume")
    async def resume(run_id: str) -> dict[str, Any]:
        await galaxy.resume(RunId(run_id))
        return {"run_id": run_id}


def _add_later_routes(app: FastAPI, galaxy: Galaxy) -> None:
    """Add what can be done with a run once it exists: leave it for another, take it back."""

    @app.post("/api/runs/{run_id}/fork", status_code=201)
    async def fork(run_id: str, body: Fork) -> dict[str, Any]:
        return {"run_id": await galaxy.fork(RunId(run_id), body.at)}

    @app.get("/api/runs/{run_id}/effects")
    async def effects(run_id: str) -> dict[str, Any]:
        return {"devices": [device.to_row() for device in await effects_of(galaxy, RunId(run_id))]}

    @app.post("/api/runs/{run_id}/undo-effects")
    async def undo(run_id: str) -> dict[str, Any]:
        return {"devices": [device.to_row() for device in await undo_effects(galaxy, RunId(run_id))]}


async def _lines(galaxy: Galaxy, run_id: RunId, after: int, *, follow: bool) -> AsyncIterator[str]:
    if follow:
        with suppress(StoreError):  # the run stands still: the stream ends before the run does
            async for recorded in until_halted(galaxy.journal.follow(run_id, after), lambda: galaxy.over(run_id)):
                yield json.dumps(recorded_row(recorded), ensure_ascii=False) + "\n"
        return
    for recorded in await galaxy.journal.read(run_id, after):
        yield json.dumps(recorded_row(recorded), ensure_ascii=False) + "\n"


def _add_page(app: FastAPI) -> None:
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> HTMLResponse:
        text = resources.files("starloom.hub").joinpath("page.html").read_text(encoding="utf-8")
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
        return HTMLResponse(text, headers={"Content-Security-Policy": policy, "X-Frame-Options": "DENY"})
