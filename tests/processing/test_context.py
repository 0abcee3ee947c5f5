"""`Context`: checked names, round values that cannot differ, and a form that survives JSON."""

import json
import logging

import pytest
from hypothesis import given, strategies as st

from starloom.processing.context import Context
from starloom.processing.names import ContextNames


def test_every_name_can_be_read_before_it_was_set():
    context = Context()
    for name in ContextNames:
        assert context.get(name) == name.default_value


def test_a_value_is_read_as_it_was_set():
    context = Context()
    context.set(ContextNames.REQUEST, "send an email")
    assert context.get(ContextNames.REQUEST) == "send an email"
    assert context.get("REQUEST") == "send an email"


def test_an_unknown_name_is_a_key_error_with_a_suggestion():
    with pytest.raises(KeyError, match="Did you mean REQUEST"):
        Context().get("REQEST")
    with pytest.raises(KeyError):
        Context().set("NOTHING_LIKE_IT_AT_ALL", 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (ContextNames.SESSION_STEP, "abc"),
        (ContextNames.SESSION_STEP, True),
        (ContextNames.SESSION_COST, "1.0"),
        (ContextNames.REQUEST, None),
        (ContextNames.TOOL_INFO, []),
        (ContextNames.DEVICE_INFO, {}),
        (ContextNames.WEAVING_MODE, "sideways"),
        (ContextNames.ROUND_STEP, {"0": 1}),
        (ContextNames.ROUND_STEP, {0: 1.5}),
        (ContextNames.ROUND_COST, {0: "free"}),
    ],
)
def test_a_wrong_type_is_a_type_error_that_names_the_field(name, value):
    with pytest.raises(TypeError, match=name.name):
        Context().set(name, value)


def test_whole_dollars_are_stored_as_a_float():
    context = Context()
    context.set(ContextNames.SESSION_COST, 2)
    assert isinstance(context.get(ContextNames.SESSION_COST), float)


def test_update_dict_merges_and_refuses_what_is_no_dictionary():
    context = Context()
    context.update_dict(ContextNames.TOOL_INFO, {"a": 1})
    context.update_dict(ContextNames.TOOL_INFO, {"b": 2})
    assert context.get(ContextNames.TOOL_INFO) == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="REQUEST"):
        context.update_dict(ContextNames.REQUEST, {"a": 1})
    with pytest.raises(TypeError, match="TOOL_INFO"):
        context.update_dict(ContextNames.TOOL_INFO, ["a"])
    with pytest.raises(TypeError, match="ROUND_COST"):
        context.update_dict(ContextNames.ROUND_COST, {0: "x"})


operations = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 50)),
        st.tuples(st.just("round"), st.integers(0, 3)),
        st.tuples(st.just("dict"), st.tuples(st.integers(0, 3), st.integers(0, 50))),
    ),
    max_size=30,
)


@given(operations)
def test_the_current_rounds_step_always_equals_its_dictionary_entry(moves):
    context = Context()
    for kind, value in moves:
        if kind == "step":
            context.current_round_step = value
        elif kind == "round":
            context.set(ContextNames.CURRENT_ROUND_ID, value)
        else:
            context.update_dict(ContextNames.ROUND_STEP, {value[0]: value[1]})
        entry = context.get(ContextNames.ROUND_STEP).get(context.current_round_id, 0)
        assert context.current_round_step == context.get(ContextNames.CURRENT_ROUND_STEP) == entry


def test_cost_and_subtask_amount_are_kept_per_round():
    context = Context()
    context.current_round_cost += 0.5
    context.current_round_subtask_amount += 1
    context.set(ContextNames.CURRENT_ROUND_ID, 1)
    assert context.current_round_cost == 0.0
    assert context.current_round_subtask_amount == 0
    context.set(ContextNames.CURRENT_ROUND_COST, 0.25)
    assert context.get(ContextNames.ROUND_COST) == {0: 0.5, 1: 0.25}


def test_reading_a_round_that_was_never_written_leaves_no_entry():
    context = Context()
    assert context.current_round_step == 0
    assert context.get(ContextNames.ROUND_STEP) == {}


def test_two_contexts_share_nothing():
    one, other = Context(), Context()
    tools = {"a": 1}
    one.set(ContextNames.TOOL_INFO, tools)
    other.set(ContextNames.TOOL_INFO, tools)
    one.update_dict(ContextNames.TOOL_INFO, {"b": 2})
    one.add_to_structural_logs({"Round": 0, "SubtaskIndex": 0, "x": 1})
    assert other.get(ContextNames.TOOL_INFO) == {"a": 1} == tools
    assert other.get(ContextNames.STRUCTURAL_LOGS) == {}


def test_structural_logs_are_filed_by_round_and_subtask():
    context = Context()
    context.add_to_structural_logs({"Round": 0, "SubtaskIndex": 1, "cost": 1, "step": 7})
    context.add_to_structural_logs({"Round": 0, "SubtaskIndex": 1, "cost": 2, "step": 8})
    context.add_to_structural_logs({"Round": 0, "cost": 3})
    assert context.filter_structural_logs(0, 1, "cost") == [1, 2]
    assert context.filter_structural_logs(0, 1, ["step"]) == [{"step": 7}, {"step": 8}]
    assert context.filter_structural_logs(5, 5, "cost") == []
    assert list(context.get(ContextNames.STRUCTURAL_LOGS)) == [0]


def test_to_dict_puts_none_where_a_value_has_no_json_form():
    context = Context()
    context.set(ContextNames.LOGGER, logging.getLogger("x"))
    assert context.to_dict()["LOGGER"] is logging.getLogger("x")
    assert context.to_dict(ensure_serializable=True)["LOGGER"] is None


def test_a_snapshot_does_not_change_afterwards():
    context = Context()
    before = context.to_dict()
    context.current_round_step = 4
    assert before["ROUND_STEP"] == {}


def test_a_context_survives_a_trip_through_json():
    context = Context()
    context.set(ContextNames.CURRENT_ROUND_ID, 2)
    context.set(ContextNames.REQUEST, "总结发票")
    context.current_round_step = 5
    context.current_round_cost = 0.125
    context.set(ContextNames.LOGGER, object())
    context.add_to_structural_logs({"Round": 2, "SubtaskIndex": 0, "x": 1})
    restored = Context()
    restored.from_dict(json.loads(json.dumps(context.to_dict(ensure_serializable=True))))
    assert restored.current_round_step == 5
    assert restored.current_round_cost == 0.125
    assert restored.filter_structural_logs(2, 0, "x") == [1]
    restored.add_to_structural_logs({"Round": 3, "SubtaskIndex": 0, "x": 2})
    assert restored.get(ContextNames.REQUEST) == "总结发票"
    assert restored.get(ContextNames.WEAVING_MODE) is context.get(ContextNames.WEAVING_MODE)


def test_current_round_values_alone_are_restored_into_their_dictionary():
    restored = Context()
    restored.from_dict({"CURRENT_ROUND_STEP": 3, "CURRENT_ROUND_ID": 4})
    assert restored.get(ContextNames.ROUND_STEP) == {4: 3}


def test_a_refused_restore_changes_nothing():
    context = Context()
    context.set(ContextNames.REQUEST, "kept")
    with pytest.raises(TypeError, match="SESSION_STEP"):
        context.from_dict({"REQUEST": "new", "SESSION_STEP": "three"})
    with pytest.raises(KeyError):
        context.from_dict({"REQUEST": "new", "WHAT": 1})
    assert context.get(ContextNames.REQUEST) == "kept"


def test_a_dispatcher_can_be_attached():
    class Dispatcher:
        async def execute_commands(self, commands, *, timeout_s=None):
            return []

    context = Context()
    assert context.command_dispatcher is None
    dispatcher = Dispatcher()
    context.attach_command_dispatcher(dispatcher)
    assert context.command_dispatcher is dispatcher


def test_text_is_typed():
    context = Context()
    assert context.text(ContextNames.REQUEST) == ""
    with pytest.raises(TypeError, match="SESSION_STEP"):
        context.text(ContextNames.SESSION_STEP)
