"""Facts about where a hub listens, what it is called there, and its limits."""

import contextlib
import gc
import socket
import subprocess

import pytest
from tests.certificates import needs_openssl
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from starloom.errors import UsageError
from starloom.hub.guard import Guard
from starloom.hub.serve import Address, Listening, bind, own_names, public_host


def test_a_hub_on_one_address_answers_to_that_name_alone():
    assert own_names("127.0.0.1") == {"127.0.0.1"}
    assert own_names("Hub.Example") == {"hub.example"}
    assert public_host("hub.example") == "hub.example"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_hub_on_all_addresses_answers_to_this_machines_names(host: str):
    names = own_names(host)
    guard = Guard("key", names)
    assert guard.host_is_right(f"{socket.gethostname()}:5000")
    assert guard.host_is_right(public_host(host) if ":" not in public_host(host) else f"[{public_host(host)}]")
    assert not guard.host_is_right("evil.example")


def test_a_listener_says_that_it_speaks_tcp():
    """Only then asyncio has small frames sent at once; else one behind another would wait 40 ms for the other end."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_addresses_say_how_to_come_from_here_and_from_elsewhere(tmp_path):
    plain = Address("0.0.0.0", 5000, "key", public_host="192.0.2.7")
    assert plain.http_url == "http://127.0.0.1:5000"
    assert plain.join_url == "ws://192.0.2.7:5000/ws?token=key"
    locked = Address("::1", 5000, "key", certificate=tmp_path / "hub.pem")
    assert (locked.http_url, locked.wire_url) == ("https://[::1]:5000", "wss://[::1]:5000/ws")
    assert "key" not in repr(plain).replace("key=", "")


def test_a_certificate_that_cannot_be_used_is_said_before_anything_starts(tmp_path):
    wrong = tmp_path / "hub.pem"
    with pytest.raises(UsageError, match="cannot be used"):
        Listening(certificate=wrong).check()
    wrong.write_text("no certificate")
    with pytest.raises(UsageError, match="cannot be used"):
        Listening(certificate=wrong).check()


@needs_openssl
def test_a_locked_key_is_an_error_and_asks_nobody(tmp_path):
    certificate, key = tmp_path / "hub.pem", tmp_path / "hub.key"
    subject = ["-subj", "/CN=hub", "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    with pytest.raises(UsageError, match="cannot be used"):
        Listening(certificate=certificate, key_file=key).check()


async def test_a_hub_that_serves_seldom_looks_through_all_objects(tmp_path, served_hub):
    before = gc.get_threshold()
    async with served_hub(tmp_path):
        young, middle, full = gc.get_threshold()
        assert (young, middle) == before[:2]
        assert full > before[2]
    assert gc.get_threshold() == before


async def test_a_frame_beyond_the_limit_ends_the_connection(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        limit = hub.galaxy.fleet.settings.max_message_bytes
        async with connect(hub.ws(), compression="deflate") as client:
            assert client.protocol.extensions == []
            with contextlib.suppress(ConnectionClosed):
                await client.send("x" * (limit + 1))
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
