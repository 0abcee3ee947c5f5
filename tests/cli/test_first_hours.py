"""Bad first hours: each gives one clear line, an exit code that is not 0, and leaves nothing half-written."""

import json
import socket
from pathlib import Path

import pytest

RECIPE = """
name: hello
tasks:
  - {task_id: write, target_device_id: hub, task_data: {tool: files.write, arguments: {path: hello.txt, text: hello}}}
"""


def one_task(tool: str, **arguments: str) -> str:
    task = {"task_id": "a", "target_device_id": "hub", "task_data": {"tool": tool, "arguments": arguments}}
    return json.dumps({"name": "n", "tasks": [task]})


def one_line(done) -> str:
    assert done.returncode not in (0, 70), done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("starloom: ")
    return lines[0]


def test_a_home_that_cannot_be_written(home):
    (home.folder / "home").write_text("a file where a folder should be")
    (home.work / "r.yaml").write_text(RECIPE)
    done = home.run("run", "r.yaml")
    assert done.returncode == 7
    assert "STARLOOM_HOME" in one_line(done) or "director" in one_line(done)
    assert not (home.work / "hello.txt").exists()


def test_a_port_that_is_taken(home):
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = home.run("up", "--port", str(other.getsockname()[1]))
    assert done.returncode == 2
    assert "--port 0" in one_line(done)
    assert not (home.folder / "home" / "data" / "hub.json").exists()


def test_no_model_says_how_to_get_one(home):
    done = home.run("run", "do something")
    assert done.returncode == 1
    assert "starloom model install" in done.stdout + done.stderr


def test_a_missing_key(home):
    done = home.run("run", "do something", STARLOOM_MODEL="openai:gpt-5-mini", OPENAI_API_KEY="")
    assert "OPENAI_API_KEY" in one_line(done)


def test_a_model_nobody_knows(home):
    done = home.run("run", "do something", STARLOOM_MODEL="opanai:gpt")
    assert done.returncode == 2
    assert "openai" in one_line(done)


def test_a_workspace_that_is_not_there(home):
    done = home.run("run", "do something", "--workspace", "nowhere")
    assert done.returncode == 2
    assert "nowhere" in one_line(done)


def test_a_recipe_that_is_not_there(home):
    assert "nowhere.yaml" in one_line(home.run("run", "nowhere.yaml"))


@pytest.mark.parametrize("text", ["", "tasks: [", "- 1", "tasks: {a: {task_id: b}}", "a: &a [*a]", "\x00\x01"])
def test_a_recipe_that_is_no_recipe(home, text: str):
    (home.work / "r.yaml").write_text(text)
    one_line(home.run("run", "r.yaml"))
    assert not (home.folder / "home" / "data" / "journal.sqlite").exists() or json.loads(
        home.run("runs", "--json").stdout
    ) == {"runs": []}


def test_a_parameter_the_recipe_does_not_have(home):
    (home.work / "r.yaml").write_text(RECIPE)
    assert "month" in one_line(home.run("run", "r.yaml", "--set", "month=2026-10"))


def test_an_empty_request(home):
    assert "empty" in one_line(home.run("run", " "))


def test_an_empty_folder_of_invoices(home):
    (home.work / "empty").mkdir()
    (home.work / "r.yaml").write_text(one_task("invoices.read", folder="empty"))
    done = home.run("run", "r.yaml", "--json")
    failed = [json.loads(line) for line in done.stdout.splitlines() if '"task_failed"' in line]
    assert done.returncode == 1
    assert "empty" in failed[0]["event"]["error"]


def test_settings_with_an_unknown_key_suggest_the_known_one(home):
    config = home.folder / "home" / "config"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text("hub: {prot: 5001}\n")
    assert "'port'" in one_line(home.run("run", "do something"))


def test_joining_what_is_no_address(home):
    assert "ws://" in one_line(home.run("join", "http://127.0.0.1:1"))


def test_without_anyone_to_ask_a_risky_action_is_refused(home):
    (home.work / "keep.txt").write_text("keep")
    (home.work / "r.yaml").write_text(one_task("files.delete", path="keep.txt"))
    done = home.run("run", "r.yaml", "--json")
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert "approval_asked" in kinds
    assert Path(home.work / "keep.txt").read_text() == "keep"


def test_a_second_hub_on_the_same_home_names_the_first(home):
    first = home.start("up", "--port", "0", "--json")
    first.until(lambda line: "page" in line)
    done = home.run("up", "--port", "0")
    assert done.returncode == 7
    assert str(first.process.pid) in one_line(done)
