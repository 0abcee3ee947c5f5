"""What tool calls changed in a device's folder, with what takes it back: a file written over, made, moved or deleted.

Kept on the device, in `.starloom/effects/` of its own folder, so that the content of files never travels for it. The
workspace and the file tools note a change before they make it; `taking_back` reads and reverses. What a program did
that the shell started is not seen: the folder before and after is compared, and what differs is told.

    .starloom/effects/<time>-<hash of the call's id>/record.jsonl   one change a line, on disk before it is made
                                                     0, 1 …         the content that a change took away
                                                     2.cells        a workbook's changed cells, old and new
"""

import contextvars
import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from starloom.durable import flush_file, flush_names, make_folder
from starloom.tools.cells import SUFFIXES, Changes, NotAWorkbook, cells_of, changes_between

OWN_FOLDER = ".starloom"
NOTED_TOOLSETS = ("files", "invoices", "pdf", "reports", "sheets", "shell")  # all that they change is on record
_KEPT_CALLS = 1_000
_HASHED_BYTES = 64 * 1024 * 1024  # a larger file is told by its size and time instead
_CELLS = ".cells"

Kind: TypeAlias = Literal[
    "created", "overwritten", "moved", "deleted", "folder", "ran", "appeared", "changed", "vanished"
]

_call: contextvars.ContextVar[str] = contextvars.ContextVar("starloom_call_id", default="")


class recording:  # named like a function, as it is read: `with recording(call_id)`
    """Note the changes that are made inside the block under this call's id; an empty id notes nothing."""

    __slots__ = ("_call_id", "_token")

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id

    def __enter__(self) -> None:
        self._token = _call.set(self._call_id)

    def __exit__(self, *_: object) -> None:
        _call.reset(self._token)


@dataclass(frozen=True, slots=True)
class Effect:
    """One change. `before` and `after` tell the file's content then; `kept` names the content that was taken away.

    `ran` is a program (`source`) started in a folder; what `appeared`, `changed` or `vanished` while it ran follows it.
    `cells` names the record of a workbook's changed cells.
    """

    call_id: str
    kind: Kind
    path: str
    source: str = ""
    before: str = ""
    after: str = ""
    kept: str = ""
    cells: str = ""
    note: str = ""


class Effects:
    """The record of one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folder = root / OWN_FOLDER / "effects"

    @property
    def is_noting(self) -> bool:
        """Whether changes are noted now: the call has an id."""
        return bool(_call.get())

    def will_replace(self, target: Path, new: Path) -> None:
        """Note that `new` is about to take the place of `target`, which need not exist."""
        if self.is_noting:
            kind: Kind = "overwritten" if target.exists() else "created"
            self._note(
                kind,
                target,
                before=mark_of(target),
                after=mark_of(new),
                kept=self._keep(target),
                cells=self._keep_cells(target, new),
            )

    def will_move(self, source: Path, target: Path) -> None:
        """Note that a file is about to be moved to a place where nothing is."""
        if self.is_noting:
            self._note("moved", target, source=self._name(source), after=mark_of(source))

    def will_delete(self, target: Path) -> None:
        """Note that a file is about to be deleted."""
        if self.is_noting:
            self._note("deleted", target, before=mark_of(target), kept=self._keep(target))

    def make_folder(self, folder: Path) -> None:
        """Make a folder with the missing ones above it, each noted before it is made."""
        if folder.exists():
            return
        self.make_folder(folder.parent)
        if self.is_noting:
            self._note("folder", folder)
        folder.mkdir(exist_ok=True)
        flush_names(folder.parent)

    def will_run(self, folder: Path, command: str) -> None:
        """Note that a program is about to be started in a folder."""
        if self.is_noting:
            self._note("ran", folder, source=command)

    def has_run(self, differences: Sequence[tuple[Kind, Path]], note: str = "") -> None:
        """Note what is different after a program has ended; `note` says why it is not known, or not all of it."""
        rows = [Effect(_call.get(), kind, self._name(path), after=stamp_of(path)) for kind, path in differences]
        if note:
            rows.append(Effect(_call.get(), "ran", ".", note=note))
        self._write(rows)

    def of_run(self, run: str) -> list[tuple[Effect, Path]]:
        """Return a run's changes with the folders that hold what they took away, oldest first."""
        found = []
        for folder in self._calls():
            for line in _lines(folder / "record.jsonl"):
                if line.call_id.startswith(f"{run}:"):
                    found.append((line, folder))
        return found

    def _note(
        self,
        kind: Kind,
        target: Path,
        *,
        source: str = "",
        before: str = "",
        after: str = "",
        kept: str = "",
        cells: str = "",
    ) -> None:
        self._write([Effect(_call.get(), kind, self._name(target), source, before, after, kept, cells)])

    def _write(self, effects: Sequence[Effect]) -> None:
        """Put lines on disk behind the call's record."""
        if not effects:
            return
        folder = self._folder_of(effects[0].call_id)
        record = folder / "record.jsonl"
        is_new = not record.exists()
        with record.open("a+b") as file:
            if _is_cut(file):
                file.write(b"\n")
            for effect in effects:
                file.write(
                    json.dumps({name: value for name, value in asdict(effect).items() if value}).encode() + b"\n"
                )
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            flush_names(folder)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _keep(self, path: Path) -> str:
        """Keep a file's content, and return under which name; empty when there is no file."""
        if not path.exists():
            return ""
        folder = self._folder_of(_call.get())
        kept = folder / str(len(list(folder.iterdir())))
        try:
            os.link(path, kept)
        except OSError:
            shutil.copy2(path, kept)
            flush_file(kept)
        flush_names(folder)
        return kept.name

    def _keep_cells(self, target: Path, new: Path) -> str:
        """Keep what differs between two versions of a workbook; a file that is none has only its content as a whole."""
        if target.suffix.lower() not in SUFFIXES:
            return ""
        try:
            changes = changes_between(cells_of(target) if target.exists() else {}, cells_of(new))
        except NotAWorkbook:
            return ""
        folder = self._folder_of(_call.get())
        kept = folder / f"{len(list(folder.iterdir()))}{_CELLS}"
        kept.write_text(json.dumps(changes, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
        flush_file(kept)
        return kept.name

    def _folder_of(self, call_id: str) -> Path:
        name = hashlib.sha256(call_id.encode()).hexdigest()[:16]
        make_folder(self._folder, mode=0o700)
        existing = sorted(self._folder.glob(f"*-{name}"))
        if existing:
            return existing[-1]
        calls = self._calls()
        for oldest in calls[: max(0, len(calls) + 1 - _KEPT_CALLS)]:
            shutil.rmtree(oldest, ignore_errors=True)
        folder = self._folder / f"{time.time_ns():020d}-{name}"
        folder.mkdir(mode=0o700)
        flush_names(self._folder)
        return folder

    def _calls(self) -> list[Path]:
        return sorted(item for item in self._folder.iterdir() if item.is_dir()) if self._folder.is_dir() else []


def kept_cells(record: Path) -> Changes:
    """Return the changed cells that a record holds; none when it cannot be read."""
    with suppress(OSError, ValueError):
        changes: Changes = json.loads(record.read_text(encoding="utf-8"))
        return changes
    return {}


def mark_of(path: Path) -> str:
    """Return what tells a file's content; empty when there is no file."""
    if path.is_symlink():
        return f"link:{path.readlink()}"
    if not path.is_file():
        return ""
    facts = path.stat()
    if facts.st_size > _HASHED_BYTES:
        return f"{facts.st_size}:{facts.st_mtime_ns}"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp_of(path: Path) -> str:
    """Return what tells a file without reading it: its number, size and time; empty when nothing is there."""
    with suppress(OSError):
        facts = path.lstat()
        return f"{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}"
    return ""


def _is_cut(file: BinaryIO) -> bool:
    """Whether a kill left the last line without its end; what is written behind it would be lost with it."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _lines(record: Path) -> list[Effect]:
    """Read a record; a last line that a kill cut short is left out, its change was never made."""
    found = []
    if record.exists():
        for line in record.read_text(encoding="utf-8").splitlines():
            try:
                found.append(Effect(**json.loads(line)))
            except (ValueError, TypeError):
                continue
    return found
