"""Blobs as binary frames: what leaves is what arrives, whole or not at all."""

import hashlib
import random

import pytest
from hypothesis import given, strategies as st

from starloom.aip.files import CHUNK_BYTES, NOT_WHOLE, Assembly, take_out
from starloom.aip.messages import Result
from starloom.blobs import Blob

BODY = random.Random(0).randbytes(CHUNK_BYTES + 200_000)


def blob(body=BODY, mime="image/png"):
    return Blob(mime, body)


def carry(results, assembly=None, *, spoil=lambda frames: frames):
    sent, attachments = take_out(results)
    assembly = assembly or Assembly()
    for frame in spoil([frame for attachment in attachments for frame in attachment.frames()]):
        assert assembly.add(frame)
    return sent, assembly.put_back(sent, [attachment.note() for attachment in attachments])


def test_image_leaves_the_text_and_comes_back_the_same():
    result = Result(status="success", result=blob(), call_id="c")
    sent, received = carry([result])
    assert len(sent[0].result) < 100
    assert received[0].result.data_url().startswith("data:image/png;base64,")
    assert received == [result]


def test_images_deep_in_a_result_and_twice_the_same_travel_once():
    value = {"a": [blob(), {"b": blob()}], "c": blob(BODY[::-1]), "d": "text", "e": 0}
    sent, attachments = take_out([Result(status="success", result=value)])
    assert len(attachments) == 2
    assert carry([Result(status="success", result=value)])[1][0].result == value
    assert len(str(sent[0].result)) < 400


def test_what_is_no_blob_stays_where_it_is():
    results = [Result(status="success", result=["data:image/png;base64,AAAA", 0]), Result(status="failure")]
    assert take_out(results) == (results, [])


def test_empty_blob_arrives():
    result = Result(status="success", result=[blob(b"")])
    assert carry([result])[1] == [result]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frames: frames[:-1],
        lambda frames: frames[::-1],
        lambda frames: [*frames, frames[0]],
        lambda frames: [frames[0][:-1] + b"!", *frames[1:]],
        lambda frames: [],
    ],
    ids=["missing", "reordered", "doubled", "changed", "nothing"],
)
def test_image_that_did_not_arrive_whole_fails_its_own_result_only(spoil):
    results = [Result(status="success", result=blob()), Result(status="success", result="other")]
    _, received = carry(results, spoil=spoil)
    assert (received[0].status, received[0].error, received[0].result) == ("failure", NOT_WHOLE, None)
    assert received[1].result == "other"


def test_too_much_or_too_little_is_refused():
    assembly = Assembly(limit_bytes=1_000)
    assert not assembly.add(b"x" * 32)
    assert assembly.add(b"x" * 400)
    assert not assembly.add(b"x" * 400)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text() | st.integers() | st.none(), max_size=3), max_size=3))
def test_nonsense_in_the_announcement_harms_nothing(notes):
    result = Result(status="success", result="x-starloom-file:zz")
    Assembly().put_back([result], [*notes, {"sha256": "zz"}, {"sha256": hashlib.sha256(b"").hexdigest(), "size": "a"}])


def test_chunks_are_bounded():
    _, (attachment,) = take_out([Result(status="success", result=blob())])
    assert [len(frame) for frame in attachment.frames()] == [32 + CHUNK_BYTES, 32 + len(BODY) - CHUNK_BYTES]


def test_many_notes_of_one_body_cost_one_look_at_it(monkeypatch):
    looks = []
    sha256 = hashlib.sha256
    _, (attachment,) = take_out([Result(status="success", result=blob())])
    assembly = Assembly()
    for frame in attachment.frames():
        assembly.add(frame)
    note = attachment.note()
    notes = [
        note,
        note,
        {**note, "sha256": note["sha256"].upper()},
        {**note, "sha256": " ".join(note["sha256"][i : i + 2] for i in range(0, 64, 2))},
    ]
    monkeypatch.setattr("starloom.aip.files.hashlib.sha256", lambda body: looks.append(len(body)) or sha256(body))
    (restored,) = assembly.put_back([Result(status="success", result=f"x-starloom-file:{note['sha256']}")], notes)
    assert restored.result == blob()
    assert sum(looks) == len(BODY)


def test_bodies_mentioned_over_and_over_are_no_more_than_the_limit_when_written_out():
    results = [Result(status="success", result=[blob(b"x" * 100)] * count) for count in (10, 11)]
    fits, beyond = (carry([result], Assembly(limit_bytes=1_000))[1][0] for result in results)
    assert fits == results[0]
    assert (beyond.status, beyond.error, beyond.result) == ("failure", NOT_WHOLE, None)


def test_tiny_frames_count_by_what_they_take():
    assembly = Assembly(limit_bytes=10_000)
    taken = 0
    while assembly.add(b"d" * 32 + b"x"):
        taken += 1
    assert taken < 20
