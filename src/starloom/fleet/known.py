"""The devices that a hub remembers over its restarts: who they are, what people call them, when they were last seen.

Opened by the composition root in the data folder; written by the fleet's registry when a device comes, goes or is
renamed: one small row in a file of its own, not made durable at once, because what is lost is told again by the device.
What people said (name, groups) belongs to the hub: a device can neither read nor set it.
"""

import contextlib
import json
import logging
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from starloom.errors import StoreError

logger = logging.getLogger(__name__)

_VERSION = 3
_NOTHING: tuple[None, None, tuple[str, ...]] = (None, None, ())  # promised of a device that nobody knows
_SCHEMA = """
CREATE TABLE device (
    device_id TEXT PRIMARY KEY, platform TEXT NOT NULL, device_type TEXT NOT NULL, display_name TEXT,
    groups TEXT NOT NULL, tags TEXT NOT NULL, last_seen TEXT, holder TEXT, lease_s REAL
) STRICT, WITHOUT ROWID
"""
_ALL = """
SELECT device_id, platform, device_type, display_name, groups, tags, last_seen, holder, lease_s FROM device
ORDER BY last_seen, device_id
"""
_PUT = """
INSERT OR REPLACE INTO device
    (device_id, platform, device_type, display_name, groups, tags, last_seen, holder, lease_s)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_STEPS = {1: ("ALTER TABLE device ADD COLUMN holder TEXT",), 2: ("ALTER TABLE device ADD COLUMN lease_s REAL",)}


@dataclass(frozen=True, slots=True)
class KnownDevice:
    """What is remembered of a device.

    Attributes:
        groups: given by people.
        tags: told by the device.
        holder: the process that may still act as it, by the name of its record of attempts; None: there is none.
        lease_s: how long the holder was told that it may act unheard; None: an older hub did not write it down.
    """

    device_id: str
    platform: str
    device_type: str
    display_name: str | None = None
    groups: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    last_seen: datetime | None = None
    holder: str | None = None
    lease_s: float | None = None


class KnownDevices:
    """The file of known devices; whoever opens it closes it.

    Args:
        path: the file; made when it is missing.

    Raises:
        StoreError: it cannot be opened, is no such file, or was written by a newer version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.ExitStack() as opened:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = opened.enter_context(contextlib.closing(sqlite3.connect(path, isolation_level=None)))
                self._prepare()
                self._promised = {device.device_id: _promise(device) for device in self.all()}
            except (OSError, sqlite3.Error) as error:
                text = f"The known devices in {str(path)!r} cannot be read: {error}."
                raise StoreError(text, path=str(path)) from error
            opened.pop_all()  # it stays open

    def all(self) -> tuple[KnownDevice, ...]:
        """Return all known devices, the ones that were seen last at the end."""
        rows = self._file.execute(_ALL)
        return tuple(_device(row) for row in rows)

    def remember(self, device: KnownDevice) -> None:
        """Write what is known of a device over what was known; a failure is logged, since the fleet goes on.

        Who holds its place, and what people said, is flushed to disk when it is new; the rest the device tells again.
        """
        seen = device.last_seen.isoformat() if device.last_seen is not None else None
        words = json.dumps(device.groups), json.dumps(device.tags)
        name = device.device_id, device.platform, device.device_type, device.display_name
        is_new = self._promised.get(device.device_id, _NOTHING) != _promise(device)
        if self._write(_PUT, (*name, *words, seen, device.holder, device.lease_s), flushed=is_new):
            self._promised[device.device_id] = _promise(device)

    def forget(self, device_id: str) -> None:
        """Remove a device; nothing happens when it is not known."""
        self._write("DELETE FROM device WHERE device_id = ?", (device_id,), flushed=True)
        self._promised.pop(device_id, None)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _prepare(self) -> None:
        self._file.execute("PRAGMA journal_mode = WAL")
        version = self._file.execute("PRAGMA user_version").fetchone()[0]
        if version <= _VERSION:
            steps = [_SCHEMA] if version == 0 else [step for old in range(version, _VERSION) for step in _STEPS[old]]
            for step in steps:
                self._file.execute(step)
            self._file.execute(f"PRAGMA user_version = {_VERSION}")
        else:
            self._file.close()
            raise StoreError(
                f"The known devices in {str(self._path)!r} were written by a newer Starloom (format {version}).",
                path=str(self._path),
            )

    def _write(self, statement: str, row: tuple[str | float | None, ...], *, flushed: bool) -> bool:
        try:
            self._file.execute(f"PRAGMA synchronous = {'FULL' if flushed else 'NORMAL'}")
            self._file.execute(statement, row)
        except sqlite3.Error as error:
            logger.warning("A device could not be written to %r: %s.", str(self._path), error)
            return False
        return True


def _promise(device: KnownDevice) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return what a power cut must not take: the device cannot tell it again, or another could take its place."""
    return device.holder, device.display_name, device.groups


def _device(row: tuple[str, str, str, str | None, str, str, str | None, str | None, float | None]) -> KnownDevice:
    device_id, platform, device_type, display_name, groups, tags, seen, holder, lease_s = row
    return KnownDevice(
        device_id=device_id,
        platform=platform,
        device_type=device_type,
        display_name=display_name,
        groups=tuple(json.loads(groups)),
        tags=tuple(json.loads(tags)),
        last_seen=datetime.fromisoformat(seen) if seen is not None else None,
        holder=holder,
        lease_s=lease_s,
    )
