"""Tokens of Entra over real HTTP: fetched once, sent in the place of a key, replaced when old, and never shown."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from pydantic import BaseModel, SecretStr

from starloom.errors import UsageError
from starloom.llm import entra
from starloom.llm.completion import ProviderModel
from starloom.llm.entra import EntraError, EntraTokens
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.keys import find_key
from starloom.llm.openai_compatible import Connection
from starloom.llm.port import Message
from starloom.llm.scripted import ScriptedServer
from starloom.llm.settings import EntraIdentity, ModelProfile

SECRET = "client-secret-0123456789"


class Word(BaseModel):
    """A word."""

    word: str


@dataclass
class Login:
    """A login endpoint: each answer once, the last for ever."""

    answers: list[tuple[int, str]]
    url: str = ""
    paths: list[str] = field(default_factory=list)
    forms: list[dict[str, list[str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def login(*answers: tuple[int, Any]) -> Iterator[Login]:
    fake = Login([(status, said if isinstance(said, str) else json.dumps(said)) for status, said in answers])

    class Answerer(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            fake.paths.append(urlsplit(self.path).path)
            fake.forms.append(parse_qs(body or urlsplit(self.path).query))
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, text = fake.answers[min(len(fake.paths), len(fake.answers)) - 1]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answerer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


TOKEN = {"access_token": "eyJ-token-1", "expires_in": 3600, "token_type": "Bearer"}


async def test_the_secret_is_changed_into_a_token_once_and_the_model_sees_the_token_alone() -> None:
    with login((200, TOKEN)) as fake, ScriptedServer([{"word": "hi"}]) as server:
        identity = EntraIdentity(tenant_id="t/1", client_id="c1", secret_variable="ENTRA_SECRET", login_url=fake.url)
        profile = ModelProfile(provider="azure", model="gpt", base_url=server.base_url, entra=identity)
        model = ProviderModel(Connection(profile, find_key(profile, {"ENTRA_SECRET": SECRET}, lambda _: None)))
        for follow in (None, lambda _: None):
            await model.complete([Message("user", "hello")], Word, follow=follow)
        await model.close()
    assert fake.paths == ["/t%2F1/oauth2/v2.0/token"]
    assert fake.forms[0]["client_secret"] == [SECRET]
    assert fake.forms[0]["grant_type"] == ["client_credentials"]
    for request in server.requests:
        assert request.headers["authorization"] == "Bearer eyJ-token-1"
        assert "api-key" not in request.headers
        assert SECRET not in str(request.headers)


async def test_an_old_token_is_replaced_before_it_ends() -> None:
    now = [0.0]
    with login((200, TOKEN), (200, {**TOKEN, "access_token": "second"})) as fake:
        async with httpx2.AsyncClient() as http:
            identity = EntraIdentity(tenant_id="t", client_id="c", login_url=fake.url)
            tokens = EntraTokens(identity, SecretStr(SECRET), http, lambda: now[0])
            await tokens.refresh()
            now[0] = 3299.0
            await tokens.refresh()
            assert tokens.token == "eyJ-token-1"
            now[0] = 3301.0
            await tokens.refresh()
    assert tokens.token == "second"


async def test_a_platforms_token_file_is_the_proof_and_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("jwt-1\n")
    with login((200, TOKEN)) as fake:
        async with httpx2.AsyncClient() as http:
            identity = EntraIdentity(tenant_id="t", client_id="c", federated_token_file=str(file), login_url=fake.url)
            await EntraTokens(identity, None, http, lambda: 0.0).refresh()
            file.unlink()
            with pytest.raises(EntraError, match="cannot be read"):
                await EntraTokens(identity, None, http, lambda: 0.0).refresh()
    assert fake.forms[0]["client_assertion"] == ["jwt-1"]


async def test_a_machines_own_identity_asks_its_metadata_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entra, "_has_azure_identity", lambda: False)
    with login((200, {**TOKEN, "expires_in": "3600"})) as fake:
        async with httpx2.AsyncClient() as http:
            identity = EntraIdentity(managed_identity_url=f"{fake.url}/metadata/identity/oauth2/token")
            await EntraTokens(identity, None, http, lambda: 0.0).refresh()
    assert fake.headers[0]["metadata"] == "true"
    assert fake.forms[0]["resource"] == ["https://cognitiveservices.azure.com"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {"error": "invalid_client", "error_description": f"bad {SECRET}"}), "invalid_client"),
        ((200, {"hello": 1}), "no token"),
        ((200, ["x"]), "no token"),
        ((502, "<html>proxy</html>"), "is not Entra"),
    ],
)
async def test_a_refusal_is_a_wrong_key_in_one_line_without_the_secret(answer: tuple[int, Any], words: str) -> None:
    with login(answer) as fake, ScriptedServer([{"word": "hi"}]) as server:
        identity = EntraIdentity(tenant_id="t", client_id="c", login_url=fake.url)
        profile = ModelProfile(provider="azure", model="gpt", base_url=server.base_url, entra=identity)
        model = ProviderModel(Connection(profile, SecretStr(SECRET)))
        with pytest.raises(ModelFault, match=words) as caught:
            await model.complete([Message("user", "hello")], Word)
        await model.close()
    assert caught.value.kind is FaultKind.WRONG_KEY
    assert SECRET not in caught.value.message
    assert not server.requests


def test_what_does_not_fit_is_said_when_the_model_is_opened() -> None:
    identity = EntraIdentity(secret_variable="NO_SUCH")
    with pytest.raises(UsageError, match="NO_SUCH"):
        find_key(ModelProfile(provider="azure", model="m", base_url="http://h/v1", entra=identity), {}, lambda _: None)
    with pytest.raises(UsageError, match="only Azure"):
        Connection(ModelProfile(provider="openai", model="m", entra=identity))


@pytest.mark.parametrize(
    "said",
    [
        {**TOKEN, "expires_in": "soon"},
        {**TOKEN, "expires_in": [1]},
        {**TOKEN, "expires_in": "nan"},
        '{"access_token": "eyJ-token-1", "expires_in": Infinity}',
        {**TOKEN, "access_token": "eyJ\r\nx-evil: 1"},
        {**TOKEN, "access_token": "ключ"},
        {**TOKEN, "access_token": ""},
    ],
)
async def test_an_answer_that_is_no_token_is_refused_without_showing_it(said: Any) -> None:
    with login((200, said)) as fake:
        async with httpx2.AsyncClient() as http:
            identity = EntraIdentity(tenant_id="t", client_id="c", login_url=fake.url)
            tokens = EntraTokens(identity, SecretStr(SECRET), http, lambda: 0.0)
            with pytest.raises(EntraError) as raised:
                await tokens.refresh()
    assert "eyJ" not in str(raised.value)
    assert tokens.token == ""


async def test_a_login_endpoint_that_echoes_the_secret_puts_it_into_no_message() -> None:
    with login((401, {"error": f"bad {SECRET}"})) as fake:
        async with httpx2.AsyncClient() as http:
            identity = EntraIdentity(tenant_id="t", client_id="c", login_url=fake.url)
            tokens = EntraTokens(identity, SecretStr(SECRET), http, lambda: 0.0)
            with pytest.raises(EntraError) as raised:
                await tokens.refresh()
    assert SECRET not in str(raised.value)
