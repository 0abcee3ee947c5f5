"""Large things beside the journal: screenshots and long results as files named by the hash of what is in them.

An event holds the reference, never the bytes. Put first, then append the event that refers to it: a file without an
event is swept up later by `retention`, an event without its file would be a loss. Called by the session, tools, export.

    <directory>/ab/cdef…   the bytes whose SHA-256 is abcdef…
"""

import asyncio
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starloom.durable import flush_names, make_folder
from starloom.errors import StoreError
from starloom.journal.events import Json

_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_TEMPORARY = ".tmp-"


@dataclass(frozen=True, slots=True)
class ArtefactRef:
    """What an event says about an artefact. `hash`: `sha256:` and 64 hexadecimal digits."""

    hash: str
    size_bytes: int
    media_type: str

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form that goes into events."""
        return {"artefact": self.hash, "size_bytes": self.size_bytes, "media_type": self.media_type}


class Artefacts(Protocol):
    """Content-addressed bytes. `FileArtefacts` for real, `MemoryArtefacts` for tests and rehearsals."""

    async def put(self, content: bytes, media_type: str = "application/octet-stream") -> ArtefactRef:
        """Keep the bytes and return their reference; on disk when this returns. The same bytes are kept once.

        Raises:
            StoreError: they cannot be written.
        """
        ...

    async def get(self, content_hash: str) -> bytes:
        """Return the bytes of this hash, checked against it.

        Raises:
            StoreError: there are none, or they are damaged.
        """
        ...

    async def verify(self, content_hash: str) -> bool:
        """Return whether the bytes are there and whole."""
        ...


def hash_of(content: bytes) -> str:
    """Return the hash by which an artefact with this content is known."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def hashes_in(text: str) -> set[str]:
    """Return every artefact hash that the JSON text of an event mentions."""
    return {match.group() for match in _HASH.finditer(text)} if "sha256:" in text else set()


class FileArtefacts:
    """Artefacts as files of one directory, made on the first `put`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def put(self, content: bytes, media_type: str = "application/octet-stream") -> ArtefactRef:
        """Keep the bytes; see `Artefacts.put`. A file is complete or not there at all, also after a kill."""
        content_hash = hash_of(content)
        await asyncio.to_thread(_write, self.path_of(content_hash), content)
        return ArtefactRef(content_hash, len(content), media_type)

    async def get(self, content_hash: str) -> bytes:
        """Return the bytes; see `Artefacts.get`."""
        path = self.path_of(content_hash)
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError as error:
            raise StoreError(
                f"The artefact {content_hash} is not in {str(self.directory)!r}.", path=str(path)
            ) from error
        except OSError as error:
            raise StoreError(f"Could not read the artefact {str(path)!r}: {error.strerror}.", path=str(path)) from error
        if hash_of(content) != content_hash:
            raise StoreError(f"The artefact {str(path)!r} is damaged: its content has another hash.", path=str(path))
        return content

    async def verify(self, content_hash: str) -> bool:
        """Return whether the bytes are there and whole."""
        try:
            await self.get(content_hash)
        except StoreError:
            return False
        return True

    async def sweep(self, keep: set[str], before: float) -> tuple[int, int]:
        """Remove the artefacts that nobody refers to and the leftovers of killed writers.

        Args:
            keep: the hashes that events refer to.
            before: files touched at or after this time (seconds since 1970) stay: their event may be on its way.

        Returns:
            How many files were removed, and how many bytes they held.

        Raises:
            StoreError: a file cannot be removed.
        """
        return await asyncio.to_thread(_sweep, self.directory, keep, before)

    def path_of(self, content_hash: str) -> Path:
        """Return where the bytes of a hash are or would be.

        Raises:
            StoreError: it is not a hash of ours.
        """
        match = _HASH.fullmatch(content_hash)
        if match is None:
            raise StoreError(f"{content_hash!r} is not an artefact's hash; it is 'sha256:' and 64 hexadecimal digits.")
        digits = match.group(1)
        return self.directory / digits[:2] / digits[2:]


class MemoryArtefacts:
    """Artefacts in a dictionary."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    async def put(self, content: bytes, media_type: str = "application/octet-stream") -> ArtefactRef:
        """Keep the bytes; see `Artefacts.put`."""
        content_hash = hash_of(content)
        self._contents[content_hash] = content
        return ArtefactRef(content_hash, len(content), media_type)

    async def get(self, content_hash: str) -> bytes:
        """Return the bytes; see `Artefacts.get`."""
        if content_hash not in self._contents:
            raise StoreError(f"The artefact {content_hash} is not in memory.")
        return self._contents[content_hash]

    async def verify(self, content_hash: str) -> bool:
        """Return whether the bytes are there."""
        return content_hash in self._contents


def _write(path: Path, content: bytes) -> None:
    """Write a file whole: beside its place, flushed, then renamed into it, and the rename flushed."""
    temporary: Path | None = None
    try:
        if path.exists() and hash_of(path.read_bytes()) == hash_of(content):
            os.utime(path)  # it is young again, so a sweep that runs now leaves it
            return
        make_folder(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_names(path.parent)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise StoreError(f"Could not write the artefact {str(path)!r}: {error.strerror}.", path=str(path)) from error


def _sweep(directory: Path, keep: set[str], before: float) -> tuple[int, int]:
    """Remove what is neither kept nor young."""
    count = size_bytes = 0
    try:
        for path in directory.glob("??/*"):
            status = path.stat()
            if f"sha256:{path.parent.name}{path.name}" in keep or status.st_mtime >= before:
                continue
            path.unlink()
            count, size_bytes = count + 1, size_bytes + status.st_size
    except OSError as error:
        raise StoreError(f"Could not tidy {str(directory)!r}: {error}.", path=str(directory)) from error
    return count, size_bytes
