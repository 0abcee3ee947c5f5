"""Outposts of a running hub: the devices in a list of UFO's kind, each kept connected for ever.

Called by `up`. The list is read and checked before anything starts; a server that is not there is tried again and
again, and `starloom devices` says why it is not connected.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.aip.transport import Transport
    from starloom.background import Background
    from starloom.fleet.fleet import Fleet
    from starloom.fleet.outpost_specs import OutpostSpec


def read_outposts(file: Path | None, *, here: str, environ: Mapping[str, str] = os.environ) -> "list[OutpostSpec]":
    """Return the devices in the list; none without a list.

    Raises:
        UsageError: the list or an entry cannot be used, a token is missing, or a name is the hub's own device's.
    """
    from starloom.fleet.outpost_specs import read_devices_yaml

    specs = list(read_devices_yaml(file)) if file is not None else []
    for spec in specs:
        spec.token(environ)
        if spec.device_id == here:
            raise UsageError(f"{here!r} is the hub's own device. Give the one in {str(file)!r} another device_id.")
    return specs


def start_outposts(
    fleet: "Fleet", specs: "Sequence[OutpostSpec]", tasks: "Background", environ: Mapping[str, str] = os.environ
) -> None:
    """Keep all of them connected until the tasks are stopped; one whose name is taken is left out, with a line."""
    from starloom.aip.websocket import connect

    for spec in specs:
        if spec.auto_connect:
            dial = partial(connect, spec.server_url, token=spec.token(environ))
            tasks.create_task(_kept(fleet, spec, dial), name=f"outpost {spec.device_id}")
        else:
            fleet.outposts.add(spec)


async def _kept(fleet: "Fleet", spec: "OutpostSpec", dial: "Callable[[], Awaitable[Transport]]") -> None:
    try:
        await fleet.outposts.run(spec, dial)
    except UsageError as error:
        click.echo(f"starloom: {error.message}", err=True)
