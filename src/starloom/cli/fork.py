"""`starloom fork`: a new run from a point in an old one; what had ended by then is used again, not repeated."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from starloom.cli.options import json_option, workspace_option

if TYPE_CHECKING:
    from starloom.cli.console import JsonView, RunView


@click.command()
@click.argument("run_id")
@click.option(
    "--at", type=click.IntRange(1), required=True, help="The event's number (starloom runs show RUN) to fork after."
)
@workspace_option
@json_option
def fork(run_id: str, at: int, workspace: Path, as_json: bool) -> int:
    """Start a new run from RUN_ID as it was after event AT, in the running hub or here.

    Tasks that had ended keep their results; what was running then, and what came later, runs in the new run.
    """
    from starloom.cli.console import JsonView, RunView
    from starloom.cli.hub_client import running_hub
    from starloom.places import places

    view = JsonView() if as_json else RunView()
    hub = running_hub(places().hub_address)
    if hub is None:
        return asyncio.run(_fork(run_id, at, workspace, view))
    from starloom.cli.remote import follow_remotely

    return follow_remotely(hub, hub.post(f"/api/runs/{quote(run_id, safe='')}/fork", {"at": at})["run_id"], view)


async def _fork(run_id: str, at: int, workspace: Path, view: "RunView | JsonView") -> int:
    from starloom.cli.driving import drive
    from starloom.ids import RunId
    from starloom.places import places
    from starloom.session.build import galaxy_here
    from starloom.settings import load_settings

    place = places()
    settings = load_settings(place.settings_file)
    async with galaxy_here(place, settings, workspace=workspace) as galaxy:
        fork_id = await galaxy.fork(RunId(run_id), at)
        with view:
            return await drive(galaxy, fork_id, view, device_grace_s=settings.hub.device_grace_s)
