"""What an agent lived through before it was cut off, as a fold over its own reports: how it goes on where it was.

An agent with a past runs as always, through the same states and phases, but what is on record is taken from there: no
model is asked, nothing is judged, done or reported a second time. So memory, blackboard, counts and notes become what
they were by the code that made them, and the first thing that is not on record is the first thing that happens.

    think   the reply on record              act   the outcome on record; one without is asked of the device by its name
    ask     the answer on record             see   what was seen is not kept, only its digest: the next look is fresh

Pure. Made by the session from the journal (`session.goals`), read by the strategies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from starloom.agents.record import Acted, AgentEvent, Answered, Asked, Responded, Spent
from starloom.llm.port import Usage
from starloom.processing.dispatch import Json
from starloom.safety.policy import Decision


@dataclass(frozen=True, slots=True)
class PastStep:
    """A reply and what came of it.

    Attributes:
        outcomes: (index of the action, whether it was held for a confirmation) → how it ended.
        answers: question → answer; None: nobody answered.
        usage: of each model call for it.
        is_last: no reply follows; only here can anything be missing.
    """

    response: Mapping[str, Json]
    screen: str = ""
    suspicions: tuple[str, ...] = ()
    withheld: bool = False
    usage: tuple[Usage, ...] = ()
    outcomes: Mapping[tuple[int, bool], Acted] = field(default_factory=dict)
    answers: Mapping[str, str | None] = field(default_factory=dict)
    is_last: bool = True

    def outcome(self, index: int, *, held: bool = False) -> Acted | None:
        """Return how an action ended; None: that is not on record."""
        return self.outcomes.get((index, held))

    def missing(self, count: int) -> tuple[int, ...]:
        """Return which of so many actions have no outcome yet, those apart that were only held."""
        return tuple(index for index in range(count) if (index, False) not in self.outcomes)

    @property
    def was_admitted(self) -> bool:
        """Whether an action of it was carried out: then all were allowed before the first."""
        return any(acted.decision is Decision.ALLOW for acted in self.outcomes.values())


@dataclass(frozen=True, slots=True)
class AgentPast:
    """The steps of all agents of a goal; `away_s`: for how long nobody worked on it, None when nothing was cut off."""

    steps: Mapping[tuple[str, int], PastStep] = field(default_factory=dict)
    away_s: float | None = None

    def step(self, agent: str, number: int) -> PastStep | None:
        """Return one step of one agent; None: it has not thought that far."""
        return self.steps.get((agent, number))

    def notes_before(self, agent: str, number: int) -> tuple[str, ...]:
        """Return what an agent is told before a step: that it was interrupted, before its first new one."""
        if self.away_s is None or (agent, number) in self.steps or (agent, number - 1) not in self.steps:
            return ()
        return (
            f"You were interrupted after your last step, for about {_duration(self.away_s)}. Things may have changed "
            "meanwhile: what you see now is fresh, what you remember is from before.",
        )


def past_of(reports: Iterable[AgentEvent], *, away_s: float | None = None) -> AgentPast | None:
    """Return what an agent lived through; None when it has not thought, or the (older) reports do not say enough."""
    fold = _Fold()
    for report in reports:
        if isinstance(report, Responded) and report.screen is None:
            return None
        fold.note(report)
    return AgentPast(fold.steps, away_s) if fold.steps else None


class _Fold:
    """The steps so far; a question and its answer belong to the reply before them."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, int], PastStep] = {}
        self._last: tuple[str, int] | None = None
        self._spent: list[Usage] = []
        self._asked: dict[str, str] = {}

    def note(self, report: AgentEvent) -> None:
        match report:
            case Spent(usage=usage):
                self._spent.append(usage)
            case Responded():
                self._begin(report)
            case Acted(agent=agent, step=number) if (agent, number) in self.steps:
                step = self.steps[agent, number]
                key = (report.index, report.decision is Decision.ASK)
                self.steps[agent, number] = replace(step, outcomes={**step.outcomes, key: report})
            case Acted():  # the session's own, not an agent's
                pass
            case Asked(question_id=question_id, question=question):
                self._asked[question_id] = question
            case Answered(question_id=question_id, answer=answer):
                if self._last is not None and question_id in self._asked:
                    step = self.steps[self._last]
                    answers = {**step.answers, self._asked[question_id]: answer or None}
                    self.steps[self._last] = replace(step, answers=answers)
            case _:
                assert_never(report)

    def _begin(self, report: Responded) -> None:
        if self._last is not None:
            self.steps[self._last] = replace(self.steps[self._last], is_last=False)
        self._last = (report.agent, report.step)
        self.steps[self._last] = PastStep(
            report.response, report.screen or "", report.suspicions, report.withheld, usage=tuple(self._spent)
        )
        self._spent.clear()


def _duration(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{max(round(seconds), 1)} seconds"
