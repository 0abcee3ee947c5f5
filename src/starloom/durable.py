"""What must survive a power cut: the content of files and the names in folders, flushed before anyone relies on them.

A file's flush says nothing of its name, and a folder's name lies in the folder above it. Used by the journal, the
device's records and the tools. Blocking: called from threads.
"""

import os
from pathlib import Path


def flush_file(path: Path) -> None:
    """Return when a file's content is on disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_names(folder: Path) -> None:
    """Return when the names in a folder are on disk, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder with the missing ones above it; their names are on disk when this returns."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    folder.mkdir(mode=mode, exist_ok=True)
    flush_names(folder.parent)
