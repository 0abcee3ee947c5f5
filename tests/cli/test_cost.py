"""`starloom cost`: by run, role and model; an unknown price is unknown, in the sums too."""

import json
from datetime import UTC, datetime, timedelta

import pytest

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
    assert (planner.names, planner.cost) == (("r1", "constellation", "big", ""), 0.5)
    assert (shell.calls, shell.input_tokens, shell.output_tokens, shell.cost) == (2, 50, 5, None)
    assert total_of([planner, shell]).as_json()["cost"] is None
    assert total_of([planner, shell]).known_cost == 0.75


def test_users_price_fills_in_what_was_unknown():
    lines = cost_lines(RECORDED, {"small": Price(input=1_000_000, output=0)})
    assert total_of(lines).cost == 0.75 + 20


def test_parts_are_told_apart_and_one_that_is_not_told_is_unknown():
    told = CostRecorded("shell", "m", 100, 50, 1.0, "a", 40, 10, 30, 20)
    guessed = CostRecorded("shell", "m", 100, 50, 1.0, "a", 40, is_estimated=True)
    runs = [Recorded(RunId(f"r{number}"), 1, NOW, event) for number, event in enumerate((told, guessed))]
    first, second = cost_lines(runs)
    assert first.parts == (40, 10, 20, 30)
    assert second.parts == (40, None, None, None)
    assert total_of([first, second]).parts == (80, None, None, None)
    assert total_of([first, second]).as_json()["estimated_calls"] == 1


def test_lines_are_summed_over_what_is_not_asked_for():
    days = [Recorded(RunId("r1"), 9, NOW + timedelta(days=1), SPENT[0]), *RECORDED]
    assert [(line.names, line.calls) for line in cost_lines(days, by=("day",))] == [
        (("", "", "", "2026-12-01"), 1),
        (("", "", "", "2026-11-30"), 3),
    ]
    assert [line.as_json()["model"] for line in cost_lines(days, by=("model",))] == ["big", "small"]


def test_each_part_has_its_own_rate_in_a_users_price():
    event = CostRecorded("shell", "m", 1_000_000, 1_000_000, None, "a", 100_000, 100_000, 500_000, 300_000)
    price = Price(input=10, output=20, cached_input=1, cache_write=12, image_input=5, reasoning=40)
    (line,) = cost_lines([Recorded(RunId("r1"), 1, NOW, event)], {"m": price})
    assert line.cost == pytest.approx(5 + 0.1 + 1.2 + 1.5 + 10 + 20)


def test_the_command_shows_what_a_run_used(home):
    details = {"prompt_tokens_details": {"cached_tokens": 777}}
    said = Said(REFUSAL, prompt_tokens=1200, completion_tokens=34, model="nobody-s-model", details=details)
    with ScriptedServer([said]) as server:
        home.run("run", "Bake a cake", STARLOOM_MODEL=server.model_form)
    shown = home.run("cost", COLUMNS="120")
    assert shown.returncode == 0, shown.stderr
    assert "1,200" in shown.stdout
    assert "777" in shown.stdout
    answer = json.loads(home.run("cost", "--json").stdout)
    assert [(line["role"], line["model"], line["input_tokens"]) for line in answer["lines"]] == [
        ("constellation", "nobody-s-model", 1200)
    ]
    run_id = answer["lines"][0]["run_id"]
    assert json.loads(home.run("cost", run_id, "--json").stdout) == answer
    assert home.run("cost", "run_none").returncode == 2
