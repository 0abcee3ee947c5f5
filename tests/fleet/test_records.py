"""The table of a device's states holds."""

import pytest

from starloom.deadlines import Deadlines
from starloom.errors import Bug
from starloom.fleet.records import TRANSITIONS, DeviceRecord, DeviceStatus
from starloom.fleet.seat import Seat


def seat(status):
    record = DeviceRecord("dev1", "linux", "linux", status)
    return Seat(record, cancel_grace_s=1, late_answer_s=1, limits=Deadlines(), changed=lambda *_: None)


@pytest.mark.parametrize("before", DeviceStatus)
@pytest.mark.parametrize("after", DeviceStatus)
def test_device_goes_only_where_the_table_says(before, after):
    if after is before or after in TRANSITIONS[before]:
        place = seat(before)
        place.move(after)
        assert place.record.status is after
    else:
        with pytest.raises(Bug, match="cannot go from"):
            seat(before).move(after)


def test_every_state_can_be_left_and_reached():
    assert all(TRANSITIONS[status] for status in DeviceStatus)
    assert set().union(*TRANSITIONS.values()) == set(DeviceStatus)


def test_only_ready_states_take_work():
    assert [status for status in DeviceStatus if status.takes_work] == [DeviceStatus.IDLE, DeviceStatus.BUSY]


@pytest.mark.parametrize(
    ("system_info", "applications", "display"),
    [
        ({"custom_metadata": {"starloom": {"applications": ["A", 5, None, "B"], "display": {"kind": "x11"}}}},
         ("A", "B"), {"kind": "x11"}),
        ({"custom_metadata": {"starloom": {"applications": "A", "display": "x11"}}}, (), None),
        ({"custom_metadata": {"starloom": ["A"]}}, (), None),
        ({"custom_metadata": "A"}, (), None),
        ({}, (), None),
    ],
)  # fmt: skip
def test_what_a_device_tells_of_its_abilities_is_read_with_care(system_info, applications, display):
    record = DeviceRecord("dev1", "linux", "linux", DeviceStatus.IDLE, system_info=system_info)
    assert (record.applications, record.display) == (applications, display)


@pytest.mark.parametrize(
    ("told", "read"), [({"cpus": 2, "memory_bytes": "much", "x": True}, {"cpus": 2}), ([2], {}), (None, {})]
)
def test_limits_are_read_with_care(told, read):
    system_info = {"custom_metadata": {"starloom": {"limits": told}}}
    assert DeviceRecord("dev1", "linux", "linux", DeviceStatus.IDLE, system_info=system_info).limits == read
