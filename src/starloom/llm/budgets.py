"""Budgets: what a run, a task and a day may use, checked before the call that would break one.

Called by `session`, which wraps a role's model for a run and a task. `Ledger` is pure apart from being told the day.
A budget in dollars cannot be kept with a model whose price is unknown, so such a call is refused and says so.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from starloom.clock import Clock
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.port import Message, Model, Reply, Usage

T = TypeVar("T", bound=BaseModel)

_CHARACTERS_A_TOKEN = 3  # cautious: most texts have four
_TOKENS_AN_IMAGE = 1500


class Limits(BaseModel):
    """How much one scope may use; None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: int | None = Field(default=None, gt=0)
    dollars: float | None = Field(default=None, gt=0)


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

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._spent: dict[tuple[str, str], Spent] = defaultdict(Spent)

    def spent(self, scope: str, name: str) -> Spent:
        """Return what `run`, `task` or `day` of that name has used."""
        return self._spent[(scope, name)]

    def add(self, usage: Usage, *, run: str, task: str, day: date) -> None:
        """Count a call that was made."""
        for key in self._keys(run, task, day):
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
        for key in self._keys(run, task, day):
            limits: Limits = getattr(self._budgets, key[0])
            spent = self._spent[key]
            if limits.tokens is not None and spent.tokens + tokens > limits.tokens:
                return f"the {key[0]} may use {limits.tokens} tokens, has used {spent.tokens}, and needs up to {tokens}"
            if limits.dollars is not None and spent.has_unknown:
                return (
                    f"the {key[0]} has a budget of ${limits.dollars:g}, but a model's price is unknown; set its price"
                )
            if limits.dollars is not None and spent.dollars >= limits.dollars:
                return f"the {key[0]} has used its budget of ${limits.dollars:g}"
        return None

    @staticmethod
    def _keys(run: str, task: str, day: date) -> tuple[tuple[str, str], ...]:
        task_key = (("task", f"{run}/{task}"),) if task else ()
        return (("run", run), *task_key, ("day", day.isoformat()))


class BudgetedModel:
    """A `Model` that asks the ledger before each call and tells it afterwards."""

    def __init__(self, model: Model, ledger: Ledger, clock: Clock, *, run: str, task: str = "") -> None:
        self._model = model
        self._ledger = ledger
        self._clock = clock
        self._run = run
        self._task = task

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    async def complete(self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048) -> Reply[T]:
        """Return the wrapped model's reply.

        Raises:
            ModelFault: a budget would be broken; nothing was asked.
        """
        day = self._clock.now().date()
        needed = estimated_tokens(messages) + max_tokens
        breach = self._ledger.breach(needed, run=self._run, task=self._task, day=day)
        if breach is not None:
            text = f"The model {self.name!r} was not asked: {breach}."
            raise ModelFault(FaultKind.OUT_OF_BUDGET, text, model=self.name)
        reply = await self._model.complete(messages, schema, max_tokens=max_tokens)
        self._ledger.add(reply.usage, run=self._run, task=self._task, day=day)
        return reply


def estimated_tokens(messages: list[Message]) -> int:
    """Return a cautious estimate of what the turns will be counted as."""
    characters = sum(len(message.text) for message in messages)
    images = sum(len(message.images) for message in messages)
    return characters // _CHARACTERS_A_TOKEN + images * _TOKENS_AN_IMAGE + 4 * len(messages)
