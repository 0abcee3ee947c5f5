"""Serves tools over MCP with the official SDK: over stdio, or over HTTP on this machine only.

Called by the command line. The SDK brings a web stack and costs more than a second to import, so nothing else of this
room imports this module, and this module imports the SDK when it is used. Who may do what is the router's guard: an MCP
client has its own user to ask, but what the device's owner forbids stays forbidden.
"""

import asyncio
import hmac
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

from starloom import __version__
from starloom.blobs import Blob
from starloom.errors import UsageError
from starloom.safety.policy import Risk
from starloom.safety.rules import at_least
from starloom.tools.router import ToolCall, ToolOutcome, ToolRouter, ToolStatus
from starloom.tools.toolset import Tool, Toolset

if TYPE_CHECKING:
    import mcp_types
    from mcp.server.lowlevel import Server

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
Served: TypeAlias = ToolRouter | Iterable[Toolset]

MCP_PATH = "/mcp"
SHORTEST_KEY = 16
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_OWN_SITE = (b"same-origin", b"none")


def build_server(tools: Served, name: str = "starloom") -> "Server[dict[str, Any]]":
    """Return an MCP server with the tools of a router, or of toolsets that need no guard, under qualified names."""
    import mcp_types
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import MCPError

    router = tools if isinstance(tools, ToolRouter) else ToolRouter(tools)

    async def list_tools(_context: object, _params: object) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[describe(item) for item in router.infos()])

    async def call_tool(_context: object, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        found = router.find(params.name)
        if found is None:
            raise MCPError(mcp_types.INVALID_PARAMS, f"There is no tool {params.name!r}.")
        return _result(found, await router.call(ToolCall(params.name, params.arguments or {})))

    return Server(name, version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def describe(item: Tool) -> "mcp_types.Tool":
    """Return a tool as MCP describes it; risk and destinations travel in `_meta.starloom`."""
    import mcp_types

    return mcp_types.Tool(
        name=item.name,
        description=item.description,
        input_schema=item.input_schema,
        output_schema=item.output_schema if _is_object(item) else None,
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=item.risk is Risk.READ,
            destructive_hint=at_least(item.risk, Risk.WRITE),
            open_world_hint=at_least(item.risk, Risk.EXTERNAL),
        ),
        _meta={"starloom": {"risk": item.risk.value, "destinations": list(item.destinations)}},
    )


async def serve_stdio(tools: Served, name: str = "starloom") -> None:
    """Serve over this process's standard input and output until the client closes them."""
    from mcp.server.stdio import stdio_server

    server = build_server(tools, name)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def serving_http(
    tools: Served, *, key: str, host: str = "127.0.0.1", port: int = 0, name: str = "starloom"
) -> AsyncIterator[str]:
    """Serve over streamable HTTP on this machine while the block runs; yield the address to give to a client.

    Args:
        tools: what is served; a router's guard holds here too.
        key: what a client must send as `Authorization: Bearer …`.
        host: a loopback address; MCP over a network needs more than a key and is not offered.
        port: 0 takes a free one.
        name: how the server calls itself.

    Raises:
        UsageError: the host is not loopback, the key is too short, or the port is taken.
    """
    import uvicorn

    if host not in _LOOPBACK:
        raise UsageError(f"MCP is served on this machine only; {host!r} is not a loopback address.")
    if len(key) < SHORTEST_KEY:
        raise UsageError(f"The key of an MCP server needs at least {SHORTEST_KEY} signs.")

    class Embedded(uvicorn.Server):
        """A server that leaves the process's signals to whoever runs the process."""

        def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a plain context will do
            return nullcontext()

    with _listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}{MCP_PATH}"
        app = guarded(build_server(tools, name).streamable_http_app(streamable_http_path=MCP_PATH, host=host), key)
        server = Embedded(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            try:
                yield address
            finally:
                server.should_exit = True


def guarded(app: AsgiApp, key: str) -> AsgiApp:
    """Return the app behind a key and a check that no foreign web page is asking.

    The SDK checks Host and Origin behind it; see attack `3851c5d4` in the wire's specification.
    """
    wanted = f"Bearer {key}".encode()

    async def check(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            if headers.get(b"sec-fetch-site", b"none") not in _OWN_SITE:
                await _refuse(send, 403, "Requests from other sites are refused.")
                return
            if not hmac.compare_digest(headers.get(b"authorization", b""), wanted):
                await _refuse(send, 401, "The key is missing or wrong.")
                return
        await app(scope, receive, send)

    return check


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another port.") from error
    return listener


def _result(found: Tool, outcome: ToolOutcome) -> "mcp_types.CallToolResult":
    import mcp_types

    if outcome.status is ToolStatus.FAILURE:
        text = mcp_types.TextContent(text=outcome.error or "It failed.")
        return mcp_types.CallToolResult(content=[text], is_error=True)
    if isinstance(outcome.result, Blob):
        image = mcp_types.ImageContent(data=outcome.result.base64(), mime_type=outcome.result.mime)
        return mcp_types.CallToolResult(content=[image])
    text = mcp_types.TextContent(text=json.dumps(outcome.result, ensure_ascii=False))
    structured = outcome.result if _is_object(found) else None
    return mcp_types.CallToolResult(content=[text], structured_content=structured)


def _is_object(item: Tool) -> bool:
    """Answer whether the tool's result is an object: older protocol versions have no other structured results."""
    return item.output_schema is not None and item.output_schema.get("type") == "object"
