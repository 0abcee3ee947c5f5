"""Recipes: typed parameters are bound, checked and put in their places."""

import pytest

from starloom.constellation.documents import canonical_json
from starloom.constellation.problems import ConstellationError, DocumentError
from starloom.constellation.recipe import load_recipe, parse_recipe

RECIPE = r"""
name: monthly totals
description: Sums the invoices of a month.
parameters:
  month: {type: text, default: "2026-10", pattern: '\d{4}-\d{2}'}
  limit: {type: integer, min: 1, max: 100}
  ratio: {type: number, default: 0.5}
  dry: {type: boolean, default: false}
  kind: {type: choice, choices: [pdf, text], default: pdf}
  day: {type: date, required: false}
  folders: {type: list, default: [north]}
  options: {type: object, default: {deep: {level: 3}}}
tasks:
  - task_id: read
    description: "Read {{ parameters.month }} of {{parameters.folders}}"
    task_data:
      tool: files.read
      arguments: {limit: "{{ parameters.limit }}", dry: "{{ parameters.dry }}", day: "{{ parameters.day }}",
                  level: "{{ parameters.options.deep.level }}", first: "{{ parameters.folders[0] }}"}
  - task_id: join
    after: [read]
    description: "{{ tasks.read.result }}"
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "totals.yaml"
    path.write_text(RECIPE)
    return load_recipe(path)


def test_parameters_keep_their_type_alone_and_read_as_text_inside(recipe):
    constellation = recipe.instantiate({"limit": "7", "dry": "yes", "folders": "a, b"})
    read = constellation.get_task("read")
    assert read.description == 'Read 2026-10 of ["a", "b"]'
    assert read.task_data["arguments"] == {"limit": 7, "dry": True, "day": None, "level": 3, "first": "a"}
    assert constellation.get_task("join").spec.references == {"read"}
    assert constellation.name == "monthly totals"


def test_every_run_gets_a_fresh_graph(recipe):
    first, second = recipe.instantiate({"limit": 1}), recipe.instantiate({"limit": 1})
    assert first.get_task("read") is not second.get_task("read")
    assert first.constellation_id != second.constellation_id
    assert canonical_json(first).replace(first.constellation_id, "") == canonical_json(second).replace(
        second.constellation_id, ""
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "parameter 'limit' is missing"),
        ({"limit": 0}, "at least 1"),
        ({"limit": 101}, "at most 100"),
        ({"limit": "many"}, "type integer"),
        ({"limit": True}, "type integer"),
        ({"limit": 1, "month": "October"}, "a text like"),
        ({"limit": 1, "dry": "perhaps"}, "type boolean"),
        ({"limit": 1, "kind": "doc"}, "one of 'pdf', 'text'"),
        ({"limit": 1, "day": "2026-13-01"}, "type date"),
        ({"limit": 1, "ratio": "inf"}, "type number"),
        ({"limit": 1, "options": "[1]"}, "type object"),
        ({"limit": 1, "mnoth": "x"}, "Did you mean 'month'"),
    ],
)
def test_wrong_values_are_refused_by_name(recipe, given, words):
    with pytest.raises(ConstellationError) as refused:
        recipe.bind(given)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"x": {"type": "colour"}}, "type is 'colour'"),
        ({"x": {"typo": 1}}, "no field 'typo'"),
        ({"x": {"type": "choice"}}, "choices is missing"),
        ({"x": {"type": "integer", "default": "many"}}, "type integer"),
        ({"x": {"pattern": "("}}, "not a regular expression"),
        ({"x": {"min": "low"}}, "min must be a number"),
        ([], "is used, but"),
        ({"y": 1}, "parameters has no 'x'"),
    ],
)
def test_a_bad_declaration_is_refused_with_its_place(parameters, words):
    document = {"parameters": parameters, "tasks": [{"task_id": "a", "name": "{{ parameters.x }}"}]}
    with pytest.raises(DocumentError) as refused:
        parse_recipe(document, where="r.yaml")
    assert words in refused.value.message
    assert "r.yaml" in refused.value.message


def test_a_bare_value_declares_its_type_and_a_plain_document_is_a_recipe():
    recipe = parse_recipe({"name": "n", "parameters": {"x": 3, "y": 0.5, "z": True, "w": "s"}, "tasks": []})
    kinds = {name: parameter.type.value for name, parameter in recipe.parameters.items()}
    assert kinds == {"x": "integer", "y": "number", "z": "boolean", "w": "text"}
    assert parse_recipe({"tasks": [{"task_id": "a"}]}).instantiate({}).task_count == 1
