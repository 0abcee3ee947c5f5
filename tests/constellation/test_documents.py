"""Documents: upstream's three dialects and ours are read; bad ones get one clear error that names the place."""

import json

import pytest

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import (
    build,
    canonical_json,
    load,
    normal_document,
    read_document,
    read_file,
    save,
    to_document,
    to_recipe,
    to_yaml,
)
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.enums import DependencyType, EdgeOutcome, TaskPriority, TaskStatus
from starloom.constellation.problems import DocumentError

FORM_A = {
    "constellation_id": "c1",
    "name": "demo",
    "state": "ready",
    "tasks": {
        "a": {
            "task_id": "a", "name": "a", "description": "do a", "tips": None, "task_description": "do a",
            "target_device_id": "dev1", "device_type": None, "priority": 2, "status": "completed",
            "result": {"n": 1}, "error": None, "timeout": None, "retry_count": 0, "current_retry": 0, "task_data": {},
            "expected_output_type": None, "created_at": "2026-01-01T00:00:00+00:00", "updated_at": "…",
            "execution_start_time": None, "execution_end_time": None, "execution_duration": None,
            "dependencies": [], "dependents": ["b"],
        },
        "b": {"task_id": "b", "name": "b", "description": "do b", "priority": 3, "status": "running"},
    },
    "dependencies": {
        "l1": {
            "line_id": "l1", "from_task_id": "a", "to_task_id": "b", "dependency_type": "unconditional",
            "condition_description": "", "metadata": {}, "is_satisfied": False, "last_evaluation_result": None,
            "last_evaluation_time": None, "created_at": "…", "updated_at": "…",
        }
    },
    "metadata": {}, "created_at": "…", "updated_at": "…", "execution_start_time": None, "execution_end_time": None,
    "execution_duration": None,
}  # fmt: skip
FORM_B = {
    "constellation_id": "c1",
    "name": "demo",
    "state": "CREATED",
    "tasks": {"a": {"task_id": "a", "name": "a", "priority": "HIGH", "status": "PENDING", "device_type": "WINDOWS"},
              "b": {"task_id": "b", "name": "b", "priority": "MEDIUM", "status": "PENDING", "created_at": None}},
    "dependencies": {"l1": {"line_id": "l1", "from_task_id": "a", "to_task_id": "b", "dependency_type": "SUCCESS_ONLY"},
                     "l2": {"line_id": "l2", "from_task_id": "a", "to_task_id": "b", "dependency_type": "CONDITIONAL"}},
}  # fmt: skip
FORM_C = {
    "tasks": [
        {"task_id": "a", "name": "a", "description": "…", "tips": ["slowly"], "target_device_id": "dev1"},
        {"name": "b", "description": "…"},
    ],
    "dependencies": [{"from_task_id": "a", "to_task_id": "task_2", "condition_description": "exit code 0"}],
    "metadata": {},
}


def test_the_engine_form_is_read_with_the_states_of_ended_tasks():
    constellation = build(FORM_A)
    a, b = constellation.get_task("a"), constellation.get_task("b")
    assert (constellation.constellation_id, constellation.name) == ("c1", "demo")
    assert (a.status, a.result) == (TaskStatus.COMPLETED, {"n": 1})
    assert (b.status, b.attempt, b.priority) == (TaskStatus.PENDING, 0, TaskPriority.HIGH)
    assert constellation.lines["l1"].outcome is EdgeOutcome.SATISFIED
    assert list(constellation.ready) == ["b"]


def test_the_schema_form_is_read():
    constellation = build(FORM_B)
    assert constellation.get_task("a").priority is TaskPriority.HIGH
    assert constellation.lines["l1"].dependency_type is DependencyType.SUCCESS_ONLY
    assert constellation.lines["l2"].condition == "status == 'completed'"
    assert constellation.get_task("b").status is TaskStatus.WAITING_DEPENDENCY


def test_the_list_form_is_read_with_ids_made_where_they_miss():
    constellation = build(FORM_C)
    assert list(constellation.tasks) == ["a", "task_2"]
    assert constellation.get_task("task_2").dependencies == {"a"}
    taken = build({"tasks": [{"name": "x"}, {"task_id": "task_1"}]})
    assert sorted(taken.tasks) == ["task_1", "task_2"]


def test_short_words_and_the_web_form_of_edges_are_read():
    tasks = [{"task_id": "a"}, {"task_id": "b"}, {"task_id": "c", "after": ["a", "b"]}]
    constellation = build({"tasks": tasks, "dependencies": [{"from": "a", "to": "b", "type": "completion_only"}]})
    assert constellation.lines["a->b"].dependency_type is DependencyType.COMPLETION_ONLY
    assert constellation.lines["a->c"].dependency_type is DependencyType.SUCCESS_ONLY
    assert build({"tasks": tasks[:2], "dependencies": {"b": ["a"]}}).get_task("b").dependencies == {"a"}


@pytest.mark.parametrize("form", [FORM_A, FORM_B, FORM_C], ids="ABC")
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_what_is_written_reads_back(form, suffix, tmp_path):
    constellation = build(form)
    path = tmp_path / f"c{suffix}"
    save(constellation, path)
    again = load(path)
    if suffix == ".json":
        assert canonical_json(again) == canonical_json(constellation)
        assert json.loads(path.read_text())["schema_version"] == 1
    else:
        assert to_recipe(again) == to_recipe(constellation)


def test_states_outcomes_and_errors_survive_the_engine_form():
    constellation = build(
        {
            "tasks": [{"task_id": name} for name in "abcd"],
            "dependencies": [
                {"from": "a", "to": "b", "type": "success_only"},
                {"from": "a", "to": "c", "condition": "result.n > 1"},
                {"from": "c", "to": "d"},
            ],
        }
    )
    constellation.mark_task_completed("a", success=False, error="broken")
    constellation.start_task("d")
    again = build(json.loads(json.dumps(to_document(constellation))))
    assert again.get_task("a").error == "broken"
    assert again.get_task("c").detail == constellation.get_task("c").detail
    assert "result" in again.lines["a->c"].error
    assert again.get_task("d").status is TaskStatus.PENDING


def test_a_normal_document_is_a_fixed_point():
    constellation = build(FORM_A)
    assert canonical_json(build(normal_document(constellation))) == canonical_json(constellation)


def test_yaml_knows_no_dates_and_no_yes():
    assert read_document("a: 2026-10-01\nb: yes\nc: true\nd: 1_0") == {
        "a": "2026-10-01",
        "b": "yes",
        "c": True,
        "d": 10,
    }


def test_the_yaml_recipe_is_tidy():
    constellation = build({"name": "n", "tasks": [{"task_id": "a"}, {"task_id": "b", "after": ["a"]}]})
    assert to_yaml(constellation) == "name: n\ntasks:\n- task_id: a\n- task_id: b\n  after:\n  - a\n"


TWO = '{"tasks": {"a": {"name": "x"}, "a": {"name": "y"}}}'
BAD = {
    "cyclic": ({"tasks": [{"task_id": "a", "after": ["b"]}, {"task_id": "b", "after": ["a"]}]}, "b → a → b"),
    "itself": ({"tasks": [{"task_id": "a", "after": ["a"]}]}, "cannot depend on itself"),
    "dangling": ({"tasks": [{"task_id": "a"}], "dependencies": [{"from": "a", "to": "z"}]}, "to_task_id is 'z'"),
    "twice": ({"tasks": [{"task_id": "a"}, {"task_id": "a"}]}, "the task_id 'a' comes twice"),
    "line twice": (
        {
            "tasks": [{"task_id": "a"}, {"task_id": "b"}],
            "dependencies": [{"line_id": "l", "from": "a", "to": "b"}, {"line_id": "l", "from": "a", "to": "b"}],
        },
        "line_id comes twice",
    ),
    "key differs": ({"tasks": {"a": {"task_id": "b"}}}, "its task_id is 'b'"),
    "unknown field": ({"tasks": [{"task_id": "a", "prioritty": 1}]}, "task 'a': It has no field 'prioritty'"),
    "unknown top": ({"task": []}, "Did you mean 'tasks'"),
    "unknown word": ({"tasks": [{"task_id": "a", "device_type": "amiga"}]}, "device_type is 'amiga'"),
    "unknown status": ({"tasks": [{"task_id": "a", "status": "lost"}]}, "status is 'lost'"),
    "unknown type": (
        {"tasks": [{"task_id": "a"}, {"task_id": "b"}], "dependencies": [{"from": "a", "to": "b", "type": "maybe"}]},
        "dependency 1: dependency_type is 'maybe'",
    ),
    "wrong type": ({"tasks": [{"task_id": "a", "tips": {"x": 1}}]}, "tips must be a list of texts"),
    "wrong tasks": ({"tasks": "a, b"}, "tasks must be a list or an object"),
    "wrong task": ({"tasks": ["a"]}, "task 1 must be an object"),
    "wrong id": ({"tasks": [{"task_id": 7}]}, "task_id must be a text"),
    "not finite": ({"tasks": [{"task_id": "a", "task_data": {"x": float("nan")}}]}, "task_data.x holds nan"),
    "newer": ({"schema_version": 2, "tasks": []}, "Update it"),
    "bad reference": ({"tasks": [{"task_id": "a", "description": "{{ tasks.b.result }}"}]}, "refers to"),
    "both words": (
        {"tasks": [{"task_id": "a"}], "dependencies": [{"from": "a", "from_task_id": "a", "to": "a"}]},
        "mean the same",
    ),
}
BAD_TEXTS = {
    "json": ('{"tasks": [\n  {"task_id": }]}', "line 2, column 15"),
    "json ids twice": (TWO, "'a' comes twice"),
    "json nan": ('{"tasks": [NaN]}', "NaN"),
    "json deep": ("[" * 200_000, "nested too deeply"),
    "yaml": ("tasks:\n  - task_id: [a", "line 3, column 1"),
    "yaml ids twice": ("tasks:\n  a: {name: x}\n  a: {name: y}", "line 3, column 3: the key 'a' comes twice"),
    "yaml deep": ("a: " + "[" * 200 + "]" * 200, "nested deeper than"),
    "yaml very deep": ("a: " + "[" * 1_000, "nesting"),
    "yaml bomb": ("a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b,*b]", "line 2: the alias *a is not allowed"),
    "yaml object": ("a: !!python/object/apply:os.system ['true']", "line 1"),
    "yaml key": ("1: x", "the key 1 is not a text"),
    "a list": ("- a", "must be an object"),
    "empty": ("", "must be an object"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_document_is_refused_with_its_place_and_changes_nothing(name):
    document, words = BAD[name]
    with pytest.raises(DocumentError) as refused:
        build(document, where="plan.json")
    assert words in refused.value.message
    assert "plan.json" in refused.value.message
    editor = ConstellationEditor(TaskConstellation("c"))
    editor.add_task({"task_id": "kept"})
    before = canonical_json(editor.constellation)
    with pytest.raises(Exception, match=r"."):
        editor.build_constellation(document)
    assert canonical_json(editor.constellation) == before


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_a_bad_text_is_refused_with_its_place(name):
    text, words = BAD_TEXTS[name]
    with pytest.raises(DocumentError) as refused:
        build(read_document(text, where="plan"))
    assert words in refused.value.message


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_50_mb_file_is_refused_before_it_is_read(suffix, tmp_path):
    path = tmp_path / f"big{suffix}"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(DocumentError, match="the limit for this format"):
        load(path)


def test_files_that_cannot_be_read_or_written_say_so(tmp_path):
    with pytest.raises(DocumentError, match="cannot be read"):
        read_file(tmp_path / "missing.json")
    (tmp_path / "latin.json").write_bytes(b'{"name": "\xe9"}')
    with pytest.raises(DocumentError, match="not UTF-8"):
        read_file(tmp_path / "latin.json")
    with pytest.raises(DocumentError, match="not UTF-8"):
        read_document(b"\xff")
    with pytest.raises(DocumentError, match="cannot be written"):
        save(build(FORM_C), tmp_path / "no" / "such" / "place.json")
