"""The main job, as `make demo` runs it when no model can be had: right to the cent, in parallel, and killed."""

import json
import shutil
import zipfile
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import openpyxl
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "invoices"
JOB = """
name: job
tasks:
  - task_id: north
    target_device_id: hub
    idempotent: true
    task_data: {tool: invoices.read, arguments: {folder: north}}
  - task_id: south
    target_device_id: branch
    idempotent: true
    task_data: {tool: invoices.read, arguments: {folder: south}}
  - task_id: totals
    target_device_id: hub
    after: [north, south]
    task_data:
      tool: sheets.write
      arguments: {tables: ["{{ tasks.north.result }}", "{{ tasks.south.result }}"], path: totals.xlsx}
"""


def truth() -> dict[str, Decimal]:
    """Return the known totals in EUR by branch and of `all`, from the generator's truth."""
    cents = json.loads((EXAMPLES / "truth.json").read_text(encoding="utf-8"))["totals_cents"]
    return {name: Decimal(amount) / 100 for name, amount in cents.items()}


@pytest.fixture
def finished(home):
    done = home.run("demo", "--recipe", "--json", "--examples", str(EXAMPLES), "--into", "out")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], home.work / "out" / "hub"


def test_the_demos_totals_are_right_to_the_cent(finished):
    _, folder = finished
    expected = truth()
    book = openpyxl.load_workbook(folder / "totals.xlsx", data_only=True)
    rows = [row for sheet in book.worksheets for row in sheet.iter_rows(values_only=True)]
    numbers = {
        Decimal(str(value)).quantize(Decimal("0.01")) for row in rows for value in row if isinstance(value, int | float)
    }
    assert set(expected.values()) <= numbers
    assert f"| EUR | {expected['all']} |" in (folder / "summary.md").read_text(encoding="utf-8")
    with zipfile.ZipFile(folder / "invoices.zip") as archive:
        assert sorted(archive.namelist()) == ["summary.md", "totals.xlsx"]
        assert archive.testzip() is None


def test_the_two_devices_worked_at_the_same_time(finished):
    events, _ = finished
    started = {row["event"]["task_id"]: row for row in events if row["kind"] == "task_started"}
    ended = {row["event"]["task_id"]: row for row in events if row["kind"] == "task_completed"}
    assert {started["north"]["event"]["device_id"], started["south"]["event"]["device_id"]} == {"hub", "branch"}
    at = {name: datetime.fromisoformat(row["at"]) for name, row in started.items()}
    until = {name: datetime.fromisoformat(row["at"]) for name, row in ended.items()}
    assert max(at["north"], at["south"]) < min(until["north"], until["south"])
    assert at["totals"] >= max(until["north"], until["south"])


def test_the_run_is_in_the_journal(finished, home):
    events, _ = finished
    run_id = events[0]["run_id"]
    listed = json.loads(home.run("runs", "--json").stdout)["runs"]
    assert [(run["run_id"], run["stop_reason"]) for run in listed] == [(run_id, "finished")]
    shown = [json.loads(line) for line in home.run("runs", run_id, "--json").stdout.splitlines()]
    assert shown == events


def until_idle(home, device_id: str) -> None:
    """Return once the hub says that the device can take work."""
    for _ in range(100):
        devices = json.loads(home.run("devices", "--json").stdout)["devices"]
        if any(device["device_id"] == device_id and device["status"] == "idle" for device in devices):
            return
    raise AssertionError(f"{device_id} never became idle")


def test_a_device_killed_in_the_middle_leaves_a_run_that_is_taken_up_again(home):
    """The branch is stopped before its command, then killed: the run waits; it ends when the branch is back."""
    for device, branch in (("work", "north"), ("branch", "south")):
        shutil.copytree(EXAMPLES / branch, home.folder / device / branch)
    (home.work / "job.yaml").write_text(JOB)
    hub = home.start("up", "--port", "0", "--json")
    address = json.loads(hub.until(lambda line: '"join"' in line))["join"]
    join = ("join", "--name", "branch", "--workspace", str(home.folder / "branch"), "--json")
    first = home.start(*join, STARLOOM_HUB_URL=address)
    until_idle(home, "branch")
    first.freeze()
    run = home.start("run", "job.yaml", "--json")
    run.until_event("task_started", task_id="south")
    run.until_event("task_completed", task_id="north")
    first.kill()
    hub.interrupt()
    hub.finish()
    listed = json.loads(home.run("runs", "--json").stdout)["runs"]
    assert [run["stop_reason"] for run in listed] == [None]
    again = home.start("up", "--port", "0", "--json")
    address = json.loads(again.until(lambda line: '"join"' in line))["join"]
    watched = home.start("resume", listed[0]["run_id"], "--json")
    watched.until_event("run_resumed")
    home.start(*join, STARLOOM_HUB_URL=address)
    assert watched.finish() == 0
    events = watched.events()
    starts = [row["event"]["task_id"] for row in events if row["kind"] == "task_started"]
    assert starts.count("north") == 1
    assert events[-1]["event"]["stop_reason"] == "finished"
    assert (home.work / "totals.xlsx").exists()


def test_the_demo_says_what_is_missing_outside_a_checkout(home):
    done = home.run("demo")
    assert done.returncode == 2
    assert "checkout" in done.stderr


def test_without_any_way_to_get_the_model_the_demo_runs_from_its_recipe_and_says_so_in_one_line(home):
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}
    done = home.run("demo", "--examples", str(EXAMPLES), "--into", "out", **offline)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("Running from the recipe, without a model: ")]
    assert len(said) == 1
    assert (home.work / "out" / "hub" / "totals.xlsx").exists()


def test_the_demo_makes_only_its_own_folder_anew(home):
    mine = home.work / "mine" / "hub"
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("years of work")
    refused = home.run("demo", "--recipe", "--examples", str(EXAMPLES), "--into", "mine")
    assert refused.returncode == 2
    assert "--into" in refused.stderr
    assert (mine / "thesis.txt").read_text() == "years of work"
    for _ in range(2):
        assert home.run("demo", "--recipe", "--examples", str(EXAMPLES), "--into", "new").returncode == 0
