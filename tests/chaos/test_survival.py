"""One crash at a time, at a chosen moment: what must be true afterwards."""

import contextlib
import json
import signal
import sqlite3

import pytest

from starloom.llm.scripted import ScriptedServer

pytestmark = pytest.mark.chaos

SLOW = "sleep 1; echo {task} >> ledger.txt; sleep 1"


def shell(task_id: str, device: str, script: str = SLOW, after: tuple[str, ...] = ()) -> dict:
    arguments = {"command": ["sh", "-c", script.format(task=task_id)]}
    data = {"tool": "shell.run", "arguments": arguments}
    return {"task_id": task_id, "target_device_id": device, "after": list(after), "task_data": data}


def submit(world, *tasks: dict) -> str:
    status, answer = world.call("POST", "/api/runs", {"recipe": {"name": "job", "tasks": list(tasks)}})
    assert status == 201, answer
    return answer["run_id"]


def first(world, run_id: str, kind: str, **fields: object) -> dict:
    def look() -> dict | None:
        rows = [row["event"] for row in world.events(run_id) if row["kind"] == kind]
        return next((row for row in rows if all(row[name] == value for name, value in fields.items())), None)

    return world.until(f"{kind} {fields}", look)


def approve(world, run_id: str, task_id: str) -> str:
    approval_id = first(world, run_id, "approval_asked", task_id=task_id)["approval_id"]
    world.until("the answer is taken", lambda: answered(world, approval_id))
    return approval_id


def answered(world, approval_id: str) -> bool:
    return world.call("POST", f"/api/approvals/{approval_id}", {"approved": True})[0] == 200


def ended(world, run_id: str) -> dict:
    return first(world, run_id, "run_ended")


def kinds(world, run_id: str, kind: str) -> list[dict]:
    return [row["event"] for row in world.events(run_id) if row["kind"] == kind]


@pytest.fixture
def running(world):
    """A hub and a device that are up, whatever the test before did to them, and nothing in the ledger."""
    if world.hub is None or world.hub.poll() is not None:
        world.start_hub()
    if "north" not in world.devices or world.devices["north"].poll() is not None:
        world.start_device("north")
    world.until("the hub is up", lambda: world.online("hub", "north"))
    (world.folder / "north" / "ledger.txt").unlink(missing_ok=True)
    return world


def test_an_attempt_that_runs_while_the_hub_is_killed_is_attached_to_and_not_run_again(running):
    run_id = submit(running, shell("a", "north"))
    approve(running, run_id, "a")
    first(running, run_id, "approval_answered")
    running.until("the tool runs", lambda: running.ledger("north")["a"])
    running.kill_hub()
    running.start_hub()
    assert ended(running, run_id)["stop_reason"] == "finished"
    assert running.ledger("north") == {"a": 1}
    assert len(kinds(running, run_id, "task_started")) == len(kinds(running, run_id, "approval_asked")) == 1


def test_an_approval_that_is_open_when_the_hub_is_killed_is_answered_by_its_id_afterwards(running):
    run_id = submit(running, shell("a", "north", "echo {task} >> ledger.txt"))
    asked = first(running, run_id, "approval_asked")
    running.kill_hub()
    running.start_hub()
    running.until("the hub is up", running.is_up)
    running.until("the answer is taken", lambda: answered(running, asked["approval_id"]))
    assert ended(running, run_id)["stop_reason"] == "finished"
    assert len(kinds(running, run_id, "approval_asked")) == len(kinds(running, run_id, "approval_answered")) == 1
    assert running.ledger("north") == {"a": 1}


@pytest.mark.parametrize(("answer", "lines", "reason"), [("yes", 1, "finished"), ("no", 2, "finished")])
def test_a_device_that_dies_in_the_middle_is_asked_about_and_its_task_not_run_again_unasked(
    running, answer, lines, reason
):
    run_id = submit(running, shell("a", "north"))
    approve(running, run_id, "a")
    running.until("the tool runs", lambda: running.ledger("north")["a"])
    running.kill_device("north")
    running.start_device("north")
    question = first(running, run_id, "question_asked")
    assert running.ledger("north") == {"a": 1}
    running.kill_hub()  # and the question outlives the hub
    running.start_hub()
    running.until("the hub is up", running.is_up)
    where = f"/api/questions/{question['question_id']}"
    running.until("the reply is taken", lambda: running.call("POST", where, {"answer": answer})[0] == 200)
    if answer == "no":
        first(running, run_id, "task_started", attempt=2)
        running.until("a second approval", lambda: len(kinds(running, run_id, "approval_asked")) == 2)
        answered(running, kinds(running, run_id, "approval_asked")[1]["approval_id"])
    assert ended(running, run_id)["stop_reason"] == reason
    assert running.ledger("north") == {"a": lines}
    assert len(kinds(running, run_id, "question_asked")) == 1


def test_a_result_is_acknowledged_to_the_device_once_it_is_committed(running):
    run_id = submit(running, shell("a", "north", "echo {task} >> ledger.txt"))
    approve(running, run_id, "a")
    ended(running, run_id)
    running.devices["north"].terminate()  # its record is locked while it lives
    running.devices["north"].wait()
    record = running.folder / "home" / "data" / "attempts" / "north.sqlite"
    with contextlib.closing(sqlite3.connect(record)) as rows:
        [(state, acknowledged, result)] = rows.execute(
            "SELECT state, acknowledged, result FROM attempts WHERE attempt_id = ?", (f"{run_id}:a:1",)
        ).fetchall()
    assert (state, acknowledged, json.loads(result)["status"]) == ("finished", 1, "success")


def test_a_hub_that_is_stopped_lets_its_devices_finish_and_takes_their_results_up(running):
    run_id = submit(running, shell("a", "north"))
    approve(running, run_id, "a")
    running.until("the tool runs", lambda: running.ledger("north")["a"])
    running.hub.send_signal(signal.SIGINT)
    running.hub.wait()
    running.start_hub()
    assert ended(running, run_id)["stop_reason"] == "finished"
    assert running.ledger("north") == {"a": 1}
    assert len(kinds(running, run_id, "task_started")) == 1
    assert kinds(running, run_id, "question_asked") == []


def test_a_link_that_is_cut_in_the_middle_costs_nothing(running):
    run_id = submit(running, shell("a", "north"))
    approve(running, run_id, "a")
    running.until("the tool runs", lambda: running.ledger("north")["a"])
    assert running.proxy.cut() > 0
    assert ended(running, run_id)["stop_reason"] == "finished"
    assert running.ledger("north") == {"a": 1}
    assert len(kinds(running, run_id, "task_started")) == 1


def agents_model(body: dict) -> dict:
    """Append one line, and end with what the agent was told of it."""
    told = [message["content"] for message in body["messages"] if message["content"].startswith("shell.run ")]
    if told:
        return {"thought": "t", "status": "FINISH", "result": told[0].partition(":")[0]}
    action = {"tool": "shell.run", "arguments": {"command": ["sh", "-c", SLOW.format(task="a")]}}
    return {"thought": "t", "status": "CONTINUE", "action": action}


def test_a_link_that_is_cut_under_an_agent_s_call_costs_nothing_and_the_agent_goes_on(running):
    with ScriptedServer([agents_model]) as server:
        running.kill_hub()
        running.environ = {"STARLOOM_MODEL": server.model_form}
        running.start_hub()
        running.until("the hub is up again", lambda: running.online("hub", "north"))
        run_id = submit(running, {"task_id": "a", "target_device_id": "north", "description": "Note a."})
        approve(running, run_id, "a")
        running.until("the tool runs", lambda: running.ledger("north")["a"])
        assert running.proxy.cut() > 0
        assert ended(running, run_id)["stop_reason"] == "finished"
        assert len(server.requests) == 2
    [done] = kinds(running, run_id, "task_completed")
    assert done["result"] == "shell.run succeeded"
    assert running.ledger("north") == {"a": 1}
    assert len(kinds(running, run_id, "task_started")) == len(kinds(running, run_id, "agent_action")) == 1
    assert kinds(running, run_id, "question_asked") == []
