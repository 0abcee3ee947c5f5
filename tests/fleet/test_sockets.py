"""The fleet behind a real listener: our device over a real WebSocket, and raw clients that say what upstream's say."""

import asyncio
import json

import pytest

from starloom.aip.extension import digest_of
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


def offering(digest):
    return {"platform": "linux", "x_starloom": {"v": 1, "caps": ["cancel", "resume"], "tools": digest}}


async def introduce(listener, device_id, digest):
    """Register a device that names a digest; return it and the next frame it hears, an answer to its heartbeat last."""
    client = await listener.dial()
    register = {"type": "register", "status": "ok", "client_type": "device", "client_id": device_id}
    await client.say({**register, "metadata": offering(digest)})
    assert json.loads(await client.connection.recv())["type"] == "heartbeat"
    await client.say({"type": "heartbeat", "status": "ok"})
    return client, json.loads(await client.connection.recv())


async def test_a_device_is_asked_for_its_tools_unless_another_has_listed_the_same(fleet, listener):
    info = {"tool_key": "action::a", "tool_name": "a", "namespace": "n", "tool_type": "action"}
    false = digest_of([{**info, "tool_name": "false"}])
    for device_id, digest, asked in (
        ("first", digest_of([info]), True),
        ("second", digest_of([info]), False),
        ("liar", false, True),
        ("after_the_liar", false, True),
        ("first", digest_of([info]), False),
        ("silent", None, True),
    ):
        client, heard = await introduce(listener, device_id, digest)
        assert (heard["type"] == "command") is asked, device_id
        if asked:
            await client.answer(heard, [info])
            await client.sync()
        record = fleet.get(device_id)
        assert record.status is DeviceStatus.IDLE
        assert [tool.tool_name for tool in record.tools] == ["a"]
        await client.connection.close()
        await until_gone(fleet, device_id)
    assert fleet.get("second").tools is fleet.get("first").tools


async def until_gone(fleet, device_id):
    async with asyncio.timeout(5):
        async for _ in fleet.changes():
            if fleet.get(device_id).status is DeviceStatus.DISCONNECTED:
                return


async def test_a_device_that_resumes_with_other_tools_takes_work_at_once_and_is_asked_again(fleet, listener):
    old = {"tool_key": "action::a", "tool_name": "a", "namespace": "n", "tool_type": "action"}
    new = {**old, "tool_name": "b"}
    register = {"type": "register", "status": "ok", "client_type": "device", "client_id": "dev1"}
    client = await listener.dial()
    await client.say({**register, "metadata": offering(digest_of([old]))})
    granted = json.loads(await client.connection.recv())["x_starloom"]
    await client.answer(json.loads(await client.connection.recv()), [old])
    await client.sync()
    client.connection.transport.abort()
    await until_gone(fleet, "dev1")
    metadata = offering(digest_of([new]))
    metadata["x_starloom"] |= {"token": granted["token"], "received": 1}
    client = await listener.dial()
    await client.say({**register, "metadata": metadata})
    assert json.loads(await client.connection.recv())["x_starloom"]["resumed"] is True
    command = {"x_starloom": {"seq": 1}}
    while command["x_starloom"]["seq"] == 1:  # the first question is sent again, since its answer acknowledged nothing
        command = json.loads(await client.connection.recv())
    assert command["actions"][0]["tool_name"] == "list_tools"
    assert fleet.get("dev1").status.takes_work
    assert [tool.tool_name for tool in fleet.get("dev1").tools] == ["a"]
    await client.answer(command, [new])
    await client.sync()
    assert [tool.tool_name for tool in fleet.get("dev1").tools] == ["b"]


async def test_our_devices_say_what_they_would_list(fleet, join, listener):
    for device_id in ("dev1", "dev2"):
        await join(device_id, connect=lambda: connect(listener.url, token="KEY"))
    assert fleet.get("dev1").tools
    assert fleet.get("dev2").tools is fleet.get("dev1").tools
