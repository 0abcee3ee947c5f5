"""The routes of upstream's server, asked by a caller of upstream's: real sockets, a scripted model over real HTTP."""

import asyncio
import json
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from starloom.llm.scripted import ScriptedServer

NO_NAME = "Invalid task_name: must be a non-empty string of characters [A-Za-z0-9._-] and must not start with '.'"


def said(status: str, result: str) -> dict[str, object]:
    words = {"observation": "", "thought": "", "comment": "", "plan": [], "questions": [], "action": []}
    return {**words, "status": status, "result": result}


async def dispatched(hub, **body) -> dict[str, object]:
    status, answer = await hub.call("POST", "/api/dispatch", {"client_id": "hub", **body})
    assert (status, answer["status"], answer["client_id"]) == (200, "dispatched", "hub")
    return answer


async def done(hub, task_name: str) -> dict[str, object]:
    async with asyncio.timeout(30):
        while (answer := await hub.call("GET", f"/api/task_result/{task_name}")) == (200, {"status": "pending"}):
            pass
    assert answer[0] == 200
    return answer[1]


async def test_a_result_is_found_by_the_name_that_the_caller_gave(served_hub, tmp_path: Path):
    with ScriptedServer([said("FINISH", "first"), said("FINISH", "second")]) as model:
        async with served_hub(tmp_path, environ={"STARLOOM_MODEL": model.model_form}) as hub:
            answer = await dispatched(hub, request="Say first.", task_name="demo-task")
            assert answer["task_name"] == "demo-task"
            wanted = {"status": "done", "result": [{"request": "Say first.", "result": "first"}]}
            assert await done(hub, "demo-task") == wanted
            assert await done(hub, str(answer["session_id"])) == wanted
            assert await hub.call("GET", "/api/task_result/demo") == (200, {"status": "pending"})
    async with served_hub(tmp_path) as hub:
        assert await done(hub, "demo-task") == wanted, "after a restart too"


async def test_the_newest_task_of_a_name_counts_and_one_without_a_name_has_its_own(served_hub, tmp_path: Path):
    with ScriptedServer([said("FINISH", "first"), said("FINISH", "second"), said("FINISH", "third")]) as model:
        async with served_hub(tmp_path, environ={"STARLOOM_MODEL": model.model_form}) as hub:
            await dispatched(hub, request="Go.", task_name="t")
            assert (await done(hub, "t"))["result"] == [{"request": "Go.", "result": "first"}]
            await dispatched(hub, request="Go.", task_name="t")
            assert (await done(hub, "t"))["result"] == [{"request": "Go.", "result": "second"}]
            unnamed = await dispatched(hub, request="Go.")
            assert (await done(hub, str(unnamed["task_name"])))["result"] == [{"request": "Go.", "result": "third"}]


async def test_a_failed_task_is_done_and_says_why(served_hub, tmp_path: Path):
    async with served_hub(tmp_path) as hub:  # it has no model
        await dispatched(hub, request="Go.", task_name="t")
        answer = await done(hub, "t")
    assert (answer["status"], answer["result"]) == ("done", [{"request": "Go.", "result": None}])
    assert "model" in str(answer["error"])


@pytest.mark.parametrize("name", ["", "../escape", "/etc", "C:\\x", "%2e%2e", "..", ".x", "a b", "a\n", "ä", "x" * 201])
async def test_a_name_that_could_be_a_path_is_refused_in_upstreams_words(served_hub, tmp_path: Path, name: str):
    async with served_hub(tmp_path) as hub:
        body = {"client_id": "nobody", "request": "x", "task_name": name}
        status, answer = await hub.call("POST", "/api/dispatch", body)
        assert (status, answer) == (400, {"detail": NO_NAME})
        assert await hub.call("POST", "/api/dispatch", {**body, "task_name": "x"}) == (
            404,
            {"detail": "Client not online"},
        )


async def test_devices_and_constellation_clients_are_listed_together(served_hub, tmp_path: Path):
    async with served_hub(tmp_path) as hub, connect(hub.ws()) as socket:
        register = {"type": "register", "status": "ok", "client_type": "constellation"}
        await socket.send(json.dumps({**register, "client_id": "galaxy1@hub", "target_id": "hub"}))
        assert json.loads(await socket.recv())["status"] == "ok"
        assert await hub.call("GET", "/api/clients") == (200, {"online_clients": ["galaxy1@hub", "hub"]})
