"""1,000 edits from three writers against a running graph of 2,000 tasks, on a fleet that fails, drops and returns."""

import asyncio
import importlib.util
import random
from collections import Counter
from pathlib import Path

from starloom.clock import SystemClock
from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.documents import canonical_json
from starloom.constellation.line import TaskStarLine
from starloom.constellation.problems import EditError
from starloom.constellation.star import TaskStar
from starloom.ids import RunId
from starloom.journal import events as e
from starloom.journal.memory import MemoryJournal
from starloom.orchestrator.ports import Completed, Failed
from starloom.orchestrator.runner import Runner
from starloom.orchestrator.settings import RunSettings
from starloom.orchestrator.state import fold

_spec = importlib.util.spec_from_file_location("simulated_fleet", Path(__file__).with_name("conftest.py"))
fleet = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fleet)

TASKS, LAYER, EDITS, WRITERS = 2_000, 40, 1_000, 3
RUN = RunId("busy")


def layered(dice):
    constellation = TaskConstellation("busy")
    for number in range(TASKS):
        star = TaskStar(f"t{number}", idempotent=number % 3 == 0, retry_count=number % 3, priority=1 + number % 4)
        constellation.add_task(star)
    for number in range(LAYER, TASKS):
        layer = number // LAYER * LAYER
        for parent in dice.sample(range(layer - LAYER, layer), dice.randint(1, 3)):
            kind = dice.choice(["unconditional", "completion_only", "success_only"])
            constellation.add_dependency(TaskStarLine(f"t{parent}", f"t{number}", kind))
    return constellation


class Playground:
    """A fleet whose attempts take a few turns of the loop, fail at times, and whose devices come and go."""

    def __init__(self, dice):
        self.dice = dice
        self.names = [f"d{number}" for number in range(8)]
        self.devices = fleet.Devices(*self.names)
        self.effects = Counter()

    async def answer(self, attempt):
        await fleet.settle(self.dice.randint(3, 8))
        if self.dice.random() < 0.05:
            return Failed("flaky", transient=True)
        if self.dice.random() < 0.02:
            return Failed("broken")
        self.effects[attempt.task_id] += 1
        return Completed({"by": attempt.device_id})

    async def weather(self):
        while True:
            await fleet.settle(self.dice.randint(10, 40))
            name = self.dice.choice(self.names[1:])
            self.devices.disconnect(name)
            await fleet.settle(self.dice.randint(5, 20))
            self.devices.connect(name)


def random_edit(dice, graph, writer, number):
    """Return one plausible edit: add a task, cut one off, change one, add or remove an edge."""
    names = list(graph.tasks)
    some, other = dice.choice(names), dice.choice(names)
    new = f"w{writer}_{number}"
    return dice.choice(
        [
            [
                {"command": "add_task", "task": {"task_id": new, "retry_count": 1, "idempotent": True}},
                {"command": "add_dependency", "dependency": {"from": some, "to": new, "type": "completion_only"}},
            ],
            [{"command": "add_dependency", "dependency": {"from": some, "to": other}}],
            [{"command": "update_task", "task_id": some, "changes": {"priority": dice.randint(1, 4)}}],
            [{"command": "remove_task", "task_id": some}],
            [{"command": "remove_dependency", "line_id": dice.choice(list(graph.lines))}],
        ]
    )


async def test_a_thousand_edits_lose_nothing_and_run_nothing_twice():
    dice = random.Random(11)
    ground = Playground(dice)
    executor = fleet.Executor(ground.answer)
    clock = SystemClock()
    journal = MemoryJournal(clock)
    settings = RunSettings(retry_delay_s=0, device_lost_s=0, device_wait_s=None, max_concurrent_tasks=6)
    runner = Runner(RUN, executor=executor, devices=ground.devices, clock=clock, journal=journal, settings=settings)
    tried = Counter()

    async def writer(name):
        mine = random.Random(name)
        for number in range(EDITS // WRITERS + 1):
            version = runner.constellation.version
            commands = random_edit(mine, runner.constellation, name, number)
            await fleet.settle(mine.randint(0, 2))
            try:
                edit = await runner.edit(commands, by=f"writer {name}", against=version)
                tried["applied"] += 1
                assert edit.version <= runner.constellation.version
            except EditError as refused:
                tried["ended" if "has ended" in refused.message else "refused"] += 1

    run = asyncio.create_task(runner.run(layered(dice)))
    await fleet.settle(5)
    weather = asyncio.create_task(ground.weather())
    await asyncio.gather(*(writer(name) for name in range(WRITERS)))
    async with asyncio.timeout(120):
        result = await run
    weather.cancel()

    assert sum(tried.values()) >= EDITS
    assert tried["applied"] > EDITS // 4
    assert tried["ended"] == 0
    recorded = await journal.read(RUN)
    replayed = fold(RUN, recorded)
    assert canonical_json(replayed.constellation) == canonical_json(result.constellation)
    assert result.constellation.unfinished_count == 0
    events = [item.event for item in recorded]
    starts = Counter((event.task_id, event.attempt) for event in events if isinstance(event, e.TaskStarted))
    assert max(starts.values()) == 1
    completed = Counter(event.task_id for event in events if isinstance(event, e.TaskCompleted))
    assert max(completed.values()) == 1
    stars = result.constellation.tasks.values()
    assert set(completed) == {star.task_id for star in stars if star.status == "completed"}
    assert set(executor.most_at_once.values()) == {1}
    not_idempotent = {name for name in ground.effects if name.startswith("t") and int(name[1:]) % 3}
    assert max(ground.effects[name] for name in not_idempotent) == 1
    assert sum(isinstance(event, e.DeviceDisconnected) for event in events) > 5
    assert len([event for event in events if isinstance(event, e.EditApplied)]) == tried["applied"] + 1
    assert len([event for event in events if isinstance(event, e.EditRefused)]) == tried["refused"]
