"""Listening: bind first, then serve, so that a taken port is one clear line before anything else has started.

Called by `cli.up` and `cli.demo`. The server's own signal handlers are left out: the command line owns Ctrl-C.
"""

import asyncio
import contextlib
import errno
import json
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from starloom.errors import StoreError, UsageError

_MAX_FRAME_BYTES = 100 * 1024 * 1024  # aip.md section 1: upstream's clients may send this much
_CLOSE_GRACE_S = 2


@dataclass(frozen=True, slots=True)
class Address:
    """Where a hub listens and the key it asks for."""

    host: str
    port: int
    key: str

    @property
    def http_url(self) -> str:
        """The base of the HTTP API and the page."""
        return f"http://{_bracketed(self.host)}:{self.port}"

    @property
    def join_url(self) -> str:
        """What `starloom join` takes: the AIP endpoint with the key in it; a secret."""
        return f"ws://{_bracketed(self.host)}:{self.port}/ws?token={self.key}"

    @property
    def page_url(self) -> str:
        """The page, with the key behind `#`, where it reaches neither the server's nor a proxy's log."""
        return f"{self.http_url}/#key={self.key}"


def new_key() -> str:
    """Return a key of 256 random bits."""
    return secrets.token_urlsafe(32)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free one.

    Raises:
        UsageError: the port is taken, or the host is not one of this machine's.
    """
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(f"The host {host!r} is not known on this machine; use 127.0.0.1.", host=host) from error
    listener = socket.socket(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(where)
        listener.listen(512)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"Port {port} on {host} is taken. Stop what uses it, or choose another: --port 0 takes any free one.",
                port=port,
            ) from error
        raise UsageError(f"Cannot listen on {host}:{port}: {error.strerror}.", host=host, port=port) from error
    return listener


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    app: FastAPI, listener: socket.socket, *, closing: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Serve on a bound socket for as long as the block runs.

    When it is left, `closing` ends what is behind the application while devices can still be told.
    """
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # request lines may hold a token
        lifespan="off",
        server_header=False,
        ws_max_size=_MAX_FRAME_BYTES,
        timeout_graceful_shutdown=_CLOSE_GRACE_S,
    )
    server = _Server(config)
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]))
        try:
            yield
        except Exception as error:  # noqa: BLE001 - kept, and raised again below as itself, once the server has closed
            failure = error
        finally:
            await closing()
            server.should_exit = True
    if failure is not None:
        raise failure


@contextlib.contextmanager
def published(address: Address, file: Path) -> Iterator[None]:
    """Leave the address where this user's other commands find it, readable by the user alone, while the block runs.

    Raises:
        StoreError: the folder cannot be written.
    """
    content = json.dumps({"url": address.http_url, "key": address.key, "pid": os.getpid()})
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(content, encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        raise StoreError(
            f"Cannot write {file}: {error.strerror}. Set STARLOOM_HOME to a folder you may write."
        ) from error
    try:
        yield
    finally:
        if file.exists() and file.read_text(encoding="utf-8") == content:
            file.unlink()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
