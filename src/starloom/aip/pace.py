"""How fast one connection's frames are taken in: a bucket that fills with time. Pure; used by `aip.link`.

A connection that sends faster is read more slowly, so its own buffers fill and nobody else waits: fair without a queue.
"""


class Pace:
    """A token bucket.

    Args:
        per_second: frames that may come in steadily.
        burst: frames that may come at once after a quiet time.
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = float(burst)
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Count one frame and return the seconds to wait before processing it; 0 while within the pace."""
        if self._at is not None:
            self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        self._left -= 1
        return 0.0 if self._left >= 0 else -self._left / self._per_second

    def give_back(self) -> None:
        """Let the last frame be free: it was asked for, so it cannot flood."""
        self._left += 1
