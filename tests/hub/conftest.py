"""A hub over a real server and real sockets, on a port of its own."""

import asyncio
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from starloom.hub.app import create_app
from starloom.hub.guard import Guard
from starloom.hub.serve import Address, Listening, bind, serving
from starloom.places import places
from starloom.session.build import galaxy_here
from starloom.session.galaxy import Galaxy
from starloom.settings import Settings

KEY = "k" * 43


@dataclass
class ServedHub:
    """A hub that listens, and its insides."""

    address: Address
    galaxy: Galaxy

    def ws(self, token: str | None = KEY) -> str:
        return self.address.wire_url + ("" if token is None else f"?token={token}")

    async def call(
        self, method: str, path: str, body: Any = None, *, key: str = KEY, idempotency_key: str | None = None
    ) -> tuple[int, Any]:
        more = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return await asyncio.to_thread(self._call, method, path, body, key, more)

    def _call(self, method: str, path: str, body: Any, key: str, more: dict[str, str]) -> tuple[int, Any]:
        where = self.address.host, self.address.port
        if self.address.certificate is None:
            connection = http.client.HTTPConnection(*where, timeout=30)
        else:
            context = ssl.create_default_context(cafile=self.address.certificate)
            connection = http.client.HTTPSConnection(*where, timeout=30, context=context)
        try:
            headers = {"X-API-Key": key, "Content-Type": "application/json", **more}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read().decode())
        finally:
            connection.close()


HubMaker = Callable[..., AbstractAsyncContextManager[ServedHub]]


@pytest.fixture
def served_hub() -> HubMaker:
    """Return what serves a hub with its data in a folder; called twice with one folder, it is the hub restarted."""

    @asynccontextmanager
    async def serve(
        folder: Path,
        how: Listening | None = None,
        *,
        certificate_required: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> AsyncIterator[ServedHub]:
        workspace = folder / "work"
        workspace.mkdir(exist_ok=True)
        place = places({"STARLOOM_HOME": str(folder / "home")})
        with bind("127.0.0.1", 0) as listener:
            address = Address("127.0.0.1", listener.getsockname()[1], KEY, how.certificate if how else None)
            guard = Guard(KEY, certificate_required=certificate_required)
            async with (
                galaxy_here(place, Settings(), workspace=workspace, environ=environ or {}) as galaxy,
                serving(create_app(galaxy, guard), listener, closing=galaxy.close, how=how),
            ):
                yield ServedHub(address, galaxy)

    return serve
