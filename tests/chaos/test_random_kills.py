"""Random kills of hub, device and both, and cut links, at random moments of real runs; then everything is counted.

Short by default; `STARLOOM_CHAOS=long` kills two hundred times (`STARLOOM_CHAOS_SEED` chooses others). Every task
appends to a file, must not be repeated and wants an approval; a person approves what is asked, and answers a doubt by
looking at the file. Edits add tasks while everything breaks. Some tasks are goals: an agent, whose model is scripted,
appends a line a step.
"""

import os
import re
import time
from collections import Counter

import pytest

from starloom.llm.scripted import ScriptedServer

LONG = os.environ.get("STARLOOM_CHAOS") == "long"
KILLS = 200 if LONG else 4
KILLS_A_RUN = 12 if LONG else 4
HOW = ("hub", "device", "both", "link")
DEVICES = ("north", "south", "hub")  # the hub's own device dies with it
GOALS = 3  # a run
LINES = 3  # an agent's goal
SCRIPT = "sleep 0.{before}; echo {task} >> ledger.txt; sleep 0.{after}"


class Person:
    """Answers what a run asks and edits it, whatever breaks meanwhile."""

    def __init__(self, world, run_id: str, edits: int) -> None:
        self.world = world
        self.run_id = run_id
        self.rows: list[dict] = []
        self.edits = [f"edit{number}" for number in range(edits)]
        self.edited: set[str] = set()
        self.answered: set[str] = set()

    def look(self) -> None:
        """Read on, answer everything that is open, and try the next edit."""
        self.rows += self.world.events(self.run_id, after=len(self.rows))
        closed = {row["event"].get("approval_id") for row in self.rows if row["kind"] == "approval_answered"}
        closed |= {row["event"].get("question_id") for row in self.rows if row["kind"] == "question_answered"}
        for row in self.rows:
            event = row["event"]
            if row["kind"] == "approval_asked" and event["approval_id"] not in closed:
                self._answer(event["approval_id"], f"/api/approvals/{event['approval_id']}", {"approved": True})
            elif row["kind"] == "question_asked" and event["question_id"] not in closed:
                what = self._in_doubt(event)
                if what is None:
                    continue  # a goal whose device is away: it comes back
                device = self._where(event["task_id"])
                answer = "yes" if self.world.took_effect(device, what) else "no"
                self._answer(event["question_id"], f"/api/questions/{event['question_id']}", {"answer": answer})
        if self.edits and self.world.chance.random() < 0.2:
            self._edit(self.edits[0])

    def has_ended(self) -> bool:
        return bool(self.rows) and self.rows[-1]["kind"] == "run_ended"

    def _in_doubt(self, event: dict) -> str | None:
        """Return the line whose writing a question is about."""
        if not event["task_id"].startswith("goal"):
            return event["task_id"]
        if "shell.run for" not in event["question"]:
            return None
        replies = [row["event"] for row in self.rows if row["kind"] == "agent_response"]
        action = [reply for reply in replies if reply["task_id"] == event["task_id"]][-1]["response"]["action"]
        return re.search(r"echo (\S+) >>", action["arguments"]["command"][2])[1]

    def _where(self, task_id: str) -> str:
        started = [row["event"] for row in self.rows if row["kind"] == "task_started"]
        return [event["device_id"] for event in started if event["task_id"] == task_id][-1]

    def _answer(self, key: str, path: str, body: dict) -> None:
        status, _ = self.world.call("POST", path, body)
        if status == 200:
            self.answered.add(key)

    def _edit(self, task_id: str) -> None:
        task = a_task(self.world.chance, task_id)
        status, answer = self.world.call(
            "POST", f"/api/runs/{self.run_id}/edits", {"commands": [{"command": "add_task", "task": task}]}
        )
        if status == 200 or (status == 400 and "already" in answer["detail"]):
            self.edits.remove(task_id)
            self.edited.add(task_id)


def a_task(chance, task_id: str, after: list[str] | None = None) -> dict:
    script = SCRIPT.format(task=task_id, before=chance.randint(1, 4), after=chance.randint(1, 4))
    data = {"tool": "shell.run", "arguments": {"command": ["sh", "-c", script]}}
    device = chance.choice(DEVICES)
    return {"task_id": task_id, "target_device_id": device, "task_data": data, **({"after": after} if after else {})}


def a_goal(chance, task_id: str) -> dict:
    return {"task_id": task_id, "target_device_id": chance.choice(DEVICES), "description": f"Note {task_id} in lines."}


def lines_of(task_id: str) -> list[str]:
    """Return the lines that a task appends."""
    return [f"{task_id}.{number}" for number in range(LINES)] if task_id.startswith("goal") else [task_id]


def agents_model(body: dict) -> dict:
    """Append the next line until all are there; what was not done is done again."""
    texts = [message["content"] for message in body["messages"]]
    goal = re.search(r"Note (\S+) in lines", texts[1])[1]
    written = sum(text.startswith("shell.run succeeded") for text in texts)
    if written == LINES:
        return {"thought": "t", "status": "FINISH", "result": written}
    script = SCRIPT.format(task=f"{goal}.{written}", before=2, after=2)
    action = {"tool": "shell.run", "arguments": {"command": ["sh", "-c", script]}}
    return {"thought": "t", "status": "CONTINUE", "action": action}


def some_tasks(chance, count: int) -> list[dict]:
    tasks: list[dict] = []
    for number in range(count):
        before = [task["task_id"] for task in chance.sample(tasks, min(len(tasks), chance.randint(0, 2)))]
        tasks.append(a_task(chance, f"task{number}", before))
    return tasks + [a_goal(chance, f"goal{number}") for number in range(GOALS)]


def strike(world) -> None:
    """Break something, and start again what was killed."""
    fewest = min(world.counts[how] for how in HOW)
    how = world.chance.choice([how for how in HOW if LONG or world.counts[how] == fewest])
    world.counts[how] += 1
    name = world.chance.choice(("north", "south"))
    if how == "link":
        world.proxy.cut()
    if how in ("hub", "both"):
        world.kill_hub()
    if how in ("device", "both"):
        world.kill_device(name)
        world.start_device(name)
    if how in ("hub", "both"):
        world.start_hub()
        world.until("the hub is up", world.is_up)


def one_run(world, kills: int) -> None:
    """Start a run, strike while it goes on, and look that nothing was lost and nothing was done twice."""
    for name in DEVICES:
        (world.folder / name / "ledger.txt").unlink(missing_ok=True)
    tasks = some_tasks(world.chance, 8 + kills)
    recipe = {"name": "chaos", "tasks": tasks}
    _, answer = world.call("POST", "/api/runs", {"recipe": recipe})
    person = Person(world, answer["run_id"], edits=max(1, kills // 2))
    next_strike = time.monotonic() + world.chance.uniform(0.5, 2.0)
    while kills:
        person.look()
        if person.has_ended():
            break
        if time.monotonic() >= next_strike:
            strike(world)
            kills -= 1
            next_strike = time.monotonic() + world.chance.uniform(0.2, 2.5)

    def is_over() -> bool:
        person.look()
        return person.has_ended() and not person.rows[-1]["event"]["error"]

    world.until("the end of the run", is_over)
    check(world, person, [task["task_id"] for task in tasks])


def check(world, person: Person, task_ids: list[str]) -> None:
    rows, counts = person.rows, world.counts
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    completed = Counter(row["event"]["task_id"] for row in rows if row["kind"] == "task_completed")
    assert completed == Counter([*task_ids, *person.edited]), "every task ended well, once"
    lines = world.ledger("north") + world.ledger("south") + world.ledger("hub")
    assert lines == Counter(line for task_id in completed for line in lines_of(task_id)), "every effect happened, once"
    asked = {row["event"]["approval_id"] for row in rows if row["kind"] == "approval_asked"}
    told = Counter(row["event"]["approval_id"] for row in rows if row["kind"] == "approval_answered")
    assert set(told) == asked, "every approval was answerable"
    assert set(told.values()) <= {1}
    questions = {row["event"]["question_id"] for row in rows if row["kind"] == "question_asked"}
    assert questions == {row["event"]["question_id"] for row in rows if row["kind"] == "question_answered"}
    edits = [row for row in rows if row["kind"] == "edit_applied" and row["event"]["by"] == "user"]
    assert len(edits) == len(person.edited), "every edit was made once"
    counts["tasks"] += len(completed)
    counts["attempts"] += sum(row["kind"] == "task_started" for row in rows)
    counts["approvals"] += len(asked)
    counts["doubts"] += sum(row["kind"] == "question_asked" for row in rows)
    counts["edits"] += len(edits)
    counts["agents' steps"] += sum(row["kind"] == "agent_response" for row in rows)
    counts["takings-up"] += sum(row["kind"] == "run_resumed" for row in rows)
    counts["runs"] += 1


@pytest.mark.chaos
def test_random_kills_lose_nothing_and_repeat_nothing(world, capsys):
    with ScriptedServer([agents_model]) as server:
        world.environ = {"STARLOOM_MODEL": server.model_form}
        world.start_hub()
        for name in ("north", "south"):
            world.start_device(name)
        world.until("the fleet", lambda: world.online("hub", "north", "south"))
        counts = world.counts
        while (struck := sum(counts[how] for how in HOW)) < KILLS:
            one_run(world, min(KILLS_A_RUN, KILLS - struck))
            if LONG:
                with capsys.disabled():
                    print(", ".join(f"{count} {what}" for what, count in counts.items()), flush=True)
        counts["models' calls"] = len(server.requests)
    with capsys.disabled():
        print("\nchaos: " + ", ".join(f"{count} {what}" for what, count in counts.items()) + "; none lost, none twice")
