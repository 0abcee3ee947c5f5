"""`starloom devices`: the fleet of the running hub — list, look at one, let one in, put one out.

`starloom devices` alone lists. Everything here goes over the hub's HTTP API with the hub's key.
"""

import json
from typing import Any
from urllib.parse import quote, urlencode

import click

from starloom.cli.options import json_option
from starloom.errors import UsageError

_SILENT = 3
_COLUMNS = {
    "device_id": "device",
    "display_name": "name",
    "platform": "platform",
    "status": "status",
    "tools": "tools",
    "groups": "groups",
    "current_task": "task",
    "last_seen": "last seen",
}
_LOOPBACK = ("ws://127.", "wss://127.", "ws://localhost", "wss://localhost", "ws://[::1]", "wss://[::1]")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def devices(ctx: click.Context, as_json: bool) -> int:
    """List the devices of the running hub: what they are, what they can do, what they are doing."""
    return 0 if ctx.invoked_subcommand else _list({}, as_json=as_json)


@devices.command("list")
@click.option("--group", help="Only the devices that people put into this group.")
@click.option("--tag", help="Only the devices that say this tag of themselves.")
@click.option("--tool", help="Only the devices that have this tool, as in files.read.")
@click.option("--application", help="Only the devices that found this application installed, as in Firefox.")
@json_option
def list_devices(group: str | None, tag: str | None, tool: str | None, application: str | None, as_json: bool) -> int:
    """List the devices, those that are away too."""
    wanted = {"group": group, "tag": tag, "tool": tool, "application": application}
    return _list({name: word for name, word in wanted.items() if word is not None}, as_json=as_json)


@devices.command()
@click.argument("device_id")
@json_option
def show(device_id: str, as_json: bool) -> int:
    """Show all that is known of DEVICE_ID."""
    row = _get(_path(device_id))
    if as_json:
        click.echo(json.dumps(row, ensure_ascii=False))
        return 0
    row["system_info"].pop("custom_metadata", None)  # ours is shown in words
    for name, value in row.items():
        if name in ("tools", "applications"):
            click.echo(f"{name}: {', '.join(value) or 'none known'}")
        elif value not in (None, [], {}, False):
            click.echo(f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    if row["credential"] is None:
        click.echo("credential: none of its own; it comes with the hub's key")
    return 0


@devices.command()
@click.option("--name", help="Its name in the fleet; needed to invite a device again.  [default: it names itself]")
@click.option(
    "--minutes", type=click.FloatRange(0, 10080, min_open=True), default=10.0, show_default=True, help="How long good."
)
@click.option("--url", help="The hub's address as the other machine sees it, ws://…/ws or wss://…/ws.")
@json_option
def invite(name: str | None, minutes: float, url: str | None, as_json: bool) -> int:
    """Print one line to paste on another machine; it lets one device in, once, and soon ends."""
    from starloom.cli.hub_client import need_hub
    from starloom.places import places

    if url is not None and not _is_plain_address(url):
        raise UsageError(f"The hub's address is one like wss://hub.example/ws, not {url[:60]!r}.")
    hub = need_hub(places().hub_address)
    made = hub.post("/api/devices/invite", {"device_id": name, "valid_s": minutes * 60})
    address = url or hub.wire_url
    line = _line(address, made["token"], made["device_id"])
    if as_json:
        click.echo(json.dumps({**made, "url": address, "line": line}, ensure_ascii=False))
        return 0
    click.echo(line)
    click.echo(f"Paste this on the other machine within {minutes:g} minutes; it works once.", err=True)
    if address.startswith(_LOOPBACK):
        click.echo(
            "This hub listens on this machine alone. For other machines: starloom up --host 0.0.0.0, or --url here.",
            err=True,
        )
    return 0


@devices.command()
@click.argument("device_id")
@json_option
def revoke(device_id: str, as_json: bool) -> int:
    """Take DEVICE_ID's token and open invitations away, and close its connection."""
    return _report(_post(f"{_path(device_id)}/revoke"), f"{device_id} can no longer connect.", as_json=as_json)


@devices.command()
@click.argument("device_id")
@click.option("--force", is_flag=True, help="Put it out when it is connected; its process counts as ended.")
@json_option
def forget(device_id: str, force: bool, as_json: bool) -> int:
    """Remove all that is remembered of DEVICE_ID, its name and groups and token too."""
    answer = _post(f"{_path(device_id)}/forget", {"force": force})
    return _report(answer, f"{device_id} is forgotten; to come back it needs a new invitation.", as_json=as_json)


@devices.command()
@click.argument("device_id")
@json_option
def release(device_id: str, as_json: bool) -> int:
    """Free DEVICE_ID's place at once: you know that the process which was lost has ended.

    Otherwise the hub waits until a lost process has surely stopped, before it lets another one be DEVICE_ID. What the
    lost one was doing is in doubt.
    """
    answer = _post(f"{_path(device_id)}/release")
    was_held_s = answer["was_held_s"]
    freed = "was free already" if was_held_s is None else f"is free now; it was held for {was_held_s:.0f} s more"
    return _report(answer, f"The place of {device_id} {freed}.", as_json=as_json)


@devices.command()
@click.argument("device_id")
@json_option
def ping(device_id: str, as_json: bool) -> int:
    """Ask DEVICE_ID to show that it lives."""
    answer = _post(f"{_path(device_id)}/ping")
    took_s = answer["answered_s"]
    text = f"{device_id} stays silent." if took_s is None else f"{device_id} answered in {took_s * 1000:.1f} ms."
    return _report(answer, text, as_json=as_json) or (_SILENT if took_s is None else 0)


@devices.command()
@click.argument("device_id")
@click.argument("display_name")
@json_option
def rename(device_id: str, display_name: str, as_json: bool) -> int:
    """Call DEVICE_ID by DISPLAY_NAME from now on ('' ends it); its id stays."""
    row = _post(f"{_path(device_id)}/rename", {"display_name": display_name})
    return _report(row, f"{device_id} is called {row['display_name'] or device_id!r} now.", as_json=as_json)


@devices.command()
@click.argument("device_id")
@click.argument("group", nargs=-1)
@click.option("--none", is_flag=True, help="Take it out of all its groups.")
@json_option
def groups(device_id: str, group: tuple[str, ...], none: bool, as_json: bool) -> int:
    """Put DEVICE_ID into these GROUPs and no others; without any, show the ones it is in."""
    if group and none:
        raise UsageError("Name the groups, or say --none; not both.")
    changes = bool(group) or none
    row = _post(f"{_path(device_id)}/groups", {"groups": list(group)}) if changes else _get(_path(device_id))
    return _report(row, f"{device_id} is in: {', '.join(row['groups']) or 'no group'}.", as_json=as_json)


def _list(wanted: dict[str, str], *, as_json: bool) -> int:
    rows = _get("/api/devices" + (f"?{urlencode(wanted)}" if wanted else ""))["devices"]
    if as_json:
        click.echo(json.dumps({"devices": rows}, ensure_ascii=False))
        return 0
    from rich.console import Console

    from starloom.cli.console import table_of

    Console().print(table_of([_shown(row) for row in rows], _COLUMNS))
    return 0


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    seen = "" if row["status"] in ("idle", "busy", "connected") else (row["last_seen"] or "")[:16].replace("T", " ")
    return {**row, "tools": f"{len(row['tools'])} tools", "groups": ", ".join(row["groups"]), "last_seen": seen}


def _is_plain_address(url: str) -> bool:
    """Tell whether `join` takes this address, and a token can be put behind it."""
    from starloom.cli.kept_tokens import parted

    try:
        parted(url)
    except ValueError:
        return False
    return url.startswith(("ws://", "wss://")) and "?" not in url and "#" not in url


def _line(address: str, token: str, device_id: str | None) -> str:
    """Return the line to paste, quoted for a shell."""
    from shlex import quote as shell_quote

    words = ["starloom", "join", f"{address}?token={token}", *(["--name", device_id] if device_id is not None else [])]
    return " ".join(shell_quote(word) for word in words)


def _path(device_id: str) -> str:
    return f"/api/devices/{quote(device_id, safe='')}"


def _get(path: str) -> dict[str, Any]:
    from starloom.cli.hub_client import need_hub
    from starloom.places import places

    return need_hub(places().hub_address).get(path)


def _post(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    from starloom.cli.hub_client import need_hub
    from starloom.places import places

    return need_hub(places().hub_address).post(path, body)


def _report(answer: dict[str, Any], text: str, *, as_json: bool) -> int:
    click.echo(json.dumps(answer, ensure_ascii=False) if as_json else text)
    return 0
