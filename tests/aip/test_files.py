"""Images as binary frames: what leaves is what arrives, whole or not at all."""

import base64
import hashlib
import random

import pytest
from hypothesis import given, strategies as st

from starloom.aip.files import CHUNK_BYTES, NOT_WHOLE, SMALLEST_BYTES, Assembly, take_out
from starloom.aip.messages import Result

BODY = random.Random(0).randbytes(CHUNK_BYTES + 200_000)


def url(body=BODY, mime="image/png"):
    return f"data:{mime};base64,{base64.b64encode(body).decode()}"


def carry(results, assembly=None, *, spoil=lambda frames: frames):
    sent, attachments = take_out(results)
    assembly = assembly or Assembly()
    for frame in spoil([frame for attachment in attachments for frame in attachment.frames()]):
        assert assembly.add(frame)
    return sent, assembly.put_back(sent, [attachment.note() for attachment in attachments])


def test_image_leaves_the_text_and_comes_back_the_same():
    result = Result(status="success", result=url(), call_id="c")
    sent, received = carry([result])
    assert len(sent[0].result) < 100
    assert received == [result]


def test_images_deep_in_a_result_and_twice_the_same_travel_once():
    value = {"a": [url(), {"b": url()}], "c": url(BODY[::-1]), "d": "text", "e": 0}
    sent, attachments = take_out([Result(status="success", result=value)])
    assert len(attachments) == 2
    assert carry([Result(status="success", result=value)])[1][0].result == value
    assert len(str(sent[0].result)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "data:image/png;base64,AAAA",
        "x" * SMALLEST_BYTES,
        "data:" + "x" * SMALLEST_BYTES,
        "data:image/png;base64," + "A" * SMALLEST_BYTES + "*",
        "data:image/png;base64," + "A" * SMALLEST_BYTES + "B==",
        "data:" + "x" * 200 + ";base64," + "A" * SMALLEST_BYTES,
    ],
)
def test_text_that_cannot_be_made_again_exactly_stays_where_it_is(text):
    result = Result(status="success", result=[text])
    sent, attachments = take_out([result])
    assert (sent, attachments) == ([result], [])


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
    results = [Result(status="success", result=url()), Result(status="success", result="other")]
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
    _, (attachment,) = take_out([Result(status="success", result=url())])
    assert [len(frame) for frame in attachment.frames()] == [32 + CHUNK_BYTES, 32 + len(BODY) - CHUNK_BYTES]
