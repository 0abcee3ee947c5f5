"""Facts about the clocks."""

import asyncio
from datetime import UTC, datetime

from starloom.clock import ManualClock, SystemClock


def test_the_systems_time_is_aware_and_utc():
    assert SystemClock().now().tzinfo is UTC


async def test_sleepers_wake_in_the_order_of_their_deadlines():
    clock, woken = ManualClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as tasks:
        for seconds in (3.0, 1.0, 2.0):
            tasks.create_task(sleeper(seconds))
        await asyncio.sleep(0)
        clock.advance(2.5)
        await asyncio.sleep(0)
        assert woken == [1.0, 2.0]
        clock.advance(1)
    assert woken == [1.0, 2.0, 3.0]


async def test_advance_moves_both_times():
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    clock.advance(90)
    assert clock.monotonic() == 90
    assert clock.now() == datetime(2026, 5, 1, 0, 1, 30, tzinfo=UTC)


async def test_a_cancelled_sleeper_is_forgotten():
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(5))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    clock.advance(10)
    assert task.cancelled()


async def test_a_sleep_of_nothing_returns_at_once():
    await ManualClock().sleep(0)
