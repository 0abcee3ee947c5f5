"""Uses an MCP server, over stdio or streamable HTTP, as a toolset, whoever wrote it.

Called where a device is composed. The SDK is imported when a server is connected, so a device without MCP servers never
loads it. A foreign server is trusted as little as a web page: its names and descriptions are cleaned, its hints can
raise a risk and never lower one, a tool that the owner did not rate counts as external, and it sees only the
environment that it is given.
"""

import asyncio
import logging
import re
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TextIO

from starloom.errors import DeviceError
from starloom.safety.detectors import sanitize_user_input
from starloom.safety.policy import Risk
from starloom.safety.provenance import visible
from starloom.safety.redaction import Redactor
from starloom.safety.rules import at_least
from starloom.tools.toolset import Tool, ToolFailure, ToolFunction, Toolset

if TYPE_CHECKING:
    import mcp_types
    from mcp.client import Client, Transport

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,127}")
_TOOLSET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_MOST_TOOLS = 500
_MOST_PAGES = 50
_LONGEST_DESCRIPTION = 1_000
_LONGEST_COMPLAINT = 400


@dataclass(frozen=True, slots=True)
class ToolRating:
    """What the device's owner says of a foreign tool: its risk, and the arguments that say where it acts.

    `destinations` None means every argument that can hold text, the careful reading.
    """

    risk: Risk
    destinations: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class McpServer:
    """How to start or reach an MCP server, and what its tools may do.

    Either `command` or `url` is set; `headers` go with every request to the latter. `name` becomes the toolset's.
    `environment` is all that the server gets beside PATH, HOME and the like. `allowed` None offers every tool; else
    only those named. `ratings` go by the server's own tool names.
    """

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allowed: frozenset[str] | None = None
    ratings: Mapping[str, ToolRating] = field(default_factory=dict)
    connect_timeout_s: float = 30.0
    call_timeout_s: float = 60.0


@asynccontextmanager
async def mcp_toolset(server: McpServer) -> AsyncIterator[Toolset]:
    """Start or reach the server and yield its tools as a toolset; a server that was started ends with the block.

    Enter and leave it in one task. When the server dies meanwhile, its tools fail with a sentence that says so.

    Raises:
        DeviceError: the server cannot be started, does not speak MCP in time, or offers nothing usable.
    """
    from mcp.client import Client

    if not _TOOLSET_NAME.fullmatch(server.name):
        raise DeviceError(f"{server.name!r} is no name for a toolset: small letters, digits, '-' and '_', no dot.")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        async with AsyncExitStack() as stack:
            way = _over_stdio(server, complaints) if server.url is None else await _over_http(server.url, server, stack)
            client = Client(way, read_timeout_seconds=server.call_timeout_s)
            await _connect(client, server, complaints)
            try:
                yield await _toolset(client, server, complaints)
            finally:
                await client.__aexit__(None, None, None)


def _over_stdio(server: McpServer, complaints: TextIO) -> "Transport":
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=server.command, args=list(server.arguments), env=dict(server.environment), cwd=server.folder
    )
    return stdio_client(parameters, errlog=complaints)


async def _over_http(url: str, server: McpServer, stack: AsyncExitStack) -> "Transport":
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    limits = httpx2.Timeout(server.connect_timeout_s, read=server.call_timeout_s)
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(server.headers), timeout=limits))
    return streamable_http_client(url, http_client=http)


async def _connect(client: "Client", server: McpServer, complaints: IO[str]) -> None:
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    try:
        async with asyncio.timeout(server.connect_timeout_s):
            await client.__aenter__()
    except OSError as error:
        if isinstance(error, TimeoutError):
            waited = f"did not answer within {server.connect_timeout_s:g} s"
            raise _unusable(server, waited, complaints) from error
        raise _unusable(server, f"cannot be started ({error.strerror})", complaints) from error
    except (MCPError, ValidationError, ValueError) as error:
        raise _unusable(server, f"does not speak MCP ({_first_line(error)})", complaints) from error
    except ExceptionGroup as error:
        raise _unusable(server, f"does not speak MCP ({_first_line(error.exceptions[0])})", complaints) from error


async def _toolset(client: "Client", server: McpServer, complaints: IO[str]) -> Toolset:
    from mcp.shared.exceptions import MCPError
    from pydantic import ValidationError

    try:
        async with asyncio.timeout(server.connect_timeout_s):
            offered = await _all_tools(client)
    except (TimeoutError, MCPError, ValidationError) as error:
        raise _unusable(server, f"did not list its tools ({_first_line(error)})", complaints) from error
    tools = tuple(_adopted(item, client, server) for item in offered if _is_wanted(item, server))
    if not tools:
        raise _unusable(server, "offers no tool that is allowed", complaints)
    return Toolset(server.name, tools)


async def _all_tools(client: "Client") -> list["mcp_types.Tool"]:
    found: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor or len(found) >= _MOST_TOOLS:
            break
    return found[:_MOST_TOOLS]


def _is_wanted(item: "mcp_types.Tool", server: McpServer) -> bool:
    if server.allowed is not None and item.name not in server.allowed:
        return False
    if _NAME.fullmatch(item.name):
        return True
    logger.warning("The MCP server %s offers a tool with an unusable name; it is left out.", server.name)
    return False


def _adopted(item: "mcp_types.Tool", client: "Client", server: McpServer) -> Tool:
    rating = server.ratings.get(item.name, ToolRating(Risk.EXTERNAL))
    properties = item.input_schema.get("properties")
    destinations = (
        _texts(properties if isinstance(properties, Mapping) else {})
        if rating.destinations is None
        else rating.destinations
    )
    description = visible(item.description or item.title or item.name)[:_LONGEST_DESCRIPTION]
    return Tool(
        name=f"{server.name}.{item.name}",
        description=sanitize_user_input(description, f"the description of {server.name}.{item.name}"),
        input_schema=dict(item.input_schema),
        output_schema=item.output_schema,
        risk=raised(rating.risk, item.annotations, item.meta),
        destinations=destinations,
        kind="action",
        function=_caller(client, item.name, server),
    )


def raised(risk: Risk, hints: "mcp_types.ToolAnnotations | None", meta: Mapping[str, Any] | None = None) -> Risk:
    """Return the risk, or a higher one if the server's own words say so; they are claims and never lower it."""
    claims = [risk]
    if hints is not None:
        claims += [Risk.WRITE] if hints.read_only_hint is False or hints.destructive_hint else []
        claims += [Risk.EXTERNAL] if hints.open_world_hint else []
    ours = (meta or {}).get("starloom")
    said = ours.get("risk") if isinstance(ours, Mapping) else None
    claims += [item for item in Risk if item.value == said]
    return max(claims, key=lambda claim: sum(at_least(claim, other) for other in Risk))


def _texts(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all arguments except those that can only be numbers or switches."""
    plain = {"integer", "number", "boolean", "null"}
    return tuple(
        name for name, schema in properties.items() if not (isinstance(schema, Mapping) and schema.get("type") in plain)
    )


def _caller(client: "Client", name: str, server: McpServer) -> ToolFunction:
    async def call(arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a JSON value
        import anyio
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        try:
            async with asyncio.timeout(server.call_timeout_s):
                result = await client.call_tool(name, dict(arguments))
        except TimeoutError as error:
            limit = server.call_timeout_s
            raise ToolFailure(f"The MCP server {server.name} did not finish {name} within {limit:g} s.") from error
        except MCPError as error:
            raise ToolFailure(f"The MCP server {server.name} refused {name}: {error.message}") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            raise ToolFailure(f"The MCP server {server.name} has ended; {name} was not done.") from error
        except (ValidationError, RuntimeError) as error:  # the SDK reports a result off its schema as a RuntimeError
            raise ToolFailure(f"The MCP server {server.name} answered {name} with an unusable result.") from error
        if result.is_error:
            raise ToolFailure(_text(result.content) or f"{name} failed without saying why.")
        return _value(result)

    return call


def _value(result: "mcp_types.CallToolResult") -> Any:  # noqa: ANN401 - a JSON value
    """Return a result as JSON: its structured form, else its one text, else its list of contents."""
    if result.structured_content is not None:
        return result.structured_content
    if all(item.type == "text" for item in result.content):
        return _text(result.content)
    return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in result.content]


def _text(content: Iterable["mcp_types.ContentBlock"]) -> str:
    return "\n".join(item.text for item in content if item.type == "text")


def _first_line(error: BaseException) -> str:
    return visible(str(error)).strip().partition("\n")[0][:_LONGEST_COMPLAINT] or type(error).__name__


def _unusable(server: McpServer, what: str, complaints: IO[str]) -> DeviceError:
    """Return the error of a server that is of no use, with the end of what it wrote to its error output.

    What was given to it in its environment and its headers is hidden.
    """
    hidden = Redactor([*server.environment.values(), *server.headers.values()])
    complaints.seek(0)
    said = hidden.text(" ".join(visible(complaints.read()).split()))[-_LONGEST_COMPLAINT:]
    hint = f" It said: {said}" if said else ""
    where = server.command if server.url is None else server.url.partition("?")[0]
    text = hidden.text(f"The MCP server {server.name!r} ({where}) {what}.")
    return DeviceError(f"{text}{hint}", server=server.name)
