"""Budgets stop before the call that would break them; an unknown price is never taken for zero."""

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from starloom.clock import ManualClock
from starloom.llm.budgets import Allowance, BudgetedModel, Budgets, Ledger, Limits, Spent
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.opening import open_model, open_role
from starloom.llm.port import Image, Message, Reply, Usage, estimated_tokens
from starloom.llm.scripted import Said, ScriptedServer
from starloom.llm.settings import ModelSettings, Role, parse_model

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

    async def complete(
        self, messages: list[Message], schema: type[Word], *, max_tokens: int = 2048, **_: Any
    ) -> Reply[Word]:
        self.asked += 1
        return Reply(schema(word="hi"), self.name, Usage(60, 40, cost=self.cost))


def budgeted(model: FakeModel, ledger: Ledger, clock: ManualClock | None = None, **scope: str) -> BudgetedModel:
    return BudgetedModel(model, Allowance(ledger, clock or ManualClock(), run="r1", **scope))


async def test_call_that_would_break_the_token_budget_is_not_made() -> None:
    model, ledger = FakeModel(0.1), Ledger(Budgets(run=Limits(tokens=340)))
    asking = budgeted(model, ledger)
    await asking.complete(ASK, Word, max_tokens=100)
    await asking.complete(ASK, Word, max_tokens=100)
    with pytest.raises(ModelFault, match="the run may use 340 tokens, has used 200") as caught:
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


def test_estimate_counts_a_chinese_character_as_a_token() -> None:
    assert estimated_tokens([Message("user", "好" * 50)]) == 50 + 4


async def test_calls_side_by_side_cannot_break_a_budget_together() -> None:
    class Parallel(FakeModel):
        async def complete(
            self, messages: list[Message], schema: type[Word], *, max_tokens: int = 2048, **_: Any
        ) -> Reply[Word]:
            self.asked += 1
            if self.asked == 1:
                with pytest.raises(ModelFault, match="for calls under way"):
                    await budgeted(self, ledger, task="t2").complete(ASK, Word, max_tokens=100)
            return Reply(schema(word="hi"), self.name, Usage(60, 40, cost=self.cost))

    ledger = Ledger(Budgets(run=Limits(tokens=250)))
    model = Parallel(0.1)
    await budgeted(model, ledger, task="t1").complete(ASK, Word, max_tokens=100)
    assert (model.asked, ledger.spent("run", "r1").tokens) == (1, 100)
    assert ledger.breach(150, run="r1", task="", day=DAY) is None


async def test_repair_turn_that_would_break_the_budget_is_not_made_and_what_was_used_is_counted() -> None:
    told: list[tuple[str, Usage]] = []

    async def hear(model: str, usage: Usage) -> None:
        told.append((model, usage))

    with ScriptedServer([Said("no JSON at all", prompt_tokens=200, completion_tokens=100)]) as server:
        model = open_model(parse_model(server.model_form), {}, lambda _: None)
        ledger = Ledger(Budgets(run=Limits(tokens=500)))
        allowance = Allowance(ledger, ManualClock(), run="r1", told_of_waste=hear)
        with pytest.raises(ModelFault) as caught:
            await BudgetedModel(model, allowance).complete(ASK, Word, max_tokens=200)
        await model.close()
    assert caught.value.kind is FaultKind.OUT_OF_BUDGET
    assert len(server.requests) == 1
    assert ledger.spent("run", "r1").tokens == 300
    assert [usage.input_tokens for _, usage in told] == [200]


def test_a_run_s_past_is_taken_up_once() -> None:
    ledger = Ledger()
    assert ledger.take_up("r1")
    assert not ledger.take_up("r1")
    ledger.add(Usage(1, 1), run="r2", task="", day=DAY)
    assert not ledger.take_up("r2")


async def test_a_model_that_was_passed_over_counts_and_the_next_is_asked_only_when_it_fits() -> None:
    useless = [Said("no JSON at all", prompt_tokens=200, completion_tokens=100)]
    for tokens, asked in ((2_000, 1), (600, 0)):
        with ScriptedServer(useless) as first, ScriptedServer([{"word": "hi"}]) as second:
            settings = ModelSettings(
                profiles={"one": parse_model(first.model_form).model_copy(update={"repair_turns": 0})},
                default="one",
                roles={Role.BACKUP: second.model_form},
            )
            model = open_role(settings, Role.APP, {}, ManualClock(), keyring_lookup=lambda _: None)
            ledger = Ledger(Budgets(run=Limits(tokens=tokens)))
            asking = BudgetedModel(model, Allowance(ledger, ManualClock(), run="r1"))
            if asked:
                await asking.complete(ASK, Word, max_tokens=300)
            else:
                with pytest.raises(ModelFault, match="may use 600"):
                    await asking.complete(ASK, Word, max_tokens=300)
            await model.close()
        assert (len(first.requests), len(second.requests)) == (1, asked)
        assert ledger.spent("run", "r1").tokens == 300 + 15 * asked
