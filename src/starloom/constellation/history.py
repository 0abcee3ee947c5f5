"""`CommandInvoker`: carries out edits, counts versions, rebases, and keeps inverse changes for undo and redo.

Called by the editor only. Two memories, both bounded: what can be undone (`done`, `undone`), and what each recent
version changed (`_written`), by which an edit made against an older version is rebased or refused.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starloom.constellation.changes import Change, apply_all, revert_all, roll_back
from starloom.constellation.commands import Command
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.problems import ConflictError, ConstellationError, EditError
from starloom.constellation.serialisation import forms_of

REMEMBERED_VERSIONS = 10_000


@dataclass(slots=True)
class Edit:
    """One atomic edit as it was made: who, why, against which version, and what brings it about again.

    `commands` is its serialised form; on `version - 1` it gives `version`. `name` is the command's, or `batch`,
    `undo`, `redo`.
    """

    name: str
    version: int
    commands: list[dict[str, Any]]
    by: str
    why: str
    against: int | None
    description: str
    changes: list[Change] = field(repr=False)
    originals: tuple[Command, ...] = field(repr=False, default=())


class CommandInvoker:
    """The history of one constellation."""

    def __init__(
        self, constellation: TaskConstellation, max_history_size: int, tell: Callable[[str, Any], None]
    ) -> None:
        self._constellation = constellation
        self._tell = tell
        self._limit = max_history_size
        self.done: deque[Edit] = deque(maxlen=max_history_size)
        self.undone: list[Edit] = []
        self._written: deque[tuple[int, frozenset[str]]] = deque(maxlen=REMEMBERED_VERSIONS)

    def execute(self, commands: Sequence[Command], *, by: str, why: str, against: int | None) -> tuple[Edit, list[Any]]:
        """Carry out commands as one edit and return it with each command's result.

        Raises:
            EditError: refused; nothing changed.
        """
        constellation = self._constellation
        if against is not None and against != constellation.version:
            self._rebase(commands, against)
        position = constellation.ledger.last_position
        changes: list[Change] = []
        results = []
        try:
            for command in commands:
                results.append(command.execute(constellation))
                changes += command.changes
            constellation.check_references(changes)
        except ConstellationError:
            roll_back(constellation, changes, position)
            raise
        constellation.version += 1
        edit = Edit(
            name=commands[0].name if len(commands) == 1 else "batch",
            version=constellation.version,
            commands=[command.to_dict() for command in commands],
            by=by,
            why=why,
            against=against if against is not None and against < constellation.version - 1 else None,
            description=commands[0].description if len(commands) == 1 else f"{len(commands)} commands",
            changes=changes,
            originals=tuple(commands),
        )
        self._note(edit)
        self.undone.clear()
        if self._limit:
            self.done.append(edit)
        for command, result in zip(commands, results, strict=True):
            self._tell(command.name, result)
        return edit, results

    def undo(self, by: str = "user") -> Edit | None:
        """Undo the newest edit and return the edit that this is; None when there is none.

        Raises:
            EditError: it touches a task that has started; nothing changed, both stacks included.
        """
        if not self.done:
            return None
        edit = self.done[-1]
        revert_all(self._constellation, edit.changes)
        for command in edit.originals:
            if not command.changes:
                command.undo(self._constellation)
        self.undone.append(self.done.pop())
        return self._record("undo", edit, by, undone=True)

    def redo(self, by: str = "user") -> Edit | None:
        """Make the newest undone edit again and return the edit that this is; None when there is none.

        Raises:
            EditError: it cannot be made any more; nothing changed, both stacks included.
        """
        if not self.undone:
            return None
        edit = self.undone[-1]
        apply_all(self._constellation, edit.changes)
        for command in edit.originals:
            if not command.changes:
                command.execute(self._constellation)
        self.done.append(self.undone.pop())
        return self._record("redo", edit, by, undone=False)

    def clear_history(self) -> None:
        """Forget what could be undone or made again; versions stay."""
        self.done.clear()
        self.undone.clear()

    def _record(self, name: str, edit: Edit, by: str, *, undone: bool) -> Edit:
        self._constellation.version += 1
        made = Edit(
            name=name,
            version=self._constellation.version,
            commands=forms_of(self._constellation, edit.changes, undone=undone),
            by=by,
            why=f"{name}: {edit.description}",
            against=None,
            description=f"{name} {edit.description}",
            changes=edit.changes,
        )
        self._note(made)
        self._tell(name, made)
        return made

    def _note(self, edit: Edit) -> None:
        written = {
            subject_id
            for change in edit.changes
            if (subject_id := change.star.task_id if change.star else change.line.line_id if change.line else None)
        }
        self._written.append((edit.version, frozenset(written)))

    def _rebase(self, commands: Sequence[Command], against: int) -> None:
        """Refuse an edit made against an older version when something it touches has changed since."""
        version = self._constellation.version
        if against > version:
            raise EditError(f"The edit was made against version {against}, but the newest is {version}.")
        oldest = self._written[0][0] if self._written else version + 1
        if against + 1 < oldest:
            raise ConflictError(
                f"The edit was made against version {against}; only what changed since {oldest} is known. Read it anew."
            )
        touched = frozenset().union(*(command.touches(self._constellation) for command in commands))
        for number, written in reversed(self._written):
            if number <= against:
                break
            if conflict := sorted(touched & written):
                raise ConflictError(
                    f"The edit was made against version {against}, but version {number} changed "
                    f"{', '.join(map(repr, conflict[:5]))}; read the constellation anew.",
                    conflict,
                )
