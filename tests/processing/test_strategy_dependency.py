"""Contracts: declared on the class, checked as a chain."""

import pytest

from starloom.processing.strategy_dependency import (
    StrategyDependency,
    StrategyMetadataRegistry,
    broken_promises,
    chain_problems,
    combined,
    contract_of,
    depends_on,
    fits,
    provides,
)


def strategy(name, needs=(), gives=()):
    made = type(name, (), {"name": name})
    return provides(**dict(gives))(depends_on(**dict(needs))(made))()


def test_the_registry_reads_and_writes_like_the_seeds():
    class Parsing:
        pass

    needed = [StrategyDependency("screenshot_path", expected_type=str), StrategyDependency("user_intent")]
    StrategyMetadataRegistry.register_strategy(Parsing, needed, ["ui_elements", "control_types"])
    assert StrategyMetadataRegistry.get_dependencies(Parsing) == needed
    assert StrategyMetadataRegistry.get_provides(Parsing) == ["ui_elements", "control_types"]


def test_two_classes_of_one_name_keep_their_own_contracts():
    first, second = strategy("Same", gives={"a": int}), strategy("Same", gives={"b": int})
    assert set(contract_of(first).provides) == {"a"}
    assert set(contract_of(second).provides) == {"b"}


def test_a_subclass_adds_to_its_parents_contract_without_changing_it():
    @provides("a")
    class Parent:
        pass

    @provides("b")
    class Child(Parent):
        pass

    assert StrategyMetadataRegistry.get_provides(Parent) == ["a"]
    assert StrategyMetadataRegistry.get_provides(Child) == ["a", "b"]


def test_a_field_that_nobody_gives_is_a_problem():
    problems = chain_problems([strategy("Act", needs={"reply": str})], {})
    assert problems == ["Act needs the field 'reply', which nothing before it gives."]


def test_a_field_given_later_does_not_count():
    chain = [strategy("Act", needs={"reply": str}), strategy("Think", gives={"reply": str})]
    assert len(chain_problems(chain, {})) == 1


def test_a_mistyped_field_is_a_problem():
    chain = [strategy("Think", gives={"reply": dict}), strategy("Act", needs={"reply": str})]
    assert chain_problems(chain, {}) == ["Act needs 'reply' as str; it is given as dict."]


def test_initial_fields_count_and_optional_ones_may_be_absent():
    @depends_on("goal", StrategyDependency("hint", required=False, default_value=""))
    class Think:
        name = "Think"

    assert chain_problems([Think()], {"goal": str}) == []


def test_unions_fit_by_their_members():
    assert fits(int, int | None)
    assert fits(bool, int)
    assert not fits(int | None, int)


def test_generic_types_cannot_be_checked_and_are_refused():
    with pytest.raises(TypeError, match="plain class"):
        provides(results=list[int])(type("Bad", (), {}))


def test_a_joint_contract_needs_only_what_comes_from_outside():
    joint = combined(
        [
            strategy("A", needs={"goal": str}, gives={"x": int}),
            strategy("B", needs={"x": int, "y": int}, gives={"z": int}),
        ]
    )
    assert [dependency.field_name for dependency in joint.dependencies] == ["goal", "y"]
    assert set(joint.provides) == {"x", "z"}


def test_a_joint_need_is_the_stricter_one():
    loose = strategy("A", needs={"x": object})
    strict = strategy("B", needs={"x": int})
    assert combined([loose, strict]).dependencies[0].accepted is int


def test_broken_promises_are_named():
    contract = contract_of(strategy("A", gives={"x": int, "y": str}))
    assert broken_promises(contract, {"x": 1, "y": "a"}) == []
    assert broken_promises(contract, {"x": "1", "z": 2}) == [
        "promised 'y' and did not return it",
        "promised 'x' as int and returned str",
        "returned 'z', which it does not promise",
    ]
