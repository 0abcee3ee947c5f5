"""Several models as one: the first that is well answers, within one deadline; a wrong key is said, never hidden.

Made by `session` when a role has a backup; called through `llm.port.Model`.

    fault                        what happens
    configuration (faults.py)    raised at once: another model would only hide it
    passing                      next model; when all have failed, wait as the breakers say and go round again
    cut off, unusable, filter …  next model; not counted against the model's health
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pydantic import BaseModel

from starloom.clock import Clock
from starloom.llm.breaker import Breaker, BreakerLimits
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.port import Follow, Message, Model, Reply

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class FellBack:
    """A model was passed over; for the journal and the log."""

    model: str
    kind: FaultKind
    message: str


class FallbackModel:
    """A `Model` over others in order of preference. `told` hears of each model that was passed over."""

    def __init__(
        self,
        models: Sequence[Model],
        clock: Clock,
        *,
        limits: BreakerLimits | None = None,
        deadline_s: float = 300.0,
        rounds: int = 2,
        told: Callable[[FellBack], None] = lambda _: None,
    ) -> None:
        self._models = [(model, Breaker(limits)) for model in models]
        self._clock = clock
        self._deadline_s = deadline_s
        self._rounds = rounds
        self._told = told

    @property
    def name(self) -> str:
        """The preferred model's name; the one that answered is in each reply."""
        return self._models[0][0].name

    async def complete(
        self, messages: list[Message], schema: type[T], *, max_tokens: int = 2048, follow: Follow | None = None
    ) -> Reply[T]:
        """Return the first reply; its `repairs` say `fell_back` when the preferred model did not give it.

        Raises:
            ModelFault: a configuration error of any model that was asked, else the last fault.
        """
        end = self._clock.monotonic() + self._deadline_s
        last: ModelFault | None = None
        for number in range(self._rounds):
            if number and not await self._wait(end):
                break
            for position, (model, breaker) in enumerate(self._models):
                if not breaker.admits(self._clock.monotonic()):
                    continue
                asking = partial(model.complete, messages, schema, max_tokens=max_tokens, follow=follow)
                try:
                    reply = await self._ask(model, breaker, asking, end)
                except ModelFault as fault:
                    if fault.kind.is_configuration:
                        raise
                    last = fault
                    self._told(FellBack(fault.model, fault.kind, fault.message))
                    continue
                return replace(reply, repairs=(*reply.repairs, "fell_back")) if position else reply
            if last is not None and not last.kind.is_passing:
                break
        raise last or ModelFault(
            FaultKind.UNREACHABLE, f"Every model of {self.name!r} is in its cooldown. Try again later.", model=self.name
        )

    async def close(self) -> None:
        """Close every model that can be closed."""
        for model, _ in self._models:
            close = getattr(model, "close", None)
            if close is not None:
                await close()

    async def _ask(
        self, model: Model, breaker: Breaker, asking: Callable[[], Awaitable[Reply[T]]], end: float
    ) -> Reply[T]:
        left = end - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                reply = await asking()
        except ModelFault as fault:
            if fault.kind.is_passing:
                breaker.failed(self._clock.monotonic(), retry_after_s=fault.retry_after_s)
            else:
                breaker.abandoned()
            raise
        except TimeoutError as error:
            breaker.failed(self._clock.monotonic())
            text = f"The model {model.name!r} gave no answer within the deadline of {self._deadline_s:g} s."
            raise ModelFault(FaultKind.TIMED_OUT, text, model=model.name) from error
        except BaseException:
            breaker.abandoned()
            raise
        breaker.succeeded()
        return reply

    async def _wait(self, end: float) -> bool:
        """Wait until some model may be asked again; False when that would be after the deadline."""
        now = self._clock.monotonic()
        wait = min(breaker.wait_s(now) for _, breaker in self._models)
        if now + wait >= end:
            return False
        await self._clock.sleep(wait)
        return True
