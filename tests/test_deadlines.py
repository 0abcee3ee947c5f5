"""Facts about deadlines that share one timer."""

import asyncio
import math

import pytest

from starloom.deadlines import Deadlines, Limit
from starloom.errors import Bug


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the timers that it was asked for."""

    timers = 0

    def call_at(self, *args, **kwargs):
        self.timers += 1
        return super().call_at(*args, **kwargs)


def run(main):
    """Run a coroutine function in a loop that counts."""
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(main())


async def after(deadlines: Deadlines, seconds: float) -> None:
    """Return when a deadline has come that is noted now."""
    come = asyncio.get_running_loop().create_future()
    deadlines.add(seconds, come.set_result, None)
    await come


async def test_callbacks_come_in_the_order_of_their_deadlines_with_their_arguments():
    deadlines, told = Deadlines(), []
    deadlines.add(0.02, told.append, "later")
    deadlines.add(0.01, told.append, "sooner")
    deadlines.add(0, told.append, "at once")
    deadlines.add(-5, told.append, "over already")
    assert told == []
    await after(deadlines, 0.03)
    assert told == ["over already", "at once", "sooner", "later"]
    assert not len(deadlines)


async def test_equal_deadlines_come_as_they_were_noted(monkeypatch):
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    deadlines, told = Deadlines(), []
    for number in range(5):
        deadlines.add(0, told.append, number)
    await after(deadlines, 0)
    assert told == [0, 1, 2, 3, 4]


async def test_one_that_is_dropped_never_comes_even_when_another_drops_it_in_the_same_moment():
    deadlines, told = Deadlines(), []
    assert deadlines.drop(deadlines.add(0, told.append, "dropped"))
    deadlines.add(0, lambda: deadlines.drop(late))
    late = deadlines.add(0, told.append, "dropped by the one before")
    key = deadlines.add(0, told.append, "kept")
    await after(deadlines, 0.01)
    assert told == ["kept"]
    assert not deadlines.drop(key)  # has come
    assert not len(deadlines)


def test_ten_thousand_calls_that_end_in_time_share_one_timer():
    async def main():
        deadlines = Deadlines()
        for _ in range(10_000):
            deadlines.drop(deadlines.add(60, print, "never"))
        assert not len(deadlines)
        return asyncio.get_running_loop().timers

    assert run(main) == 1


def test_a_timer_that_finds_nothing_is_not_set_again_and_an_earlier_deadline_takes_its_place():
    async def main():
        loop, deadlines = asyncio.get_running_loop(), Deadlines()
        deadlines.drop(deadlines.add(60, print, "never"))
        deadlines.drop(deadlines.add(0, print, "never"))  # an earlier one: the second timer
        loop.call_at(loop.time(), (rung := asyncio.Event()).set)  # the third, behind it
        await rung.wait()
        assert loop.timers == 3
        await after(deadlines, 0)

    run(main)


async def test_one_that_never_comes_needs_no_timer_and_stops_no_other():
    deadlines = Deadlines()
    never = deadlines.add(math.inf, print, "never")
    await after(deadlines, 0)
    assert len(deadlines) == 1
    deadlines.drop(never)


async def test_a_callback_that_adds_is_called_again_later():
    deadlines, told = Deadlines(), []
    done = asyncio.Event()

    def again() -> None:
        told.append(len(told))
        if len(told) < 3:
            deadlines.add(0, again)
        else:
            done.set()

    deadlines.add(0, again)
    await done.wait()
    assert told == [0, 1, 2]


async def test_a_callback_that_breaks_is_reported_and_takes_no_other_with_it():
    reported = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    deadlines = Deadlines()
    deadlines.add(0, int, "no number")
    await after(deadlines, 0)
    assert [type(error) for error in reported] == [ValueError]


def test_a_loop_that_has_ended_leaves_no_timer_that_later_ones_would_wait_for():
    deadlines = Deadlines()

    async def leave():
        deadlines.add(0.001, pytest.fail, "its loop is gone")

    run(leave)
    run(lambda: after(deadlines, 0.002))
    assert not len(deadlines)


# One block's limit


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_block_over_its_limit_is_stopped_and_the_task_goes_on():
    limit = Limit(Deadlines(), 0.001)
    with pytest.raises(TimeoutError), limit:
        await wait_for_ever()
    assert limit.has_passed
    assert not asyncio.current_task().cancelling()
    await asyncio.sleep(0)


async def test_block_that_ends_in_time_leaves_nothing_behind():
    deadlines = Deadlines()
    limit = Limit(deadlines, 0.001)
    with limit:
        await asyncio.sleep(0)
    assert not len(deadlines)
    await after(deadlines, 0.002)
    assert not limit.has_passed


async def test_timeout_of_the_blocks_own_is_not_the_limit():
    limit = Limit(Deadlines(), 60)
    with pytest.raises(TimeoutError, match="mine"), limit:
        raise TimeoutError("mine")
    assert not limit.has_passed


@pytest.mark.parametrize("breaks", [False, True])
async def test_what_a_stopped_block_makes_of_it_leaves_as_itself_and_the_task_is_not_cancelled(breaks):
    async def work() -> str:
        with limit:
            try:
                await wait_for_ever()
            except asyncio.CancelledError:
                if breaks:
                    raise ValueError("broke") from None
        return "done all the same"

    limit = Limit(Deadlines(), 0.001)
    if breaks:
        with pytest.raises(ValueError, match="broke"):
            await work()
    else:
        assert await work() == "done all the same"
    assert limit.has_passed
    assert not asyncio.current_task().cancelling()


@pytest.mark.parametrize("first", ["limit", "outside"])
async def test_cancellation_in_the_moment_of_the_limit_leaves_as_itself(first):
    async def work():
        with Limit(deadlines, 0):
            entered.set()
            await wait_for_ever()

    deadlines, entered = Deadlines(), asyncio.Event()
    if first == "outside":  # an earlier callback of the same timer
        deadlines.add(-1, lambda: task.cancel())
    task = asyncio.ensure_future(work())
    if first == "limit":
        await entered.wait()
        deadlines.add(0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_nested_limits_tell_which_one_passed():
    deadlines = Deadlines()
    outer, inner = Limit(deadlines, 0.001), Limit(deadlines, 60)
    with pytest.raises(TimeoutError), outer, inner:
        await wait_for_ever()
    assert (outer.has_passed, inner.has_passed) == (True, False)
    assert not len(deadlines)


async def test_limit_without_a_task_is_a_mistake_of_ours():
    broken = asyncio.get_running_loop().create_future()

    def outside_of_any_task() -> None:
        try:
            with Limit(Deadlines(), 60):
                pass
        except Bug as error:
            broken.set_result(error)

    asyncio.get_running_loop().call_soon(outside_of_any_task)
    assert "stops a task" in (await broken).message
