"""`starloom join`: this machine becomes a device of a hub, in the foreground.

The process holds no key of any model; it does what the hub's commands say, inside one folder.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from starloom.cli.options import highest_option, json_option, workspace_option
from starloom.errors import UsageError

if TYPE_CHECKING:
    from starloom.device.process import DeviceStatusReport


@click.command()
@click.argument("url", envvar="STARLOOM_HUB_URL")
@click.option("--name", help="The device's name in the fleet.  [default: this machine's name]")
@click.option("--no-shell", is_flag=True, help="Do not offer the tool that runs commands.")
@highest_option("irreversible")
@workspace_option
@json_option
def join(url: str, name: str | None, no_shell: bool, highest: str, workspace: Path, as_json: bool) -> int:
    """Make this machine a device of the hub at URL (starloom up prints it).

    The device works inside the workspace folder, reconnects by itself, and stops with Ctrl-C.
    """
    if not url.startswith(("ws://", "wss://")):
        raise UsageError(f"A hub's address starts with ws:// or wss://, not {url[:40]!r}. `starloom up` prints it.")
    asyncio.run(_join(url, name, shell=not no_shell, highest=highest, workspace=workspace, as_json=as_json))
    return 0


async def _join(url: str, name: str | None, *, shell: bool, highest: str, workspace: Path, as_json: bool) -> None:
    from starloom.aip.transport import Transport
    from starloom.aip.websocket import connect
    from starloom.cli.owner import owned_tools
    from starloom.clock import SystemClock
    from starloom.device.attempts import AttemptJournal
    from starloom.device.identity import identity_of_this_machine
    from starloom.device.process import run_device
    from starloom.places import places
    from starloom.safety.paths import folder_name

    async def dial() -> Transport:
        return await connect(url)

    def report(status: "DeviceStatusReport") -> None:
        if as_json:
            import json

            click.echo(json.dumps({"state": status.state, "detail": status.detail, "retry_in_s": status.retry_in_s}))
        else:
            again = f" (again in {status.retry_in_s:.0f} s)" if status.retry_in_s else ""
            click.echo(f"{identity.device_id}: {status.state} {status.detail}{again}")

    identity = identity_of_this_machine(name)
    router = owned_tools(workspace, device_id=identity.device_id, highest=highest, shell=shell)
    attempts = await AttemptJournal.open(places().data / "attempts" / f"{folder_name(identity.device_id)}.sqlite")
    try:
        await run_device(dial, router, identity, clock=SystemClock(), on_status=report, attempts=attempts)
    finally:
        await attempts.close()
