"""Makes the edits that are proposed while a run goes on, undoes them and refuses them; pure, for the scheduler.

Each proposal is decided once: one with the key of a request that came before gets the answer it got then.
"""

from collections.abc import Mapping
from typing import Protocol

from starloom.constellation.history import Edit
from starloom.constellation.problems import ConstellationError, EditError
from starloom.journal import events as e
from starloom.journal.events import Event
from starloom.orchestrator import signals as s
from starloom.orchestrator.assignment import Assignment
from starloom.orchestrator.ranks import Ranks
from starloom.orchestrator.requests import Answer, KeyReused, Request, check_same
from starloom.orchestrator.state import RunState


class Emit(Protocol):
    """Takes an event into the state and the decision, with its idempotency key."""

    def __call__(self, event: Event, key: str | None = None) -> None:
        """Take it."""


class Editing:
    """The edits of one run.

    Args:
        state: moved on by what is emitted.
        assignment: is told what is no longer ready.
        ranks: are brought up to date.
        emit: takes what happened.
        answered: what came of requests before a restart, by their keys in the journal.
    """

    def __init__(
        self, state: RunState, assignment: Assignment, ranks: Ranks, emit: Emit, answered: Mapping[str, Answer]
    ) -> None:
        self._state = state
        self._assignment = assignment
        self._ranks = ranks
        self._emit = emit
        self._answered: dict[str, tuple[str, Answer]] = {
            key.rpartition(":")[0] + ":": (key, answer) for key, answer in answered.items()
        }

    def propose(self, signal: s.EditProposed) -> s.Reply:
        """Make an edit or refuse it, and return the answer."""
        earlier = self._answered.get(signal.request.prefix) if signal.request is not None else None
        if signal.request is not None and earlier is not None:
            return _again(signal.request, *earlier)
        try:
            return s.Reply(self.make(signal))
        except ConstellationError as problem:
            self.refuse(signal, problem)
            return s.Reply(problem=problem)

    def make(self, signal: s.EditProposed) -> e.EditApplied | None:
        """Make an edit; None when there is nothing to undo.

        Raises:
            EditError: refused; nothing changed.
        """
        edit = self._edit(signal)
        if edit is None:
            return None
        event = e.EditApplied(edit.version, list(edit.commands), edit.by, edit.why, edit.against, signal.action)
        self._told(event, signal.request)
        constellation = self._state.constellation
        for star in self._ranks.update(constellation, edit.changes):
            if self._assignment.is_queued(star.task_id):
                self._assignment.queue(star, self._ranks.of(star))
        for change in edit.changes:
            target = change.star.task_id if change.star else change.line.to_task_id if change.line else None
            if target is not None and target not in constellation.ready:
                self._assignment.withdraw(target)
                self._state.missing.pop(target, None)
        return event

    def refuse(self, signal: s.EditProposed, problem: ConstellationError) -> None:
        """Put on record that an edit changed nothing, and why."""
        forms = [s.form_of(command) for command in signal.commands]
        self._told(e.EditRefused(forms, signal.by, problem.message), signal.request)

    def _told(self, event: Answer, request: Request | None) -> None:
        if request is not None:
            self._answered[request.prefix] = (request.journal_key, event)
        self._emit(event, None if request is None else request.journal_key)

    def _edit(self, signal: s.EditProposed) -> Edit | None:
        editor = self._state.editor
        if self._state.is_cancelled:
            raise EditError("The run has been cancelled; it takes no more edits.")
        if signal.action == "edit":
            if signal.by != "import" and any(s.form_of(command).get("with_state") for command in signal.commands):
                raise EditError("with_state is for imports: an edit describes tasks, it does not report results.")
            return editor.batch(signal.commands, by=signal.by, why=signal.why, against=signal.against)
        edit = editor.undo(signal.by) if signal.action == "undo" else editor.redo(signal.by)
        if edit is None and signal.request is not None:  # on record, so that a repetition does not undo a later edit
            raise EditError(f"There is nothing to {signal.action}.")
        return edit


def _again(request: Request, journal_key: str, answer: Answer) -> s.Reply:
    """Answer a request that came before as it was answered then."""
    try:
        check_same(request, journal_key)
    except KeyReused as problem:
        return s.Reply(problem=problem)
    return s.Reply(answer) if isinstance(answer, e.EditApplied) else s.Reply(problem=EditError(answer.reason))
