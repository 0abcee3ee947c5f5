"""A planner's edit is checked against the graph that runs."""

import pytest

from starloom.agents.edits import EditDraft, edit_problems, tasks_of

GRAPH = {
    "tasks": {
        "a": {"task_id": "a", "status": "failed", "description": "x", "target_device_id": "north"},
        "b": {"task_id": "b", "status": "pending", "description": "y", "target_device_id": "north"},
    },
    "dependencies": {},
}


def add(task_id="a2", **task):
    fields = {"description": "again", "target_device_id": "north"}
    return {"command": "add_task", "task": {"task_id": task_id, **fields, **task}}


def line(before, after):
    return {"command": "add_dependency", "dependency": {"from_task_id": before, "to_task_id": after}}


def problems(kit, *commands):
    return edit_problems(EditDraft(commands), GRAPH, [kit.device])


def test_a_task_added_beside_a_failed_one_is_fine(kit):
    call = {"tool": "files.read", "arguments": {"path": "{{ tasks.a2.result }}"}}
    assert problems(kit, add(), add("c", task_data=call), line("a2", "c"), line("a2", "b")) == ()
    assert problems(kit, {"command": "remove_task", "task_id": "b"}) == ()
    assert problems(kit, {"command": "update_task", "task_id": "b", "changes": {"description": "z"}}) == ()
    assert problems(kit, {"command": "remove_dependency", "line_id": "l"}) == ()
    assert problems(kit) == ()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (add("a"), "is taken"),
        (add(target_device_id="west"), "no device 'west'"),
        (add(task_data={"tool": "files.raed"}), "Did you mean files.read"),
        (add(description="{{ tasks.zz.result }}"), "refers to 'zz'"),
        (add(description="{{ tasks.zz }}"), "cannot be read"),
        ({"command": "update_task", "task_id": "a", "changes": {}}, "has failed as its status"),
        ({"command": "remove_task", "task_id": "zz"}, "no task 'zz'"),
        ({"command": "update_task", "task_id": "b", "changes": {"target_device_id": "west"}}, "no device 'west'"),
        (line("zz", "b"), "from_task_id is 'zz'"),
        (line("b", "a"), "has started"),
        ({"command": "clear_constellation"}, "no command 'clear_constellation'"),
    ],
)
def test_each_problem_is_named(kit, command, problem):
    assert any(problem in text for text in problems(kit, command)), problems(kit, command)


def test_both_forms_of_a_document_are_read():
    assert tasks_of({"tasks": [{"task_id": "a"}]}) == {"a": {"task_id": "a"}}
    assert list(tasks_of(GRAPH)) == ["a", "b"]
    assert tasks_of({}) == {}
