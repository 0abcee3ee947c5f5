"""A cooldown breaker for one model: after repeated failures it is left alone for a while, then tried once.

Called by `llm.fallback`. Pure: it is given the monotonic seconds.

    closed ──failure × limit, or a Retry-After──▶ open ──cooldown over──▶ half_open ──success──▶ closed
       ▲──success (counter back to zero)            ▲───────────failure, longer cooldown──┘
"""

from dataclasses import dataclass
from enum import StrEnum


class BreakerState(StrEnum):
    """Whether the model may be asked."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """When it opens and for how long; each failed probe doubles the cooldown up to the longest."""

    failures: int = 3
    cooldown_s: float = 30.0
    longest_cooldown_s: float = 600.0


class Breaker:
    """The state of one model's breaker."""

    def __init__(self, limits: BreakerLimits | None = None) -> None:
        self._limits = limits or BreakerLimits()
        self._failures = 0
        self._cooldown_s = self._limits.cooldown_s
        self._opens_until: float | None = None
        self._is_probing = False

    def state(self, now_s: float) -> BreakerState:
        """Return the state at that time."""
        if self._opens_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_s < self._opens_until else BreakerState.HALF_OPEN

    def admits(self, now_s: float) -> bool:
        """Return whether one call may be made now; in the half-open state only one at a time."""
        match self.state(now_s):
            case BreakerState.CLOSED:
                return True
            case BreakerState.OPEN:
                return False
            case BreakerState.HALF_OPEN:
                if self._is_probing:
                    return False
                self._is_probing = True
                return True

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until a call may be made; zero when now."""
        return max(0.0, (self._opens_until or now_s) - now_s)

    def succeeded(self) -> None:
        """Close it: the model answers."""
        self._failures = 0
        self._cooldown_s = self._limits.cooldown_s
        self._opens_until = None
        self._is_probing = False

    def failed(self, now_s: float, *, retry_after_s: float | None = None) -> None:
        """Count a failure; open when there were enough, when a probe failed, or as long as the provider asks."""
        was_probe, self._is_probing = self._is_probing, False
        self._failures += 1
        if was_probe:
            self._cooldown_s = min(self._cooldown_s * 2, self._limits.longest_cooldown_s)
        if retry_after_s is not None:
            self._opens_until = now_s + min(retry_after_s, self._limits.longest_cooldown_s)
        elif was_probe or self._failures >= self._limits.failures:
            self._opens_until = now_s + self._cooldown_s

    def abandoned(self) -> None:
        """Forget a call that ended without saying anything about the model (cancelled, refused as wrong)."""
        self._is_probing = False
