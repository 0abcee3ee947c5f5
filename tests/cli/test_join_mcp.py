"""Facts about somebody's MCP servers as tools of a device, offered by a command; every server is a real process."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from starloom.cli.mcp_servers import mcp_toolsets, read_mcp_servers
from starloom.errors import UsageError
from starloom.safety.policy import Risk
from starloom.tools.mcp_server import serving_http
from starloom.tools.router import ToolCall, ToolRouter
from starloom.tools.toolset import Toolset, tool

ODD = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "tools" / "odd_mcp_server.py")]}
KEY = "k" * 43


def listed(folder, **servers):
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def recipe(home, tool_name, device_id, **arguments):
    path = home.work / "call.json"
    task = {"task_id": "t", "description": tool_name, "target_device_id": device_id}
    path.write_text(json.dumps({"tasks": [{**task, "task_data": {"tool": tool_name, "arguments": arguments}}]}))
    return str(path)


def device(home, device_id):
    rows = json.loads(home.run("devices", "--json").stdout)["devices"]
    return next((row for row in rows if row["device_id"] == device_id), None)


def test_servers_tools_are_offered_on_a_device_that_joins_and_a_broken_one_is_reported(home):
    hub = home.start("up", "--port", "0", "--json")
    address = json.loads(hub.until(lambda line: '"join"' in line))["join"]
    rated = {**ODD, "risks": {"add": "read"}, "env": {"TOKEN": "${FIELD_TOKEN}"}}
    path = listed(home.work, Odd=rated, broken={"command": "/no/such/program"})
    words = ["join", address, "--name", "field", "--mcp", str(path), "--json"]
    joined = home.start(*words, FIELD_TOKEN="of-the-field")
    joined.until(lambda line: '"registered"' in line)
    joined.until(lambda line: '"registered"' in line)
    while len((row := device(home, "field"))["tools"]) < 2:
        pass  # the hub asks for them after the registration
    assert {"odd.add", "odd.erase", "files.read"} <= set(row["tools"])
    done = home.run("run", recipe(home, "odd.add", "field", a=1, b=2), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"result": "3"' in done.stdout
    joined.interrupt()
    assert joined.finish() == 130
    said = joined.process.stderr.read()
    assert "'broken' (/no/such/program) cannot be started" in said
    assert "Traceback" not in said


def test_servers_tools_are_offered_on_the_hubs_own_device(home):
    path = listed(home.work, odd=ODD)
    hub = home.start("up", "--port", "0", "--mcp", str(path), "--json")
    hub.until(lambda line: '"join"' in line)
    assert "odd.add" in device(home, "hub")["tools"]
    hub.interrupt()
    hub.finish()
    assert "Traceback" not in hub.process.stderr.read()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "is not JSON"),
        ("{}", "no object `mcpServers`"),
        ('{"mcpServers": {"a": {}}}', "'a': the entry: it needs either a command or a url"),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}', "either a command or a url"),
        ('{"mcpServers": {"a": {"url": "ftp://SECRET"}}}', "'a': url"),
        (
            '{"mcpServers": {"a": {"command": "x", "env": {"T": "${NO_SUCH}"}}}}',
            "'a': the environment variable NO_SUCH",
        ),
        ('{"mcpServers": {"a b": {"command": "x"}, "A-B": {"command": "x"}}}', "Two servers come out as 'a-b'"),
        ('{"mcpServers": {"a": {"command": "x", "risks": {"t": "harmless"}}}}', "'a': risks.t"),
    ],
)
def test_a_list_that_cannot_be_used_is_explained(tmp_path, content, said):
    path = tmp_path / "mcp.json"
    path.write_text(content)
    with pytest.raises(UsageError) as raised:
        read_mcp_servers(path, {})
    assert said in raised.value.message
    assert "SECRET" not in raised.value.message


def test_an_unusable_list_stops_join_and_up_at_once(home):
    path = str(home.work / "none.json")
    for words in (("join", "ws://127.0.0.1:1/ws"), ("up", "--port", "0")):
        done = home.run(*words, "--mcp", path)
        assert (done.returncode, "cannot be read" in done.stderr) == (2, True)


def test_entries_are_read_as_others_write_them(tmp_path):
    path = listed(
        tmp_path,
        one={**ODD, "cwd": "/tmp", "allowed": ["add"], "unknown": 1},
        two={"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
        off={"command": "x", "disabled": True},
    )
    one, two = read_mcp_servers(path, {"KEY": "k"})
    assert (one.command, one.folder, one.allowed) == (sys.executable, "/tmp", frozenset({"add"}))
    assert (two.url, two.headers) == ("http://127.0.0.1:1/mcp", {"Authorization": "Bearer k"})
    assert "Bearer" not in repr(two)


async def test_servers_over_http_are_used_and_one_that_is_not_there_is_reported(tmp_path):
    async def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    served = ToolRouter([Toolset("people", (tool(greet, name="people.greet", risk=Risk.READ),))])
    said = []
    async with serving_http(served, key=KEY) as url:
        path = listed(
            tmp_path,
            away={"url": "http://127.0.0.1:9/mcp?token=SECRET"},
            locked={"url": url, "headers": {"Authorization": "Bearer wrong"}},
            there={"url": url, "headers": {"Authorization": f"Bearer {KEY}"}},
        )
        async with asyncio.timeout(30), mcp_toolsets(read_mcp_servers(path), said.append) as [toolset]:
            router = ToolRouter([toolset])
            outcome = await router.call(ToolCall("there.people.greet", {"name": "Ada"}))
            assert "Hello Ada" in str(outcome.result)
    assert len(said) == 2
    assert all("MCP server" in line and "SECRET" not in line for line in said)


async def test_an_error_of_the_body_leaves_as_itself(tmp_path):
    servers = read_mcp_servers(listed(tmp_path, odd=ODD))
    with pytest.raises(UsageError):
        async with mcp_toolsets(servers, print):
            raise UsageError("no")
