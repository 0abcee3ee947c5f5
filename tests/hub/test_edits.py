"""Routes that change a run, sent again after the reply was lost: by HTTP, over restarts and over kill -9."""

import asyncio
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

HELD = {
    "name": "held",
    "tasks": [
        {
            "task_id": "held",
            "target_device_id": "hub",
            "task_data": {"tool": "files.delete", "arguments": {"path": "a.txt"}},
        },
        {"task_id": "after", "task_data": {"tool": "files.list", "arguments": {"folder": "."}}},
    ],
    "dependencies": [{"from_task_id": "held", "to_task_id": "after", "dependency_type": "completion_only"}],
}


def add(name):
    task = {"task_id": name, "task_data": {"tool": "files.list", "arguments": {"folder": "."}}}
    line = {"from_task_id": "held", "to_task_id": name, "dependency_type": "completion_only"}
    return {"commands": [{"command": "add_task", "task": task}, {"command": "add_dependency", "dependency": line}]}


async def rows(hub, run_id, kind):
    return [item for item in await hub.galaxy.journal.read(run_id) if item.event.kind == kind]


async def begun(hub):
    _, started = await hub.call("POST", "/api/runs", {"recipe": HELD})
    run_id = started["run_id"]
    while not (asked := await rows(hub, run_id, "approval_asked")):
        await anext(aiter(hub.galaxy.journal.follow(run_id)))
    return run_id, asked[0].event.approval_id


async def test_an_edit_sent_again_is_made_once_and_answered_alike_over_a_restart(served_hub, tmp_path):
    async with served_hub(tmp_path) as hub:
        run_id, _ = await begun(hub)
        path = f"/api/runs/{run_id}"
        first = await hub.call("POST", f"{path}/edits", add("x"), idempotency_key="one")
        assert first == (200, {"run_id": run_id, "version": 2})
        assert await hub.call("POST", f"{path}/edits", add("x"), idempotency_key="one") == first
        status, refused = await hub.call("POST", f"{path}/edits", add("y"), idempotency_key="one")
        assert (status, "another request" in refused["detail"]) == (422, True)
        undone = await hub.call("POST", f"{path}/undo", idempotency_key="two")
        assert undone == (200, {"run_id": run_id, "version": 3})
        assert (await hub.call("POST", f"{path}/redo", idempotency_key="two"))[0] == 422
        redone = await hub.call("POST", f"{path}/redo", idempotency_key="three")
        assert redone == (200, {"run_id": run_id, "version": 4})
        assert (await hub.call("POST", f"{path}/redo"))[0] == 400
        assert (await hub.call("POST", f"{path}/undo", idempotency_key=""))[0] == 422
    async with served_hub(tmp_path) as hub:
        await hub.galaxy.resume_all()
        assert await hub.call("POST", f"{path}/edits", add("x"), idempotency_key="one") == first
        assert await hub.call("POST", f"{path}/undo", idempotency_key="two") == undone
        assert await hub.call("POST", f"{path}/cancel") == (200, {"run_id": run_id})
        await hub.galaxy.wait(run_id)
        assert await hub.call("POST", f"{path}/cancel") == (200, {"run_id": run_id})
        assert await hub.call("POST", f"{path}/edits", add("x"), idempotency_key="one") == first, "also after its end"
        assert (await hub.call("POST", f"{path}/edits", add("z"), idempotency_key="four"))[0] == 400
        assert (await hub.call("POST", f"{path}/edits", add("z"), idempotency_key="one"))[0] == 422
        assert len(await rows(hub, run_id, "edit_applied")) == 4


async def test_a_run_is_begun_once_however_often_its_request_is_sent(served_hub, tmp_path):
    body = {"recipe": HELD}
    async with served_hub(tmp_path) as hub:
        both = await asyncio.gather(*(hub.call("POST", "/api/runs", body, idempotency_key="one") for _ in range(3)))
        assert both[0] == both[1] == both[2]
        assert both[0][0] == 201
        other = {"recipe": {**HELD, "name": "another"}}
        assert (await hub.call("POST", "/api/runs", other, idempotency_key="one"))[0] == 422
        assert (await hub.call("POST", "/api/runs", other, idempotency_key="two"))[0] == 201
        wrong = {"recipe": {"name": "x", "tasks": [{"task_id": "a", "nonsense": 1}]}}
        assert (await hub.call("POST", "/api/runs", wrong, idempotency_key="three"))[0] == 400
        assert (await hub.call("POST", "/api/runs", body, idempotency_key="three"))[0] == 201, "nothing was begun by it"
    async with served_hub(tmp_path) as hub:
        assert await hub.call("POST", "/api/runs", body, idempotency_key="one") == both[0]
        assert len(await hub.galaxy.journal.runs()) == 3
        assert len(await rows(hub, both[0][1]["run_id"], "run_started")) == 1


async def test_an_answer_sent_again_is_one_answer_and_another_is_refused(served_hub, tmp_path):
    async with served_hub(tmp_path) as hub:
        run_id, approval_id = await begun(hub)
        path = f"/api/approvals/{approval_id}"
        first = await hub.call("POST", path, {"approved": False}, idempotency_key="one")
        assert first[0] == 200
        [answer] = await rows(hub, run_id, "approval_answered")
        assert answer.event.approved is False, "on record before the reply"
        assert await hub.call("POST", path, {"approved": False}, idempotency_key="one") == first
        assert (await hub.call("POST", path, {"approved": True}, idempotency_key="one"))[0] == 422
        assert (await hub.call("POST", path, {"approved": False}))[0] == 400
        await hub.galaxy.wait(run_id)
    async with served_hub(tmp_path) as hub:
        assert await hub.call("POST", path, {"approved": False}, idempotency_key="one") == first
        assert len(await rows(hub, run_id, "approval_answered")) == 1


async def test_two_people_at_once_are_one_answer(served_hub, tmp_path):
    async with served_hub(tmp_path) as hub:
        run_id, approval_id = await begun(hub)
        path = f"/api/approvals/{approval_id}"
        both = await asyncio.gather(*(hub.call("POST", path, {"approved": yes}) for yes in (True, False)))
        assert sorted(status for status, _ in both) == [200, 400]
        assert len(await rows(hub, run_id, "approval_answered")) == 1


class Killed:
    """A hub as a process, killed at random moments while a client sends its edits until each is answered."""

    def __init__(self, folder):
        (folder / "work").mkdir()
        self._folder = folder
        self._process = None
        self.kills = 0
        self.again = 0
        self.start()

    def start(self):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("STARLOOM")}
        environ |= {"STARLOOM_HOME": str(self._folder / "home"), "HOME": str(self._folder), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "starloom", "up", "--port", "0", "--json"],
            cwd=self._folder / "work",
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        said = json.loads(self._process.stdout.readline())
        self._port = int(said["url"].rpartition(":")[2])
        self._key = said["page"].rpartition("=")[2]

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        self.kills += 1

    def call(self, method, path, body=None, key=None):
        """Return the answer; None when the hub died first."""
        headers = {"X-API-Key": self._key, "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def events(self, run_id):
        _, text = self.call("GET", f"/api/runs/{run_id}/events?follow=false")
        return [json.loads(line) for line in text.splitlines()]

    def insist(self, path, body, key, chance):
        """Send a request until it is answered; the hub may be killed while it is on its way."""
        while True:
            killer = None
            if chance.random() < 0.4:
                killer = threading.Timer(chance.uniform(0, 0.03), self._process.kill)
                killer.start()
            answer = self.call("POST", path, body, key)
            if killer is not None:
                killer.join()
                self.kill()
                self.start()
                if chance.random() < 0.5:
                    answer = None  # it was on its way back when the client's own link broke
            if answer is not None and answer[0] == 200:
                return json.loads(answer[1])
            assert answer is None or "is not running in this hub" in answer[1], answer
            self.again += 1

    def close(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@pytest.mark.parametrize("seed", [1])
def test_every_edit_is_made_exactly_once_whenever_the_hub_is_killed(tmp_path, seed):
    chance = random.Random(seed)
    hub = Killed(tmp_path)
    try:
        run_id = json.loads(hub.call("POST", "/api/runs", {"recipe": HELD})[1])["run_id"]
        wanted = [f"edit {number}" for number in range(15)]
        versions = []
        for number, why in enumerate(wanted):
            body = {**add(f"t{number}"), "why": why}
            versions.append(hub.insist(f"/api/runs/{run_id}/edits", body, f"key {number}", chance)["version"])
        events = hub.events(run_id)
        made = [(row["event"]["why"], row["event"]["version"]) for row in events if row["kind"] == "edit_applied"][1:]
        assert made == list(zip(wanted, versions, strict=True))
        assert hub.kills > 0
        assert hub.again > 0
    finally:
        hub.close()
