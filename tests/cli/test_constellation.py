"""`starloom constellation`: graphs in files, in every dialect, without running anything."""

import json
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices" / "totals.yaml"
LISTS = {
    "tasks": [{"task_id": "a", "name": "a"}, {"task_id": "b", "name": "b"}],
    "dependencies": [{"line_id": "l1", "from_task_id": "a", "to_task_id": "b"}],
}


@pytest.fixture
def graph(home):
    (home.work / "g.json").write_text(json.dumps(LISTS))
    return home


def test_a_good_graph_is_counted(home):
    done = home.run("constellation", "validate", str(EXAMPLE), "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"valid": True, "tasks": 5, "dependencies": 6})


def test_show_draws_layers_and_writes_mermaid_and_svg(graph):
    layers = graph.run("constellation", "show", "g.json")
    mermaid = graph.run("constellation", "show", "g.json", "--mermaid")
    svg = graph.run("constellation", "show", "g.json", "--svg")
    figures = graph.run("constellation", "show", "g.json", "--json")
    assert layers.stdout.index("a") < layers.stdout.rindex("b")
    assert mermaid.stdout.startswith(("flowchart", "graph"))
    assert svg.stdout.startswith("<svg")
    assert json.loads(figures.stdout)["total_tasks"] == 2


def test_convert_goes_round_and_the_graph_stays_the_same(graph):
    assert graph.run("constellation", "convert", "g.json", "g.yaml").returncode == 0
    assert graph.run("constellation", "convert", "g.yaml", "back.json").returncode == 0
    same = graph.run("constellation", "diff", "g.json", "back.json")
    assert (same.returncode, same.stdout.strip()) == (0, "No difference.")
    assert graph.run("constellation", "convert", "g.json", "g.yaml").returncode == 2
    assert graph.run("constellation", "convert", "g.json", "g.yaml", "--force").returncode == 0
    assert graph.run("constellation", "convert", "g.json", "g.txt").returncode == 2


def test_diff_lists_what_changed(graph):
    changed = {**LISTS, "tasks": [{"task_id": "a", "name": "other"}, {"task_id": "b", "name": "b"}, {"task_id": "c"}]}
    (graph.work / "new.json").write_text(json.dumps(changed))
    done = graph.run("constellation", "diff", "g.json", "new.json", "--json")
    difference = json.dumps(json.loads(done.stdout))
    assert done.returncode == 1
    assert '"c"' in difference
    assert "other" in difference


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD = {
    "cyclic": ({"tasks": [{"task_id": "a", "after": ["b"]}, {"task_id": "b", "after": ["a"]}]}, "a"),
    "dangling": ({"tasks": [{"task_id": "a"}], "dependencies": [{"from": "a", "to": "ghost"}]}, "ghost"),
    "twice": ({"tasks": [{"task_id": "a"}, {"task_id": "a"}]}, "a"),
    "unknown word": ({"tasks": [{"task_id": "a", "priority": "URGENT"}]}, "URGENT"),
    "unknown field": ({"tasks": [{"task_id": "a", "nmae": "x"}]}, "nmae"),
    "wrong type": ({"tasks": [{"task_id": "a", "timeout": "soon"}]}, "timeout"),
    "bomb": (BOMB, ""),
    "huge": ("tasks: [" + "{task_id: a}," * 4_200_000 + "]", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_graph_is_one_clear_error_that_names_the_place(home, name: str):
    content, place = BAD[name]
    text = content if isinstance(content, str) else json.dumps(content)
    (home.work / "bad.yaml").write_text(text)
    done = home.run("constellation", "validate", "bad.yaml")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert place in done.stderr
    assert "bad.yaml" in done.stderr
