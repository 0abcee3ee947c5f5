"""The real source of ids and time stamps on frames: UUID4 and the clock's wall time.

Made by whoever drives a protocol core; the cores themselves know neither a clock nor randomness.
"""

import uuid

from starloom.clock import Clock


class WireStamps:
    """Ids as UUID4; times as upstream writes them, `2026-01-02T03:04:05.678901+00:00`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new_id(self) -> str:
        """Return a UUID4."""
        return str(uuid.uuid4())

    def timestamp(self) -> str:
        """Return the clock's wall time in UTC."""
        return self._clock.now().isoformat()


class CountingStamps:
    """Ids `id-1`, `id-2` … and one fixed time; for tests and golden files."""

    def __init__(self) -> None:
        self._count = 0

    def new_id(self) -> str:
        """Return the next id."""
        self._count += 1
        return f"id-{self._count}"

    def timestamp(self) -> str:
        """Return always the same time."""
        return "2026-01-01T00:00:00+00:00"
