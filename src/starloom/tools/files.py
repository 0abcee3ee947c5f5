"""The `files` toolset: list, read, write, copy, move, delete and zip within the workspace.

Offered by every device through `tools.builtin`.
"""

import fnmatch
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from starloom.durable import flush_names
from starloom.safety.policy import Risk
from starloom.tools.text import decode
from starloom.tools.toolset import ToolFailure, Toolset, check_stopped, tool
from starloom.tools.workspace import Workspace

_MOST_ENTRIES = 1_000
_LONGEST_TEXT_BYTES = 512 * 1024
_PATTERN_SIGNS = "*?["


class Entry(TypedDict):
    """One file or folder of a listing."""

    name: str
    path: str
    kind: Literal["file", "folder"]
    size_bytes: int


class Listing(TypedDict):
    """A folder's entries by name; `truncated` when there are more."""

    folder: str
    entries: list[Entry]
    truncated: bool


class FileText(TypedDict):
    """A text file; `truncated` when `text` is only its beginning."""

    path: str
    text: str
    size_bytes: int
    truncated: bool


class Written(TypedDict):
    """A file that is there now."""

    path: str
    size_bytes: int


class Deleted(TypedDict):
    """A file that is gone now."""

    path: str


class Archive(TypedDict):
    """A ZIP archive and the files in it."""

    path: str
    files: list[str]
    size_bytes: int


FilePath = Annotated[str, Field(min_length=1, description="A file, relative to the device's folder.")]
FolderPath = Annotated[str, Field(description="A folder, relative to the device's folder.")]


@dataclass(frozen=True, slots=True)
class _FileTools:
    """The functions behind the tools; their docstrings are what a model reads."""

    workspace: Workspace

    def list_folder(
        self,
        folder: FolderPath = ".",
        pattern: Annotated[str, Field(description="A pattern for names, like *.pdf")] = "*",
    ) -> Listing:
        """List the files and folders directly in a folder."""
        return _listing(self.workspace, folder, pattern)

    def read(self, path: FilePath) -> FileText:
        """Read a text file."""
        return _read(self.workspace, path)

    def write(self, path: FilePath, text: Annotated[str, Field(description="The whole new content.")]) -> Written:
        """Write a text file, replacing it if it exists."""
        with self.workspace.replacing(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
        return _written(self.workspace, path)

    def copy(self, source: FilePath, path: FilePath) -> Written:
        """Copy a file to a path that does not exist yet."""
        origin = self.workspace.file(source)
        target = _free(self.workspace, source, path)
        with self.workspace.replacing(self.workspace.relative(target)) as part:
            shutil.copyfile(origin, part)
        return _written(self.workspace, self.workspace.relative(target))

    def move(self, source: FilePath, path: FilePath) -> Written:
        """Move or rename a file to a path that does not exist yet."""
        origin = self.workspace.file(source)
        target = _free(self.workspace, source, path)
        check_stopped()
        self.workspace.effects.make_folder(target.parent)
        self.workspace.effects.will_move(origin, target)
        origin.rename(target)
        flush_names(target.parent)
        flush_names(origin.parent)
        return _written(self.workspace, self.workspace.relative(target))

    def delete(self, path: FilePath) -> Deleted:
        """Delete one file for good."""
        real = self.workspace.file(path)
        check_stopped()
        self.workspace.effects.will_delete(real)
        real.unlink()
        flush_names(real.parent)
        return Deleted(path=self.workspace.relative(real))

    def make_zip(
        self,
        files: Annotated[
            list[FilePath], Field(min_length=1, description="Files, folders, or patterns like reports/*.pdf")
        ],
        path: Annotated[str, Field(min_length=1, description="The archive to make, like reports.zip")],
    ) -> Archive:
        """Make a ZIP archive of files and folders."""
        return _zip(self.workspace, files, path)


def files_toolset(workspace: Workspace) -> Toolset:
    """Return the `files` toolset over a workspace."""
    files = _FileTools(workspace)
    return Toolset(
        "files",
        (
            tool(files.list_folder, name="files.list", risk=Risk.READ, destinations=("folder",)),
            tool(files.read, name="files.read", risk=Risk.READ, destinations=("path",)),
            tool(files.write, name="files.write", risk=Risk.WRITE, destinations=("path",)),
            tool(files.copy, name="files.copy", risk=Risk.WRITE, destinations=("path",)),
            tool(files.move, name="files.move", risk=Risk.WRITE, destinations=("source", "path")),
            tool(files.delete, name="files.delete", risk=Risk.IRREVERSIBLE, destinations=("path",)),
            tool(files.make_zip, name="files.zip", risk=Risk.WRITE, destinations=("path",)),
        ),
    )


def _listing(workspace: Workspace, folder: str, pattern: str) -> Listing:
    real = workspace.folder(folder)
    entries: list[Entry] = []
    names = sorted(item.name for item in real.iterdir() if not workspace.is_own(item))
    matching = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    for name in matching[:_MOST_ENTRIES]:
        item = real / name
        is_folder = item.is_dir()
        size_bytes = 0 if is_folder or not item.exists() else item.stat().st_size
        kind: Literal["file", "folder"] = "folder" if is_folder else "file"
        entries.append(Entry(name=name, path=workspace.relative(item), kind=kind, size_bytes=size_bytes))
    return Listing(folder=workspace.relative(real), entries=entries, truncated=len(matching) > _MOST_ENTRIES)


def _read(workspace: Workspace, path: str) -> FileText:
    real = workspace.file(path)
    size_bytes = real.stat().st_size
    with real.open("rb") as file:
        content = file.read(_LONGEST_TEXT_BYTES)
    truncated = size_bytes > len(content)
    if truncated:  # a character cut in two must not make a text file look like a binary one
        content = content[: content.rfind(b"\n") + 1] or content.decode(errors="ignore").encode()
    return FileText(
        path=workspace.relative(real), text=decode(content, path), size_bytes=size_bytes, truncated=truncated
    )


def _written(workspace: Workspace, path: str) -> Written:
    real = workspace.resolve(path)
    return Written(path=workspace.relative(real), size_bytes=real.stat().st_size)


def _free(workspace: Workspace, source: str, path: str) -> Path:
    """Return the real path to put a file at; a folder means the same name in it.

    Raises:
        ToolFailure: something is there already.
    """
    real = workspace.resolve(path)
    if real.is_dir():
        real = workspace.resolve(workspace.relative(real / Path(source).name))
    if real.exists():
        raise ToolFailure(f"{workspace.relative(real)!r} exists already. Choose another path or delete it.", path=path)
    return real


def _zip(workspace: Workspace, files: list[str], path: str) -> Archive:
    target = workspace.resolve(path)
    inputs: dict[Path, None] = {}
    for name in files:
        inputs.update(dict.fromkeys(_expanded(workspace, name)))
    if workspace.resolve(path) in inputs and any(workspace.resolve(name) == target for name in files):
        raise ToolFailure(f"The archive {path!r} cannot contain itself.", path=path)
    chosen = [item for item in inputs if item != target and not workspace.is_own(item)]
    if not chosen:
        raise ToolFailure(f"There is nothing to put into {path!r}: {', '.join(files)} holds no file.", path=path)
    with (
        workspace.replacing(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
    ):
        for item in chosen:
            check_stopped()
            archive.write(item, workspace.relative(item))
    packed = [workspace.relative(item) for item in chosen]
    return Archive(path=workspace.relative(target), files=packed, size_bytes=target.stat().st_size)


def _expanded(workspace: Workspace, name: str) -> list[Path]:
    """Return the files that a name means: itself, everything below a folder, or what matches its last part's pattern.

    Links inside a folder are left out; a link that is named is followed when it stays inside.
    """
    folder, _, last = name.rstrip("/").rpartition("/")
    if any(sign in last for sign in _PATTERN_SIGNS) and not workspace.resolve(name).exists():
        real = workspace.folder(folder or ".")
        found = sorted(item for item in real.iterdir() if fnmatch.fnmatchcase(item.name, last))
        found = [item for item in found if item.is_file() and not item.is_symlink()]
        if not found:
            raise ToolFailure(f"No file matches {name!r}.", path=name)
        return found
    real = workspace.resolve(name)
    if real.is_dir():
        below = sorted(item for item in real.rglob("*") if item.is_file() and not item.is_symlink())
        below = [item for item in below if not workspace.is_own(item)]
        return [item for item in below if workspace.resolve(workspace.relative(item)) == item]
    return [workspace.file(name)]
