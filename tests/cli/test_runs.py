"""A run after it ended: looked at, replayed, forked, carried away and let go; through the program, as a user does."""

import json

import pytest

JOB = """
name: job
tasks:
  - {task_id: a, task_data: {tool: files.write, arguments: {path: a.txt, text: one}}}
  - task_id: b
    after: [a]
    task_data: {tool: files.write, arguments: {path: b.txt, text: "{{ tasks.a.result.path }}"}}
"""


@pytest.fixture
def finished(home):
    """Run the job once and return the run's id."""
    (home.work / "job.yaml").write_text(JOB)
    done = home.run("run", "job.yaml", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0])["run_id"]


def rows_of(home, run_id: str) -> list[dict]:
    return [json.loads(line) for line in home.run("runs", run_id, "--json").stdout.splitlines()]


def test_a_run_can_be_looked_at_as_it_was_and_as_a_timeline(home, finished):
    rows = rows_of(home, finished)
    assert [row["kind"] for row in (rows[0], rows[-1])] == ["run_started", "run_ended"]
    assert home.run("runs", "--json", finished).stdout == home.run("runs", finished, "--json").stdout
    shown = json.loads(home.run("runs", "show", finished, "--json").stdout)
    assert (shown["summary"]["completed"], shown["summary"]["ended"]) == (2, "finished")
    text = home.run("runs", "show", finished).stdout
    assert "a started on" in text
    assert "task ready" not in text
    assert "task ready" in home.run("runs", "show", finished, "--all").stdout


def test_a_replay_gives_the_same_graph_and_says_so(home, finished):
    done = home.run("replay", finished, "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "same")
    assert "byte for byte" in home.run("replay", finished).stdout
    middle = home.run("replay", finished, "--to", "4")
    assert middle.returncode == 0
    assert "nothing to compare" in middle.stdout


def test_a_fork_uses_what_had_been_done_and_does_the_rest_again(home, finished):
    rows = rows_of(home, finished)
    at = next(row["seq"] for row in rows if row["kind"] == "task_completed" and row["event"]["task_id"] == "a")
    for name in ("a.txt", "b.txt"):
        (home.work / name).unlink()
    done = home.run("fork", finished, "--at", str(at), "--json")
    assert done.returncode == 0, done.stderr
    forked = [json.loads(line) for line in done.stdout.splitlines()]
    assert forked[0]["event"]["parameters"]["forked_from"] == finished
    assert [row["event"]["task_id"] for row in forked if row["kind"] == "task_completed"] == ["a", "b"]
    assert not (home.work / "a.txt").exists()
    assert (home.work / "b.txt").read_text() == "a.txt"
    assert json.loads(home.run("replay", forked[0]["run_id"], "--json").stdout)["verdict"] == "same"
    assert home.run("fork", finished, "--at", "999").returncode == 2


def test_a_run_goes_to_a_file_and_comes_back(home, finished):
    rows = rows_of(home, finished)
    assert home.run("runs", "export", finished, "one.jsonl.gz").returncode == 0
    taken = home.run("runs", "import", "one.jsonl.gz")
    assert (taken.returncode, "already" in taken.stderr) == (2, True)
    assert home.run("runs", "import", "one.jsonl.gz", "--as", "run_copy").returncode == 0
    copied = rows_of(home, "run_copy")
    assert [row["event"] for row in copied] == [row["event"] for row in rows]


def test_old_runs_are_let_go_and_what_is_not_a_run_is_said(home, finished):
    assert json.loads(home.run("runs", "prune", "--json").stdout)["removed"] == []
    assert json.loads(home.run("runs", "prune", "--keep", "0", "--older-than", "1h", "--json").stdout)["removed"] == []
    assert json.loads(home.run("runs", "prune", "--keep", "0", "--json").stdout)["removed"] == [finished]
    assert json.loads(home.run("runs", "--json").stdout)["runs"] == []
    assert home.run("runs", "show", finished).returncode == 2
    assert home.run("runs", "prune", "--older-than", "soon").returncode == 2


def test_what_a_run_changed_is_shown_and_taken_back_on_yes(home):
    (home.work / "a.txt").write_text("before")
    (home.work / "job.yaml").write_text(JOB)
    done = home.run("run", "job.yaml", "--json")
    run_id = json.loads(done.stdout.splitlines()[0])["run_id"]
    listed = home.run("undo-effects", run_id, "--list", "--json")
    [device] = json.loads(listed.stdout)["devices"]
    assert [(row["kind"], row["path"]) for row in device["effects"]] == [("overwritten", "a.txt"), ("created", "b.txt")]
    unasked = home.run("undo-effects", run_id)
    assert (unasked.returncode, (home.work / "a.txt").read_text()) == (6, "one")
    assert home.run("undo-effects", run_id, "--yes").returncode == 0
    assert (home.work / "a.txt").read_text() == "before"
    assert not (home.work / "b.txt").exists()
    again = json.loads(home.run("undo-effects", run_id, "--yes", "--json").stdout)["devices"][0]["effects"]
    assert [row["undone"] for row in again] == [False, False]
    actions = [row["event"] for row in rows_of(home, run_id) if row["kind"] == "agent_action"]
    assert [action["status"] for action in actions if action["agent"] == "undo"][:2] == ["success", "success"]
    assert json.loads(home.run("replay", run_id, "--json").stdout)["verdict"] == "same"
