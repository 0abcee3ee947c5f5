"""What two Starloom ends agree on, and what is done without it towards upstream's peers; over real sockets."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from starloom.aip.messages import Command, TaskStatus
from starloom.aip.websocket import connect
from starloom.blobs import Blob
from starloom.clock import SystemClock
from starloom.device.attempts import AttemptJournal
from starloom.device.settings import DeviceSettings
from starloom.fleet.errors import CallTimedOut, DeviceOffline
from starloom.fleet.fleet import Fleet
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings
from starloom.fleet.tasks import IncomingTask, TaskOutcome


class Answering:
    """Performs tasks at once."""

    def __init__(self) -> None:
        self.taken: list[IncomingTask] = []
        self.asked = asyncio.Event()

    async def perform(self, task: IncomingTask) -> TaskOutcome:
        self.taken.append(task)
        self.asked.set()
        return TaskOutcome(TaskStatus.COMPLETED, "done")


@pytest.fixture
def tasks():
    return Answering()


@pytest.fixture
def settings():
    return FleetSettings(late_answer_s=0.2, resume_window_s=5)


@pytest.fixture
def fleet(tasks, settings):
    return Fleet(clock=SystemClock(), tasks=tasks, settings=settings)


@pytest.fixture
def near(join, listener):
    """Start our device over a real socket."""

    async def start(**options):
        return await join(connect=lambda: connect(listener.url, token="KEY"), **options)

    return start


@pytest.fixture
async def attempts(tmp_path):
    """A device's record of attempts."""
    record = await AttemptJournal.open(tmp_path / "attempts.db")
    yield record
    await record.close()


IMAGE = Blob("image/png", bytes(range(256)) * 8000)
HOLD = Command(tool_name="bench.hold", parameters={"name": "x"})


def echo(text):
    return Command(tool_name="bench.echo", parameters={"text": text})


async def test_cancelled_call_stops_the_tool_on_the_device_before_it_returns(fleet, near, bench):
    await near()
    call = asyncio.create_task(fleet.call("dev1", [echo("a"), HOLD, echo("b")], session_id="s"))
    await bench.entered.wait()
    async with asyncio.timeout(2):
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled()
    assert bench.stopped == ["x"]
    assert bench.effects == ["a"]
    assert fleet.get("dev1").status is DeviceStatus.IDLE


async def test_call_cancelled_before_its_turn_is_never_sent(fleet, near, bench):
    await near()
    first = asyncio.create_task(fleet.call("dev1", [HOLD], session_id="s1"))
    await bench.entered.wait()
    second = asyncio.create_task(fleet.call("dev1", [echo("never")], session_id="s2"))
    third = asyncio.create_task(fleet.call("dev1", [echo("third")], session_id="s3"))
    await asyncio.sleep(0)
    second.cancel()
    bench.may_end.set()
    assert (await third)[0].result == "third"
    await first
    assert bench.effects == ["x", "third"]


async def test_one_command_at_a_time_unless_the_device_takes_more(fleet, near, bench):
    await near()
    calls = [asyncio.create_task(fleet.call("dev1", [HOLD], session_id=f"s{n}")) for n in range(3)]
    await bench.entered.wait()
    assert bench.running == 1
    bench.may_end.set()
    await asyncio.gather(*calls)
    assert bench.most_running == 1


async def test_device_that_takes_two_gets_two(fleet, near, bench):
    await near(settings=DeviceSettings(max_in_flight=2))
    assert fleet.get("dev1").max_in_flight == 2
    calls = [asyncio.create_task(fleet.call("dev1", [HOLD], session_id=f"s{n}")) for n in range(3)]
    await bench.both.wait()
    bench.may_end.set()
    await asyncio.gather(*calls)
    assert bench.most_running == 2


async def test_progress_of_a_batch_is_told_to_its_call(fleet, near):
    await near()
    told = []
    await fleet.call("dev1", [echo("a"), echo("b")], session_id="s", on_progress=told.append)
    assert told == ["1/2", "2/2"]


async def test_attempt_is_done_once_and_forgotten_when_its_result_is_stored(fleet, near, bench, attempts):
    await near(attempts=attempts)
    assert "attempts" in fleet.get("dev1").capabilities
    attempt = Command(tool_name="bench.echo", parameters={"text": "a"}, call_id="run:task:1")
    for _ in range(2):  # a hub that restarted asks again
        assert (await fleet.call("dev1", [attempt], session_id="s", once=True))[0].result == "a"
    assert bench.effects == ["a"]
    assert [unreported.attempt_id for unreported in await attempts.unacknowledged()] == ["run:task:1"]
    fleet.committed("dev1", ["run:task:1"])
    await fleet.call("dev1", [], session_id="s")  # a round trip: the device has read it
    assert await attempts.unacknowledged() == ()


async def test_repeated_call_id_is_carried_out_again_unless_it_is_an_attempt(fleet, near, bench, attempts):
    await near(attempts=attempts)
    for text in "ab":
        await fleet.call("dev1", [replace(echo(text), call_id="same")], session_id="s")
    assert bench.effects == ["a", "b"]


async def test_attempt_asked_for_again_while_it_runs_joins_the_running_one(fleet, near, bench, attempts):
    await near(attempts=attempts, settings=DeviceSettings(max_in_flight=2))
    attempt = replace(HOLD, call_id="run:task:1")
    calls = [asyncio.create_task(fleet.call("dev1", [attempt], session_id=f"s{n}", once=True)) for n in range(2)]
    await bench.entered.wait()
    bench.may_end.set()
    results = await asyncio.gather(*calls)
    assert [result.result for (result,) in results] == ["x", "x"]
    assert bench.effects == ["x"]


PICTURE = Command(tool_name="bench.picture", tool_type="data_collection")


async def recording(listener, frames):
    """Dial and note every frame the device sends."""
    transport = await connect(listener.url, token="KEY")
    send_now = transport.send_now

    def record(frame):
        sent = send_now(frame)
        frames.extend([frame] if sent else [])
        return sent

    transport.send_now = record
    return transport


async def test_blob_travels_as_binary_frames_and_is_handed_out_as_it_is_wanted(fleet, join, listener):
    frames = []
    await join(connect=lambda: recording(listener, frames))
    frames.clear()
    (result,) = await fleet.call("dev1", [PICTURE], session_id="s", blobs=True)
    assert (result.status, result.result) == ("success", IMAGE)
    assert any(isinstance(frame, bytes) for frame in frames)
    assert all(len(frame) < 2000 for frame in frames if isinstance(frame, str))
    (result,) = await fleet.call("dev1", [PICTURE], session_id="s")
    assert hash(result.result) == hash(IMAGE.data_url())


async def test_blob_is_its_data_url_where_binary_frames_are_not_agreed(fleet, join, listener):
    frames = []
    settings = DeviceSettings(first_delay_s=0.01, binary_images=False)
    await join(connect=lambda: recording(listener, frames), settings=settings)
    (result,) = await fleet.call("dev1", [PICTURE], session_id="s", blobs=True)
    assert hash(result.result) == hash(IMAGE.data_url())
    assert not any(isinstance(frame, bytes) for frame in frames)


async def test_image_lost_with_its_link_is_sent_again_on_the_next(fleet, join, bench, proxy):
    await join(connect=lambda: connect(f"{proxy.url}?token=KEY"))
    proxy.budget = 500_000
    (result,) = await fleet.call("dev1", [PICTURE], session_id="s", blobs=True)
    assert (proxy.cuts, result.result == IMAGE) == (1, True)


async def test_pushed_task_comes_back_under_the_promised_session_and_its_end_is_kept(fleet, near, tasks):
    await near()
    session_id = fleet.push_task("dev1", "count it", "../count")
    await tasks.asked.wait()
    await fleet.call("dev1", [], session_id="s")  # a round trip: the end is out
    assert fleet.pushed.result("_count") == TaskOutcome(TaskStatus.COMPLETED, "done")
    assert [(task.session_id, task.request, task.device_id) for task in tasks.taken] == [
        (session_id, "count it", "dev1")
    ]


async def test_upstreams_device_keeps_the_promised_session_too(fleet, listener, until, tasks):
    client = await listener.dial()
    await client.register("dev1")
    session_id = fleet.push_task("dev1", "count it", "demo")
    pushed = await client.hear()
    assert (pushed["type"], pushed["user_request"], pushed["task_name"]) == ("task", "count it", "demo")
    await client.say({"type": "task", "status": "continue", "task_name": "demo", "request": "count it"})
    assert (await client.hear())["session_id"] == session_id


async def test_upstreams_device_that_cannot_be_told_stays_busy_until_its_late_answer(fleet, listener, until):
    client = await listener.dial()
    await client.register("dev1")
    hearing = asyncio.create_task(client.hear())
    await until("dev1", DeviceStatus.IDLE)
    call = asyncio.create_task(fleet.call("dev1", [Command(tool_name="slow")], session_id="s", timeout_s=0.02))
    command = await hearing
    with pytest.raises(CallTimedOut):
        await call
    assert fleet.get("dev1").status is DeviceStatus.BUSY
    queued = asyncio.create_task(fleet.call("dev1", [Command(tool_name="next")], session_id="s2"))
    await client.answer(command, "late")
    after = await client.hear()
    assert after["actions"][0]["tool_name"] == "next"
    await client.answer(after, "on time")
    assert (await queued)[0].result == "on time"


async def test_upstreams_device_that_never_answers_is_free_again_after_a_while(fleet, listener, until):
    client = await listener.dial()
    await client.register("dev1")
    hearing = asyncio.create_task(client.hear())
    await until("dev1", DeviceStatus.IDLE)
    with pytest.raises(CallTimedOut):
        await fleet.call("dev1", [Command(tool_name="slow")], session_id="s", timeout_s=0.02)
    await hearing
    await until("dev1", DeviceStatus.IDLE)


async def test_ping_tells_a_living_device_from_a_silent_one_and_from_none(fleet, near, listener, until, settings):
    await near()
    assert (await fleet.ping("dev1")) >= 0
    object.__setattr__(settings, "probe_timeout_s", 0.05)
    silent = await listener.dial()
    await silent.register("dev2")
    await silent.answer(json.loads(await silent.connection.recv()), [])
    await until("dev2", DeviceStatus.IDLE)
    assert await fleet.ping("dev2") is None
    with pytest.raises(DeviceOffline):
        await fleet.ping("dev3")


class TestLimits:
    @pytest.fixture
    def settings(self):
        return FleetSettings(max_clients=1, max_unregistered=2, registration_timeout_s=60)

    async def test_more_clients_than_allowed_are_refused(self, listener):
        first, second = await listener.dial(), await listener.dial()
        assert (await first.register("a"))["status"] == "ok"
        assert (await second.register("b"))["error"] == "This server has as many clients as it takes"

    async def test_more_unregistered_connections_than_allowed_are_closed(self, listener):
        for _ in range(2):
            await listener.dial()
        third = await listener.dial()
        assert await third.closed() == 1013


class Proxy:
    """A TCP proxy that cuts, delays and half-closes: a bad network between device and hub."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.budget: int | None = None  # bytes until the cut; None: never
        self.delay_s = 0.0
        self.cuts = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        return f"ws://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/ws"

    async def accept(self, reader, writer) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        writers = (writer, there_writer)
        await asyncio.gather(self.pump(reader, there_writer, writers), self.pump(there_reader, writer, writers))

    async def pump(self, reader, writer, writers) -> None:
        try:
            while chunk := await reader.read(512):
                if self.budget is not None:
                    self.budget -= len(chunk)
                    if self.budget < 0:
                        self.budget = None
                        self.cuts += 1
                        for end in writers:
                            end.transport.abort()
                        return
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(chunk)
                await writer.drain()
            writer.close()
        except OSError:
            for end in writers:
                end.transport.abort()

    async def stop(self) -> None:
        self.server.close()


@pytest.fixture
async def proxy(listener):
    found = Proxy(int(listener.url.split(":")[2].split("/")[0]))
    found.url = await found.start()
    yield found
    await found.stop()


@pytest.mark.parametrize("budget", range(100, 4000, 300))
async def test_real_link_cut_after_any_number_of_bytes_loses_and_repeats_nothing(fleet, join, bench, proxy, budget):
    await join(connect=lambda: connect(f"{proxy.url}?token=KEY"), settings=DeviceSettings(first_delay_s=0.01))
    proxy.budget, proxy.delay_s = budget, 0.001
    async with asyncio.timeout(20):
        values = [
            (await fleet.call("dev1", [echo(f"{number}")], session_id=f"s{number}"))[0].result for number in range(6)
        ]
    assert values == bench.effects == [str(number) for number in range(6)]
    assert proxy.cuts == 1


@pytest.mark.parametrize("settings", [FleetSettings(frames_per_second=0.2)])
async def test_answers_that_the_hub_asked_for_are_free(fleet, near, settings):
    """At this pace, two frames at once and then one in five seconds, paid answers would take minutes."""
    await near()
    async with asyncio.timeout(30):
        for number in range(40):
            (result,) = await fleet.call("dev1", [echo(str(number))], session_id="s")
            assert result.result == str(number)
