"""Numbered frames: nothing is lost and nothing is processed twice, whatever arrives how often."""

from hypothesis import given, strategies as st

from starloom.aip.ledger import Arrival, Ledger
from starloom.aip.messages import ServerMessage

MESSAGE = ServerMessage(type="heartbeat", status="ok")


def test_unacknowledged_frames_are_kept_in_order_until_they_are():
    ledger = Ledger()
    assert [ledger.keep(MESSAGE, {}) for _ in range(3)] == [1, 2, 3]
    ledger.acknowledge(2)
    assert [kept.number for kept in ledger.unacknowledged()] == [3]
    ledger.acknowledge(1)
    ledger.acknowledge(99)
    assert ledger.unacknowledged() == ()
    assert ledger.acknowledged == 3


def test_frames_are_processed_once_and_in_order():
    ledger = Ledger()
    arrivals = [ledger.arrive(number) for number in (1, 2, 2, 1, 4, 3)]
    assert arrivals == [Arrival.NEW, Arrival.NEW, Arrival.REPEATED, Arrival.REPEATED, Arrival.GAP, Arrival.NEW]


def test_session_that_gave_frames_up_cannot_be_resumed():
    ledger = Ledger(limit=2)
    for _ in range(3):
        ledger.keep(MESSAGE, {})
    assert not ledger.can_resume(3)


def test_session_resumes_from_any_number_that_is_still_kept_and_no_other():
    ledger = Ledger()
    for _ in range(5):
        ledger.keep(MESSAGE, {})
    ledger.acknowledge(2)
    assert [ledger.can_resume(number) for number in range(7)] == [False, False, True, True, True, True, False]


@given(st.lists(st.sampled_from(["send", "deliver", "repeat", "drop and resume"]), max_size=60))
def test_two_ledgers_deliver_every_frame_once_in_order(steps):
    sender, receiver = Ledger(), Ledger()
    on_the_way: list[int] = []
    delivered: list[int] = []

    def arrive(number: int) -> None:
        if receiver.arrive(number) is Arrival.NEW:
            delivered.append(number)
        sender.acknowledge(receiver.received)

    for step in steps:
        if step == "send":
            on_the_way.append(sender.keep(MESSAGE, {}))
        elif step == "deliver" and on_the_way:
            arrive(on_the_way.pop(0))
        elif step == "repeat" and delivered:
            arrive(delivered[-1])
        elif step == "drop and resume":
            assert sender.can_resume(receiver.received)
            sender.acknowledge(receiver.received)
            on_the_way = [kept.number for kept in sender.unacknowledged()]
    while on_the_way:
        arrive(on_the_way.pop(0))
    assert delivered == list(range(1, sender.sent + 1))
