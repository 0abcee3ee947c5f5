"""Prices: the user's own first, then the table; unknown is None and never zero."""

import pytest

from starloom.llm.port import Usage
from starloom.llm.prices import cost_of
from starloom.llm.settings import ModelProfile, Price, parse_model

MILLION = Usage(1_000_000, 1_000_000, 500_000)


def test_own_price_counts_cached_tokens_apart() -> None:
    profile = ModelProfile(provider="endpoint", model="m", price=Price(input=2, output=10, cached_input=1))
    assert cost_of(profile, "https://example.org/v1", MILLION) == pytest.approx(1 + 0.5 + 10)
    without = ModelProfile(provider="endpoint", model="m", price=Price(input=2, output=10))
    assert cost_of(without, "https://example.org/v1", MILLION) == pytest.approx(12)


def test_listed_model_has_a_price() -> None:
    cost = cost_of(parse_model("openai:gpt-4o"), "https://api.openai.com/v1", MILLION)
    assert cost is not None
    assert cost > 0


@pytest.mark.parametrize("form", ["dashscope-intl:qwen-max", "openai:no-such-model", "http://10.1.2.3/v1#x"])
def test_unknown_price_is_none(form: str) -> None:
    profile = parse_model(form)
    assert cost_of(profile, profile.base_url or "https://example.org/v1", MILLION) is None


def test_own_machine_costs_nothing_but_a_server_elsewhere_is_unknown() -> None:
    profile = parse_model("ollama:qwen3")
    assert cost_of(profile, "http://127.0.0.1:11434/v1", MILLION) == 0.0
    assert cost_of(profile, "http://gpu.example.org/v1", MILLION) is None
