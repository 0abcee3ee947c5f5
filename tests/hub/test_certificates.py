"""Facts about devices that show a certificate, over real TLS sockets, with the device's own process code."""

from functools import partial

import pytest
from pydantic import ValidationError
from tests.certificates import needs_openssl, self_signed, signed_by
from tests.hub.test_devices import a_credential, a_device, invited
from websockets.asyncio.client import connect as dial

from starloom.aip.messages import ClientType
from starloom.aip.tls import TlsSettings, client_context
from starloom.aip.websocket import Unreachable, connect
from starloom.errors import UsageError
from starloom.fleet.principals import Principal
from starloom.hub.certificates import names_in
from starloom.hub.serve import Listening
from starloom.settings import HubSettings

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    hub, authority = self_signed(folder, "hub"), self_signed(folder, "authority")
    return {
        "hub": hub,
        "authority": authority,
        "field": signed_by(authority, folder, "field", "office"),
        "galaxy": signed_by(authority, folder, "galaxy"),
        "stranger": signed_by(self_signed(folder, "elsewhere"), folder, "stranger"),
    }


@pytest.fixture
def hub_that_asks(served_hub, files, tmp_path):
    hub = files["hub"]
    return partial(served_hub, tmp_path, Listening(1 << 20, hub.path, hub.key, files["authority"].path))


@pytest.fixture
def shown(files):
    """Return what shows a certificate when dialling."""

    def context(name=None):
        own = files.get(name)
        return client_context(
            TlsSettings(
                authorities=files["hub"].path, certificate=own.path if own else None, key=own.key if own else None
            )
        )

    return context


@pytest.mark.parametrize("device_id", ["field", "office"])
async def test_a_device_is_who_its_certificate_says(hub_that_asks, shown, device_id):
    async with hub_that_asks(certificate_required=True) as hub:
        async with a_device(hub.ws(), device_id, tls=shown("field")) as device:
            await device.registered()
        async with a_device(hub.ws(), "other", tls=shown("field")) as device:
            assert "certificate is for 'field, office', not for 'other'" in await device.refused()


async def test_a_token_needs_the_certificate_beside_it(hub_that_asks, shown):
    async with hub_that_asks() as hub:
        async with a_device(hub.ws(await invited(hub, device_id="field")), "field", tls=shown("field")) as device:
            await device.registered()
        [token] = device.tokens
        async with a_device(hub.ws(token), "field", tls=shown("galaxy")) as device:
            assert "certificate is for 'galaxy'" in await device.refused()
        async with a_device(hub.ws(token), "field", tls=shown("field")) as device:
            await device.registered()
        with pytest.raises(Exception, match="403"):
            await connect(hub.ws("sl1.c.none.none"), tls=shown("field"))


async def test_an_invitation_is_not_used_up_by_a_wrong_certificate(hub_that_asks, shown):
    async with hub_that_asks() as hub:
        token = await invited(hub)
        async with a_device(hub.ws(token), "field", tls=shown("galaxy")) as device:
            await device.refused()
        async with a_device(hub.ws(token), "field", tls=shown("field")) as device:
            await device.registered()


async def test_without_one_a_device_comes_only_where_they_are_optional(hub_that_asks, shown):
    async with hub_that_asks() as hub:
        await a_credential(hub, "field", tls=shown())
    async with hub_that_asks(certificate_required=True) as hub:
        async with a_device(hub.ws(), "another", tls=shown()) as device:
            assert "asks for a client certificate" in await device.refused()
        assert hub.galaxy.online_devices() == ["hub"]


async def test_one_from_a_stranger_ends_the_handshake(hub_that_asks, shown):
    async with hub_that_asks() as hub:
        with pytest.raises(Unreachable, match="did not take our certificate"):
            await connect(hub.ws(), tls=shown("stranger"))


async def test_people_and_programs_come_with_the_key_alone(hub_that_asks):
    async with hub_that_asks(certificate_required=True) as hub:
        assert (await hub.call("GET", "/api/health"))[0] == 200


async def test_a_constellation_client_is_known_by_the_name_before_its_device(hub_that_asks, shown):
    async with hub_that_asks(certificate_required=True) as hub:
        frame = (
            '{"type":"register","status":"ok","client_type":"constellation","client_id":"galaxy@hub","target_id":"hub"}'
        )
        for name, answer in (("galaxy", '"heartbeat"'), ("field", "certificate is for")):
            async with dial(hub.ws(), ssl=shown(name)) as client:
                await client.send(frame)
                assert answer in await client.recv()


def test_an_unusable_file_of_authorities_is_said_before_anything_starts(files, tmp_path):
    hub = files["hub"]
    with pytest.raises(UsageError, match=r"client_authorities.*cannot be used"):
        Listening(1, hub.path, hub.key, tmp_path / "none.pem").check()


def test_certificates_that_do_not_fit_together_are_wrong_settings():
    with pytest.raises(ValidationError, match="without TLS"):
        HubSettings(client_authorities="a.pem")
    with pytest.raises(ValidationError, match="who sign them"):
        HubSettings(certificate="hub.pem", client_certificates="required")


def test_names_of_a_certificate():
    told = {
        "subject": ((("countryName", "DE"),), (("commonName", "field"),)),
        "subjectAltName": (("DNS", "office"), ("IP Address", "192.0.2.1")),
    }
    assert names_in(told) == {"field", "office"}
    assert names_in({}) == frozenset()
    nobody = Principal(certified=names_in({}))
    assert not nobody.certificate_fits(ClientType.DEVICE, "")
