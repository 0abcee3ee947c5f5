"""Editing: ten commands, undo and redo, batches, observers, rebase or refuse."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from starloom.constellation.commands import (
    AddTaskCommand,
    BuildConstellationCommand,
    LoadConstellationCommand,
    SaveConstellationCommand,
)
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import canonical_json
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.enums import TaskPriority, TaskStatus
from starloom.constellation.problems import ConflictError, ConstellationError, EditError
from starloom.constellation.serialisation import command_from
from starloom.constellation.star import TaskStar

FORMS = [
    {"command": "add_task", "task": {"task_id": "d", "name": "four", "priority": 4}},
    {"command": "remove_task", "task_id": "b"},
    {"command": "update_task", "task_id": "a", "changes": {"name": "first", "tips": ["x"], "timeout": 3}},
    {"command": "add_dependency", "dependency": {"from": "a", "to": "c", "condition": "result.n > 1"}},
    {"command": "remove_dependency", "line_id": "a->b"},
    {"command": "update_dependency", "line_id": "a->b", "changes": {"dependency_type": "completion_only"}},
    {"command": "build_constellation", "document": {"name": "new", "tasks": [{"task_id": "x"}]}},
    {
        "command": "build_constellation",
        "document": {"tasks": [{"task_id": "x"}, {"task_id": "y", "after": ["x"]}]},
        "clear_existing": False,
    },
    {"command": "clear_constellation"},
]


@pytest.fixture
def editor():
    editor = ConstellationEditor(TaskConstellation("c", "three"))
    for name in "abc":
        editor.add_task({"task_id": name})
    editor.add_dependency({"from": "a", "to": "b", "type": "success_only"})
    editor.add_dependency({"from": "b", "to": "c"})
    return editor


def shape(editor):
    """Return everything but the version, which only ever grows."""
    text = canonical_json(editor.constellation)
    return text.replace(f'"version":{editor.constellation.version}', '"version":0')


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["command"])
def test_every_command_undoes_redoes_and_survives_its_serialised_form(editor, form):
    before, ready = shape(editor), list(editor.constellation.ready)
    edit = editor.execute_command(form, by="planner", why="because")
    after = shape(editor)
    assert before != after
    assert (edit.by, edit.why, edit.version) == ("planner", "because", editor.constellation.version)
    assert command_from(edit.commands[0]).to_dict() == edit.commands[0]
    assert edit.description
    editor.undo()
    assert shape(editor) == before
    assert sorted(editor.constellation.ready) == sorted(ready)
    editor.redo()
    assert shape(editor) == after


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["command"])
def test_what_undo_and_redo_record_replays_to_the_same_graph(editor, form):
    def copy():
        twin = ConstellationEditor(TaskConstellation("c", "three"))
        for edit in edits:
            twin.batch(edit.commands)
        return shape(twin)

    edits = list(editor.invoker.done)
    edits.append(editor.execute_command(form))
    edits.append(editor.undo())
    assert copy() == shape(editor)
    edits.append(editor.redo())
    assert copy() == shape(editor)


def test_files_are_saved_loaded_and_put_back_by_undo(editor, tmp_path):
    path = tmp_path / "c.json"
    path.write_text("precious")
    before = shape(editor)
    editor.save_constellation(path)
    assert path.read_text() != "precious"
    editor.remove_task("c")
    editor.load_constellation(path)
    assert shape(editor) == before
    editor.undo()
    editor.undo()
    editor.undo()
    assert path.read_text() == "precious"
    fresh = tmp_path / "new.yaml"
    editor.save_constellation(fresh)
    editor.undo()
    assert not fresh.exists()
    editor.redo()
    assert fresh.exists()
    assert LoadConstellationCommand(fresh).to_dict()["command"] == "build_constellation"
    assert SaveConstellationCommand(fresh).to_dict() == {"command": "save_constellation", "path": str(fresh)}


def test_file_commands_are_not_read_from_a_serialised_form():
    for name in ("save_constellation", "load_constellation"):
        with pytest.raises(EditError, match="no command"):
            command_from({"command": name, "path": "/etc/passwd"})


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"command": "fly"}, "no command 'fly'"),
        ({"command": "add_task"}, "task is missing"),
        ({"command": "add_task", "task": {"task_id": "a"}}, "already a task 'a'"),
        ({"command": "add_task", "task": {"nmae": "x"}}, "Did you mean 'name'"),
        ({"command": "add_task", "task": {"priority": "URGENT"}}, "priority is 'URGENT'"),
        ({"command": "add_task", "task": {"timeout": -1}}, "timeout is -1"),
        ({"command": "add_task", "task": {"retry_count": True}}, "retry_count must be a whole number"),
        ({"command": "add_task", "task": {"status": "completed"}}, "no field 'status'"),
        ({"command": "add_task", "task": {}, "extra": 1}, "no field 'extra'"),
        ({"command": "update_task", "task_id": "z", "changes": {}}, "no task 'z'"),
        ({"command": "update_task", "task_id": "a", "changes": {"task_id": "q"}}, "no field 'task_id'"),
        ({"command": "remove_dependency", "line_id": "z"}, "no dependency 'z'"),
        ({"command": "add_dependency", "dependency": {"from": "a"}}, "to_task_id is missing"),
        ({"command": "add_dependency", "dependency": {"from": "c", "to": "a"}}, "c → a → b → c"),
        (
            {"command": "add_dependency", "dependency": {"from": "a", "to": "c", "type": "conditional"}},
            "condition is m",
        ),
        ({"command": "add_dependency", "dependency": {"from": "a", "to": "c", "condition": "1 +"}}, "not a CEL"),
        ({"command": "add_dependency", "dependency": {"from": "a", "to": "c", "condition": "reslt.n"}}, "'reslt'"),
        ({"command": "add_dependency", "dependency": {"line_id": "a->b", "from": "a", "to": "c"}}, "already a depend"),
        ({"command": "add_task", "task": {"description": "{{ tasks.a.result }}"}}, "no such task is before it"),
        ({"command": "add_task", "task": {"description": "{{ tasks.a }}"}}, "cannot be read"),
        ({"command": "build_constellation", "document": {"tasks": [{"priority": 9}]}}, "task 1: priority is 9"),
    ],
)
def test_a_bad_command_is_refused_by_name_and_changes_nothing(editor, form, words):
    before = canonical_json(editor.constellation)
    history = editor.get_history()
    with pytest.raises(EditError) as refused:
        editor.execute_command(form)
    assert words in refused.value.message
    assert canonical_json(editor.constellation) == before
    assert editor.get_history() == history


def test_a_batch_is_all_or_nothing_one_version_and_one_undo(editor):
    version, before = editor.constellation.version, canonical_json(editor.constellation)
    good = [
        {"command": "add_task", "task": {"task_id": "d", "description": "{{ tasks.a.result }}"}},
        {"command": "add_dependency", "dependency": {"from": "c", "to": "d"}},
    ]
    with pytest.raises(EditError, match="Command 3 of 3"):
        editor.batch([*good, {"command": "remove_task", "task": "z"}])
    with pytest.raises(EditError, match="no task 'z'"):
        editor.batch([*good, {"command": "remove_task", "task_id": "z"}])
    assert canonical_json(editor.constellation) == before
    editor.batch(good)
    assert editor.constellation.version == version + 1
    editor.undo()
    assert editor.constellation.task_count == 3


def test_a_started_task_and_the_edges_into_it_are_immutable(editor):
    editor.constellation.mark_task_completed("a", result=1)
    editor.constellation.start_task("b")
    for form in [
        {"command": "update_task", "task_id": "b", "changes": {"name": "x"}},
        {"command": "remove_task", "task_id": "a"},
        {"command": "remove_dependency", "line_id": "a->b"},
        {"command": "update_dependency", "line_id": "a->b", "changes": {"dependency_type": "unconditional"}},
        {"command": "add_dependency", "dependency": {"from": "c", "to": "b"}},
        {"command": "clear_constellation"},
    ]:
        with pytest.raises(EditError, match="started"):
            editor.execute_command(form)
    editor.add_task({"task_id": "d"})
    editor.add_dependency({"from": "a", "to": "d", "type": "success_only"})
    assert "d" in editor.constellation.ready


def test_undo_of_a_started_task_is_refused_and_leaves_both_stacks(editor):
    editor.add_task({"task_id": "d"})
    editor.update_task("c", name="x")
    editor.undo()
    editor.constellation.start_task("d")
    before = canonical_json(editor.constellation)
    with pytest.raises(EditError, match="'d' is running"):
        editor.undo()
    assert canonical_json(editor.constellation) == before
    assert editor.can_undo()
    assert editor.can_redo()
    editor.redo()
    assert editor.constellation.get_task("c").name == "x"


def test_undo_keeps_the_identity_of_tasks_and_the_order_of_insertion(editor):
    star = editor.constellation.get_task("b")
    editor.remove_task("b")
    editor.undo()
    assert editor.constellation.get_task("b") is star
    assert [item.task_id for item in editor.constellation.in_insertion_order()] == ["a", "b", "c"]
    assert star.dependencies == {"a"}


def test_a_reference_guards_the_edges_it_needs(editor):
    editor.update_task("c", description="{{ tasks.a.result.total }}")
    with pytest.raises(EditError, match="refers to"):
        editor.remove_dependency("a->b")
    with pytest.raises(EditError, match="refers to"):
        editor.remove_task("b")
    with pytest.raises(EditError, match="refers to"):
        editor.update_task("a", description="{{ tasks.c.result }}")
    editor.batch(
        [
            {"command": "remove_task", "task_id": "b"},
            {"command": "add_dependency", "dependency": {"from": "a", "to": "c"}},
        ]
    )


def test_an_older_edit_is_rebased_when_it_touches_nothing_that_changed(editor):
    version = editor.constellation.version
    editor.update_task("a", name="changed")
    edit = editor.batch([{"command": "update_task", "task_id": "c", "changes": {"name": "mine"}}], against=version)
    assert edit.against == version
    with pytest.raises(ConflictError) as refused:
        editor.batch([{"command": "update_task", "task_id": "a", "changes": {"name": "mine"}}], against=version)
    assert refused.value.entities == ("a",)
    with pytest.raises(EditError, match="newest is"):
        editor.batch([], against=version + 100)


def test_an_edge_that_came_meanwhile_conflicts_with_removing_its_task(editor):
    version = editor.constellation.version
    editor.add_dependency({"from": "a", "to": "c"})
    with pytest.raises(ConflictError, match="'a->c'"):
        editor.batch([{"command": "remove_task", "task_id": "c"}], against=version)


def test_a_raising_observer_is_kept_and_disturbs_nobody(editor, caplog):
    seen = []

    def raising(editor, name, result):
        raise ValueError(name)

    editor.add_observer(raising)
    editor.add_observer(lambda editor, name, result: seen.append((name, result)))
    star = editor.add_task({"task_id": "d"})
    assert seen == [("add_task", star)]
    assert len(editor.failed_observers) == 1
    assert "observer" in caplog.text
    editor.remove_observer(raising)
    editor.undo()
    assert seen[-1][0] == "undo"


def test_history_is_bounded_and_can_be_switched_off():
    editor = ConstellationEditor(max_history_size=2)
    for name in "abc":
        editor.add_task(TaskStar(name))
    assert len(editor.get_history()) == 2
    editor.clear_history()
    assert editor.undo() is None
    assert editor.redo() is None
    silent = ConstellationEditor(enable_history=False)
    silent.add_task(TaskStar("a"))
    assert not silent.can_undo()


def test_enum_members_and_tuples_serialise(editor):
    editor.update_task("a", priority=TaskPriority.HIGH, tips=("x", "y"))
    assert editor.invoker.done[-1].commands[0]["changes"] == {"priority": 3, "tips": ["x", "y"]}
    assert AddTaskCommand(TaskStar("z", priority=TaskPriority.LOW)).to_dict()["task"] == {"task_id": "z", "priority": 1}


def test_only_an_import_may_bring_states():
    document = {"tasks": [{"task_id": "a", "status": "completed", "result": 1}]}
    plain, full = ConstellationEditor(), ConstellationEditor()
    plain.execute(BuildConstellationCommand(document))
    full.execute(BuildConstellationCommand(document, with_state=True))
    assert plain.constellation.get_task("a").status is TaskStatus.PENDING
    assert full.constellation.get_task("a").status is TaskStatus.COMPLETED


ids = st.sampled_from("abcde")
edits = st.one_of(
    ids.map(lambda name: {"command": "add_task", "task": {"task_id": name}}),
    ids.map(lambda name: {"command": "remove_task", "task_id": name}),
    st.tuples(ids, ids).map(lambda e: {"command": "add_dependency", "dependency": {"from": e[0], "to": e[1]}}),
    st.tuples(ids, ids).map(lambda e: {"command": "remove_dependency", "line_id": f"{e[0]}->{e[1]}"}),
    st.tuples(ids, ids).map(lambda e: {"command": "update_task", "task_id": e[0], "changes": {"name": e[1]}}),
)


@given(st.lists(st.one_of(edits, st.sampled_from(["undo", "redo"])), max_size=40))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_undoing_everything_gives_the_beginning_and_redoing_gives_the_end(steps):
    editor = ConstellationEditor(TaskConstellation("c"))
    start = shape(editor)
    for step in steps:
        try:
            editor.undo() if step == "undo" else editor.redo() if step == "redo" else editor.execute_command(step)
        except ConstellationError:
            continue
    end = shape(editor)
    count = len(editor.get_history())
    while editor.undo() is not None:
        pass
    assert shape(editor) == start
    for _ in range(count):
        editor.redo()
    assert shape(editor) == end
