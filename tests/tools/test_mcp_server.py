import contextlib
import json
import sys

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from starloom.blobs import Blob
from starloom.errors import UsageError
from starloom.safety.policy import Risk
from starloom.safety.rules import owner_limit, propose
from starloom.tools.builtin import builtin_toolsets
from starloom.tools.mcp_server import build_server, serving_http
from starloom.tools.router import ToolRouter
from starloom.tools.toolset import Toolset, tool
from starloom.tools.workspace import Workspace

KEY = "a-key-of-enough-signs"
SERVE = (
    "import asyncio, sys\n"
    "from starloom.tools.builtin import builtin_toolsets\n"
    "from starloom.tools.mcp_server import serve_stdio\n"
    "from starloom.tools.workspace import Workspace\n"
    "asyncio.run(serve_stdio(builtin_toolsets(Workspace(sys.argv[1]))))\n"
)


def router_at(root, **options) -> ToolRouter:
    return ToolRouter(builtin_toolsets(Workspace(root)), **options)


@pytest.mark.parametrize(("mode", "over"), [("auto", "stdio"), ("auto", "memory"), ("legacy", "memory")])
async def test_official_client_lists_and_calls(tmp_path, mode, over):
    (tmp_path / "a.txt").write_text("hello")
    parameters = StdioServerParameters(command=sys.executable, args=["-c", SERVE, str(tmp_path)])
    server = stdio_client(parameters) if over == "stdio" else build_server(router_at(tmp_path))
    async with Client(server, mode=mode) as client:
        listed = {item.name: item for item in (await client.list_tools()).tools}
        assert "invoices.read" in listed
        read = await client.call_tool("files.read", {"path": "a.txt"})
        assert not read.is_error
        assert read.structured_content["text"] == "hello"
        outside = await client.call_tool("files.read", {"path": "../../etc/passwd"})
        assert outside.is_error
        assert "does not stay inside" in outside.content[0].text
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("files.burn", {})


async def test_description_carries_risk_and_destinations(tmp_path):
    async with Client(build_server(router_at(tmp_path))) as client:
        listed = {item.name: item for item in (await client.list_tools()).tools}
    write, read, shell = (listed[name] for name in ("files.write", "files.read", "shell.run"))
    assert write.meta == {"starloom": {"risk": "write", "destinations": ["path"]}}
    assert (read.annotations.read_only_hint, write.annotations.read_only_hint) == (True, False)
    assert (read.annotations.destructive_hint, write.annotations.destructive_hint) == (False, True)
    assert (write.annotations.open_world_hint, shell.annotations.open_world_hint) == (False, True)
    assert write.input_schema["required"] == ["path", "text"]
    assert write.output_schema["type"] == "object"


async def test_result_that_is_no_object_travels_as_text():
    def names() -> list[str]:
        """Name some."""
        return ["ä", "b"]

    router = ToolRouter([Toolset("t", (tool(names, name="t.names", risk=Risk.READ),))])
    async with Client(build_server(router)) as client:
        result = await client.call_tool("t.names", {})
    assert json.loads(result.content[0].text) == ["ä", "b"]
    assert result.structured_content is None


async def test_bytes_travel_as_an_image():
    async def picture() -> Blob:
        """Return a picture."""
        return Blob("image/png", b"abc")

    router = ToolRouter([Toolset("t", (tool(picture, name="t.picture", risk=Risk.READ),))])
    async with Client(build_server(router)) as client:
        (image,) = (await client.call_tool("t.picture", {})).content
    assert (image.type, image.mime_type, image.data) == ("image", "image/png", "YWJj")


async def test_owner_limit_holds_for_mcp_clients_too(tmp_path):
    def guard(item, arguments):
        return owner_limit(propose("d", item.name, arguments, item.risk, item.destinations), Risk.READ)

    async with Client(build_server(router_at(tmp_path, guard=guard))) as client:
        result = await client.call_tool("files.write", {"path": "a.txt", "text": "x"})
    assert result.is_error
    assert "refuses files.write" in result.content[0].text
    assert list(tmp_path.iterdir()) == []


async def test_client_with_the_key_works_over_http(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving_http(router_at(tmp_path), key=KEY))
        http = await stack.enter_async_context(httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}))
        client = await stack.enter_async_context(Client(streamable_http_client(url, http_client=http)))
        read = await client.call_tool("files.read", {"path": "a.txt"})
        assert read.structured_content["text"] == "hello"


REFUSED = [
    ({}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Authorization": "Bearer " + "x" * 10_000}, 401),
    ({"Authorization": b"Bearer \xff\xfe"}, 401),
    ({"Authorization": KEY}, 401),
    ({"Authorization": f"Bearer {KEY}", "Host": "evil.example"}, 421),
    ({"Authorization": f"Bearer {KEY}", "Host": "127.0.0.1.evil.example:80"}, 421),
    ({"Authorization": f"Bearer {KEY}", "Origin": "http://evil.example"}, 403),
    ({"Authorization": f"Bearer {KEY}", "Sec-Fetch-Site": "cross-site"}, 403),
    ({"Authorization": f"Bearer {KEY}", "Sec-Fetch-Site": "same-site"}, 403),
]


async def test_request_without_the_key_or_from_another_site_is_refused(tmp_path):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    async with serving_http(router_at(tmp_path), key=KEY) as url, httpx2.AsyncClient() as http:
        for headers, status in REFUSED:
            answer = await http.post(url, json=call, headers={**accept, **headers})
            assert answer.status_code == status, headers
            assert "files.read" not in answer.text


async def test_only_loopback_a_real_key_and_a_free_port_are_taken(tmp_path):
    async def start(**options):
        async with serving_http(router_at(tmp_path), **options):
            pass

    with pytest.raises(UsageError, match="not a loopback"):
        await start(key=KEY, host="0.0.0.0")
    with pytest.raises(UsageError, match="at least 16"):
        await start(key="short")
    async with serving_http(router_at(tmp_path), key=KEY) as url:
        with pytest.raises(UsageError, match="Cannot listen"):
            await start(key=KEY, port=int(url.split(":")[2].split("/")[0]))
