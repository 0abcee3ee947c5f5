"""The wire's JSON: upstream's fields, order and bytes; deaf to what is unknown, strict about closed sets."""

import json
from pathlib import Path

import pytest

from starloom.aip.extension import Note
from starloom.aip.messages import (
    ClientMessage,
    ClientMessageType,
    ClientType,
    MalformedMessage,
    ServerMessage,
    TaskStatus,
)

ROWS = [
    json.loads(line) for line in (Path(__file__).parent / "recorded" / "frames.jsonl").read_text("utf-8").splitlines()
]
# Frames of upstream's own programs; its raw test peers wrote JSON with spaces or left fields out.
UPSTREAMS_OWN = [
    (row["seq"], ServerMessage if row["dir"] == "s2c" else ClientMessage, row["text"])
    for row in ROWS
    if row["op"] == "text" and (row["dir"] == "s2c" or not row["flow"].startswith("raw"))
]


def test_every_recorded_frame_of_upstream_is_written_back_byte_for_byte():
    assert len(UPSTREAMS_OWN) > 150
    for seq, model, text in UPSTREAMS_OWN:
        assert model.from_json(text).to_json() == text, seq


def test_only_type_and_status_are_required_and_everything_is_written():
    message = ClientMessage.from_json('{"type":"heartbeat","status":"ok"}')
    assert message.client_type is ClientType.DEVICE
    assert list(json.loads(message.to_json())) == [
        "type", "status", "client_type", "session_id", "task_name", "client_id", "target_id", "request",
        "action_results", "timestamp", "request_id", "prev_response_id", "error", "metadata",
    ]  # fmt: skip


def test_unknown_fields_are_ignored():
    text = '{"type":"heartbeat","status":"ok","x_version":"9","extra":{"a":1}}'
    assert "extra" not in ClientMessage.from_json(text).to_json()


def test_extension_is_written_last_and_only_when_set():
    plain = ServerMessage(type="heartbeat", status="ok")
    assert "x_starloom" not in plain.to_json()
    assert plain.to_json(Note(seq=1)).endswith(',"x_starloom":{"seq":1}}')


@pytest.mark.parametrize("value", [0, "", [], False, 0.0, {}])
def test_falsy_results_stay_what_they_are(value):
    frame = {
        "type": "command_results",
        "status": "continue",
        "action_results": [{"status": "success", "result": value}],
    }
    message = ClientMessage.from_json(json.dumps(frame))
    assert json.loads(message.to_json())["action_results"][0]["result"] == value


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{oops", "json_invalid"),
        ("[]", "type"),
        ('{"type":"cancel","status":"ok"}', "enum at type"),
        ('{"type":"heartbeat"}', "missing at status"),
        ('{"type":"heartbeat","status":"ok","client_type":null}', "type at client_type"),
        ('{"type":"heartbeat","status":"ok","client_id":5}', "type at client_id"),
        ('{"type":"task","status":"ok","action_results":[{"status":"good"}]}', "enum at action_results[0].status"),
        ('{"type":"task","status":"ok","action_results":[{}]}', "missing at action_results[0].status"),
        ('{"type":"task","status":"ok","metadata":{"a`$.b":' + "9" * 5000 + "}}", "value at metadata[...]"),
        ('{"type":"task","status":"ok","metadata":{"a":NaN}}', "json_invalid"),
        ('{"type":"task","status":"ok","metadata":{"a":"\\ud800"}}', "json_invalid"),
        ('{"type":"task","status":"ok","metadata":' + '{"a":' * 100_000, "json_invalid"),
        ("", "json_invalid"),
        ("[" * 100_000, "json_invalid"),
        ("\ud800", "json_invalid"),
        ('{"type":"task","status":"ok","metadata":{"a":' + "[" * 200 + "]" * 200 + "}}", "json_invalid"),
        (
            '{"type":"task","status":"ok","action_results":[{"status":"ok"}],"x":' + "[" * 201 + "]" * 201 + "}",
            "json_invalid",
        ),
    ],
)
def test_what_is_no_message_is_refused_with_a_short_code(text, code):
    with pytest.raises(MalformedMessage) as refused:
        ClientMessage.from_json(text)
    assert refused.value.code == code
    assert code in str(refused.value)


def test_messages_cannot_be_changed():
    message = ClientMessage(type=ClientMessageType.HEARTBEAT, status=TaskStatus.OK)
    with pytest.raises(AttributeError, match="immutable"):
        message.client_id = "x"


@pytest.mark.parametrize("depth", [1, 100, 197])
def test_what_upstream_can_send_is_not_too_deep(depth):
    text = '{"type":"task","status":"ok","metadata":{"a":' + "[" * depth + "]" * depth + "}}"
    assert ClientMessage.from_json(text).to_json().count("[") == depth


def test_many_brackets_are_not_deep():
    metadata = {"a": [{}] * 1000, "b": "[" * 1000}
    text = json.dumps({"type": "task", "status": "ok", "metadata": metadata})
    assert ClientMessage.from_json(text).metadata == metadata
