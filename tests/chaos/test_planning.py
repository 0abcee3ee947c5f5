"""The hub is killed while a model plans, while a person looks at the plan, and while an agent pursues a goal."""

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


def test_a_goal_that_an_agent_had_begun_begins_anew_only_when_a_person_says_so(world):
    with ScriptedServer([LOOK, Fault(hangs=True), Fault(400)]) as server:
        up_with(world, server)
        goal = {"task_id": "goal", "target_device_id": "hub", "description": "Look around."}
        _, answer = world.call("POST", "/api/runs", {"recipe": {"name": "goal", "tasks": [goal]}})
        run_id = answer["run_id"]
        world.until("the agent thinks on", lambda: len(server.requests) == 2)
        again(world)
        question = first(world, run_id, "question_asked")
        assert len(server.requests) == 2, "nothing is done before a person has decided"
        where = f"/api/questions/{question['question_id']}"
        world.until("the answer is taken", lambda: world.call("POST", where, {"answer": "no"})[0] == 200)
        world.until("the agent begins anew", lambda: len(server.requests) > 2)
        assert "files.list" in next(text for text in server.requests[2].texts if "earlier try at this goal" in text)
        assert first(world, run_id, "run_ended")["stop_reason"] == "failed"  # the script says no more
        assert len(events(world, run_id, "task_started")) == 2
