"""Budgets: what a run, a task and a day may use, checked before the call that would break one.

Called by `session`, which wraps a role's model for a run and a task. `Ledger` is pure apart from being told the day.
A budget in dollars cannot be kept with a model whose price is unknown, so such a call is refused and says so.

    ask ─▶ admitted? ── no ──▶ ModelFault out_of_budget; nothing was sent
              │ what the call may need is held, so that calls side by side cannot break a budget together
              ▼
            call ─▶ (each further request of it: admitted) ─▶ held is given back, what was used is counted and told
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from typing import Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from starloom.clock import Clock
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.metering import Meter, metered
from starloom.llm.port import (
    Follow,
    Generated,
    GrammarModel,
    Message,
    Model,
    Progress,
    Reply,
    Usage,
    estimated_tokens,
)

T = TypeVar("T", bound=BaseModel)

Told: TypeAlias = Callable[[str, Usage], Awaitable[None]]
"""Hears of each call that was made: the model's name and what it used."""


class Answered(Protocol):
    """What a call gives: a `Reply` or a `Generated`."""

    @property
    def model(self) -> str:
        """The model that answered."""
        ...

    @property
    def usage(self) -> Usage:
        """What it used."""
        ...


A = TypeVar("A", bound=Answered)


class Watch(Protocol):
    """Sees one call while it is under way."""

    def sent(self, usage: Usage) -> None:
        """Hear, before each request of the call, what the call has used by then with what is sent."""
        ...

    def heard(self, progress: Progress) -> None:
        """Hear how the reply grows."""
        ...


Watching: TypeAlias = Callable[[str], AbstractContextManager[Watch]]
"""Is there while a call of the named model is under way, until what it used is counted."""


class Limits(BaseModel):
    """How much one scope may use; None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: int | None = Field(default=None, gt=0)
    dollars: float | None = Field(default=None, gt=0)

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing is limited."""
        return self.tokens is None and self.dollars is None


class Budgets(BaseModel):
    """The limits of every run, every task and every day (UTC)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Limits = Limits()
    task: Limits = Limits()
    day: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Spent:
    """What a scope has used. `has_unknown`: some of its calls had no known price, so `dollars` is too low."""

    tokens: int = 0
    dollars: float = 0.0
    has_unknown: bool = False


class Ledger:
    """What every scope has used so far; one for a hub, filled from the journal after a restart."""

    def __init__(self, budgets: Budgets | None = None) -> None:
        self.budgets = budgets or Budgets()
        self._spent: dict[tuple[str, str], Spent] = defaultdict(Spent)
        self._held: dict[tuple[str, str], int] = defaultdict(int)
        self._known: set[str] = set()

    def spent(self, scope: str, name: str) -> Spent:
        """Return what `run`, `task` or `day` of that name has used."""
        return self._spent[(scope, name)]

    def take_up(self, run: str) -> bool:
        """Whether the run's past is still to be counted; asked twice, the answer is no."""
        is_new = run not in self._known
        self._known.add(run)
        return is_new

    def add(self, usage: Usage, *, run: str, task: str, day: date) -> None:
        """Count a call that was made."""
        self._known.add(run)
        for key in _keys(run, task, day):
            before = self._spent[key]
            self._spent[key] = Spent(
                before.tokens + usage.tokens,
                before.dollars + (usage.cost or 0.0),
                before.has_unknown or usage.cost is None,
            )

    def breach(self, tokens: int, *, run: str, task: str, day: date) -> str | None:
        """Return which budget a call of that many tokens would break, in words; None when it fits.

        In dollars a call is refused once the scope has used its budget, or has calls whose price is unknown.
        """
        for key in _keys(run, task, day):
            limits: Limits = getattr(self.budgets, key[0])
            spent, held = self._spent[key], self._held[key]
            if limits.tokens is not None and spent.tokens + held + tokens > limits.tokens:
                others = f", holds {held} for calls under way" if held else ""
                return (
                    f"the {key[0]} may use {limits.tokens} tokens, has used {spent.tokens}{others}, "
                    f"and needs up to {tokens}"
                )
            if limits.dollars is not None and spent.has_unknown:
                return (
                    f"the {key[0]} has a budget of ${limits.dollars:g}, but a model's price is unknown; set its price"
                )
            if limits.dollars is not None and spent.dollars >= limits.dollars:
                return f"the {key[0]} has used its budget of ${limits.dollars:g}"
        return None

    @contextmanager
    def holding(self, tokens: int, *, run: str, task: str, day: date) -> Iterator[None]:
        """Count the tokens as used while the block runs, for whoever else asks."""
        keys = _keys(run, task, day)
        for key in keys:
            self._held[key] += tokens
        try:
            yield
        finally:
            for key in keys:
                self._held[key] -= tokens


def _keys(run: str, task: str, day: date) -> tuple[tuple[str, str], ...]:
    task_key = (("task", f"{run}/{task}"),) if task else ()
    return (("run", run), *task_key, ("day", day.isoformat()))


class _Unwatched:
    """Sees nothing."""

    def sent(self, usage: Usage) -> None:
        pass

    def heard(self, progress: Progress) -> None:
        pass


class Allowance:
    """What one run and task may still use.

    Args:
        told: hears of each reply, `told_of_waste` of what gave none: failed and cancelled calls.
        watching: sees each call while it is under way, so that its reply is followed; None: nobody does.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        run: str,
        task: str = "",
        told: Told | None = None,
        told_of_waste: Told | None = None,
        watching: Watching | None = None,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._run = run
        self._task = task
        self._told = told
        self._told_of_waste = told_of_waste
        self._watching = watching

    async def call(
        self, model: str, needed: int, ask: Callable[[Follow | None], Awaitable[A]], follow: Follow | None = None
    ) -> A:
        """Return what `ask` gives, when a call of so many tokens fits; count what it used, also when it fails.

        Raises:
            ModelFault: a budget would be broken; nothing was asked.
        """
        day = self._clock.now().date()
        self._admit(model, needed, day)
        with self._watching(model) if self._watching else nullcontext(_Unwatched()) as watch:
            # What a further request needs includes what the call holds already, so only the rest is asked for.
            meter = Meter(lambda name, tokens: self._admit(name, max(0, tokens - needed), day), watch.sent)
            heard = _both(follow, watch.heard) if self._watching else follow
            try:
                with self._ledger.holding(needed, run=self._run, task=self._task, day=day), metered(meter):
                    answer = await ask(heard)
            finally:
                for name, usage in meter.wasted:
                    await self._count(name, usage, day, self._told_of_waste)
            await self._count(answer.model, answer.usage, day, self._told)
        return answer

    def _admit(self, model: str, tokens: int, day: date) -> None:
        breach = self._ledger.breach(tokens, run=self._run, task=self._task, day=day)
        if breach is not None:
            raise ModelFault(FaultKind.OUT_OF_BUDGET, f"The model {model!r} was not asked: {breach}.", model=model)

    async def _count(self, model: str, usage: Usage, day: date, told: Told | None) -> None:
        self._ledger.add(usage, run=self._run, task=self._task, day=day)
        if told is not None:
            await told(model, usage)


def _both(one: Follow | None, other: Follow) -> Follow:
    def follow(progress: Progress) -> None:
        if one is not None:
            one(progress)
        other(progress)

    return follow


class BudgetedModel:
    """A `Model` that asks its allowance before each call and tells it afterwards, of failed calls too."""

    def __init__(self, model: Model, allowance: Allowance) -> None:
        self._model = model
        self._allowance = allowance

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    async def complete(
        self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048, follow: Follow | None = None
    ) -> Reply[T]:
        """Return the wrapped model's reply.

        Raises:
            ModelFault: a budget would be broken; nothing was asked.
        """

        def ask(heard: Follow | None) -> Awaitable[Reply[T]]:
            return self._model.complete(messages, schema, max_tokens=max_tokens, follow=heard)

        return await self._allowance.call(self.name, estimated_tokens(messages, schema) + max_tokens, ask, follow)


class BudgetedGrammarModel:
    """The same for a model that writes by a grammar."""

    def __init__(self, model: GrammarModel, allowance: Allowance) -> None:
        self._model = model
        self._allowance = allowance

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    async def generate(
        self, messages: list[Message], grammar: str, *, max_tokens: int = 512, follow: Follow | None = None
    ) -> Generated:
        """Return the wrapped model's text.

        Raises:
            ModelFault: a budget would be broken; nothing was asked.
        """

        def ask(heard: Follow | None) -> Awaitable[Generated]:
            return self._model.generate(messages, grammar, max_tokens=max_tokens, follow=heard)

        return await self._allowance.call(self.name, estimated_tokens(messages) + max_tokens, ask, follow)
