"""Figures, differences and drawings of a constellation."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.diff import diff
from starloom.constellation.documents import build, to_document
from starloom.constellation.drawing import layers, to_mermaid, to_svg
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.enums import CancelReason, ConstellationState, TaskStatus
from starloom.constellation.statistics import critical_path, longest_path, max_width, statistics

DIAMOND = {
    "name": "diamond",
    "tasks": [
        {"task_id": "a", "name": 'A <b>&"x"\x1b[31m', "target_device_id": "north"},
        {"task_id": "b", "after": ["a"]},
        {"task_id": "c", "after": ["a"], "device_type": "linux"},
        {"task_id": "d"},
    ],
    "dependencies": [{"from": "b", "to": "d", "condition": "result.n > 1"}, {"from": "c", "to": "d"}],
}
START = datetime(2026, 1, 1, tzinfo=UTC)


def test_figures_count_tasks_until_there_are_times():
    constellation = build(DIAMOND)
    figures = statistics(constellation)
    assert (figures["total_tasks"], figures["total_dependencies"], figures["max_width"]) == (4, 4, 2)
    assert (figures["longest_path_length"], figures["critical_path_length"]) == (3, 3)
    assert figures["parallelism_ratio"] == 1.333
    assert figures["parallelism_calculation_mode"] == "node_count"
    assert longest_path(constellation)[0] == "a"
    seconds = {"a": 1, "b": 2, "c": 5, "d": 2}
    at = START
    for name in "abcd":
        constellation.start_task(name, at)
        at += timedelta(seconds=seconds[name])
        constellation.mark_task_completed(name, result={"n": 2}, at=at)
    assert critical_path(constellation) == (8.0, ["a", "c", "d"])
    figures = statistics(constellation)
    assert (figures["total_work"], figures["parallelism_ratio"]) == (10.0, 1.25)
    assert figures["parallelism_calculation_mode"] == "actual_time"
    assert figures["task_status_counts"] == {"completed": 4}


def test_an_empty_constellation_has_figures_and_drawings():
    empty = TaskConstellation("e")
    assert statistics(empty)["longest_path_length"] == 0
    assert max_width(empty) == 0
    assert "0 tasks" in layers(empty)
    assert to_mermaid(empty).startswith("graph LR")
    ElementTree.fromstring(to_svg(empty))


def test_the_state_is_computed_from_the_tasks():
    constellation = TaskConstellation()
    states = [constellation.state]
    editor = ConstellationEditor(constellation)
    for name in "ab":
        editor.add_task({"task_id": name})
    states.append(constellation.state)
    constellation.start_task("a")
    states.append(constellation.state)
    constellation.mark_task_completed("a")
    states.append(constellation.state)
    constellation.mark_task_completed("b", success=False, error="x")
    states.append(constellation.state)
    assert [state.value for state in states] == ["created", "ready", "executing", "executing", "partially_failed"]
    cancelled = build({"tasks": [{"task_id": "a"}]})
    cancelled.end_task("a", TaskStatus.CANCELLED, reason=CancelReason.USER)
    assert cancelled.state is ConstellationState.CANCELLED


def test_a_difference_names_what_changed_who_and_why():
    old = build(DIAMOND)
    editor = ConstellationEditor(build(to_document(old)))
    edits = [
        editor.batch(
            [{"command": "update_task", "task_id": "a", "changes": {"name": "new"}}], by="user", why="clearer"
        ),
        editor.batch([{"command": "remove_task", "task_id": "c"}], by="planner", why="not needed"),
        editor.batch([{"command": "add_task", "task": {"task_id": "e"}}], by="rule"),
    ]
    found = diff(old, editor.constellation, [{"commands": e.commands, "by": e.by, "why": e.why} for e in edits])
    texts = found.lines()
    assert any(text.startswith("~ task a: name:") and text.endswith("(user: clearer)") for text in texts)
    assert "- task c  (planner: not needed)" in texts
    assert "+ task e  (rule)" in texts
    assert "- dependency c->d" in texts
    form = found.to_dict()
    assert [len(form[how]) for how in ("added", "removed", "changed")] == [1, 3, 1]
    assert not diff(old, build(to_document(old)))


def test_an_edge_that_changed_is_found():
    old, new = build(DIAMOND), build(DIAMOND)
    ConstellationEditor(new).update_dependency("c->d", dependency_type="success_only")
    assert diff(old, new).lines() == ["~ dependency c->d: dependency_type: None → 'success_only'"]


def test_states_are_compared_when_asked():
    old, new = build(DIAMOND), build(DIAMOND)
    new.mark_task_completed("a", result=1)
    assert not diff(old, new)
    assert diff(old, new, with_state=True)


def test_layers_are_drawn_with_marks_devices_and_edges():
    constellation = build(DIAMOND)
    constellation.mark_task_completed("a", success=False, error="broken")
    text = layers(constellation)
    assert text.splitlines()[0].startswith("diamond: failed, 4 tasks")
    assert "✘ a" in text
    assert "@north" in text
    assert "d  ← b (if result.n > 1), c (any end)" in text
    assert "\x1b" not in text
    wide = build({"tasks": [{"task_id": f"t{number}", "name": "n" * 200} for number in range(50)]})
    assert "… and 10 more" in layers(wide)
    assert max(map(len, layers(wide, width=60).splitlines())) <= 60


def test_mermaid_and_svg_treat_names_as_data():
    constellation = build(DIAMOND)
    mermaid = to_mermaid(constellation)
    assert '"A #lt;b#gt;&#quot;x#quot;' in mermaid
    assert "n1 -.->" in mermaid
    root = ElementTree.fromstring(to_svg(constellation))
    assert len(root.findall(".//{http://www.w3.org/2000/svg}rect")) == 4
    assert len(root.findall("{http://www.w3.org/2000/svg}path")) == 4
