"""Facts about the devices that a hub remembers."""

import sqlite3
from datetime import UTC, datetime

import pytest

from starloom.clock import SystemClock
from starloom.errors import StoreError
from starloom.fleet.fleet import Fleet
from starloom.fleet.known import KnownDevice, KnownDevices
from starloom.fleet.records import DeviceStatus
from starloom.fleet.settings import FleetSettings

SEEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIELD = KnownDevice("field", "linux", "macos", "Field", ("office",), ("gpu",), SEEN)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "devices.sqlite"


def test_what_was_remembered_is_there_when_opened_again(path):
    known = KnownDevices(path)
    known.remember(KnownDevice("field", "linux", "linux"))
    known.remember(FIELD)
    known.remember(KnownDevice("never", "unknown", "linux"))
    known.forget("never")
    known.forget("never")
    known.close()
    again = KnownDevices(path)
    assert again.all() == (FIELD,)
    again.close()


def test_a_file_of_another_kind_or_of_a_newer_version_is_an_error(path):
    path.parent.mkdir()
    path.write_text("no database, but long enough to be looked at" * 100)
    with pytest.raises(StoreError, match="cannot be read"):
        KnownDevices(path)
    path.unlink()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 4")
    newer.close()
    with pytest.raises(StoreError, match="newer"):
        KnownDevices(path)


def test_a_fleet_begins_with_the_known_devices_offline(path):
    known = KnownDevices(path)
    known.remember(FIELD)
    record = Fleet(clock=SystemClock(), known=known).get("field")
    assert record.status is DeviceStatus.DISCONNECTED
    assert (record.display_name, record.groups, record.tags, record.last_seen) == ("Field", ("office",), ("gpu",), SEEN)
    known.close()


def test_what_people_say_is_kept_apart_and_may_be_taken_back(path):
    known = KnownDevices(path)
    known.remember(FIELD)
    fleet = Fleet(clock=SystemClock(), known=known)
    assert fleet.describe("field", groups=["b", "a", "b"]).groups == ("a", "b")
    assert fleet.describe("field", display_name="").display_name is None
    [device] = known.all()
    assert (device.display_name, device.groups, device.tags) == (None, ("a", "b"), ("gpu",))
    known.close()


def test_beyond_the_limit_the_ones_not_seen_for_longest_are_forgotten_in_the_file_too(path):
    known = KnownDevices(path)
    known.remember(FIELD)
    known.remember(KnownDevice("old", "linux", "linux", last_seen=SEEN.replace(year=2025)))
    fleet = Fleet(clock=SystemClock(), settings=FleetSettings(max_known=1), known=known)
    assert [record.device_id for record in fleet.records()] == ["field"]
    assert [device.device_id for device in known.all()] == ["field"]
    known.close()


def test_a_full_disk_does_not_stop_the_fleet(path, caplog):
    known = KnownDevices(path)
    known.close()
    known.remember(FIELD)
    assert "could not be written" in caplog.text


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_is_taken_over(path, version):
    path.parent.mkdir()
    old = sqlite3.connect(path, isolation_level=None)
    old.execute(
        "CREATE TABLE device (device_id TEXT PRIMARY KEY, platform TEXT NOT NULL, device_type TEXT NOT NULL, "
        "display_name TEXT, groups TEXT NOT NULL, tags TEXT NOT NULL, last_seen TEXT) STRICT, WITHOUT ROWID"
    )
    old.execute("INSERT INTO device VALUES ('field', 'linux', 'macos', 'Field', '[\"office\"]', '[]', NULL)")
    if version == 2:
        old.execute("ALTER TABLE device ADD COLUMN holder TEXT")
    old.execute(f"PRAGMA user_version = {version}")
    old.close()
    for _ in range(2):
        known = KnownDevices(path)
        assert known.all() == (KnownDevice("field", "linux", "macos", "Field", ("office",)),)
        known.close()
