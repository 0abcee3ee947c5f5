"""`starloom run` and `starloom resume`: one run, in this user's running hub or in a hub of its own.

Without a running hub the command is the hub: it starts a local device on the workspace, drives the run and leaves.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from starloom.cli import terminal
from starloom.cli.options import json_option, workspace_option
from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.cli.console import JsonView, RunView
    from starloom.cli.hub_client import HubClient

_RECIPE_ENDINGS = (".yaml", ".yml", ".json")


@click.command()
@click.argument("work")
@click.option("--set", "settings_", multiple=True, metavar="NAME=VALUE", help="A parameter of the recipe; repeatable.")
@click.option("--yes", "-y", is_flag=True, help="Run the plan without showing it for a yes first.")
@click.option("--here", is_flag=True, help="Run in this process even when a hub is running.")
@workspace_option
@json_option
def run(work: str, settings_: tuple[str, ...], yes: bool, here: bool, workspace: Path, as_json: bool) -> int:
    """Run WORK: a request in words, or a recipe file (.yaml, .json).

    A request needs a model: the embedded one (starloom model install), or STARLOOM_MODEL. A recipe needs none.
    """
    recipe = _recipe(work)
    values = _values(settings_)
    if values and recipe is None:
        raise UsageError("--set gives parameters to a recipe file; a request in words has none.")
    confirm = not yes and not as_json and terminal.someone_is_there()
    hub = None if here else _running_hub()
    if hub is None:
        return asyncio.run(_run(work, recipe, values, confirm=confirm, workspace=workspace, as_json=as_json))
    from starloom.cli.remote import run_remotely

    body = {"recipe": recipe, "parameters": values} if recipe else {"request": work, "confirm_plan": confirm}
    return run_remotely(hub, body, _view(as_json))


@click.command()
@click.argument("run_id")
@workspace_option
@json_option
def resume(run_id: str, workspace: Path, as_json: bool) -> int:
    """Take up RUN_ID where it stopped, from the journal alone; finished tasks are not run again."""
    hub = _running_hub()
    if hub is None:
        return asyncio.run(_resume(run_id, workspace=workspace, as_json=as_json))
    from starloom.cli.remote import follow_remotely

    hub.post(f"/api/runs/{quote(run_id, safe='')}/resume")
    return follow_remotely(hub, run_id, _view(as_json))


def _running_hub() -> "HubClient | None":
    from starloom.cli.hub_client import running_hub
    from starloom.places import places

    return running_hub(places().hub_address)


def _view(as_json: bool) -> "RunView | JsonView":
    from starloom.cli.console import JsonView, RunView

    return JsonView() if as_json else RunView()


def _recipe(work: str) -> dict[str, Any] | None:
    if not work.lower().endswith(_RECIPE_ENDINGS) or "\n" in work:
        return None
    from starloom.constellation.documents import read_document

    path = Path(work)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The recipe {work!r} cannot be read: {error.strerror}.", path=work) from error
    return read_document(content, where=work)


def _values(pairs: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--set takes NAME=VALUE, not {pair!r}.")
        values[name] = value
    return values


async def _run(
    work: str, recipe: dict[str, Any] | None, values: dict[str, str], *, confirm: bool, workspace: Path, as_json: bool
) -> int:
    from starloom.cli.driving import drive
    from starloom.places import places
    from starloom.session.build import galaxy_here
    from starloom.settings import load_settings

    place = places()
    settings = load_settings(place.settings_file)
    async with galaxy_here(place, settings, workspace=workspace) as galaxy:
        if recipe is not None:
            run_id = await galaxy.submit_recipe(recipe, values)
        else:
            run_id = await galaxy.submit_request(work, confirm_plan=confirm)
        with _view(as_json) as view:
            return await drive(galaxy, run_id, view, device_grace_s=settings.hub.device_grace_s)


async def _resume(run_id: str, *, workspace: Path, as_json: bool) -> int:
    from starloom.cli.driving import drive
    from starloom.ids import RunId
    from starloom.places import places
    from starloom.session.build import galaxy_here
    from starloom.settings import load_settings

    place = places()
    settings = load_settings(place.settings_file)
    async with galaxy_here(place, settings, workspace=workspace) as galaxy:
        await galaxy.resume(RunId(run_id))
        with _view(as_json) as view:
            return await drive(galaxy, RunId(run_id), view, device_grace_s=settings.hub.device_grace_s)
