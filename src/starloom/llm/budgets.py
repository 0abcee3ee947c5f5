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
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from starloom.clock import Clock
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.metering import Meter, metered
from starloom.llm.port import Generated, GrammarModel, Message, Model, Reply, Usage, estimated_tokens

T = TypeVar("T", bound=BaseModel)

Told: TypeAlias = Callable[[str, Usage], Awaitable[None]]
"""Hears of each call that was made: the model's name and what it used."""


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
                before.tokens + usage.input_tokens + usage.output_tokens,
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


class Allowance:
    """What one run and task may still use. `told` hears of each reply, `told_of_waste` of what gave none."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        run: str,
        task: str = "",
        told: Told | None = None,
        told_of_waste: Told | None = None,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._run = run
        self._task = task
        self._told = told
        self._told_of_waste = told_of_waste

    @property
    def today(self) -> date:
        """The day that a call made now counts for."""
        return self._clock.now().date()

    def admit(self, model: str, tokens: int, day: date) -> None:
        """Return when a call of that many tokens fits.

        Raises:
            ModelFault: a budget would be broken.
        """
        breach = self._ledger.breach(tokens, run=self._run, task=self._task, day=day)
        if breach is not None:
            raise ModelFault(FaultKind.OUT_OF_BUDGET, f"The model {model!r} was not asked: {breach}.", model=model)

    @contextmanager
    def holding(self, tokens: int, day: date) -> Iterator[None]:
        """Keep the tokens for a call while the block runs."""
        with self._ledger.holding(tokens, run=self._run, task=self._task, day=day):
            yield

    async def count(self, model: str, usage: Usage, day: date) -> None:
        """Count a call that was made, and tell of it."""
        self._ledger.add(usage, run=self._run, task=self._task, day=day)
        if self._told is not None:
            await self._told(model, usage)

    async def count_wasted(self, model: str, usage: Usage, day: date) -> None:
        """Count what a model used without giving a reply, and tell of it."""
        self._ledger.add(usage, run=self._run, task=self._task, day=day)
        if self._told_of_waste is not None:
            await self._told_of_waste(model, usage)


class BudgetedModel:
    """A `Model` that asks its allowance before each call and tells it afterwards, of failed calls too."""

    def __init__(self, model: Model, allowance: Allowance) -> None:
        self._model = model
        self._allowance = allowance

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    async def complete(self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048) -> Reply[T]:
        """Return the wrapped model's reply.

        Raises:
            ModelFault: a budget would be broken; nothing was asked.
        """
        allowance, day = self._allowance, self._allowance.today
        needed = estimated_tokens(messages, schema) + max_tokens
        allowance.admit(self.name, needed, day)
        # What a further request needs includes what the call holds already, so only the rest is asked for.
        meter = Meter(lambda model, tokens: allowance.admit(model, max(0, tokens - needed), day))
        try:
            with allowance.holding(needed, day), metered(meter):
                reply = await self._model.complete(messages, schema, max_tokens=max_tokens)
        finally:
            for model, usage in meter.wasted:
                await allowance.count_wasted(model, usage, day)
        await allowance.count(reply.model, reply.usage, day)
        return reply


class BudgetedGrammarModel:
    """The same for a model that writes by a grammar."""

    def __init__(self, model: GrammarModel, allowance: Allowance) -> None:
        self._model = model
        self._allowance = allowance

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    async def generate(self, messages: list[Message], grammar: str, *, max_tokens: int = 512) -> Generated:
        """Return the wrapped model's text.

        Raises:
            ModelFault: a budget would be broken; nothing was asked.
        """
        allowance, day = self._allowance, self._allowance.today
        needed = estimated_tokens(messages) + max_tokens
        allowance.admit(self.name, needed, day)
        with allowance.holding(needed, day):
            generated = await self._model.generate(messages, grammar, max_tokens=max_tokens)
        await allowance.count(generated.model, generated.usage, day)
        return generated
