"""The beginning of a fork: what a run's events up to a point are worth to a new run. Pure; called by the galaxy.

What had ended by then is kept, with its results, so its effects are used again and not repeated. What was running or
asked at that moment belongs to the old run: in the new one it has not begun. Endings are left out.
"""

from collections.abc import Sequence
from dataclasses import replace

from starloom.constellation.enums import CancelReason
from starloom.errors import UsageError
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.events import Event, Recorded

_ENDS = (e.RunEnded, e.RunCancelled, e.ConstellationCompleted, e.ConstellationFailed)
_SPENT = (e.CostRecorded,)  # by the old run
_ASKS = (e.ApprovalAsked, e.ApprovalAnswered, e.QuestionAsked, e.QuestionAnswered)


def forked(run_id: RunId, recorded: Sequence[Recorded], at: int) -> list[Event]:
    """Return the events with which a fork of the run at sequence number `at` begins.

    Raises:
        UsageError: the run has no such point, or no graph by then.
    """
    last = recorded[-1].seq if recorded else 0
    if not 1 <= at <= last:
        raise UsageError(f"Run {run_id!r} has events 1 to {last}; {at} is none of them.", run_id=run_id)
    before = [item.event for item in recorded if item.seq <= at]
    if not any(isinstance(event, e.EditApplied) for event in before):
        raise UsageError(f"Run {run_id!r} had no graph at event {at}; fork it later, or start it anew.", run_id=run_id)
    live: dict[str, int] = {}
    for index, event in enumerate(before):
        if isinstance(event, e.TaskStarted):
            live[event.task_id] = index
        elif isinstance(event, e.TaskCompleted | e.TaskFailed | e.TaskCancelled | e.TaskRetrying):
            live.pop(event.task_id, None)
    unfinished = set(live.values())
    kept = [event for index, event in enumerate(before) if index not in unfinished and not _is_left_out(event)]
    first = kept[0]
    if not isinstance(first, e.RunStarted):
        raise UsageError(f"Run {run_id!r} does not begin as a run does; it cannot be forked.", run_id=run_id)
    kept[0] = replace(first, parameters={**first.parameters, "forked_from": run_id, "forked_at": at})
    return kept


def _is_left_out(event: Event) -> bool:
    if isinstance(event, e.TaskCancelled):
        return event.reason == CancelReason.RUN_CANCELLED.value
    return isinstance(event, (*_ENDS, *_ASKS, *_SPENT))
