"""`starloom run` with a model behind a real OpenAI-compatible HTTP server: plans, goals in words, faults, Ctrl-C."""

import json

import pytest

from starloom.cli.hub_client import HubClient
from starloom.llm.scripted import Fault, ScriptedServer

HEAVY = {"pydantic_ai", "openai", "mcp", "fastapi", "starlette", "uvicorn", "xllamacpp"}
SECRET = "sk-test-0123456789abcdef0123456789"
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


def events(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_a_request_is_planned_by_the_model_and_run(home):
    with ScriptedServer([PLAN], key=SECRET) as server:
        done = home.run(
            "run", "Write hello to hello.txt", "--json", STARLOOM_MODEL=server.model_form, STARLOOM_API_KEY=SECRET
        )
    assert done.returncode == 0, done.stderr
    kinds = [row["kind"] for row in events(done.stdout)]
    assert kinds.index("plan_proposed") < kinds.index("edit_applied") < kinds.index("task_started")
    assert (home.work / "hello.txt").read_text() == "hello"
    journal = (home.folder / "home" / "data" / "journal.sqlite").read_bytes()
    assert SECRET not in done.stdout + done.stderr
    assert SECRET.encode() not in journal


def test_a_destination_that_the_user_did_not_name_is_asked_and_refused_when_nobody_is_there(home):
    with ScriptedServer([PLAN]) as server:
        done = home.run("run", "Greet me in a file", "--json", STARLOOM_MODEL=server.model_form)
    assert done.returncode == 1
    assert "approval_asked" in [row["kind"] for row in events(done.stdout)]
    assert not (home.work / "hello.txt").exists()


def test_the_models_refusal_is_the_end(home):
    with ScriptedServer([{"steps": [], "refusal": "There is no oven here."}]) as server:
        done = home.run("run", "Bake a cake", STARLOOM_MODEL=server.model_form)
    assert done.returncode == 1
    assert "There is no oven here." in done.stdout


FAULTS = {
    "a wrong key": (Fault(401), "key"),
    "an unknown model": (Fault(404, '{"error": {"message": "no such model"}}'), "model"),
    "a web page": (Fault(200, "<!doctype html><html><body>Sign in</body></html>", "text/html"), "web page"),
    "prose for ever": ("I would rather talk about the weather.", "scripted"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_models_fault_is_one_clear_line_and_nothing_runs(home, name: str):
    fault, word = FAULTS[name]
    with ScriptedServer([fault]) as server:
        done = home.run("run", "Write hello to hello.txt", "--json", STARLOOM_MODEL=server.model_form)
    ended = events(done.stdout)[-1]
    assert done.returncode == 1
    assert ended["kind"] == "run_ended"
    assert word in ended["event"]["error"].lower()
    assert "\n" not in ended["event"]["error"]
    assert "task_started" not in done.stdout
    assert "Traceback" not in done.stderr


def test_an_endpoint_where_nobody_listens(home):
    done = home.run("run", "Do it", "--json", STARLOOM_MODEL="http://127.0.0.1:9/v1#m")
    assert done.returncode == 1
    assert "127.0.0.1:9" in events(done.stdout)[-1]["event"]["error"]


def test_ctrl_c_while_planning_cancels_the_run(home):
    with ScriptedServer([Fault(hangs=True)]) as server:
        run = home.start("run", "Write hello to hello.txt", "--json", STARLOOM_MODEL=server.model_form)
        run.until_event("run_started")
        run.interrupt()
        assert run.finish() == 130
    assert [row["kind"] for row in run.events()][-2:] == ["run_cancelled", "run_ended"]
    assert "Traceback" not in run.rest_of_errors()


def test_ctrl_c_while_a_task_runs_stops_it_and_what_follows(home):
    shell = {"tool": "shell.run", "arguments": {"command": "sleep 600"}}
    write = {"tool": "files.write", "arguments": {"path": "next.txt", "text": "n"}}
    tasks = [
        {"task_id": "long", "target_device_id": "hub", "task_data": shell},
        {"task_id": "next", "target_device_id": "hub", "task_data": write, "after": ["long"]},
    ]
    (home.work / "r.json").write_text(json.dumps({"name": "n", "tasks": tasks}))
    hub = home.start("up", "--port", "0", "--json")
    hub.until(lambda line: '"page"' in line)
    run = home.start("run", "r.json", "--json")
    asked = run.until_event("approval_asked")
    address = json.loads((home.folder / "home" / "data" / "hub.json").read_text())
    HubClient(address["url"], address["key"]).post(
        f"/api/approvals/{asked['event']['approval_id']}", {"approved": True}
    )
    run.until_event("approval_answered")
    run.interrupt()
    assert run.finish() == 130
    listed = json.loads(home.run("runs", "--json").stdout)["runs"]
    assert listed[0]["stop_reason"] == "cancelled"
    assert not (home.work / "next.txt").exists()
    assert "Traceback" not in run.rest_of_errors()


def test_ctrl_c_stops_the_hub_and_a_device_cleanly(home):
    hub = home.start("up", "--port", "0", "--json")
    address = json.loads(hub.until(lambda line: '"join"' in line))["join"]
    device = home.start("join", "--name", "branch", "--json", STARLOOM_HUB_URL=address)
    device.until(lambda line: '"registered"' in line)
    device.interrupt()
    assert device.finish() == 130
    hub.interrupt()
    assert hub.finish() == 130
    for program in (device, hub):
        errors = program.rest_of_errors()
        assert "Traceback" not in errors
        assert len(errors.strip().splitlines()) <= 1
    assert not (home.folder / "home" / "data" / "hub.json").exists()


def test_a_device_process_loads_no_model_mcp_or_web_framework(home):
    hub = home.start("up", "--port", "0", "--json")
    address = json.loads(hub.until(lambda line: '"join"' in line))["join"]
    device = home.start("join", "--name", "branch", "--json", STARLOOM_HUB_URL=address, PYTHONPROFILEIMPORTTIME="1")
    device.until(lambda line: '"registered"' in line)
    (home.work / "job.yaml").write_text(
        "name: job\n"
        "tasks: [{task_id: look, target_device_id: branch, task_data: {tool: files.list, arguments: {folder: .}}}]\n"
    )
    done = home.run("run", "job.yaml")
    assert done.returncode == 0, done.stderr
    device.until(lambda line: '"busy"' in line)
    device.interrupt()
    device.finish()
    imported = {line.rpartition("|")[2].strip() for line in device.rest_of_errors().splitlines() if "|" in line}
    assert "starloom.device.process" in imported
    assert not imported & HEAVY
