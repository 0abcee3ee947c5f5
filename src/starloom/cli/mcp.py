"""`starloom mcp`: the built-in tools for other people's agents, over MCP on standard input and output."""

from pathlib import Path

import click

from starloom.cli.options import workspace_option


@click.command()
@click.option("--no-shell", is_flag=True, help="Do not offer the tool that runs commands.")
@workspace_option
def mcp(no_shell: bool, workspace: Path) -> int:
    """Serve this machine's tools over MCP (stdio), confined to the workspace."""
    import asyncio

    from starloom.errors import UsageError
    from starloom.tools.builtin import builtin_toolsets
    from starloom.tools.mcp_server import serve_stdio
    from starloom.tools.workspace import Workspace

    if not workspace.is_dir():
        raise UsageError(f"The workspace {str(workspace)!r} is not a folder.", path=str(workspace))
    asyncio.run(serve_stdio(builtin_toolsets(Workspace(workspace), shell=not no_shell)))
    return 0
