"""Reply schemas: closed, with the status words of the agent's own table."""

import pytest
from pydantic import ValidationError

from starloom.agents.app_agent import APP_STATES
from starloom.agents.host_agent import HOST_STATES
from starloom.agents.replies import (
    AppAgentResponse,
    DeviceAgentResponse,
    HostAgentResponse,
    device_reply_problems,
    host_reply_problems,
    reply_schema,
)
from starloom.agents.shell_agent import LINUX_STATES
from starloom.agents.states import AgentState

DEVICE = reply_schema(DeviceAgentResponse, LINUX_STATES)
HOST = reply_schema(HostAgentResponse, HOST_STATES)


def test_the_schema_lists_exactly_the_words_of_the_table():
    assert DEVICE.model_json_schema()["properties"]["status"]["enum"] == [
        "CONTINUE",
        "PENDING",
        "CONFIRM",
        "FINISH",
        "FAIL",
    ]
    app = reply_schema(AppAgentResponse, APP_STATES)
    assert "SCREENSHOT" in app.model_json_schema()["properties"]["status"]["enum"]
    assert "ASSIGN" in HOST.model_json_schema()["properties"]["status"]["enum"]


@pytest.mark.parametrize("status", ["DONE", "finish", "ERROR", "", None, "SCREENSHOT"])
def test_an_unknown_status_is_a_validation_error(status):
    with pytest.raises(ValidationError, match="status"):
        DEVICE.model_validate({"thought": "t", "status": status})


def test_a_new_state_gives_the_model_a_new_word():
    table = LINUX_STATES.copy()

    @table.register
    class Nap(AgentState):
        @classmethod
        def name(cls):
            return "NAP"

    assert reply_schema(DeviceAgentResponse, table).model_validate({"thought": "t", "status": "NAP"}).status == "NAP"


@pytest.mark.parametrize("extra", [{"result_status": "ok"}, {"action": {"tool": "a", "result": "success"}}])
def test_what_nobody_reads_is_an_error(extra):
    with pytest.raises(ValidationError):
        DEVICE.model_validate({"thought": "t", "status": "CONTINUE", **extra})


def test_one_action_and_a_list_are_read_alike():
    one = DEVICE.model_validate({"thought": "t", "status": "CONTINUE", "action": {"tool": "a"}})
    many = DEVICE.model_validate({"thought": "t", "status": "CONTINUE", "action": [{"tool": "a"}]})
    assert one.actions == many.actions
    assert DEVICE.model_validate({"thought": "t", "status": "FINISH"}).actions == ()


def test_an_empty_list_never_means_done():
    for status in ("CONTINUE", "CONFIRM"):
        value = DEVICE.model_validate({"thought": "t", "status": status, "action": []})
        assert "needs at least one action" in device_reply_problems(value)[0]


def test_pending_needs_a_question():
    value = DEVICE.model_validate({"thought": "t", "status": "PENDING"})
    assert device_reply_problems(value) == ["questions: the status PENDING needs at least one question."]


def test_an_assignment_needs_a_subtask_and_a_known_application():
    value = HOST.model_validate({"thought": "t", "status": "ASSIGN", "application": "excel"})
    assert len(host_reply_problems(value, ["files"])) == 2
    good = HOST.model_validate(
        {"thought": "t", "status": "ASSIGN", "application": "files", "current_subtask": "read a.txt"}
    )
    assert host_reply_problems(good, ["files"]) == []
    pending = HOST.model_validate({"thought": "t", "status": "PENDING"})
    assert host_reply_problems(pending, ["files"])
