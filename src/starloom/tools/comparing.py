"""A folder before and after a program has run in it: what appeared, what changed, what is gone.

Called by `shell`. It sees that something changed while the program ran, not who changed it: whatever else works in the
folder at that time is told along with it. Bounded, so that a huge folder costs a program's start nothing.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from starloom.tools.effects import OWN_FOLDER, Kind

MOST_ENTRIES = 10_000

_Facts = tuple[int, int, int]  # inode, size, time of the last change in nanoseconds


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder's files by path; `is_whole` is false when there were more than could be looked at.

    `unread` are folders that could not be read.
    """

    files: dict[str, _Facts] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    is_whole: bool = True


def snapshot(root: Path) -> Snapshot:
    """Look at every file below a folder, without following links or opening anything."""
    files: dict[str, _Facts] = {}
    folders: set[str] = set()
    unread: set[str] = set()
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        entries = _entries(folder)
        if entries is None:
            unread.add(folder)
        for entry in entries or ():
            if entry.name == OWN_FOLDER or entry.name.startswith(f"{OWN_FOLDER}-"):
                continue
            if len(files) + len(folders) >= MOST_ENTRIES:
                return Snapshot(is_whole=False)
            if entry.is_dir(follow_symlinks=False):
                folders.add(entry.path)
                waiting.append(entry.path)
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            files[entry.path] = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return Snapshot(files, frozenset(folders), frozenset(unread))


def differences(before: Snapshot, after: Snapshot) -> Iterator[tuple[Kind, Path]]:
    """Yield what differs, by path: new folders before what is in them."""
    unread = before.unread | after.unread
    for path in sorted(after.folders - before.folders):
        if not _is_below(path, unread):
            yield "folder", Path(path)
    for path in sorted({*before.files, *after.files}):
        if _is_below(path, unread):
            continue  # not known
        old, new = before.files.get(path), after.files.get(path)
        if old is None:
            yield "appeared", Path(path)
        elif new is None:
            yield "vanished", Path(path)
        elif old != new:
            yield "changed", Path(path)


def _is_below(path: str, folders: frozenset[str]) -> bool:
    return bool(folders) and any(str(parent) in folders for parent in Path(path).parents)


def _entries(folder: str) -> list["os.DirEntry[str]"] | None:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        return None
    except OSError:
        return []  # gone meanwhile
