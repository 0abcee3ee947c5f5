"""The three cores against each other and alone: deadlines, notes, resumption; no socket, no clock."""

import json
import os

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from starloom.aip import client, constellation, device, server_events
from starloom.aip.constellation import ConstellationProtocol
from starloom.aip.device import DeviceProtocol
from starloom.aip.extension import ALL_CAPABILITIES, Capability, Note, Offer, read_note, read_offer
from starloom.aip.ledger import Ledger
from starloom.aip.messages import ClientMessageType, Command, Result, ServerMessageType, TaskStatus
from starloom.aip.server import ServerProtocol
from starloom.aip.stamps import CountingStamps

ALL = Offer(caps=tuple(ALL_CAPABILITIES))


def server(**options):
    return ServerProtocol(CountingStamps(), 0.0, **options)


def said(end):
    """Return the frames an end wants sent, parsed."""
    return [json.loads(frame) if isinstance(frame, str) else frame for frame in end.take_frames()]


def pass_on(sender, receiver, now=0.0):
    """Carry an end's frames to the other and return the events there."""
    return [event for frame in sender.take_frames() for event in receiver.receive(frame, now)]


def pair(*, offer=ALL, ours=ALL, ledger=None, server_ledger=None, book=None):
    """Return a registered device and its server's end."""
    near = DeviceProtocol(
        CountingStamps(), "dev1", metadata={"platform": "linux"}, offer=offer, ledger=ledger or Ledger()
    )
    far = server()
    near.start(0.0)
    pass_on(near, far)
    far.accept(0.0, offer=ours, ledger=server_ledger or Ledger(), book=book)
    return near, far, pass_on(far, near)


def galaxy():
    near = ConstellationProtocol(CountingStamps(), "galaxy", "dev1", offer=ALL)
    far = server()
    near.start(0.0)
    pass_on(near, far)
    far.accept(0.0, offer=ALL)
    pass_on(far, near)
    return near, far


# Deadlines


def test_server_closes_a_connection_that_does_not_register():
    end = server(registration_timeout_s=30)
    assert end.deadline() == 30
    assert end.expire(29.9) == []
    end.expire(30)
    assert [frame["error"] for frame in said(end)] == ["No register message came in time"]
    assert end.closing.code == 1008
    assert end.deadline() is None


def test_server_closes_a_connection_that_falls_silent_and_any_frame_puts_that_off():
    _, end, _ = pair(offer=None)
    assert end.deadline() == 300
    end.receive('{"type":"heartbeat","status":"ok"}', 200.0)
    assert end.deadline() == 500
    end.expire(500)
    assert end.closing.reason == "no sign of life in time"


def test_agreed_heartbeat_shortens_the_silence():
    near, far, _ = pair(ours=replace(ALL, heartbeat_s=5.0))
    assert far.deadline() == 15
    assert near.deadline() == 5
    near.expire(5)
    assert [frame["type"] for frame in said(near)] == ["heartbeat"]
    assert near.deadline() == 10


def test_client_gives_up_when_its_registration_is_not_answered():
    end = DeviceProtocol(CountingStamps(), "dev1", metadata={}, registration_timeout_s=30)
    end.start(0.0)
    assert end.expire(30) == [client.Refused("the server did not answer the registration in time")]
    assert end.closing.code == 1008


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ('{"type":"error","status":"error","error":"no"}', 1000),
        ('{"type":"command","status":"continue"}', 1002),
        ("{oops", 1002),
    ],
)
def test_client_says_goodbye_only_to_a_server_that_refused_it(first, code):
    end = DeviceProtocol(CountingStamps(), "dev1", metadata={})
    end.start(0.0)
    (refused,) = end.receive(first, 0.0)
    assert isinstance(refused, client.Refused)
    assert end.closing.code == code


def test_client_gives_up_when_the_server_falls_silent():
    near, _, _ = pair(offer=None)
    for now in (30, 60, 90):
        near.expire(now)
    assert near.closing.reason == "no sign of life from the server in time"


def test_probe_is_answered_by_anything_and_fails_by_silence():
    near, far, _ = pair()
    far.probe(0.0)
    pass_on(far, near)
    events = pass_on(near, far, 1.0)
    assert server_events.ProbeAnswered() in events
    far.probe(2.0)
    assert server_events.ProbeFailed() in far.expire(7.0)


def test_upstreams_device_is_probed_with_an_empty_command():
    _, far, _ = pair(offer=None)
    far.probe(0.0)
    (frame,) = said(far)
    assert (frame["type"], frame["actions"]) == ("command", [])
    assert "x_starloom" not in frame


# Agreement


def test_nothing_of_ours_is_said_to_a_peer_that_did_not_announce_itself():
    near, far, _ = pair(offer=None)
    far.command([Command(tool_name="a")], session_id="s", timeout_s=5, once=True)
    assert not far.cancel("id")
    far.presence("dev1", online=True)
    far.settled(["a"])
    far.error("text", code="code")
    near.progress("id", "1/2")
    assert all("x_starloom" not in frame for frame in said(far) + said(near))


def test_capabilities_are_what_both_named_and_unknown_ones_are_ignored():
    offer = Offer(caps=("cancel", "teleport"))
    assert offer.agreed(ALL) == {Capability.CANCEL}
    assert offer.agreed(None) == frozenset()


@pytest.mark.parametrize("announced", [None, 5, "x", [], {"v": 0}, {"v": "a"}, {"caps": 5}, {"max_in_flight": 0}])
def test_unusable_announcement_counts_as_none(announced):
    assert read_offer({"x_starloom": announced}) is None


@pytest.mark.parametrize("written", [None, {"seq": "x"}, {"seq": 0}, {"ack": -1}, {"progress": 5}])
def test_unusable_notes_count_as_none(written):
    assert read_note(written) == Note()


def test_confirmation_carries_our_announcement_only_to_who_announced():
    near, _, events = pair()
    (accepted,) = events
    assert accepted.offer.caps == ALL.caps
    assert not accepted.resumed
    _, _, (plain,) = pair(offer=None)
    assert plain == client.Accepted(None, False)
    assert near.agreed == ALL_CAPABILITIES


# Commands


def test_command_and_answer_find_each_other():
    near, far, _ = pair()
    response_id = far.command([Command(tool_name="a")], session_id="s", timeout_s=5, once=True)
    (asked,) = pass_on(far, near)
    assert (asked.timeout_s, asked.once) == (5, True)
    near.results(asked, [Result(status="success", result=1, call_id=asked.actions[0].call_id)])
    (arrived,) = pass_on(near, far)
    assert arrived.response_id == response_id
    assert arrived.results[0].result == 1


def test_cancel_progress_and_settled_travel_as_notes():
    near, far, _ = pair()
    assert far.cancel("r1")
    far.settled(["a1"])
    assert pass_on(far, near) == [device.CommandCancelAsked("r1"), device.AttemptsSettled(("a1",))]
    near.progress("r1", "1/2")
    assert pass_on(near, far) == [server_events.Progressed("r1", "1/2")]


def test_error_carries_code_and_id_where_agreed():
    near, far = galaxy()
    session_id = near.ask_task("x", task_id="t")
    (asked,) = pass_on(near, far)
    far.error("no", code="not_connected", about=asked.message)
    (frame,) = said(far)
    assert frame["x_starloom"] == {"code": "not_connected", "about": session_id}
    assert near.receive(json.dumps(frame), 0.0) == [constellation.TaskRefused(session_id, "no")]


# Resumption


def test_frames_lost_on_the_way_are_sent_again_after_resumption_and_processed_once():
    near, far, _ = pair()
    far.command([Command(tool_name="a")], session_id="s")
    lost = far.command([Command(tool_name="b")], session_id="s")
    first, _ = far.take_frames()
    (asked,) = near.receive(first, 0.0)
    near.results(asked, [Result(status="success", call_id=asked.actions[0].call_id)])
    near.take_frames()  # the link breaks: the answer is lost as well
    again = Offer(caps=ALL.caps, token="t", received=near.ledger.received)
    new_near = DeviceProtocol(CountingStamps(), "dev1", metadata={}, offer=again, ledger=near.ledger)
    new_far = server()
    new_near.start(0.0)
    pass_on(new_near, new_far)
    confirm = replace(ALL, resumed=True, received=far.ledger.received)
    new_far.accept(0.0, offer=confirm, ledger=far.ledger, book=far.book)
    events = pass_on(new_far, new_near)
    assert events[0] == client.Accepted(confirm, True)
    assert [event.response_id for event in events[1:]] == [lost]
    results = [event for event in pass_on(new_near, new_far) if isinstance(event, server_events.ResultsArrived)]
    assert [event.response_id for event in results] == [asked.response_id]


def test_what_the_other_end_says_it_has_processed_is_not_sent_again():
    near, far, _ = pair()
    far.command([], session_id="s")
    far.command([], session_id="s")
    pass_on(far, near)  # the link breaks before a word of it comes back
    again = Offer(caps=ALL.caps, token="t", received=near.ledger.received)
    new_near = DeviceProtocol(CountingStamps(), "dev1", metadata={}, offer=again, ledger=near.ledger)
    new_far = server()
    new_near.start(0.0)
    pass_on(new_near, new_far)
    new_far.accept(0.0, offer=replace(ALL, resumed=True, received=0), ledger=far.ledger, book=far.book)
    assert [frame["type"] for frame in said(new_far)] == ["heartbeat"]


def test_missing_frame_closes_the_connection_for_a_resumption():
    near, far, _ = pair()
    far.command([], session_id="s")
    far.command([], session_id="s")
    _, second = far.take_frames()
    assert near.receive(second, 0.0) == []
    assert near.closing.code == 1002


def test_long_one_sided_talk_is_acknowledged_on_the_way():
    near, far, _ = pair()
    for _ in range(40):
        far.command([], session_id="s")
    pass_on(far, near)
    pass_on(near, far)
    assert len(far.ledger.unacknowledged()) < 16


def test_slow_reader_ends_the_connection_not_the_memory():
    _, far, _ = pair(offer=None)
    for _ in range(5000):
        far.presence("x", online=True)
        far.push_task("x", session_id="s", task_name="t")
    assert len(far.take_frames()) == 4096
    assert far.closing.reason == "the other end reads too slowly"


# What makes no sense

FIELDS = ["type", "status", "client_type", "client_id", "session_id", "request", "action_results", "prev_response_id"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FRAME = st.one_of(
    st.text(),
    st.binary(),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from([*ClientMessageType, *ServerMessageType, "x"]),
            "status": st.sampled_from([*TaskStatus]),
        },
        optional=dict.fromkeys([*FIELDS[2:], "metadata", "actions", "result", "x_starloom"], JSON),
    ).map(json.dumps),
)


@given(st.lists(FRAME, max_size=12), st.booleans())
@settings(max_examples=int(os.environ.get("STARLOOM_FUZZ_EXAMPLES", "100")), deadline=None)
def test_no_frame_makes_a_core_raise_hang_or_grow(frames, extended):
    near, far, _ = pair(offer=ALL if extended else None)
    waiting, _ = galaxy()
    fresh = server()
    for end in (near, far, waiting, fresh):
        for frame in frames:
            end.receive(frame, 1.0)
        for out in end.take_frames():
            assert len(out) < 20_000
        end.deadline()
        end.expire(2.0)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["s1", "s2"])), max_size=12), st.randoms())
def test_answers_never_cross_between_two_devices(asked, chance):
    ends = {name: pair() for name in ("a", "b")}
    sent = {name: [] for name in ends}
    for name, session_id in asked:
        sent[name].append(ends[name][1].command([Command(tool_name="t")], session_id=session_id))
    answers = {}
    for name, (near, far, _) in ends.items():
        for event in pass_on(far, near):
            near.results(event, [Result(status="success", result=name, call_id=event.actions[0].call_id)])
        answers[name] = near.take_frames()
    crossed = [(name, frame) for name in ends for frame in answers["b" if name == "a" else "a"]]
    chance.shuffle(crossed)
    for name, frame in crossed:  # the other device's answers, on the wrong connection: their ledgers differ, so plain
        plain = json.loads(frame)
        plain.pop("x_starloom", None)
        before = len(ends[name][1].book)
        ends[name][1].receive(json.dumps({**plain, "session_id": "foreign"}), 0.0)
        assert len(ends[name][1].book) == before
    for name, (_, far, _) in ends.items():
        events = [event for frame in answers[name] for event in far.receive(frame, 0.0)]
        assert [event.response_id for event in events] == sent[name]
        assert all(event.results[0].result == name for event in events)
