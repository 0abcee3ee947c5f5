"""Time as a port: who needs the time or a delay is handed a `Clock`.

The pure rooms (`constellation`, `orchestrator.scheduler`, `aip.protocol`, `safety.policy`) never import this module's
adapters; they are given numbers.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """The time, twice: for people (aware UTC) and for deadlines (monotonic seconds)."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow; comparable within one process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when that many seconds have passed; for timers and back-off, never to wait for a condition."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the machine's time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds; where that can be had, they go on while it is suspended."""
        return time.clock_gettime(_BOOT_TIME) if _BOOT_TIME is not None else time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after that many real seconds."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to, for tests and rehearsals.

    `sleep` returns when `advance` has moved past its deadline; sleepers wake in the order of their deadlines.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        """Return the start plus what `advance` added."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds that `advance` added so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Return once `advance` has passed the deadline; at once for zero or less."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._elapsed + seconds, self._count, woken)
        self._sleepers.append(entry)
        try:
            await woken
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    def advance(self, seconds: float) -> None:
        """Move the time on and wake every sleeper whose deadline has come."""
        self._elapsed += seconds
        due = sorted(entry[:2] for entry in self._sleepers if entry[0] <= self._elapsed)
        for deadline, count in due:
            for entry in list(self._sleepers):
                if entry[:2] == (deadline, count):
                    self._sleepers.remove(entry)
                    if not entry[2].done():
                        entry[2].set_result(None)
