import asyncio
import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_types import ToolAnnotations

from starloom.errors import DeviceError
from starloom.safety.policy import Risk
from starloom.tools.mcp_client import McpServer, ToolRating, mcp_toolset, raised
from starloom.tools.router import ToolCall, ToolRouter, ToolStatus

ODD = McpServer("odd", sys.executable, (str(Path(__file__).with_name("odd_mcp_server.py")),))
NODE = Path(sys.prefix) / "node"
FILESYSTEM = NODE / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"


def changed(server: McpServer, **fields) -> McpServer:
    kept = {name: getattr(server, name) for name in McpServer.__slots__}
    return McpServer(**{**kept, **fields})


@pytest.fixture(scope="module")
def filesystem_server() -> Path:
    """Return the third-party server's program; `make test` installs it, else it is installed here."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js and npm are needed for the third-party MCP server; they are not on the PATH.")
    if not FILESYSTEM.exists():
        NODE.mkdir(exist_ok=True)
        shutil.copy(Path(__file__).parents[1] / "node" / "package.json", NODE)
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", NODE]
        if subprocess.run(command, timeout=300).returncode:
            pytest.skip("npm could not install the third-party MCP server; no test needs the internet.")
    return FILESYSTEM


async def test_third_party_server_is_used_as_a_toolset(filesystem_server, tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    server = McpServer(
        "disk",
        "node",
        (str(filesystem_server), str(tmp_path)),
        ratings={
            "read_text_file": ToolRating(Risk.READ, ("path",)),
            "write_file": ToolRating(Risk.WRITE, ("path",)),
        },
    )
    async with mcp_toolset(server) as toolset:
        router = ToolRouter([toolset])
        read = router.find("disk.read_text_file")
        assert (read.risk, read.destinations, read.namespace) == (Risk.READ, ("path",), "disk")
        assert router.find("disk.write_file").risk is Risk.WRITE
        assert router.find("disk.move_file").risk is Risk.EXTERNAL
        path = str(tmp_path / "a.txt")
        outcome = await router.call(ToolCall("disk.read_text_file", {"path": path}))
        assert outcome.status is ToolStatus.SUCCESS
        assert "hello" in str(outcome.result)
        target = {"path": str(tmp_path / "b.txt"), "content": "new"}
        assert (await router.call(ToolCall("disk.write_file", target))).status is ToolStatus.SUCCESS
        assert (tmp_path / "b.txt").read_text() == "new"
        outside = await router.call(ToolCall("disk.read_text_file", {"path": "/etc/passwd"}))
        assert outside.status is ToolStatus.FAILURE
        assert "denied" in (outside.error or "").lower()


async def test_servers_tools_are_called_and_their_values_kept():
    async with mcp_toolset(ODD) as toolset:
        router = ToolRouter([toolset])
        assert (await router.call(ToolCall("odd.add", {"a": 1, "b": 2}))).result == "3"
        failed = await router.call(ToolCall("odd.fail"))
        assert (failed.status, failed.error) == (ToolStatus.FAILURE, "no such thing")
        picture = await router.call(ToolCall("odd.picture"))
        assert picture.result == [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]
        nonsense = await router.call(ToolCall("odd.nonsense"))
        assert "unusable result" in (nonsense.error or "")


async def test_tool_with_an_unusable_name_is_left_out():
    async with mcp_toolset(ODD) as toolset:
        names = {item.name for item in toolset.tools}
    assert len(names) == 8
    assert not any("bad" in name for name in names)


async def test_hints_raise_and_descriptions_are_cleaned():
    ratings = {"environment": ToolRating(Risk.READ), "erase": ToolRating(Risk.READ)}
    async with mcp_toolset(changed(ODD, ratings=ratings)) as toolset:
        tools = {item.name: item for item in toolset.tools}
    assert tools["odd.environment"].risk is Risk.READ
    assert tools["odd.add"].risk is Risk.EXTERNAL
    assert tools["odd.erase"].risk is Risk.EXTERNAL
    assert tools["odd.erase"].destinations == ("path",)
    assert tools["odd.environment"].description == "[SANITIZED]"


async def test_server_sees_only_its_own_environment(monkeypatch):
    monkeypatch.setenv("STARLOOM_TEST_SECRET", "hidden-value")
    async with mcp_toolset(changed(ODD, environment={"GIVEN": "yes"})) as toolset:
        outcome = await ToolRouter([toolset]).call(ToolCall("odd.environment"))
    assert outcome.result["GIVEN"] == "yes"
    assert "hidden-value" not in str(outcome.result)


async def test_only_allowed_tools_are_offered():
    async with mcp_toolset(changed(ODD, allowed=frozenset({"add"}))) as toolset:
        assert [item.name for item in toolset.tools] == ["odd.add"]


async def test_call_that_hangs_is_given_up_and_the_server_lives_on():
    async with mcp_toolset(changed(ODD, call_timeout_s=1.0)) as toolset:
        router = ToolRouter([toolset])
        hung = await router.call(ToolCall("odd.hang"))
        assert "within 1 s" in (hung.error or "")
        assert (await router.call(ToolCall("odd.add", {"a": 1, "b": 2}))).status is ToolStatus.SUCCESS


async def test_server_that_dies_is_one_clear_failure():
    async with mcp_toolset(ODD) as toolset:
        router = ToolRouter([toolset])
        died = await router.call(ToolCall("odd.die"))
        assert died.status is ToolStatus.FAILURE
        after = await router.call(ToolCall("odd.add", {"a": 1, "b": 2}))
        assert after.status is ToolStatus.FAILURE
        assert "odd" in (after.error or "")


async def test_cancelled_call_leaves_the_server_usable():
    async with mcp_toolset(ODD) as toolset:
        router = ToolRouter([toolset])
        call = asyncio.ensure_future(router.call(ToolCall("odd.hang")))
        assert (await router.call(ToolCall("odd.add", {"a": 1, "b": 2}))).status is ToolStatus.SUCCESS
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await router.call(ToolCall("odd.add", {"a": 2, "b": 2}))).result == "4"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (McpServer("x", "/nonexistent/program"), "cannot be started"),
        (McpServer("x", sys.executable, ("-c", "import sys; sys.exit('I have no licence')")), "I have no licence"),
        (McpServer("x", sys.executable, ("-c", "input()"), connect_timeout_s=2.0), "x"),
        (McpServer("x.y", sys.executable), "no name for a toolset"),
        (changed(ODD, allowed=frozenset({"nothing"})), "no tool that is allowed"),
    ],
)
async def test_server_that_is_of_no_use_is_one_clear_error(server, words):
    with pytest.raises(DeviceError, match=words):
        async with mcp_toolset(server):
            pass


@pytest.mark.parametrize("risk", list(Risk))
def test_hints_never_lower_a_risk(risk):
    mild = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    assert raised(risk, mild, {"starloom": {"risk": "read"}}) is risk
    assert raised(risk, None, {"starloom": "nonsense"}) is risk
    assert raised(risk, None, {"starloom": {"risk": "irreversible"}}) is Risk.IRREVERSIBLE


@pytest.mark.parametrize("properties", ["null", "[]", "5"])
async def test_a_schema_of_nonsense_ends_its_own_server_at_most(tmp_path, properties):
    program = tmp_path / "nonsense.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if asked.get('method') == 'initialize':\n"
        "        version = asked['params']['protocolVersion']\n"
        "        said = {'result': {'protocolVersion': version, 'capabilities': {'tools': {}},\n"
        "                           'serverInfo': {'name': 'x', 'version': '1'}}}\n"
        "    elif asked.get('method') == 'tools/list':\n"
        f"        schema = {{'type': 'object', 'properties': json.loads('{properties}')}}\n"
        "        said = {'result': {'tools': [{'name': 'a', 'inputSchema': schema}]}}\n"
        "    else:\n"
        "        said = {'error': {'code': -32601, 'message': 'no'}}\n"
        "    if 'id' in asked:\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], **said}), flush=True)\n"
    )
    with contextlib.suppress(DeviceError):
        async with mcp_toolset(McpServer("odd", sys.executable, (str(program),))) as toolset:
            assert toolset.tools[0].destinations == ()


def test_servers_environment_is_not_in_its_text():
    assert "secret" not in repr(McpServer("odd", "x", environment={"KEY": "secret"}))


async def test_a_complaint_holds_no_secret_that_the_server_was_given():
    program = "import os, sys; sys.exit('cannot log in with ' + os.environ['KEY'])"
    server = McpServer("odd", sys.executable, ("-c", program), environment={"KEY": "correct-horse"})
    with pytest.raises(DeviceError) as error:
        async with mcp_toolset(server):
            pass
    assert "cannot log in with [redacted]" in error.value.message
