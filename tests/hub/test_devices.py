"""Facts about who may come as what, over a real server and real sockets, with the device's own process code."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect as dial

from starloom.aip.websocket import connect
from starloom.clock import SystemClock
from starloom.device.identity import DeviceIdentity
from starloom.device.process import DeviceState, DeviceStatusReport, run_device
from starloom.device.settings import DeviceSettings
from starloom.hub.app import create_app
from starloom.hub.guard import Guard
from starloom.tools.router import ToolRouter

PATIENCE_S = 20.0


class Device:
    """A device that runs in this process and dials over a real socket."""

    def __init__(self, url: str, device_id: str, tls: ssl.SSLContext | None = None) -> None:
        self.tokens: list[str] = []
        self.reports: asyncio.Queue[DeviceStatusReport] = asyncio.Queue()
        self._url = url
        self._tls = tls
        self._identity = DeviceIdentity(device_id, "linux", "linux")

    async def run(self) -> None:
        await run_device(
            lambda: connect(self._url, tls=self._tls),
            ToolRouter([]),
            self._identity,
            clock=SystemClock(),
            settings=DeviceSettings(first_delay_s=0.05, max_delay_s=0.05),
            on_status=self.reports.put_nowait,
            on_credential=self.tokens.append,
        )

    async def until(self, wanted: Callable[[DeviceStatusReport], bool]) -> DeviceStatusReport:
        async with asyncio.timeout(PATIENCE_S):
            while not wanted(report := await self.reports.get()):
                pass
        return report

    async def registered(self) -> None:
        await self.until(lambda report: report.state is DeviceState.REGISTERED)

    async def refused(self) -> str:
        return (await self.until(lambda report: report.state is DeviceState.REFUSED)).detail


@asynccontextmanager
async def a_device(url: str, device_id: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Device]:
    device = Device(url, device_id, tls)
    running = asyncio.create_task(device.run())
    try:
        yield device
    finally:
        running.cancel()
        await asyncio.wait([running])


async def invited(hub: Any, **body: Any) -> str:
    status, answer = await hub.call("POST", "/api/devices/invite", body)
    assert status == 201, answer
    return answer["token"]


async def a_credential(hub: Any, device_id: str, tls: ssl.SSLContext | None = None) -> str:
    async with a_device(hub.ws(await invited(hub)), device_id, tls) as device:
        await device.registered()
    await gone(hub, device_id)
    return device.tokens[0]


async def a_lost_process(hub: Any, device_id: str, *, instance: str) -> None:
    """Register as a process with a record of its own, and be cut off without a goodbye."""
    offer = {"v": 1, "caps": ["leases", "attempts"], "instance": instance}
    frame = {"type": "register", "status": "ok", "client_id": device_id}
    async with dial(hub.ws()) as client:
        await client.send(json.dumps({**frame, "metadata": {"platform": "linux", "x_starloom": offer}}))
        assert "lease_s" in await client.recv()
        client.transport.abort()
    await gone(hub, device_id)


async def gone(hub: Any, device_id: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for _ in hub.galaxy.fleet.changes():
            if not hub.galaxy.fleet.get(device_id).status.is_online:
                return


async def test_an_invited_device_gets_a_token_that_outlives_the_hub(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        token = await a_credential(hub, "field")
        status, shown = await hub.call("GET", "/api/devices/field")
        assert (status, shown["device_id"], shown["credential"]["used_at"]) == (200, "field", None)
    async with served_hub(tmp_path) as again, a_device(again.ws(token), "field") as device:
        await device.registered()
        _, shown = await again.call("GET", "/api/devices/field")
        assert shown["credential"]["used_at"] is not None


async def test_an_invitation_is_used_once(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        token = await invited(hub)
        async with a_device(hub.ws(token), "first") as first, a_device(hub.ws(token), "first"):
            await first.registered()
        async with a_device(hub.ws(token), "second") as second:
            await second.refused()


async def test_a_devices_token_opens_nothing_but_its_own_place(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        for token in (await invited(hub), await a_credential(hub, "field")):
            for method, path in (
                ("GET", "/api/devices"),
                ("GET", "/api/health"),
                ("POST", "/api/devices/invite"),
                ("POST", "/api/devices/field/revoke"),
                ("POST", "/api/runs"),
            ):
                assert (await hub.call(method, path, {}, key=token))[0] == 401
        async with a_device(hub.ws(token), "other") as device:
            assert "credential" in await device.refused()


async def test_the_hubs_key_cannot_take_the_place_of_a_device_with_its_own_token(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        await a_credential(hub, "field")
        async with a_device(hub.ws(), "field") as device:
            assert "credential of its own" in await device.refused()
        async with a_device(hub.ws(), "another") as device:
            await device.registered()


async def test_nobody_takes_the_place_of_the_hubs_own_device(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        status, answer = await hub.call("POST", "/api/devices/invite", {"device_id": "hub"})
        assert (status, answer["kind"]) == (400, "UsageError")
        for token in (await invited(hub), hub.address.key):
            async with a_device(hub.ws(token), "hub") as device:
                await device.refused()
        assert hub.galaxy.online_devices() == ["hub"]


async def test_a_revoked_device_is_put_out_and_stays_out(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        token = await a_credential(hub, "field")
        async with a_device(hub.ws(token), "field") as device:
            await device.registered()
            assert await hub.call("POST", "/api/devices/field/revoke") == (
                200,
                {"device_id": "field", "revoked": True},
            )
            refused = await device.until(lambda report: "403" in report.detail)
            assert token not in refused.detail
            assert not hub.galaxy.fleet.get("field").status.is_online
        status, answer = await hub.call("POST", "/api/devices/field/revoke")
        assert (status, answer["kind"]) == (400, "UsageError")
        with pytest.raises(Exception, match="403"):
            await connect(hub.ws(token))


async def test_revoking_takes_open_invitations_for_the_name_away(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        token = await invited(hub, device_id="field")
        assert (await hub.call("POST", "/api/devices/field/revoke"))[0] == 200
        async with a_device(hub.ws(token), "field") as device:
            await device.until(lambda report: "403" in report.detail)


async def test_a_device_revoked_while_its_handshake_is_answered_is_not_served(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        token = await a_credential(hub, "field")
        said = []

        async def send(message):
            said.append(message)
            if message["type"] == "websocket.accept":
                hub.galaxy.fleet.credentials.revoke("field")

        async def receive():
            return {"type": "websocket.connect"}

        scope = {
            "type": "websocket",
            "path": "/ws",
            "query_string": f"token={token}".encode(),
            "headers": [(b"host", b"127.0.0.1")],
        }
        await create_app(hub.galaxy, Guard("key"))(scope, receive, send)
        assert [message["type"] for message in said] == ["websocket.accept", "websocket.close"]
        assert said[1]["code"] == 1008
        assert not hub.galaxy.fleet.get("field").status.is_online


async def test_a_device_that_is_away_is_forgotten_with_its_token(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        token = await a_credential(hub, "field")
        assert await hub.call("POST", "/api/devices/field/forget", {}) == (
            200,
            {"device_id": "field", "forgotten": True},
        )
        assert (await hub.call("GET", "/api/devices/field"))[0] == 404
        assert (await hub.call("POST", "/api/devices/field/forget", {}))[0] == 404
        with pytest.raises(Exception, match="403"):
            await connect(hub.ws(token))
    async with served_hub(tmp_path) as again:
        assert (await again.call("GET", "/api/devices/field"))[0] == 404


async def test_a_device_that_is_connected_is_forgotten_only_by_force(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub, a_device(hub.ws(await invited(hub)), "field") as device:
        await device.registered()
        status, answer = await hub.call("POST", "/api/devices/field/forget", {})
        assert (status, answer["kind"]) == (409, "DeviceError")
        assert "--force" in answer["detail"]
        assert (await hub.call("POST", "/api/devices/field/release"))[0] == 409
        assert (await hub.call("POST", "/api/devices/field/forget", {"force": True}))[0] == 200
        assert [record.device_id for record in hub.galaxy.fleet.records()] == ["hub"]
        status, answer = await hub.call("POST", "/api/devices/hub/forget", {"force": True})
        assert (status, answer["kind"]) == (400, "UsageError")


async def test_a_lost_devices_place_is_held_until_it_is_released(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        await a_lost_process(hub, "field", instance="first")
        assert 0 < (await hub.call("GET", "/api/devices/field"))[1]["held_s"] <= 300
        assert "may act" in (await hub.call("POST", "/api/devices/field/forget", {}))[1]["detail"]
        async with a_device(hub.ws(), "field") as device:
            assert "may act" in await device.refused()
            status, answer = await hub.call("POST", "/api/devices/field/release")
            assert (status, answer["released"]) == (200, True)
            assert answer["was_held_s"] > 0
            await device.registered()
        assert (await hub.call("POST", "/api/devices/nobody/release"))[0] == 404


async def test_a_device_answers_a_ping(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        status, answer = await hub.call("POST", "/api/devices/hub/ping")
        assert (status, answer["device_id"]) == (200, "hub")
        assert answer["answered_s"] >= 0
        await a_credential(hub, "field")
        assert (await hub.call("POST", "/api/devices/field/ping"))[0] == 409
        assert (await hub.call("POST", "/api/devices/nobody/ping"))[0] == 404
        status, answer = await hub.call("GET", "/api/devices/nobody")
        assert (status, answer["kind"]) == (404, "DeviceError")


async def test_a_device_its_name_and_its_groups_are_known_after_a_restart(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        await a_credential(hub, "field")
        status, row = await hub.call("POST", "/api/devices/field/rename", {"display_name": "Feld, 2. Stock"})
        assert (status, row["display_name"]) == (200, "Feld, 2. Stock")
        assert (await hub.call("POST", "/api/devices/field/groups", {"groups": ["office", "büro", "office"]}))[0] == 200
        before = (await hub.call("GET", "/api/devices/field"))[1]
    async with served_hub(tmp_path) as again:
        after = (await again.call("GET", "/api/devices/field"))[1]
        same = ("device_id", "display_name", "groups", "platform", "device_type", "last_seen", "status")
        assert {name: after[name] for name in same} == {name: before[name] for name in same}
        assert after["groups"] == ["büro", "office"]
        _, listed = await again.call("GET", "/api/devices?group=office")
        assert [row["device_id"] for row in listed["devices"]] == ["field"]
        _, listed = await again.call("GET", "/api/devices?tool=files.read")
        assert [row["device_id"] for row in listed["devices"]] == ["hub"]
        assert again.galaxy.online_devices() == ["hub"]


async def test_devices_are_found_by_what_is_installed_on_them(tmp_path, served_hub, monkeypatch):
    entries = tmp_path / "share" / "applications"
    entries.mkdir(parents=True)
    (entries / "painter.desktop").write_text("[Desktop Entry]\nType=Application\nName=Our Painter\nExec=sh\n")
    monkeypatch.setenv("XDG_DATA_DIRS", str(entries.parent))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    async with served_hub(tmp_path) as hub:
        for name, found in (("Our%20Painter", ["hub"]), ("Painter", [])):
            _, listed = await hub.call("GET", f"/api/devices?application={name}")
            assert [row["device_id"] for row in listed["devices"]] == found
        assert "Our Painter" in (await hub.call("GET", "/api/devices/hub"))[1]["applications"]


async def test_wrong_names_and_groups_are_refused(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        for path, body in (
            ("rename", {"display_name": "a\x1b[2J"}),
            ("rename", {"display_name": "a" * 101}),
            ("rename", {}),
            ("groups", {"groups": [""]}),
            ("groups", {"groups": ["a b"]}),
        ):
            assert (await hub.call("POST", f"/api/devices/hub/{path}", body))[0] == 422
        assert (await hub.call("POST", "/api/devices/nobody/rename", {"display_name": "x"}))[0] == 404


async def test_the_routes_are_in_openapi(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        _, document = await hub.call("GET", "/api/openapi.json")
        wanted = {
            "/api/devices/invite",
            *(
                f"/api/devices/{{device_id}}{end}"
                for end in ("", "/revoke", "/ping", "/rename", "/groups", "/forget", "/release")
            ),
        }
        assert wanted <= document["paths"].keys()


async def test_wrong_invitations_are_refused(tmp_path, served_hub):
    async with served_hub(tmp_path) as hub:
        for body in ({"valid_s": 0}, {"device_id": ""}, {"device_id": "a\nb"}, {"valid_s": 1e9}, {"name": "x"}):
            assert (await hub.call("POST", "/api/devices/invite", body))[0] == 422
