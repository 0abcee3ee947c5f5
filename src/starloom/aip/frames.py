"""Messages out of a WebSocket's bytes and back, in one look each. Pure; source: RFC 6455, section 5.2.

Used by `aip.dialled` and `hub.wire`, on connections without extensions. The library reads a frame part by part, which
costs more than all else about it. Nearly every frame is a whole message that just arrived: such a one is read here,
and everything else, pieces, control frames and nonsense, is the library's to read and to judge.

    byte 0        FIN 1, RSV 000, opcode 1 (text) or 2 (binary)
    byte 1        mask bit, and the length; 126: in the next 2 bytes; 127: in the next 8
    then          4 bytes of mask where the sender is the client, and the body
"""

import os
from dataclasses import dataclass

from starloom.aip.protocol import Frame

try:
    from websockets.speedups import apply_mask
except ImportError:  # the library was installed without its compiled part
    from websockets.utils import apply_mask

_TEXT, _BINARY, _CLOSE = 0x81, 0x82, 0x88
_CONTROL = frozenset({_CLOSE, 0x89, 0x8A})
_MASKED = 0x80


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes for the library."""

    data: bytes


class Cutter:
    """Cuts what one socket brings into messages and what is the library's.

    Args:
        masked: whether the other end masks, as clients do.
        limit_bytes: a longer message is the library's to refuse; None: there is no limit.
    """

    def __init__(self, *, masked: bool, limit_bytes: int | None) -> None:
        self._mask_bit = _MASKED if masked else 0
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self._wanted = 2  # so many bytes must be there before another look
        self._given_up = False  # something came that we do not read: all that follows is the library's

    def cut(self, data: bytes) -> list[Frame | Raw]:
        """Take bytes in and return what is complete, in order."""
        if self._given_up:
            return [Raw(data)]
        if not self._rest and (text := self._one_text(data)) is not None:
            return [text]
        if self._rest or len(data) < self._wanted:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data = bytes(self._rest)
        found: list[Frame | Raw] = []
        at = 0
        while not self.gave_up():
            end = self._end(data, at)
            if end > len(data):
                self._wanted = end - at
                break
            found.append(self._read(data, at, end))
            at = end
        if self.gave_up() and at < len(data):
            found.append(Raw(data[at:]))
            at = len(data)
        self._rest = bytearray(data[at:])
        return found

    def _one_text(self, data: bytes) -> str | None:
        """Return the text when the bytes are exactly one frame of text: what they nearly always are."""
        if len(data) < 8 or data[0] != _TEXT:
            return None
        length, head = data[1] ^ self._mask_bit, 2
        if length == 126:
            length, head = data[2] << 8 | data[3], 4
        elif length > 126:
            return None  # long, or not masked as it should be
        begin = head + 4 if self._mask_bit else head
        if len(data) != begin + length or (self._limit_bytes is not None and length > self._limit_bytes):
            return None
        body = apply_mask(data[begin:], data[head:begin]) if self._mask_bit else data[begin:]
        try:
            return body.decode()
        except UnicodeDecodeError:
            return None

    def gave_up(self) -> bool:
        """Tell whether the library reads all that follows."""
        return self._given_up

    def _end(self, data: bytes, at: int) -> int:
        """Return where the frame ends that begins here, or how far one must see to know."""
        left = len(data) - at
        if left < 2:
            return at + 2
        length = data[at + 1] & 0x7F
        head = 2 + (length == 126) * 2 + (length == 127) * 8 + (4 if self._mask_bit else 0)
        if left < head:
            return at + head
        if length > 125:
            length = int.from_bytes(data[at + 2 : at + (4 if length == 126 else 10)], "big")
        if self._is_foreign(data[at], data[at + 1], length):
            self._given_up = True
            return len(data)
        return at + head + length

    def _is_foreign(self, first: int, second: int, length: int) -> bool:
        if first in (_TEXT, _BINARY):
            too_long = self._limit_bytes is not None and length > self._limit_bytes
            return too_long or second & _MASKED != self._mask_bit
        return first not in _CONTROL or length > 125 or second & _MASKED != self._mask_bit

    def _read(self, data: bytes, at: int, end: int) -> Frame | Raw:
        if self._given_up or data[at] in _CONTROL:
            self._given_up = self._given_up or data[at] == _CLOSE
            return Raw(data[at:end])
        length = data[at + 1] & 0x7F
        head = at + 2 + (length == 126) * 2 + (length == 127) * 8
        body = apply_mask(data[head + 4 : end], data[head : head + 4]) if self._mask_bit else data[head:end]
        if data[at] == _BINARY:
            return body
        try:
            return body.decode()
        except UnicodeDecodeError:
            self._given_up = True
            return Raw(data[at:end])


def framed(message: Frame, *, masked: bool) -> bytes:
    """Return the frame of one whole message."""
    first, body = (_TEXT, message.encode()) if isinstance(message, str) else (_BINARY, message)
    mask_bit = _MASKED if masked else 0
    if len(body) < 126:
        head = bytes((first, mask_bit | len(body)))
    elif len(body) < 65_536:
        head = bytes((first, mask_bit | 126)) + len(body).to_bytes(2, "big")
    else:
        head = bytes((first, mask_bit | 127)) + len(body).to_bytes(8, "big")
    if not masked:
        return head + body
    mask = os.urandom(4)
    return b"".join((head, mask, apply_mask(body, mask)))
