"""Tables of states: registered by decorator, fresh for everyone, closed to unknown words."""

import pytest

from starloom.agents.states import AgentState, AgentStateManager, UnknownStatus
from starloom.errors import UsageError


def named(word, writable=True):
    class State(AgentState):
        model_may_write = writable

        @classmethod
        def name(cls):
            return word

    return State


def test_a_decorated_class_is_found_by_its_name():
    table = AgentStateManager("Agent")
    state = table.register(named("WAIT"))
    assert isinstance(table.get_state("WAIT"), state)


def test_an_unknown_word_is_an_error_that_lists_the_known_ones():
    table = AgentStateManager("Agent", [named("WAIT")])
    with pytest.raises(UnknownStatus, match=r"no state 'DONE'; it has WAIT"):
        table.get_state("DONE")
    with pytest.raises(UnknownStatus):
        table.get_state("wait")


def test_a_name_is_taken_once():
    table = AgentStateManager("Agent", [named("WAIT")])
    with pytest.raises(UsageError, match="already"):
        table.register(named("WAIT"))


def test_every_look_up_gives_a_fresh_state():
    table = AgentStateManager("Agent", [named("WAIT")])
    assert table.get_state("WAIT") is not table.get_state("WAIT")


def test_a_copy_can_grow_without_the_original():
    table = AgentStateManager("Agent", [named("WAIT")])
    copy = table.copy()
    copy.register(named("EXTRA"))
    assert table.names == ("WAIT",)
    assert copy.names == ("WAIT", "EXTRA")


def test_words_for_models_leave_out_what_only_we_set():
    table = AgentStateManager("Agent", [named("WAIT"), named("ERROR", writable=False)])
    assert table.words_for_models == ("WAIT",)


async def test_the_defaults_are_those_of_a_state_that_waits():
    state = named("WAIT")()
    assert await state.handle(None, None) is None
    assert not state.is_round_end()
    assert not state.is_subtask_end()
    assert state.next_agent("me") == "me"
    with pytest.raises(NotImplementedError):
        AgentState.name()
