"""Tool calls are checked against what is offered before anything is asked or sent."""

import pytest

from starloom.agents.arguments import argument_problems, call_problems
from starloom.agents.plans import ToolProfile

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "rows": {"type": "array", "items": {"type": "object"}},
        "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["path"],
    "additionalProperties": False,
}
TOOL = ToolProfile("sheets.write", "", SCHEMA, destinations=("path", "rows", "absent"))


def test_a_fitting_call_has_no_problems():
    assert call_problems("sheets.write", {"path": "a.xlsx", "rows": [{}], "count": 2}, [TOOL]) == []


def test_an_unknown_tool_is_named_with_a_suggestion():
    assert call_problems("sheet.write", {}, [TOOL]) == ["tool: there is no 'sheet.write'. Did you mean sheets.write?"]
    assert call_problems("zzz", {}, [TOOL]) == ["tool: there is no 'zzz'. There are: sheets.write."]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({}, "path"),
        ({"path": 3}, "path: 3"),
        ({"path": "a", "pth": "b"}, "pth"),
        ({"path": "a", "rows": [1]}, "rows.0"),
    ],
)
def test_each_fault_is_one_line_with_its_place(arguments, place):
    [line] = argument_problems(TOOL, arguments)
    assert place in line


def test_a_reference_fits_anything_where_references_are_allowed():
    arguments = {"path": "a", "rows": "{{ tasks.s1.result.rows }}", "count": "{{ tasks.s1.result.n }}"}
    assert argument_problems(TOOL, arguments, references=True) == []
    assert len(argument_problems(TOOL, arguments)) == 2


def test_a_reference_does_not_excuse_another_fault():
    arguments = {"rows": ["{{ tasks.s1.result }}"], "count": "many"}
    assert len(argument_problems(TOOL, arguments, references=True)) == 2
