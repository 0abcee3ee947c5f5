"""Credentials and invitations: who may come as what, once, for how long."""

import json
import stat

import pytest

from starloom.aip.extension import Offer
from starloom.aip.messages import ClientType
from starloom.aip.websocket import HandshakeRefused, connect
from starloom.clock import ManualClock, SystemClock
from starloom.errors import StoreError
from starloom.fleet.credentials import CredentialStore
from starloom.fleet.fleet import Fleet
from starloom.fleet.outpost_specs import OutpostSpec
from starloom.fleet.principals import Principal
from starloom.fleet.seat import WireSession


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return CredentialStore(clock)


def test_credential_allows_its_own_id_and_role_only(store):
    principal = store.check(store.issue("dev1"))
    assert principal == Principal(ClientType.DEVICE, "dev1")
    assert principal.may_register(ClientType.DEVICE, "dev1")
    assert not principal.may_register(ClientType.DEVICE, "dev2")
    assert not principal.may_register(ClientType.CONSTELLATION, "dev1")


@pytest.mark.parametrize("wrong", [None, "", "sl1", "sl1.c.x.y", "sl1.i.x.y", "é", "\ud800", "a." * 3000, "sl1.c.."])
def test_wrong_tokens_allow_nothing_and_raise_nothing(store, wrong):
    store.issue("dev1")
    assert store.check(wrong) is None


def test_changed_secret_allows_nothing(store):
    token = store.issue("dev1")
    assert store.check(token[:-1] + ("A" if token[-1] != "A" else "B")) is None
    assert store.check(token + "A") is None


def test_new_credential_replaces_the_old_and_revoking_takes_it_away(store):
    old = store.issue("dev1")
    new = store.issue("dev1")
    assert store.check(old) is None
    assert store.revoke("dev1")
    assert store.check(new) is None
    assert not store.revoke("dev1")


def test_invitation_is_turned_into_a_credential_once(store):
    invite = store.invite()
    name = store.check(invite.token).invite
    token = store.redeem(name, "dev1")
    assert store.redeem(name, "dev2") is None
    assert store.check(token) == Principal(ClientType.DEVICE, "dev1")
    assert store.check(invite.token) is None


def test_invitation_may_be_redeemed_again_while_its_credential_was_never_used(store):
    invite = store.invite()
    name = store.check(invite.token).invite
    lost = store.redeem(name, "dev1")
    assert store.check(invite.token).client_id == "dev1"
    second = store.redeem(name, "dev1")
    assert store.check(lost) is None
    assert store.check(second) is not None
    assert store.redeem(name, "dev1") is None


def test_invitation_is_bound_to_a_name_when_it_says_so(store):
    invite = store.invite(device_id="dev1")
    principal = store.check(invite.token)
    assert not principal.may_register(ClientType.DEVICE, "dev2")
    assert store.redeem(principal.invite, "dev2") is None
    assert invite.line("wss://hub/ws") == f"starloom join 'wss://hub/ws?token={invite.token}' --name dev1"


def test_invitation_cannot_take_a_name_that_has_a_credential(store):
    token = store.issue("dev1")
    open_invite, bound_invite = store.invite(), store.invite(device_id="dev1")
    assert store.redeem(store.check(open_invite.token).invite, "dev1") is None
    assert store.check(token) is not None
    assert store.redeem(store.check(bound_invite.token).invite, "dev1") is not None
    assert store.check(token) is None


def test_invitation_ends_with_its_time(store, clock):
    invite = store.invite(valid_s=60)
    name = store.check(invite.token).invite
    clock.advance(60)
    assert store.check(invite.token) is None
    assert store.redeem(name, "dev1") is None


def test_file_holds_no_secret_is_private_and_survives_a_restart(tmp_path, clock):
    path = tmp_path / "keys" / "credentials.json"
    store = CredentialStore(clock, path)
    token, invite = store.issue("dev1"), store.invite()
    text = path.read_text()
    assert token.split(".")[3] not in text
    assert invite.token.split(".")[3] not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = CredentialStore(clock, path)
    assert again.check(token) is not None
    assert again.check(invite.token) is not None
    assert [credential.client_id for credential in again.credentials()] == ["dev1"]


def test_secrets_do_not_show_when_their_holders_are_written_to_a_log(store):
    invite = store.invite()
    offer = Offer(token="secret-token", credential="secret-credential")
    spec = OutpostSpec(device_id="a", server_url="ws://h/ws?token=secret")
    assert invite.token not in repr(invite)
    assert "secret" not in repr(offer) + repr(spec) + repr(WireSession("secret"))


def test_damaged_file_is_an_error_not_an_open_door(tmp_path, clock):
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"version": 1}))
    with pytest.raises(StoreError, match="cannot be read"):
        CredentialStore(clock, path)


class TestOverTheWire:
    @pytest.fixture
    def store(self):
        return CredentialStore(SystemClock())

    @pytest.fixture
    def fleet(self, store):
        return Fleet(clock=SystemClock(), credentials=store)

    @pytest.fixture
    def principals(self, store):
        class Checked:
            def get(self, token):
                return store.check(token)

        return Checked()

    async def test_invited_device_gets_its_own_credential_and_the_invitation_is_gone(
        self, fleet, join, listener, store
    ):
        invite, tokens = store.invite(), []
        tokens.append(invite.token)
        device = await join(connect=lambda: connect(listener.url, token=tokens[-1]), on_credential=tokens.append)
        assert len(tokens) == 2
        assert store.check(tokens[1]) == Principal(ClientType.DEVICE, "dev1")
        device.cancel()
        with pytest.raises(HandshakeRefused):
            await connect(listener.url, token=invite.token)

    async def test_upstreams_device_cannot_come_by_invitation(self, listener, store):
        client = await listener.dial(f"?token={store.invite().token}")
        assert (await client.register("dev1"))["error"] == "This invitation is used up, or not for this device"


def test_a_right_token_is_right_also_when_its_first_use_cannot_be_kept(clock, tmp_path, caplog):
    store = CredentialStore(clock, tmp_path / "credentials.json")
    token = store.issue("dev1")
    (tmp_path / "credentials.new").mkdir()  # where the next version is written
    assert store.check(token) == Principal(ClientType.DEVICE, "dev1")
    assert "could not be kept" in caplog.text
