"""Links over TLS: only to servers with a trusted certificate, showing one of our own where it is asked for."""

import ssl

import pytest
from pydantic import ValidationError
from tests.certificates import needs_openssl, self_signed
from websockets.asyncio.server import serve

from starloom.aip.tls import TlsSettings, client_context
from starloom.aip.websocket import Unreachable, connect
from starloom.errors import UsageError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    hub, device = self_signed(folder, "hub"), self_signed(folder, "device")
    return (hub.path, hub.key), (device.path, device.key)


@pytest.fixture
async def server(files):
    (hub, hub_key), (device, _) = files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hub, hub_key)
    context.load_verify_locations(device)
    context.verify_mode = ssl.CERT_REQUIRED

    async def echo(websocket):
        async for frame in websocket:
            await websocket.send(frame)

    async with serve(echo, "127.0.0.1", 0, ssl=context) as listening:
        yield f"wss://127.0.0.1:{listening.sockets[0].getsockname()[1]}/ws"


@needs_openssl
async def test_both_ends_show_a_trusted_certificate(server, files):
    (hub, _), (device, key) = files
    context = client_context(TlsSettings(authorities=hub, certificate=device, key=key))
    transport = await connect(server, tls=context)
    await transport.send("hello")
    assert await transport.receive() == "hello"
    await transport.close()


@needs_openssl
async def test_unknown_server_is_not_spoken_to(server, files):
    _, (device, key) = files
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await connect(server, tls=client_context(TlsSettings(certificate=device, key=key)))
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await connect(server)


@needs_openssl
def test_wrong_files_are_explained(files, tmp_path):
    (hub, _), (device, _) = files
    for settings in (
        TlsSettings(authorities=tmp_path / "none.pem"),
        TlsSettings(authorities=hub, certificate=tmp_path / "none.pem"),
        TlsSettings(certificate=device, key=hub),
    ):
        with pytest.raises(UsageError, match="cannot be used"):
            client_context(settings)


def test_key_without_a_certificate_is_refused(tmp_path):
    with pytest.raises(ValidationError, match="a key needs a certificate"):
        TlsSettings(key=tmp_path / "key")
