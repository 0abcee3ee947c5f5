"""Options that several commands share, so that they read and mean the same everywhere."""

from pathlib import Path

import click

json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text for people.")

workspace_option = click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="the current folder",
    help="The folder that the local device may work in; nothing outside it is touched.",
)
