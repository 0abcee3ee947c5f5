"""Contracts of strategies: the fields each needs and gives, declared on the class and checked when wired and when run.

    @depends_on("goal", reply=Reply)            needs `goal` of any type and `reply` of type Reply
    @provides(results=tuple)                    promises `results`, a tuple
    class Act: …

A contract is kept on the class itself, so two classes of one name never meet and nothing is shared between processes'
parts; `StrategyMetadataRegistry` is the seeds' way to read and write it. Called by `processing.processor`.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, Union, get_args, get_origin

from starloom.errors import Bug

S = TypeVar("S")
FieldType: TypeAlias = type | types.UnionType

_ATTRIBUTE = "__strategy_contract__"


class ContractError(Bug):
    """A strategy's contract cannot be met, or was broken while it ran."""


@dataclass(frozen=True, slots=True)
class StrategyDependency:
    """A field that a strategy needs. When not required, it gets the default if nobody gives it."""

    field_name: str
    required: bool = True
    expected_type: FieldType | None = None
    default_value: object = None
    description: str = ""

    @property
    def accepted(self) -> FieldType:
        """The type that a value must have; `object` when any will do."""
        return object if self.expected_type is None else self.expected_type


@dataclass(frozen=True, slots=True)
class Contract:
    """All that a strategy needs and gives."""

    dependencies: tuple[StrategyDependency, ...] = ()
    provides: Mapping[str, FieldType] = field(default_factory=dict)


class StrategyMetadataRegistry:
    """Reads and writes the contract of a strategy class. Holds nothing itself."""

    @classmethod
    def register_strategy(
        cls,
        strategy_class: type,
        dependencies: Iterable[StrategyDependency],
        provides: Iterable[str] | Mapping[str, FieldType],
    ) -> None:
        """Replace the class's contract."""
        promised = dict(provides) if isinstance(provides, Mapping) else dict.fromkeys(provides, object)
        for name, kind in promised.items():
            _checkable(name, kind)
        needed = tuple(dependencies)
        for dependency in needed:
            _checkable(dependency.field_name, dependency.accepted)
        setattr(strategy_class, _ATTRIBUTE, Contract(needed, promised))

    @classmethod
    def get_dependencies(cls, strategy_class: type) -> list[StrategyDependency]:
        """Return the fields that the class needs; empty when it declares none."""
        return list(_class_contract(strategy_class).dependencies)

    @classmethod
    def get_provides(cls, strategy_class: type) -> list[str]:
        """Return the names of the fields that the class promises."""
        return list(_class_contract(strategy_class).provides)


def depends_on(*names: str | StrategyDependency, **typed: FieldType) -> Callable[[type[S]], type[S]]:
    """Declare the fields that a strategy class needs before it runs."""
    needed = [name if isinstance(name, StrategyDependency) else StrategyDependency(name) for name in names]
    needed += [StrategyDependency(name, expected_type=kind) for name, kind in typed.items()]

    def declare(strategy_class: type[S]) -> type[S]:
        contract = _class_contract(strategy_class)
        StrategyMetadataRegistry.register_strategy(strategy_class, (*contract.dependencies, *needed), contract.provides)
        return strategy_class

    return declare


def provides(*names: str, **typed: FieldType) -> Callable[[type[S]], type[S]]:
    """Declare the fields that a strategy class promises to return."""

    def declare(strategy_class: type[S]) -> type[S]:
        contract = _class_contract(strategy_class)
        promised = {**contract.provides, **dict.fromkeys(names, object), **typed}
        StrategyMetadataRegistry.register_strategy(strategy_class, contract.dependencies, promised)
        return strategy_class

    return declare


def contract_of(strategy: object) -> Contract:
    """Return a strategy object's contract: its own when it has one (composed strategies), else its class's."""
    own = getattr(strategy, "contract", None)
    return own if isinstance(own, Contract) else _class_contract(type(strategy))


def combined(strategies: Sequence[object]) -> Contract:
    """Return the joint contract of strategies that run in this order: what they need from outside, what they give."""
    needed: dict[str, StrategyDependency] = {}
    given: dict[str, FieldType] = {}
    for strategy in strategies:
        contract = contract_of(strategy)
        for dependency in contract.dependencies:
            if dependency.field_name not in given:
                known = needed.get(dependency.field_name)
                needed[dependency.field_name] = dependency if known is None else _stricter(known, dependency)
        given.update(contract.provides)
    return Contract(tuple(needed.values()), given)


def chain_problems(strategies: Sequence[object], initial: Mapping[str, FieldType]) -> list[str]:
    """Return one sentence for each field that a strategy needs and cannot have, or has of the wrong type.

    Args:
        strategies: in the order in which they run.
        initial: the fields that are there before the first of them, with their types.
    """
    known = dict(initial)
    problems = []
    for strategy in strategies:
        name = strategy_name(strategy)
        contract = contract_of(strategy)
        for dependency in contract.dependencies:
            given = known.get(dependency.field_name)
            if given is None and dependency.required:
                problems.append(f"{name} needs the field {dependency.field_name!r}, which nothing before it gives.")
            elif given is not None and not fits(given, dependency.accepted):
                problems.append(
                    f"{name} needs {dependency.field_name!r} as {_spelt(dependency.accepted)}; it is given as "
                    f"{_spelt(given)}."
                )
        known.update(contract.provides)
    return problems


def broken_promises(contract: Contract, returned: Mapping[str, object]) -> list[str]:
    """Return one sentence for each field promised and not returned, of the wrong type, or returned and not promised."""
    problems = [f"promised {name!r} and did not return it" for name in contract.provides if name not in returned]
    for name, value in returned.items():
        promised = contract.provides.get(name)
        if promised is None:
            problems.append(f"returned {name!r}, which it does not promise")
        elif not isinstance(value, promised):
            problems.append(f"promised {name!r} as {_spelt(promised)} and returned {type(value).__name__}")
    return problems


def fits(given: FieldType, wanted: FieldType) -> bool:
    """Whether every value of the given type is acceptable as the wanted one."""
    return all(any(issubclass(part, accepted) for accepted in _parts(wanted)) for part in _parts(given))


def strategy_name(strategy: object) -> str:
    """Return what a strategy is called in messages and records."""
    return str(getattr(strategy, "name", type(strategy).__name__))


def _class_contract(strategy_class: type) -> Contract:
    contract = getattr(strategy_class, _ATTRIBUTE, None)
    return contract if isinstance(contract, Contract) else Contract()


def _stricter(first: StrategyDependency, second: StrategyDependency) -> StrategyDependency:
    if first.required == second.required:
        return first if fits(first.accepted, second.accepted) else second
    return first if first.required else second


def _parts(kind: FieldType) -> tuple[type, ...]:
    return get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)


def _spelt(kind: FieldType) -> str:
    return " or ".join(part.__name__ for part in _parts(kind))


def _checkable(name: str, kind: FieldType) -> None:
    if any(get_origin(part) is not None for part in _parts(kind)):
        raise TypeError(f"The field {name!r} must be declared with a plain class or a union of them, not {kind!r}.")
