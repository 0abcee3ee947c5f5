"""The meta tool `list_tools`: what this device can do, in the wire's words.

Called by the runner. Every device answers it itself under both tool types (wire specification, section 7).
"""

from collections.abc import Iterable
from typing import Any

from starloom.aip.messages import MCPToolInfo, plain
from starloom.tools.toolset import Tool

LIST_TOOLS = "list_tools"


def list_tools(tools: Iterable[Tool], parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tools as `list_tools` answers them.

    Args:
        tools: in their order.
        parameters: `tool_type` and `namespace` narrow the list when given; `remove_meta` false adds this tool itself.
    """
    kind, namespace = parameters.get("tool_type"), parameters.get("namespace")
    infos = [wire_info(tool) for tool in tools]
    if parameters.get("remove_meta", True) is False:
        infos += [_own_info("action"), _own_info("data_collection")]
    chosen = [info for info in infos if kind in (None, info.tool_type) and namespace in (None, info.namespace)]
    return [plain(info) for info in chosen]


def wire_info(tool: Tool) -> MCPToolInfo:
    """Return one tool as it travels; risk and destinations ride in `meta`."""
    return MCPToolInfo(
        tool_key=f"{tool.kind}::{tool.name}",
        tool_name=tool.name,
        namespace=tool.namespace,
        tool_type=tool.kind,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        meta={"starloom": {"risk": tool.risk.value, "destinations": list(tool.destinations)}},
    )


def _own_info(kind: str) -> MCPToolInfo:
    return MCPToolInfo(
        tool_key=f"{kind}::{LIST_TOOLS}",
        tool_name=LIST_TOOLS,
        namespace="device",
        tool_type=kind,
        description="List the tools of this device.",
    )
