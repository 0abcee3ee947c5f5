"""Facts about devices behind upstream's servers, offered by a command: a real hub process, real sockets."""

import asyncio
import contextlib
import json

import pytest
from tests.fleet.test_conformance_constellation import Upstream, serve


class Playing(Upstream):
    """A server that answers as upstream's was recorded answering, every task with the recorded result."""

    async def accept(self, socket):
        self.paths.append(socket.request.path)
        async for text in socket:
            frame = json.loads(text)
            match frame["type"]:
                case "register":
                    await self.say(54, socket=socket)
                case "device_info_request":
                    await self.say(56, socket=socket, response_id=frame["request_id"])
                case "task":
                    self.heard.put_nowait(frame)
                    await self.say(66, socket=socket, session_id=frame["session_id"])
                    await self.say(74, socket=socket, session_id=frame["session_id"])


@contextlib.asynccontextmanager
async def playing(port=0):
    server = Playing()
    async with serve(server.accept, "127.0.0.1", port) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server


def device_list(home, *entries):
    path = home.work / "devices.yaml"
    path.write_text(json.dumps({"task_name": "lab", "devices": entries}))
    return str(path)


def started(home, *words, **environ):
    hub = home.start("up", "--port", "0", "--json", *words, **environ)
    hub.until(lambda line: '"join"' in line)
    return hub


def listed(home, device_id):
    rows = json.loads(home.run("devices", "--json").stdout)["devices"]
    return next(row for row in rows if row["device_id"] == device_id)


async def until_it_is(home, device_id, status):
    async with asyncio.timeout(30):
        while (row := await asyncio.to_thread(listed, home, device_id))["status"] != status:
            pass
    return row


async def test_a_device_behind_an_upstream_server_is_listed_and_takes_a_task(home):
    async with playing() as upstream:
        url = f"ws://127.0.0.1:{upstream.port}/ws"
        entry = {"device_id": "dev1", "server_url": url, "os": "linux", "token_variable": "LAB", "capabilities": ["x"]}
        path = device_list(home, entry)
        await asyncio.to_thread(started, home, "--devices", path, LAB="KEY")
        row = await until_it_is(home, "dev1", "idle")
        assert upstream.paths == ["/ws?token=KEY"]
        assert (row["outpost"], row["tags"], row["trouble"]) == (True, ["x"], None)
        assert row["system_info"]["hostname"] == "host1"
        task = {"task_id": "t", "description": "Say hello on dev1.", "target_device_id": "dev1"}
        recipe = home.work / "hello.json"
        recipe.write_text(json.dumps({"name": "hello", "tasks": [task]}))
        done = await asyncio.to_thread(home.run, "run", str(recipe), "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "hello" in done.stdout
        sent = upstream.heard.get_nowait()
        assert sent["target_id"] == "dev1"
        assert sent["request"].startswith("Task Description: Say hello on dev1.")
        ping = await asyncio.to_thread(home.run, "devices", "ping", "dev1")
        assert (ping.returncode, "answered" in ping.stdout) == (0, True)


async def test_a_server_that_is_not_there_is_tried_for_ever_and_the_list_says_why(home):
    async with playing() as upstream:
        port = upstream.port
    entry = {"device_id": "dev1", "server_url": f"ws://127.0.0.1:{port}/ws?token=KEY", "reconnect_delay_s": 0.2}
    path = device_list(home, entry, {**entry, "device_id": "dev2", "auto_connect": False})
    config = home.folder / "home" / "config"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text(json.dumps({"hub": {"devices_file": path}}))
    hub = await asyncio.to_thread(started, home)
    async with asyncio.timeout(30):
        while (row := await asyncio.to_thread(listed, home, "dev1"))["trouble"] is None:
            pass
    assert "cannot be reached" in row["trouble"]
    assert "KEY" not in json.dumps(row)
    assert "cannot be reached" in (await asyncio.to_thread(home.run, "devices", "show", "dev1")).stdout
    assert "auto_connect" in listed(home, "dev2")["trouble"]
    async with playing(port):
        await until_it_is(home, "dev1", "idle")
    assert hub.process.poll() is None


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"device_id": "a", "server_url": "http://x"}, "Entry 1 ('a'): server_url"),
        ({"device_id": "hub", "server_url": "ws://x/ws"}, "hub's own device"),
        ({"device_id": "a", "server_url": "ws://x/ws", "token_variable": "NO_SUCH"}, "NO_SUCH, which is not set"),
    ],
)
def test_a_list_that_cannot_be_used_is_said_before_anything_starts(home, entry, said):
    done = home.run("up", "--port", "0", "--devices", device_list(home, entry))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
