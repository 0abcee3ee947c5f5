"""The running hub, from another process of the same user: its address file and its HTTP API over loopback.

Called by `run`, `devices`, `runs` and `join`. Standard library only, so that these commands start fast.
"""

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starloom.errors import DeviceError, PolicyError, StarloomError, StoreError, UsageError, WireError

_TIMEOUT_S = 10.0
_UNPROCESSABLE = 422
_ERRORS: dict[str, type[StarloomError]] = {
    kind.__name__: kind for kind in (UsageError, DeviceError, PolicyError, StoreError)
}


@dataclass(frozen=True, slots=True)
class HubClient:
    """Calls one hub.

    Attributes:
        url: the base of its HTTP API.
        key: the hub's key.
        wire_url: its AIP endpoint for other machines, without a token.
        certificate: the file with its certificate, which alone is trusted; None: no TLS.
    """

    url: str
    key: str = field(repr=False)
    wire_url: str = ""
    certificate: str | None = None

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer to a GET.

        Raises:
            WireError: the hub is not there, or refused the key.
            UsageError, DeviceError, …: what the hub itself complained of.
        """
        return self._call("GET", path, None)

    def post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a POST; errors as with `get`."""
        return self._call("POST", path, body or {})

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield a stream's JSON lines until the hub ends it; errors as with `get`."""
        connection, response = self._open("GET", path, None, timeout_s=None)
        try:
            self._check(response)
            for line in response:
                yield json.loads(line)
        except OSError as error:
            raise WireError(f"The hub at {self.url} went away: {error}.") from error
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        connection, response = self._open(method, path, body, timeout_s=_TIMEOUT_S)
        try:
            self._check(response)
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, ValueError) as error:
            raise WireError(f"What answers at {self.url} is not a Starloom hub.") from error
        finally:
            connection.close()
        return answer

    def _open(
        self, method: str, path: str, body: dict[str, Any] | None, *, timeout_s: float | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        parts = urlsplit(self.url)
        where = parts.hostname or "127.0.0.1", parts.port
        if self.certificate is None:
            connection = http.client.HTTPConnection(*where, timeout=timeout_s)
        else:
            context = _only(self.certificate)
            connection = http.client.HTTPSConnection(*where, timeout=timeout_s, context=context)
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise WireError(f"The hub at {self.url} does not answer. Start one with `starloom up`.") from error

    def _check(self, response: http.client.HTTPResponse) -> None:
        if response.status < 400:
            return
        text = response.read().decode(errors="replace")
        try:
            answer = json.loads(text)
            if response.status == _UNPROCESSABLE:
                raise UsageError(_unfit(answer["detail"]))
            detail, kind = str(answer["detail"]), str(answer.get("kind", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            detail, kind = f"HTTP {response.status}", ""
        raise _ERRORS.get(kind, WireError)(detail)


def _unfit(faults: list[dict[str, Any]]) -> str:
    """Return what the hub finds wrong with what it was sent, in one sentence."""
    said = [f"{'.'.join(str(part) for part in fault['loc'][1:])}: {fault['msg']}" for fault in faults]
    return f"The hub does not take this: {'; '.join(said)}."


def _only(certificate: str) -> ssl.SSLContext:
    """Return a context that trusts this one certificate, whatever names are in it; the hub's own file told us of it."""
    context = ssl.create_default_context(cafile=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def running_hub(address_file: Path) -> HubClient | None:
    """Return a client of this user's running hub, or None when there is none (or its file was left by a killed one)."""
    try:
        address = json.loads(address_file.read_text(encoding="utf-8"))
        client = HubClient(address["url"], address["key"], address.get("wire_url", ""), address.get("certificate"))
        client.get("/api/health")
    except (OSError, ValueError, KeyError, TypeError, WireError):
        return None
    return client


def need_hub(address_file: Path) -> HubClient:
    """Return a client of the running hub.

    Raises:
        WireError: none is running.
    """
    client = running_hub(address_file)
    if client is None:
        raise WireError("No hub is running here. Start one with `starloom up`.")
    return client
