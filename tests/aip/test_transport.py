"""The in-memory pair keeps the port's promises: order, back-pressure, a goodbye after everything that was sent."""

import asyncio

import pytest

from starloom.aip.transport import TransportClosed, memory_pair


async def test_frames_arrive_in_order_and_the_goodbye_comes_last():
    left, right = memory_pair()
    await left.send("a")
    await left.send(b"b")
    await left.close(1012, "restart")
    assert [await right.receive(), await right.receive()] == ["a", b"b"]
    for _ in range(2):
        with pytest.raises(TransportClosed) as closed:
            await right.receive()
        assert (closed.value.code, closed.value.reason) == (1012, "restart")
    with pytest.raises(TransportClosed):
        await left.send("c")


async def test_close_wakes_a_reader_that_waits_on_either_end():
    left, right = memory_pair()
    readers = [asyncio.create_task(end.receive()) for end in (left, right)]
    await asyncio.sleep(0)
    await left.close()
    await left.close(1001, "again")
    for reader in readers:
        with pytest.raises(TransportClosed) as closed:
            await reader
        assert closed.value.code == 1000


async def test_sender_waits_for_a_slow_reader_and_is_freed_by_the_end():
    left, right = memory_pair(limit=1)
    await left.send("a")
    waiting = asyncio.create_task(left.send("b"))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await right.receive() == "a"
    await waiting
    assert await right.receive() == "b"
    await left.send("c")
    stuck = asyncio.create_task(left.send("d"))
    await asyncio.sleep(0)
    await right.close()
    with pytest.raises(TransportClosed):
        await stuck


async def test_cancelled_receive_loses_nothing():
    left, right = memory_pair()
    reader = asyncio.create_task(right.receive())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await left.send("a")
    assert await right.receive() == "a"
