"""The hub is killed while a model plans, while a person looks at the plan, and while an agent pursues a goal."""

import contextlib
import re
import sqlite3

import pytest

from starloom.llm.scripted import Fault, ScriptedServer

pytestmark = pytest.mark.chaos

PLAN = {
    "steps": [
        {
            "id": "write",
            "name": "write the greeting",
            "description": "Write the greeting.",
            "device": "hub",
            "tool": "files.write",
            "arguments": {"path": "hello.txt", "text": "hello"},
            "after": [],
        }
    ],
    "refusal": None,
}
DONE = {"thought": "t", "status": "FINISH", "result": "done"}
LOOK = {"thought": "t", "status": "CONTINUE", "action": [{"tool": "files.list", "arguments": {"folder": "."}}]}


def up_with(world, server: ScriptedServer) -> None:
    if world.hub is not None:
        world.kill_hub()
    world.environ = {"STARLOOM_MODEL": server.model_form}
    world.start_hub()
    world.until("the hub is up", world.is_up)


def again(world) -> None:
    world.kill_hub()
    world.start_hub()
    world.until("the hub is up", world.is_up)


def events(world, run_id: str, kind: str) -> list[dict]:
    return [row["event"] for row in world.events(run_id) if row["kind"] == kind]


def first(world, run_id: str, kind: str) -> dict:
    return world.until(kind, lambda: events(world, run_id, kind))[0]


def pursue(world, goal: str, device: str = "hub") -> str:
    task = {"task_id": "goal", "target_device_id": device, "description": goal}
    _, answer = world.call("POST", "/api/runs", {"recipe": {"name": "goal", "tasks": [task]}})
    return answer["run_id"]


def unmarked(text: str) -> str:
    return re.sub(r"untrusted-\w+", "untrusted", text)


def settled(world, device: str, run_id: str) -> set[int]:
    """Return whether the run's calls on a device are out of its outbox; its record is locked while it lives."""
    world.devices[device].terminate()
    world.devices[device].wait()
    record = world.folder / "home" / "data" / "attempts" / f"{device}.sqlite"
    with contextlib.closing(sqlite3.connect(record)) as rows:
        found = rows.execute("SELECT acknowledged FROM attempts WHERE attempt_id LIKE ?", (f"{run_id}:%",)).fetchall()
    return {acknowledged for (acknowledged,) in found}


def test_a_plan_that_a_person_was_looking_at_is_the_one_that_is_run(world):
    with ScriptedServer([PLAN, Fault(503)]) as server:
        up_with(world, server)
        _, answer = world.call("POST", "/api/runs", {"request": "Write hello to hello.txt", "confirm_plan": True})
        run_id = answer["run_id"]
        question = first(world, run_id, "question_asked")
        again(world)
        assert events(world, run_id, "task_started") == []
        where = f"/api/questions/{question['question_id']}"
        world.until("the answer is taken", lambda: world.call("POST", where, {"answer": "yes"})[0] == 200)
        assert first(world, run_id, "run_ended")["stop_reason"] == "finished"
        assert (world.folder / "hub" / "hello.txt").read_text() == "hello"
        assert len(server.requests) == len(events(world, run_id, "plan_proposed")) == 1
        assert len(events(world, run_id, "question_asked")) == 1


def test_a_request_that_was_being_planned_is_planned_again(world):
    with ScriptedServer([Fault(hangs=True), PLAN]) as server:
        up_with(world, server)
        _, answer = world.call("POST", "/api/runs", {"request": "Write hello to hello.txt"})
        world.until("the model is asked", lambda: server.requests)
        again(world)
        assert first(world, answer["run_id"], "run_ended")["stop_reason"] == "finished"
        assert len(events(world, answer["run_id"], "run_started")) == 1


def test_an_agent_that_was_thinking_thinks_on_and_asks_nobody(world):
    with ScriptedServer([LOOK, Fault(hangs=True), DONE]) as server:
        up_with(world, server)
        run_id = pursue(world, "Look around.")
        world.until("the agent thinks on", lambda: len(server.requests) == 2)
        again(world)
        assert first(world, run_id, "run_ended")["stop_reason"] == "finished"
        assert len(server.requests) == 3, "only the call that was in flight is made again"
        assert events(world, run_id, "question_asked") == []
        assert len(events(world, run_id, "task_started")) == 1
        before, after = server.requests[1].texts, server.requests[2].texts
        assert before[2] == after[2], "its own reply"
        assert unmarked(before[3]) == unmarked(after[3]), "and what came of it"
        assert "You were interrupted" in after[-1]


def test_an_agent_s_call_that_ran_while_the_hub_was_killed_is_attached_to_and_the_agent_goes_on(world):
    script = "echo begun > begun.txt; sleep 2; echo once >> ledger.txt; echo noted"
    call = {"tool": "shell.run", "arguments": {"command": ["sh", "-c", script]}}
    with ScriptedServer([{"thought": "t", "status": "CONTINUE", "action": call}, DONE]) as server:
        up_with(world, server)
        world.start_device("north")
        world.until("the device", lambda: world.online("north"))
        run_id = pursue(world, "Write once to the ledger.", "north")
        asked = first(world, run_id, "approval_asked")
        again(world)
        where = f"/api/approvals/{asked['approval_id']}"
        world.until("the answer is taken", lambda: world.call("POST", where, {"approved": True})[0] == 200)
        world.until("the tool runs", (world.folder / "north" / "begun.txt").exists)
        again(world)
        assert first(world, run_id, "run_ended")["stop_reason"] == "finished"
        assert world.ledger("north") == {"once": 1}
        assert len(server.requests) == 2, "a model call for each step"
        assert len(events(world, run_id, "approval_asked")) == 1
        [acted] = events(world, run_id, "agent_action")
        assert (acted["status"], acted["step"], acted["index"]) == ("success", 1, 0)
        assert "noted" in acted["result"]
        assert "noted" in server.requests[1].texts[3]
    assert settled(world, "north", run_id) == {1}


def test_an_agent_s_call_that_died_with_its_device_is_asked_about_and_the_agent_is_told(world):
    script = "echo begun > dying.txt; sleep 60"
    call = {"tool": "shell.run", "arguments": {"command": ["sh", "-c", script]}}
    with ScriptedServer([{"thought": "t", "status": "CONTINUE", "action": call}, DONE]) as server:
        up_with(world, server)
        world.start_device("south")
        world.until("the device", lambda: world.online("south"))
        run_id = pursue(world, "Begin.", "south")
        asked = first(world, run_id, "approval_asked")
        world.call("POST", f"/api/approvals/{asked['approval_id']}", {"approved": True})
        world.until("the tool runs", (world.folder / "south" / "dying.txt").exists)
        world.kill_device("south")
        world.start_device("south")
        question = first(world, run_id, "question_asked")
        assert "shell.run" in question["question"]
        again(world)  # and the question outlives the hub
        where = f"/api/questions/{question['question_id']}"
        world.until("the answer is taken", lambda: world.call("POST", where, {"answer": "no"})[0] == 200)
        assert first(world, run_id, "run_ended")["stop_reason"] == "finished"
        assert len(server.requests) == 2
        assert "Someone decided that it counts as not done" in server.requests[1].texts[3]
        assert len(events(world, run_id, "question_asked")) == 1
