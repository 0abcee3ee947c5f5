"""`starloom mcp` as another program's agent uses it: the official SDK's client over standard input and output."""

import sys

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def test_a_stranger_lists_and_calls_our_tools_within_the_owners_limit(home):
    (home.work / "a.txt").write_text("hello")
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "starloom", "mcp", "--highest", "read"], cwd=home.work, env=home.environ()
    )
    async with Client(stdio_client(server)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        read = await client.call_tool("files.read", {"path": "a.txt"})
        written = await client.call_tool("files.write", {"path": "b.txt", "text": "x"})
        outside = await client.call_tool("files.read", {"path": "../home"})
    assert {"files.read", "invoices.read", "sheets.write"} <= names
    assert read.structured_content is not None
    assert read.structured_content["text"] == "hello"
    assert written.is_error
    assert outside.is_error
    assert not (home.work / "b.txt").exists()
