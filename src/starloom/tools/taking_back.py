"""Takes back what a run changed in a device's folder, newest first, each change only as far as nobody changed it since.

The two tools here are carried out by a device and not offered to planners: the hub asks with them for
`starloom undo-effects`. Twice is once.
"""

import shutil
from pathlib import Path
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from starloom.durable import flush_file
from starloom.safety.paths import PathRefused, confine
from starloom.safety.policy import Risk
from starloom.tools.cells import NotAWorkbook, put_cells_back
from starloom.tools.effects import NOTED_TOOLSETS, Effect, Effects, kept_cells, mark_of, stamp_of
from starloom.tools.toolset import Toolset, check_stopped, tool

_NAMED_CELLS = 10
_BY_A_PROGRAM = "cannot be reversed: a program that the run started, or something beside it, did this"
_PROGRAM = "cannot be reversed: what a program did outside this folder, or sent away, is not known"


class EffectRow(TypedDict):
    """A change as it is shown; `undone` and `note` say what came of taking it back."""

    call_id: str
    kind: str
    path: str
    source: str
    undone: bool
    note: str
    reversible: bool


class EffectList(TypedDict):
    """The changes of one run on this device, oldest first; `noted` names the toolsets whose changes are on record."""

    run: str
    effects: list[EffectRow]
    noted: list[str]


def effects_toolset(root: Path) -> Toolset:
    """Return the tools by which a hub asks for a run's effects and takes them back; for the router's unlisted ones."""
    effects = Effects(root.resolve())

    def list_effects(run: Annotated[str, Field(min_length=1, description="A run's id.")]) -> EffectList:
        """List what a run changed in this device's folder."""
        rows = [_row(effect, undone=False, note=_why_not(effect)) for effect, _ in effects.of_run(run)]
        return EffectList(run=run, effects=rows, noted=list(NOTED_TOOLSETS))

    def undo(run: Annotated[str, Field(min_length=1, description="A run's id.")]) -> EffectList:
        """Take back what a run changed in this device's folder, where nothing else changed it since."""
        return EffectList(run=run, effects=take_back(effects, run), noted=list(NOTED_TOOLSETS))

    return Toolset(
        "effects",
        (
            tool(list_effects, name="effects.list", risk=Risk.READ),
            tool(undo, name="effects.undo", risk=Risk.WRITE),
        ),
    )


def take_back(effects: Effects, run: str) -> list[EffectRow]:
    """Take back a run's changes, newest first; one whose file has changed since stays, and says so. Idempotent."""
    rows = []
    for effect, folder in reversed(effects.of_run(run)):
        check_stopped()
        try:
            undone, note = _taken_back(effects.root, effect, folder)
        except (PathRefused, OSError) as error:
            undone, note = False, f"it cannot be taken back: {error}"
        rows.append(_row(effect, undone=undone, note=note))
    rows.reverse()
    return rows


def _row(effect: Effect, *, undone: bool, note: str) -> EffectRow:
    return EffectRow(
        call_id=effect.call_id,
        kind=effect.kind,
        path=_shown(effect.path),
        source=_shown(effect.source),
        undone=undone,
        note=_shown(note),
        reversible=not _why_not(effect),
    )


def _shown(name: str) -> str:
    """Return a file's name as it can be sent: bytes that are no text are shown by their numbers."""
    return name.encode("utf-8", "backslashreplace").decode()


def _why_not(effect: Effect) -> str:
    """Return why a change can never be taken back; empty when it can."""
    match effect.kind:
        case "ran":
            return f"cannot be reversed: {effect.note}" if effect.note else _PROGRAM
        case "changed" | "vanished":
            return _BY_A_PROGRAM
        case _:
            return ""


def _taken_back(root: Path, effect: Effect, folder: Path) -> tuple[bool, str]:
    place = Path(effect.path)
    target = confine(root, place.parent.as_posix()) / place.name  # a link stands for itself, not for what it names
    match effect.kind:
        case "created":
            return _uncreated(effect, folder, target)
        case "appeared":
            return _moved_aside(effect, folder, target)
        case "moved":
            return _moved_back(effect, target, confine(root, effect.source))
        case "folder":
            return _unmade(target)
        case "overwritten" | "deleted":
            return _restored(effect, folder, target)
        case "ran" | "changed" | "vanished":
            return False, _why_not(effect)


def _uncreated(effect: Effect, folder: Path, target: Path) -> tuple[bool, str]:
    now = mark_of(target)
    if not now:
        return False, "it is gone already"
    if now != effect.after:
        return _cells_put_back(effect, folder, target)
    target.unlink()
    return True, "removed"


def _moved_aside(effect: Effect, folder: Path, target: Path) -> tuple[bool, str]:
    now = stamp_of(target)
    if not now:
        return False, "it is gone already"
    if now != effect.after:
        return False, "it has changed since; it stays"
    aside = folder / f"{len(list(folder.iterdir()))}-{target.name}"  # it may be someone else's: nothing of it is lost
    target.rename(aside)
    return True, f"moved away, to {aside}"


def _moved_back(effect: Effect, target: Path, origin: Path) -> tuple[bool, str]:
    now = mark_of(target)
    if now != effect.after or origin.exists():
        return False, "it is back already" if not now else "it has changed since, or its old place is taken"
    origin.parent.mkdir(parents=True, exist_ok=True)
    target.rename(origin)
    return True, f"moved back to {effect.source}"


def _unmade(target: Path) -> tuple[bool, str]:
    if target.is_symlink() or not target.is_dir():
        return False, "it is gone already"
    if any(target.iterdir()):
        return False, "it is not empty; it stays"
    target.rmdir()
    return True, "removed"


def _restored(effect: Effect, folder: Path, target: Path) -> tuple[bool, str]:
    now = mark_of(target)
    if now == effect.before:
        return False, "it is as it was already"
    if now != effect.after:
        return _cells_put_back(effect, folder, target)
    if not (folder / effect.kept).exists():
        return False, "what was there is not kept any more; it stays"
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{effect.kept}.back"
    draft.unlink(missing_ok=True)
    shutil.copy2(folder / effect.kept, draft)  # the kept content stays, so that doing it again is possible
    flush_file(draft)
    draft.replace(target)
    return True, "put back"


def _cells_put_back(effect: Effect, folder: Path, target: Path) -> tuple[bool, str]:
    """Put back a workbook's cells when someone else has worked in it since; any other file stays."""
    changes = kept_cells(folder / effect.cells) if effect.cells else {}
    if not changes or not target.exists():
        return False, "it has changed since; it stays"
    draft = folder / f"{effect.cells}.back"
    draft.unlink(missing_ok=True)
    try:
        back = put_cells_back(target, changes, draft)
    except NotAWorkbook as error:
        return False, f"it has changed since; it stays, as its cells cannot be put back: {error}"
    named = ", ".join(back.left[:_NAMED_CELLS])
    if len(back.left) > _NAMED_CELLS:
        named += f" and {len(back.left) - _NAMED_CELLS} more"
    left = f"; left, because changed since: {named}" if named else ""
    if not back.done:
        return False, f"none of its cells can be put back{left}" if left else "its cells are as they were already"
    shutil.copymode(target, draft)
    flush_file(draft)
    draft.replace(target)
    cells = "1 cell" if back.done == 1 else f"{back.done} cells"
    return True, f"it has changed since: {cells} put back{left}"
