"""The hub's routes over a real server and real sockets, with a hub that runs real recipes on its local device."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from starloom.hub.app import create_app
from starloom.hub.guard import Guard
from starloom.hub.serve import Address, bind, published, serving
from starloom.places import places
from starloom.session.build import galaxy_here
from starloom.settings import Settings

KEY = "k" * 43
RECIPE = {
    "name": "hello",
    "parameters": {"text": {"type": "text", "default": "hello"}},
    "tasks": [
        {
            "task_id": "write",
            "target_device_id": "hub",
            "task_data": {"tool": "files.write", "arguments": {"path": "a.txt", "text": "{{ parameters.text }}"}},
        }
    ],
}


@dataclass
class Hub:
    address: Address
    workspace: Path

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        return await asyncio.to_thread(self._call, method, path, body, headers)

    def _call(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.address.host, self.address.port, timeout=30)
        named = {"X-API-Key": KEY, "Content-Type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), named)
            reply = connection.getresponse()
            content = reply.read().decode()
            kind = reply.headers.get("Content-Type", "")
            return reply.status, json.loads(content) if kind.startswith("application/json") else content
        finally:
            connection.close()

    async def run(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Start a run and return its events to the end."""
        status, started = await self.call("POST", "/api/runs", body)
        assert status == 201, started
        _, lines = await self.call("GET", f"/api/runs/{started['run_id']}/events")
        return [json.loads(line) for line in lines.splitlines()]


@asynccontextmanager
async def a_hub(folder: Path) -> AsyncIterator[Hub]:
    workspace = folder / "work"
    workspace.mkdir()
    place = places({"STARLOOM_HOME": str(folder / "home")})
    with bind("127.0.0.1", 0) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1], KEY)
        async with (
            galaxy_here(place, Settings(), workspace=workspace, environ={}) as galaxy,
            serving(create_app(galaxy, Guard(KEY)), listener, closing=galaxy.close),
        ):
            yield Hub(address, workspace)


@pytest.mark.parametrize(
    "path",
    ["/api/health", "/api/clients", "/api/runs", "/api/devices", "/api/openapi.json", "/api/task_result/x", "/x"],
)
async def test_without_the_key_nothing_is_answered(tmp_path: Path, path: str):
    async with a_hub(tmp_path) as hub:
        for key in ("", "wrong", "ключ".encode().decode("latin-1")):
            status, _ = await hub.call("GET", path, X_API_Key=key)
            assert status == 401


async def test_a_foreign_host_or_origin_is_refused_even_with_the_key(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        assert (await hub.call("GET", "/api/health", Host="evil.example"))[0] == 403
        assert (await hub.call("GET", "/api/health", Origin="https://evil.example"))[0] == 403
        assert (await hub.call("GET", "/", Host="evil.example"))[0] == 403


@pytest.mark.parametrize("query", ["", "?token=wrong", "?token=%D0%BA%D0%BB%D1%8E%D1%87", "?token=" + "x" * 5000])
async def test_a_handshake_without_the_key_is_answered_403(tmp_path: Path, query: str):
    async with a_hub(tmp_path) as hub:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{hub.address.port}/ws{query}")
        assert refused.value.response.status_code == 403


async def test_a_recipe_runs_and_its_events_stream_to_the_end(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        events = await hub.run({"recipe": RECIPE, "parameters": {"text": "servus"}})
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["kind"] == "run_ended"
        assert events[-1]["event"]["stop_reason"] == "finished"
        assert (hub.workspace / "a.txt").read_text() == "servus"
        _, listed = await hub.call("GET", "/api/runs")
        assert [run["stop_reason"] for run in listed["runs"]] == ["finished"]


async def test_a_late_reader_asks_by_number(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        events = await hub.run({"recipe": RECIPE})
        _, text = await hub.call("GET", f"/api/runs/{events[0]['run_id']}/events?after=3&follow=false")
        assert [json.loads(line)["seq"] for line in text.splitlines()] == [event["seq"] for event in events[3:]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "either"),
        ({"request": "a", "recipe": {}}, "either"),
        ({"request": "a", "unknown": 1}, "unknown"),
        ({"request": " "}, "empty"),
        ({"recipe": {"tasks": [{"task_id": "a"}, {"task_id": "a"}]}}, "a"),
        ({"recipe": RECIPE, "parameters": {"month": 3}}, "month"),
    ],
)
async def test_a_wrong_run_is_refused_and_starts_nothing(tmp_path: Path, body: dict[str, Any], said: str):
    async with a_hub(tmp_path) as hub:
        status, answer = await hub.call("POST", "/api/runs", body)
        assert status in (400, 422)
        assert said in json.dumps(answer)
        assert (await hub.call("GET", "/api/runs"))[1] == {"runs": []}


@pytest.mark.parametrize("odd", ["\ud800", float("nan"), float("inf"), {"\ud800": 1}])
async def test_a_body_that_no_json_can_carry_is_refused_by_every_route(tmp_path: Path, odd: Any):
    async with a_hub(tmp_path) as hub:
        _, document = await hub.call("GET", "/api/openapi.json")
        tried = 0
        for path, operations in document["paths"].items():
            if "requestBody" not in operations.get("post", {}):
                continue
            tried += 1
            names = document["components"]["schemas"][
                operations["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            ]["properties"]
            for body in (dict.fromkeys(names, odd), {"odd": odd, "request": odd}, odd):
                status, answer = await hub.call("POST", path.replace("{", "").replace("}", ""), body)
                assert (status, path) == (422, path)
                assert answer["detail"][0]["msg"]
        assert tried >= 8
        recipe = {"recipe": RECIPE, "parameters": {"text": odd}}
        assert (await hub.call("POST", "/api/runs", recipe))[0] in (400, 422)
        assert (await hub.call("GET", "/api/runs"))[1] == {"runs": []}


async def test_a_refusal_does_not_repeat_what_was_sent(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        status, answer = await hub.call("POST", "/api/devices/invite", {"device_id": ["a secret"]})
        assert (status, answer["detail"][0]["loc"]) == (422, ["body", "device_id"])
        assert "secret" not in json.dumps(answer)


async def test_the_document_of_the_api_says_how_to_show_the_key_and_what_is_refused(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        _, document = await hub.call("GET", "/api/openapi.json")
        schemes = document["components"]["securitySchemes"]
        assert {scheme["type"]: scheme.get("name") for scheme in schemes.values()} == {
            "apiKey": "X-API-Key",
            "http": None,
        }
        assert [name for way in document["security"] for name in way] == list(schemes)
        assert "/" not in document["paths"]
        for operations in document["paths"].values():
            for operation in operations.values():
                assert {"401", "403"} <= set(operation["responses"])
        assert (await hub.call("GET", "/api/clients", X_API_Key="", Authorization=f"Bearer {KEY}"))[0] == 200


async def test_an_unknown_run_is_a_clear_refusal(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        for method, path in (("GET", "events"), ("POST", "resume"), ("POST", "cancel")):
            status, answer = await hub.call(method, f"/api/runs/run_0/{path}")
            assert status == 400
            assert "run_0" in answer["detail"]


async def test_a_risky_action_waits_for_an_answer_over_http(tmp_path: Path):
    recipe = {
        "name": "d",
        "tasks": [
            {
                "task_id": "a",
                "target_device_id": "hub",
                "task_data": {"tool": "files.delete", "arguments": {"path": "a.txt"}},
            }
        ],
    }
    for approved in (False, True):
        folder = tmp_path / str(approved)
        folder.mkdir()
        async with a_hub(folder) as hub:
            (hub.workspace / "a.txt").write_text("there")
            _, started = await hub.call("POST", "/api/runs", {"recipe": recipe})
            asked = await _until(hub, started["run_id"], "approval_asked")
            status, _ = await hub.call("POST", f"/api/approvals/{asked['approval_id']}", {"approved": approved})
            assert status == 200
            ended = await _until(hub, started["run_id"], "run_ended")
            assert (ended["stop_reason"] == "finished") is approved
            assert (hub.workspace / "a.txt").exists() is not approved
            status, _ = await hub.call("POST", f"/api/approvals/{asked['approval_id']}", {"approved": True})
            assert status == 400


async def _until(hub: Hub, run_id: str, kind: str) -> dict[str, Any]:
    while True:
        _, text = await hub.call("GET", f"/api/runs/{run_id}/events?follow=false")
        for line in text.splitlines():
            if json.loads(line)["kind"] == kind:
                return json.loads(line)["event"]


async def test_upstreams_dispatch_refuses_in_upstreams_words(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        assert await hub.call("POST", "/api/dispatch", {"client_id": "hub", "request": ""}) == (
            400,
            {"detail": "Empty task content"},
        )
        assert await hub.call("POST", "/api/dispatch", {"client_id": "", "request": "x"}) == (
            400,
            {"detail": "Empty client ID"},
        )
        assert await hub.call("POST", "/api/dispatch", {"client_id": "no", "request": "x"}) == (
            404,
            {"detail": "Client not online"},
        )
        assert await hub.call("GET", "/api/task_result/never") == (200, {"status": "pending"})
        status, health = await hub.call("GET", "/api/health")
        assert (status, health["status"], health["online_clients"]) == (200, "healthy", ["hub"])


async def test_the_page_needs_no_key_holds_none_and_loads_nothing_from_elsewhere(tmp_path: Path):
    async with a_hub(tmp_path) as hub:
        status, page = await hub.call("GET", "/", X_API_Key="")
        assert status == 200
        assert KEY not in page
        assert "http://" not in page
        assert "https://" not in page


def test_the_address_is_left_for_the_user_alone_and_taken_away(tmp_path: Path):
    file = tmp_path / "data" / "hub.json"
    with published(Address("127.0.0.1", 1, KEY), file):
        assert file.stat().st_mode & 0o077 == 0
        assert json.loads(file.read_text())["key"] == KEY
    assert not file.exists()
