"""One owner for a data directory: a file lock that the system lets go of when its holder dies.

`SqliteJournal.open` takes it. Readers need none. The lock file stays behind; only the lock on it counts, so a killed
owner leaves nothing to clean up.
"""

import json
import os
import sys
from pathlib import Path

from starloom.durable import make_folder
from starloom.errors import StoreError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_NAME = "owner.lock"
_LOCKED_BYTE = 1 << 30


class Ownership:
    """A held lock; `release` lets it go, and so does the end of the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let another process own the directory; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def own(directory: Path) -> Ownership:
    """Become the only owner of a data directory, made when missing.

    Raises:
        StoreError: another process owns it, or it cannot be written.
    """
    path = directory / LOCK_NAME
    try:
        make_folder(directory)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"Could not write to the data directory {str(directory)!r}: {error.strerror}. "
            "Give this user the right to write there, or choose another directory.",
            path=str(directory),
        ) from error
    try:
        _lock(descriptor)
    except OSError as error:
        os.close(descriptor)
        holder = holder_of(directory)
        raise StoreError(
            f"The data directory {str(directory)!r} is in use by process {holder or 'unknown'}; "
            "end that hub first, or choose another directory.",
            path=str(directory),
            pid=holder,
        ) from error
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid()}).encode())
    except OSError as error:
        os.close(descriptor)
        raise StoreError(f"Could not write {str(path)!r}: {error.strerror}.", path=str(path)) from error
    return Ownership(path, descriptor)


def holder_of(directory: Path) -> int | None:
    """Return the process id that the last owner wrote; None when there is none to read. It may be gone."""
    try:
        return int(json.loads((directory / LOCK_NAME).read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lock(descriptor: int) -> None:
    """Lock the open file for this process alone, without waiting.

    Raises:
        OSError: someone else holds it.
    """
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)  # not the first: a locked byte could not be read by others
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
