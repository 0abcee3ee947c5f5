"""Two processes with one id never both act: the place is leased, and a process stops when its lease is over."""

import asyncio
import contextlib
import json

import pytest
from pydantic import ValidationError

from starloom.aip.messages import Command
from starloom.aip.transport import memory_pair
from starloom.aip.websocket import Unreachable
from starloom.clock import ManualClock
from starloom.device.attempts import AttemptJournal
from starloom.device.identity import DeviceIdentity
from starloom.device.process import LEASE_OVER, DeviceState, run_device
from starloom.fleet.errors import DeviceLost
from starloom.fleet.fleet import Fleet
from starloom.fleet.known import KnownDevices
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings

LEASE_S = FleetSettings().lease_s


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def fleet(clock):
    return Fleet(clock=clock)


class Machine:
    """A device process on a machine of its own, and its cable to the hub."""

    def __init__(self, group, clock, bench, attempts):
        self.group, self.clock, self.bench, self.attempts = group, clock, bench, attempts
        self.fleet = None
        self.ends = []
        self.reports = asyncio.Queue()
        self.task = None

    def join(self, fleet):
        self.fleet = fleet
        work = run_device(
            self.dial,
            self.bench.router(),
            DeviceIdentity("dev1", "linux", "linux"),
            clock=self.clock,
            attempts=self.attempts,
            on_status=self.reports.put_nowait,
        )
        self.task = self.group.create_task(work)

    async def dial(self):
        if self.fleet is None:
            raise Unreachable("the cable is cut")
        ours, theirs = memory_pair()
        self.ends.append(ours)
        self.group.create_task(self.fleet.serve(ours))
        return theirs

    async def cut(self):
        self.fleet = None
        for end in self.ends:
            await end.close(1006, "cut")
        await self.until(DeviceState.WAITING)

    async def until(self, state):
        async with asyncio.timeout(5):
            while (report := await self.reports.get()).state is not state:
                pass
        return report.detail

    async def end(self):
        """End the process; without a cable it cannot say goodbye."""
        self.task.cancel()
        await asyncio.wait([self.task])
        if self.attempts is not None:
            await self.attempts.close()


@pytest.fixture
async def machine(tmp_path, group, clock, bench):
    async with contextlib.AsyncExitStack() as stack:

        async def make(name):
            attempts = await AttemptJournal.open(tmp_path / f"{name}.sqlite") if name is not None else None
            if attempts is not None:
                stack.push_async_callback(attempts.close)
            return Machine(group, clock, bench, attempts)

        yield make


@pytest.fixture
def idle(until):
    return lambda: until("dev1", DeviceStatus.IDLE)


@pytest.mark.parametrize("other", ["other", None], ids=["ours", "one without a record, as upstream's"])
async def test_nobody_else_gets_the_place_before_the_lease_is_over(fleet, machine, clock, idle, until, other):
    first, second = await machine("first"), await machine(other)
    first.join(fleet)
    await idle()
    await first.cut()
    await until("dev1", DeviceStatus.DISCONNECTED)
    clock.advance(LEASE_S - 1)
    second.join(fleet)
    assert "may act for 1 s more" in await second.until(DeviceState.REFUSED)
    await second.until(DeviceState.WAITING)
    clock.advance(2)
    await idle()


async def test_a_process_that_is_cut_off_stops_before_another_can_begin(fleet, machine, clock, idle, bench):
    first, second = await machine("first"), await machine("second")
    first.join(fleet)
    await idle()
    command = Command(tool_name="bench.hold", parameters={"name": "a"}, call_id="attempt-1")
    call = asyncio.ensure_future(fleet.call("dev1", [command], session_id="s", once=True))
    await bench.entered.wait()
    await first.cut()
    clock.advance(LEASE_S * 0.5)
    with pytest.raises(DeviceLost):
        await call
    assert bench.stopped == []
    clock.advance(LEASE_S * 0.4)
    async with asyncio.timeout(5):
        await bench.cancelled.wait()
    second.join(fleet)
    await second.until(DeviceState.REFUSED)
    await second.until(DeviceState.WAITING)
    clock.advance(LEASE_S * 0.1)
    await idle()
    assert bench.effects == []


async def test_heartbeats_renew_the_lease(fleet, machine, clock, idle, bench):
    device = await machine("first")
    device.join(fleet)
    await idle()
    command = Command(tool_name="bench.hold", parameters={"name": "a"}, call_id="attempt-1")
    call = asyncio.ensure_future(fleet.call("dev1", [command], session_id="s", once=True, timeout_s=1e6))
    await bench.entered.wait()
    for _ in range(round(2 * LEASE_S / 20)):
        clock.advance(20)
        assert await fleet.ping("dev1") is not None  # and with it, what the device said before
    bench.may_end.set()
    [result] = await call
    assert result.result == "a"
    assert bench.stopped == []


async def test_the_next_process_with_the_same_record_comes_in_at_once(fleet, machine, idle, until):
    first = await machine("first")
    first.join(fleet)
    await idle()
    await first.cut()
    await first.end()
    await until("dev1", DeviceStatus.DISCONNECTED)
    heir = await machine("first")
    heir.join(fleet)
    await idle()


async def test_after_a_goodbye_anybody_comes_in_at_once(fleet, machine, idle, until):
    first, second = await machine("first"), await machine("second")
    first.join(fleet)
    await idle()
    await first.end()
    await until("dev1", DeviceStatus.DISCONNECTED)
    second.join(fleet)
    await idle()


async def test_a_device_that_was_sent_away_keeps_its_lease(fleet, machine, idle, until, clock):
    first, second = await machine("first"), await machine("second")
    first.join(fleet)
    await idle()
    first.fleet = None
    await fleet.expel("dev1", "the credential was revoked")
    await until("dev1", DeviceStatus.DISCONNECTED)
    second.join(fleet)
    await second.until(DeviceState.REFUSED)
    await second.until(DeviceState.WAITING)
    fleet.release("dev1")
    clock.advance(60)
    await idle()


async def test_a_restarted_hub_knows_who_may_act(tmp_path, machine, clock, idle, fleet):
    path = tmp_path / "devices.sqlite"
    before = KnownDevices(path)
    killed = Fleet(clock=clock, known=before)
    first, second = await machine("first"), await machine("second")
    first.join(killed)
    await first.until(DeviceState.REGISTERED)
    with contextlib.closing(KnownDevices(path)) as known:
        after = Fleet(clock=clock, known=known)
        second.join(after)
        assert "may act for 300 s" in await second.until(DeviceState.REFUSED)
        await first.cut()
        await first.end()
        heir = await machine("first")
        heir.join(after)
        await heir.until(DeviceState.REGISTERED)
        await after.close()
    before.close()


async def test_a_restarted_hub_with_a_shorter_lease_keeps_what_the_first_one_promised(tmp_path, machine, clock):
    path = tmp_path / "devices.sqlite"
    before = KnownDevices(path)
    killed = Fleet(clock=clock, known=before)
    first, second = await machine("first"), await machine("second")
    first.join(killed)
    await first.until(DeviceState.REGISTERED)
    await first.cut()
    before.close()
    with contextlib.closing(KnownDevices(path)) as known:
        after = Fleet(clock=clock, known=known, settings=FleetSettings(lease_s=60))
        clock.advance(LEASE_S - 1)
        second.join(after)
        assert "may act for 1 s" in await second.until(DeviceState.REFUSED)
        await second.until(DeviceState.WAITING)
        clock.advance(2)
        await second.until(DeviceState.REGISTERED)
        await after.close()


async def test_a_device_that_may_still_act_is_forgotten_last(machine, clock, until):
    fleet = Fleet(clock=clock, settings=FleetSettings(max_known=2, resume_window_s=0))
    first, second = await machine("first"), await machine("second")
    first.join(fleet)
    await first.until(DeviceState.REGISTERED)
    await first.cut()
    for name in ("a", "b"):
        fleet._registry.add(name, "linux", "linux")
    assert {record.device_id for record in fleet.records()} == {"dev1", "b"}
    second.join(fleet)
    assert "may act" in await second.until(DeviceState.REFUSED)


async def test_a_command_that_comes_when_the_lease_is_over_is_not_begun(group, clock, machine, bench):
    device = await machine("first")
    ours, theirs = memory_pair()

    async def dial():
        return theirs

    device.dial = dial
    device.join(None)
    await ours.receive()
    grant = {"v": 1, "caps": ["leases"], "lease_s": 60, "heartbeat_s": 1000}
    answer = {"type": "heartbeat", "status": "ok", "timestamp": "2026-01-01T00:00:00+00:00", "x_starloom": grant}
    await ours.send(json.dumps(answer))
    await device.until(DeviceState.REGISTERED)
    clock.advance(60)
    action = {"tool_name": "bench.echo", "parameters": {"text": "a"}, "tool_type": "action", "call_id": "c"}
    command = {"type": "command", "status": "continue", "response_id": "r", "session_id": "s", "actions": [action]}
    await ours.send(json.dumps({**command, "timestamp": "2026-01-01T00:00:00+00:00"}))
    reply = json.loads(await ours.receive())
    assert [result["error"] for result in reply["action_results"]] == [LEASE_OVER]
    assert bench.effects == []


def test_a_lease_shorter_than_three_heartbeats_is_a_wrong_setting():
    with pytest.raises(ValidationError, match="three times"):
        FleetSettings(lease_s=30, heartbeat_s=20)
