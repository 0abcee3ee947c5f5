"""Messages are written and read as upstream's serializer, pydantic, does it with the same fields: byte for byte."""

import json
from typing import Any, Literal

from hypothesis import given, strategies as st
from pydantic import BaseModel

from starloom.aip import messages
from starloom.aip.extension import Note
from starloom.aip.messages import ClientMessage, ClientType, Command, Result, ResultStatus, ServerMessage, TaskStatus

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MAYBE = st.none() | TEXTS
# Floats that have one shortest form; `1e16` and `1e+16` are the same number to every reader.
NUMBERS = st.integers() | st.integers(-(10**12), 10**12).map(lambda eighths: eighths / 8)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.none() | st.dictionaries(TEXTS, VALUES, max_size=3)


class ReferenceCommand(BaseModel):
    tool_name: str
    parameters: dict[str, Any] | None = None
    tool_type: Literal["action", "data_collection"] = "action"
    call_id: str | None = None


class ReferenceResult(BaseModel):
    status: ResultStatus
    error: str | None = None
    result: Any = None
    namespace: str | None = None
    call_id: str | None = None


class ReferenceClientMessage(BaseModel):
    type: messages.ClientMessageType
    status: TaskStatus
    client_type: ClientType = ClientType.DEVICE
    session_id: str | None = None
    task_name: str | None = None
    client_id: str | None = None
    target_id: str | None = None
    request: str | None = None
    action_results: list[ReferenceResult] | None = None
    timestamp: str | None = None
    request_id: str | None = None
    prev_response_id: str | None = None
    error: str | None = None
    metadata: dict[str, Any] | None = None


class ReferenceServerMessage(BaseModel):
    type: messages.ServerMessageType
    status: TaskStatus
    user_request: str | None = None
    agent_name: str | None = None
    process_name: str | None = None
    root_name: str | None = None
    actions: list[ReferenceCommand] | None = None
    messages: list[str] | None = None
    error: str | None = None
    session_id: str | None = None
    task_name: str | None = None
    timestamp: str | None = None
    response_id: str | None = None
    result: Any = None


COMMANDS = st.fixed_dictionaries(
    {"tool_name": TEXTS},
    optional={
        "parameters": OBJECTS,
        "tool_type": st.sampled_from(["action", "data_collection"]),
        "call_id": MAYBE,
    },
)
RESULTS = st.fixed_dictionaries(
    {"status": st.sampled_from(ResultStatus)},
    optional={"error": MAYBE, "result": VALUES, "namespace": MAYBE, "call_id": MAYBE},
)
CLIENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(messages.ClientMessageType), "status": st.sampled_from(TaskStatus)},
    optional={
        "client_type": st.sampled_from(ClientType),
        "action_results": st.none() | st.lists(RESULTS, max_size=3),
        "metadata": OBJECTS,
        **dict.fromkeys(
            ("session_id", "task_name", "client_id", "target_id", "request", "timestamp", "request_id", "error"), MAYBE
        ),
    },
)
SERVERS = st.fixed_dictionaries(
    {"type": st.sampled_from(messages.ServerMessageType), "status": st.sampled_from(TaskStatus)},
    optional={
        "actions": st.none() | st.lists(COMMANDS, max_size=3),
        "messages": st.none() | st.lists(TEXTS, max_size=3),
        "result": VALUES,
        **dict.fromkeys(("user_request", "agent_name", "error", "session_id", "timestamp", "response_id"), MAYBE),
    },
)


def ours(kind: type, values: dict[str, Any]) -> Any:
    """Build our message from the same values, as the protocol cores do: by its constructor."""
    parts = {"action_results": Result, "actions": Command}
    built = {
        name: [parts[name](**element) for element in value] if name in parts and value is not None else value
        for name, value in values.items()
    }
    return kind(**built)


def check(kind: type, reference: type[BaseModel], values: dict[str, Any]) -> None:
    text = reference(**values).model_dump_json()
    assert ours(kind, values).to_json() == text
    assert kind.from_json(text).to_json() == text


@given(CLIENTS)
def test_what_clients_say_is_written_and_read_as_upstream_does(values):
    check(ClientMessage, ReferenceClientMessage, values)


@given(SERVERS)
def test_what_servers_say_is_written_and_read_as_upstream_does(values):
    check(ServerMessage, ReferenceServerMessage, values)


@given(st.floats() | st.sampled_from([1e16, 5e-324, -0.0, 2**70]))
def test_any_number_is_written_as_the_one_that_upstream_writes(number):
    values = {"type": "command_results", "status": "ok", "action_results": [{"status": "success", "result": number}]}
    text = ours(ClientMessage, values).to_json()
    assert json.loads(text) == json.loads(ReferenceClientMessage(**values).model_dump_json())


@given(CLIENTS, st.builds(Note, seq=st.none() | st.integers(1), progress=MAYBE))
def test_the_extension_stands_last_and_changes_nothing_before_it(values, note):
    plain, noted = ours(ClientMessage, values).to_json(), ours(ClientMessage, values).to_json(note)
    assert noted.startswith(plain[:-1] + ',"x_starloom":{')
    assert ClientMessage.from_json(noted).to_json() == noted
