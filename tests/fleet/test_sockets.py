"""The fleet behind a real listener: our device over a real WebSocket, and raw clients that say what upstream's say."""

import json

import pytest

from starloom.aip.messages import Command
from starloom.aip.websocket import HandshakeRefused, Unreachable, connect
from starloom.fleet.records import DeviceStatus


async def test_our_device_joins_over_a_real_websocket(fleet, join, listener):
    await join(connect=lambda: connect(listener.url, token="KEY"))
    results = await fleet.call("dev1", [Command(tool_name="bench.echo", parameters={"text": "hi"})], session_id="s")
    assert results[0].result == "hi"


async def test_token_in_the_url_is_enough(fleet, join, listener):
    await join(connect=lambda: connect(f"{listener.url}?token=KEY"))
    assert fleet.get("dev1").status is DeviceStatus.IDLE


@pytest.mark.parametrize("token", [None, "", "nope", "é", "x" * 5000])
async def test_wrong_token_is_refused_before_the_handshake(listener, token):
    with pytest.raises(HandshakeRefused) as refused:
        await connect(listener.url, token=token)
    assert refused.value.status == 403
    assert "nope" not in str(refused.value)


async def test_nobody_there_is_unreachable():
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
        await connect("ws://127.0.0.1:9/ws?token=KEY")


async def test_minimal_upstream_device_is_accepted_and_spoken_to_in_upstreams_words(fleet, listener):
    client = await listener.dial()
    confirmation = await client.register("min1", metadata=None)
    assert list(confirmation) == [
        "type", "status", "user_request", "agent_name", "process_name", "root_name", "actions", "messages", "error",
        "session_id", "task_name", "timestamp", "response_id", "result",
    ]  # fmt: skip
    assert (confirmation["type"], confirmation["status"], confirmation["session_id"]) == ("heartbeat", "ok", None)
    command = json.loads(await client.connection.recv())
    assert command["actions"][0]["tool_name"] == "list_tools"
    await client.answer(command, [])
    await client.sync()
    assert fleet.get("min1").status is DeviceStatus.IDLE
