"""The device process against a server that says what upstream's server said, over real sockets, and by itself."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.asyncio.server import serve

from starloom.aip.transport import TransportClosed, memory_pair
from starloom.aip.websocket import connect
from starloom.clock import ManualClock, SystemClock
from starloom.device.attempts import AttemptJournal
from starloom.device.identity import DeviceIdentity, identity_of_this_machine
from starloom.device.process import run_device
from starloom.device.settings import DeviceSettings
from starloom.errors import DeviceError, WireError
from starloom.safety.policy import Risk
from starloom.tools.router import ToolCall, ToolOutcome, ToolRouter, ToolStatus
from starloom.tools.toolset import Toolset, tool

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "aip" / "recorded" / "frames.jsonl").read_text("utf-8").splitlines()
]


def recorded(seq):
    return json.loads(next(row["text"] for row in ROWS if row["seq"] == seq))


def _recorded_outcomes():
    """Return what upstream's device answered to each recorded call, by call id."""
    answers = [row["text"] for row in ROWS if row["dir"] == "c2s" and '"command_results"' in row.get("text", "")]
    return {
        result["call_id"]: ToolOutcome(
            ToolStatus(result["status"]), result["result"], result["error"], result["namespace"]
        )
        for answer in answers
        for result in json.loads(answer)["action_results"]
        if result.get("call_id") and result["status"] in ("success", "failure")
    }


class RecordedTools(ToolRouter):
    """Answers tool calls as upstream's Linux device did in the recording."""

    def __init__(self) -> None:
        async def execute(command: str) -> str:
            """Run a command."""
            return command

        super().__init__([Toolset("bash", (tool(execute, name="bash.execute", risk=Risk.WRITE),))])
        self.outcomes = _recorded_outcomes()

    async def call(self, call: ToolCall) -> ToolOutcome:
        return self.outcomes.get(call.call_id) or await super().call(call)


class Upstream:
    """A server that is told frame by frame what to say."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue = asyncio.Queue()
        self.sockets: asyncio.Queue = asyncio.Queue()
        self.socket = None

    async def accept(self, socket) -> None:
        self.sockets.put_nowait(socket)
        async for text in socket:
            self.heard.put_nowait(json.loads(text))

    async def next_socket(self):
        async with asyncio.timeout(5):
            self.socket = await self.sockets.get()

    async def hear(self):
        async with asyncio.timeout(5):
            return await self.heard.get()

    async def say(self, seq, **changes):
        await self.socket.send(json.dumps({**recorded(seq), **changes}))


@pytest.fixture
async def upstream():
    found = Upstream()
    async with serve(found.accept, "127.0.0.1", 0) as server:
        found.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws?token=KEY"
        yield found


@pytest.fixture
def identity():
    return DeviceIdentity("dev1", "linux", "linux", recorded(3)["metadata"]["system_info"])


@pytest.fixture
async def device(upstream, identity):
    settings = DeviceSettings(first_delay_s=0.01, heartbeat_s=60)
    task = asyncio.create_task(
        run_device(lambda: connect(upstream.url), RecordedTools(), identity, clock=SystemClock(), settings=settings)
    )
    await upstream.next_socket()
    register = await upstream.hear()
    await upstream.say(4)
    yield register
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def same(ours, theirs):
    """Compare two frames but for ids of ours and times."""
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        if name not in ("timestamp", "request_id", "metadata"):
            assert ours[name] == value, name


async def test_registration_is_sent_as_recorded_and_our_announcement_rides_in_the_metadata(device):
    same(device, recorded(3))
    metadata = dict(device["metadata"])
    assert metadata.pop("x_starloom")["v"] == 1
    assert list(metadata) == list(recorded(3)["metadata"])
    assert metadata["system_info"] == recorded(3)["metadata"]["system_info"]


@pytest.mark.parametrize(
    ("command", "results"), [(46, 47), (48, 49), (69, 70), (80, 82), (91, 93), (112, 115), (172, 173), (467, 468)]
)
async def test_commands_are_answered_as_recorded(device, upstream, command, results):
    await upstream.say(command)
    same(await upstream.hear(), recorded(results))


@pytest.mark.parametrize("kind", ["action", "data_collection"])
async def test_list_tools_is_answered_under_both_tool_types(device, upstream, kind):
    action = {**recorded(44)["actions"][0], "tool_type": kind, "parameters": {"tool_type": kind}}
    await upstream.say(44, actions=[action])
    answer = await upstream.hear()
    listed = answer["action_results"][0]["result"]
    assert answer["action_results"][0]["status"] == "success"
    names = [info["tool_key"] for info in listed]
    assert names == (["action::bash.execute"] if kind == "action" else [])
    for info in listed:
        assert list(info) == list(recorded(45)["action_results"][0]["result"][0])


async def test_pushed_task_is_asked_for_as_recorded(device, upstream):
    await upstream.say(39)
    same(await upstream.hear(), recorded(42))


async def test_unknown_tool_is_answered_where_upstreams_device_is_silent(device, upstream):
    await upstream.say(162)
    answer = await upstream.hear()
    assert answer["prev_response_id"] == recorded(162)["response_id"]
    assert [result["status"] for result in answer["action_results"]] == ["failure"]
    assert "no_such_tool" in answer["action_results"][0]["error"]


async def test_task_end_heartbeat_error_and_nonsense_are_not_answered(device, upstream):
    for seq in (50, 6, 58):
        await upstream.say(seq)
    await upstream.socket.send("{oops")
    await upstream.socket.send(b"\x00")
    await upstream.say(48)
    assert (await upstream.hear())["type"] == "command_results"


async def test_device_registers_again_after_the_server_stopped(device, upstream):
    await upstream.socket.close(1012)
    await upstream.next_socket()
    assert (await upstream.hear())["type"] == "register"
    await upstream.say(458)
    await upstream.say(48)
    assert (await upstream.hear())["type"] == "command_results"


async def test_heartbeat_is_sent_as_recorded(upstream, identity):
    settings = DeviceSettings(heartbeat_s=0.02)
    task = asyncio.create_task(
        run_device(lambda: connect(upstream.url), RecordedTools(), identity, clock=SystemClock(), settings=settings)
    )
    await upstream.next_socket()
    await upstream.hear()
    await upstream.say(4)
    same(await upstream.hear(), recorded(5))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# By itself


async def test_delays_double_are_capped_and_begin_anew_after_success():
    from starloom.aip.backoff import Backoff

    backoff = Backoff(1.0, 10.0, lambda: 1.0)
    assert [backoff.failed() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    backoff.succeeded()
    assert backoff.failed() == 1
    assert Backoff(1.0, 10.0, lambda: 0.0).failed() == 0.5


async def test_device_that_cannot_connect_tries_for_ever_and_says_so(identity):
    clock, reports, tries = ManualClock(), asyncio.Queue(), 0

    async def dial():
        nonlocal tries
        tries += 1
        raise WireError("nobody there")

    task = asyncio.create_task(
        run_device(dial, RecordedTools(), identity, clock=clock, on_status=reports.put_nowait, spread=lambda: 1.0)
    )
    for delay in (1, 2, 4, 8, 16, 32, 60, 60, 60):
        assert (await reports.get()).state == "connecting"
        waiting = await reports.get()
        assert (waiting.state, waiting.detail, waiting.retry_in_s) == ("waiting", "nobody there", delay)
        await asyncio.sleep(0)  # lets it begin to sleep on the clock
        clock.advance(delay)
    assert tries == 9
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_device_gives_up_when_told_to(identity):
    async def dial():
        raise WireError("nobody there")

    settings = DeviceSettings(give_up_after=2, first_delay_s=0.001)
    with pytest.raises(DeviceError, match="gave up after 2 failures"):
        await run_device(dial, RecordedTools(), identity, clock=SystemClock(), settings=settings)


async def test_more_commands_than_may_wait_are_answered_at_once(identity):
    ours, theirs = memory_pair()
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        """Hold."""
        entered.set()
        await may_end.wait()
        return "x"

    router = ToolRouter([Toolset("t", (tool(hold, name="t.hold", risk=Risk.READ),))])
    settings = DeviceSettings(max_in_flight=1, max_waiting=1)

    async def dial():
        return theirs

    task = asyncio.create_task(run_device(dial, router, identity, clock=SystemClock(), settings=settings))
    await ours.receive()
    await ours.send(json.dumps(recorded(4)))
    for number in range(3):
        action = {"tool_name": "t.hold", "tool_type": "action", "call_id": f"c{number}"}
        frame = {**recorded(46), "response_id": f"r{number}", "actions": [action]}
        await ours.send(json.dumps(frame))
    first = json.loads(await ours.receive())
    assert first["prev_response_id"] == "r2"
    assert "too many commands" in first["action_results"][0]["error"]
    may_end.set()
    rest = [json.loads(await ours.receive())["prev_response_id"] for _ in range(2)]
    assert rest == ["r0", "r1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(TransportClosed) as closed:
        await ours.receive()
    assert closed.value.code == 1000


async def test_attempt_is_carried_out_once_however_often_it_is_asked_for(identity, tmp_path):
    effects = []

    async def act(name: str) -> str:
        """Act."""
        effects.append(name)
        return name

    router = ToolRouter([Toolset("t", (tool(act, name="t.act", risk=Risk.WRITE),))])
    attempts = await AttemptJournal.open(tmp_path / "attempts.db")
    ours, theirs = memory_pair()

    async def dial():
        return theirs

    task = asyncio.create_task(run_device(dial, router, identity, clock=SystemClock(), attempts=attempts))
    await ours.receive()
    await ours.send(json.dumps({**recorded(4), "x_starloom": {"v": 1, "caps": ["cancel"]}}))
    action = {"tool_name": "t.act", "tool_type": "action", "call_id": "run:task:1", "parameters": {"name": "x"}}
    answers = []
    for number in range(3):
        frame = {**recorded(46), "response_id": f"r{number}", "actions": [action], "x_starloom": {"once": True}}
        await ours.send(json.dumps(frame))
        answers.append(json.loads(await ours.receive())["action_results"])
    assert effects == ["x"]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0]["result"] == "x"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await attempts.close()


async def test_record_that_cannot_be_written_does_not_end_the_device(identity, tmp_path, caplog):
    async def act(name: str) -> str:
        """Act."""
        await attempts.close()  # the disk goes away while the tool runs
        return name

    router = ToolRouter([Toolset("t", (tool(act, name="t.act", risk=Risk.WRITE),))])
    attempts = await AttemptJournal.open(tmp_path / "attempts.db")
    ours, theirs = memory_pair()

    async def dial():
        return theirs

    task = asyncio.create_task(run_device(dial, router, identity, clock=SystemClock(), attempts=attempts))
    await ours.receive()
    await ours.send(json.dumps({**recorded(4), "x_starloom": {"v": 1, "caps": ["cancel"]}}))
    action = {"tool_name": "t.act", "tool_type": "action", "call_id": "run:task:1", "parameters": {"name": "x"}}
    answers = []
    for number in range(2):
        frame = {**recorded(46), "response_id": f"r{number}", "actions": [action], "x_starloom": {"once": True}}
        await ours.send(json.dumps(frame))
        answers += json.loads(await ours.receive())["action_results"]
    assert [answer["status"] for answer in answers] == ["success", "failure"]
    assert "is closed" in answers[1]["error"]
    await ours.send(json.dumps({**recorded(6), "x_starloom": {"settled": ["run:task:1"], "quiet": True}}))
    await ours.send(json.dumps(recorded(48)))
    assert json.loads(await ours.receive())["action_results"] == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_identity_has_the_recorded_fields_and_probed_features():
    system_info = identity_of_this_machine("me").system_info
    assert list(system_info) == list(recorded(3)["metadata"]["system_info"])
    assert system_info["device_id"] == "me"
    assert {"cli", "file_system"} <= set(system_info["supported_features"])
    assert system_info["cpu_count"] > 0
    limits = system_info["custom_metadata"]["starloom"]["limits"]
    assert 0 < limits["cpus"] <= system_info["cpu_count"]
    assert 0 < limits["memory_bytes"] <= system_info["memory_total_gb"] * 2**30
    assert limits["disk_free_bytes"] > 0


def test_device_process_loads_no_model_mcp_or_web_framework():
    code = (
        "import sys, starloom.device.process, starloom.device.identity, starloom.aip.websocket, "
        "websockets.asyncio.client; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "fastapi",
        "starlette",
        "uvicorn",
        "mcp",
        "pydantic_ai",
        "openai",
        "xllamacpp",
        "anthropic",
        "httpx",
        "rich",
    }
    assert heavy.isdisjoint(loaded)
