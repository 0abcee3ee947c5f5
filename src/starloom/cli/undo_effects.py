"""`starloom undo-effects`: what a run changed on its devices, and, on yes, back to how it was."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from starloom.cli.options import json_option, workspace_option
from starloom.safety.provenance import visible

_SIGNS = {"created": "+", "overwritten": "~", "moved": ">", "deleted": "-", "folder": "+", "appeared": "+"}
_REFUSED = 6


@click.command("undo-effects")
@click.argument("run_id")
@click.option("--yes", "-y", is_flag=True, help="Take it back without asking.")
@click.option("--list", "only_list", is_flag=True, help="Only show.")
@workspace_option
@json_option
def undo_effects(run_id: str, yes: bool, only_list: bool, workspace: Path, as_json: bool) -> int:
    """Show what RUN_ID changed on its devices, and take back on yes what can be: files made, changed, moved, deleted.

    What has changed since stays as it is; of a workbook, only the cells that the run changed and nobody else since go
    back. Marked with ! is what cannot be reversed: what programs did that the run started, and what left the devices.
    """
    from starloom.cli.hub_client import running_hub
    from starloom.places import places

    hub = running_hub(places().hub_address)
    if hub is None:
        return asyncio.run(_here(run_id, workspace, yes=yes, only_list=only_list, as_json=as_json))
    path = f"/api/runs/{quote(run_id, safe='')}"
    devices = hub.get(f"{path}/effects")["devices"]
    if only_list or not _is_wanted(devices, yes=yes, as_json=as_json):
        return _close(devices, only_list=only_list, as_json=as_json)
    return _report(hub.post(f"{path}/undo-effects")["devices"], as_json=as_json)


async def _here(run_id: str, workspace: Path, *, yes: bool, only_list: bool, as_json: bool) -> int:
    from starloom.ids import RunId
    from starloom.places import places
    from starloom.session.build import galaxy_here
    from starloom.session.undoing import effects_of, undo_effects as take_back
    from starloom.settings import load_settings

    place = places()
    async with galaxy_here(place, load_settings(place.settings_file), workspace=workspace) as galaxy:
        devices = [device.to_row() for device in await effects_of(galaxy, RunId(run_id))]
        if only_list or not _is_wanted(devices, yes=yes, as_json=as_json):
            return _close(devices, only_list=only_list, as_json=as_json)
        return _report([device.to_row() for device in await take_back(galaxy, RunId(run_id))], as_json=as_json)


def _is_wanted(devices: list[dict[str, Any]], *, yes: bool, as_json: bool) -> bool:
    """Show what would be taken back and ask; without anyone to ask, only `--yes` is a yes."""
    from starloom.cli import terminal

    if not _is_something(devices):
        return False
    if yes:
        return True
    if as_json or not terminal.someone_is_there():
        return False
    _show(devices)
    return click.confirm("Take this back?", err=True)


def _close(devices: list[dict[str, Any]], *, only_list: bool, as_json: bool) -> int:
    """End without having taken anything back."""
    if as_json:
        click.echo(json.dumps({"devices": devices}, ensure_ascii=False))
    else:
        _show(devices)
    return 0 if only_list or not _is_something(devices) else _REFUSED


def _is_something(devices: list[dict[str, Any]]) -> bool:
    """Whether there is anything that can be taken back."""
    return any(_is_reversible(row) for device in devices for row in device["effects"])


def _is_reversible(row: dict[str, Any]) -> bool:
    return bool(row.get("reversible", True))  # a device of an older version does not say


def _report(devices: list[dict[str, Any]], *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"devices": devices}, ensure_ascii=False))
    else:
        _show(devices)
    return 3 if any(device["problem"] for device in devices) else 0


def _show(devices: list[dict[str, Any]]) -> None:
    for device in devices:
        click.echo(visible(f"{device['device_id']}:" + (f" {device['problem']}" if device["problem"] else "")))
        for row in device["effects"]:
            path = f"{row['source']} → {row['path']}" if row["source"] else row["path"]
            note = f"  ({row['note']})" if row["note"] else ""
            sign = _SIGNS.get(row["kind"], "?") if _is_reversible(row) else "!"
            click.echo(visible(f"  {sign} {row['kind']:<12} {path}{note}"))
        if not device["effects"] and not device["problem"]:
            click.echo("  nothing on record")
