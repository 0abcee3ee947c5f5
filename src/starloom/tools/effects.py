"""What tool calls changed in a device's folder, with what takes it back: a file written over, made, moved or deleted.

Kept on the device, in `.starloom/effects/` of its own folder, so that the content of files never travels for it. The
workspace and the file tools note a change before they make it; `starloom undo-effects` reads and reverses through the
two tools here, which a device carries out but does not offer to planners. What programs do that the shell starts is
not seen.

    .starloom/effects/<time>-<hash of the call's id>/record.jsonl   one change a line, on disk before it is made
                                                     0, 1 …         the content that a change took away
"""

import contextvars
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from starloom.safety.paths import confine
from starloom.safety.policy import Risk
from starloom.tools.toolset import Toolset, check_stopped, tool

OWN_FOLDER = ".starloom"
_KEPT_CALLS = 1_000
_HASHED_BYTES = 64 * 1024 * 1024  # a larger file is told by its size and time instead

Kind: TypeAlias = Literal["created", "overwritten", "moved", "deleted"]

_call: contextvars.ContextVar[str] = contextvars.ContextVar("starloom_call_id", default="")


@contextmanager
def recording(call_id: str) -> Iterator[None]:
    """Note the changes that are made inside the block under this call's id; an empty id notes nothing."""
    token = _call.set(call_id)
    try:
        yield
    finally:
        _call.reset(token)


@dataclass(frozen=True, slots=True)
class Effect:
    """One change. `before` and `after` tell the file's content then; `kept` names the content that was taken away."""

    call_id: str
    kind: Kind
    path: str
    source: str = ""
    before: str = ""
    after: str = ""
    kept: str = ""


class EffectRow(TypedDict):
    """A change as it is shown; `undone` and `note` say what came of taking it back."""

    call_id: str
    kind: str
    path: str
    source: str
    undone: bool
    note: str


class EffectList(TypedDict):
    """The changes of one run on this device, oldest first."""

    run: str
    effects: list[EffectRow]


class Effects:
    """The record of one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / OWN_FOLDER / "effects"

    def will_replace(self, target: Path, new: Path) -> None:
        """Note that `new` is about to take the place of `target`, which need not exist."""
        if _call.get():
            kind: Kind = "overwritten" if target.exists() else "created"
            self._note(kind, target, before=_mark(target), after=_mark(new), takes=target if target.exists() else None)

    def will_move(self, source: Path, target: Path) -> None:
        """Note that a file is about to be moved to a place where nothing is."""
        if _call.get():
            self._note("moved", target, source=source, after=_mark(source))

    def will_delete(self, target: Path) -> None:
        """Note that a file is about to be deleted."""
        if _call.get():
            self._note("deleted", target, before=_mark(target), takes=target)

    def of_run(self, run: str) -> list[tuple[Effect, Path]]:
        """Return a run's changes with the folders that hold what they took away, oldest first."""
        found = []
        for folder in self._calls():
            for line in _lines(folder / "record.jsonl"):
                if line.call_id.startswith(f"{run}:"):
                    found.append((line, folder))
        return found

    def undo(self, run: str) -> list[EffectRow]:
        """Take back a run's changes, newest first; one whose file has changed since stays, and says so. Idempotent."""
        rows = []
        for effect, folder in reversed(self.of_run(run)):
            check_stopped()
            undone, note = self._undo(effect, folder)
            rows.append(_row(effect, undone=undone, note=note))
        rows.reverse()
        return rows

    def _note(
        self,
        kind: Kind,
        target: Path,
        *,
        source: Path | None = None,
        before: str = "",
        after: str = "",
        takes: Path | None = None,
    ) -> None:
        folder = self._folder_of(_call.get())
        record = folder / "record.jsonl"
        kept = ""
        if takes is not None:
            kept = str(len(list(folder.iterdir())))
            _keep(takes, folder / kept)
        path = target.relative_to(self._root).as_posix()
        origin = source.relative_to(self._root).as_posix() if source else ""
        line = json.dumps(asdict(Effect(_call.get(), kind, path, origin, before, after, kept)))
        with record.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _folder_of(self, call_id: str) -> Path:
        name = hashlib.sha256(call_id.encode()).hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        existing = sorted(self._folder.glob(f"*-{name}"))
        if existing:
            return existing[-1]
        calls = self._calls()
        for oldest in calls[: max(0, len(calls) + 1 - _KEPT_CALLS)]:
            shutil.rmtree(oldest, ignore_errors=True)
        folder = self._folder / f"{time.time_ns():020d}-{name}"
        folder.mkdir(mode=0o700)
        return folder

    def _calls(self) -> list[Path]:
        return sorted(item for item in self._folder.iterdir() if item.is_dir()) if self._folder.is_dir() else []

    def _undo(self, effect: Effect, folder: Path) -> tuple[bool, str]:
        target = confine(self._root, effect.path)
        now = _mark(target)
        match effect.kind:
            case "created":
                if not now:
                    return False, "it is gone already"
                if now != effect.after:
                    return False, "it has changed since; it stays"
                target.unlink()
                return True, "removed"
            case "moved":
                origin = confine(self._root, effect.source)
                if now != effect.after or origin.exists():
                    return False, "it is back already" if not now else "it has changed since, or its old place is taken"
                origin.parent.mkdir(parents=True, exist_ok=True)
                target.rename(origin)
                return True, f"moved back to {effect.source}"
            case "overwritten" | "deleted":
                if now == effect.before:
                    return False, "it is as it was already"
                if now != effect.after:
                    return False, "it has changed since; it stays"
                target.parent.mkdir(parents=True, exist_ok=True)
                _put_back(folder / effect.kept, target)
                return True, "put back"


def effects_toolset(root: Path) -> Toolset:
    """Return the tools by which a hub asks for a run's effects and takes them back; for the router's unlisted ones."""
    effects = Effects(root.resolve())

    def list_effects(run: Annotated[str, Field(min_length=1, description="A run's id.")]) -> EffectList:
        """List what a run changed in this device's folder."""
        return EffectList(run=run, effects=[_row(effect) for effect, _ in effects.of_run(run)])

    def undo(run: Annotated[str, Field(min_length=1, description="A run's id.")]) -> EffectList:
        """Take back what a run changed in this device's folder, where nothing else changed it since."""
        return EffectList(run=run, effects=effects.undo(run))

    return Toolset(
        "effects",
        (
            tool(list_effects, name="effects.list", risk=Risk.READ),
            tool(undo, name="effects.undo", risk=Risk.WRITE),
        ),
    )


def _row(effect: Effect, *, undone: bool = False, note: str = "") -> EffectRow:
    return EffectRow(
        call_id=effect.call_id, kind=effect.kind, path=effect.path, source=effect.source, undone=undone, note=note
    )


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


def _mark(path: Path) -> str:
    """Return what tells a file's content; empty when there is no file."""
    if not path.is_file():
        return ""
    facts = path.stat()
    if facts.st_size > _HASHED_BYTES:
        return f"{facts.st_size}:{facts.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _keep(path: Path, kept: Path) -> None:
    """Keep a file's content under another name: as a second name where the file system can, else as a copy."""
    try:
        os.link(path, kept)
    except OSError:
        shutil.copy2(path, kept)


def _put_back(kept: Path, target: Path) -> None:
    """Put kept content in its place; the kept one stays, so that doing it again is possible."""
    draft = kept.with_name(f"{kept.name}.back")
    draft.unlink(missing_ok=True)
    shutil.copy2(kept, draft)
    draft.replace(target)
