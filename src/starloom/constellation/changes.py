"""The seven smallest changes a constellation can undergo, each with its inverse; the only way to change structure.

Commands are made of these; history keeps these, so undo costs what the change cost. A change refuses to touch a task
that has started, and an edge into one (I3), forwards and backwards alike (I6).

    add_task ↔ remove_task      add_line ↔ remove_line      set_task, set_line, set_about: their own inverse
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from starloom.constellation.line import LineSpec, TaskStarLine
from starloom.constellation.problems import ConstellationError, EditError
from starloom.constellation.star import TaskSpec, TaskStar

if TYPE_CHECKING:
    from starloom.constellation.constellation import TaskConstellation

Kind: TypeAlias = Literal["add_task", "remove_task", "add_line", "remove_line", "set_task", "set_line", "set_about"]
About: TypeAlias = tuple[str, dict[str, Any]]

_INVERSE: dict[Kind, Kind] = {
    "add_task": "remove_task",
    "remove_task": "add_task",
    "add_line": "remove_line",
    "remove_line": "add_line",
    "set_task": "set_task",
    "set_line": "set_line",
    "set_about": "set_about",
}


class Change:
    """One change. `value` is the new description for the `set_…` kinds; once applied it holds the old one."""

    __slots__ = ("kind", "line", "star", "value")

    def __init__(
        self,
        kind: Kind,
        subject: TaskStar | TaskStarLine | None = None,
        value: TaskSpec | LineSpec | About | None = None,
    ) -> None:
        self.kind = kind
        self.star = subject if isinstance(subject, TaskStar) else None
        self.line = subject if isinstance(subject, TaskStarLine) else None
        self.value = value

    def apply(self, constellation: "TaskConstellation") -> None:
        """Make the change.

        Raises:
            EditError: it may not be made; nothing changed.
        """
        self._perform(self.kind, constellation)

    def revert(self, constellation: "TaskConstellation") -> None:
        """Undo the change that `apply` made.

        Raises:
            EditError: it may not be undone any more; nothing changed.
        """
        self._perform(_INVERSE[self.kind], constellation)

    def inverse(self) -> "Change":
        """Return the change that undoes this one, after this one was applied."""
        return Change(_INVERSE[self.kind], self.star or self.line, self.value)

    def _perform(self, kind: Kind, constellation: "TaskConstellation") -> None:
        if self.star is not None:
            _change_task(kind, self.star, self, constellation)
        elif self.line is not None:
            _change_line(kind, self.line, self, constellation)
        else:
            about = self.value
            assert isinstance(about, tuple)  # noqa: S101 — set_about carries a pair
            self.value = (constellation.name, constellation.metadata)
            constellation.name, constellation.metadata = about


def _change_task(kind: Kind, star: TaskStar, change: Change, constellation: "TaskConstellation") -> None:
    if kind == "add_task":
        constellation.graph.insert_task(star)
        star._position = constellation.ledger.take_position(star._position)
        constellation.ledger.enter(star)
        return
    if star.has_started:
        verb = "be removed" if kind == "remove_task" else "change"
        raise EditError(f"Task {star.task_id!r} is {star.status.value}; a task that has started cannot {verb}.")
    if kind == "remove_task":
        constellation.ledger.leave(star)
        constellation.graph.remove_task(star)
        return
    new = change.value
    assert isinstance(new, TaskSpec)  # noqa: S101 — set_task carries a description
    change.value, star._spec = star._spec, new
    constellation.ledger.respecify(star)


def _change_line(kind: Kind, line: TaskStarLine, change: Change, constellation: "TaskConstellation") -> None:
    target = constellation.graph.tasks.get(line._to)
    if target is not None and target.has_started:
        raise EditError(
            f"Task {target.task_id!r} is {target.status.value}; edges into a task that has started are fixed "
            f"({line.line_id!r})."
        )
    if kind == "add_line":
        source, target = constellation.graph.insert_line(line)
        line._position = constellation.ledger.take_position(line._position)
        constellation.ledger.link(line, source, target)
        return
    source, target = constellation.graph.ends_of(line)
    constellation.ledger.unlink(line, target)
    if kind == "remove_line":
        constellation.graph.remove_line(line, source, target)
    else:
        new = change.value
        assert isinstance(new, LineSpec)  # noqa: S101 — set_line carries a description
        change.value, line._spec = line._spec, new
        constellation.ledger.link(line, source, target)


def roll_back(constellation: "TaskConstellation", changes: list[Change], position: int) -> None:
    """Take back the changes of an edit that was refused half-way, as if it had never been tried."""
    for change in reversed(changes):
        change.revert(constellation)
        subject = change.star or change.line
        if subject is not None and change.kind in {"add_task", "add_line"}:
            subject._position = 0
    constellation.ledger.last_position = position


def revert_all(constellation: "TaskConstellation", changes: list[Change]) -> None:
    """Undo changes in reverse order, all or none, references checked.

    Raises:
        EditError: one can no longer be undone; nothing changed.
    """
    done: list[Change] = []
    try:
        for change in reversed(changes):
            change.revert(constellation)
            done.append(change)
        constellation.check_references([change.inverse() for change in done])
    except ConstellationError:
        for change in reversed(done):
            change.apply(constellation)
        raise


def apply_all(constellation: "TaskConstellation", changes: list[Change]) -> None:
    """Make undone changes again, all or none, references checked.

    Raises:
        EditError: one can no longer be made; nothing changed.
    """
    done: list[Change] = []
    try:
        for change in changes:
            change.apply(constellation)
            done.append(change)
        constellation.check_references(done)
    except ConstellationError:
        for change in reversed(done):
            change.revert(constellation)
        raise
