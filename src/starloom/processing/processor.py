"""`ProcessorTemplate`: the fixed course of a step; what happens in each phase is the strategies' business.

Built once per agent, which is when contracts are checked; `process` makes a fresh `ProcessingContext` for each step.

    before_process ▸ SETUP ▸ DATA_COLLECTION ▸ LLM_INTERACTION ▸ GUARD ▸ ACTION_EXECUTION ▸ MEMORY_UPDATE
                   ▸ CLEANUP (always) ▸ counters (always) ▸ on_error? ▸ after_process (reversed, always)

A failed step is counted, timed and recorded like any other. Called by agents' states.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from starloom.clock import Clock
from starloom.processing.context import Context
from starloom.processing.middleware import ProcessorMiddleware
from starloom.processing.names import ContextNames
from starloom.processing.processing_context import (
    ProcessingContext,
    ProcessingException,
    ProcessingPhase,
    ProcessingResult,
)
from starloom.processing.strategy import ProcessingStrategy, checked_execution
from starloom.processing.strategy_dependency import (
    ContractError,
    FieldType,
    chain_problems,
    contract_of,
    strategy_name,
)

_LOG = logging.getLogger(__name__)

COST_FIELD = "llm_cost"
"""The local field whose number, in US dollars, is added to the round's and the session's cost."""


class ProcessorTemplate:
    """Runs steps. One strategy a phase; phases without one are passed over.

    Args:
        strategies: what to run in which phase; the order is the phases' own.
        middleware: wraps every step, outermost first.
        initial: names and types of the fields that `process` will be given.
        clock: times the phases.

    Raises:
        ContractError: a strategy needs a field that nothing before it gives, or gives with another type.
    """

    def __init__(
        self,
        strategies: Mapping[ProcessingPhase, ProcessingStrategy],
        *,
        clock: Clock,
        middleware: Sequence[ProcessorMiddleware] = (),
        initial: Mapping[str, FieldType] | None = None,
    ) -> None:
        self._strategies = {phase: strategies[phase] for phase in ProcessingPhase if phase in strategies}
        self._middleware = tuple(middleware)
        self._initial = dict(initial or {})
        self._clock = clock
        problems = chain_problems(list(self._strategies.values()), self._initial)
        if problems:
            raise ContractError("The processor cannot be built. " + " ".join(problems))

    async def process(self, global_context: Context, **fields: object) -> ProcessingContext:
        """Run one step and return its context; a failure of the step is in `error`, not raised.

        Raises:
            ContractError: the fields are not those that the processor was built for.
        """
        self._check_initial(fields)
        context = ProcessingContext(global_context, fields)
        try:
            await self._run(context)
        except asyncio.CancelledError:
            context.cancelled = True
            self._count(context)
            await self._notify("after_process", context)
            raise
        self._count(context)
        if context.error is not None:
            await self._notify("on_error", context)
        await self._notify("after_process", context)
        return context

    async def _run(self, context: ProcessingContext) -> None:
        phases = [phase for phase in self._strategies if phase is not ProcessingPhase.CLEANUP]
        try:
            await self._open(context)
            for phase in phases:
                if context.error is not None:
                    break
                await self._run_phase(phase, context)
        finally:
            if ProcessingPhase.CLEANUP in self._strategies:
                await self._run_phase(ProcessingPhase.CLEANUP, context)

    async def _open(self, context: ProcessingContext) -> None:
        for middleware in self._middleware:
            try:
                await middleware.before_process(context)
            except Exception as caught:  # noqa: BLE001 - border: middleware may be a plug-in's
                name = type(middleware).__name__
                context.error = ProcessingException(
                    f"The step was stopped before it began by {name}: {_said(caught)}",
                    phase=ProcessingPhase.SETUP,
                    strategy=name,
                )
                context.error.__cause__ = caught
                return

    async def _run_phase(self, phase: ProcessingPhase, context: ProcessingContext) -> None:
        strategy = self._strategies[phase]
        started = self._clock.monotonic()
        lost = _lost_fields(strategy, context)
        error: Exception | None = None
        if lost:
            error = ContractError(f"it needs {', '.join(lost)}, lost when an earlier strategy failed")
        else:
            try:
                context.update_local(await checked_execution(strategy, context))
            except Exception as caught:  # noqa: BLE001 - border: a strategy may be a plug-in's
                error = caught
        name = strategy_name(strategy)
        context.results.append(
            ProcessingResult(
                phase=phase,
                strategy=name,
                success=error is None,
                duration_s=self._clock.monotonic() - started,
                error=None if error is None else _said(error),
                skipped=bool(lost),
            )
        )
        if error is None:
            return
        _LOG.warning("The strategy %s failed in the phase %s: %s", name, phase.value, error, exc_info=error)
        broken = isinstance(error, ContractError) and not lost
        if context.error is None and (strategy.fail_fast or broken):
            context.error = ProcessingException(
                f"The step failed in {phase.value} ({name}): {_said(error)}",
                phase=phase,
                strategy=name,
            )
            context.error.__cause__ = error

    def _check_initial(self, fields: Mapping[str, object]) -> None:
        for name, kind in self._initial.items():
            if name not in fields:
                raise ContractError(f"The step was started without the field {name!r}.")
            if not isinstance(fields[name], kind):
                raise ContractError(f"The step was started with {name!r} as {type(fields[name]).__name__}.")

    def _count(self, context: ProcessingContext) -> None:
        """Count the step and add its cost; also when it failed or was cancelled."""
        shared = context.global_context
        shared.current_round_step += 1
        shared.set(ContextNames.SESSION_STEP, _number(shared.get(ContextNames.SESSION_STEP), int) + 1)
        cost = context.get_local(COST_FIELD)
        if isinstance(cost, int | float):
            shared.current_round_cost += cost
            total = _number(shared.get(ContextNames.SESSION_COST), float)
            shared.set(ContextNames.SESSION_COST, total + cost)

    async def _notify(self, hook: str, context: ProcessingContext) -> None:
        """Run one closing hook of every middleware, last first; one that fails is logged and the others run."""
        for middleware in reversed(self._middleware):
            try:
                if hook == "on_error" and context.error is not None:
                    await middleware.on_error(context, context.error)
                else:
                    await middleware.after_process(context)
            except Exception:  # noqa: BLE001 - border: middleware may be a plug-in's
                _LOG.exception("The middleware %s failed in %s.", type(middleware).__name__, hook)


def _lost_fields(strategy: ProcessingStrategy, context: ProcessingContext) -> list[str]:
    present = context.fields
    return [
        dependency.field_name
        for dependency in contract_of(strategy).dependencies
        if dependency.required and dependency.field_name not in present
    ]


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _number(value: object, kind: type[int] | type[float]) -> float | int:
    assert isinstance(value, int | float)  # noqa: S101 - `Context.set` has checked it
    return kind(value)
