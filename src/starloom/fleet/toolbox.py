"""Asking a device for its tools, reading what it answers, and knowing a list that was heard before.

Used by the fleet after every registration.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from starloom.aip.extension import digest_of
from starloom.aip.messages import Command, MalformedMessage, MCPToolInfo, Result, ResultStatus, read

LIST_TOOLS = "list_tools"
# Source: wire specification, section 7. Upstream's devices look up their tools by the agent's name.
_UPSTREAM_AGENTS = {"linux": "LinuxAgent", "windows": "HostAgent", "mobile": "MobileAgent"}
_MOST_TOOLS = 1_000
_LONGEST_DESCRIPTION = 2_000


class _Schema(Struct, frozen=True):
    """The shape of a JSON Schema, as far as anyone here walks through one."""

    type: str | list[str] | None = None
    properties: dict[str, "_Schema | bool"] | None = None
    required: list[str] | None = None
    items: "_Schema | bool | None" = None
    anyOf: list["_Schema"] | None = None
    enum: list[Any] | None = None


class _Usable(Struct, frozen=True):
    """What must hold of a listed tool beyond its types."""

    tool_name: Annotated[str, Meta(pattern=r"^[\w./:-]{1,200}\Z")]
    input_schema: _Schema | None = None


def upstream_agent(platform: str) -> str | None:
    """Return the agent name that selects a tool set on an upstream device of this platform."""
    return _UPSTREAM_AGENTS.get(platform)


def list_tools_command(extended: bool) -> Command:
    """Return the question; our devices list every kind at once, upstream's are asked as upstream's server does."""
    return Command(tool_name=LIST_TOOLS, tool_type="action", parameters={} if extended else {"tool_type": "action"})


def tools_in(results: Sequence[Result]) -> tuple[MCPToolInfo, ...]:
    """Return the tools in the answer; elements that are not tools are left out, a failed answer has none (D34).

    What a device says is not to break whoever reads it later, so a name that is none, a schema that is none, and what
    is too much of anything is left out as well.
    """
    if not results or results[0].status is not ResultStatus.SUCCESS or not isinstance(results[0].result, list):
        return ()
    tools: list[MCPToolInfo] = []
    for element in results[0].result[:_MOST_TOOLS]:
        try:
            read(_Usable, element)
            tools.append(_shortened(read(MCPToolInfo, element)))
        except MalformedMessage:
            continue
    return tuple(tools)


def _shortened(tool: MCPToolInfo) -> MCPToolInfo:
    if tool.description is None or len(tool.description) <= _LONGEST_DESCRIPTION:
        return tool
    return replace(tool, description=tool.description[:_LONGEST_DESCRIPTION])


class Listings:
    """Lists of tools by their digest, which the hub makes from what a device listed: nobody can put in another's.

    A device that names the digest of a list it does not have gets what it would get by listing it.

    Args:
        most: how many are kept; the oldest goes first.
        limit: how many tools a list may have to be kept.
    """

    def __init__(self, most: int = 64, limit: int = _MOST_TOOLS) -> None:
        self._most = most
        self._limit = limit
        self._by_digest: dict[str, tuple[MCPToolInfo, ...]] = {}

    def find(self, digest: str | None) -> tuple[MCPToolInfo, ...] | None:
        """Return the list with that digest; None: it is not known, or the device named none."""
        return self._by_digest.get(digest) if digest is not None else None

    def add(self, digest: str | None, results: Sequence[Result]) -> tuple[MCPToolInfo, ...]:
        """Return the tools in an answer, the very ones that another device has listed; keep them when named rightly."""
        found = self.find(digest)
        tools = tools_in(results)
        if found is not None:
            return found if found == tools else tools
        if digest is None or not 0 < len(tools) <= self._limit or digest != digest_of(results[0].result):
            return tools
        if len(self._by_digest) >= self._most:
            del self._by_digest[next(iter(self._by_digest))]
        self._by_digest[digest] = tools
        return tools
