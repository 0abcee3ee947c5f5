"""The fleet over in-memory links: devices come, are called, are stopped, and go."""

import asyncio

import pytest

from starloom.aip.messages import Command, ResultStatus
from starloom.aip.transport import TransportClosed, memory_pair
from starloom.fleet.errors import CallTimedOut, DeviceLost, DeviceOffline, UnknownDevice
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings
from starloom.journal.events import DeviceConnected, DeviceDisconnected, DeviceStatusChanged


async def test_device_is_idle_with_its_tools_after_registration(fleet, join):
    await join()
    record = fleet.get("dev1")
    assert record.status is DeviceStatus.IDLE
    assert [tool.tool_name for tool in record.tools] == [
        "bench.echo",
        "bench.fail",
        "bench.falsy",
        "bench.hold",
        "bench.picture",
    ]
    assert record.tools[0].tool_key == "action::bench.echo"
    assert record.tools[0].namespace == "bench"
    assert record.tools[0].meta == {"starloom": {"risk": "write", "destinations": ["text"]}}
    assert record.system_info["cpu_count"] == 2
    assert "cancel" in record.capabilities


async def test_call_returns_one_result_per_command_in_order(fleet, join):
    await join()
    commands = [
        Command(tool_name="bench.echo", parameters={"text": "a"}),
        Command(tool_name=""),
        Command(tool_name="bench.falsy", tool_type="data_collection"),
    ]
    results = await fleet.call("dev1", commands, session_id="s1")
    assert [result.status for result in results] == [ResultStatus.SUCCESS] * 3
    assert [result.result for result in results] == ["a", "No action taken.", 0]
    assert [result.namespace for result in results] == ["bench", None, "bench"]


async def test_empty_batch_has_no_results(fleet, join):
    await join()
    assert await fleet.call("dev1", [], session_id="s1") == []


async def test_batch_stops_at_its_first_failure_and_skips_the_rest(fleet, join, bench):
    await join()
    commands = [
        Command(tool_name="bench.echo", parameters={"text": "a"}),
        Command(tool_name="bench.fail", parameters={"why": "broken"}),
        Command(tool_name="bench.echo", parameters={"text": "b"}),
        Command(tool_name="bench.echo", parameters={"text": "c"}),
    ]
    results = await fleet.call("dev1", commands, session_id="s1")
    assert [result.status for result in results] == ["success", "failure", "skipped", "skipped"]
    assert "broken" in (results[1].error or "")
    assert bench.effects == ["a"]


async def test_unknown_tool_and_wrong_kind_are_answered_with_failures(fleet, join):
    await join()
    unknown = await fleet.call("dev1", [Command(tool_name="no.such", parameters={})], session_id="s")
    wrong = await fleet.call("dev1", [Command(tool_name="bench.falsy")], session_id="s")
    assert [unknown[0].status, wrong[0].status] == ["failure", "failure"]
    assert "no.such" in (unknown[0].error or "")


async def test_calls_of_an_unknown_or_offline_device_are_refused(fleet, join, until):
    with pytest.raises(UnknownDevice) as unknown:
        await fleet.call("nobody", [], session_id="s")
    assert unknown.value.ids == {"device_id": "nobody"}
    device = await join()
    device.cancel()
    await until("dev1", DeviceStatus.DISCONNECTED)
    with pytest.raises(DeviceOffline):
        await fleet.call("dev1", [], session_id="s")


async def test_device_shows_its_task_while_busy(fleet, join, bench, until, group):
    await join()
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    call = group.create_task(fleet.call("dev1", [hold], session_id="s1", task_name="../count it"))
    await bench.entered.wait()
    assert fleet.get("dev1").status is DeviceStatus.BUSY
    assert fleet.get("dev1").current_task == "_count_it"
    bench.may_end.set()
    assert (await call)[0].result == "x"
    assert fleet.get("dev1").status is DeviceStatus.IDLE
    assert fleet.get("dev1").current_task is None


async def test_cancelled_call_returns_after_the_tool_has_stopped(fleet, join, bench, group):
    await join()
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    call = group.create_task(fleet.call("dev1", [hold], session_id="s1"))
    await bench.entered.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert bench.stopped == ["x"]
    assert bench.effects == []
    assert fleet.get("dev1").status is DeviceStatus.IDLE
    assert (await fleet.call("dev1", [], session_id="s2")) == []


async def test_call_that_takes_too_long_stops_the_tool_and_is_in_doubt(fleet, join, bench):
    await join()
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    with pytest.raises(CallTimedOut) as late:
        await fleet.call("dev1", [hold], session_id="s1", timeout_s=0.05)
    assert late.value.in_doubt
    assert late.value.ids == {"device_id": "dev1", "session_id": "s1"}
    assert fleet.get("dev1").status is DeviceStatus.IDLE


async def test_call_of_a_device_that_says_goodbye_is_lost_at_once(fleet, join, bench):
    device = await join()
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    call = asyncio.create_task(fleet.call("dev1", [hold], session_id="s1"))
    await bench.entered.wait()
    device.cancel()
    with pytest.raises(DeviceLost) as lost:
        await call
    assert lost.value.in_doubt


async def test_events_tell_of_coming_working_and_going(fleet, join, until, events):
    device = await join()
    await fleet.call("dev1", [], session_id="s")
    device.cancel()
    await until("dev1", DeviceStatus.DISCONNECTED)
    statuses = [event.status for event in events if isinstance(event, DeviceStatusChanged)]
    assert statuses == ["registering", "connected", "idle", "busy", "idle", "disconnected"]
    others = [event for event in events if not isinstance(event, DeviceStatusChanged)]
    assert others == [DeviceConnected("dev1", "linux"), DeviceDisconnected("dev1")]


async def test_two_devices_work_at_the_same_time(fleet, join, bench, group):
    await join("dev1")
    await join("dev2")
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    calls = [group.create_task(fleet.call(device, [hold], session_id=device)) for device in ("dev1", "dev2")]
    await bench.both.wait()
    bench.may_end.set()
    assert [(await call)[0].result for call in calls] == ["x", "x"]


async def test_close_says_goodbye_to_everyone(fleet, join, until):
    await join("dev1")
    await join("dev2")
    await fleet.close()
    assert fleet.client_ids() == ()
    ours, theirs = memory_pair()
    await fleet.serve(ours)
    with pytest.raises(TransportClosed) as closed:
        await theirs.receive()
    assert closed.value.code == 1012
    assert {record.status for record in fleet.records()} == {DeviceStatus.DISCONNECTED}


async def test_cancelled_connection_leaves_nothing_waiting(fleet, bench, join, group, until):
    servers = []

    async def connect():
        ours, theirs = memory_pair()
        servers.append(asyncio.create_task(fleet.serve(ours)))
        return theirs

    await join(connect=connect)
    hold = Command(tool_name="bench.hold", parameters={"name": "x"})
    calls = [asyncio.create_task(fleet.call("dev1", [hold], session_id=name)) for name in ("out", "waiting")]
    await bench.entered.wait()
    servers[0].cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [DeviceLost, DeviceOffline]


class TestManyDevices:
    @pytest.fixture
    def settings(self):
        return FleetSettings(max_known=2, resume_window_s=0)

    async def test_oldest_device_that_left_is_forgotten_beyond_the_limit(self, fleet, join, until):
        for device_id in ("a", "b", "c"):
            device = await join(device_id)
            if device_id != "b":
                device.cancel()
                await until(device_id, DeviceStatus.DISCONNECTED)
        assert [record.device_id for record in fleet.records()] == ["b", "c"]
