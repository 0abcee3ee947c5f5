"""`starloom up`: the hub in the foreground, with its local device, HTTP API and page."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from starloom.cli.options import json_option, workspace_option

if TYPE_CHECKING:
    from starloom.hub.serve import Address


@click.command()
@click.option("--host", help="Where to listen.  [default: 127.0.0.1, this machine alone]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes any free port.  [default: 5000]")
@click.option(
    "--key", envvar="STARLOOM_HUB_KEY", help="The key that devices and programs must show.  [default: a new one]"
)
@click.option(
    "--devices",
    type=click.Path(path_type=Path, dir_okay=False),
    help="UFO's devices.yaml: devices behind servers of its own, to be given whole tasks.",
)
@click.option(
    "--mcp",
    "mcp_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help='Offer the tools of the MCP servers in this file on the hub\'s own device ({"mcpServers": ...}).',
)
@workspace_option
@json_option
def up(
    host: str | None,
    port: int | None,
    key: str | None,
    devices: Path | None,
    mcp_file: Path | None,
    workspace: Path,
    as_json: bool,
) -> int:
    """Start the hub: devices join it, programs and the page start runs in it. Ctrl-C stops it; runs stay resumable."""
    from starloom.cli.hidden import out_of_sight

    out_of_sight("STARLOOM_HUB_KEY", key, option="--key")
    asyncio.run(_up(host, port, key, devices, mcp_file, workspace=workspace, as_json=as_json))
    return 0


async def _up(
    host: str | None,
    port: int | None,
    key: str | None,
    devices: Path | None,
    mcp_file: Path | None,
    *,
    workspace: Path,
    as_json: bool,
) -> None:
    from starloom.background import background
    from starloom.cli.mcp_servers import mcp_toolsets, read_mcp_servers
    from starloom.cli.outposts import read_outposts, start_outposts
    from starloom.hub.app import create_app
    from starloom.hub.guard import Guard
    from starloom.hub.serve import Address, Listening, bind, new_key, own_names, public_host, published, serving
    from starloom.places import places
    from starloom.session.build import galaxy_here
    from starloom.settings import load_settings

    place = places()
    settings = load_settings(place.settings_file)
    ours = settings.hub
    how = Listening(settings.fleet.max_message_bytes, ours.certificate, ours.key_file, ours.client_authorities)
    how.check()
    servers = read_mcp_servers(mcp_file) if mcp_file is not None else ()
    outposts = read_outposts(devices or ours.devices_file, here=ours.device_name)
    host = host or ours.host
    listener = bind(host, ours.port if port is None else port)
    port = listener.getsockname()[1]
    address = Address(host, port, key or new_key(), how.certificate, public_host(host))
    names = own_names(host) | {name.lower() for name in ours.names}
    with listener, published(address, place.hub_address):
        async with (
            mcp_toolsets(servers, lambda text: click.echo(f"starloom: {text}", err=True)) as more,
            galaxy_here(place, settings, workspace=workspace, toolsets=more) as galaxy,
            background() as tasks,
        ):
            app = create_app(galaxy, Guard(address.key, names, ours.client_certificates == "required"))
            async with serving(app, listener, closing=galaxy.close, how=how):
                start_outposts(galaxy.fleet, outposts, tasks)
                _announce(address, as_json=as_json)
                resumed = await galaxy.resume_all()
                for run_id in resumed:
                    click.echo(json.dumps({"resumed": run_id}) if as_json else f"Taking up {run_id}")
                await asyncio.Event().wait()  # until Ctrl-C cancels this


def _announce(address: "Address", *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"url": address.http_url, "join": address.join_url, "page": address.page_url}))
        return
    click.echo(f"The hub is up. Page:   {address.page_url}")
    click.echo(f"Join from a machine:   starloom join '{address.join_url}'")
    click.echo("Or without the key:    starloom devices invite prints a line for the other machine, good once")
    click.echo("Run something:         starloom run 'what you want done'")
    click.echo("Both addresses hold the key; keep them to yourself. Stop with Ctrl-C.")
