"""Size and order: no recursion, no cycle, counters that agree with a search."""

import random

import pytest

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import build, load, normal_document, save
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.line import TaskStarLine
from starloom.constellation.problems import CycleError, DocumentError, EditError
from starloom.constellation.star import TaskStar
from starloom.constellation.statistics import statistics

LONG = 100_000


def chain(length):
    constellation = TaskConstellation("chain", "chain")
    for number in range(length):
        constellation.add_task(TaskStar(f"t{number}"))
    for number in range(1, length):
        constellation.add_dependency(TaskStarLine(f"t{number - 1}", f"t{number}"))
    return constellation


def test_a_chain_of_100_000_tasks_builds_saves_loads_validates_and_refuses_to_close(tmp_path):
    constellation = chain(LONG)
    save(constellation, tmp_path / "chain.json")
    loaded = load(tmp_path / "chain.json")
    assert (loaded.task_count, loaded.dependency_count) == (LONG, LONG - 1)
    assert list(loaded.ready) == ["t0"]
    editor = ConstellationEditor(loaded)
    with pytest.raises(CycleError) as refused:
        editor.add_dependency(TaskStarLine(f"t{LONG - 1}", "t0"))
    assert len(refused.value.cycle) == LONG
    assert "more" in refused.value.message
    assert loaded.dependency_count == LONG - 1
    assert statistics(loaded)["longest_path_length"] == LONG


def test_a_document_whose_chain_closes_is_refused_without_recursion():
    document = normal_document(chain(5_000))
    document["dependencies"].append({"from_task_id": "t4999", "to_task_id": "t0"})
    with pytest.raises(DocumentError, match="cycle"):
        build(document)


def test_a_refused_edge_names_the_cycle_and_changes_nothing():
    constellation = chain(4)
    order = constellation.get_topological_order()
    with pytest.raises(CycleError) as refused:
        constellation.add_dependency(TaskStarLine("t3", "t1"))
    assert refused.value.cycle == ("t3", "t1", "t2")
    assert "t3 → t1 → t2 → t3" in refused.value.message
    assert constellation.get_topological_order() == order
    with pytest.raises(CycleError, match="itself"):
        constellation.add_dependency(TaskStarLine("t1", "t1"))


@pytest.mark.parametrize("seed", range(20))
def test_the_order_stays_topological_under_random_insertions_and_removals(seed):
    dice = random.Random(seed)
    constellation = TaskConstellation()
    names = [f"t{number}" for number in range(40)]
    for name in names:
        constellation.add_task(TaskStar(name))
    for _ in range(300):
        if dice.random() < 0.2 and constellation.lines:
            constellation.remove_dependency(dice.choice(list(constellation.lines)))
            continue
        first, second = dice.sample(names, 2)
        reachable, stack = {second}, [second]
        while stack:
            for following in constellation.get_task(stack.pop()).dependents - reachable:
                reachable.add(following)
                stack.append(following)
        if first in reachable:
            with pytest.raises(CycleError):
                constellation.add_dependency(TaskStarLine(first, second))
        else:
            constellation.add_dependency(TaskStarLine(first, second))
        place = {name: index for index, name in enumerate(constellation.get_topological_order())}
        assert all(place[line.from_task_id] < place[line.to_task_id] for line in constellation.lines.values())
    assert set(constellation.ready) == {name for name in names if not constellation.get_task(name).dependencies}


def test_parallel_edges_count_separately():
    constellation = TaskConstellation()
    for name in ("a", "b"):
        constellation.add_task(TaskStar(name))
    first, second = TaskStarLine("a", "b"), TaskStarLine("a", "b")
    constellation.add_dependency(first)
    constellation.add_dependency(second)
    assert second.line_id == "a->b#2"
    constellation.remove_dependency(first.line_id)
    assert constellation.get_task("b").dependencies == {"a"}
    assert "b" not in constellation.ready


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (TaskStarLine("a", "nowhere"), "'nowhere', which does not exist"),
        (TaskStarLine("nowhere", "a"), "'nowhere', which does not exist"),
    ],
)
def test_dangling_edges_are_refused(line, words):
    constellation = TaskConstellation()
    constellation.add_task(TaskStar("a"))
    with pytest.raises(EditError, match=words):
        constellation.add_dependency(line)


def test_a_star_belongs_to_one_constellation_and_changes_through_the_editor():
    star = TaskStar("a")
    star.name = "before"
    TaskConstellation().add_task(star)
    with pytest.raises(EditError, match="already belongs"):
        TaskConstellation().add_task(star)
    with pytest.raises(Exception, match=r"editor\.update_task"):
        star.name = "after"
    assert "TaskStar('a'" in repr(star)
