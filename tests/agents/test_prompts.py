"""The words of a prompt: tools on one line each, statuses with their meaning, budgets kept."""

import pytest

from starloom.agents.memory import estimate_tokens
from starloom.agents.plans import ToolProfile
from starloom.agents.prompts import schema_word, status_lines, system_text, tool_line
from starloom.agents.shell_agent import LINUX_STATES
from starloom.safety.policy import Risk
from starloom.tools.builtin import builtin_toolsets
from starloom.tools.workspace import Workspace


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "string"}, "string"),
        ({"enum": ["a", 1]}, '"a"|1'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer|null"),
        ({"type": "array", "items": {"type": "string"}}, "list[string]"),
        ({"type": "array"}, "list[any]"),
        ({"type": "object", "properties": {"a": {"type": "number"}}}, "{a: number}"),
        ({"type": "object"}, "object"),
        ({}, "any"),
        (True, "any"),
    ],
)
def test_a_schema_has_a_short_word(schema, word):
    assert schema_word(schema) == word


def test_a_tool_is_one_line_and_marks_what_may_be_left_out():
    schema = {"properties": {"path": {"type": "string"}, "n": {"type": "integer"}}, "required": ["path"]}
    line = tool_line(ToolProfile("files.read", "Read it.", schema, Risk.READ))
    assert line == "- files.read(path: string, n?: integer) [read] Read it."


def test_an_argument_that_takes_a_result_says_so_to_planners():
    schema = {"properties": {"tables": {"type": "array", "items": {"type": "object", "x-reference": True}}}}
    tool = ToolProfile("sheets.write", "", schema)
    assert tool_line(tool, references=True) == "- sheets.write(tables?: list[result of an earlier step])"
    assert tool_line(tool) == "- sheets.write(tables?: list[object])"


def test_every_status_that_a_model_may_write_has_a_meaning():
    assert "see the role" not in status_lines(LINUX_STATES.words_for_models)


def test_the_stable_part_with_all_builtin_tools_is_small(tmp_path):
    tools = [
        ToolProfile(tool.name, tool.description, tool.input_schema, tool.risk)
        for toolset in builtin_toolsets(Workspace(tmp_path))
        for tool in toolset.tools
    ]
    assert estimate_tokens(system_text(tools, LINUX_STATES.words_for_models)) <= 1_500
