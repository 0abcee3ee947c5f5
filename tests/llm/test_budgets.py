"""Budgets stop before the call that would break them; an unknown price is never taken for zero."""

from dataclasses import dataclass
from datetime import date

import pytest
from pydantic import BaseModel

from starloom.clock import ManualClock
from starloom.llm.budgets import BudgetedModel, Budgets, Ledger, Limits, Spent, estimated_tokens
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.port import Image, Message, Reply, Usage

DAY = date(2026, 1, 1)
ASK = [Message("user", "hello there")]


class Word(BaseModel):
    """A word."""

    word: str


@dataclass
class FakeModel:
    cost: float | None
    name: str = "fake"
    asked: int = 0

    async def complete(self, messages: list[Message], schema: type[Word], *, max_tokens: int = 2048) -> Reply[Word]:
        self.asked += 1
        return Reply(schema(word="hi"), self.name, Usage(60, 40, cost=self.cost))


def budgeted(model: FakeModel, ledger: Ledger, clock: ManualClock | None = None, **scope: str) -> BudgetedModel:
    return BudgetedModel(model, ledger, clock or ManualClock(), run="r1", **scope)


async def test_call_that_would_break_the_token_budget_is_not_made() -> None:
    model, ledger = FakeModel(0.1), Ledger(Budgets(run=Limits(tokens=250)))
    asking = budgeted(model, ledger)
    await asking.complete(ASK, Word, max_tokens=100)
    await asking.complete(ASK, Word, max_tokens=100)
    with pytest.raises(ModelFault, match="the run may use 250 tokens, has used 200") as caught:
        await asking.complete(ASK, Word, max_tokens=100)
    assert caught.value.kind is FaultKind.OUT_OF_BUDGET
    assert model.asked == 2


async def test_dollars_stop_when_used() -> None:
    model, ledger = FakeModel(0.6), Ledger(Budgets(task=Limits(dollars=1.0)))
    asking = budgeted(model, ledger, task="t1")
    await asking.complete(ASK, Word)
    await asking.complete(ASK, Word)
    with pytest.raises(ModelFault, match=r"budget of \$1"):
        await asking.complete(ASK, Word)
    await budgeted(model, ledger, task="t2").complete(ASK, Word)
    assert ledger.spent("task", "r1/t1") == Spent(200, 1.2)


async def test_unknown_price_cannot_keep_a_budget_in_dollars() -> None:
    model, ledger = FakeModel(None), Ledger(Budgets(day=Limits(dollars=1.0)))
    asking = budgeted(model, ledger)
    await asking.complete(ASK, Word)
    with pytest.raises(ModelFault, match="price is unknown"):
        await asking.complete(ASK, Word)
    assert ledger.spent("day", DAY.isoformat()).has_unknown


async def test_new_day_is_a_new_budget() -> None:
    model, ledger, clock = FakeModel(1.0), Ledger(Budgets(day=Limits(dollars=1.0))), ManualClock()
    asking = budgeted(model, ledger, clock)
    await asking.complete(ASK, Word)
    with pytest.raises(ModelFault):
        await asking.complete(ASK, Word)
    clock.advance(24 * 3600)
    await asking.complete(ASK, Word)
    assert model.asked == 2


def test_estimate_counts_pictures_and_errs_on_the_high_side() -> None:
    assert estimated_tokens([Message("user", "x" * 300, (Image(b""),))]) == 100 + 1500 + 4
