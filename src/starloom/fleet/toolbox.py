"""Asking a device for its tools, and reading what it answers. Used by the fleet after every registration."""

from collections.abc import Sequence

from starloom.aip.messages import Command, MalformedMessage, MCPToolInfo, Result, ResultStatus, read

LIST_TOOLS = "list_tools"
# Source: wire specification, section 7. Upstream's devices look up their tools by the agent's name.
_UPSTREAM_AGENTS = {"linux": "LinuxAgent", "windows": "HostAgent", "mobile": "MobileAgent"}


def upstream_agent(platform: str) -> str | None:
    """Return the agent name that selects a tool set on an upstream device of this platform."""
    return _UPSTREAM_AGENTS.get(platform)


def list_tools_command(extended: bool) -> Command:
    """Return the question; our devices list every kind at once, upstream's are asked as upstream's server does."""
    return Command(tool_name=LIST_TOOLS, tool_type="action", parameters={} if extended else {"tool_type": "action"})


def tools_in(results: Sequence[Result]) -> tuple[MCPToolInfo, ...]:
    """Return the tools in the answer; elements that are not tools are left out, a failed answer has none (D34)."""
    if not results or results[0].status is not ResultStatus.SUCCESS or not isinstance(results[0].result, list):
        return ()
    tools: list[MCPToolInfo] = []
    for element in results[0].result:
        try:
            tools.append(read(MCPToolInfo, element))
        except MalformedMessage:
            continue
    return tuple(tools)
