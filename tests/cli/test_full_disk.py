"""The disk fills in the middle of a run: a clear word, nothing lost, nothing twice, and on when there is space again.

Real processes on a real small file system. Copying to a path that exists is an error, so a copy made twice would show.
"""

import http.client
import itertools
import json

ROUNDS = 12
SIZE_KB = 4_500  # some rounds fit
LARGE_KB = 64_000
TEXT = "a line of text\n" * 20_000  # 300 kB; its content is a result, so it goes to the journals


def write_job(home):
    (home.work / "big.txt").write_text(TEXT)
    tasks = []
    for number in range(ROUNDS):
        read = {"tool": "files.read", "arguments": {"path": "big.txt"}}
        copy = {"tool": "files.copy", "arguments": {"source": "big.txt", "path": f"out{number}.txt"}}
        for name, call in ((f"read{number}", read), (f"copy{number}", copy)):
            tasks.append({"task_id": name, "target_device_id": "hub", "task_data": call})
    names = [task["task_id"] for task in tasks]
    lines = [
        {"from_task_id": before, "to_task_id": after, "dependency_type": "success_only"}
        for before, after in itertools.pairwise(names)
    ]
    document = {"name": "fill the disk", "tasks": tasks, "dependencies": lines}
    (home.work / "job.json").write_text(json.dumps(document))
    return document


def copies(home):
    return {path.stem.removeprefix("out") for path in home.work.glob("out*.txt")}


def rows_of(home, run_id):
    return [json.loads(line) for line in home.run("runs", run_id, "--json").stdout.splitlines()]


def check_nothing_acted_without_its_event(home, rows):
    started = {row["event"]["task_id"] for row in rows if row["kind"] == "task_started"}
    assert {f"copy{number}" for number in copies(home)} <= started


def check_all_done_once(home, rows):
    completed = [row["event"]["task_id"] for row in rows if row["kind"] == "task_completed"]
    assert len(completed) == len(set(completed)) == 2 * ROUNDS
    assert [row for row in rows if row["kind"] == "task_failed"] == []
    assert len(copies(home)) == ROUNDS
    assert all((home.work / f"out{number}.txt").read_text() == TEXT for number in range(ROUNDS))


def test_a_run_here_stands_still_with_a_clear_word_and_resume_ends_it(home, small_disk):
    home.disk = disk = small_disk(SIZE_KB)
    write_job(home)
    broke = home.run("run", "job.json", "--json")
    assert broke.returncode == 7, broke.stderr
    error = json.loads(broke.stderr.splitlines()[-1])["error"]
    assert error["kind"] == "StoreError"
    run_id = error["ids"]["run_id"]
    assert "the disk is full; free some space" in error["message"]
    assert f"starloom resume {run_id}" in error["message"]
    assert "Traceback" not in broke.stderr
    assert 0 < len(copies(home)) < ROUNDS
    check_nothing_acted_without_its_event(home, rows_of(home, run_id))
    disk.grow(LARGE_KB)
    resumed = home.run("resume", run_id, "--json")
    assert resumed.returncode == 0, resumed.stderr
    check_all_done_once(home, rows_of(home, run_id))


class Api:
    """The hub's HTTP API."""

    def __init__(self, said):
        self._port = int(said["url"].rpartition(":")[2])
        self._key = said["page"].rpartition("=")[2]

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"X-API-Key": self._key, "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text


def test_a_hub_lives_on_and_goes_on_when_there_is_space(home, small_disk):
    home.disk = disk = small_disk(SIZE_KB)
    document = write_job(home)
    hub = home.start("up", "--port", "0", "--json")
    api = Api(json.loads(hub.until(lambda line: line.startswith("{"))))
    status, text = api.call("POST", "/api/runs", {"recipe": document})
    assert status == 201
    run_id = json.loads(text)["run_id"]
    _, text = api.call("GET", f"/api/runs/{run_id}/events")  # ends when the run stands still
    rows = [json.loads(line) for line in text.splitlines()]
    assert "run_ended" not in {row["kind"] for row in rows}
    check_nothing_acted_without_its_event(home, rows)
    status, text = api.call("POST", f"/api/runs/{run_id}/edits", {"commands": [{"command": "clear_constellation"}]})
    assert status == 400, "answered, and not made"
    assert api.call("GET", "/api/health")[0] == 200
    disk.grow(LARGE_KB)
    assert api.call("POST", f"/api/runs/{run_id}/resume")[0] == 200
    _, text = api.call("GET", f"/api/runs/{run_id}/events")
    check_all_done_once(home, [json.loads(line) for line in text.splitlines()])
    hub.interrupt()
    assert hub.finish() == 130
    assert hub.process.stderr is not None
    said = hub.process.stderr.read()
    assert f"Run {run_id} stands still, nothing is lost" in said
    assert "Traceback" not in said
