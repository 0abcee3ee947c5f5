"""Answers find their commands: by id and session, once, in order."""

from hypothesis import given, strategies as st

from starloom.aip.commands import NO_RESULT, CommandBook, in_order
from starloom.aip.messages import ClientMessage, Result


def answer(response_id, session_id="s", results=()):
    return ClientMessage(
        type="command_results",
        status="continue",
        session_id=session_id,
        prev_response_id=response_id,
        action_results=list(results),
    )


def test_answer_counts_once_and_only_for_its_session():
    book = CommandBook()
    book.add("r1", "s", ["c1"])
    assert book.settle(answer("r1", "other")) is None
    assert book.settle(answer("unknown")) is None
    assert book.settle(answer(None)) is None
    ok = Result(status="success", call_id="c1", result=5)
    assert book.settle(answer("r1", results=[ok])) == ("r1", [ok])
    assert book.settle(answer("r1", results=[ok])) is None


def test_forgotten_command_takes_no_answer():
    book = CommandBook()
    book.add("r1", "s", [])
    assert [waiting.response_id for waiting in book.waiting()] == ["r1"]
    book.forget("r1")
    assert book.settle(answer("r1")) is None
    assert len(book) == 0


@given(st.permutations(["c1", "c2", "c3"]), st.integers(0, 3))
def test_results_are_put_into_the_commands_order_and_missing_ones_have_failed(order, given_count):
    results = [Result(status="success", call_id=call_id, result=call_id) for call_id in order[:given_count]]
    ordered = in_order(["c1", "c2", "c3"], results)
    assert [result.call_id for result in ordered] == ["c1", "c2", "c3"]
    for result in ordered:
        if result.call_id in order[:given_count]:
            assert result.result == result.call_id
        else:
            assert (result.status, result.error) == ("failure", NO_RESULT)


def test_results_without_ids_count_by_position_and_surplus_is_dropped():
    results = [Result(status="success", result=number) for number in range(4)]
    assert [(result.call_id, result.result) for result in in_order(["a", "b"], results)] == [("a", 0), ("b", 1)]


def test_doubled_or_foreign_ids_count_by_position():
    results = [Result(status="success", call_id="x", result=0), Result(status="success", call_id="x", result=1)]
    assert [(result.call_id, result.result) for result in in_order(["a", "b"], results)] == [("a", 0), ("b", 1)]
