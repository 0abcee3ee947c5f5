"""A step: fixed order, enforced contracts, failures that are counted, recorded and never silent."""

import asyncio

import pytest

from starloom.clock import ManualClock
from starloom.processing.context import Context
from starloom.processing.middleware import ProcessorMiddleware
from starloom.processing.names import ContextNames
from starloom.processing.processing_context import ProcessingPhase
from starloom.processing.processor import ProcessorTemplate
from starloom.processing.strategy import ComposedStrategy
from starloom.processing.strategy_dependency import ContractError, StrategyDependency, depends_on, provides


def make(name, *, needs=None, gives=None, returns=None, fail_fast=True, error=None, log=None):
    async def execute(self, context):
        if log is not None:
            log.append(name)
        if error is not None:
            raise error
        return returns if returns is not None else {}

    made = type(name, (), {"name": name, "fail_fast": fail_fast, "execute": execute})
    return provides(**(gives or {}))(depends_on(**(needs or {}))(made))()


def processor(strategies, *, middleware=(), initial=None):
    return ProcessorTemplate(strategies, clock=ManualClock(), middleware=middleware, initial=initial)


async def test_phases_run_in_their_own_order_whatever_order_they_were_given_in():
    log = []
    phases = list(reversed(ProcessingPhase))
    await processor({phase: make(phase.value, log=log) for phase in phases}).process(Context())
    assert log == [phase.value for phase in ProcessingPhase]


def test_guard_stands_between_the_model_and_the_action():
    order = list(ProcessingPhase)
    assert order.index(ProcessingPhase.LLM_INTERACTION) < order.index(ProcessingPhase.GUARD)
    assert order.index(ProcessingPhase.GUARD) < order.index(ProcessingPhase.ACTION_EXECUTION)


def test_an_unmet_need_is_an_error_when_the_processor_is_built():
    with pytest.raises(ContractError, match="'reply'"):
        processor({ProcessingPhase.GUARD: make("Guard", needs={"reply": str})})


def test_a_composed_strategy_shows_its_joint_contract_to_the_check():
    part = make("Part", needs={"nowhere": str})
    with pytest.raises(ContractError, match="'nowhere'"):
        processor({ProcessingPhase.SETUP: ComposedStrategy([part], "Both")})


async def test_a_composed_strategy_hands_fields_from_part_to_part():
    seen = []

    @depends_on(x=int)
    @provides(y=int)
    class Second:
        name = "Second"
        fail_fast = True

        async def execute(self, context):
            seen.append(context.require("x", int))
            return {"y": 2}

    both = ComposedStrategy([make("First", gives={"x": int}, returns={"x": 1}), Second()], "Both")
    context = await processor({ProcessingPhase.SETUP: both}).process(Context())
    assert seen == [1]
    assert (context.get_local("x"), context.get_local("y")) == (1, 2)
    assert [part.name for part in both.parts] == ["First", "Second"]


@pytest.mark.parametrize("fail_fast", [True, False])
async def test_a_broken_promise_fails_the_step_even_when_failures_are_tolerated(fail_fast):
    liar = make("Liar", gives={"x": int}, returns={}, fail_fast=fail_fast)
    context = await processor({ProcessingPhase.SETUP: liar}).process(Context())
    assert "promised 'x'" in str(context.error)
    assert isinstance(context.error.__cause__, ContractError)


async def test_a_failure_that_is_fatal_ends_the_step_but_not_its_cleanup():
    log = []
    steps = {
        ProcessingPhase.LLM_INTERACTION: make("Think", error=ValueError("no"), log=log),
        ProcessingPhase.ACTION_EXECUTION: make("Act", log=log),
        ProcessingPhase.CLEANUP: make("Clean", log=log),
    }
    context = await processor(steps).process(Context())
    assert log == ["Think", "Clean"]
    assert context.error.phase is ProcessingPhase.LLM_INTERACTION
    assert [result.success for result in context.results] == [False, True]
    assert context.error.reason == "ValueError: no"


async def test_a_tolerated_failure_is_recorded_and_the_step_goes_on():
    log = []
    steps = {
        ProcessingPhase.ACTION_EXECUTION: make("Act", error=ValueError("no"), fail_fast=False, log=log),
        ProcessingPhase.MEMORY_UPDATE: make("Remember", log=log),
    }
    context = await processor(steps).process(Context())
    assert log == ["Act", "Remember"]
    assert context.error is None
    assert context.results[0].error == "no"


async def test_what_needs_a_lost_field_is_skipped_with_the_field_named():
    steps = {
        ProcessingPhase.ACTION_EXECUTION: make("Act", gives={"x": int}, error=ValueError("no"), fail_fast=False),
        ProcessingPhase.MEMORY_UPDATE: make("Remember", needs={"x": int}, fail_fast=False),
    }
    context = await processor(steps).process(Context())
    assert context.results[1].skipped
    assert "x" in context.results[1].error
    assert context.error is None


async def test_an_optional_field_gets_its_default():
    seen = []

    @depends_on(StrategyDependency("hint", required=False, default_value="none"))
    class Think:
        name = "Think"
        fail_fast = True

        async def execute(self, context):
            seen.append(context.get_local("hint"))
            return {}

    await processor({ProcessingPhase.LLM_INTERACTION: Think()}).process(Context())
    assert seen == ["none"]


async def test_a_step_must_be_started_with_the_fields_it_was_built_for():
    built = processor({}, initial={"goal": str})
    with pytest.raises(ContractError, match="'goal'"):
        await built.process(Context())
    with pytest.raises(ContractError, match="int"):
        await built.process(Context(), goal=3)


async def test_a_failed_step_is_counted_and_its_cost_added():
    shared = Context()
    spend = make("Think", gives={"llm_cost": float}, returns={"llm_cost": 0.5})
    fail = make("Act", error=ValueError("no"))
    built = processor({ProcessingPhase.LLM_INTERACTION: spend, ProcessingPhase.ACTION_EXECUTION: fail})
    await built.process(shared)
    await built.process(shared)
    assert shared.current_round_step == 2
    assert shared.get(ContextNames.SESSION_STEP) == 2
    assert shared.current_round_cost == 1.0
    assert shared.get(ContextNames.SESSION_COST) == 1.0


async def test_steps_share_no_fields():
    built = processor({ProcessingPhase.SETUP: make("A", gives={"x": int}, returns={"x": 1})})
    first = await built.process(Context())
    first.update_local({"left": "over"})
    second = await built.process(Context())
    assert second.get_local("left") is None


async def test_a_cancelled_step_cleans_up_is_counted_and_stays_cancelled():
    log = []
    shared = Context()
    steps = {
        ProcessingPhase.SETUP: make("Stop", error=asyncio.CancelledError()),
        ProcessingPhase.CLEANUP: make("Clean", log=log),
    }
    with pytest.raises(asyncio.CancelledError):
        await processor(steps).process(shared)
    assert log == ["Clean"]
    assert shared.current_round_step == 1


class Watching(ProcessorMiddleware):
    def __init__(self, name, log, breaks_in=()):
        self.name, self.log, self.breaks_in = name, log, breaks_in

    async def note(self, hook):
        self.log.append(f"{self.name} {hook}")
        if hook in self.breaks_in:
            raise RuntimeError("broken middleware")

    async def before_process(self, context):
        await self.note("before")

    async def after_process(self, context):
        await self.note("after")

    async def on_error(self, context, error):
        await self.note("error")


async def test_middleware_wraps_like_an_onion():
    log = []
    await processor({}, middleware=[Watching("outer", log), Watching("inner", log)]).process(Context())
    assert log == ["outer before", "inner before", "inner after", "outer after"]


async def test_middleware_hears_of_an_error_before_the_end():
    log = []
    steps = {ProcessingPhase.SETUP: make("A", error=ValueError("no"))}
    await processor(steps, middleware=[Watching("one", log)]).process(Context())
    assert log == ["one before", "one error", "one after"]


async def test_middleware_that_breaks_at_the_end_stops_no_other():
    log = []
    middleware = [Watching("outer", log), Watching("inner", log, breaks_in={"after"})]
    context = await processor({}, middleware=middleware).process(Context())
    assert log[-1] == "outer after"
    assert context.error is None


async def test_middleware_that_refuses_stops_the_step_before_it_begins():
    log = []
    steps = {ProcessingPhase.SETUP: make("A", log=log)}
    context = await processor(steps, middleware=[Watching("one", [], breaks_in={"before"})]).process(Context())
    assert log == []
    assert "broken middleware" in str(context.error)
    assert context.error.strategy == "Watching"


async def test_phases_are_timed():
    clock = ManualClock()

    class Slow:
        name = "Slow"
        fail_fast = True

        async def execute(self, context):
            clock.advance(2.5)
            return {}

    built = ProcessorTemplate({ProcessingPhase.SETUP: Slow()}, clock=clock)
    context = await built.process(Context())
    assert context.duration_s == 2.5


async def test_a_field_asked_for_without_a_declaration_is_our_bug():
    context = await processor({}).process(Context(), x=1)
    with pytest.raises(Exception, match="depends_on"):
        context.require("y", int)
    with pytest.raises(Exception, match="not str"):
        context.require("x", str)
