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
    assembly = Assembly(limit_bytes=100)
    assert not assembly.add(b"x" * 32)
    assert assembly.add(b"x" * 90)
    assert not assembly.add(b"x" * 90)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text() | st.integers() | st.none(), max_size=3), max_size=3))
def test_nonsense_in_the_announcement_harms_nothing(notes):
    result = Result(status="success", result="x-starloom-file:zz")
    Assembly().put_back([result], [*notes, {"sha256": "zz"}, {"sha256": hashlib.sha256(b"").hexdigest(), "size": "a"}])


def test_chunks_are_bounded():
    _, (attachment,) = take_out([Result(status="success", result=blob())])
    assert [len(frame) for frame in attachment.frames()] == [32 + CHUNK_BYTES, 32 + len(BODY) - CHUNK_BYTES]
