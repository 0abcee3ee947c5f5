"""What a call costs: the user's own price first, then a dated table, else unknown, which is a state and never zero.

Called by `llm.completion` and `cli` (`cost`). The table is `genai-prices`, which comes with pydantic-ai and needs no
network; it has no prices for many regional and all local models.
"""

from urllib.parse import urlsplit

from starloom.llm.port import Usage
from starloom.llm.settings import EMBEDDED, ModelProfile, Price

_LOCAL_PROVIDERS = {EMBEDDED, "ollama", "vllm"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def cost_of(profile: ModelProfile, base_url: str, usage: Usage) -> float | None:
    """Return US dollars for the usage; None when no price is known. Our own machine costs nothing."""
    if profile.price is not None:
        return at_price(profile.price, usage)
    if profile.provider in _LOCAL_PROVIDERS and urlsplit(base_url).hostname in {*_LOOPBACK, None}:
        return 0.0
    return _listed(profile, base_url, usage)


def at_price(price: Price, usage: Usage) -> float:
    """Return US dollars for the usage at the user's own price; a part without a rate of its own costs as its whole."""
    read, written, thought = usage.cached_tokens or 0, usage.cache_write_tokens or 0, usage.reasoning_tokens or 0
    pictures = usage.image_tokens or 0
    total = (usage.input_tokens - read - written - pictures) * price.input
    total += read * (price.input if price.cached_input is None else price.cached_input)
    total += written * (price.input if price.cache_write is None else price.cache_write)
    total += pictures * (price.input if price.image_input is None else price.image_input)
    total += (usage.output_tokens - thought) * price.output
    total += thought * (price.output if price.reasoning is None else price.reasoning)
    return total / 1_000_000


def _listed(profile: ModelProfile, base_url: str, usage: Usage) -> float | None:
    import genai_prices

    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
    )
    try:
        found = genai_prices.calc_price(counted, model_ref=profile.model, provider_api_url=base_url)
    except (LookupError, ValueError):
        return None
    return float(found.total_price)
