"""What flows along edges: conditions decide, references carry."""

import cel
import pytest

from starloom.constellation.conditions import (
    FUNCTIONS,
    ConditionProblem,
    check_condition,
    holds,
    recorded_conditions,
)
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.enums import CancelReason, ConstellationState, EdgeOutcome
from starloom.constellation.fields import FieldProblem
from starloom.constellation.line import TaskStarLine
from starloom.constellation.problems import EditError
from starloom.constellation.references import ReferenceProblem, references_in, resolve
from starloom.constellation.star import TaskStar


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ("status == 'completed' && result.total > 100", True),
        ("result.total > 1000", False),
        ("'urgent' in result.tags", True),
        ("result.tags.exists(tag, tag.startsWith('u'))", True),
        ("error == null", True),
        ("has(result.nothing)", False),
    ],
)
def test_conditions_are_asked_of_status_result_and_error(condition, answer):
    assert holds(condition, "completed", {"total": 120, "tags": ["urgent"]}, None, {}) is answer


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("result.missing == 1", "missing"),
        ("result", "neither true nor false"),
        ("1 / 0 == 1", "division"),
        ("call:unknown", "No callable 'unknown'"),
        ("call:broken", "raised ZeroDivisionError"),
    ],
)
def test_a_condition_that_cannot_be_decided_says_why(condition, words):
    with pytest.raises(ConditionProblem, match=words):
        holds(condition, "completed", {"n": 1}, None, {"broken": lambda status, result, error: 1 / 0})


def test_conditions_are_no_python():
    for text in ("result.__class__ == 1 ||", "lambda: 1", "x" * 3_000, "os.system"):
        with pytest.raises(FieldProblem):
            TaskStarLine("a", "b", condition=text)
    for text in ("__import__('os') == 1", "result.__class__ == 1", "eval('1') == 1"):
        with pytest.raises(ConditionProblem):
            holds(text, "completed", {}, None, {})


def pair(**line):
    constellation = TaskConstellation(callables={"big": lambda status, result, error: result > 10})
    for name in ("a", "b", "c"):
        constellation.add_task(TaskStar(name))
    constellation.add_dependency(TaskStarLine("a", "b", **line))
    constellation.add_dependency(TaskStarLine("b", "c", "success_only"))
    return constellation


def test_a_registered_callable_decides_by_name():
    constellation = pair(condition="call:big")
    assert [star.task_id for star in constellation.mark_task_completed("a", result=11)] == ["b"]
    constellation = pair(condition="call:big")
    assert constellation.mark_task_completed("a", result=1) == []
    assert constellation.get_task("c").cancel_reason is CancelReason.UNREACHABLE


def test_a_condition_that_raises_is_unsatisfiable_with_its_error_on_the_edge():
    constellation = pair(condition="result.n > 1")
    constellation.mark_task_completed("a", result={})
    assert constellation.lines["a->b"].outcome is EdgeOutcome.UNSATISFIABLE
    assert "'n'" in constellation.lines["a->b"].error
    assert "'n'" in constellation.get_task("b").detail
    assert constellation.state is ConstellationState.COMPLETED


def test_a_conditional_edge_from_an_ended_task_is_asked_when_it_is_added():
    constellation = TaskConstellation()
    for name in ("a", "b"):
        constellation.add_task(TaskStar(name))
    constellation.mark_task_completed("a", result={"n": 2})
    editor = ConstellationEditor(constellation)
    editor.add_dependency(TaskStarLine("a", "b", condition="result.n == 2"))
    assert "b" not in constellation.ready
    assert [star.task_id for star in constellation.settle()] == ["b"]


def test_references_are_found_wherever_they_stand():
    found = references_in(
        "{{ tasks.a.result }}", ["{{tasks.b-1.error}}"], {"k": [{"x": '{{ tasks["odd id"].status }}'}]}
    )
    assert found == {"a", "b-1", "odd id"}
    assert references_in("{{ other }} and {{ parameters.x }}", 3, None) == frozenset()
    with pytest.raises(ReferenceProblem, match="cannot be read"):
        references_in("{{ tasks.a.reslt }}")


def test_references_keep_their_type_alone_and_read_as_text_inside():
    def lookup(task, part):
        return {"rows": [{"sum": 4}], "ok": True} if part == "result" else f"{task} {part}"

    assert resolve("{{ tasks.a.result.rows[0].sum }}", lookup) == 4
    assert resolve(["{{ tasks.a.result.rows }}"], lookup) == [[{"sum": 4}]]
    assert resolve({"t": "sum {{ tasks.a.result.rows[0].sum }}, {{ tasks.a.error }}"}, lookup) == {
        "t": "sum 4, a error"
    }
    assert resolve("{{ tasks.a.result.ok }}", lookup) is True
    assert resolve(7, lookup) == 7
    for path in (".none", ".rows[3]", ".ok.x", ".rows.sum"):
        with pytest.raises(ReferenceProblem, match="leads nowhere"):
            resolve("{{ tasks.a.result" + path + " }}", lookup)


def test_a_result_is_data_and_never_resolved_again():
    assert resolve("{{ tasks.a.result }}", lambda task, part: "{{ tasks.b.result }}") == "{{ tasks.b.result }}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_listed_function_exists(name):
    """What the library knows of a name it says when the name is called: undefined, or not with these arguments."""
    forms = [f"{name}('1')", f"'abc'.{name}('a')", f"timestamp('2026-01-02T03:04:05Z').{name}()", f"{name}('1s')"]
    said = []
    for form in (*forms, f"{name}('2026-01-02T03:04:05Z')"):
        try:
            cel.compile(form).execute({})
        except (ValueError, TypeError, RuntimeError) as problem:
            said.append(str(problem))
    assert len([text for text in said if f"Undefined variable or function: '{name}'" in text]) < len(forms) + 1


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("result.tags.exist(tag, tag == 'a')", "calls 'exist', which does not exist. Did you mean 'exists'?"),
        ("len(result) > 1", "calls 'len'"),
        ("status.upper() == 'A'", "There are the functions size, contains"),
        ("result.tags.map(tag, lower(tag)).size() > 0", "calls 'lower'"),
    ],
)
def test_an_unknown_function_is_refused_with_the_edit(condition, words):
    constellation = TaskConstellation()
    editor = ConstellationEditor(constellation)
    editor.batch([{"command": "add_task", "task": {"task_id": name}} for name in ("a", "b")])
    line = {"from_task_id": "a", "to_task_id": "b", "dependency_type": "conditional", "condition": condition}
    with pytest.raises(EditError) as refused:
        editor.batch([{"command": "add_dependency", "dependency": line}])
    assert words in refused.value.message
    assert constellation.dependency_count == 0


def test_what_an_older_version_recorded_is_taken_as_it_is_and_says_why_when_it_is_asked():
    condition = "len(result) > 1"
    with recorded_conditions():
        check_condition(condition)
    with pytest.raises(ConditionProblem, match="len"):
        holds(condition, "completed", [1], None, {})
    with pytest.raises(FieldProblem):
        check_condition(condition)
