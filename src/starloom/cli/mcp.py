"""`starloom mcp`: the built-in tools for other people's agents, over MCP on standard input and output."""

from pathlib import Path

import click

from starloom.cli.options import highest_option, workspace_option


@click.command()
@click.option("--no-shell", is_flag=True, help="Do not offer the tool that runs commands.")
@highest_option("write")
@workspace_option
def mcp(no_shell: bool, highest: str, workspace: Path) -> int:
    """Serve this machine's tools over MCP (stdio), confined to the workspace and to --highest."""
    import asyncio

    from starloom.cli.owner import owned_tools
    from starloom.tools.mcp_server import serve_stdio

    tools = owned_tools(workspace, device_id="local", highest=highest, shell=not no_shell)
    asyncio.run(serve_stdio(tools))
    return 0
