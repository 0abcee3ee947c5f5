"""The real source of ids and time stamps on frames: UUID4 and the clock's wall time.

Made by whoever drives a protocol core; the cores themselves know neither a clock nor randomness.
"""

import os

from starloom.clock import Clock

_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}  # RFC 9562, section 4.1
_AT_ONCE = 32


class WireStamps:
    """Ids as UUID4; times as upstream writes them, `2026-01-02T03:04:05.678901+00:00`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._random: list[str] = []

    def new_id(self) -> str:
        """Return a UUID4; written out here, since the library's takes four times as long and each frame has one."""
        if not self._random:
            digits = os.urandom(16 * _AT_ONCE).hex()
            self._random = [digits[at : at + 32] for at in range(0, len(digits), 32)]
        digits = self._random.pop()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"

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
