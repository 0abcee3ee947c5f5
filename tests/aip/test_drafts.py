"""What is written without a model is written as the model would be, byte for byte."""

import pytest
from hypothesis import given, strategies as st

from starloom.aip import drafts
from starloom.aip.messages import ClientMessage, ClientType, Command, Result, ResultStatus, ServerMessage, TaskStatus

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MAYBE = st.none() | TEXTS
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.none() | st.dictionaries(TEXTS, VALUES, max_size=3)
EXTENSIONS = st.none() | st.fixed_dictionaries({"seq": st.integers(1)}, optional={"progress": TEXTS})
COMMANDS = st.builds(
    Command, tool_name=TEXTS, parameters=OBJECTS, tool_type=st.sampled_from(["action", "data_collection"])
)
RESULTS = st.builds(
    Result, status=st.sampled_from(ResultStatus), error=MAYBE, result=VALUES, namespace=MAYBE, call_id=MAYBE
)


def same(draft, model, extension):
    assert drafts.written(draft, extension) == drafts.written(model(**draft), extension)


@given(
    st.lists(COMMANDS, max_size=3),
    st.fixed_dictionaries(
        {
            "session_id": TEXTS,
            "task_name": MAYBE,
            "agent_name": MAYBE,
            "process_name": MAYBE,
            "root_name": MAYBE,
            "timestamp": TEXTS,
            "response_id": TEXTS,
        }
    ),
    EXTENSIONS,
)
def test_command_is_written_as_its_model(commands, said, extension):
    actions = [drafts.action(command, str(number)) for number, command in enumerate(commands)]
    same(drafts.command(actions, **said), ServerMessage, extension)


@given(
    st.lists(RESULTS, max_size=3),
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(TaskStatus),
            "client_id": TEXTS,
            "session_id": MAYBE,
            "timestamp": TEXTS,
            "request_id": TEXTS,
            "prev_response_id": MAYBE,
        }
    ),
    EXTENSIONS,
)
def test_results_are_written_as_their_model(results, said, extension):
    same(drafts.command_results(results, **said), ClientMessage, extension)


@given(MAYBE, TEXTS, TEXTS, EXTENSIONS)
def test_servers_heartbeat_is_written_as_its_model(session_id, timestamp, response_id, extension):
    draft = drafts.server_heartbeat(session_id=session_id, timestamp=timestamp, response_id=response_id)
    same(draft, ServerMessage, extension)


@given(st.sampled_from(ClientType), TEXTS, TEXTS, OBJECTS, EXTENSIONS)
def test_clients_heartbeat_is_written_as_its_model(client_type, client_id, timestamp, metadata, extension):
    draft = drafts.client_heartbeat(
        client_type=client_type, client_id=client_id, timestamp=timestamp, metadata=metadata
    )
    same(draft, ClientMessage, extension)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300, -0.0])
def test_odd_numbers_are_written_alike(number):
    result = Result(status="success", result={"number": number})
    said = {"client_id": "a", "session_id": None, "timestamp": "t", "request_id": "r", "prev_response_id": None}
    draft = drafts.command_results([result], status=TaskStatus.CONTINUE, **said)
    same(draft, ClientMessage, None)
