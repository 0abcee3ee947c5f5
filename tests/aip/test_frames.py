"""What is cut out of a socket's bytes is what was sent, however the bytes arrive; the rest is the library's."""

import pytest
from hypothesis import given, strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame as WebSocketFrame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from starloom.aip.frames import Cutter, Raw, framed

SIZES = (0, 1, 125, 126, 127, 65_535, 65_536, 70_000)
MESSAGES = st.text(max_size=40) | st.binary(max_size=300) | st.sampled_from(SIZES).map(lambda size: "x" * size)


def library(masked):
    """Return the library's end that reads what is masked, or not."""
    if masked:
        return ServerProtocol(state=OPEN, max_size=None)
    return ClientProtocol(parse_uri("ws://h/"), state=OPEN, max_size=None)


def of_library(frame, masked):
    return frame.serialize(mask=masked)


def pieces(data, cuts):
    at = 0
    for cut in sorted({cut % (len(data) + 1) for cut in cuts}):
        yield data[at:cut]
        at = cut
    yield data[at:]


def fed(cutter, data, cuts=()):
    return [part for piece in pieces(data, cuts) for part in cutter.cut(piece)]


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(0), max_size=6), st.booleans())
def test_messages_arrive_whole_however_the_bytes_are_split(messages, cuts, masked):
    data = b"".join(framed(message, masked=masked) for message in messages)
    assert fed(Cutter(masked=masked, limit_bytes=None), data, cuts) == messages


@given(MESSAGES, st.booleans())
def test_library_reads_what_is_framed_and_the_other_way_round(message, masked):
    reader = library(masked)
    reader.receive_data(framed(message, masked=masked))
    (frame,) = reader.events_received()
    is_text = isinstance(message, str)
    body = message.encode() if is_text else message
    assert (frame.opcode, bytes(frame.data)) == (Opcode.TEXT if is_text else Opcode.BINARY, body)
    written = of_library(WebSocketFrame(frame.opcode, body), masked)
    assert fed(Cutter(masked=masked, limit_bytes=None), written) == [message]
    assert len(written) == len(framed(message, masked=masked))


@given(st.lists(st.integers(0), max_size=6), st.booleans())
def test_pings_are_the_librarys_and_messages_around_them_are_not(cuts, masked):
    ping = of_library(WebSocketFrame(Opcode.PING, b"hello"), masked)
    data = framed("a", masked=masked) + ping + framed(b"b", masked=masked)
    assert fed(Cutter(masked=masked, limit_bytes=10), data, cuts) == ["a", Raw(ping), b"b"]


FOREIGN = {
    "a piece": WebSocketFrame(Opcode.TEXT, b"a", fin=False),
    "a close": WebSocketFrame(Opcode.CLOSE, b"\x03\xe8"),
    "no UTF-8": WebSocketFrame(Opcode.TEXT, b"\xff"),
    "too long": WebSocketFrame(Opcode.TEXT, b"x" * 11),
}


@pytest.mark.parametrize("first", [0xC1, 0x83, 0x80, 0x8B, 0x00])
def test_reserved_bits_and_opcodes_are_the_librarys_to_refuse(first):
    frame = bytes([first]) + framed("a", masked=False)[1:]
    assert fed(Cutter(masked=False, limit_bytes=None), frame) == [Raw(frame)]


@pytest.mark.parametrize("frame", FOREIGN.values(), ids=FOREIGN)
@given(cuts=st.lists(st.integers(0), max_size=6), masked=st.booleans())
def test_all_that_follows_a_frame_that_is_not_read_is_the_librarys(frame, cuts, masked):
    rest = of_library(frame, masked) + framed("after", masked=masked)
    parts = fed(Cutter(masked=masked, limit_bytes=10), framed("before", masked=masked) + rest, cuts)
    assert parts[0] == "before"
    assert b"".join(part.data for part in parts[1:]) == rest


@given(st.binary(max_size=200), st.lists(st.integers(0), max_size=4), st.booleans())
def test_nonsense_is_kept_within_the_limit_and_never_lost(data, cuts, masked):
    cutter = Cutter(masked=masked, limit_bytes=50)
    parts = fed(cutter, data, cuts)
    assert len(cutter._rest) <= 50 + 14
    if not any(not isinstance(part, Raw) for part in parts):
        assert b"".join(part.data for part in parts) + bytes(cutter._rest) == data


@pytest.mark.parametrize("masked", [True, False])
def test_wrong_mask_bit_is_the_librarys_to_refuse(masked):
    frame = framed("a", masked=not masked)
    assert fed(Cutter(masked=masked, limit_bytes=None), frame + b"0000") == [Raw(frame + b"0000")]
