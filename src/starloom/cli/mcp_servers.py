"""Somebody's MCP servers as tools of a device: the file that names them, and their lives beside the device's.

Called by `join` and `up` with `--mcp`. The file is the one that other programs use (`{"mcpServers": {name: …}}`), so
one that is there already will do. `${NAME}` in it is taken from the environment: keys need not stand in the file. The
library that speaks MCP is loaded only when a file was given.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from starloom.background import background
from starloom.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from starloom.tools.mcp_client import McpServer
    from starloom.tools.toolset import Toolset

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_-]+")

_Risk = Literal["read", "undoable", "write", "external", "irreversible"]


class _Entry(BaseModel):
    """One server, as other programs write it, and what its owner says of its tools (`starloom`)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    type: Literal["stdio", "http", "streamable-http", "streamableHttp"] | None = None
    url: str | None = Field(default=None, pattern=r"^https?://")
    headers: dict[str, str] = Field(default_factory=dict)
    disabled: bool = False
    allowed: tuple[str, ...] | None = None
    risks: dict[str, _Risk] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> "_Entry":
        if (self.command is None) == (self.url is None):
            raise ValueError("it needs either a command or a url")
        return self


def read_mcp_servers(file: Path, environ: Mapping[str, str] = os.environ) -> "tuple[McpServer, ...]":
    """Return the servers in a file, in its order, without the disabled ones.

    Raises:
        UsageError: the file cannot be read or is too large, or an entry cannot be used; each is named, with none of
            its values.
    """
    from starloom.constellation.parsing import parse, read_text
    from starloom.constellation.problems import DocumentError

    text, _ = read_text(file)
    try:
        content = parse(text, str(file), is_yaml=False)
    except DocumentError as error:
        raise UsageError(f"The list of MCP servers {str(file)!r} is not JSON: {error.message}") from error
    entries = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise UsageError(f"The list of MCP servers {str(file)!r} has no object `mcpServers`.")
    found = [_server(name, entry, environ) for name, entry in entries.items()]
    faults = [item for item in found if isinstance(item, str)]
    servers = [item for item in found if item is not None and not isinstance(item, str)]
    names = [server.name for server in servers]
    faults += [f"Two servers come out as {name!r}." for name in sorted(set(names)) if names.count(name) > 1]
    if faults:
        raise UsageError("\n  ".join([f"The list of MCP servers {str(file)!r} cannot be used:", *faults]))
    return tuple(servers)


def _server(name: str, entry: object, environ: Mapping[str, str]) -> "McpServer | str | None":
    """Return a server, None for a disabled one, or what is wrong with it."""
    from starloom.safety.policy import Risk
    from starloom.tools.mcp_client import McpServer, ToolRating

    try:
        given = _Entry.model_validate(_filled(entry, environ))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the entry"
        return f"{name!r}: {where}: {first['msg'].removeprefix('Value error, ')}."
    except KeyError as error:
        return f"{name!r}: the environment variable {error.args[0]} is not set."
    if given.disabled:
        return None
    return McpServer(
        name=_NOT_IN_NAMES.sub("-", name.lower()).strip("-_")[:32],
        command=given.command or "",
        arguments=given.args,
        environment=given.env,
        folder=given.cwd,
        url=given.url,
        headers=given.headers,
        allowed=frozenset(given.allowed) if given.allowed is not None else None,
        ratings={tool: ToolRating(Risk(risk)) for tool, risk in given.risks.items()},
    )


def _filled(value: Any, environ: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON of somebody else's
    """Return a value with `${NAME}` in its texts replaced; a `KeyError` names a variable that is not set."""
    match value:
        case str():
            return _VARIABLE.sub(lambda found: environ[found[1]], value)
        case list():
            return [_filled(item, environ) for item in value]
        case dict():
            return {key: _filled(item, environ) for key, item in value.items()}
        case _:
            return value


@asynccontextmanager
async def mcp_toolsets(
    servers: "tuple[McpServer, ...]", complain: Callable[[str], None]
) -> "AsyncIterator[list[Toolset]]":
    """Start all servers side by side and yield the toolsets of those that are of use; they end with the block.

    Args:
        servers: none is fine.
        complain: told of each that is of no use.
    """
    over = asyncio.Event()
    async with background() as tasks:
        ready: list[asyncio.Future[Toolset | None]] = []
        held = []
        for server in servers:
            ready.append(asyncio.get_running_loop().create_future())
            held.append(tasks.create_task(_held(server, ready[-1], over, complain)))
        try:
            yield [toolset for future in ready if (toolset := await future) is not None]
        finally:
            over.set()
            if held:
                await asyncio.wait(held)


async def _held(
    server: "McpServer", ready: "asyncio.Future[Toolset | None]", over: asyncio.Event, complain: Callable[[str], None]
) -> None:
    """Hold one server in one task, as its library demands."""
    from starloom.tools.mcp_client import mcp_toolset

    try:
        async with mcp_toolset(server) as toolset:
            if not ready.done():
                ready.set_result(toolset)
            await over.wait()
    except DeviceError as error:
        complain(error.message)
    finally:
        if not ready.done():
            ready.set_result(None)
