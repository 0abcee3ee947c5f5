"""`starloom cost`: by run, role and model; an unknown price is unknown, in the sums too."""

import json
from datetime import UTC, datetime

from starloom.cli.cost import cost_lines, total_of
from starloom.ids import RunId
from starloom.journal.events import CostRecorded, Recorded, RunEnded
from starloom.llm.scripted import Said, ScriptedServer
from starloom.llm.settings import Price

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SPENT = (
    CostRecorded("constellation", "big", 100, 10, 0.5),
    CostRecorded("shell", "small", 20, 2, None, "a"),
    CostRecorded("shell", "small", 30, 3, 0.25, "b"),
    RunEnded("finished"),
)
RECORDED = [Recorded(RunId("r1"), seq, NOW, event) for seq, event in enumerate(SPENT, start=1)]
REFUSAL = '{"steps": [], "refusal": "There is no oven here."}'


def test_unknown_price_makes_its_sums_unknown_and_never_nothing():
    planner, shell = cost_lines(RECORDED)
    assert (planner.role, planner.model, planner.cost) == ("constellation", "big", 0.5)
    assert (shell.calls, shell.input_tokens, shell.output_tokens, shell.cost) == (2, 50, 5, None)
    assert total_of([planner, shell]).as_json()["cost"] is None
    assert total_of([planner, shell]).known_cost == 0.75


def test_users_price_fills_in_what_was_unknown():
    lines = cost_lines(RECORDED, {"small": Price(input=1_000_000, output=0)})
    assert total_of(lines).cost == 0.75 + 20


def test_the_command_shows_what_a_run_used(home):
    with ScriptedServer([Said(REFUSAL, prompt_tokens=1200, completion_tokens=34, model="nobody-s-model")]) as server:
        home.run("run", "Bake a cake", STARLOOM_MODEL=server.model_form)
    shown = home.run("cost", COLUMNS="120")
    assert shown.returncode == 0, shown.stderr
    assert "1,200" in shown.stdout
    answer = json.loads(home.run("cost", "--json").stdout)
    assert [(line["role"], line["model"], line["input_tokens"]) for line in answer["lines"]] == [
        ("constellation", "nobody-s-model", 1200)
    ]
    run_id = answer["lines"][0]["run_id"]
    assert json.loads(home.run("cost", run_id, "--json").stdout) == answer
    assert home.run("cost", "run_none").returncode == 2
