"""Bearer tokens of Microsoft Entra for Azure's models in the place of a key: fetched, kept until they are old.

Called by `openai_compatible.Connection` before each request; no token is ever logged. Where one comes from:

    secret_variable        the application's secret              one POST to the login endpoint
    federated_token_file   a token that the platform writes      one POST to the login endpoint (Kubernetes, CI)
    neither                azure-identity, where it is installed (it also knows `az login`), else the machine's identity

Source: the OAuth 2.0 client-credentials flow and the instance metadata service, as Microsoft documents them.
"""

import asyncio
import importlib.util
import math
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import SecretStr

from starloom.errors import UsageError
from starloom.llm.settings import EntraIdentity

if TYPE_CHECKING:
    import httpx2

_EARLY_S = 300.0  # before its end a token is replaced
_TIMEOUT_S = 15.0
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_IDENTITY_API = "2018-02-01"
_TOKEN = re.compile(r"[!-~]+")  # what may stand in a header
_CODE = re.compile(r"[a-z_]{1,40}")  # of OAuth; anything else could be what was sent


class EntraTokens:
    """The tokens of one identity. `now_s` tells monotonic seconds."""

    def __init__(
        self, identity: EntraIdentity, secret: SecretStr | None, http: "httpx2.AsyncClient", now_s: Callable[[], float]
    ) -> None:
        self._identity = identity
        self._secret = secret
        self._http = http
        self._now_s = now_s
        self._token = ""
        self._good_until_s = 0.0
        self._turn = asyncio.Lock()  # guards the token: one fetch at a time

    @property
    def token(self) -> str:
        """The token that `refresh` fetched."""
        return self._token

    async def refresh(self) -> None:
        """Have a token that is good for the next minutes.

        Raises:
            EntraError: no token was given; the message says why.
        """
        async with self._turn:
            if self._token and self._now_s() < self._good_until_s:
                return
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    self._token, lasts_s = await self._fetched()
            except TimeoutError as error:
                raise EntraError(f"Entra gave no token within {_TIMEOUT_S:g} s.") from error
            self._good_until_s = self._now_s() + max(lasts_s - _EARLY_S, 0.0)

    async def _fetched(self) -> tuple[str, float]:
        identity = self._identity
        if self._secret is not None:
            return await self._logged_in({"client_secret": self._secret.get_secret_value()})
        if identity.federated_token_file:
            try:
                text = await asyncio.to_thread(Path(identity.federated_token_file).read_text, encoding="utf-8")
            except OSError as error:
                raise EntraError(f"The token file {error.filename!r} cannot be read: {error.strerror}.") from error
            return await self._logged_in({"client_assertion_type": _ASSERTION, "client_assertion": text.strip()})
        if _has_azure_identity():
            return await asyncio.to_thread(_from_azure_identity, identity)
        asked = {"api-version": _IDENTITY_API, "resource": identity.scope.removesuffix("/.default")}
        asked |= {"client_id": identity.client_id} if identity.client_id else {}
        return await self._answered("GET", identity.managed_identity_url, params=asked, headers={"Metadata": "true"})

    async def _logged_in(self, proof: dict[str, str]) -> tuple[str, float]:
        identity = self._identity
        if not identity.tenant_id or not identity.client_id:
            raise EntraError("The identity needs a `tenant_id` and a `client_id`.")
        url = f"{identity.login_url.rstrip('/')}/{quote(identity.tenant_id, safe='')}/oauth2/v2.0/token"
        form = {"grant_type": "client_credentials", "client_id": identity.client_id, "scope": identity.scope, **proof}
        return await self._answered("POST", url, data=form)

    async def _answered(self, method: str, url: str, **request: Any) -> tuple[str, float]:  # noqa: ANN401 - httpx's words
        import httpx2

        place = url.partition("?")[0]
        try:
            response = await self._http.request(method, url, **request)
            said = response.json()
        except httpx2.HTTPError as error:
            raise EntraError(f"Entra cannot be reached at {place}.") from error
        except ValueError as error:
            raise EntraError(f"What answers at {place} is not Entra.") from error
        token = said.get("access_token") if isinstance(said, dict) else None
        if not isinstance(token, str) or not response.is_success:
            error_code = str(said.get("error")) if isinstance(said, dict) else ""
            code = error_code if _CODE.fullmatch(error_code) else response.status_code
            raise EntraError(f"Entra gave no token ({code}). Check the tenant, the client and its secret.")
        lasts_s = _seconds(said.get("expires_in") or 0)
        if lasts_s is None or not _TOKEN.fullmatch(token):
            raise EntraError(f"What answers at {place} is not Entra.")
        return token, lasts_s


def _seconds(said: Any) -> float | None:  # noqa: ANN401 - what stood in the answer
    try:
        seconds = float(said)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


class EntraError(UsageError):
    """There is no token for the identity."""


def bearer(tokens: EntraTokens) -> "httpx2.Auth":
    """Return what puts the token into each request, in the place of whatever key the client library wrote."""
    import httpx2

    class Bearer(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
            request.headers.pop("api-key", None)
            request.headers["authorization"] = f"Bearer {tokens.token}"
            yield request

    return Bearer()


def _has_azure_identity() -> bool:
    try:
        return importlib.util.find_spec("azure.identity") is not None
    except ModuleNotFoundError:
        return False


def _from_azure_identity(identity: EntraIdentity) -> tuple[str, float]:
    import time

    from azure.core.exceptions import ClientAuthenticationError  # type: ignore[import-not-found, unused-ignore]
    from azure.identity import DefaultAzureCredential  # type: ignore[import-not-found, unused-ignore]

    try:
        given = DefaultAzureCredential(managed_identity_client_id=identity.client_id).get_token(identity.scope)
    except ClientAuthenticationError as error:
        raise EntraError("azure-identity has no token here. Sign in with: az login") from error
    return str(given.token), float(given.expires_on - time.time())
