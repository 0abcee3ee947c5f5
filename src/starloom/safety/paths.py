"""Paths from outside, confined to one folder.

Called by `tools.workspace` before any file is touched, by the policy's rules (lexically, without a disk) and by whoever
turns a name from outside into a folder's name.
"""

import os
import re
import unicodedata
from collections.abc import Container
from pathlib import Path

from starloom.errors import PolicyError

_LONGEST_FOLDER_NAME = 80
_DRIVE = re.compile(r"^[A-Za-z]:")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:(?! )")  # "Re: offer.txt" is a name, "mailto:x" is none
_UNSAFE_IN_NAMES = re.compile(r"[^\w. -]+")
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10)}
)


class PathRefused(PolicyError):
    """A path leads, or may lead, out of the folder that it must stay in."""


def is_confined(path: str) -> bool:
    """Answer whether a path's words alone keep it below the folder it is relative to.

    Pure: symbolic links are not seen here, `confine` sees them. An empty path is the folder itself. An address without
    its scheme looks like a path, so a tool that opens addresses must demand the scheme.
    """
    if path.startswith(("/", "~")) or _DRIVE.match(path) or _SCHEME.match(path):
        return False
    if any(character == "\\" or ord(character) < 32 or ord(character) == 127 for character in path):
        return False
    return ".." not in path.split("/")


def confine(root: Path, path: str) -> Path:
    """Return the real path, links followed, of `path` under `root`; the path need not exist.

    An absolute path is taken when it leads into `root`.

    Raises:
        PathRefused: the path leaves `root`, in its words or through a symbolic link.
    """
    inside = root.resolve()
    words = path
    if Path(path).is_absolute():
        words = _words_below(root, inside, path)
    if not is_confined(words):
        raise PathRefused(
            f"The path {path!r} does not stay inside the device's folder. Use a path relative to it, without '..'.",
            path=path,
        )
    try:
        real = (inside / words).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: Python 3.11 and 3.12 report a loop of links so
        raise PathRefused(f"The path {path!r} cannot be followed: {error}.", path=path) from error
    if os.path.commonpath([inside, real]) != str(inside):
        raise PathRefused(f"The path {path!r} leaves the device's folder through a symbolic link.", path=path)
    return real


def _words_below(root: Path, inside: Path, path: str) -> str:
    """Return an absolute path relative to the root it lies under, or unchanged when it lies elsewhere."""
    for start in (root, inside):
        try:
            return Path(path).relative_to(start).as_posix()
        except ValueError:
            continue
    return path


def folder_name(text: str, taken: Container[str] = (), *, otherwise: str = "task") -> str:
    """Return a folder name made from a name that came from outside; letters of any script stay.

    Args:
        text: the name as it came.
        taken: names already used, compared in lower case; a number is added until the name is free.
        otherwise: the name used when nothing safe is left of `text`.
    """
    clean = _UNSAFE_IN_NAMES.sub("_", unicodedata.normalize("NFC", text)).strip(" ._")
    clean = clean.encode()[:_LONGEST_FOLDER_NAME].decode(errors="ignore").strip(" ._")
    if not clean or clean.split(".")[0].lower() in _RESERVED:
        clean = f"{otherwise}_{clean}".rstrip("_")
    name, number = clean, 1
    while name.lower() in taken:
        number += 1
        name = f"{clean}-{number}"
    return name
