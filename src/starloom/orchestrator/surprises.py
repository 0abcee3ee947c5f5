"""What calls for the planner's judgement, and when it is called; the scheduler's memory for that, pure."""

from collections.abc import Iterable

from starloom.orchestrator.replanning import Surprise
from starloom.orchestrator.settings import ReplanPolicy, RunSettings


class Surprises:
    """Collects surprises and hands them over together, one call at a time, up to the limit.

    Args:
        settings: the policy and the limit of calls.
        has_planner: without one nothing is collected.
    """

    def __init__(self, settings: RunSettings, *, has_planner: bool) -> None:
        self._limit = settings.max_replans
        self._is_wanted = has_planner and settings.replan is not ReplanPolicy.NEVER
        self._collected: list[Surprise] = []
        self.wants_completions = self._is_wanted and settings.replan is ReplanPolicy.AFTER_EACH
        self.calls = 0
        self.is_answering = False

    def add(self, surprise: Surprise) -> None:
        """Note a surprise; mere completions are not to be added unless `wants_completions`."""
        if self._is_wanted:
            self._collected.append(surprise)

    def recall(self, unanswered: Iterable[Surprise], calls: int) -> None:
        """Take over what an earlier life of the run had not had answered, and how often the planner had answered."""
        for surprise in unanswered:
            self.add(surprise)
        self.calls = calls

    def clear(self) -> None:
        """Forget what was not handed over."""
        self._collected.clear()

    def hand_over(self) -> tuple[Surprise, ...]:
        """Return what to ask the planner now; empty when there is nothing, it is busy, or the limit is reached."""
        if not self._collected or self.is_answering:
            return ()
        collected, self._collected = tuple(self._collected), []
        if self.calls >= self._limit:
            return ()
        self.calls += 1
        self.is_answering = True
        return collected
