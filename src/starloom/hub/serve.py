"""Listening: bind first, then serve, so that a taken port is one clear line before anything else has started.

Called by `cli.up` and `cli.demo`. The server's own signal handlers are left out: the command line owns Ctrl-C.
"""

import asyncio
import contextlib
import errno
import gc
import json
import os
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from starloom.errors import StoreError, UsageError
from starloom.fleet.settings import FleetSettings
from starloom.hub.wire import WireProtocol

_ANYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to
_CLOSE_GRACE_S = 2
_MIDDLE_COLLECTIONS = 100  # Python's own figure is 10


@dataclass(frozen=True, slots=True)
class Address:
    """Where a hub listens and the key it asks for.

    Attributes:
        host: as it is bound to.
        certificate: the file with the hub's certificate; None: no TLS.
        public_host: how other machines name this one, when it is not by `host`.
    """

    host: str
    port: int
    key: str = field(repr=False)
    certificate: Path | None = None
    public_host: str | None = None

    @property
    def http_url(self) -> str:
        """The base of the HTTP API and the page, for this machine."""
        host = "127.0.0.1" if self.host in _ANYWHERE else self.host
        return f"http{self._s}://{_bracketed(host)}:{self.port}"

    @property
    def wire_url(self) -> str:
        """The AIP endpoint for other machines, without a token."""
        return f"ws{self._s}://{_bracketed(self.public_host or self.host)}:{self.port}/ws"

    @property
    def _s(self) -> str:
        return "s" if self.certificate is not None else ""

    @property
    def join_url(self) -> str:
        """What `starloom join` takes: the AIP endpoint with the key in it; a secret."""
        return f"{self.wire_url}?token={self.key}"

    @property
    def page_url(self) -> str:
        """The page, with the key behind `#`, where it reaches neither the server's nor a proxy's log."""
        return f"{self.http_url}/#key={self.key}"


def new_key() -> str:
    """Return a key of 256 random bits."""
    return secrets.token_urlsafe(32)


def public_host(host: str) -> str:
    """Return how other machines may name a hub that listens on `host`: itself, or our address when it is any."""
    if host not in _ANYWHERE:
        return host
    return next(iter(_ways_out()), None) or socket.gethostname()


def own_names(host: str) -> frozenset[str]:
    """Return the names that a hub on `host` answers to: that one, or all of this machine's when it listens on any.

    A page of a foreign site can make a browser call an address, but not under one of these names (DNS rebinding).
    """
    if host not in _ANYWHERE:
        return frozenset({host.lower()})
    name = socket.gethostname().lower()
    return frozenset({host, name, f"{name.partition('.')[0]}.local", *_own_addresses()})


def _own_addresses() -> set[str]:
    found = set(_ways_out())
    with contextlib.suppress(OSError):
        found |= {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    return found


def _ways_out() -> Iterator[str]:
    """Yield the addresses that packets to elsewhere leave from, IPv4 first."""
    for family, where in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((where, 9))  # of a datagram socket: picks the way out, sends nothing
            yield str(probe.getsockname()[0])


@dataclass(frozen=True, slots=True)
class Listening:
    """How to serve.

    Attributes:
        key_file: None: the private key is in the certificate's file.
        client_authorities: whoever shows a certificate must have it from them; None: nobody is asked for one.
    """

    max_message_bytes: int = FleetSettings().max_message_bytes
    certificate: Path | None = None
    key_file: Path | None = None
    client_authorities: Path | None = None

    def check(self) -> None:
        """See that the certificate can be used, before anything has started.

        Raises:
            UsageError: it cannot, or its key is locked with a password.
        """
        if self.certificate is None:
            return
        named, path = "The hub's certificate", self.certificate
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key_file, password="")
            if self.client_authorities is not None:
                named, path = "The file of client_authorities,", self.client_authorities
                context.load_verify_locations(self.client_authorities)
        except OSError as error:  # ssl.SSLError is one
            raise UsageError(f"{named} {str(path)!r} cannot be used: {error}.", path=str(path)) from error


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


@contextlib.contextmanager
def few_full_collections() -> Iterator[None]:
    """Have Python look through all objects a tenth as often while the block runs.

    A connection keeps some two hundred objects, and no garbage: while a crowd arrives, looking through all that came
    before was up to two thirds of a hub's CPU, in pauses of half a second. Young objects are collected as ever.
    """
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, max(full, _MIDDLE_COLLECTIONS))
    try:
        yield
    finally:
        gc.set_threshold(young, middle, full)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    app: FastAPI,
    listener: socket.socket,
    *,
    closing: Callable[[], Awaitable[None]],
    how: Listening | None = None,
) -> AsyncIterator[None]:
    """Serve on a bound socket for as long as the block runs.

    When it is left, `closing` ends what is behind the application while devices can still be told.
    """
    how = how or Listening()
    how.check()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # request lines may hold a token
        lifespan="off",
        server_header=False,
        ws=WireProtocol,
        ws_max_size=how.max_message_bytes,
        ws_per_message_deflate=False,  # screenshots do not shrink, and each idle connection would hold a dictionary
        ssl_certfile=how.certificate,
        ssl_keyfile=how.key_file,
        ssl_ca_certs=how.client_authorities,
        # Asked for, never insisted on here: people and their programs come with the key alone. `Guard` insists.
        ssl_cert_reqs=ssl.CERT_NONE if how.client_authorities is None else ssl.CERT_OPTIONAL,
        timeout_graceful_shutdown=_CLOSE_GRACE_S,
    )
    server = _Server(config)
    failure: Exception | None = None
    with few_full_collections():
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
    certificate = str(address.certificate.absolute()) if address.certificate is not None else None
    content = json.dumps(
        {
            "url": address.http_url,
            "key": address.key,
            "pid": os.getpid(),
            "wire_url": address.wire_url,
            "certificate": certificate,
        }
    )
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
