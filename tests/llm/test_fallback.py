"""Fall-back: which faults another model may answer, which are said at once, and how the breaker and deadline work."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel

from starloom.clock import ManualClock
from starloom.llm.breaker import BreakerLimits
from starloom.llm.fallback import FallbackModel, FellBack
from starloom.llm.faults import FaultKind, ModelFault
from starloom.llm.port import Message, Reply, Usage

ASK = [Message("user", "hi")]


class Word(BaseModel):
    """A word."""

    word: str


@dataclass
class FakeModel:
    """Gives its script's lines: a word, a fault, or `hang`; the last one for ever."""

    name: str
    script: list[str | ModelFault]
    asked: int = 0
    closed: list[str] = field(default_factory=list)
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(
        self, messages: list[Message], schema: type[Word], *, max_tokens: int = 2048, **_: Any
    ) -> Reply[Word]:
        line = self.script[min(self.asked, len(self.script) - 1)]
        self.asked += 1
        self.is_asked.set()
        if isinstance(line, ModelFault):
            raise line
        if line == "hang":
            await asyncio.Event().wait()
        return Reply(schema(word=line), self.name, Usage(1, 1))

    async def close(self) -> None:
        self.closed.append(self.name)


class WatchedClock(ManualClock):
    """A manual clock that tells when someone sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sleeping = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.is_sleeping.set()
        await super().sleep(seconds)


def fault(kind: FaultKind, retry_after_s: float | None = None) -> ModelFault:
    return ModelFault(kind, kind.value, model="first", retry_after_s=retry_after_s)


PASSING = [kind for kind in FaultKind if kind.is_passing]
CONFIGURATION = [kind for kind in FaultKind if kind.is_configuration]
OTHER = [kind for kind in FaultKind if not kind.is_passing and not kind.is_configuration]


def test_every_kind_is_of_one_class() -> None:
    assert not set(PASSING) & set(CONFIGURATION)
    assert set(OTHER) == {FaultKind.TOO_LONG, FaultKind.CONTENT_FILTER, FaultKind.UNUSABLE_REPLY, FaultKind.CUT_OFF}


@pytest.mark.parametrize("kind", PASSING + OTHER)
async def test_another_model_answers_and_it_is_told(kind: FaultKind) -> None:
    told: list[FellBack] = []
    first, second = FakeModel("first", [fault(kind)]), FakeModel("second", ["hello"])
    model = FallbackModel([first, second], ManualClock(), told=told.append)
    reply = await model.complete(ASK, Word)
    assert (reply.model, reply.value.word, reply.repairs) == ("second", "hello", ("fell_back",))
    assert told == [FellBack("first", kind, kind.value)]


@pytest.mark.parametrize("kind", CONFIGURATION)
async def test_configuration_error_is_never_hidden(kind: FaultKind) -> None:
    second = FakeModel("second", ["hello"])
    with pytest.raises(ModelFault) as caught:
        await FallbackModel([FakeModel("first", [fault(kind)]), second], ManualClock()).complete(ASK, Word)
    assert caught.value.kind is kind
    assert second.asked == 0


async def test_dead_model_is_left_alone_during_its_cooldown_and_then_probed() -> None:
    clock = ManualClock()
    first = FakeModel("first", [fault(FaultKind.SERVER_ERROR)] * 2 + ["back"])
    model = FallbackModel(
        [first, FakeModel("second", ["hello"])], clock, limits=BreakerLimits(failures=2, cooldown_s=30)
    )
    for _ in range(4):
        assert (await model.complete(ASK, Word)).model == "second"
    assert first.asked == 2
    clock.advance(31)
    assert (await model.complete(ASK, Word)).model == "first"
    assert (await model.complete(ASK, Word)).repairs == ()


async def test_retry_after_is_waited_for_within_the_deadline() -> None:
    clock = WatchedClock()
    first = FakeModel("first", [fault(FaultKind.RATE_LIMITED, retry_after_s=7), "hello"])
    asking = asyncio.create_task(FallbackModel([first], clock).complete(ASK, Word))
    await clock.is_sleeping.wait()
    clock.advance(6.9)
    await asyncio.sleep(0)
    assert first.asked == 1
    clock.advance(0.2)
    assert (await asking).value.word == "hello"


async def test_wait_past_the_deadline_is_not_begun() -> None:
    first = FakeModel("first", [fault(FaultKind.RATE_LIMITED, retry_after_s=70)])
    with pytest.raises(ModelFault) as caught:
        await FallbackModel([first], ManualClock(), deadline_s=60).complete(ASK, Word)
    assert caught.value.kind is FaultKind.RATE_LIMITED
    assert first.asked == 1


async def test_silence_of_one_model_counts_as_its_fault() -> None:
    model = FallbackModel([FakeModel("first", ["hang"])], ManualClock(), deadline_s=0.05, rounds=1)
    with pytest.raises(ModelFault, match="deadline") as caught:
        await model.complete(ASK, Word)
    assert caught.value.kind is FaultKind.TIMED_OUT


async def test_all_open_is_said() -> None:
    first = FakeModel("first", [fault(FaultKind.RATE_LIMITED, retry_after_s=500)])
    model = FallbackModel([first], ManualClock(), deadline_s=60)
    for _ in range(2):
        with pytest.raises(ModelFault) as caught:
            await model.complete(ASK, Word)
    assert "cooldown" in caught.value.message
    assert first.asked == 1


async def test_cancelled_call_says_nothing_about_the_model() -> None:
    first = FakeModel("first", ["hang"])
    model = FallbackModel([first], ManualClock())
    asking = asyncio.create_task(model.complete(ASK, Word))
    await first.is_asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    first.script = ["hello"]
    assert (await model.complete(ASK, Word)).value.word == "hello"


async def test_close_closes_all_and_the_name_is_the_preferred_one() -> None:
    first, second = FakeModel("first", ["a"]), FakeModel("second", ["b"])
    model = FallbackModel([first, second], ManualClock())
    assert model.name == "first"
    await model.close()
    assert (first.closed, second.closed) == (["first"], ["second"])
