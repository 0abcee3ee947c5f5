"""Blobs in results as binary frames, where both ends agreed: no base64 on the wire, and a checksum each.

Pure; used by the device's and the server's core. The device takes blobs out of its results and sends each body in
binary frames before the message that names it; the server puts them back. Towards others a blob is its data URL.

    binary frame = 32 bytes SHA-256 of the whole body + up to 1 MiB of it, in order
    the message's note  files: [{"sha256": hex, "size": bytes, "mime": "image/png"}, …]
    in the result       "x-starloom-file:<sha256 hex>"

Ours: upstream's own binary transfer cannot be used (wire specification, section 9).
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from starloom.aip.messages import Json, Result, ResultStatus
from starloom.blobs import Blob

CHUNK_BYTES = 1024 * 1024
DIGEST_BYTES = 32
MIME_LIMIT = 100
SCHEME = "x-starloom-file:"
_FRAME_COST_BYTES = 512  # what a waiting frame takes beside its bytes, so that tiny ones count as well
_MAY_HOLD_BLOBS = (Blob, list, dict)
NOT_WHOLE = "A file of this result did not arrive whole."


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
        body = memoryview(self.body)
        for start in range(0, len(body), CHUNK_BYTES):
            yield b"".join((self.digest, body[start : start + CHUNK_BYTES]))


def take_out(results: Sequence[Result]) -> tuple[list[Result], list[Attachment]]:
    """Return the results with references in place of blobs, and what was taken out."""
    taken: dict[bytes, Attachment] = {}
    changed = [
        replace(result, result=_without_bodies(result.result, taken))
        if isinstance(result.result, _MAY_HOLD_BLOBS)
        else result
        for result in results
    ]
    return changed, list(taken.values())


def _without_bodies(value: Json, taken: dict[bytes, Attachment]) -> Json:
    if isinstance(value, Blob):
        digest = hashlib.sha256(value.body).digest()
        taken[digest] = Attachment(digest, value.mime, value.body)
        return f"{SCHEME}{digest.hex()}"
    if isinstance(value, list):
        return [_without_bodies(item, taken) for item in value]
    if isinstance(value, dict):
        return {key: _without_bodies(item, taken) for key, item in value.items()}
    return value


@dataclass(slots=True)
class Assembly:
    """Binary frames of one connection that wait for the message that names them.

    Attributes:
        limit_bytes: the most that may wait; more and the connection must be closed.
    """

    limit_bytes: int = 64 * 1024 * 1024
    _waiting: dict[bytes, list[memoryview]] = field(default_factory=dict)
    _size: int = 0

    def add(self, frame: bytes) -> bool:
        """Take a binary frame in; False when it is no part of a file or too much waits."""
        size = len(frame) - DIGEST_BYTES + _FRAME_COST_BYTES
        if len(frame) <= DIGEST_BYTES or self._size + size > self.limit_bytes:
            return False
        self._waiting.setdefault(frame[:DIGEST_BYTES], []).append(memoryview(frame)[DIGEST_BYTES:])
        self._size += size
        return True

    def put_back(self, results: Sequence[Result], notes: Sequence[dict[str, Any]]) -> list[Result]:
        """Return results with the announced bodies in place; one whose body is not whole has failed."""
        blobs: dict[str, Blob | None] = {}
        for note in notes:
            name = f"{SCHEME}{note.get('sha256')}"
            if name not in blobs:
                blobs[name] = self._whole(note)
        self._waiting.clear()
        self._size = 0
        return [_with_bodies(result, blobs, self.limit_bytes) for result in results]

    def _whole(self, note: dict[str, Any]) -> Blob | None:
        try:
            digest = bytes.fromhex(str(note.get("sha256")))
        except ValueError:
            return None
        body = b"".join(self._waiting.pop(digest, ()))  # once: many notes of one body cost one look at it
        if len(body) != note.get("size") or hashlib.sha256(body).digest() != digest:
            return None
        return Blob(str(note.get("mime", ""))[:MIME_LIMIT], body)


def _with_bodies(result: Result, blobs: dict[str, Blob | None], limit_bytes: int) -> Result:
    """Return a result with its bodies; written out, each is as long as every mention of it, so mentions count."""
    missing: list[str] = []
    left_bytes = limit_bytes

    def place(value: Json) -> Json:
        nonlocal left_bytes
        if isinstance(value, str) and value in blobs:
            blob = blobs[value]
            left_bytes -= len(blob.body) if blob is not None else 0
            if blob is None or left_bytes < 0:
                missing.append(value)
                return None
            return blob
        if isinstance(value, list):
            return [place(item) for item in value]
        if isinstance(value, dict):
            return {key: place(item) for key, item in value.items()}
        return value

    restored = place(result.result)
    if missing:
        return replace(result, status=ResultStatus.FAILURE, error=NOT_WHOLE, result=None)
    return replace(result, result=restored)
