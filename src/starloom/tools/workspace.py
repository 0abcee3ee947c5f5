"""The one folder that a device's tools may touch, and writes that are whole or absent.

Every tool that takes a path is built over a `Workspace`; nothing else in this room opens a file by a caller's path.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from starloom.durable import flush_file, flush_names
from starloom.safety.paths import PathRefused, confine
from starloom.tools.effects import OWN_FOLDER, Effects
from starloom.tools.toolset import ToolFailure, check_stopped

PART_PREFIX = f"{OWN_FOLDER}-"  # a write in progress; left behind only when the process was killed during it


class Workspace:
    """A folder and everything below it. Paths are relative to it, with forward slashes.

    A path is checked when it is resolved; the folder is expected to belong to the device's own user, so no other
    process is assumed to swap links between the check and the use.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).resolve()
        self.effects = Effects(self.root)

    def resolve(self, path: str) -> Path:
        """Return the real path; it need not exist.

        Raises:
            PathRefused: the path leaves the workspace, by its words or through a link, or is Starloom's own record.
        """
        real = confine(self.root, path)
        if real == self.root / OWN_FOLDER or self.root / OWN_FOLDER in real.parents:
            raise PathRefused(f"The path {path!r} is Starloom's own record and not for tools.", path=path)
        return real

    def relative(self, path: Path) -> str:
        """Return a path inside the workspace as callers write it."""
        return path.relative_to(self.root).as_posix()

    def is_own(self, path: Path) -> bool:
        """Whether a real path inside is Starloom's own: a record of effects, or a write in progress."""
        return any(part == OWN_FOLDER or part.startswith(PART_PREFIX) for part in path.relative_to(self.root).parts)

    def file(self, path: str, *, limit_bytes: int | None = None) -> Path:
        """Return the real path of an existing ordinary file.

        Raises:
            PathRefused: the path leaves the workspace.
            ToolFailure: there is no such file, it is a folder or a device, or it is larger than the limit.
        """
        real = self.resolve(path)
        if not real.exists():
            raise ToolFailure(f"There is no file {path!r} in {self.root}.", path=path)
        facts = real.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ToolFailure(f"{path!r} is not a file.", path=path)
        if limit_bytes is not None and facts.st_size > limit_bytes:
            raise ToolFailure(f"{path!r} has {facts.st_size} bytes, more than the limit of {limit_bytes}.", path=path)
        return real

    def folder(self, path: str) -> Path:
        """Return the real path of an existing folder.

        Raises:
            PathRefused: the path leaves the workspace.
            ToolFailure: there is no such folder.
        """
        real = self.resolve(path)
        if not real.is_dir():
            what = "is not a folder" if real.exists() else "does not exist"
            raise ToolFailure(f"The folder {path!r} {what} in {self.root}.", path=path)
        return real

    @contextmanager
    def replacing(self, path: str) -> Iterator[Path]:
        """Yield a temporary file's path; when the block ends well it takes the place of `path`, else it vanishes.

        Missing parent folders are made. The new file is on disk before it gets its name, the name when this ends.

        Raises:
            PathRefused: the path leaves the workspace.
            ToolFailure: the path is a folder, or the place cannot be written.
        """
        real = self.resolve(path)
        if real.is_dir():
            raise ToolFailure(f"{path!r} is a folder; name a file.", path=path)
        try:
            self.effects.make_folder(real.parent)
            handle, name = tempfile.mkstemp(prefix=PART_PREFIX, suffix=real.suffix, dir=real.parent)
        except OSError as error:
            raise ToolFailure(f"Cannot write {path!r}: {error.strerror}. Nothing was changed.", path=path) from error
        os.close(handle)
        part = Path(name)
        try:
            yield part
            flush_file(part)
            part.chmod(real.stat().st_mode & 0o777 if real.exists() else 0o666 & ~_umask())
            check_stopped()
            self.effects.will_replace(real, part)
            part.replace(real)
            flush_names(real.parent)
        except OSError as error:
            raise ToolFailure(f"Cannot write {path!r}: {error.strerror}. Nothing was changed.", path=path) from error
        finally:
            part.unlink(missing_ok=True)


def _umask() -> int:
    """Return the process's umask without changing it; mkstemp's 0600 would hide results from their owner's group."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022
