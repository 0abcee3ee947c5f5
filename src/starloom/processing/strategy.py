"""Strategies: what happens in one phase of a step. An agent's pipeline is a choice of these.

`ComposedStrategy` puts several into one phase and shows their joint contract. Run by `processing.processor`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from starloom.processing.processing_context import ProcessingContext
from starloom.processing.strategy_dependency import (
    Contract,
    ContractError,
    broken_promises,
    combined,
    contract_of,
    strategy_name,
)


class ProcessingStrategy(Protocol):
    """One async function with a name, a contract (`@depends_on`, `@provides`) and its own rule on failure."""

    @property
    def name(self) -> str:
        """What it is called in records and messages."""
        ...

    @property
    def fail_fast(self) -> bool:
        """Whether its failure ends the step; otherwise it is recorded and the step goes on without its fields."""
        ...

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """Do the phase's work and return exactly the fields that it promises."""
        ...


class ComposedStrategy:
    """Several strategies in one phase, in order; each one's fields are there for the next.

    To the processor it is one strategy: the first failure of a part is the failure of the whole.
    """

    def __init__(self, strategies: Sequence[ProcessingStrategy], name: str, *, fail_fast: bool = True) -> None:
        self._strategies = tuple(strategies)
        self.name = name
        self.fail_fast = fail_fast
        self.contract: Contract = combined(self._strategies)

    async def execute(self, context: ProcessingContext) -> Mapping[str, object]:
        """Run the parts and return all their fields."""
        returned: dict[str, object] = {}
        for strategy in self._strategies:
            fields = await checked_execution(strategy, context)
            context.update_local(fields)
            returned.update(fields)
        return returned

    @property
    def parts(self) -> tuple[ProcessingStrategy, ...]:
        """The strategies inside, in order."""
        return self._strategies


async def checked_execution(strategy: ProcessingStrategy, context: ProcessingContext) -> Mapping[str, object]:
    """Run a strategy with its optional fields filled in, and hold it to its contract.

    Raises:
        ContractError: it did not return what it promised.
    """
    contract = contract_of(strategy)
    for dependency in contract.dependencies:
        if not dependency.required and dependency.field_name not in context.fields:
            context.update_local({dependency.field_name: dependency.default_value})
    returned = await strategy.execute(context)
    problems = broken_promises(contract, returned)
    if problems:
        raise ContractError(f"The strategy {strategy_name(strategy)} {'; it '.join(problems)}.")
    return returned
