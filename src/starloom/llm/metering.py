"""What one call of a budgeted model uses while it is under way: its repair turns, and models that were passed over.

Set by `budgets.BudgetedModel` around a call; told by `completion.ProviderModel`, which may stand behind a fall-back.
The meter travels with the call's context, so that the port between them needs no word for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from starloom.llm.port import Usage, total_usage


@dataclass(slots=True)
class Meter:
    """Counts one call.

    Attributes:
        admit: takes a model's name and the tokens of the whole call; raises when they are too many.
        sent: hears, before each request, what the call has used by then with what is sent.
        used: by each request so far.
        wasted: what models used that gave no reply.
    """

    admit: Callable[[str, int], None]
    sent: Callable[[Usage], None] = lambda _usage: None
    used: list[Usage] = field(default_factory=list)
    wasted: list[tuple[str, Usage]] = field(default_factory=list)

    def before(self, model: str, sent: Usage, answered: int) -> None:
        """Return when a request that sends so much, and is answered with at most so many tokens, may be made.

        Raises:
            ModelFault: a budget would be broken.
        """
        self.admit(model, sum(usage.tokens for usage in self.used) + sent.tokens + answered)
        self.sent(total_usage([*self.used, sent]))

    def after(self, usage: Usage) -> None:
        """Note what a request used."""
        self.used.append(usage)


_CURRENT: ContextVar[Meter | None] = ContextVar("_CURRENT", default=None)


def current_meter() -> Meter:
    """Return the meter of the call under way; one that admits all when nobody counts."""
    return _CURRENT.get() or Meter(lambda _model, _tokens: None)


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Make it the current meter while the block runs."""
    token = _CURRENT.set(meter)
    try:
        yield
    finally:
        _CURRENT.reset(token)
