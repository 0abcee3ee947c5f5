"""How long to wait before dialling again: doubling, capped, and spread so that a crowd does not come at once.

Used by the device process and by the outposts.
"""

from collections.abc import Callable


class Backoff:
    """The delays after failures in a row.

    Args:
        first_s: the delay after the first failure.
        cap_s: the longest delay.
        spread: returns a number from 0 to 1; each delay lies between half of its full length and all of it.
    """

    def __init__(self, first_s: float, cap_s: float, spread: Callable[[], float]) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._spread = spread
        self.failures = 0

    def failed(self) -> float:
        """Count a failure and return how many seconds to wait."""
        full = min(self._cap_s, self._first_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return full * (0.5 + 0.5 * self._spread())

    def succeeded(self) -> None:
        """Begin anew after a connection that was accepted."""
        self.failures = 0
