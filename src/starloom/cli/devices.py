"""`starloom devices`: the fleet of the running hub."""

import json

import click

from starloom.cli.options import json_option


@click.command()
@json_option
def devices(as_json: bool) -> int:
    """List the devices of the running hub: what they are, what they can do, what they are doing."""
    from starloom.cli.hub_client import need_hub
    from starloom.places import places

    rows = need_hub(places().hub_address).get("/api/devices")["devices"]
    if as_json:
        click.echo(json.dumps({"devices": rows}, ensure_ascii=False))
        return 0
    from rich.console import Console

    from starloom.cli.console import table_of

    shown = [{**row, "tools": f"{len(row['tools'])} tools"} for row in rows]
    columns = {
        "device_id": "device",
        "platform": "platform",
        "status": "status",
        "tools": "tools",
        "current_task": "task",
    }
    Console().print(table_of(shown, columns))
    return 0
