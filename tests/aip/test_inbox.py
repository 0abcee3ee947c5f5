"""Frames go to the taker at once and in order, others get their turn, and a slow taker stops the reading."""

import asyncio

import pytest

from starloom.aip.inbox import AT_ONCE, MOST_WAITING, Inbox, closed_with
from starloom.aip.transport import TransportClosed


class Socket:
    """What an inbox does to the connection it reads from."""

    def __init__(self):
        self.reading = True
        self.inbox = Inbox(self.pause, self.resume)

    def pause(self):
        assert self.reading
        self.reading = False

    def resume(self):
        assert not self.reading
        self.reading = True


async def settle():
    """Let everything that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
def socket():
    return Socket()


async def test_taker_gets_frames_within_the_call_and_then_the_end(socket):
    taken = []
    socket.inbox.put("early")
    delivering = asyncio.create_task(socket.inbox.deliver(lambda frame: taken.append(frame)))
    await asyncio.sleep(0)
    assert taken == ["early"]
    socket.inbox.put(b"now")
    assert taken == ["early", b"now"]
    socket.inbox.close(closed_with(1001, "bye"))
    socket.inbox.put("too late")
    with pytest.raises(TransportClosed) as closed:
        await delivering
    assert (closed.value.code, closed.value.reason, taken) == (1001, "bye", ["early", b"now"])


async def test_crowd_of_frames_is_taken_in_turns_and_in_order(socket):
    taken = []
    delivering = asyncio.create_task(socket.inbox.deliver(lambda frame: taken.append(frame)))
    await asyncio.sleep(0)
    socket.inbox.turn()
    frames = [str(number) for number in range(3 * AT_ONCE)]
    for frame in frames:
        socket.inbox.put(frame)
    assert taken == frames[:AT_ONCE]
    assert not socket.reading
    await settle()
    assert taken == frames
    assert socket.reading
    socket.inbox.turn()
    socket.inbox.put("next")
    assert taken[-1] == "next"
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)


async def test_nothing_is_taken_nor_read_while_the_taker_rests(socket):
    taken, rested = [], asyncio.Event()

    def take(frame):
        taken.append(frame)
        return rested.wait() if frame == "slow" else None

    delivering = asyncio.create_task(socket.inbox.deliver(take))
    await asyncio.sleep(0)
    for frame in ("a", "slow", "b"):
        socket.inbox.put(frame)
    await asyncio.sleep(0)
    assert (taken, socket.reading) == (["a", "slow"], False)
    rested.set()
    await settle()
    assert (taken[-1], socket.reading) == ("b", True)
    socket.inbox.close(closed_with(None, None))
    with pytest.raises(TransportClosed) as closed:
        await delivering
    assert closed.value.code == 1006


async def test_taker_that_breaks_ends_the_connection_with_its_error(socket):
    def take(frame):
        raise ZeroDivisionError(frame)

    delivering = asyncio.create_task(socket.inbox.deliver(take))
    await asyncio.sleep(0)
    socket.inbox.put("a")
    with pytest.raises(ZeroDivisionError):
        await delivering


async def test_reading_stops_while_too_much_waits_for_a_receiver(socket):
    for number in range(MOST_WAITING + 1):
        socket.inbox.put(str(number))
    assert not socket.reading
    assert await socket.inbox.receive() == "0"
    assert socket.reading
    reader = asyncio.create_task(Socket().inbox.receive())
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
