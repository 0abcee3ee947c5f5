"""The stored form of events and the summary of a run, shared by every store; pure.

A row is what goes to disk: the event's kind, its fields as JSON text, its key and the microsecond it was appended.
Golden files in `tests/journal/golden` hold this form for each schema version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.codec import dumps, loads, loads_all
from starloom.journal.events import SCHEMA_VERSION, Event, Recorded, RunEnded, RunResumed, RunStarted, decode, encode
from starloom.journal.store import RunRecord

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Row:
    """One event before it has a number. `at_us`: microseconds since 1970, UTC; `version`: of the stored form."""

    kind: str
    body: str
    key: str | None
    at_us: int
    version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class NumberedRow:
    """One event as the store holds it."""

    seq: int
    row: Row


def microseconds(at: datetime) -> int:
    """Return an aware time as microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND


def instant(at_us: int) -> datetime:
    """Return the aware UTC time that `microseconds` gave `at_us` for.

    Exact to the microsecond until the year 2242, and twice as fast as adding a `timedelta`.
    """
    return datetime.fromtimestamp(at_us / 1_000_000, UTC)


def to_rows(events: Sequence[Event], keys: Sequence[str | None], at: datetime) -> tuple[Row, ...]:
    """Return the stored form of events; taken at once, so that later changes of their values do not matter.

    Raises:
        StoreError: keys were given but not one an event, or a value has no JSON form.
    """
    if keys and len(keys) != len(events):
        raise StoreError(f"{len(keys)} keys were given for {len(events)} events; give one an event, or none at all.")
    at_us = microseconds(at)
    paired = zip(events, keys or (None,) * len(events), strict=True)
    return tuple(Row(event.kind, dumps(encode(event)), key, at_us) for event, key in paired)


def to_recorded(run_id: RunId, seq: int, row: Row) -> Recorded:
    """Return one row as readers get it.

    Raises:
        StoreError: the row is damaged or from a newer Starloom.
    """
    return Recorded(run_id, seq, instant(row.at_us), decode(row.kind, loads(row.body)))


def to_many_recorded(run_id: RunId, rows: Sequence[tuple[int, int, str, str]]) -> tuple[Recorded, ...]:
    """Return many `(seq, at_us, kind, body)` as readers get them; the fast form of `to_recorded`.

    Raises:
        StoreError: a row is damaged or from a newer Starloom.
    """
    bodies = loads_all([row[3] for row in rows])
    fromtimestamp = datetime.fromtimestamp
    return tuple(
        Recorded(run_id, seq, fromtimestamp(at_us / 1_000_000, UTC), decode(kind, body))
        for (seq, at_us, kind, _), body in zip(rows, bodies, strict=True)
    )


def summarised(record: RunRecord, recorded: Recorded) -> RunRecord:
    """Return the run's line in the list after one more event; a run that is resumed after its end is open again."""
    started_at = recorded.at if recorded.seq == 1 else record.started_at
    request, ended_at, stop_reason = record.request, record.ended_at, record.stop_reason
    match recorded.event:
        case RunStarted(request=request):
            pass
        case RunEnded(stop_reason=stop_reason):
            ended_at = recorded.at
        case RunResumed():
            ended_at, stop_reason = None, None
        case _:
            pass
    return RunRecord(record.run_id, request, started_at, ended_at, stop_reason, recorded.seq)
