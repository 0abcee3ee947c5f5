"""Recorded flows replayed against our constellation client: an upstream server that says what was recorded.

The client must send the recorded frames in the recorded order; ours differs only where a defect is remedied: its
heartbeats name the right role (D4) and its session ids cannot be guessed (D16).
"""

import asyncio
import json
from pathlib import Path

import pytest
from websockets.asyncio.server import serve

from starloom.aip.messages import TaskStatus
from starloom.aip.websocket import Unreachable, connect
from starloom.errors import DeviceError, UsageError
from starloom.fleet.errors import CallTimedOut, DeviceLost, DeviceOffline, TaskNotTaken
from starloom.fleet.outpost_specs import OutpostSpec, read_devices_yaml
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings
from starloom.journal.events import DeviceDisconnected, Event

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "aip" / "recorded" / "frames.jsonl").read_text("utf-8").splitlines()
]


def recorded(seq):
    return json.loads(next(row["text"] for row in ROWS if row["seq"] == seq))


@pytest.fixture
def settings() -> FleetSettings:
    return FleetSettings(outpost_heartbeat_s=30, outpost_poll_s=0.05, outpost_max_delay_s=0.01, call_timeout_s=5)


class Upstream:
    """A server that is told frame by frame what to hear and what to say."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue = asyncio.Queue()
        self.paths: list[str] = []
        self.sockets: asyncio.Queue = asyncio.Queue()
        self.socket = None
        self.infos = True

    async def accept(self, socket) -> None:
        self.paths.append(socket.request.path)
        self.sockets.put_nowait(socket)
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] == "device_info_request" and self.infos and len(self.paths) < 100:
                await self.say(56, socket=socket, response_id=frame["request_id"])
            self.heard.put_nowait(frame)

    async def hear(self, kind):
        async with asyncio.timeout(5):
            while True:
                frame = await self.heard.get()
                if frame["type"] == kind:
                    return frame

    async def say(self, seq, *, socket=None, **changes):
        await (socket or self.socket).send(json.dumps({**recorded(seq), **changes}))

    async def confirmed(self):
        """Take the next connection and confirm its registration."""
        async with asyncio.timeout(5):
            self.socket = await self.sockets.get()
        frame = await self.hear("register")
        await self.say(54)
        return frame


@pytest.fixture
async def upstream():
    found = Upstream()
    async with serve(found.accept, "127.0.0.1", 0) as server:
        found.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws?token=KEY"
        yield found


@pytest.fixture
def outpost(fleet, group, upstream):
    def start(device_id="dev1"):
        spec = OutpostSpec(
            device_id=device_id, server_url=upstream.url, name="galaxy1", capabilities=("a",), reconnect_delay_s=0.01
        )
        group.create_task(fleet.outposts.run(spec, lambda: connect(spec.server_url)))

    return start


def same(ours, theirs, *, but=()):
    """Compare two frames but for ids, times and our announcement."""
    ignored = {"timestamp", "request_id", "response_id", *but}
    assert list(ours) == list(theirs)
    metadata = {**(ours["metadata"] or {})}
    metadata.pop("x_starloom", None)
    for name, value in theirs.items():
        if name == "metadata":
            assert (metadata or None) == value
        elif name not in ignored:
            assert ours[name] == value, name


async def test_registration_information_and_task_are_sent_as_recorded(fleet, outpost, upstream, until):
    outpost()
    same(await upstream.confirmed(), recorded(53))
    assert upstream.paths == ["/ws?token=KEY"]
    asked = await upstream.hear("device_info_request")
    same(asked, recorded(55))
    assert asked["request_id"].startswith("device_info_dev1_")
    await until("dev1", DeviceStatus.IDLE)
    task = asyncio.create_task(fleet.outposts.delegate("dev1", "SCN_OK_2 do it", task_id="task-ok2"))
    sent = await upstream.hear("task")
    same(sent, recorded(65), but=("session_id",))
    assert sent["session_id"].startswith("galaxy1@task-ok2#")
    assert fleet.get("dev1").status is DeviceStatus.BUSY
    await upstream.say(66, session_id=sent["session_id"])
    await upstream.say(74, session_id="galaxy1@another")  # a foreign end ends nothing
    await upstream.say(71)  # an error about nothing that waits
    await upstream.say(74, session_id=sent["session_id"])
    outcome = await task
    assert (outcome.status, outcome.error) == (TaskStatus.COMPLETED, None)
    assert outcome.result == [{"request": "SCN_OK_2 do it", "result": "hello"}]
    assert fleet.get("dev1").status is DeviceStatus.IDLE
    assert fleet.get("dev1").system_info["hostname"] == "host1"


async def test_heartbeat_names_the_right_role(fleet, outpost, upstream, settings):
    object.__setattr__(settings, "outpost_heartbeat_s", 0.05)
    outpost()
    await upstream.confirmed()
    same(await upstream.hear("heartbeat"), {**recorded(57), "client_type": "constellation"})


async def test_uncorrelated_error_before_the_acknowledgement_refuses_the_task(fleet, outpost, upstream, until):
    outpost()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)
    upstream.infos = False
    await upstream.hear("device_info_request")
    task = asyncio.create_task(fleet.outposts.delegate("dev1", "x", task_id="t"))
    sent = await upstream.hear("task")
    await upstream.say(135, session_id=sent["session_id"])
    with pytest.raises(TaskNotTaken, match="Target device 'dev1' is not connected"):
        await task


async def test_failed_task_is_told_with_its_error(fleet, outpost, upstream, until):
    outpost()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)
    task = asyncio.create_task(fleet.outposts.delegate("dev1", "x", task_id="t"))
    sent = await upstream.hear("task")
    await upstream.say(131, session_id=sent["session_id"])
    outcome = await task
    assert outcome.status is TaskStatus.FAILED
    assert outcome.error == "Task was cancelled because target device disconnected"


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_abandoned_task_closes_the_connection_which_is_all_that_stops_it(fleet, outpost, upstream, until, how):
    outpost()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)
    first = upstream.socket
    limit = 0.05 if how == "timeout" else None
    task = asyncio.create_task(fleet.outposts.delegate("dev1", "x", task_id="t", timeout_s=limit))
    await upstream.hear("task")
    if how == "cancel":
        task.cancel()
    with pytest.raises((CallTimedOut, asyncio.CancelledError)):
        await task
    await first.wait_closed()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)


async def test_lost_connection_loses_the_task_and_is_dialled_again(fleet, outpost, upstream, until):
    outpost()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)
    task = asyncio.create_task(fleet.outposts.delegate("dev1", "x", task_id="t"))
    await upstream.hear("task")
    upstream.socket.transport.abort()
    with pytest.raises(DeviceLost):
        await task
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)


async def test_why_it_is_not_connected_is_known_until_it_is(fleet, group, upstream, until):
    async def nobody():
        raise Unreachable("nobody answers")

    dials = iter([nobody, lambda: connect(upstream.url), lambda: connect(upstream.url)])
    spec = OutpostSpec(device_id="dev1", server_url=upstream.url, reconnect_delay_s=0.01)
    group.create_task(fleet.outposts.run(spec, lambda: next(dials)()))
    async with asyncio.timeout(5):
        upstream.socket = await upstream.sockets.get()
    assert fleet.get("dev1").trouble == "nobody answers"
    await upstream.hear("register")
    await upstream.say(143)
    async with asyncio.timeout(5):
        upstream.socket = await upstream.sockets.get()
    assert fleet.get("dev1").trouble.startswith("The server refused us:")
    await upstream.hear("register")
    await upstream.say(54)
    await until("dev1", DeviceStatus.IDLE)
    assert fleet.get("dev1").trouble is None


async def test_ping_asks_the_server_about_the_device(fleet, outpost, upstream, until, settings):
    outpost()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)
    assert await fleet.ping("dev1") >= 0
    upstream.infos = False
    object.__setattr__(settings, "probe_timeout_s", 0.02)
    assert await fleet.ping("dev1") is None
    fleet.outposts.add(OutpostSpec(device_id="dev2", server_url=upstream.url, auto_connect=False))
    assert "auto_connect" in fleet.get("dev2").trouble
    with pytest.raises(DeviceOffline):
        await fleet.ping("dev2")


async def test_outposts_are_forgotten_in_their_list_only(fleet, outpost, upstream, until):
    outpost()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)
    with pytest.raises(DeviceError, match="list of outposts"):
        await fleet.forget("dev1", force=True)


async def test_refused_registration_shows_as_failed_and_is_tried_again(fleet, outpost, upstream, until):
    outpost()
    async with asyncio.timeout(5):
        upstream.socket = await upstream.sockets.get()
    await upstream.hear("register")
    await upstream.say(143)
    await until("dev1", DeviceStatus.FAILED, DeviceStatus.CONNECTING)
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)


async def test_device_that_left_the_server_shows_as_disconnected_until_it_is_back(fleet, outpost, upstream, until):
    outpost()
    await upstream.confirmed()
    await until("dev1", DeviceStatus.IDLE)
    upstream.infos = False
    while True:
        asked = await upstream.hear("device_info_request")
        await upstream.say(133, response_id=asked["request_id"])
        if fleet.get("dev1").status is DeviceStatus.DISCONNECTED:
            break
    with pytest.raises(DeviceOffline):
        await fleet.outposts.delegate("dev1", "x", task_id="t")
    upstream.infos = True
    await until("dev1", DeviceStatus.IDLE)


async def test_our_client_uses_our_server_with_cancel_and_presence(fleet, listener, join, group):
    """Both ends are ours: what they agree on is used."""
    from starloom.clock import SystemClock
    from starloom.fleet.fleet import Fleet

    await join("dev1")
    seen: list[Event] = []
    away = Fleet(clock=SystemClock(), settings=FleetSettings(outpost_poll_s=60), observe=seen.append)
    spec = OutpostSpec(device_id="dev1", server_url=f"{listener.url}?token=KEY")
    group.create_task(away.outposts.run(spec, lambda: connect(spec.server_url)))
    async with asyncio.timeout(5):
        async for _ in away.changes():
            if any(record.status is DeviceStatus.IDLE and record.system_info for record in away.records()):
                break
    assert away.get("dev1").capabilities == {"cancel", "resume", "presence", "errors"}
    with pytest.raises(TaskNotTaken, match="This server takes no tasks"):
        await away.outposts.delegate("dev1", "x", task_id="t")
    await fleet.disconnect("dev1")
    async with asyncio.timeout(5):
        async for _ in away.changes():
            if DeviceDisconnected("dev1") in seen:
                break


def test_upstreams_device_list_is_read(tmp_path):
    path = tmp_path / "devices.yaml"
    path.write_text(
        "task_name: lab\nreconnect_delay: 7\ndevices:\n"
        "  - {device_id: w1, server_url: 'ws://localhost:5005/ws?token=K', os: windows, capabilities: [web], "
        "metadata: {location: home}, auto_connect: true, max_retries: 5}\n"
        "  - {device_id: m1, server_url: 'ws://localhost:5001/ws', os: mobile, auto_connect: false}\n"
    )
    first, second = read_devices_yaml(path)
    assert (first.name, first.platform, first.device_type, first.reconnect_delay_s) == ("lab", "windows", "windows", 7)
    assert (second.platform, second.device_type, second.auto_connect) == ("mobile", "android", False)


def test_every_unusable_entry_is_named_and_no_secret_is_shown(tmp_path):
    path = tmp_path / "devices.yaml"
    path.write_text(
        "devices:\n"
        "  - {device_id: a, server_url: 'http://x/?token=SECRET'}\n"
        "  - {device_id: b, server_url: 'ws://x/ws'}\n"
        "  - {server_url: 'ws://x/ws?token=SECRET'}\n"
        "  - {device_id: b, server_url: 'ws://y/ws'}\n"
    )
    with pytest.raises(UsageError) as raised:
        read_devices_yaml(path)
    _, first, third, twice = raised.value.message.splitlines()
    assert "Entry 1 ('a'): server_url" in first
    assert "ws://" in first
    assert "Entry 3: device_id" in third
    assert "'b' is there more than once" in twice
    assert "SECRET" not in raised.value.message


def test_token_of_an_outpost_comes_from_the_environment():
    spec = OutpostSpec(device_id="a", server_url="ws://x/ws", token_variable="LAB_TOKEN")
    assert spec.token({"LAB_TOKEN": " KEY "}) == "KEY"
    with pytest.raises(UsageError, match="LAB_TOKEN, which is not set"):
        spec.token({"LAB_TOKEN": ""})
    assert OutpostSpec(device_id="a", server_url="ws://x/ws").token({}) is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("devices: 3", "has no list"),
        ("[", "is not YAML"),
        ("devices: [{device_id: a}]", "server_url"),
        ("devices: [{device_id: a, server_url: 'http://x'}]", "server_url"),
        ("devices: [7]", "Entry 1"),
        ("devices:\n - {server_url: 'ws://x?token=SECRET', : ]", "is not YAML"),
        ("#" * 5_000_000, "the limit for this format"),
    ],
)
def test_unusable_device_list_is_explained(tmp_path, text, what):
    path = tmp_path / "devices.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=what) as raised:
        read_devices_yaml(path)
    assert "SECRET" not in raised.value.message
