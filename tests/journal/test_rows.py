from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings, strategies as st

from starloom.errors import StoreError
from starloom.ids import RunId
from starloom.journal.events import RunEnded, RunResumed, RunStarted, TaskReady
from starloom.journal.rows import Row, instant, microseconds, summarised, to_many_recorded, to_recorded, to_rows
from starloom.journal.store import RunRecord

RUN = RunId("run_1")
NOW = datetime(2026, 11, 30, 20, 5, 44, 123457, tzinfo=UTC)


@pytest.mark.properties
@settings(deadline=None)
@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2242, 1, 1), timezones=st.just(UTC)))
def test_times_are_exact_to_the_microsecond(at):
    assert instant(microseconds(at)) == at


def test_time_of_another_zone_is_the_same_instant():
    there = NOW.astimezone(timezone(timedelta(hours=9)))
    assert instant(microseconds(there)) == NOW


def test_one_and_many_read_the_same():
    rows = to_rows([TaskReady("a"), RunEnded("finished", result=[1.5])], ("k", None), NOW)
    one_by_one = tuple(to_recorded(RUN, seq, row) for seq, row in enumerate(rows, start=1))
    many = to_many_recorded(RUN, [(seq, row.at_us, row.kind, row.body) for seq, row in enumerate(rows, start=1)])
    assert one_by_one == many
    assert many[0].at == NOW
    assert to_many_recorded(RUN, []) == ()


def test_row_of_an_unknown_kind_or_field_is_from_a_newer_starloom():
    with pytest.raises(StoreError, match="Update Starloom"):
        to_recorded(RUN, 1, Row("dreamt", "{}", None, 0))
    with pytest.raises(StoreError, match="does not fit"):
        to_recorded(RUN, 1, Row("task_ready", '{"task_id":"a","colour":1}', None, 0))


def test_summary_follows_start_end_and_resumption():
    record = RunRecord(RUN, "", NOW, None, None, 0)
    seen = []
    for seq, event in enumerate([RunStarted("go"), TaskReady("a"), RunEnded("failed"), RunResumed()], start=1):
        (row,) = to_rows([event], (), NOW + timedelta(seconds=seq))
        record = summarised(record, to_recorded(RUN, seq, row))
        seen.append((record.request, record.stop_reason, record.last_seq))
    assert seen == [("go", None, 1), ("go", None, 2), ("go", "failed", 3), ("go", None, 4)]
    assert record.started_at == NOW + timedelta(seconds=1)
    assert record.ended_at is None
