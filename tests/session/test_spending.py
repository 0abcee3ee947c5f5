"""A budget holds for planner and agents, ends a run before the call that would break it, and survives a restart."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starloom.clock import ManualClock
from starloom.ids import RunId
from starloom.journal.events import CostRecorded, Recorded, RunEnded
from starloom.journal.memory import MemoryJournal
from starloom.llm.budgets import Budgets, Ledger, Limits
from starloom.llm.scripted import Broken, Fault, Said, ScriptedServer
from starloom.places import places
from starloom.session.build import galaxy_here
from starloom.session.galaxy import Galaxy
from starloom.session.spending import Spending
from starloom.settings import Settings

GOAL_PLAN = '{"steps": [{"id": "g", "name": "look", "description": "Look around.", "device": "hub"}]}'
REFUSAL = '{"steps": [], "refusal": "There is no oven here."}'


@asynccontextmanager
async def hub(folder: Path, server: ScriptedServer, budgets: Budgets) -> AsyncIterator[Galaxy]:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    place = places({"STARLOOM_HOME": str(folder / "home")})
    environ = {"STARLOOM_MODEL": server.model_form}
    async with galaxy_here(place, Settings(budgets=budgets), workspace=work, environ=environ) as galaxy:
        yield galaxy


async def ended(galaxy: Galaxy, request: str) -> tuple[RunEnded, list[CostRecorded]]:
    run_id = await galaxy.submit_request(request)
    end = await galaxy.wait(run_id)
    assert end is not None
    events = [item.event for item in await galaxy.journal.read(run_id)]
    return end, [event for event in events if isinstance(event, CostRecorded)]


async def test_the_call_that_would_break_a_run_s_budget_is_not_made(tmp_path: Path) -> None:
    with ScriptedServer([Said(GOAL_PLAN, prompt_tokens=49_900, completion_tokens=50)]) as server:
        async with hub(tmp_path, server, Budgets(run=Limits(tokens=50_000))) as galaxy:
            end, costs = await ended(galaxy, "Look around")
    assert len(server.requests) == 1
    assert end.stop_reason == "failed"
    assert "the run may use 50000 tokens, has used 49950" in (end.error or "")
    assert [(cost.role, cost.input_tokens + cost.output_tokens) for cost in costs] == [("constellation", 49_950)]


async def test_a_plan_over_the_budget_ends_the_run_with_one_line(tmp_path: Path) -> None:
    with ScriptedServer([REFUSAL]) as server:
        async with hub(tmp_path, server, Budgets(run=Limits(tokens=1_000))) as galaxy:
            end, costs = await ended(galaxy, "Bake a cake")
    assert not server.requests
    assert not costs
    assert end.stop_reason == "out_of_budget"
    assert "was not asked: the run may use 1000 tokens" in (end.error or "")
    assert "\n" not in (end.error or "")


async def test_a_restart_remembers_what_the_day_has_used(tmp_path: Path) -> None:
    budgets = Budgets(day=Limits(tokens=50_000))
    with ScriptedServer([Said(REFUSAL, prompt_tokens=49_900, completion_tokens=50)]) as server:
        async with hub(tmp_path, server, budgets) as galaxy:
            first, _ = await ended(galaxy, "Bake a cake")
        async with hub(tmp_path, server, budgets) as galaxy:
            second, _ = await ended(galaxy, "Bake a cake")
    assert len(server.requests) == 1
    assert first.stop_reason == "failed"
    assert second.stop_reason == "out_of_budget"
    assert "the day may use 50000 tokens, has used 49950" in (second.error or "")


async def test_what_gave_no_reply_is_journalled_for_its_task(tmp_path: Path) -> None:
    with ScriptedServer([GOAL_PLAN, "I would rather talk about the weather."]) as server:
        async with hub(tmp_path, server, Budgets()) as galaxy:
            _, costs = await ended(galaxy, "Look around")
        tokens = 15 * len(server.requests)
    assert ("shell", "g") in [(cost.role, cost.task_id) for cost in costs]
    assert sum(cost.input_tokens + cost.output_tokens for cost in costs) == tokens


async def test_a_call_that_is_cancelled_is_counted_with_what_was_sent_and_what_had_come(tmp_path: Path) -> None:
    with ScriptedServer([Broken(GOAL_PLAN, 40, "hangs")]) as server:
        async with hub(tmp_path, server, Budgets(run=Limits(tokens=20_000))) as galaxy:
            run_id = await galaxy.submit_request("Look around")
            assert await asyncio.to_thread(server.hanging.wait, 30)
            await galaxy.cancel(run_id)
            await galaxy.wait(run_id)
            assert galaxy.thinking.of(run_id) == {}
            costs = [item.event for item in await galaxy.journal.read(run_id) if isinstance(item.event, CostRecorded)]
        assert not list((tmp_path / "home" / "data" / "open-calls").iterdir())
    (cost,) = costs
    assert (cost.role, cost.is_estimated, cost.cost) == ("constellation", True, None)
    assert cost.input_tokens > 100
    assert cost.output_tokens <= 10


async def test_a_call_that_was_open_when_the_hub_was_killed_is_counted_once_by_the_next(tmp_path: Path) -> None:
    arrived = threading.Event()

    def hang(_: dict[str, Any]) -> Fault:
        arrived.set()
        return Fault(hangs=True)

    (tmp_path / "work").mkdir()
    with ScriptedServer([hang, REFUSAL]) as server:
        environ = {**os.environ, "STARLOOM_HOME": str(tmp_path / "home"), "STARLOOM_MODEL": server.model_form}
        command = [sys.executable, "-m", "starloom", "run", "Look around"]
        with subprocess.Popen(command, cwd=tmp_path / "work", env=environ, stdout=subprocess.DEVNULL) as process:
            assert await asyncio.to_thread(arrived.wait, 60)
            process.send_signal(signal.SIGKILL)
        for _ in range(2):
            async with hub(tmp_path, server, Budgets(day=Limits(tokens=100_000))) as galaxy:
                (record,) = await galaxy.journal.runs(9)
                events = [item.event for item in await galaxy.journal.read(record.run_id)]
                spent = galaxy._crew.spending.ledger.spent("run", record.run_id)
                costs = [event for event in events if isinstance(event, CostRecorded)]
                assert [(cost.role, cost.is_estimated) for cost in costs] == [("constellation", True)]
                assert costs[0].input_tokens > 100
                assert spent.tokens == costs[0].input_tokens


def test_a_run_s_past_counts_once_for_its_task_and_its_own_days() -> None:
    at = datetime(2026, 1, 1, 23, tzinfo=UTC)
    run = RunId("r1")
    events = [
        Recorded(run, 1, at, CostRecorded("shell", "m", 10, 5, 0.5, "t1")),
        Recorded(run, 2, at + timedelta(hours=2), CostRecorded("shell", "m", 20, 5, None, "t2")),
    ]
    ledger = Ledger(Budgets())
    spending = Spending(ledger, MemoryJournal(ManualClock()), ManualClock())
    spending.take_up(run, events)
    spending.take_up(run, events)
    assert ledger.spent("run", "r1").tokens == 40
    assert ledger.spent("task", "r1/t1").tokens == 15
    assert ledger.spent("day", "2026-01-01").tokens == 15
    assert ledger.spent("day", "2026-01-02").has_unknown
