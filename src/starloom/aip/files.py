"""Large images in results as binary frames, where both ends agreed: no base64 on the wire, and a checksum each.

Pure; used by the device's and the server's core. The device takes data URLs out of its results and sends each body in
binary frames before the message that names it; the server puts them back, so nobody above the wire sees a difference.

    binary frame = 32 bytes SHA-256 of the whole body + up to 1 MiB of it, in order
    the message's note  files: [{"sha256": hex, "size": bytes, "mime": "image/png"}, …]
    in the result       "x-starloom-file:<sha256 hex>"

Ours: upstream's own binary transfer cannot be used (wire specification, section 9).
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starloom.aip.messages import Json, Result, ResultStatus

CHUNK_BYTES = 1024 * 1024
SMALLEST_BYTES = 8 * 1024  # below it, a data URL is cheaper
DIGEST_BYTES = 32
SCHEME = "x-starloom-file:"
NOT_WHOLE = "An image of this result did not arrive whole."


@dataclass(frozen=True, slots=True)
class Attachment:
    """One body that travels beside its message."""

    digest: bytes
    mime: str
    body: bytes

    def note(self) -> dict[str, Any]:
        """Return how the message announces it."""
        return {"sha256": self.digest.hex(), "size": len(self.body), "mime": self.mime}

    def frames(self) -> Iterable[bytes]:
        """Yield its binary frames."""
        for start in range(0, len(self.body), CHUNK_BYTES):
            yield self.digest + self.body[start : start + CHUNK_BYTES]


def take_out(results: Sequence[Result]) -> tuple[list[Result], list[Attachment]]:
    """Return the results with references in place of large data URLs, and what was taken out."""
    taken: dict[bytes, Attachment] = {}
    changed = [
        result.model_copy(update={"result": _without_bodies(result.result, taken)}) if result.result else result
        for result in results
    ]
    return changed, list(taken.values())


def _without_bodies(value: Json, taken: dict[bytes, Attachment]) -> Json:
    if isinstance(value, str):
        return _reference(value, taken)
    if isinstance(value, list):
        return [_without_bodies(item, taken) for item in value]
    if isinstance(value, dict):
        return {key: _without_bodies(item, taken) for key, item in value.items()}
    return value


def _reference(text: str, taken: dict[bytes, Attachment]) -> str:
    """Return a reference for a large data URL whose text can be made again exactly; any other text as it is."""
    if len(text) < SMALLEST_BYTES or not text.startswith("data:"):
        return text
    head, found, encoded = text[len("data:") :].partition(";base64,")
    if not found or len(head) > 100:
        return text
    try:
        body = binascii.a2b_base64(encoded, strict_mode=True)
    except (binascii.Error, ValueError):
        return text
    last = body[-(len(body) % 3 or 3) :]  # the only part whose text is not determined by the bytes
    if not encoded.endswith(base64.b64encode(last).decode("ascii")):
        return text
    digest = hashlib.sha256(body).digest()
    taken[digest] = Attachment(digest, head, body)
    return f"{SCHEME}{digest.hex()}"


def _data_url(mime: str, body: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(body).decode('ascii')}"


@dataclass(slots=True)
class Assembly:
    """Binary frames of one connection that wait for the message that names them.

    Attributes:
        limit_bytes: the most that may wait; more and the connection must be closed.
    """

    limit_bytes: int = 64 * 1024 * 1024
    _waiting: dict[bytes, bytearray] = field(default_factory=dict)
    _size: int = 0

    def add(self, frame: bytes) -> bool:
        """Take a binary frame in; False when it is no part of a file or too much waits."""
        if len(frame) <= DIGEST_BYTES or self._size + len(frame) > self.limit_bytes:
            return False
        self._waiting.setdefault(frame[:DIGEST_BYTES], bytearray()).extend(frame[DIGEST_BYTES:])
        self._size += len(frame) - DIGEST_BYTES
        return True

    def put_back(self, results: Sequence[Result], notes: Sequence[dict[str, Any]]) -> list[Result]:
        """Return results with the announced bodies in place; one whose body is not whole has failed."""
        urls: dict[str, str | None] = {}
        for note in notes:
            urls[f"{SCHEME}{note.get('sha256')}"] = self._whole(note)
        self._waiting.clear()
        self._size = 0
        return [_with_bodies(result, urls) for result in results]

    def _whole(self, note: dict[str, Any]) -> str | None:
        try:
            digest = bytes.fromhex(str(note.get("sha256")))
        except ValueError:
            return None
        body = bytes(self._waiting.get(digest, b""))
        if len(body) != note.get("size") or hashlib.sha256(body).digest() != digest:
            return None
        return _data_url(str(note.get("mime", ""))[:100], body)


def _with_bodies(result: Result, urls: dict[str, str | None]) -> Result:
    missing: list[str] = []

    def place(value: Json) -> Json:
        if isinstance(value, str) and value in urls:
            if urls[value] is None:
                missing.append(value)
            return urls[value]
        if isinstance(value, list):
            return [place(item) for item in value]
        if isinstance(value, dict):
            return {key: place(item) for key, item in value.items()}
        return value

    restored = place(result.result)
    if missing:
        return result.model_copy(update={"status": ResultStatus.FAILURE, "error": NOT_WHOLE, "result": None})
    return result.model_copy(update={"result": restored})
