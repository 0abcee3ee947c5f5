"""The tools that a device's owner offers: the built-in ones, inside one folder, up to the risk that the owner permits.

Called by `join` and `mcp`. The limit is the device's own gate: what its owner does not permit, no hub can order.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from starloom.errors import UsageError
from starloom.safety.policy import Risk, Verdict
from starloom.safety.rules import owner_limit, propose
from starloom.tools.builtin import builtin_toolsets
from starloom.tools.router import ToolRouter
from starloom.tools.taking_back import effects_toolset
from starloom.tools.toolset import Tool, Toolset
from starloom.tools.workspace import Workspace


def owned_tools(
    workspace: Path, *, device_id: str, highest: str, shell: bool, more: Iterable[Toolset] = ()
) -> ToolRouter:
    """Return the router over the built-in tools and `more`.

    Raises:
        UsageError: the workspace is not a folder, or two toolsets have one name.
    """
    if not workspace.is_dir():
        raise UsageError(f"The workspace {str(workspace)!r} is not a folder.", path=str(workspace))
    limit = Risk(highest)

    def guard(tool: Tool, arguments: Mapping[str, Any]) -> Verdict:
        return owner_limit(propose(device_id, tool.name, arguments, tool.risk, tool.destinations), limit)

    offered = [*builtin_toolsets(Workspace(workspace), shell=shell), *more]
    return ToolRouter(offered, guard=guard, unlisted=(effects_toolset(workspace),))
