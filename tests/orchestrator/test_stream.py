"""The event stream: bounded queues, gaps that say what is missing, troubles that are reported."""

from datetime import UTC, datetime

from starloom.journal.events import Recorded, TaskReady
from starloom.orchestrator.stream import EventStream, Gap

AT = datetime(2026, 1, 1, tzinfo=UTC)


def events(first, last):
    return [Recorded("r", seq, AT, TaskReady("t")) for seq in range(first, last + 1)]


async def test_a_slow_reader_gets_a_gap_and_goes_on_after_it():
    stream = EventStream()
    slow, quick = stream.subscribe("slow", capacity=2), stream.subscribe("quick")
    stream.publish(events(1, 5))
    stream.publish(events(6, 6))
    seen = []
    async for item in slow:
        seen.append(item.seq if isinstance(item, Recorded) else item)
        if isinstance(item, Gap):
            stream.publish(events(7, 7))
            stream.close()
    assert seen == [1, 2, Gap(3, 6), 7]
    assert slow.missed == 4
    assert [item.seq async for item in quick] == [1, 2, 3, 4, 5, 6, 7]
    assert [(trouble.subscriber, trouble.seq) for trouble in stream.troubles] == [("slow", 3)]


async def test_a_raising_reader_is_reported_and_goes_on(caplog):
    stream = EventStream()
    subscription = stream.subscribe("fragile")
    seen = []

    def receive(item):
        seen.append(item.seq)
        if item.seq == 1:
            raise ValueError("oops")

    stream.publish(events(1, 2))
    stream.close()
    await stream.deliver(subscription, receive)
    assert seen == [1, 2]
    assert stream.troubles[0].what == "raised ValueError: oops"
    assert "fragile" in caplog.text


async def test_nobody_gets_events_after_leaving():
    stream = EventStream()
    reader = stream.subscribe("reader")
    stream.unsubscribe(reader)
    stream.publish(events(1, 1))
    assert [item async for item in reader] == []
